//! File requests. Blocking file work runs on its own thread, so it never delays other requests.

mod blocks;
mod prefilter;
mod read;
pub(crate) mod resolve;
mod search;
mod stat;
mod walk;
mod write;

use std::io;

use hermes_guest::protocol::file::{FileError, FileReply, FileRequest, JudgedPath, ParentDirs, WriteChunk};
use hermes_guest::protocol::frame::{FrameError, FrameReader, FrameWriter};
use hermes_guest::protocol::message::{GuestReply, Rejection};
use hermes_guest::protocol::mux::MuxStream;
use tokio::sync::mpsc;

use crate::guest::Guest;
use resolve::{FinalLink, ResolvedPath};

/// Replies queued until the client reads them.
const MAX_QUEUED_REPLIES: usize = 4;

/// Handles a file request on the stream it arrived on.
pub(crate) async fn handle_request(
    guest: &Guest,
    request: FileRequest,
    reader: &mut FrameReader<MuxStream>,
    writer: &mut FrameWriter<MuxStream>,
) -> Result<(), FrameError> {
    let (judged_path, last) = match &request {
        FileRequest::Read(judged_path, _)
        | FileRequest::Write(judged_path, _)
        | FileRequest::Patch(judged_path, _)
        | FileRequest::List(judged_path)
        | FileRequest::Search(judged_path, _) => (judged_path, FinalLink::Follow),
        FileRequest::Stat(judged_path) | FileRequest::Remove(judged_path) => {
            (judged_path, FinalLink::NoFollow)
        }
    };
    let (path, expected) = (absolute_path(guest, judged_path), judged_path.resolved.clone());
    let resolve_path = move |parents| -> Result<ResolvedPath, Rejection> {
        Ok(ResolvedPath::absolute_path(&path?, &expected, last, parents)?)
    };
    let existing_parents = ParentDirs::Require;
    match request {
        FileRequest::Write(_, how) => {
            write::receive_file(resolve_path(how.parents), how.precondition, reader, writer).await
        }
        FileRequest::Read(_, part) => {
            run_blocking(reader, writer, move |out| {
                read::read_file(&resolve_path(existing_parents)?, part, out)
            })
            .await
        }
        FileRequest::Patch(_, edits) => {
            run_blocking(reader, writer, move |out| {
                write::patch_file(resolve_path(existing_parents)?, &edits, out)
            })
            .await
        }
        FileRequest::Stat(_) => {
            run_blocking(reader, writer, move |out| stat::stat_file(&resolve_path(existing_parents)?, out))
                .await
        }
        FileRequest::List(_) => {
            run_blocking(reader, writer, move |out| stat::list_dir(&resolve_path(existing_parents)?, out))
                .await
        }
        FileRequest::Search(_, search) => {
            run_blocking(reader, writer, move |out| {
                search::search_files(&resolve_path(existing_parents)?, &search, out)
            })
            .await
        }
        FileRequest::Remove(_) => {
            run_blocking(reader, writer, move |out| stat::remove_file(&resolve_path(existing_parents)?, out))
                .await
        }
    }
}

/// The absolute path of a request.
fn absolute_path(guest: &Guest, judged_path: &JudgedPath) -> Result<Vec<u8>, Rejection> {
    let session = judged_path.session.as_ref().map(|key| guest.sessions.get(key)).transpose()?;
    let state = session.as_ref().map(|session| session.state.borrow());
    Ok(resolve::resolve(&judged_path.path, state.as_deref())?)
}

/// Sends replies from a blocking thread to the client; blocks while the client does not read.
pub(crate) struct ReplySender(mpsc::Sender<FileReply>);

impl ReplySender {
    fn send(&self, reply: FileReply) -> Result<(), FileTaskError> {
        self.0.blocking_send(reply).map_err(|_left| FileTaskError::Disconnected)
    }

    /// A sender for a helper thread that may start after the request is done; `None` by then.
    fn downgrade(&self) -> impl FnOnce() -> Option<Self> + Send + 'static {
        let sender = self.0.downgrade();
        move || sender.upgrade().map(Self)
    }

    /// Stops long work without output when the client disconnects.
    fn check_connected(&self) -> Result<(), FileTaskError> {
        if self.0.is_closed() { Err(FileTaskError::Disconnected) } else { Ok(()) }
    }
}

/// Why a file task stopped.
#[derive(Debug)]
pub(crate) enum FileTaskError {
    Request(Rejection),
    /// The client disconnected; no error is reported.
    Disconnected,
}

impl From<Rejection> for FileTaskError {
    fn from(fault: Rejection) -> Self {
        Self::Request(fault)
    }
}

impl From<FileError> for FileTaskError {
    fn from(fault: FileError) -> Self {
        Self::Request(fault.into())
    }
}

impl From<io::Error> for FileTaskError {
    fn from(error: io::Error) -> Self {
        io_error(&error).into()
    }
}

impl From<rustix::io::Errno> for FileTaskError {
    fn from(errno: rustix::io::Errno) -> Self {
        io::Error::from(errno).into()
    }
}

pub(crate) fn io_error(error: &io::Error) -> FileError {
    FileError::Os { errno: error.raw_os_error().unwrap_or(libc::EIO) }
}

async fn run_blocking(
    reader: &mut FrameReader<MuxStream>,
    writer: &mut FrameWriter<MuxStream>,
    work: impl FnOnce(&ReplySender) -> Result<(), FileTaskError> + Send + 'static,
) -> Result<(), FrameError> {
    let (out, mut replies) = mpsc::channel(MAX_QUEUED_REPLIES);
    let work = tokio::task::spawn_blocking(move || work(&ReplySender(out)));
    loop {
        tokio::select! {
            reply = replies.recv() => match reply {
                Some(reply) => writer.send(&GuestReply::File(reply)).await?,
                None => break,
            },
            // The client must not send anything here; a message counts as a disconnect.
            received = reader.receive::<WriteChunk>() => {
                received?;
                return Err(FrameError::Io(io::ErrorKind::ConnectionReset.into()));
            }
        }
    }
    match work.await {
        Ok(Ok(()) | Err(FileTaskError::Disconnected)) => Ok(()),
        Ok(Err(FileTaskError::Request(fault))) => writer.send(&GuestReply::Failed(fault)).await,
        Err(_ended) => writer.send(&GuestReply::Failed(Rejection::Malformed)).await,
    }
}
