//! Runs one program for a client.

pub(crate) mod init;
mod prepare;
pub(crate) mod python;

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use hermes_guest::protocol::frame::{FrameError, Reader, Writer};
use hermes_guest::protocol::limit;
use hermes_guest::protocol::message::{
    AtDeadline, Cause, Deadline, Delivery, Fault, Input, Mode, Program, Reply, Run, Tree,
};
use hermes_guest::protocol::mux::{Mux, Stream};
use serde_bytes::ByteBuf;
use tokio::sync::mpsc;
use tokio::task::spawn_local;

use crate::guest::Guest;
use crate::process::Process;
use prepare::{Launched, Stop};

/// How long a program may take to end after it was interrupted.
const PATIENCE: Duration = Duration::from_millis(500);
/// Messages for a program's input that wait until it reads.
const INPUTS: usize = 4;

/// Carries out a [`Run`] on the stream it came by.
pub(crate) async fn run(
    guest: &Rc<Guest>,
    mux: &Mux,
    mut run: Run,
    reader: &mut Reader<Stream>,
    writer: &mut Writer<Stream>,
) -> Result<(), FrameError> {
    let (mode, deadline) = (run.mode.clone(), run.deadline);
    let session = match guest.sessions.get(&run.session) {
        Ok(session) => session,
        Err(fault) => return writer.send(&Reply::Failed(fault)).await,
    };
    init::ready(guest, &session).await;
    let program = std::mem::replace(&mut run.program, Program::Argv(Vec::new()));
    let launched = match program {
        Program::Python(python) => python::launch(guest, mux, session, run, python).await,
        program => prepare::launch(guest, session, Run { program, ..run }),
    };
    let launched = match launched {
        Ok(launched) => Rc::new(launched),
        Err(Stop::Fault(fault)) => return writer.send(&Reply::Failed(fault)).await,
        Err(Stop::BadDirectory(ended)) => return writer.send(&Reply::Ended(*ended)).await,
    };
    // The shell needs its files to its end, whoever is there to see it.
    let held = launched.clone();
    spawn_local(async move { held.process.until(Process::has_exited).await });
    match mode {
        Mode::Background { .. } => {
            if let Some(Deadline { after, then: AtDeadline::Kill }) = deadline {
                spawn_local(kill_after(launched.process.clone(), after));
            }
            writer.send(&Reply::Started(launched.process.id)).await
        }
        Mode::Foreground { output, .. } => {
            let seen_through = attend(guest, &launched, deadline, output, reader, writer).await;
            if seen_through.is_err() && !launched.process.is_background() {
                launched.process.kill(Cause::Killed).await;
            }
            // Else it was done before the end was told.
            if seen_through.is_err() || launched.process.is_background() {
                end_room(&launched).await;
            }
            forget_told(guest, &launched.process, output);
            seen_through
        }
    }
}

/// Whatever a Python program started ends with it, and then its files and its connections do.
async fn end_room(launched: &Launched) {
    if let Some(room) = &launched.room {
        launched.process.kill(Cause::Killed).await;
        launched.process.drain_errors();
        room.close().await;
    }
}

/// A foreground program is remembered only if there is more to say of it than was said.
fn forget_told(guest: &Guest, process: &Process, delivery: Delivery) {
    let has_more = delivery == Delivery::Summary && process.output_is_long();
    if !process.is_background() && !has_more && process.tree() == Tree::Gone {
        // It may have been pruned meanwhile, which comes to the same.
        drop(guest.table.forget(process.id));
    }
}

/// Sees a foreground program through to its end. An error means that the client is gone.
async fn attend(
    guest: &Rc<Guest>,
    launched: &Launched,
    deadline: Option<Deadline>,
    delivery: Delivery,
    reader: &mut Reader<Stream>,
    writer: &mut Writer<Stream>,
) -> Result<(), FrameError> {
    let process = &launched.process;
    let position = Cell::new(0);
    if delivery == Delivery::Live {
        process.set_reader(0);
    }
    writer.send(&Reply::Started(process.id)).await?;
    {
        let mut to_the_end = std::pin::pin!(deliver(process, delivery, &position, writer));
        let mut listening = std::pin::pin!(listen(process, reader));
        let mut alarm = std::pin::pin!(at_deadline(process, deadline));
        let mut errors = std::pin::pin!(process.read_errors());
        tokio::select! {
            never = &mut errors => match never {},
            delivered = &mut to_the_end => delivered?,
            left = &mut listening => left?,
            () = &mut alarm => {}
        }
    }
    if process.is_background() {
        flush_position(process, &position, writer, delivery).await?;
        return writer.send(&Reply::Moved).await;
    }
    end_room(launched).await;
    process.set_state_fate(launched.settle());
    let Some(mut ended) = process.ended(&launched.session_cwd()) else {
        return writer.send(&Reply::Failed(Fault::NoProcess)).await;
    };
    if delivery == Delivery::Summary {
        let (head, tail) = process.summary();
        ended.head = ByteBuf::from(head);
        ended.tail = ByteBuf::from(tail);
    }
    guest.table.changed.notify_waiters();
    writer.send(&Reply::Ended(ended)).await
}

