//! Runs one program for a client.

pub(crate) mod init;
pub(crate) mod python;
mod spawn;

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use hermes_guest::protocol::frame::{FrameError, FrameReader, FrameWriter};
use hermes_guest::protocol::limit;
use hermes_guest::protocol::message::{
    Deadline, DeadlineAction, ExitCause, GuestReply, OutputDelivery, Program, Rejection, RunInput, RunMode,
    RunRequest, TreeStatus,
};
use hermes_guest::protocol::mux::{Mux, MuxStream};
use serde_bytes::ByteBuf;
use tokio::sync::mpsc;
use tokio::task::spawn_local;

use crate::guest::Guest;
use crate::process::GuestProcess;
use spawn::{RunningProgram, SpawnError};

/// Time between SIGINT and SIGKILL.
const INTERRUPT_GRACE: Duration = Duration::from_millis(500);
/// Input messages queued until the program reads.
const MAX_QUEUED_INPUTS: usize = 4;

/// Handles a [`RunRequest`] on the stream it arrived on.
pub(crate) async fn run_program(
    guest: &Rc<Guest>,
    mux: &Mux,
    mut run: RunRequest,
    reader: &mut FrameReader<MuxStream>,
    writer: &mut FrameWriter<MuxStream>,
) -> Result<(), FrameError> {
    let (mode, deadline) = (run.mode.clone(), run.deadline);
    let session = match guest.sessions.get(&run.session) {
        Ok(session) => session,
        Err(fault) => return writer.send(&GuestReply::Failed(fault)).await,
    };
    init::ensure_initialized(guest, &session).await;
    let program = std::mem::replace(&mut run.program, Program::Argv(Vec::new()));
    let program_handle = match program {
        Program::Python(python) => python::spawn_python(guest, mux, session, run, python).await,
        program => spawn::spawn_program(guest, session, RunRequest { program, ..run }),
    };
    let program_handle = match program_handle {
        Ok(program_handle) => Rc::new(program_handle),
        Err(SpawnError::Request(fault)) => return writer.send(&GuestReply::Failed(fault)).await,
        Err(SpawnError::NoWorkingDir(ended)) => return writer.send(&GuestReply::Exited(*ended)).await,
    };
    // The shell reads its files until it exits, whether or not a client waits.
    let kept = program_handle.clone();
    spawn_local(async move { kept.process.wait_until(GuestProcess::has_exited).await });
    match mode {
        RunMode::Background { .. } => {
            if let Some(Deadline { after, action: DeadlineAction::Kill }) = deadline {
                spawn_local(kill_after(program_handle.process.clone(), after));
            }
            writer.send(&GuestReply::Started(program_handle.process.id)).await
        }
        RunMode::Foreground { output, .. } => {
            let supervised = supervise(guest, &program_handle, deadline, output, reader, writer).await;
            if supervised.is_err() && !program_handle.process.is_background() {
                program_handle.process.kill(ExitCause::Killed).await;
            }
            // In the other cases `supervise` did it before it reported the exit.
            if supervised.is_err() || program_handle.process.is_background() {
                clean_up_python(&program_handle).await;
            }
            forget_delivered(guest, &program_handle.process, output);
            supervised
        }
    }
}

/// Kills the descendants of a Python program, then removes its files and connections.
async fn clean_up_python(program_handle: &RunningProgram) {
    if let Some(python_dir) = &program_handle.python_dir {
        program_handle.process.kill(ExitCause::Killed).await;
        program_handle.process.drain_stderr();
        python_dir.remove().await;
    }
}

/// Deletes the record of a foreground program unless there is more output to read.
fn forget_delivered(guest: &Guest, process: &GuestProcess, delivery: OutputDelivery) {
    let has_more = delivery == OutputDelivery::Summary && process.has_spooled_output();
    if !process.is_background() && !has_more && process.tree() == TreeStatus::Gone {
        // It may have been pruned already.
        drop(guest.table.forget(process.id));
    }
}

/// Supervises a foreground program until it exits or moves to the background. An error means that
/// the client disconnected.
async fn supervise(
    guest: &Rc<Guest>,
    program_handle: &RunningProgram,
    deadline: Option<Deadline>,
    delivery: OutputDelivery,
    reader: &mut FrameReader<MuxStream>,
    writer: &mut FrameWriter<MuxStream>,
) -> Result<(), FrameError> {
    let process = &program_handle.process;
    let position = Cell::new(0);
    if delivery == OutputDelivery::Live {
        process.set_reader_offset(0);
    }
    writer.send(&GuestReply::Started(process.id)).await?;
    {
        let mut delivery_task = std::pin::pin!(deliver_output(process, delivery, &position, writer));
        let mut input_task = std::pin::pin!(handle_input(process, reader));
        let mut deadline_task = std::pin::pin!(enforce_deadline(process, deadline));
        let mut stderr_task = std::pin::pin!(process.read_stderr());
        tokio::select! {
            never = &mut stderr_task => match never {},
            delivered = &mut delivery_task => delivered?,
            left = &mut input_task => left?,
            () = &mut deadline_task => {}
        }
    }
    if process.is_background() {
        flush_output(process, &position, writer, delivery).await?;
        return writer.send(&GuestReply::MovedToBackground).await;
    }
    clean_up_python(program_handle).await;
    process.set_state_outcome(program_handle.apply_state());
    let Some(mut ended) = process.exit_report(&program_handle.session_cwd()) else {
        return writer.send(&GuestReply::Failed(Rejection::NoProcess)).await;
    };
    if delivery == OutputDelivery::Summary {
        let (head, tail) = process.output_summary();
        ended.head = ByteBuf::from(head);
        ended.tail = ByteBuf::from(tail);
    }
    guest.table.changed.notify_waiters();
    writer.send(&GuestReply::Exited(ended)).await
}

