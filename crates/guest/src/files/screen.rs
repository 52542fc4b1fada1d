//! Finds out with several threads which files have nothing that matches.
//!
//! What is found must be told in order and counted on the way, which one thread does. The others only screen: most files
//! of a search have nothing, and that one need not open them.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;

use super::blocks::{Content, each_block};
use super::place::Tree;
use super::search::Matcher;
use super::{Failure, Out, read};

/// The most threads that one search uses.
const THREADS: usize = 4;
/// Fewer files than this are not worth a helper.
const FILES_FOR_A_HELPER: usize = 16;

/// A file that may have something.
#[derive(Debug)]
pub(super) struct Candidate {
    /// Below the root of the search.
    pub(super) path: PathBuf,
    pub(super) verdict: Verdict,
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

/// Ways into the tree for those who help with so many files, if it is worth to have any. Where a descriptor is not to be
/// had there are fewer.
pub(super) fn ways(tree: &Tree, files: usize) -> Vec<Tree> {
    let helpers = (files / FILES_FOR_A_HELPER).min(processors() - 1);
    (0..helpers).map_while(|_| tree.try_clone().ok()).collect()
}

/// Visits candidates in their order. Meanwhile helpers begin at the end and find out which of them can be passed over.
pub(super) fn visit(
    candidates: &mut [Candidate],
    ways: Vec<Tree>,
    matcher: &Matcher,
    out: &Out,
    mut visit: impl FnMut(&Candidate) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let left = Mutex::new(candidates.iter_mut());
    let help = |mut tree: Tree| {
        let mut buffer = Vec::new();
        for candidate in std::iter::from_fn(|| lock(&left).next_back()) {
            if out.still_wanted().is_err() {
                return;
            }
            candidate.verdict = judge(&candidate.path, &mut tree, &mut buffer, matcher, out);
        }
    };
    let mut visited = 0;
    thread::scope(|scope| {
        for tree in ways {
            // Where no thread is to be had it goes on without.
            if thread::Builder::new().spawn_scoped(scope, || help(tree)).is_err() {
                break;
            }
        }
        std::iter::from_fn(|| lock(&left).next()).try_for_each(|candidate| {
            visited += 1;
            visit(candidate)
        })
    })?;
    candidates.iter().skip(visited).try_for_each(visit)
}

/// Counted once, because that takes as long as reading some files does.
fn processors() -> usize {
    static COUNT: OnceLock<usize> = OnceLock::new();
    *COUNT.get_or_init(|| thread::available_parallelism().map_or(1, |count| count.get().min(THREADS)))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn judge(path: &Path, tree: &mut Tree, buffer: &mut Vec<u8>, matcher: &Matcher, out: &Out) -> Verdict {
    let Ok(opened) = tree.open(path, read::READ) else { return Verdict::Open };
    let mut verdict = Verdict::Nothing;
    let content = each_block(opened, buffer, out, |block| match matcher.may_match(block) {
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
