//! A compromised guest against the client, and arbitrary bytes against the decoder.

use std::time::Duration;

use hermes_guest::client::{Client, Error, ProtocolViolation};
use hermes_guest::protocol::file::{FileRange, FileReply, FileRequest, JudgedPath, WriteChunk};
use hermes_guest::protocol::frame::{self, FrameStream};
use hermes_guest::protocol::message::{
    GuestReply, GuestRequest, OutputDelivery, OutputPage, ProcessId, Program, RunInput, RunMode, RunRequest,
    ShellSessionKey, StatePolicy, Stdin,
};
use hermes_guest::protocol::mux::{self, Mux, MuxMode, MuxStream};
use hermes_guest::protocol::{handshake, limit};
use proptest::prelude::*;
use serde_bytes::ByteBuf;
use tokio::io::AsyncWriteExt;

use crate::fixture::{TIMEOUT, wait_for_exit};

const ID: ProcessId = ProcessId { pid: 1, started: 1 };

/// A client of a fake guest that handles each request with this function.
async fn client_with_guest<F, A>(answer: F) -> Client
where
    F: Fn(GuestRequest, MuxStream, Mux) -> A + Send + 'static,
    A: Future<Output = ()> + Send + 'static,
{
    let (near, mut far) = tokio::io::duplex(1 << 16);
    tokio::spawn(async move {
        handshake::exchange_hello(&mut far).await.unwrap();
        let (mux, driver, mut arrivals) = mux::multiplex(far, MuxMode::Server);
        tokio::spawn(driver.run());
        while let Some(stream) = arrivals.recv().await {
            let mut frames = FrameStream::new(stream);
            let Ok(Some(request)) = frames.reader.receive().await else { continue };
            tokio::spawn(answer(request, frames.into_parts().0, mux.clone()));
        }
    });
    Client::connect(near).await.unwrap()
}

/// A client of a fake guest that sends this reply to every request.
async fn client_with_reply(reply: GuestReply) -> Client {
    client_with_guest(move |_, stream, _| {
        let reply = reply.clone();
        async move {
            let mut frames = FrameStream::new(stream);
            frames.writer.send(&reply).await.unwrap();
            std::future::pending().await
        }
    })
    .await
}

/// A client of a fake guest that sends these bytes to every request.
async fn client_with_bytes(bytes: Vec<u8>) -> Client {
    client_with_guest(move |_, mut stream, _| {
        let bytes = bytes.clone();
        async move {
            drop(stream.write_all(&bytes).await);
            drop(stream.flush().await);
            std::future::pending().await
        }
    })
    .await
}

fn breach(error: Error) -> ProtocolViolation {
    match error {
        Error::Protocol(breach) => breach,
        other => panic!("{other:?}"),
    }
}

fn root() -> JudgedPath {
    JudgedPath { session: None, path: ByteBuf::from("/"), resolved: ByteBuf::from("/") }
}

#[tokio::test]
async fn a_mismatched_reply_closes_the_connection() {
    let client = client_with_reply(GuestReply::Done).await;
    assert_eq!(breach(client.stats().await.unwrap_err()), ProtocolViolation::Unexpected);
    tokio::time::timeout(TIMEOUT, client.wait_closed()).await.unwrap();
    assert!(matches!(client.stats().await.unwrap_err(), Error::Disconnected));
}

#[tokio::test]
async fn bytes_that_do_not_decode_close_the_connection() {
    let too_long = u32::try_from(limit::MAX_FRAME_BYTES + 1).unwrap().to_le_bytes().to_vec();
    let trailing = [&3_u32.to_le_bytes()[..], &[1, 0, 0]].concat();
    for bytes in [b"\x04\0\0\0\xff\xff\xff\xff".to_vec(), too_long, trailing, vec![0, 0, 0, 0]] {
        let client = client_with_bytes(bytes.clone()).await;
        assert_eq!(breach(client.stats().await.unwrap_err()), ProtocolViolation::Malformed, "{bytes:?}");
        tokio::time::timeout(TIMEOUT, client.wait_closed()).await.unwrap();
    }
}

#[tokio::test]
async fn a_reply_beyond_the_requested_size_is_a_violation() {
    let page = OutputPage { offset: 0, data: ByteBuf::from(vec![0; 101]), total: 1000 };
    let client = client_with_reply(GuestReply::Output(page)).await;
    assert_eq!(breach(client.read_output(ID, 0, 100).await.unwrap_err()), ProtocolViolation::Unexpected);
    let backwards = OutputPage { offset: 9, data: ByteBuf::new(), total: 3 };
    let client = client_with_reply(GuestReply::Output(backwards)).await;
    assert_eq!(breach(client.read_output(ID, 0, 100).await.unwrap_err()), ProtocolViolation::Unexpected);
    let beyond = OutputPage { offset: u64::MAX, data: ByteBuf::from([0]), total: u64::MAX };
    let client = client_with_reply(GuestReply::Output(beyond)).await;
    assert_eq!(
        breach(client.read_output(ID, u64::MAX, 100).await.unwrap_err()),
        ProtocolViolation::Unexpected
    );
    let chunk = GuestReply::File(FileReply::Data(ByteBuf::from(vec![0; limit::CHUNK_BYTES + 1])));
    let client = client_with_reply(chunk).await;
    let mut reader = client.read_file(root(), FileRange::Whole).await.unwrap();
    assert_eq!(breach(reader.next_chunk().await.unwrap_err()), ProtocolViolation::Unexpected);
}

