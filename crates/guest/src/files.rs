//! Files of the place. What looks through files is done on a thread of its own, so that it holds up nobody else.

mod blocks;
pub(crate) mod place;
mod read;
mod screen;
mod search;
mod stat;
mod walk;
mod write;

use std::io;

use hermes_guest::protocol::file::{Content, FileFault, FileReply, FileRequest, Parents, Place};
use hermes_guest::protocol::frame::{FrameError, Reader, Writer};
use hermes_guest::protocol::message::{Fault, Reply};
use hermes_guest::protocol::mux::Stream;
use tokio::sync::mpsc;

use crate::guest::Guest;
use place::{Last, Spot};

/// Replies that wait until the client reads.
const QUEUE: usize = 4;

/// Carries out a request about files on the stream it came by.
pub(crate) async fn answer(
    guest: &Guest,
    request: FileRequest,
    reader: &mut Reader<Stream>,
    writer: &mut Writer<Stream>,
) -> Result<(), FrameError> {
    let (place, last) = match &request {
        FileRequest::Read(place, _)
        | FileRequest::Write(place, _)
        | FileRequest::Patch(place, _)
        | FileRequest::List(place)
        | FileRequest::Search(place, _) => (place, Last::Follow),
        FileRequest::Stat(place) | FileRequest::Remove(place) => (place, Last::Keep),
    };
    let (path, judged) = (locate(guest, place), place.judged.clone());
    let find = move |parents| -> Result<Spot, Fault> { Ok(Spot::find(&path?, &judged, last, parents)?) };
    let here = Parents::Require;
    match request {
        FileRequest::Write(_, how) => write::receive(find(how.parents), how.expect, reader, writer).await,
        FileRequest::Read(_, part) => {
            stream(reader, writer, move |out| read::read(&find(here)?, part, out)).await
        }
        FileRequest::Patch(_, edits) => {
            stream(reader, writer, move |out| write::patch(find(here)?, &edits, out)).await
        }
        FileRequest::Stat(_) => stream(reader, writer, move |out| stat::stat(&find(here)?, out)).await,
        FileRequest::List(_) => stream(reader, writer, move |out| stat::list(&find(here)?, out)).await,
        FileRequest::Search(_, search) => {
            stream(reader, writer, move |out| search::search(&find(here)?, &search, out)).await
        }
        FileRequest::Remove(_) => stream(reader, writer, move |out| stat::remove(&find(here)?, out)).await,
    }
}

/// An absolute path for what a request says.
fn locate(guest: &Guest, place: &Place) -> Result<Vec<u8>, Fault> {
    let session = place.session.as_ref().map(|key| guest.sessions.get(key)).transpose()?;
    let state = session.as_ref().map(|session| session.state.borrow());
    Ok(place::resolve(&place.path, state.as_deref())?)
}

/// Hands replies from a working thread to the client, at the client's pace.
pub(crate) struct Out(mpsc::Sender<FileReply>);

impl Out {
    fn send(&self, reply: FileReply) -> Result<(), Failure> {
        self.0.blocking_send(reply).map_err(|_left| Failure::Left)
    }

    /// The same for somebody who begins later, if it is still of use then.
    fn later(&self) -> impl FnOnce() -> Option<Self> + Send + 'static {
        let sender = self.0.downgrade();
        move || sender.upgrade().map(Self)
    }

    /// Stops work that has nothing to say for long when nobody listens any more.
    fn still_wanted(&self) -> Result<(), Failure> {
        if self.0.is_closed() { Err(Failure::Left) } else { Ok(()) }
    }
}

/// Why work on files stopped.
#[derive(Debug)]
pub(crate) enum Failure {
    Fault(Fault),
    /// The client is gone; nobody is to be told.
    Left,
}

impl From<Fault> for Failure {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
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
    reader: &mut Reader<Stream>,
    writer: &mut Writer<Stream>,
    work: impl FnOnce(&Out) -> Result<(), Failure> + Send + 'static,
) -> Result<(), FrameError> {
    let (out, mut replies) = mpsc::channel(QUEUE);
    let work = tokio::task::spawn_blocking(move || work(&Out(out)));
    loop {
        tokio::select! {
            reply = replies.recv() => match reply {
                Some(reply) => writer.send(&Reply::File(reply)).await?,
                None => break,
            },
            // Nothing may be said here, so saying something is leaving too.
            left = reader.receive::<Content>() => {
                left?;
                return Err(FrameError::Io(io::ErrorKind::ConnectionReset.into()));
            }
        }
    }
    match work.await {
        Ok(Ok(()) | Err(Failure::Left)) => Ok(()),
        Ok(Err(Failure::Fault(fault))) => writer.send(&Reply::Failed(fault)).await,
        Err(_ended) => writer.send(&Reply::Failed(Fault::Malformed)).await,
    }
}
