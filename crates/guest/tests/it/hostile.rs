//! A guest that was taken over, against the client; and any bytes at all, against the decoder.

use std::time::Duration;

use hermes_guest::client::{Breach, Client, Error};
use hermes_guest::protocol::file::{Content, FileReply, FileRequest, Part, Place as FilePlace};
use hermes_guest::protocol::frame::{self, Frames};
use hermes_guest::protocol::message::{
    Address, AtDeadline, Deadline, Delivery, Input, Mode, Page, ProcessId, Program, Reply, Request, Run,
    SessionKey, StateRule, Stdin,
};
use hermes_guest::protocol::mux::{self, End, Mux, Stream};
use hermes_guest::protocol::{greeting, limit};
use proptest::prelude::*;
use serde_bytes::ByteBuf;
use tokio::io::AsyncWriteExt;

use crate::place::PATIENCE;

const ID: ProcessId = ProcessId { pid: 1, started: 1 };

/// A client whose guest answers each request as this function says.
async fn client_of<F, A>(answer: F) -> Client
where
    F: Fn(Request, Stream, Mux) -> A + Send + 'static,
    A: Future<Output = ()> + Send + 'static,
{
    let (near, mut far) = tokio::io::duplex(1 << 16);
    tokio::spawn(async move {
        greeting::exchange(&mut far).await.unwrap();
        let (mux, driver, mut arrivals) = mux::multiplex(far, End::Guest);
        tokio::spawn(driver.run());
        while let Some(stream) = arrivals.recv().await {
            let mut frames = Frames::new(stream);
            let Ok(Some(request)) = frames.reader.receive().await else { continue };
            tokio::spawn(answer(request, frames.into_raw().0, mux.clone()));
        }
    });
    Client::connect(near).await.unwrap()
}

/// A client whose guest answers every request with this reply.
async fn client_told(reply: Reply) -> Client {
    client_of(move |_, stream, _| {
        let reply = reply.clone();
        async move {
            let mut frames = Frames::new(stream);
            frames.writer.send(&reply).await.unwrap();
            std::future::pending().await
        }
    })
    .await
}

/// A client whose guest answers every request with these bytes.
async fn client_sent(bytes: Vec<u8>) -> Client {
    client_of(move |_, mut stream, _| {
        let bytes = bytes.clone();
        async move {
            drop(stream.write_all(&bytes).await);
            drop(stream.flush().await);
            std::future::pending().await
        }
    })
    .await
}

fn breach(error: Error) -> Breach {
    match error {
        Error::Breach(breach) => breach,
        other => panic!("{other:?}"),
    }
}

fn root() -> FilePlace {
    FilePlace { session: None, path: ByteBuf::from("/"), judged: ByteBuf::from("/") }
}

#[tokio::test]
async fn an_answer_to_something_else_ends_the_connection() {
    let client = client_told(Reply::Done).await;
    assert_eq!(breach(client.about().await.unwrap_err()), Breach::Unexpected);
    tokio::time::timeout(PATIENCE, client.closed()).await.unwrap();
    assert!(matches!(client.about().await.unwrap_err(), Error::Gone));
}

#[tokio::test]
async fn bytes_that_are_no_message_end_the_connection() {
    let too_long = u32::try_from(limit::FRAME + 1).unwrap().to_le_bytes().to_vec();
    let trailing = [&3_u32.to_le_bytes()[..], &[1, 0, 0]].concat();
    for bytes in [b"\x04\0\0\0\xff\xff\xff\xff".to_vec(), too_long, trailing, vec![0, 0, 0, 0]] {
        let client = client_sent(bytes.clone()).await;
        assert_eq!(breach(client.stats().await.unwrap_err()), Breach::Malformed, "{bytes:?}");
        tokio::time::timeout(PATIENCE, client.closed()).await.unwrap();
    }
}

#[tokio::test]
async fn more_than_was_asked_for_is_a_breach() {
    let page = Page { offset: 0, data: ByteBuf::from(vec![0; 101]), total: 1000 };
    let client = client_told(Reply::Page(page)).await;
    assert_eq!(breach(client.output(ID, 0, 100).await.unwrap_err()), Breach::Unexpected);
    let backwards = Page { offset: 9, data: ByteBuf::new(), total: 3 };
    let client = client_told(Reply::Page(backwards)).await;
    assert_eq!(breach(client.output(ID, 0, 100).await.unwrap_err()), Breach::Unexpected);
    let beyond = Page { offset: u64::MAX, data: ByteBuf::from([0]), total: u64::MAX };
    let client = client_told(Reply::Page(beyond)).await;
    assert_eq!(breach(client.output(ID, u64::MAX, 100).await.unwrap_err()), Breach::Unexpected);
    let chunk = Reply::File(FileReply::Data(ByteBuf::from(vec![0; limit::CHUNK + 1])));
    let client = client_told(chunk).await;
    let mut reader = client.read(root(), Part::Whole).await.unwrap();
    assert_eq!(breach(reader.next().await.unwrap_err()), Breach::Unexpected);
}

#[tokio::test]
async fn a_list_without_end_is_cut_off() {
    let client = client_of(|_, stream, _| async move {
        let mut frames = Frames::new(stream);
        let entry = |stat| hermes_guest::protocol::file::Entry { name: ByteBuf::from("x"), stat };
        let stat = hermes_guest::protocol::file::Stat {
            kind: hermes_guest::protocol::file::Kind::File,
            size: 0,
            mode: 0,
            uid: 0,
            gid: 0,
            modified: 0,
            target: None,
        };
        let reply = Reply::File(FileReply::Entries(vec![entry(stat); 1000]));
        while frames.writer.send(&reply).await.is_ok() {}
    })
    .await;
    assert_eq!(breach(client.list(root()).await.unwrap_err()), Breach::Unexpected);
}

