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
use hermes_guest::protocol::file::{FileFault, FileReply, Found, Hit, Role, Search, Target};
use hermes_guest::protocol::limit;
use regex_automata::meta::Regex;
use regex_automata::util::syntax;
use serde_bytes::ByteBuf;

use super::place::Spot;
use super::walk::Walk;
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
    let is_dir = held.metadata()?.is_dir();
    let walk = match is_dir {
        true => Walk::below(held.into(), root, search.scope),
        false => Walk::single(spot.dir().try_clone()?, spot.name()),
    };
    let mut page =
        Page { out, search, walk, buffer: Vec::new(), pending: Vec::new(), found: Found::default() };
    while let Some(next) = page.walk.next() {
        out.still_wanted()?;
        let Ok(file) = next else {
            page.found.unreadable += 1;
            continue;
        };
        // A search in a single file has nothing below its root.
        let shown = if is_dir { &file } else { root };
        let name = file.file_name().unwrap_or_default();
        if !globs.is_empty() && !globs.is_match(shown) && !globs.is_match(Path::new(name)) {
            continue;
        }
        match &matcher {
            None => page.file(shown, 0)?,
            Some(matcher) => page.look_into(matcher, context, &file, shown)?,
        }
    }
    page.finish()
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
    walk: Walk,
    /// What files are read into.
    buffer: Vec<u8>,
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
        let mut buffer = std::mem::take(&mut self.buffer);
        let opened = self.walk.open(file, read::READ).map_err(Failure::from).and_then(read::regular);
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
        let looked = opened.and_then(|(file, found)| lines.look(file, found.len(), &mut buffer));
        let (matched, hits) = (lines.matched, lines.hits);
        self.buffer = buffer;
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
    /// Reads a file through a buffer that the files share: what is incomplete at its end moves to its front. What is
    /// added meanwhile is not looked at; some files of the system do not know their size and say 0.
    fn look(&mut self, mut file: File, size: u64, buffer: &mut Vec<u8>) -> Result<Content, Failure> {
        let (mut kept, mut total) = (0, 0);
        loop {
            if kept == buffer.len() {
                let mut larger = vec![0; (2 * kept).max(limit::CHUNK)];
                larger.split_at_mut(kept).0.copy_from_slice(buffer);
                *buffer = larger;
            }
            let count = match file.read(buffer.split_at_mut(kept).1) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                read => read?,
            };
            total += count as u64;
            let is_end = count == 0 || total == size;
            self.page.out.still_wanted()?;
            let (old, new) = buffer.split_at(kept + count).0.split_at(kept);
            if memchr::memchr(0, new).is_some() {
                return Ok(Content::Binary);
            }
            let complete = match memchr::memrchr(b'\n', new) {
                _ if is_end => kept + count,
                Some(end) => old.len() + end + 1,
                None if kept + count >= LONGEST_LINE => kept + count,
                None => 0,
            };
            self.block(buffer.split_at(complete).0);
            if is_end {
                return Ok(Content::Text);
            }
            buffer.copy_within(complete..kept + count, 0);
            kept = kept + count - complete;
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
