//! Searches files by content and by name.
//!
//! Walking, globs and the regular expressions are those of ripgrep. Its searcher is not used: it brings tables for
//! encodings that nobody asked for, a tenth of the size of the guest.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use globset::{Glob, GlobSet, GlobSetBuilder};
use hermes_guest::protocol::file::{FileFault, FileReply, Found, Hit, Role, Scope, Search, Target};
use hermes_guest::protocol::limit;
use ignore::WalkBuilder;
use regex_automata::meta::Regex;
use regex_automata::util::syntax;
use serde_bytes::ByteBuf;

use super::place::{Spot, Tree};
use super::{Failure, Out, read};

/// Hits in one message; each is cut to a few kilobytes.
const HITS: usize = 64;
/// Memory that one expression may take.
const REGEX_SIZE: usize = 8 * 1024 * 1024;
/// The longest line that is looked at as a whole; what is longer is looked at in pieces.
const LONGEST_LINE: usize = 1024 * 1024;

pub(super) fn search(spot: &Spot, search: &Search, out: &Out) -> Result<(), Failure> {
    let globs = globs(&search.globs)?;
    let (matcher, context) = match &search.target {
        Target::Lines { pattern, context } => (Some(matcher(pattern)?), usize::from(*context)),
        Target::Files { pattern } => (Some(matcher(pattern)?), 0),
        Target::Names => (None, 0),
    };
    let root = spot.real();
    let held = spot.hold()?;
    // A single file is the one that is below its directory.
    let (top, files) = match held.metadata()?.is_dir() {
        true => (root, Tree::new(held.into())),
        false => (root.parent().unwrap_or(root), Tree::new(spot.dir().try_clone()?)),
    };
    let mut page = Page { out, search, files, pending: Vec::new(), found: Found::default() };
    for entry in walk(root, search.scope) {
        out.still_wanted()?;
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
            Some(matcher) => {
                let file = entry.path().strip_prefix(top).unwrap_or(below);
                page.look_into(matcher, context, file, below)?;
            }
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

/// Lines are matched one by one, so `^` and `$` mean their ends; bytes that are no text match what is not text.
fn matcher(pattern: &str) -> Result<Regex, FileFault> {
    Regex::builder()
        .configure(Regex::config().utf8_empty(false).nfa_size_limit(Some(REGEX_SIZE)))
        .syntax(syntax::Config::new().utf8(false).multi_line(true))
        .build(pattern)
        .map_err(|error| {
            let message = error.syntax_error().map_or_else(|| error.to_string(), ToString::to_string);
            FileFault::BadPattern { message }
        })
}

/// The hits that are reported, and the count of all.
struct Page<'a> {
    out: &'a Out,
    search: &'a Search,
    /// Where files are opened; those that are found by their path alone may be links by then.
    files: Tree,
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
        matcher: &Regex,
        context: usize,
        file: &Path,
        below: &Path,
    ) -> Result<(), Failure> {
        let first = self.found.hits;
        let opened = self.files.open(file, read::READ).map_err(Failure::from).and_then(read::regular);
        let mut lines = Lines {
            page: self,
            matcher,
            context,
            first,
            below,
            number: 0,
            matched: 0,
            before: VecDeque::new(),
            after: 0,
            hits: Vec::new(),
        };
        let looked = opened.and_then(|file| lines.look(file));
        let (matched, hits) = (lines.matched, lines.hits);
        match looked {
            Ok(Content::Text) => {}
            Ok(Content::Binary) => {
                self.found.binary += 1;
                return Ok(());
            }
            Err(Failure::Left) => return Err(Failure::Left),
            Err(Failure::Fault(_)) => {
                self.found.unreadable += 1;
                return Ok(());
            }
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

/// What a file turned out to be.
#[derive(Debug, PartialEq, Eq)]
enum Content {
    Text,
    /// It has a zero byte somewhere.
    Binary,
}

/// The lines of one file. They are reported when the file is done, because only then is it known to be text.
struct Lines<'a, 'b> {
    page: &'a Page<'b>,
    matcher: &'a Regex,
    context: usize,
    /// The number of the first hit in this file.
    first: u64,
    below: &'a Path,
    number: u64,
    matched: u64,
    /// The last lines that were not reported, in case the next one matches.
    before: VecDeque<(u64, Vec<u8>)>,
    /// How many lines after a hit are still to be reported.
    after: usize,
    hits: Vec<Hit>,
}

impl Lines<'_, '_> {
    fn look(&mut self, mut file: File) -> Result<Content, Failure> {
        let mut pending = Vec::new();
        let mut buffer = vec![0; limit::CHUNK];
        loop {
            let count = match file.read(&mut buffer) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                read => read?,
            };
            self.page.out.still_wanted()?;
            let chunk = buffer.split_at(count).0;
            if memchr::memchr(0, chunk).is_some() {
                return Ok(Content::Binary);
            }
            pending.extend_from_slice(chunk);
            let complete = match memchr::memrchr(b'\n', &pending) {
                _ if count == 0 => pending.len(),
                Some(end) => end + 1,
                None if pending.len() >= LONGEST_LINE => pending.len(),
                None => 0,
            };
            let rest = pending.split_off(complete);
            self.block(&pending);
            pending = rest;
            if count == 0 {
                return Ok(Content::Text);
            }
        }
    }

    /// Looks at complete lines. Most blocks have no hit, and that is found out for all their lines at once.
    fn block(&mut self, block: &[u8]) {
        let needed = self.context > 0 || self.matcher.is_match(block);
        if !needed {
            self.number += memchr::memchr_iter(b'\n', block).count() as u64;
            return;
        }
        for line in block.split_inclusive(|byte| *byte == b'\n') {
            self.number += 1;
            self.line(line.strip_suffix(b"\n").unwrap_or(line));
        }
    }

    fn line(&mut self, line: &[u8]) {
        if self.matcher.is_match(line) {
            let shown = self.wants_lines() && self.page.shows(self.first + self.matched);
            self.matched += 1;
            let before = std::mem::take(&mut self.before);
            self.after = 0;
            if shown {
                self.after = self.context;
                before.into_iter().for_each(|(number, text)| self.report(number, &text, Role::Context));
                self.report(self.number, line, Role::Match);
            }
        } else if self.after > 0 {
            self.after -= 1;
            self.report(self.number, line, Role::Context);
        } else if self.context > 0 {
            if self.before.len() == self.context {
                self.before.pop_front();
            }
            self.before.push_back((self.number, cut(line)));
        }
    }

    fn report(&mut self, number: u64, line: &[u8], role: Role) {
        let path = ByteBuf::from(self.below.as_os_str().as_bytes());
        self.hits.push(Hit::Line { path, number, text: ByteBuf::from(cut(line)), role });
    }

    fn wants_lines(&self) -> bool {
        matches!(self.page.search.target, Target::Lines { .. })
    }
}

fn cut(line: &[u8]) -> Vec<u8> {
    line.iter().take(limit::LINE).copied().collect()
}