#[tokio::test]
async fn an_endless_list_is_a_violation() {
    let client = client_with_guest(|_, stream, _| async move {
        let mut frames = FrameStream::new(stream);
        let entry = |stat| hermes_guest::protocol::file::DirEntry { name: ByteBuf::from("x"), stat };
        let stat = hermes_guest::protocol::file::FileStat {
            kind: hermes_guest::protocol::file::FileKind::File,
            size: 0,
            mode: 0,
        };
        let reply = GuestReply::File(FileReply::DirEntries(vec![entry(stat); 1000]));
        while frames.writer.send(&reply).await.is_ok() {}
    })
    .await;
    assert_eq!(breach(client.list_dir(root()).await.unwrap_err()), ProtocolViolation::Unexpected);
}

#[tokio::test]
async fn a_list_of_long_names_is_a_violation() {
    let client = client_with_guest(|_, stream, _| async move {
        let mut frames = FrameStream::new(stream);
        let stat = hermes_guest::protocol::file::FileStat {
            kind: hermes_guest::protocol::file::FileKind::File,
            size: 0,
            mode: 0,
        };
        let name = ByteBuf::from(vec![b'x'; limit::MAX_FRAME_BYTES / 2]);
        let entry = hermes_guest::protocol::file::DirEntry { name, stat };
        let reply = GuestReply::File(FileReply::DirEntries(vec![entry]));
        // As many entries as a page may have, but far more bytes.
        for _ in 0..limit::MAX_PAGE_ENTRIES {
            if frames.writer.send(&reply).await.is_err() {
                return;
            }
        }
    })
    .await;
    assert_eq!(breach(client.list_dir(root()).await.unwrap_err()), ProtocolViolation::Unexpected);
}

