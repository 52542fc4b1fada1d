//! Files that a door brings into a place, or takes out of it. The gate judges them like those of tools.

use std::path::Path;

use hermes_exec::Error;
use hermes_exec::files::{Expect, FileFault, Parents, Part, Piece, Write};
use hermes_types::{BackendName, CallId, FileAccess};
use tokio::fs::File;
use tokio::io::AsyncWriteExt;
use tokio_util::sync::CancellationToken;

use super::files::{self, MAX_PATH_ATTEMPTS, PlaceFiles, check_path};
use super::{CallContext, CallError, ToolResult};
use crate::{ToolContext, TurnObserver};

/// What is carried belongs to no call of a model.
const TRANSFER_CALL_ID: &str = "file";
/// Where what is brought is put, below the directory of the place.
const IMPORT_DIR_IN_PLACE: &str = ".hermes/cache";
/// The same on another machine: nobody's work is littered.
const IMPORT_DIR_ON_REMOTE: &str = "~/.cache/hermes-files";
/// The same on this machine, below the home of hermes. Nobody but hermes clears it.
pub const IMPORT_DIR: &str = "cache/files";

/// Why a file was not carried, in words that follow its name: `it is ...`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TransferError {
    /// It is not where files may be taken from.
    #[error("it is outside of the workspace")]
    Outside,
    /// It is larger than allowed.
    #[error("it is larger than {0} bytes")]
    TooLarge(u64),
    /// Something else.
    #[error("{0}")]
    Failed(String),
}

/// What may be taken out of a place.
#[derive(Debug, Clone, Copy)]
pub struct ExportPolicy<'a> {
    /// Directories of the place that files may be taken from, besides the one it works in.
    pub extra_roots: &'a [String],
    /// The most bytes of one file.
    pub max_bytes: u64,
}

impl ToolContext {
    /// Brings a file of this machine into the place, below a folder for such files, and gives its path there. What was
    /// there under this name is replaced.
    pub async fn import_file(
        &self,
        from: &Path,
        below: &str,
        stop: &CancellationToken,
        watch: TurnObserver<'_>,
    ) -> Result<String, TransferError> {
        let call = CallId::new(TRANSFER_CALL_ID);
        let scene = CallContext { call_id: &call, stop, turn: None, observer: watch };
        let shelf = PlaceFiles::open(self, watch).await.map_err(call_error)?;
        let plan = &self.config().place;
        let path = match plan.backend_name() {
            BackendName::Local => format!("{}/{IMPORT_DIR}/{below}", plan.place().hermes_home),
            BackendName::Ssh => format!("{IMPORT_DIR_ON_REMOTE}/{below}"),
            _ => format!("{}/{IMPORT_DIR_IN_PLACE}/{below}", plan.initial_cwd()),
        };
        let path = shelf.lexical(&path);
        let how = Write { expect: Expect::Anything, parents: Parents::Create };
        let act = |permit| async {
            let mut content = File::open(from).await.map_err(Error::ReadContent)?;
            shelf.files.write(permit, &mut content, how).await
        };
        let touched = shelf.with_permit(FileAccess::Write, &path, scene, act).await.map_err(call_error)?;
        match touched.result {
            Ok(_written) => Ok(path),
            Err(error) => Err(transfer_error(&error)),
        }
    }

