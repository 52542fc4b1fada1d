//! Searches files by content and by name.
//!
//! Walking, globs and regular expressions come from ripgrep's crates. Its searcher is not used: it
//! includes encoding tables that nothing here needs and that are a tenth of the guest's size.

use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use globset::{Glob, GlobSet, GlobSetBuilder};
use hermes_guest::protocol::file::{
    FileError, FileReply, FileSearch, LineRole, SearchHit, SearchMode, SearchSummary,
};
use hermes_guest::protocol::limit;
use regex_automata::meta::Regex;
use regex_automata::util::syntax;
use serde_bytes::ByteBuf;

use super::ReplySender;
use super::blocks::{ContentKind, MoreLines, each_block};
use super::prefilter::{self, Candidate, PrefilterResult};
use super::resolve::ResolvedPath;
use super::walk::FileWalk;

/// Each hit is truncated to a few kilobytes.
const MAX_HITS_PER_MESSAGE: usize = 64;
const MAX_REGEX_BYTES: usize = 8 * 1024 * 1024;
/// Files that are prefiltered together.
const BATCH_FILES: usize = 256;

pub(super) fn search_files(
    resolved: &ResolvedPath,
    search: &FileSearch,
    out: &ReplySender,
) -> Result<(), FileError> {
    let globs = build_globs(&search.globs)?;
    let (matcher, context) = match &search.target {
        SearchMode::Lines { pattern, context } => {
            (Some(Arc::new(build_matcher(pattern)?)), usize::from(*context))
        }
        SearchMode::Files { pattern } => (Some(Arc::new(build_matcher(pattern)?)), 0),
        SearchMode::Names => (None, 0),
    };
    let root = resolved.real_path.as_path();
    let held = resolved.open_path()?;
    let kind = held.metadata()?.file_type();
    let (walk, single_file) = match kind.is_dir() {
        true => (FileWalk::below(held.into(), root), None),
        false => (FileWalk::single_file(resolved.dir.try_clone()?, &resolved.name), Some(root)),
    };
    let mut page = SearchPage {
        out,
        search,
        walk,
        single_file,
        buffer: Vec::new(),
        unsent: Vec::new(),
        summary: SearchSummary::default(),
    };
    if matcher.is_some() && !kind.is_dir() && !kind.is_file() {
        page.summary.unreadable += 1;
        return page.finish();
    }
    loop {
        let batch = page.next_batch(&globs)?;
        if batch.is_empty() {
            return page.finish();
        }
        match &matcher {
            None => batch.iter().try_for_each(|candidate| page.report_file(&candidate.path, 0))?,
            Some(matcher) => {
                let tree = page.walk.tree.try_clone()?;
                prefilter::for_each_candidate(batch, &tree, matcher, out, |path, result| {
                    page.search_candidate(path, result, matcher, context)
                })?;
            }
        }
    }
}

fn build_globs(patterns: &[String]) -> Result<GlobSet, FileError> {
    let bad = |error: globset::Error| FileError::BadPattern { message: error.to_string() };
    let mut set = GlobSetBuilder::new();
    for pattern in patterns {
        set.add(Glob::new(pattern).map_err(bad)?);
    }
    set.build().map_err(bad)
}

/// A compiled pattern.
#[derive(Debug)]
pub(super) struct Matcher {
    regex: Regex,
    /// Whether a block of lines matches if and only if one of its lines does. Patterns with anchors
    /// of the whole text must be applied to single lines.
    can_match_blocks: bool,
}

impl Matcher {
    /// False if none of these lines matches.
    pub(super) fn may_match(&self, lines: &[u8]) -> bool {
        !self.can_match_blocks || self.regex.is_match(lines)
    }
}

