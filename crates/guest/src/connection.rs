//! One client: its connection, and one task for each of its requests.

use std::cell::Cell;
use std::rc::Rc;

use hermes_guest::protocol::frame::{FrameError, Frames, Reader, Writer};
use hermes_guest::protocol::greeting;
use hermes_guest::protocol::limit;
use hermes_guest::protocol::message::{Act, Cause, Fault, Input, Origin, ProcessId, Reply, Request};
use hermes_guest::protocol::mux::{self, End, Mux, Stream};
use tokio::net::UnixStream;
use tokio::task::spawn_local;

use crate::guest::Guest;
use crate::process::Process;
use crate::{files, run, tunnel};

/// Serves a client until it leaves. What it left running in the foreground is killed by the tasks that run it,
/// whose streams end with the connection.
pub(crate) async fn serve(guest: Rc<Guest>, mut stream: UnixStream) {
    let greeted = tokio::time::timeout(limit::ANSWER, greeting::exchange(&mut stream)).await;
    if !matches!(greeted, Ok(Ok(()))) {
        return;
    }
    let (mux, driver, mut arrivals) = mux::multiplex(stream, End::Guest);
    let accept = async {
        while let Some(stream) = arrivals.recv().await {
            let (guest, mux) = (guest.clone(), mux.clone());
            // A stream that breaks concerns nobody but its own request.
            spawn_local(async move { drop(answer(&guest, &mux, stream).await) });
        }
    };
    tokio::select! {
        // How a client left makes no difference.
        ended = driver.run() => drop(ended),
        () = accept => {}
    }
}

async fn answer(guest: &Rc<Guest>, mux: &Mux, stream: Stream) -> Result<(), FrameError> {
    let mut frames = Frames::new(stream);
    let request = match frames.reader.receive::<Request>().await {
        Ok(Some(request)) => request,
        Ok(None) => return Ok(()),
        Err(error) => {
            frames.writer.send(&Reply::Failed(Fault::Malformed)).await?;
            frames.writer.finish().await?;
            return Err(error);
        }
    };
    let _use = is_use(&request).then(|| guest.using());
    let (reader, writer) = (&mut frames.reader, &mut frames.writer);
    match request {
        Request::About => writer.send(&Reply::About(guest.about())).await?,
        Request::Stats => writer.send(&Reply::Stats(guest.stats())).await?,
        Request::OpenSession(open) => {
            let opened = guest.sessions.open(&guest.base_env, open);
            if let Ok((session, _)) = &opened {
                run::init::ready(guest, session).await;
            }
            let view = opened.map(|(session, origin)| Reply::Session(session.view(origin)));
            reply(writer, view).await?;
        }
        Request::ShowSession(key) => {
            let shown = guest.sessions.get(&key).map(|session| session.view(Origin::Found));
            reply(writer, shown.map(Reply::Session)).await?;
        }
        Request::CloseSession(key) => reply(writer, guest.sessions.close(&key).map(|()| Reply::Done)).await?,
        Request::Run(request) => run::run(guest, mux, *request, reader, writer).await?,
        Request::Processes => {
            let views = guest.table.listed().iter().map(|process| process.view()).collect();
            writer.send(&Reply::Processes(views)).await?;
        }
        Request::Process(id, act) => {
            let done = unless_left(reader, act_on(guest, id, act, writer)).await?;
            reply(writer, done).await?;
        }
        Request::Notices(from) => unless_left(reader, notices(guest, from, writer)).await??,
        Request::File(request) => files::answer(guest, request, reader, writer).await?,
        Request::Listen(number, address) => {
            return tunnel::listen(guest, mux, number, &address, frames).await;
        }
        Request::Dial(address) => return tunnel::dial(&address, frames).await,
    }
    frames.writer.finish().await
}

/// Whether the place is used by this, or only looked at.
fn is_use(request: &Request) -> bool {
    match request {
        Request::OpenSession(_)
        | Request::CloseSession(_)
        | Request::Run(_)
        | Request::File(_)
        | Request::Dial(_) => true,
        Request::Process(_, act) => {
            !matches!(act, Act::Show | Act::Wait(_) | Act::Page { .. } | Act::Follow(_))
        }
        Request::About
        | Request::Stats
        | Request::ShowSession(_)
        | Request::Processes
        | Request::Notices(_)
        | Request::Listen(..) => false,
    }
}

async fn reply(writer: &mut Writer<Stream>, result: Result<Reply, Fault>) -> Result<(), FrameError> {
    writer.send(&result.unwrap_or_else(Reply::Failed)).await
}

/// Does something that may take long, unless the client leaves first.
async fn unless_left<T>(reader: &mut Reader<Stream>, work: impl Future<Output = T>) -> Result<T, FrameError> {
    tokio::select! {
        done = work => Ok(done),
        // Nothing may be said here, so saying something is leaving too.
        left = reader.receive::<Input>() => {
            left?;
            Err(FrameError::Io(std::io::ErrorKind::ConnectionReset.into()))
        }
    }
}

async fn act_on(guest: &Guest, id: ProcessId, act: Act, writer: &mut Writer<Stream>) -> Result<Reply, Fault> {
    let process = guest.table.get(id)?;
    match act {
        Act::Show => {}
        Act::Wait(patience) => {
            // Whether it ended or not is in the answer.
            drop(tokio::time::timeout(patience, process.until(Process::has_exited)).await);
        }
        Act::Page { offset, limit } => {
            let limit = usize::try_from(limit).unwrap_or(limit::CHUNK).min(limit::FRAME / 2);
            return process.page(offset, limit).map(Reply::Page);
        }
        Act::Follow(offset) => {
            follow(&process, offset, writer).await.map_err(|_gone| Fault::NoProcess)?;
        }
        Act::Write(data) => return process.write(&data).await.map(|()| Reply::Done),
        Act::CloseStdin => return process.close_stdin().await.map(|()| Reply::Done),
        Act::Resize(size) => return process.resize(size).map(|()| Reply::Done),
        Act::Signal(signal) => return process.signal(signal).map(|()| Reply::Done),
        Act::Kill => process.kill(Cause::Killed).await,
        Act::Forget => return guest.table.forget(id).map(|()| Reply::Done),
    }
    Ok(Reply::Process(Box::new(process.view())))
}

/// Sends output as it comes until the tree is gone. A reader that is too slow misses what is no longer kept.
async fn follow(process: &Process, offset: u64, writer: &mut Writer<Stream>) -> Result<(), FrameError> {
    let position = Cell::new(offset);
    loop {
        process.until(|process| process.total() > position.get() || process.ended_at().is_some()).await;
        if process.total() <= position.get() {
            return Ok(());
        }
        run::send_page(process, &position, writer).await?;
        writer.flush().await?;
    }
}

async fn notices(guest: &Guest, from: u64, writer: &mut Writer<Stream>) -> Result<(), FrameError> {
    let mut next = from;
    loop {
        let mut changed = std::pin::pin!(guest.table.changed.notified());
        changed.as_mut().enable();
        match guest.table.notice(next) {
            Some(notice) => {
                next = notice.number + 1;
                writer.send(&Reply::Notice(notice)).await?;
            }
            None => changed.await,
        }
    }
}
