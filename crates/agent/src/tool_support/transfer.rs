//! Copies files into the environment and out of it. The gate judges them like those of tools.

use std::path::Path;

use hermes_exec::Error as ExecError;
use hermes_exec::files::{FileChunk, FileError, FileRange, ParentDirs, Precondition, WriteOptions};
use hermes_types::{BackendName, CallId, FileAccess};
use tokio::fs::File;
use tokio::io::AsyncWriteExt;
use tokio_util::sync::CancellationToken;

use super::files::{MAX_PATH_ATTEMPTS, PlaceFiles, check_path, file_error, is_missing};
use crate::{CallContext, Error, ToolContext, TurnObserver};

/// A transfer belongs to no call of a model, but a permit needs the id of one.
const TRANSFER_CALL_ID: &str = "file";
/// Imported files in an environment of our own, below its working directory.
const IMPORT_DIR_IN_PLACE: &str = ".hermes/cache";
/// Imported files on another machine, outside of the working directory.
const IMPORT_DIR_ON_REMOTE: &str = "~/.cache/hermes-files";
/// Imported files on this machine, below the home of hermes, which removes them later.
pub const IMPORT_DIR: &str = "cache/files";

/// The files that may be copied out of the environment.
#[derive(Debug, Clone, Copy)]
pub struct ExportPolicy<'a> {
    /// Directories that files may come from in addition to the working directory.
    pub extra_roots: &'a [String],
    pub max_bytes: u64,
}

impl ToolContext {
    /// Copies a file of this machine into the environment, below a directory for such files, and
    /// returns its path there. An existing file of that name is replaced.
    pub async fn import_file(
        &self,
        from: &Path,
        relative_path: &str,
        stop: &CancellationToken,
        observer: TurnObserver<'_>,
    ) -> Result<String, Error> {
        let call_id = CallId::new(TRANSFER_CALL_ID);
        let call = CallContext { call_id: &call_id, stop, turn: None, observer };
        let files = PlaceFiles::open(self, call).await?;
        let place = &self.config().place;
        let path = match place.backend_name() {
            BackendName::Local => format!("{}/{IMPORT_DIR}/{relative_path}", place.place().hermes_home),
            BackendName::Ssh => format!("{IMPORT_DIR_ON_REMOTE}/{relative_path}"),
            _ => format!("{}/{IMPORT_DIR_IN_PLACE}/{relative_path}", place.initial_cwd()),
        };
        let path = files.lexical(&path);
        let options = WriteOptions { precondition: Precondition::Anything, parents: ParentDirs::Create };
        let write = |permit| async {
            let mut content = File::open(from).await.map_err(ExecError::ReadContent)?;
            files.guest.write(permit, &mut content, options).await
        };
        let outcome = files.with_permit(FileAccess::Write, &path, write).await?;
        outcome.result.map(|_written| path).map_err(|error| transfer_error(&error))
    }

    /// Copies a regular file out of the environment into a file of this machine, and returns its
    /// size. The guest opens exactly the path that was found to be inside, so that no link can
    /// redirect it after the check.
    pub async fn export_file(
        &self,
        path: &str,
        into: &mut File,
        policy: ExportPolicy<'_>,
        stop: &CancellationToken,
        observer: TurnObserver<'_>,
    ) -> Result<u64, Error> {
        let call_id = CallId::new(TRANSFER_CALL_ID);
        let call = CallContext { call_id: &call_id, stop, turn: None, observer };
        check_path(path).map_err(|_invalid| Error::File("its path is invalid".to_owned()))?;
        let files = PlaceFiles::open(self, call).await?;
        let excluded = resolve_dirs(&files, &self.excluded_roots()).await;
        let workspace = [self.config().place.initial_cwd().to_owned()];
        let roots = resolve_dirs(&files, &[policy.extra_roots, &workspace].concat()).await;
        let mut real_path = files.lexical(path);
        let mut attempts = 0;
        let mut reader = loop {
            if !is_inside(&real_path, &roots, &excluded) {
                return Err(Error::OutsideWorkspace);
            }
            let permit = files.request_permit(FileAccess::Read, path, &real_path).await?;
            let part = FileRange::Bytes { offset: 0, length: policy.max_bytes.saturating_add(1) };
            attempts += 1;
            match files.guest.read(permit, part).await {
                Ok(reader) => break reader,
                Err(ExecError::PathElsewhere(other)) if attempts < MAX_PATH_ATTEMPTS => real_path = other,
                Err(error) => return Err(transfer_error(&error)),
            }
        };
        let copy_error = |error: std::io::Error| Error::File(format!("it cannot be copied: {error}"));
        let mut size = 0_u64;
        loop {
            let piece = tokio::select! {
                biased;
                () = stop.cancelled() => return Err(Error::Interrupted),
                piece = reader.next() => piece,
            };
            match piece.map_err(|error| transfer_error(&error))? {
                FileChunk::Data(data) => {
                    size = size.saturating_add(data.len() as u64);
                    if size > policy.max_bytes {
                        return Err(Error::TooLarge(policy.max_bytes));
                    }
                    into.write_all(&data).await.map_err(copy_error)?;
                }
                FileChunk::End(_) => break,
            }
        }
        into.sync_data().await.map_err(copy_error)?;
        Ok(size)
    }