/// Sends output up to the current position before anything else.
async fn flush_output(
    process: &GuestProcess,
    position: &Cell<u64>,
    writer: &mut FrameWriter<MuxStream>,
    delivery: OutputDelivery,
) -> Result<(), FrameError> {
    if delivery == OutputDelivery::Live && position.get() < process.output_bytes() {
        send_page(process, position, writer).await?;
    }
    writer.flush().await
}

/// Sends output until the program exited and, if the guest killed it, its tree is gone.
async fn deliver_output(
    process: &GuestProcess,
    delivery: OutputDelivery,
    position: &Cell<u64>,
    writer: &mut FrameWriter<MuxStream>,
) -> Result<(), FrameError> {
    if delivery == OutputDelivery::Summary {
        process.wait_until(GuestProcess::is_finished).await;
        return Ok(());
    }
    loop {
        process.wait_until(|process| process.output_bytes() > position.get() || process.is_finished()).await;
        if process.output_bytes() == position.get() {
            return Ok(());
        }
        send_page(process, position, writer).await?;
        process.set_reader_offset(position.get());
        writer.flush().await?;
    }
}

/// Sends one page of output from the current position. An unreadable page ends the stream.
pub(crate) async fn send_page(
    process: &GuestProcess,
    position: &Cell<u64>,
    writer: &mut FrameWriter<MuxStream>,
) -> Result<(), FrameError> {
    let page = process
        .output_page(position.get(), limit::CHUNK_BYTES)
        .map_err(|fault| FrameError::Io(std::io::Error::other(fault)))?;
    let next = page.offset + page.data.len() as u64;
    writer.feed(&GuestReply::Output { offset: page.offset, data: page.data }).await?;
    position.set(next);
    Ok(())
}

/// Handles input of the client until it moves the program to the background. An error means that
/// the client disconnected.
async fn handle_input(
    process: &Rc<GuestProcess>,
    reader: &mut FrameReader<MuxStream>,
) -> Result<(), FrameError> {
    let (queue, queued) = mpsc::channel(MAX_QUEUED_INPUTS);
    spawn_local(feed_input(process.clone(), queued));
    while let Some(input) = reader.receive::<RunInput>().await? {
        match input {
            RunInput::Stdin(data) => drop(queue.send(Some(data)).await),
            RunInput::CloseStdin => drop(queue.send(None).await),
            // The program may have exited already, which is not the client's error.
            RunInput::Resize(size) => drop(process.resize(size)),
            RunInput::Signal(signal) => drop(process.signal(signal)),
            RunInput::Interrupt => {
                let process = process.clone();
                spawn_local(async move { process.interrupt(INTERRUPT_GRACE).await });
            }
            RunInput::Background => {
                process.move_to_background();
                return Ok(());
            }
        }
    }
    Err(FrameError::Io(std::io::ErrorKind::ConnectionReset.into()))
}

/// Writes input as fast as the program reads. Runs separately, so that a program that does not read
/// can still be interrupted.
async fn feed_input(process: Rc<GuestProcess>, mut queued: mpsc::Receiver<Option<ByteBuf>>) {
    while let Some(input) = queued.recv().await {
        let done = match input {
            Some(data) => process.write_stdin(&data).await,
            None => process.close_stdin().await,
        };
        if done.is_err() {
            return;
        }
    }
}

/// Enforces the deadline of a background program.
async fn kill_after(process: Rc<GuestProcess>, after: Duration) {
    if tokio::time::timeout(after, process.wait_until(GuestProcess::has_exited)).await.is_err() {
        process.kill(ExitCause::Deadline).await;
    }
}

/// Waits for the deadline and enforces it. Returns if the program continues in the background.
async fn enforce_deadline(process: &Rc<GuestProcess>, deadline: Option<Deadline>) {
    let Some(deadline) = deadline else { return std::future::pending().await };
    tokio::time::sleep(deadline.after).await;
    match deadline.action {
        DeadlineAction::Background => process.move_to_background(),
        DeadlineAction::Kill => {
            process.kill(ExitCause::Deadline).await;
            // `deliver_output` sends the remaining output and completes first.
            std::future::pending().await
        }
    }
}
