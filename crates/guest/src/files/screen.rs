//! Finds out with several threads which files have nothing that matches.
//!
//! What is found must be told in order and counted on the way, which one thread does. The others only screen: most files
//! of a search have nothing, and that one need not open them.

use std::ops::{ControlFlow, Range};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread;

use tokio::runtime::Handle;

use super::blocks::{Content, each_block};
use super::place::Tree;
use super::search::Matcher;
use super::{Failure, Out};

/// The most threads that one search uses.
const THREADS: usize = 4;
/// Fewer files than this are not worth a helper.
const FILES_FOR_A_HELPER: usize = 16;

/// A file that may have something.
#[derive(Debug)]
pub(super) struct Candidate {
    /// Below the root of the search.
    pub(super) path: PathBuf,
    /// Said by the helper that took it.
    verdict: OnceLock<Verdict>,
}

impl Candidate {
    pub(super) fn new(path: PathBuf) -> Self {
        Self { path, verdict: OnceLock::new() }
    }
}

/// What is known about a candidate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It must be looked into.
    Open,
    /// Nothing in it matches.
    Nothing,
    Binary,
}

/// Files that are screened together.
struct Batch {
    candidates: Vec<Candidate>,
    /// Those that nobody has taken yet.
    left: Mutex<Range<usize>>,
    matcher: Arc<Matcher>,
}

impl Batch {
    fn take(&self, next: impl FnOnce(&mut Range<usize>) -> Option<usize>) -> Option<&Candidate> {
        let number = next(&mut self.left.lock().unwrap_or_else(PoisonError::into_inner))?;
        self.candidates.get(number)
    }

    /// Begins at the end.
    fn help(&self, mut tree: Tree, out: &Out) {
        let mut buffer = Vec::new();
        while let Some(candidate) = self.take(Range::next_back) {
            let verdict = match out.still_wanted() {
                Ok(()) => judge(&candidate.path, &mut tree, &mut buffer, &self.matcher, out),
                Err(_) => Verdict::Open,
            };
            candidate.verdict.get_or_init(|| verdict);
        }
    }
}

/// Visits candidates in their order. Meanwhile helpers find out which of the last ones can be passed over: one for each
/// further processor if there is enough to do, fewer where a descriptor is not to be had, none while all threads are busy.
pub(super) fn visit(
    candidates: Vec<Candidate>,
    tree: &Tree,
    matcher: &Arc<Matcher>,
    out: &Out,
    mut visit: impl FnMut(&Path, Verdict) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let helpers = (candidates.len() / FILES_FOR_A_HELPER).min(processors() - 1);
    let left = Mutex::new(0..candidates.len());
    let batch = Arc::new(Batch { candidates, left, matcher: matcher.clone() });
    for tree in (0..helpers).map_while(|_| tree.try_clone().ok()) {
        let (batch, out) = (batch.clone(), out.later());
        Handle::current().spawn_blocking(move || {
            // Who comes too late is not waited for.
            if let Some(out) = out() {
                batch.help(tree, &out);
            }
        });
    }
    let mut visited = 0;
    while let Some(candidate) = batch.take(Range::next) {
        visited += 1;
        visit(&candidate.path, Verdict::Open)?;
    }
    batch.candidates.iter().skip(visited).try_for_each(|taken| visit(&taken.path, *taken.verdict.wait()))
}

/// Counted once, because that takes as long as reading some files does.
fn processors() -> usize {
    static COUNT: OnceLock<usize> = OnceLock::new();
    *COUNT.get_or_init(|| thread::available_parallelism().map_or(1, |count| count.get().min(THREADS)))
}

fn judge(path: &Path, tree: &mut Tree, buffer: &mut Vec<u8>, matcher: &Matcher, out: &Out) -> Verdict {
    let Ok(opened) = tree.open(path) else { return Verdict::Open };
    let mut verdict = Verdict::Nothing;
    let content = each_block(opened, buffer, out, |block, _| match matcher.may_match(block) {
        true => {
            verdict = Verdict::Open;
            ControlFlow::Break(())
        }
        false => ControlFlow::Continue(()),
    });
    match content {
        Ok(Content::Text) => verdict,
        Ok(Content::Binary) => Verdict::Binary,
        // Whoever looks into it finds out why.
        Err(_) => Verdict::Open,
    }
}