/// What was taken for sending goes out before anything else does.
async fn flush_position(
    process: &Process,
    position: &Cell<u64>,
    writer: &mut Writer<Stream>,
    delivery: Delivery,
) -> Result<(), FrameError> {
    if delivery == Delivery::Live && position.get() < process.total() {
        send_page(process, position, writer).await?;
    }
    writer.flush().await
}

/// Sends the output until the program is over: it ended and, if we ended it, nothing of it is left.
async fn deliver(
    process: &Process,
    delivery: Delivery,
    position: &Cell<u64>,
    writer: &mut Writer<Stream>,
) -> Result<(), FrameError> {
    if delivery == Delivery::Summary {
        process.until(Process::is_over).await;
        return Ok(());
    }
    loop {
        process.until(|process| process.total() > position.get() || process.is_over()).await;
        if process.total() == position.get() {
            return Ok(());
        }
        send_page(process, position, writer).await?;
        process.set_reader(position.get());
        writer.flush().await?;
    }
}

/// Sends one page of output from where the reader is. A page that cannot be read any more ends the stream.
pub(crate) async fn send_page(
    process: &Process,
    position: &Cell<u64>,
    writer: &mut Writer<Stream>,
) -> Result<(), FrameError> {
    let page = process
        .page(position.get(), limit::CHUNK)
        .map_err(|fault| FrameError::Io(std::io::Error::other(fault)))?;
    let next = page.offset + page.data.len() as u64;
    writer.feed(&Reply::Output { offset: page.offset, data: page.data }).await?;
    position.set(next);
    Ok(())
}

/// Does what the client says until it says that the program is to go on without it. An error means that it left.
async fn listen(process: &Rc<Process>, reader: &mut Reader<Stream>) -> Result<(), FrameError> {
    let (queue, queued) = mpsc::channel(INPUTS);
    spawn_local(feed_input(process.clone(), queued));
    while let Some(input) = reader.receive::<Input>().await? {
        match input {
            Input::Stdin(data) => drop(queue.send(Some(data)).await),
            Input::CloseStdin => drop(queue.send(None).await),
            // What no longer applies because the program has ended meanwhile is no error of the client.
            Input::Resize(size) => drop(process.resize(size)),
            Input::Signal(signal) => drop(process.signal(signal)),
            Input::Interrupt => {
                let process = process.clone();
                spawn_local(async move { process.interrupt(PATIENCE).await });
            }
            Input::Background => {
                process.move_to_background();
                return Ok(());
            }
        }
    }
    Err(FrameError::Io(std::io::ErrorKind::ConnectionReset.into()))
}

/// Writes to the program at the program's own pace, so that a program that does not read can still be interrupted.
async fn feed_input(process: Rc<Process>, mut queued: mpsc::Receiver<Option<ByteBuf>>) {
    while let Some(input) = queued.recv().await {
        let done = match input {
            Some(data) => process.write(&data).await,
            None => process.close_stdin().await,
        };
        if done.is_err() {
            return;
        }
    }
}

/// Keeps the deadline of a program that nobody waits for.
async fn kill_after(process: Rc<Process>, after: Duration) {
    if tokio::time::timeout(after, process.until(Process::has_exited)).await.is_err() {
        process.kill(Cause::Deadline).await;
    }
}

/// Waits for the deadline and keeps it. Returns if the program goes on in the background.
async fn at_deadline(process: &Rc<Process>, deadline: Option<Deadline>) {
    let Some(deadline) = deadline else { return std::future::pending().await };
    tokio::time::sleep(deadline.after).await;
    match deadline.then {
        AtDeadline::Background => process.move_to_background(),
        AtDeadline::Kill => {
            process.kill(Cause::Deadline).await;
            // What it wrote before is delivered first.
            std::future::pending().await
        }
    }
}
