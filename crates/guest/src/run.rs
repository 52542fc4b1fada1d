//! Runs one program for a client.

pub(crate) mod init;
pub(crate) mod python;
mod spawn;

use std::convert::Infallible;
use std::os::unix::ffi::OsStringExt;
use std::rc::Rc;
use std::time::Duration;

use hermes_guest::protocol::frame::{FrameError, FrameReader, FrameWriter};
use hermes_guest::protocol::limit;
use hermes_guest::protocol::message::{
    ExitCause, FailedOperation, GuestReply, OutputDelivery, Program, Rejection, RunInput, RunMode,
    RunRequest, TreeStatus,
};
use hermes_guest::protocol::mux::{Mux, MuxStream};
use serde_bytes::ByteBuf;
use tokio::sync::mpsc;
use tokio::task::spawn_local;

use crate::guest::Guest;
use crate::process::stderr::StderrCapture;
use crate::process::{GuestProcess, os_error};
use spawn::{EnteredView, RunningProgram, SpawnError};

/// Time between SIGINT and SIGKILL.
const INTERRUPT_GRACE: Duration = Duration::from_millis(500);
/// Input messages queued until the program reads.
const MAX_QUEUED_INPUTS: usize = 4;

/// Handles a [`RunRequest`] on the stream it arrived on.
pub(crate) async fn run_program(
    guest: &Rc<Guest>,
    mux: &Mux,
    run: RunRequest,
    reader: &mut FrameReader<MuxStream>,
    writer: &mut FrameWriter<MuxStream>,
) -> Result<(), FrameError> {
    let (mode, deadline) = (run.mode.clone(), run.deadline);
    let session = match guest.sessions.get(&run.session) {
        Ok(session) => session,
        Err(fault) => return writer.send(&GuestReply::Failed(fault)).await,
    };
    init::ensure_initialized(guest, &session).await;
    let entered = match guest.views.enter(&run.confinement).await {
        Ok((view, confined)) => EnteredView { view, run: Some(confined) },
        Err(error) => {
            let fault = os_error(FailedOperation::Guard)(error);
            return writer.send(&GuestReply::Failed(fault)).await;
        }
    };
    if run.judged_shell.as_ref().is_some_and(|judged| *judged != session.context().digest) {
        return writer.send(&GuestReply::Failed(Rejection::SessionMoved)).await;
    }
    let spawned = match run.program {
        Program::Python(_) => python::spawn_python(guest, mux, session, run, entered).await,
        Program::Shell(_) => spawn::spawn_program(guest, session, run, entered),
    };
    let program_handle = match spawned {
        Ok(program_handle) => Rc::new(program_handle),
        Err(SpawnError::Request(fault)) => return writer.send(&GuestReply::Failed(fault)).await,
        Err(SpawnError::NoWorkingDir(ended)) => return writer.send(&GuestReply::Exited(*ended)).await,
    };
    // The shell reads its files until it exits, whether or not a client waits.
    let kept = program_handle.clone();
    spawn_local(async move { kept.process.wait_until(GuestProcess::has_exited).await });
    match mode {
        RunMode::Background { .. } => {
            if let Some(deadline) = deadline {
                spawn_local(kill_after(program_handle.process.clone(), deadline));
            }
            writer.send(&GuestReply::Started(program_handle.process.id)).await
        }
        RunMode::Foreground { output, .. } => {
            let supervised = supervise(guest, &program_handle, deadline, output, reader, writer).await;
            if supervised.is_err() {
                program_handle.process.kill(ExitCause::Killed).await;
                // Otherwise `supervise` did it before it reported the exit.
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
        program_handle.process.stderr.iter().for_each(StderrCapture::drain);
        python_dir.remove().await;
    }
}

/// Deletes the record of a foreground program unless there is more output to read.
fn forget_delivered(guest: &Guest, process: &GuestProcess, delivery: OutputDelivery) {
    let has_more = delivery == OutputDelivery::Summary && process.output.borrow().is_spooled();
    if !has_more && process.tree.get() == TreeStatus::Gone {
        guest.table.forget(process.id);
    }
}

/// Supervises a foreground program until it exits. An error means that the client disconnected.
async fn supervise(
    guest: &Rc<Guest>,
    program_handle: &RunningProgram,
    deadline: Option<Duration>,
    delivery: OutputDelivery,
    reader: &mut FrameReader<MuxStream>,
    writer: &mut FrameWriter<MuxStream>,
) -> Result<(), FrameError> {
    let process = &program_handle.process;
    if delivery == OutputDelivery::Live {
        process.set_reader_offset(0);
    }
    writer.send(&GuestReply::Started(process.id)).await?;
    tokio::select! {
        never = process.read_stderr() => match never {},
        never = enforce_deadline(process, deadline) => match never {},
        never = handle_input(process, reader) => match never? {},
        delivered = deliver_output(process, delivery, writer) => delivered?,
    }
    clean_up_python(program_handle).await;
    program_handle.apply_state(|_| false);
    let quarantined = guest.views.take_quarantined();
    let Some(mut ended) = process.exit_report(&program_handle.session_cwd()) else {
        return writer.send(&GuestReply::Failed(Rejection::NoProcess)).await;
    };
    ended.quarantined =
        quarantined.into_iter().map(|path| ByteBuf::from(path.into_os_string().into_vec())).collect();
    if delivery == OutputDelivery::Summary {
        let (head, tail) = process.output.borrow().summary();
        ended.head = ByteBuf::from(head);
        ended.tail = ByteBuf::from(tail);
    }
    guest.table.changed.notify_waiters();
    writer.send(&GuestReply::Exited(ended)).await
}

/// Sends output until the program exited and, if the guest killed it, its tree is gone.
async fn deliver_output(
    process: &GuestProcess,
    delivery: OutputDelivery,
    writer: &mut FrameWriter<MuxStream>,
) -> Result<(), FrameError> {
    if delivery == OutputDelivery::Summary {
        process.wait_until(GuestProcess::is_finished).await;
        return Ok(());
    }
    send_output(process, 0, writer, GuestProcess::is_finished, |offset| process.set_reader_offset(offset))
        .await
}

/// Sends output until the condition holds; reports the offset after each page. A reader that is too
/// slow misses discarded output. An unreadable page ends the stream.
pub(crate) async fn send_output(
    process: &GuestProcess,
    mut offset: u64,
    writer: &mut FrameWriter<MuxStream>,
    is_over: impl Fn(&GuestProcess) -> bool,
    report_offset: impl Fn(u64),
) -> Result<(), FrameError> {
    loop {
        process.wait_until(|process| process.output_bytes() > offset || is_over(process)).await;
        if process.output_bytes() <= offset {
            return Ok(());
        }
        let page = process
            .output_page(offset, limit::CHUNK_BYTES)
            .map_err(|fault| FrameError::Io(std::io::Error::other(fault)))?;
        offset = page.offset + page.data.len() as u64;
        writer.feed(&GuestReply::Output(page)).await?;
        report_offset(offset);
        writer.flush().await?;
    }
}

/// Handles input of the client until it disconnects, which is the error.
async fn handle_input(
    process: &Rc<GuestProcess>,
    reader: &mut FrameReader<MuxStream>,
) -> Result<Infallible, FrameError> {
    let (queue, queued) = mpsc::channel(MAX_QUEUED_INPUTS);
    spawn_local(feed_input(process.clone(), queued));
    while let Some(input) = reader.receive::<RunInput>().await? {
        match input {
            RunInput::Stdin(data) => drop(queue.send(data).await),
            // The program may have exited already, which is not the client's error.
            RunInput::Resize(size) => drop(process.resize(size)),
            RunInput::Interrupt => {
                let process = process.clone();
                spawn_local(async move { process.interrupt(INTERRUPT_GRACE).await });
            }
        }
    }
    Err(FrameError::Io(std::io::ErrorKind::ConnectionReset.into()))
}

/// Writes input as fast as the program reads. Runs separately, so that a program that does not read
/// can still be interrupted.
async fn feed_input(process: Rc<GuestProcess>, mut queued: mpsc::Receiver<ByteBuf>) {
    while let Some(data) = queued.recv().await
        && process.write_stdin(&data).await.is_ok()
    {}
}

/// Enforces the deadline of a background program.
async fn kill_after(process: Rc<GuestProcess>, after: Duration) {
    if tokio::time::timeout(after, process.wait_until(GuestProcess::has_exited)).await.is_err() {
        process.kill(ExitCause::Deadline).await;
    }
}

/// Kills a foreground program at its deadline; `deliver_output` sends the remaining output.
async fn enforce_deadline(process: &GuestProcess, deadline: Option<Duration>) -> Infallible {
    if let Some(deadline) = deadline {
        tokio::time::sleep(deadline).await;
        process.kill(ExitCause::Deadline).await;
    }
    std::future::pending().await
}
