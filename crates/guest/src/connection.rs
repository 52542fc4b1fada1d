//! One client: its connection, and one task per request.

use std::rc::Rc;

use hermes_guest::protocol::frame::{FrameError, FrameReader, FrameStream, FrameWriter};
use hermes_guest::protocol::handshake;
use hermes_guest::protocol::limit;
use hermes_guest::protocol::message::{
    ExitCause, GuestReply, GuestRequest, ProcessId, ProcessRequest, Rejection, RunInput, SessionOrigin,
};
use hermes_guest::protocol::mux::{self, Mux, MuxMode, MuxStream};
use tokio::net::UnixStream;
use tokio::task::spawn_local;

use crate::guest::Guest;
use crate::process::GuestProcess;
use crate::{files, run, tunnel};

/// Serves a client until it disconnects. The tasks that run its foreground programs see their
/// streams end and kill the programs.
pub(crate) async fn serve_client(guest: Rc<Guest>, mut stream: UnixStream) {
    let handshake_result =
        tokio::time::timeout(limit::REPLY_TIMEOUT, handshake::exchange_hello(&mut stream)).await;
    if !matches!(handshake_result, Ok(Ok(()))) {
        return;
    }
    let (mux, driver, mut inbound) = mux::multiplex(stream, MuxMode::Server);
    let accept = async {
        while let Some(stream) = inbound.recv().await {
            let (guest, mux) = (guest.clone(), mux.clone());
            // A broken stream only affects its own request.
            spawn_local(async move { drop(handle_request(&guest, &mux, stream).await) });
        }
    };
    tokio::select! {
        // The reason for the disconnect does not matter.
        ended = driver.run() => drop(ended),
        () = accept => {}
    }
}

async fn handle_request(guest: &Rc<Guest>, mux: &Mux, stream: MuxStream) -> Result<(), FrameError> {
    let mut frames = FrameStream::new(stream);
    let request = match frames.reader.receive::<GuestRequest>().await {
        Ok(Some(request)) => request,
        Ok(None) => return Ok(()),
        Err(error) => {
            frames.writer.send(&GuestReply::Failed(Rejection::Malformed)).await?;
            frames.writer.finish().await?;
            return Err(error);
        }
    };
    let _use = is_activity(&request).then(|| guest.begin_use());
    let (reader, writer) = (&mut frames.reader, &mut frames.writer);
    match request {
        GuestRequest::Stats => writer.send(&GuestReply::Stats(guest.stats())).await?,
        GuestRequest::OpenSession(mut open) => {
            let guard = guest.views.configure(open.guard.take()).await;
            let opened = guest.sessions.open(&guest.base_env, open);
            if let Ok((session, _)) = &opened {
                run::init::ensure_initialized(guest, session).await;
            }
            let view = opened.map(|(session, origin)| GuestReply::Session(session.view(origin, None, guard)));
            send_reply(writer, view).await?;
        }
        GuestRequest::ShowSession(key, known) => {
            let shown = guest.sessions.get(&key);
            let guard = guest.views.state();
            let shown = shown.map(|session| session.view(SessionOrigin::Found, Some(&known), guard));
            send_reply(writer, shown.map(GuestReply::Session)).await?;
        }
        GuestRequest::Run(request) => run::run_program(guest, mux, *request, reader, writer).await?,
        GuestRequest::Processes => {
            let views = guest.table.list().iter().map(|process| process.view()).collect();
            writer.send(&GuestReply::Processes(views)).await?;
        }
        GuestRequest::Process(id, action) => {
            let done = until_disconnect(reader, handle_process_request(guest, id, action, writer)).await?;
            send_reply(writer, done).await?;
        }
        GuestRequest::Notices(from) => until_disconnect(reader, send_notices(guest, from, writer)).await??,
        GuestRequest::File(path, request) => {
            files::handle_request(guest, path, request, reader, writer).await?;
        }
        GuestRequest::WriteFile(path, options) => {
            files::write_file(guest, &path, options, reader, writer).await?;
        }
        GuestRequest::Listen(number, port) => {
            return tunnel::listen(guest, mux, number, port, frames).await;
        }
    }
    frames.writer.finish().await
}

/// Whether a request counts as activity that keeps the environment alive.
fn is_activity(request: &GuestRequest) -> bool {
    matches!(
        request,
        GuestRequest::OpenSession(_)
            | GuestRequest::Run(_)
            | GuestRequest::File(..)
            | GuestRequest::WriteFile(..)
            | GuestRequest::Process(
                _,
                ProcessRequest::Write(..) | ProcessRequest::CloseStdin | ProcessRequest::Kill
            )
    )
}

async fn send_reply(
    writer: &mut FrameWriter<MuxStream>,
    result: Result<GuestReply, Rejection>,
) -> Result<(), FrameError> {
    writer.send(&result.unwrap_or_else(GuestReply::Failed)).await
}

/// Runs a long task until it completes or the client disconnects.
pub(crate) async fn until_disconnect<T>(
    reader: &mut FrameReader<MuxStream>,
    work: impl Future<Output = T>,
) -> Result<T, FrameError> {
    tokio::select! {
        done = work => Ok(done),
        // The client must not send anything here; a message counts as a disconnect.
        left = reader.receive::<RunInput>() => {
            left?;
            Err(FrameError::Io(std::io::ErrorKind::ConnectionReset.into()))
        }
    }
}

async fn handle_process_request(
    guest: &Guest,
    id: ProcessId,
    action: ProcessRequest,
    writer: &mut FrameWriter<MuxStream>,
) -> Result<GuestReply, Rejection> {
    let process = guest.table.get(id)?;
    match action {
        ProcessRequest::Wait(timeout) => {
            // The reply says whether the process exited.
            drop(tokio::time::timeout(timeout, process.wait_until(GuestProcess::has_exited)).await);
        }
        ProcessRequest::Page { offset, limit } => {
            let limit = usize::try_from(limit).unwrap_or(limit::CHUNK_BYTES).min(limit::MAX_FRAME_BYTES / 2);
            return process.output_page(offset, limit).map(GuestReply::Output);
        }
        ProcessRequest::Follow(offset) => {
            let is_over = |process: &GuestProcess| process.ended_at().is_some();
            let sent = run::send_output(&process, offset, writer, is_over, |_| {}).await;
            sent.map_err(|_gone| Rejection::NoProcess)?;
        }
        ProcessRequest::InputHistory => return Ok(GuestReply::InputHistory(process.input_history())),
        ProcessRequest::Write(data, after) => {
            process.check_input_history(after.as_deref())?;
            return process.write_stdin(&data).await.map(|()| GuestReply::Done);
        }
        ProcessRequest::CloseStdin => return process.close_stdin().await.map(|()| GuestReply::Done),
        ProcessRequest::Kill => process.kill(ExitCause::Killed).await,
    }
    Ok(GuestReply::Process(Box::new(process.view())))
}

async fn send_notices(
    guest: &Guest,
    from: u64,
    writer: &mut FrameWriter<MuxStream>,
) -> Result<(), FrameError> {
    let mut next = from;
    loop {
        let mut changed = std::pin::pin!(guest.table.changed.notified());
        changed.as_mut().enable();
        match guest.table.notice_from(next) {
            Some(notice) => {
                next = notice.number + 1;
                writer.send(&GuestReply::Notice(notice)).await?;
            }
            None => changed.await,
        }
    }
}
