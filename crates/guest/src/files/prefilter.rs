//! Finds files without a match on several threads.
//!
//! Hits are reported in order and counted by one thread. The helper threads only prefilter: most
//! files have no match, and the reporting thread need not open those.

use std::ops::{ControlFlow, Range};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread;

use hermes_guest::protocol::file::FileError;
use tokio::runtime::Handle;

use super::ReplySender;
use super::blocks::{ContentKind, each_block};
use super::resolve::DirTree;
use super::search::Matcher;

/// Threads used by one search.
const MAX_THREADS: usize = 4;
/// A helper thread does not pay off for fewer files.
const FILES_PER_HELPER: usize = 16;

/// A file that may contain a match.
#[derive(Debug)]
pub(super) struct Candidate {
    /// Relative to the root of the search.
    pub(super) path: PathBuf,
    /// Set by the helper that claimed the file.
    pub(super) result: OnceLock<PrefilterResult>,
}

/// The result of the prefilter for one file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PrefilterResult {
    /// The file may match and must be searched.
    MustSearch,
    NoMatch,
    Binary,
}

/// Files that are prefiltered together.
struct PrefilterBatch {
    candidates: Vec<Candidate>,
    /// Files that no thread has claimed yet.
    unclaimed: Mutex<Range<usize>>,
    matcher: Arc<Matcher>,
}

impl PrefilterBatch {
    fn claim(&self, next: impl FnOnce(&mut Range<usize>) -> Option<usize>) -> Option<&Candidate> {
        let number = next(&mut self.unclaimed.lock().unwrap_or_else(PoisonError::into_inner))?;
        self.candidates.get(number)
    }

    /// Prefilters unclaimed files, last one first.
    fn prefilter_from_end(&self, mut tree: DirTree, out: &ReplySender) {
        let mut buffer = Vec::new();
        while let Some(candidate) = self.claim(Range::next_back) {
            let result = match out.check_connected() {
                Ok(()) => prefilter_file(&candidate.path, &mut tree, &mut buffer, &self.matcher, out),
                Err(_) => PrefilterResult::MustSearch,
            };
            candidate.result.get_or_init(|| result);
        }
    }
}

/// Calls `handle` for all candidates in order, while helper threads prefilter the last ones. There
/// is one helper per additional processor if the batch is large enough; fewer if file descriptors
/// or blocking threads run out.
pub(super) fn for_each_candidate(
    candidates: Vec<Candidate>,
    tree: &DirTree,
    matcher: &Arc<Matcher>,
    out: &ReplySender,
    mut handle: impl FnMut(&Path, PrefilterResult) -> Result<(), FileError>,
) -> Result<(), FileError> {
    let helpers = (candidates.len() / FILES_PER_HELPER).min(max_threads() - 1);
    let left = Mutex::new(0..candidates.len());
    let batch = Arc::new(PrefilterBatch { candidates, unclaimed: left, matcher: matcher.clone() });
    for tree in (0..helpers).map_while(|_| tree.try_clone().ok()) {
        let (batch, out) = (batch.clone(), out.downgrade());
        Handle::current().spawn_blocking(move || {
            // A helper that starts after the search ended does nothing.
            if let Some(out) = out() {
                batch.prefilter_from_end(tree, &out);
            }
        });
    }
    let mut handled = 0;
    while let Some(candidate) = batch.claim(Range::next) {
        handled += 1;
        handle(&candidate.path, PrefilterResult::MustSearch)?;
    }
    batch
        .candidates
        .iter()
        .skip(handled)
        .try_for_each(|claimed| handle(&claimed.path, *claimed.result.wait()))
}

/// Cached, because the lookup takes as long as reading several files.
fn max_threads() -> usize {
    static COUNT: OnceLock<usize> = OnceLock::new();
    *COUNT.get_or_init(|| thread::available_parallelism().map_or(1, |count| count.get().min(MAX_THREADS)))
}

fn prefilter_file(
    path: &Path,
    tree: &mut DirTree,
    buffer: &mut Vec<u8>,
    matcher: &Matcher,
    out: &ReplySender,
) -> PrefilterResult {
    let Ok(opened) = tree.open(path) else { return PrefilterResult::MustSearch };
    let mut result = PrefilterResult::NoMatch;
    let content = each_block(opened, buffer, out, |block, _| match matcher.may_match(block) {
        true => {
            result = PrefilterResult::MustSearch;
            ControlFlow::Break(())
        }
        false => ControlFlow::Continue(()),
    });
    match content {
        Ok(ContentKind::Text) => result,
        Ok(ContentKind::Binary) => PrefilterResult::Binary,
        // The search reports the error when it opens the file.
        Err(_) => PrefilterResult::MustSearch,
    }
}
