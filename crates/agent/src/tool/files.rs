//! The files of the place as the file tools use them: a path is judged, and where a link leads elsewhere, judged again.

use hermes_exec::files::{FileFault, resolve_lexically};
use hermes_exec::{Error, GuestFiles};
use hermes_policy::Permit;
use hermes_types::{FileAccess, FileUse, Job, Work};

use super::{CallContext, CallError, ToolResult};
use crate::tool_context::Approval;
use crate::{ToolContext, TurnObserver};

/// How often a path may lead elsewhere than it did a moment ago.
pub(super) const MAX_PATH_ATTEMPTS: u32 = 4;

/// The error numbers of Linux that tools have something to say about.
pub(super) const ENOENT: i32 = 2;
const ENOTDIR: i32 = 20;
const PERMISSION_ERRNOS: [i32; 2] = [1, 13];

/// The files of a session's place, and where the session is.
#[derive(Debug)]
pub(super) struct PlaceFiles<'a> {
    context: &'a ToolContext,
    pub(super) files: GuestFiles,
    cwd: String,
    home: String,
}

/// What came of touching a file, and which file it was.
#[derive(Debug)]
pub(super) struct FileOutcome<T> {
    pub(super) result: Result<T, Error>,
    /// The absolute path without links, as far as it is known.
    pub(super) real_path: String,
}

impl<'a> PlaceFiles<'a> {
    pub(super) async fn open(hands: &'a ToolContext, watch: TurnObserver<'_>) -> Result<Self, CallError> {
        let sandbox = hands.open_place(watch).await.map_err(CallError::Exec)?;
        let cwd = sandbox.cwd().await.map_err(CallError::Exec)?;
        let files = sandbox.files().await.map_err(CallError::Exec)?;
        Ok(Self { context: hands, files, cwd, home: hands.config().place.place().home })
    }

    /// What a path comes to if there are no links in it.
    pub(super) fn lexical(&self, path: &str) -> String {
        resolve_lexically(path, &self.cwd, &self.home)
    }

    /// Does something to a file, with a permit for each path that it turns out to be. Looking ends early when the
    /// call is stopped; a change is brought to its end.
    pub(super) async fn with_permit<T, F: Future<Output = Result<T, Error>>>(
        &self,
        access: FileAccess,
        path: &str,
        scene: CallContext<'_>,
        act: impl Fn(Permit) -> F,
    ) -> Result<FileOutcome<T>, CallError> {
        let mut real = self.lexical(path);
        let mut attempts = 0;
        loop {
            let Approval { permit, approved_by: _ } = self
                .context
                .request_approval(self.job(access, path, &real), scene)
                .await
                .map_err(CallError::Denied)?;
            let got = match access {
                FileAccess::Read => tokio::select! {
                    got = act(permit) => got,
                    () = scene.stop.cancelled() => return Err(CallError::Interrupted),
                },
                FileAccess::Write | FileAccess::Delete => act(permit).await,
            };
            attempts += 1;
            match got {
                Err(Error::PathElsewhere(other)) if attempts < MAX_PATH_ATTEMPTS => real = other,
                got => return Ok(FileOutcome { result: got, real_path: real }),
            }
        }
    }

    /// Looks at a file if nobody has to be asked about that.
    pub(super) async fn if_unasked<T, F: Future<Output = Result<T, Error>>>(
        &self,
        path: &str,
        act: impl Fn(Permit) -> F,
    ) -> Option<FileOutcome<T>> {
        let mut real = self.lexical(path);
        for _ in 0..MAX_PATH_ATTEMPTS {
            let permit = self.context.permit_if_unasked(self.job(FileAccess::Read, path, &real)).await?;
            match act(permit).await {
                Err(Error::PathElsewhere(other)) => real = other,
                got => return Some(FileOutcome { result: got, real_path: real }),
            }
        }
        None
    }

    /// A permit for a file whose real path is known.
    pub(super) async fn request_permit(
        &self,
        access: FileAccess,
        path: &str,
        real: &str,
        scene: CallContext<'_>,
    ) -> Result<Permit, CallError> {
        self.context.request_permit(self.job(access, path, real), scene).await.map_err(CallError::Denied)
    }

    /// Whether a file may be read without a question.
    pub(super) async fn is_readable_unasked(&self, path: &str) -> bool {
        let real = self.lexical(path);
        self.context.permit_if_unasked(self.job(FileAccess::Read, path, &real)).await.is_some()
    }

    fn job(&self, access: FileAccess, path: &str, real: &str) -> Job {
        let file = FileUse { access, path: path.to_owned(), real: real.to_owned() };
        Job { work: Work::File(file), cwd: self.cwd.clone() }
    }
}

/// Whether there is no such file.
pub(super) fn is_missing(error: &Error) -> bool {
    matches!(error, Error::FileFailed(FileFault::Os { errno: ENOENT | ENOTDIR }))
}

/// What is wrong with a file, in words that help.
pub(super) fn describe_error(path: &str, error: &Error) -> String {
    match error {
        Error::FileFailed(FileFault::NotRegular) => format!(
            "{path} is not a regular file but a directory, a device or a pipe; search_files with target=files lists a \
             directory"
        ),
        Error::FileFailed(FileFault::Os { errno }) if PERMISSION_ERRNOS.contains(errno) => {
            format!("{path}: the user of this place may not do that (permission denied)")
        }
        Error::FileFailed(FileFault::Changed) => {
            format!("{path} was changed by somebody else meanwhile; nothing was written, read it again")
        }
        Error::TooLarge(most) => format!("{path}: more than {most} bytes at once; ask for less of it"),
        error => format!("{path}: {error}"),
    }
}

/// A path that can be one, or what is wrong with it.
pub(super) fn check_path(path: &str) -> Result<&str, ToolResult> {
    match path {
        "" => Err(ToolResult::error("`path` is empty")),
        path if path.contains('\0') => {
            Err(ToolResult::error("`path` has a zero byte in it, which no path has"))
        }
        path => Ok(path),
    }
}