/// Compiles a pattern that matches single lines: `^` and `$` are line ends. Input need not be
/// UTF-8.
fn build_matcher(pattern: &str) -> Result<Matcher, FileError> {
    let bad = |message| FileError::BadPattern { message };
    let hir = syntax::parse_with(pattern, &syntax::Config::new().utf8(false).multi_line(true))
        .map_err(|error| bad(error.to_string()))?;
    let ends = hir.properties().look_set();
    let regex = Regex::builder()
        .configure(Regex::config().utf8_empty(false).nfa_size_limit(Some(MAX_REGEX_BYTES)))
        .build_from_hir(&hir)
        .map_err(|error| bad(error.to_string()))?;
    Ok(Matcher { regex, can_match_blocks: !ends.contains_anchor_haystack() && !ends.contains_anchor_crlf() })
}

/// One page of hits, and the totals of the whole search.
struct SearchPage<'a> {
    out: &'a ReplySender,
    search: &'a FileSearch,
    walk: FileWalk,
    /// Set if the root of the search is a file.
    single_file: Option<&'a Path>,
    buffer: Vec<u8>,
    unsent: Vec<SearchHit>,
    summary: SearchSummary,
}

impl SearchPage<'_> {
    /// Whether the hit with this zero-based number belongs to the page.
    fn is_on_page(&self, number: u64) -> bool {
        let limit = u64::from(self.search.limit).min(limit::MAX_PAGE_ENTRIES as u64);
        (self.search.offset..self.search.offset.saturating_add(limit)).contains(&number)
    }

    /// The next files whose path or name matches the globs.
    fn next_batch(&mut self, globs: &GlobSet) -> Result<Vec<Candidate>, FileError> {
        let mut batch = Vec::new();
        while batch.len() < BATCH_FILES
            && let Some(next) = self.walk.next_file()
        {
            self.out.check_connected()?;
            let Ok(path) = next else {
                self.summary.unreadable += 1;
                continue;
            };
            let name = Path::new(path.file_name().unwrap_or_default());
            if globs.is_empty() || globs.is_match(self.single_file.unwrap_or(&path)) || globs.is_match(name) {
                batch.push(Candidate { path, result: OnceLock::new() });
            }
        }
        Ok(batch)
    }

    fn report_file(&mut self, path: &Path, lines: u64) -> Result<(), FileError> {
        let path = self.single_file.unwrap_or(path);
        if self.is_on_page(self.summary.hits) {
            self.report(SearchHit::File { path: ByteBuf::from(path.as_os_str().as_bytes()), lines })?;
        }
        self.summary.hits += 1;
        self.summary.files += 1;
        Ok(())
    }

    fn report(&mut self, hit: SearchHit) -> Result<(), FileError> {
        self.unsent.push(hit);
        if self.unsent.len() >= MAX_HITS_PER_MESSAGE {
            self.out.send(FileReply::Hits(std::mem::take(&mut self.unsent)))?;
        }
        Ok(())
    }

    fn finish(self) -> Result<(), FileError> {
        if !self.unsent.is_empty() {
            self.out.send(FileReply::Hits(self.unsent))?;
        }
        self.out.send(FileReply::SearchDone(self.summary))
    }

    fn search_candidate(
        &mut self,
        path: &Path,
        result: PrefilterResult,
        matcher: &Matcher,
        context: usize,
    ) -> Result<(), FileError> {
        self.out.check_connected()?;
        match result {
            PrefilterResult::MustSearch => self.search_file(matcher, context, path),
            PrefilterResult::NoMatch => Ok(()),
            PrefilterResult::Binary => {
                self.summary.binary += 1;
                Ok(())
            }
        }
    }

    fn search_file(&mut self, matcher: &Matcher, context: usize, path: &Path) -> Result<(), FileError> {
        let opened = self.walk.tree.open(path);
        let mut buffer = std::mem::take(&mut self.buffer);
        let mut lines = LineScanner {
            page: self,
            matcher,
            context,
            first_hit: self.summary.hits,
            path: self.single_file.unwrap_or(path),
            line_number: 0,
            matched: 0,
            context_before: VecDeque::new(),
            context_after: 0,
            hits: Vec::new(),
        };
        let searched = opened.map_err(FileError::from).and_then(|opened| {
            each_block(opened, &mut buffer, lines.page.out, |block, follows| {
                lines.scan_block(block, follows);
                ControlFlow::Continue(())
            })
        });
        let (matched, hits) = (lines.matched, lines.hits);
        self.buffer = buffer;
        match searched {
            Ok(ContentKind::Text) => {}
            Ok(ContentKind::Binary) => {
                self.summary.binary += 1;
                return Ok(());
            }
            Err(_) => {
                self.summary.unreadable += 1;
                return self.out.check_connected();
            }
        }
        match self.search.target {
            SearchMode::Files { .. } if matched > 0 => return self.report_file(path, matched),
            SearchMode::Lines { .. } if matched > 0 => {
                self.summary.hits += matched;
                self.summary.files += 1;
            }
            _ => {}
        }
        hits.into_iter().try_for_each(|hit| self.report(hit))
    }
}