#[tokio::test]
async fn a_stream_that_begins_with_a_large_message_is_a_violation() {
    let client = client_with_guest(|_, stream, mux| async move {
        let _held = stream;
        let mut arrival = mux.open_stream().await.unwrap();
        // Only the announcement: the connection ends before the rest could arrive.
        let length = u32::try_from(limit::MAX_FRAME_BYTES / 2).unwrap();
        arrival.write_all(&length.to_le_bytes()).await.unwrap();
        arrival.flush().await.unwrap();
        std::future::pending().await
    })
    .await;
    assert!(client.stats().await.is_err());
    tokio::time::timeout(Duration::from_secs(10), client.wait_closed()).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_guest_that_never_sends_a_list_or_hits_times_out() {
    use hermes_guest::protocol::file::{FileSearch, SearchMode};
    let silent = || {
        client_with_guest(|_, stream, _| async move {
            let _held = stream;
            std::future::pending().await
        })
    };
    assert!(matches!(silent().await.list_dir(root()).await.unwrap_err(), Error::Timeout));
    let search = FileSearch { target: SearchMode::Names, globs: Vec::new(), offset: 0, limit: 1 };
    assert!(matches!(silent().await.search_files(root(), search).await.unwrap_err(), Error::Timeout));
}

#[tokio::test(start_paused = true)]
async fn a_guest_that_never_replies_times_out() {
    let client = client_with_guest(|_, stream, _| async move {
        let _held = stream;
        std::future::pending().await
    })
    .await;
    let asked = tokio::time::Instant::now();
    assert!(matches!(client.stats().await.unwrap_err(), Error::Timeout));
    assert_eq!(asked.elapsed().as_secs(), limit::REPLY_TIMEOUT.as_secs());
    client.wait_closed().await;
    let (near, _far) = tokio::io::duplex(64);
    assert!(
        matches!(Client::connect(near).await.unwrap_err(), Error::Timeout),
        "a missing handshake times out too"
    );
}

#[tokio::test(start_paused = true)]
async fn a_guest_that_misses_a_deadline_times_out() {
    let client = client_with_reply(GuestReply::Started(ID)).await;
    let run = RunRequest {
        confinement: hermes_guest::protocol::guard::RunConfinement::None,
        session: ShellSessionKey::from("s"),
        program: Program::Shell(ByteBuf::from("sleep 9")),
        workdir: hermes_guest::protocol::message::WorkingDir::Session,
        judged_shell: None,
        env: Vec::new(),
        stdin: Stdin::Null,
        terminal: None,
        deadline: Some(Duration::from_secs(5)),
        mode: RunMode::Foreground { output: OutputDelivery::Summary, state: StatePolicy::Apply },
        memory_bytes: 4096,
        spool_bytes: 0,
    };
    let asked = tokio::time::Instant::now();
    let mut running = client.run(run).await.unwrap();
    assert!(matches!(wait_for_exit(&mut running).await.unwrap_err(), Error::Timeout));
    assert_eq!(asked.elapsed().as_secs(), 5 + limit::REPLY_TIMEOUT.as_secs());
}

#[tokio::test]
async fn a_connection_for_an_unknown_listener_is_a_violation() {
    let client = client_with_guest(|request, stream, mux| async move {
        let mut frames = FrameStream::new(stream);
        match request {
            GuestRequest::Listen(number, _) => {
                let mut arrival = FrameStream::new(mux.open_stream().await.unwrap());
                arrival.writer.send(&GuestReply::Connected(number)).await.unwrap();
                frames.writer.send(&GuestReply::Listening(0)).await.unwrap();
                std::future::pending().await
            }
            _ => {
                let mut arrival = FrameStream::new(mux.open_stream().await.unwrap());
                arrival.writer.send(&GuestReply::Connected(8)).await.unwrap();
                std::future::pending().await
            }
        }
    })
    .await;
    let mut listener = client.listen(0).await.unwrap();
    assert!(listener.connections.recv().await.is_some(), "a connection of the listener is accepted");
    assert!(client.stats().await.is_err());
    tokio::time::timeout(TIMEOUT, client.wait_closed()).await.unwrap();
    assert!(listener.connections.recv().await.is_none(), "the listener is closed too");
}

#[tokio::test]
async fn unsolicited_streams_are_bounded() {
    let client = client_with_guest(|_, stream, mux| async move {
        let _held = stream;
        let mut opened = Vec::new();
        while let Ok(Ok(stream)) = tokio::time::timeout(Duration::from_millis(300), mux.open_stream()).await {
            opened.push(stream);
            assert!(opened.len() <= 2 * limit::MAX_STREAMS, "streams without end");
        }
        std::future::pending().await
    })
    .await;
    drop(tokio::time::timeout(Duration::from_secs(2), client.stats()).await);
}

#[tokio::test]
async fn noise_instead_of_a_connection_is_an_error() {
    let (near, mut far) = tokio::io::duplex(1 << 16);
    let noise = tokio::spawn(async move {
        handshake::exchange_hello(&mut far).await.unwrap();
        while far.write_all(&[0xa5; 4096]).await.is_ok() {}
    });
    let client = Client::connect(near).await.unwrap();
    assert!(matches!(client.stats().await.unwrap_err(), Error::Disconnected));
    noise.await.unwrap();
}

proptest! {
    #[test]
    fn any_bytes_are_decoded_or_rejected(bytes in proptest::collection::vec(any::<u8>(), 0..2000)) {
        // A decoded message is not larger than its input.
        if let Ok(request) = frame::decode::<GuestRequest>(&bytes) {
            prop_assert!(postcard::to_stdvec(&request).unwrap().len() <= bytes.len());
        }
        if let Ok(reply) = frame::decode::<GuestReply>(&bytes) {
            prop_assert!(postcard::to_stdvec(&reply).unwrap().len() <= bytes.len());
        }
        drop(frame::decode::<RunInput>(&bytes));
        drop(frame::decode::<WriteChunk>(&bytes));
    }

    #[test]
    fn an_encoded_request_is_decoded(path: Vec<u8>, offset: u64, length: u64, cut in 0_usize..40) {
        let guest = JudgedPath { session: None, path: ByteBuf::from(path.clone()), resolved: ByteBuf::from(path) };
        let request = GuestRequest::File(guest, FileRequest::Read(FileRange::Bytes { offset, length }));
        let bytes = postcard::to_stdvec(&request).unwrap();
        let decoded = frame::decode::<GuestRequest>(&bytes);
        prop_assert_eq!(decoded.as_ref(), Ok(&request));
        let cut = cut.min(bytes.len() - 1);
        prop_assert!(frame::decode::<GuestRequest>(&bytes[..cut]).is_err());
    }

    #[test]
    fn a_false_length_allocates_nothing(claimed in any::<u32>()) {
        // A list that claims this many entries but has none.
        let mut bytes = postcard::to_stdvec(&GuestReply::Processes(Vec::new())).unwrap();
        bytes.pop();
        bytes.extend(postcard::to_stdvec(&claimed).unwrap());
        prop_assert_eq!(frame::decode::<GuestReply>(&bytes).is_ok(), claimed == 0);
    }
}