    /// Takes a regular file out of the place, into a file of this machine, and gives its size. The guest opens the path
    /// that was found to be inside or nothing at all, so that no link can lead it elsewhere in between.
    pub async fn export_file(
        &self,
        path: &str,
        into: &mut File,
        takeable: ExportPolicy<'_>,
        stop: &CancellationToken,
        watch: TurnObserver<'_>,
    ) -> Result<u64, TransferError> {
        let call = CallId::new(TRANSFER_CALL_ID);
        let scene = CallContext { call_id: &call, stop, turn: None, observer: watch };
        check_path(path).map_err(denied_error)?;
        let shelf = PlaceFiles::open(self, watch).await.map_err(call_error)?;
        let fences = resolve_dirs(&shelf, &self.excluded_roots()).await;
        let workspace = [self.config().place.initial_cwd().to_owned()];
        let roots = resolve_dirs(&shelf, &[takeable.extra_roots, &workspace].concat()).await;
        let mut real = shelf.lexical(path);
        let mut attempts = 0;
        let mut reader = loop {
            if !is_inside(&real, &roots, &fences) {
                return Err(TransferError::Outside);
            }
            let permit =
                shelf.request_permit(FileAccess::Read, path, &real, scene).await.map_err(call_error)?;
            let part = Part::Bytes { offset: 0, length: takeable.max_bytes.saturating_add(1) };
            attempts += 1;
            match shelf.files.read(permit, part).await {
                Ok(reader) => break reader,
                Err(Error::PathElsewhere(other)) if attempts < MAX_PATH_ATTEMPTS => real = other,
                Err(error) => return Err(transfer_error(&error)),
            }
        };
        let unkept = |error: std::io::Error| TransferError::Failed(format!("it cannot be copied: {error}"));
        let mut size = 0_u64;
        loop {
            let piece = tokio::select! {
                biased;
                () = stop.cancelled() => return Err(call_error(CallError::Interrupted)),
                piece = reader.next() => piece,
            };
            match piece.map_err(|error| transfer_error(&error))? {
                Piece::Data(data) => {
                    size = size.saturating_add(data.len() as u64);
                    if size > takeable.max_bytes {
                        return Err(TransferError::TooLarge(takeable.max_bytes));
                    }
                    into.write_all(&data).await.map_err(unkept)?;
                }
                Piece::End(_) => break,
            }
        }
        into.sync_data().await.map_err(unkept)?;
        Ok(size)
    }

    /// Directories whose files are not in a directory that holds them: on a machine that is more than a place, somebody's
    /// home and that of hermes.
    fn excluded_roots(&self) -> Vec<String> {
        let place = self.config().place.place();
        match place.backend {
            BackendName::Local => vec![place.home, place.hermes_home],
            BackendName::Ssh => vec![place.home],
            _ => Vec::new(),
        }
    }
}

/// Directories, as they are called and as they are found to be.
async fn resolve_dirs(shelf: &PlaceFiles<'_>, directories: &[String]) -> Vec<String> {
    let mut all = Vec::new();
    for directory in directories {
        let directory = shelf.lexical(directory);
        // With the dot, a link at its end is followed too.
        let found = shelf.if_unasked(&format!("{directory}/."), |permit| shelf.files.stat(permit)).await;
        all.extend(found.map(|touched| touched.real_path));
        all.push(directory);
    }
    all
}

/// Whether a path is in one of these directories, without a fence between.
fn is_inside(path: &str, roots: &[String], fences: &[String]) -> bool {
    let covers = |root: &String| {
        let is_fenced = |fence: &String| is_below(fence, root) && is_below(path, fence);
        is_below(path, root) && !fences.iter().any(is_fenced)
    };
    roots.iter().any(covers)
}

/// Whether a path is this directory or in it.
fn is_below(path: &str, directory: &str) -> bool {
    let directory = directory.trim_end_matches('/');
    path.strip_prefix(directory).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

fn transfer_error(error: &Error) -> TransferError {
    TransferError::Failed(match error {
        error if files::is_missing(error) => "there is no such file".to_owned(),
        Error::FileFailed(FileFault::NotRegular) => "it is not a regular file".to_owned(),
        error => files::describe_error("it", error),
    })
}

fn call_error(stopped: CallError) -> TransferError {
    denied_error(stopped.into())
}

fn denied_error(done: ToolResult) -> TransferError {
    TransferError::Failed(done.content["error"].as_str().unwrap_or("it was refused").to_owned())
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
        for (path, root, fences, expected) in cases {
            assert_eq!(is_inside(path, &[root.to_owned()], fences), expected, "{path} in {root}");
        }
    }
}
