//! Searches files by content and by name.
//!
//! Walking, globs and the regular expressions are those of ripgrep. Its searcher is not used: it brings tables for
//! encodings that nobody asked for, a tenth of the size of the guest.

use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use globset::{Glob, GlobSet, GlobSetBuilder};
use hermes_guest::protocol::file::{FileFault, FileReply, Found, Hit, Role, Search, Target};
use hermes_guest::protocol::limit;
use regex_automata::meta::Regex;
use regex_automata::util::syntax;
use serde_bytes::ByteBuf;

use super::blocks::{Content, Follows, each_block};
use super::place::Spot;
use super::screen::{self, Candidate, Verdict};
use super::walk::Walk;
use super::{Failure, Out};

/// Hits in one message; each is cut to a few kilobytes.
const HITS: usize = 64;
/// Memory that one expression may take.
const REGEX_SIZE: usize = 8 * 1024 * 1024;
/// Files that are screened together.
const BATCH: usize = 256;

pub(super) fn search(spot: &Spot, search: &Search, out: &Out) -> Result<(), Failure> {
    let globs = globs(&search.globs)?;
    let (matcher, context) = match &search.target {
        Target::Lines { pattern, context } => (Some(Arc::new(matcher(pattern)?)), usize::from(*context)),
        Target::Files { pattern } => (Some(Arc::new(matcher(pattern)?)), 0),
        Target::Names => (None, 0),
    };
    let root = spot.real();
    let held = spot.hold()?;
    let kind = held.metadata()?.file_type();
    let (walk, only) = match kind.is_dir() {
        true => (Walk::below(held.into(), root, search.scope), None),
        false => (Walk::single(spot.dir().try_clone()?, spot.name()), Some(root)),
    };
    let mut page =
        Page { out, search, walk, only, buffer: Vec::new(), pending: Vec::new(), found: Found::default() };
    if matcher.is_some() && !kind.is_dir() && !kind.is_file() {
        page.found.unreadable += 1;
        return page.finish();
    }
    loop {
        let batch = page.batch(&globs)?;
        if batch.is_empty() {
            return page.finish();
        }
        match &matcher {
            None => batch.iter().try_for_each(|candidate| page.file(&candidate.path, 0))?,
            Some(matcher) => {
                let tree = page.walk.tree().try_clone()?;
                screen::visit(batch, &tree, matcher, out, |path, verdict| {
                    page.visit(path, verdict, matcher, context)
                })?;
            }
        }
    }
}

fn globs(patterns: &[String]) -> Result<GlobSet, FileFault> {
    let bad = |error: globset::Error| FileFault::BadPattern { message: error.to_string() };
    let mut set = GlobSetBuilder::new();
    for pattern in patterns {
        set.add(Glob::new(pattern).map_err(bad)?);
    }
    set.build().map_err(bad)
}

/// What lines are compared with.
#[derive(Debug)]
pub(super) struct Matcher {
    regex: Regex,
    /// Whether lines that are looked at together match if one of them does. Where the pattern asks for an end of the
    /// text they need not: each line is a text of its own.
    judges_blocks: bool,
}

impl Matcher {
    /// Whether one of these lines may match; none does if not.
    pub(super) fn may_match(&self, lines: &[u8]) -> bool {
        !self.judges_blocks || self.regex.is_match(lines)
    }
}

/// Lines are matched one by one, so `^` and `$` mean their ends; bytes that are no text match what is not text.
fn matcher(pattern: &str) -> Result<Matcher, FileFault> {
    let bad = |message| FileFault::BadPattern { message };
    let hir = syntax::parse_with(pattern, &syntax::Config::new().utf8(false).multi_line(true))
        .map_err(|error| bad(error.to_string()))?;
    let ends = hir.properties().look_set();
    let regex = Regex::builder()
        .configure(Regex::config().utf8_empty(false).nfa_size_limit(Some(REGEX_SIZE)))
        .build_from_hir(&hir)
        .map_err(|error| bad(error.to_string()))?;
    Ok(Matcher { regex, judges_blocks: !ends.contains_anchor_haystack() && !ends.contains_anchor_crlf() })
}