/// Scans the lines of one file. Hits are only reported at the end, when the file is known to be
/// text.
struct LineScanner<'a, 'b> {
    page: &'a SearchPage<'b>,
    matcher: &'a Matcher,
    context: usize,
    /// Hits in all files before this one.
    first_hit: u64,
    path: &'a Path,
    line_number: u64,
    matched: u64,
    /// Unreported lines before the current one, for context.
    context_before: VecDeque<(u64, Vec<u8>)>,
    /// Context lines still to report after the last hit.
    context_after: usize,
    hits: Vec<SearchHit>,
}

impl LineScanner<'_, '_> {
    /// Scans complete lines. Most blocks have no hit, which one match of the whole block shows;
    /// otherwise the block is halved until the matching lines are found. Lines are counted only
    /// where a numbered line may follow.
    fn scan_block(&mut self, block: &[u8], follows: MoreLines) {
        if self.context == 0 && !self.matcher.may_match(block) {
            if follows == MoreLines::Possible {
                self.line_number += memchr::memchr_iter(b'\n', block).count() as u64;
            }
            return;
        }
        match split_lines(block) {
            Some((first, second)) => {
                self.scan_block(first, MoreLines::Possible);
                self.scan_block(second, follows);
            }
            None if block.is_empty() => {}
            None => {
                self.line_number += 1;
                self.scan_line(block.strip_suffix(b"\n").unwrap_or(block));
            }
        }
    }

    fn scan_line(&mut self, line: &[u8]) {
        if self.matcher.regex.is_match(line) {
            let wants_lines = matches!(self.page.search.target, SearchMode::Lines { .. });
            let is_shown = wants_lines && self.page.is_on_page(self.first_hit + self.matched);
            self.matched += 1;
            let before = std::mem::take(&mut self.context_before);
            self.context_after = 0;
            if is_shown {
                self.context_after = self.context;
                before.into_iter().for_each(|(number, text)| self.report(number, &text, LineRole::Context));
                self.report(self.line_number, line, LineRole::Match);
            }
        } else if self.context_after > 0 {
            self.context_after -= 1;
            self.report(self.line_number, line, LineRole::Context);
        } else if self.context > 0 {
            if self.context_before.len() == self.context {
                self.context_before.pop_front();
            }
            self.context_before.push_back((self.line_number, truncate_line(line)));
        }
    }

    fn report(&mut self, number: u64, line: &[u8], role: LineRole) {
        let path = ByteBuf::from(self.path.as_os_str().as_bytes());
        self.hits.push(SearchHit::Line { path, number, text: ByteBuf::from(truncate_line(line)), role });
    }
}

/// Splits lines near the middle; `None` for a single line.
fn split_lines(lines: &[u8]) -> Option<(&[u8], &[u8])> {
    let but_last = lines.strip_suffix(b"\n").unwrap_or(lines);
    let (first, second) = but_last.split_at(but_last.len() / 2);
    let end = match memchr::memchr(b'\n', second) {
        Some(end) => first.len() + end,
        None => memchr::memrchr(b'\n', first)?,
    };
    Some(lines.split_at(end + 1))
}

fn truncate_line(line: &[u8]) -> Vec<u8> {
    line.iter().take(limit::MAX_LINE_BYTES).copied().collect()
}
