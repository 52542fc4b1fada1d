//! Files of the place. What looks through files is done on a thread of its own, so that it holds up nobody else.

pub(crate) mod place;
mod read;
mod search;
mod stat;
mod write;

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use hermes_guest::protocol::file::{FileFault, FileReply, FileRequest, Place};
use hermes_guest::protocol::frame::{FrameError, Reader, Writer};
use hermes_guest::protocol::message::{Fault, Reply};
use hermes_guest::protocol::mux::Stream;
use tokio::sync::mpsc;

use crate::guest::Guest;

/// Replies that wait until the client reads.
const QUEUE: usize = 4;

/// Carries out a request about files on the stream it came by.
pub(crate) async fn answer(
    guest: &Guest,
    request: FileRequest,
    reader: &mut Reader<Stream>,
    writer: &mut Writer<Stream>,
) -> Result<(), FrameError> {
    let place = match &request {
        FileRequest::Read(place, _)
        | FileRequest::Write(place, _)
        | FileRequest::Patch(place, _)
        | FileRequest::Stat(place)
        | FileRequest::List(place)
        | FileRequest::Search(place, _)
        | FileRequest::Remove(place) => place,
    };
    let path = match locate(guest, place) {
        Ok(path) => path,
        Err(fault) => return writer.send(&Reply::Failed(fault)).await,
    };
    match request {
        FileRequest::Write(_, how) => {
            let written = write::receive(path, how, reader).await?;
            let reply = written.map(|written| Reply::File(FileReply::Written(written)));
            writer.send(&reply.unwrap_or_else(|fault| Reply::Failed(fault.into()))).await
        }
        FileRequest::Read(_, part) => stream(writer, move |out| read::read(&path, part, out)).await,
        FileRequest::Patch(_, edits) => stream(writer, move |out| write::patch(&path, &edits, out)).await,
        FileRequest::Stat(_) => stream(writer, move |out| stat::stat(&path, out)).await,
        FileRequest::List(_) => stream(writer, move |out| stat::list(&path, out)).await,
        FileRequest::Search(_, search) => {
            stream(writer, move |out| search::search(&path, &search, out)).await
        }
        FileRequest::Remove(_) => stream(writer, move |out| stat::remove(&path, out)).await,
    }
}

/// Where a request's path leads.
fn locate(guest: &Guest, place: &Place) -> Result<PathBuf, Fault> {
    let session = place.session.as_ref().map(|key| guest.sessions.get(key)).transpose()?;
    let state = session.as_ref().map(|session| session.state.borrow());
    let path = place::resolve(&place.path, state.as_deref())?;
    Ok(Path::new(OsStr::from_bytes(&path)).to_owned())
}

/// Hands replies from a working thread to the client, at the client's pace.
pub(crate) struct Out(mpsc::Sender<FileReply>);

impl Out {
    /// Says whether anybody still listens.
    fn send(&self, reply: FileReply) -> Result<(), Failure> {
        self.0.blocking_send(reply).map_err(|_left| Failure::Left)
    }
}

/// Why work on files stopped.
#[derive(Debug)]
pub(crate) enum Failure {
    Fault(Fault),
    /// The client is gone; nobody is to be told.
    Left,
}

impl From<FileFault> for Failure {
    fn from(fault: FileFault) -> Self {
        Self::Fault(fault.into())
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        fault_of(&error).into()
    }
}

impl From<rustix::io::Errno> for Failure {
    fn from(errno: rustix::io::Errno) -> Self {
        io::Error::from(errno).into()
    }
}

pub(crate) fn fault_of(error: &io::Error) -> FileFault {
    FileFault::Os { errno: error.raw_os_error().unwrap_or(libc::EIO) }
}

async fn stream(
    writer: &mut Writer<Stream>,
    work: impl FnOnce(&Out) -> Result<(), Failure> + Send + 'static,
) -> Result<(), FrameError> {
    let (out, mut replies) = mpsc::channel(QUEUE);
    let work = tokio::task::spawn_blocking(move || work(&Out(out)));
    while let Some(reply) = replies.recv().await {
        writer.send(&Reply::File(reply)).await?;
    }
    match work.await {
        Ok(Ok(()) | Err(Failure::Left)) => Ok(()),
        Ok(Err(Failure::Fault(fault))) => writer.send(&Reply::Failed(fault)).await,
        Err(_ended) => writer.send(&Reply::Failed(Fault::Malformed)).await,
    }
}
