//! Searches files by content and by name, with the libraries of ripgrep.

use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use globset::{Glob, GlobSet, GlobSetBuilder};
use grep_regex::{RegexMatcher, RegexMatcherBuilder};
use grep_searcher::{BinaryDetection, Searcher, SearcherBuilder, Sink, SinkContext, SinkFinish, SinkMatch};
use hermes_guest::protocol::file::{FileFault, FileReply, Found, Hit, Role, Scope, Search, Target};
use hermes_guest::protocol::limit;
use ignore::WalkBuilder;
use serde_bytes::ByteBuf;

use super::{Failure, Out};

/// Hits in one message; each is cut to a few kilobytes.
const HITS: usize = 64;

pub(super) fn search(root: &Path, search: &Search, out: &Out) -> Result<(), Failure> {
    let globs = globs(&search.globs)?;
    let (matcher, context) = match &search.target {
        Target::Lines { pattern, context } => (Some(matcher(pattern)?), usize::from(*context)),
        Target::Files { pattern } => (Some(matcher(pattern)?), 0),
        Target::Names => (None, 0),
    };
    let mut searcher = SearcherBuilder::new()
        .line_number(true)
        .binary_detection(BinaryDetection::quit(0))
        .before_context(context)
        .after_context(context)
        .build();
    std::fs::metadata(root)?;
    let mut page = Page { out, search, pending: Vec::new(), found: Found::default() };
    for entry in walk(root, search.scope) {
        let Ok(entry) = entry else {
            page.found.unreadable += 1;
            continue;
        };
        if !entry.file_type().is_some_and(|kind| kind.is_file()) {
            continue;
        }
        let below = entry.path().strip_prefix(root).unwrap_or(entry.path());
        // A search in a single file has nothing below its root.
        let below = if below.as_os_str().is_empty() { entry.path() } else { below };
        let named = globs.is_empty() || globs.is_match(below) || globs.is_match(Path::new(entry.file_name()));
        if !named {
            continue;
        }
        match &matcher {
            None => page.file(below, 0)?,
            Some(matcher) => page.look_into(&mut searcher, matcher, entry.path(), below)?,
        }
    }
    page.finish()
}

fn walk(root: &Path, scope: Scope) -> ignore::Walk {
    let mut builder = WalkBuilder::new(root);
    builder.standard_filters(scope == Scope::Tracked).require_git(false);
    builder.sort_by_file_name(std::cmp::Ord::cmp).build()
}

fn globs(patterns: &[String]) -> Result<GlobSet, FileFault> {
    let bad = |error: globset::Error| FileFault::BadPattern { message: error.to_string() };
    let mut set = GlobSetBuilder::new();
    for pattern in patterns {
        set.add(Glob::new(pattern).map_err(bad)?);
    }
    set.build().map_err(bad)
}

fn matcher(pattern: &str) -> Result<RegexMatcher, FileFault> {
    RegexMatcherBuilder::new()
        .line_terminator(Some(b'\n'))
        .build(pattern)
        .map_err(|error| FileFault::BadPattern { message: error.to_string() })
}

/// The hits that are reported, and the count of all.
struct Page<'a> {
    out: &'a Out,
    search: &'a Search,
    pending: Vec<Hit>,
    found: Found,
}

impl Page<'_> {
    /// Whether the hit with this number, from 0, is to be reported.
    fn shows(&self, number: u64) -> bool {
        let limit = u64::from(self.search.limit).min(limit::PAGE as u64);
        (self.search.offset..self.search.offset.saturating_add(limit)).contains(&number)
    }

    fn file(&mut self, path: &Path, lines: u64) -> Result<(), Failure> {
        if self.shows(self.found.hits) {
            self.report(Hit::File { path: ByteBuf::from(path.as_os_str().as_bytes()), lines })?;
        }
        self.found.hits += 1;
        self.found.files += 1;
        Ok(())
    }

    fn report(&mut self, hit: Hit) -> Result<(), Failure> {
        self.pending.push(hit);
        if self.pending.len() >= HITS {
            self.out.send(FileReply::Hits(std::mem::take(&mut self.pending)))?;
        }
        Ok(())
    }

    fn finish(self) -> Result<(), Failure> {
        if !self.pending.is_empty() {
            self.out.send(FileReply::Hits(self.pending))?;
        }
        self.out.send(FileReply::Searched(self.found))
    }

    fn look_into(
        &mut self,
        searcher: &mut Searcher,
        matcher: &RegexMatcher,
        path: &Path,
        below: &Path,
    ) -> Result<(), Failure> {
        let first = self.found.hits;
        let mut lines = Lines { page: self, first, below, matched: 0, binary: false, hits: Vec::new() };
        let searched = searcher.search_path(matcher, path, &mut lines);
        let (matched, binary, hits) = (lines.matched, lines.binary, lines.hits);
        if searched.is_err() {
            self.found.unreadable += 1;
            return Ok(());
        }
        if binary {
            self.found.binary += 1;
            return Ok(());
        }
        match self.search.target {
            Target::Files { .. } if matched > 0 => return self.file(below, matched),
            Target::Lines { .. } if matched > 0 => {
                self.found.hits += matched;
                self.found.files += 1;
            }
            _ => {}
        }
        hits.into_iter().try_for_each(|hit| self.report(hit))
    }
}

/// The lines of one file. They are reported when the file is done, because only then is it known to be text.
struct Lines<'a, 'b> {
    page: &'a Page<'b>,
    first: u64,
    below: &'a Path,
    matched: u64,
    binary: bool,
    hits: Vec<Hit>,
}

impl Lines<'_, '_> {
    fn line(&mut self, number: Option<u64>, text: &[u8], role: Role) {
        let text = text.strip_suffix(b"\n").unwrap_or(text);
        self.hits.push(Hit::Line {
            path: ByteBuf::from(self.below.as_os_str().as_bytes()),
            number: number.unwrap_or(0),
            text: text.iter().take(limit::LINE).copied().collect::<Vec<u8>>().into(),
            role,
        });
    }

    fn wants_lines(&self) -> bool {
        matches!(self.page.search.target, Target::Lines { .. })
    }
}

impl Sink for Lines<'_, '_> {
    type Error = io::Error;

    fn matched(&mut self, _: &Searcher, found: &SinkMatch<'_>) -> Result<bool, io::Error> {
        if self.wants_lines() && self.page.shows(self.first + self.matched) {
            self.line(found.line_number(), found.bytes(), Role::Match);
        }
        self.matched += 1;
        Ok(true)
    }

    fn context(&mut self, _: &Searcher, context: &SinkContext<'_>) -> Result<bool, io::Error> {
        // Context belongs to the hit before it or, at the beginning, to the one after.
        let hit = self.first + self.matched;
        if self.wants_lines() && (self.page.shows(hit) || self.page.shows(hit.saturating_sub(1))) {
            self.line(context.line_number(), context.bytes(), Role::Context);
        }
        Ok(true)
    }

    fn binary_data(&mut self, _: &Searcher, _: u64) -> Result<bool, io::Error> {
        self.binary = true;
        Ok(false)
    }

    fn finish(&mut self, _: &Searcher, end: &SinkFinish) -> Result<(), io::Error> {
        self.binary |= end.binary_byte_offset().is_some();
        Ok(())
    }
}