    /// Directories that do not count as part of a directory above them: on a machine that is more
    /// than an environment of ours, the home of its user and that of hermes.
    fn excluded_roots(&self) -> Vec<String> {
        let place = self.config().place.place();
        match place.backend {
            BackendName::Local => vec![place.home, place.hermes_home],
            BackendName::Ssh => vec![place.home],
            _ => Vec::new(),
        }
    }
}

/// Each directory by its own path and by its real path.
async fn resolve_dirs(files: &PlaceFiles<'_>, directories: &[String]) -> Vec<String> {
    let mut all = Vec::new();
    for directory in directories {
        let directory = files.lexical(directory);
        // The dot makes the guest follow a link at the end of the path too.
        let found = files.if_unasked(&format!("{directory}/."), |permit| files.guest.stat(permit)).await;
        all.extend(found.map(|outcome| outcome.real_path));
        all.push(directory);
    }
    all
}

/// Whether a path is in one of the roots, with no excluded directory between the two.
fn is_inside(path: &str, roots: &[String], excluded: &[String]) -> bool {
    roots.iter().any(|root| {
        let is_between = |dir: &String| is_below(dir, root) && is_below(path, dir);
        is_below(path, root) && !excluded.iter().any(is_between)
    })
}

/// Whether a path is this directory or in it.
fn is_below(path: &str, directory: &str) -> bool {
    let directory = directory.trim_end_matches('/');
    path.strip_prefix(directory).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

fn transfer_error(error: &ExecError) -> Error {
    match error {
        error if is_missing(error) => Error::File("there is no such file".to_owned()),
        ExecError::FileFailed(FileError::NotRegular) => Error::File("it is not a regular file".to_owned()),
        error => file_error("it", error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_inside_unless_a_home_is_between() {
        let (machine, none) = (["/home/ada".to_owned(), "/home/ada/.hermes".to_owned()], []);
        let cases: [(&str, &str, &[String], bool); 12] = [
            ("/workspace/a", "/workspace", &none, true),
            ("/workspace", "/workspace/", &none, true),
            ("/workspaces/a", "/workspace", &none, false),
            ("/etc/passwd", "/workspace", &none, false),
            ("/root/a", "/root", &none, true),
            ("/home/ada/work/a", "/home/ada/work", &machine, true),
            ("/home/ada/.netrc", "/home/ada", &machine, false),
            ("/home/ada/.netrc", "/", &machine, false),
            ("/srv/a", "/", &machine, true),
            ("/home/ada/.hermes/state.db", "/home/ada", &machine, false),
            ("/home/ada/.hermes/cache/a", "/home/ada/.hermes/cache", &machine, true),
            ("/home/ada/.hermes/.env", "/home/ada/.hermes", &machine, false),
        ];
        for (path, root, excluded, expected) in cases {
            assert_eq!(is_inside(path, &[root.to_owned()], excluded), expected, "{path} in {root}");
        }
    }
}