#[tokio::test(start_paused = true)]
async fn a_guest_that_never_answers_is_given_up() {
    let client = client_of(|_, stream, _| async move {
        let _held = stream;
        std::future::pending().await
    })
    .await;
    let asked = tokio::time::Instant::now();
    assert!(matches!(client.about().await.unwrap_err(), Error::Silent));
    assert_eq!(asked.elapsed().as_secs(), limit::ANSWER.as_secs());
    client.closed().await;
    let (near, _far) = tokio::io::duplex(64);
    assert!(matches!(Client::connect(near).await.unwrap_err(), Error::Silent), "nor one that never greets");
}

#[tokio::test(start_paused = true)]
async fn a_guest_that_does_not_keep_a_deadline_is_given_up() {
    let client = client_told(Reply::Started(ID)).await;
    let run = Run {
        session: SessionKey::from("s"),
        program: Program::Shell(ByteBuf::from("sleep 9")),
        workdir: hermes_guest::protocol::message::Workdir::Session,
        env: Vec::new(),
        stdin: Stdin::Null,
        terminal: None,
        deadline: Some(Deadline { after: Duration::from_secs(5), then: AtDeadline::Kill }),
        mode: Mode::Foreground { output: Delivery::Summary, state: StateRule::Keep },
        keep: 4096,
        spool: 0,
    };
    let asked = tokio::time::Instant::now();
    let mut running = client.run(run).await.unwrap();
    assert!(matches!(running.end().await.unwrap_err(), Error::Silent));
    assert_eq!(asked.elapsed().as_secs(), 5 + limit::ANSWER.as_secs());
}

#[tokio::test]
async fn a_connection_nobody_listens_for_is_a_breach() {
    let client = client_of(|request, stream, mux| async move {
        let mut frames = Frames::new(stream);
        match request {
            Request::Listen(number, _) => {
                let mut arrival = Frames::new(mux.open().await.unwrap());
                arrival.writer.send(&Reply::Arrived(number)).await.unwrap();
                frames.writer.send(&Reply::Listening(0)).await.unwrap();
                std::future::pending().await
            }
            _ => {
                let mut arrival = Frames::new(mux.open().await.unwrap());
                arrival.writer.send(&Reply::Arrived(8)).await.unwrap();
                std::future::pending().await
            }
        }
    })
    .await;
    let mut listener = client.listen(Address::Loopback(0)).await.unwrap();
    assert!(listener.accept().await.is_some(), "one that is listened for is not");
    assert!(client.about().await.is_err());
    tokio::time::timeout(PATIENCE, client.closed()).await.unwrap();
    assert!(listener.accept().await.is_none(), "and nobody waits for more");
}

#[tokio::test]
async fn streams_nobody_asked_for_are_bounded() {
    let client = client_of(|_, stream, mux| async move {
        let _held = stream;
        let mut opened = Vec::new();
        while let Ok(Ok(stream)) = tokio::time::timeout(Duration::from_millis(300), mux.open()).await {
            opened.push(stream);
            assert!(opened.len() <= 2 * limit::STREAMS, "streams without end");
        }
        std::future::pending().await
    })
    .await;
    drop(tokio::time::timeout(Duration::from_secs(2), client.about()).await);
}

#[tokio::test]
async fn noise_instead_of_a_connection_is_an_error() {
    let (near, mut far) = tokio::io::duplex(1 << 16);
    let noise = tokio::spawn(async move {
        greeting::exchange(&mut far).await.unwrap();
        while far.write_all(&[0xa5; 4096]).await.is_ok() {}
    });
    let client = Client::connect(near).await.unwrap();
    assert!(matches!(client.about().await.unwrap_err(), Error::Gone));
    noise.await.unwrap();
}

proptest! {
    #[test]
    fn any_bytes_are_decoded_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..2000)) {
        // Whatever comes out was not made of more than what came in.
        if let Ok(request) = frame::decode::<Request>(&bytes) {
            prop_assert!(postcard::to_stdvec(&request).unwrap().len() <= bytes.len());
        }
        if let Ok(reply) = frame::decode::<Reply>(&bytes) {
            prop_assert!(postcard::to_stdvec(&reply).unwrap().len() <= bytes.len());
        }
        drop(frame::decode::<Input>(&bytes));
        drop(frame::decode::<Content>(&bytes));
    }

    #[test]
    fn what_was_encoded_is_decoded(path: Vec<u8>, offset: u64, length: u64, cut in 0_usize..40) {
        let place = FilePlace { session: None, path: ByteBuf::from(path.clone()), judged: ByteBuf::from(path) };
        let request = Request::File(FileRequest::Read(place, Part::Bytes { offset, length }));
        let bytes = postcard::to_stdvec(&request).unwrap();
        let decoded = frame::decode::<Request>(&bytes);
        prop_assert_eq!(decoded.as_ref(), Ok(&request));
        let cut = cut.min(bytes.len() - 1);
        prop_assert!(frame::decode::<Request>(&bytes[..cut]).is_err());
    }

    #[test]
    fn a_length_that_lies_allocates_nothing(claimed in any::<u32>()) {
        // A list of that many entries, of which none follows.
        let mut bytes = postcard::to_stdvec(&Reply::Processes(Vec::new())).unwrap();
        bytes.pop();
        bytes.extend(postcard::to_stdvec(&claimed).unwrap());
        prop_assert_eq!(frame::decode::<Reply>(&bytes).is_ok(), claimed == 0);
    }
}