/// The hits that are reported, and the count of all.
struct Page<'a> {
    out: &'a Out,
    search: &'a Search,
    walk: Walk,
    /// The file, if there is but one: it has nothing below its root.
    only: Option<&'a Path>,
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

    /// The next files with one of the names that are wanted.
    fn batch(&mut self, globs: &GlobSet) -> Result<Vec<Candidate>, Failure> {
        let mut batch = Vec::new();
        while batch.len() < BATCH
            && let Some(next) = self.walk.next()
        {
            self.out.still_wanted()?;
            let Ok(path) = next else {
                self.found.unreadable += 1;
                continue;
            };
            let name = Path::new(path.file_name().unwrap_or_default());
            if globs.is_empty() || globs.is_match(self.only.unwrap_or(&path)) || globs.is_match(name) {
                batch.push(Candidate::new(path));
            }
        }
        Ok(batch)
    }

    fn file(&mut self, path: &Path, lines: u64) -> Result<(), Failure> {
        let path = self.only.unwrap_or(path);
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

    fn visit(
        &mut self,
        path: &Path,
        verdict: Verdict,
        matcher: &Matcher,
        context: usize,
    ) -> Result<(), Failure> {
        self.out.still_wanted()?;
        match verdict {
            Verdict::Open => self.look_into(matcher, context, path),
            Verdict::Nothing => Ok(()),
            Verdict::Binary => {
                self.found.binary += 1;
                Ok(())
            }
        }
    }

    fn look_into(&mut self, matcher: &Matcher, context: usize, path: &Path) -> Result<(), Failure> {
        let opened = self.walk.open(path);
        let mut buffer = std::mem::take(&mut self.buffer);
        let mut lines = Lines {
            page: self,
            matcher,
            context,
            first: self.found.hits,
            below: self.only.unwrap_or(path),
            number: 0,
            matched: 0,
            before: VecDeque::new(),
            after: 0,
            hits: Vec::new(),
        };
        let looked = opened.map_err(Failure::from).and_then(|opened| {
            each_block(opened, &mut buffer, lines.page.out, |block, follows| {
                lines.block(block, follows);
                ControlFlow::Continue(())
            })
        });
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
            Target::Files { .. } if matched > 0 => return self.file(path, matched),
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
    matcher: &'a Matcher,
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
    /// Looks at complete lines. Most blocks have no hit, and that is found out for all their lines at once; in one
    /// that has, the lines with hits are found by halving it. Lines are counted where one that has a number may follow.
    fn block(&mut self, block: &[u8], follows: Follows) {
        if self.context == 0 && !self.matcher.may_match(block) {
            if follows == Follows::Perhaps {
                self.number += memchr::memchr_iter(b'\n', block).count() as u64;
            }
            return;
        }
        match halve(block) {
            Some((first, second)) => {
                self.block(first, Follows::Perhaps);
                self.block(second, follows);
            }
            None if block.is_empty() => {}
            None => {
                self.number += 1;
                self.line(block.strip_suffix(b"\n").unwrap_or(block));
            }
        }
    }

    fn line(&mut self, line: &[u8]) {
        if self.matcher.regex.is_match(line) {
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

/// Parts lines near their middle; none if there is only one.
fn halve(lines: &[u8]) -> Option<(&[u8], &[u8])> {
    let but_last = lines.strip_suffix(b"\n").unwrap_or(lines);
    let (first, second) = but_last.split_at(but_last.len() / 2);
    let end = match memchr::memchr(b'\n', second) {
        Some(end) => first.len() + end,
        None => memchr::memrchr(b'\n', first)?,
    };
    Some(lines.split_at(end + 1))
}

fn cut(line: &[u8]) -> Vec<u8> {
    line.iter().take(limit::LINE).copied().collect()
}
