//! File requests. Blocking file work runs on its own thread, so it never delays other requests.

mod blocks;
mod prefilter;
mod read;
pub(crate) mod resolve;
mod search;
mod stat;
mod walk;
mod write;

use hermes_guest::protocol::file::{FileError, FileReply, FileRequest, JudgedPath, ParentDirs, WriteOptions};
use hermes_guest::protocol::frame::{FrameError, FrameReader, FrameWriter};
use hermes_guest::protocol::message::{GuestReply, Rejection};
use hermes_guest::protocol::mux::MuxStream;
use rustix::io::Errno;
use tokio::sync::mpsc;

use crate::connection::until_disconnect;
use crate::guest::Guest;
use resolve::{FinalLink, ResolvedPath};

/// Replies queued until the client reads them.
const MAX_QUEUED_REPLIES: usize = 4;

/// Handles a file request on the stream it arrived on.
pub(crate) async fn handle_request(
    guest: &Guest,
    path: JudgedPath,
    request: FileRequest,
    reader: &mut FrameReader<MuxStream>,
    writer: &mut FrameWriter<MuxStream>,
) -> Result<(), FrameError> {
    let final_link = match request {
        FileRequest::Stat | FileRequest::Remove => FinalLink::NoFollow,
        _ => FinalLink::Follow,
    };
    let absolute = absolute_path(guest, &path);
    let (sender, mut replies) = mpsc::channel(MAX_QUEUED_REPLIES);
    let work = tokio::task::spawn_blocking(move || {
        let resolved = ResolvedPath::resolve(&absolute?, &path.resolved, final_link, ParentDirs::Require)?;
        Ok(answer_request(request, resolved, &ReplySender(sender))?)
    });
    while let Some(reply) = until_disconnect(reader, replies.recv()).await? {
        writer.send(&GuestReply::File(reply)).await?;
    }
    match work.await.unwrap_or(Err(Rejection::Malformed)) {
        Ok(()) => Ok(()),
        Err(fault) => writer.send(&GuestReply::Failed(fault)).await,
    }
}

fn answer_request(request: FileRequest, resolved: ResolvedPath, out: &ReplySender) -> Result<(), FileError> {
    match request {
        FileRequest::Read(range) => read::read_file(&resolved, range, out),
        FileRequest::Patch(edits) => write::patch_file(resolved, &edits, out),
        FileRequest::Stat => stat::stat_file(&resolved, out),
        FileRequest::List => stat::list_dir(&resolved, out),
        FileRequest::Search(search) => search::search_files(&resolved, &search, out),
        FileRequest::Remove => stat::remove_file(&resolved, out),
    }
}

/// Receives a file's content on the stream of the request, and installs the file.
pub(crate) async fn write_file(
    guest: &Guest,
    path: &JudgedPath,
    options: WriteOptions,
    reader: &mut FrameReader<MuxStream>,
    writer: &mut FrameWriter<MuxStream>,
) -> Result<(), FrameError> {
    let resolved = absolute_path(guest, path).and_then(|absolute| {
        Ok(ResolvedPath::resolve(&absolute, &path.resolved, FinalLink::Follow, options.parents)?)
    });
    write::receive_file(resolved, options.precondition, reader, writer).await
}

/// The absolute path of a request.
fn absolute_path(guest: &Guest, path: &JudgedPath) -> Result<Vec<u8>, Rejection> {
    let session = path.session.as_ref().map(|key| guest.sessions.get(key)).transpose()?;
    let state = session.as_ref().map(|session| session.state.borrow());
    Ok(resolve::absolute_path(&path.path, state.as_deref())?)
}

/// Sends replies from a blocking thread to the client; blocks while the client does not read.
pub(crate) struct ReplySender(mpsc::Sender<FileReply>);

impl ReplySender {
    fn send(&self, reply: FileReply) -> Result<(), FileError> {
        self.0.blocking_send(reply).map_err(|_left| Errno::PIPE.into())
    }

    /// A sender for a helper thread that may start after the request is done; `None` by then.
    fn downgrade(&self) -> impl FnOnce() -> Option<Self> + Send + 'static {
        let sender = self.0.downgrade();
        move || sender.upgrade().map(Self)
    }

    /// Stops long work without output when the client disconnects.
    fn check_connected(&self) -> Result<(), FileError> {
        if self.0.is_closed() { Err(Errno::PIPE.into()) } else { Ok(()) }
    }
}
