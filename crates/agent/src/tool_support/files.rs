//! Files of the environment for the file tools. The gate judges each path, and judges it again
//! where a link leads elsewhere.

use hermes_exec::files::{FileError, FileRange, ReadSummary, WriteOptions, WriteResult, resolve_lexically};
use hermes_exec::{Error as ExecError, GuestFiles};
use hermes_policy::Permit;
use hermes_types::{FileAccess, FileUse, Job, Work};

use crate::{CallContext, Error, ToolContext, ToolResult};

/// How often a path may resolve to another file than it did a moment before.
pub(crate) const MAX_PATH_ATTEMPTS: u32 = 4;

pub(crate) const ENOENT: i32 = 2;
const ENOTDIR: i32 = 20;
/// EPERM and EACCES.
const PERMISSION_ERRNOS: [i32; 2] = [1, 13];

/// The files of a session's environment, and its working directory.
pub(crate) struct PlaceFiles<'a> {
    context: &'a ToolContext,
    call: CallContext<'a>,
    pub(crate) guest: GuestFiles,
    cwd: String,
    home: String,
}

/// The result of a file operation, and the file it reached.
pub(crate) struct FileOutcome<T> {
    pub(crate) result: Result<T, ExecError>,
    /// The absolute path without links, as far as it is known.
    pub(crate) real_path: String,
}

impl<'a> PlaceFiles<'a> {
    pub(crate) async fn open(context: &'a ToolContext, call: CallContext<'a>) -> Result<Self, Error> {
        let place = context.open_place(call.observer).await?;
        let cwd = place.cwd().await?;
        let guest = place.files().await?;
        Ok(Self { context, call, guest, cwd, home: context.config().place.place().home })
    }

    /// Reads a part of a file, up to a limit in bytes.
    pub(crate) async fn read(
        &self,
        permit: Permit,
        range: FileRange,
        max_bytes: usize,
    ) -> Result<(Vec<u8>, ReadSummary), ExecError> {
        self.guest.read(permit, range).await?.read_to_end(max_bytes).await
    }

    /// Writes a whole file.
    pub(crate) async fn write(
        &self,
        permit: Permit,
        mut content: &[u8],
        options: WriteOptions,
    ) -> Result<WriteResult, ExecError> {
        self.guest.write(permit, &mut content, options).await
    }

    /// The absolute path, assuming that it contains no links.
    pub(crate) fn lexical(&self, path: &str) -> String {
        resolve_lexically(path, &self.cwd, &self.home)
    }

    /// Runs a file operation with a permit for each path that it turns out to reach. A stop ends a
    /// read early; a change runs to its end.
    pub(crate) async fn with_permit<T, F: Future<Output = Result<T, ExecError>>>(
        &self,
        access: FileAccess,
        path: &str,
        operation: impl Fn(Permit) -> F,
    ) -> Result<FileOutcome<T>, Error> {
        let mut real_path = self.lexical(path);
        let mut attempts = 0;
        loop {
            let permit = self.request_permit(access, path, &real_path).await?;
            let result = match access {
                FileAccess::Read => tokio::select! {
                    result = operation(permit) => result,
                    () = self.call.stop.cancelled() => return Err(Error::Interrupted),
                },
                FileAccess::Write | FileAccess::Delete => operation(permit).await,
            };
            attempts += 1;
            match result {
                Err(ExecError::PathElsewhere(other)) if attempts < MAX_PATH_ATTEMPTS => real_path = other,
                result => return Ok(FileOutcome { result, real_path }),
            }
        }
    }

    /// Runs a read operation if no approver has to be asked about it.
    pub(crate) async fn if_unasked<T, F: Future<Output = Result<T, ExecError>>>(
        &self,
        path: &str,
        operation: impl Fn(Permit) -> F,
    ) -> Option<FileOutcome<T>> {
        let mut real_path = self.lexical(path);
        for _ in 0..MAX_PATH_ATTEMPTS {
            let job = self.job(FileAccess::Read, path, &real_path);
            let permit = self.context.approvals().permit_if_unasked(job).await?;
            match operation(permit).await {
                Err(ExecError::PathElsewhere(other)) => real_path = other,
                result => return Some(FileOutcome { result, real_path }),
            }
        }
        None
    }

    /// Gets a permit for a file whose real path is known.
    pub(crate) async fn request_permit(
        &self,
        access: FileAccess,
        path: &str,
        real_path: &str,
    ) -> Result<Permit, Error> {
        Ok(self.context.request_permit(self.job(access, path, real_path), self.call).await?)
    }

    /// Whether a file can be read without asking an approver.
    pub(crate) async fn is_readable_unasked(&self, path: &str) -> bool {
        let job = self.job(FileAccess::Read, path, &self.lexical(path));
        self.context.approvals().permit_if_unasked(job).await.is_some()
    }

    fn job(&self, access: FileAccess, path: &str, real_path: &str) -> Job {
        let file = FileUse { access, path: path.to_owned(), real: real_path.to_owned() };
        Job::new(Work::File(file), self.cwd.clone())
    }
}

/// Whether the file does not exist.
pub(crate) fn is_missing(error: &ExecError) -> bool {
    matches!(error, ExecError::FileFailed(FileError::Os { errno: ENOENT | ENOTDIR }))
}

/// Explains a failed file operation to the model, with advice.
pub(crate) fn file_error(path: &str, error: &ExecError) -> Error {
    Error::File(match error {
        ExecError::FileFailed(FileError::NotRegular) => format!(
            "{path} is not a regular file but a directory, a device or a pipe; search_files with target=files lists a \
             directory"
        ),
        ExecError::FileFailed(FileError::Os { errno }) if PERMISSION_ERRNOS.contains(errno) => {
            format!("{path}: permission denied for the user of this environment")
        }
        ExecError::FileFailed(FileError::ContentChanged) => {
            format!(
                "{path} was changed by another process since it was read; nothing was written, read it again"
            )
        }
        ExecError::TooLarge(max) => format!("{path}: more than {max} bytes at once; ask for less of it"),
        error => format!("{path}: {error}"),
    })
}

/// Rejects a path that no file can have.
pub(crate) fn check_path(path: &str) -> Result<&str, ToolResult> {
    match path {
        "" => Err(ToolResult::error("`path` is empty")),
        path if path.contains('\0') => Err(ToolResult::error("`path` contains a zero byte")),
        path => Ok(path),
    }
}
