//! Finds where a text can be cut, and rates the cuts.

use std::collections::HashMap;
use std::ops::Range;

use unicode_segmentation::UnicodeSegmentation;

use super::message_len;

/// Fences indented further are text.
const MAX_FENCE_INDENT: usize = 32;

/// Quality of a cut, worst first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum CutQuality {
    Inside,
    Character,
    Blank,
    CodeLine,
    Line,
    Paragraph,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct CutPoint {
    pub(super) at: usize,
    /// Length of the text before it.
    pub(super) units: usize,
    pub(super) quality: CutQuality,
    pub(super) fence: Option<usize>,
}

/// A code block, with what is needed to close and reopen it.
pub(super) struct CodeFence {
    ticks: String,
    language: String,
    /// Length of its own fences.
    own_len: usize,
    /// Whether closing and reopening it fits.
    is_carried: bool,
}

impl CodeFence {
    pub(super) fn opening(&self) -> String {
        format!("{}{}\n", self.ticks, self.language)
    }

    pub(super) fn opening_len(&self) -> usize {
        self.ticks.len() + message_len(&self.language) + 1
    }

    pub(super) fn closing(&self) -> String {
        format!("\n{}", self.ticks)
    }

    pub(super) fn closing_len(&self) -> usize {
        self.ticks.len() + 1
    }
}

/// A line without its line ending.
#[derive(Debug, Clone, Copy)]
struct SourceLine {
    start: usize,
    end: usize,
    kind: LineKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LineKind {
    Empty,
    Prose,
    Opens(usize),
    Code(usize),
    /// Text after the fence is outside of the block.
    Closes {
        fence: usize,
        end: usize,
    },
}

/// All possible cuts of a text.
pub(super) struct CutMap {
    pub(super) cuts: Vec<CutPoint>,
    pub(super) fences: Vec<CodeFence>,
}

impl CutMap {
    pub(super) fn new(text: &str, max_len: usize) -> Self {
        let (lines, mut fences) = parse_lines(text);
        for fence in &mut fences {
            let fence_len = fence.own_len + fence.opening_len() + fence.closing_len();
            fence.is_carried = fence_len * 2 <= max_len;
        }
        let spans = unbreakable_spans(text, &lines);
        let mut map = Self { cuts: Vec::new(), fences };
        map.find_cuts(text, &lines, &spans);
        map
    }

    fn find_cuts(&mut self, text: &str, lines: &[SourceLine], spans: &[Range<usize>]) {
        let mut lines = lines.iter().peekable();
        let mut line = lines.next().copied();
        let mut spans = spans.iter().peekable();
        let mut units = 0;
        for (start, grapheme) in text.grapheme_indices(true) {
            units += message_len(grapheme);
            let at = start + grapheme.len();
            while let Some(next) = lines.next_if(|next| next.start <= at) {
                line = Some(*next);
            }
            while spans.next_if(|span| span.end <= at).is_some() {}
            let Some(line) = line else { break };
            let (quality, fence) = match spans.peek() {
                Some(span) if span.start < at => (CutQuality::Inside, None),
                _ => {
                    let inner = inner_quality(grapheme, text.get(at..).unwrap_or_default());
                    self.rate_cut(at, inner, line, lines.peek().map(|next| next.kind))
                }
            };
            self.cuts.push(CutPoint { at, units, quality, fence });
        }
    }

    fn rate_cut(
        &self,
        at: usize,
        inner: CutQuality,
        line: SourceLine,
        next: Option<LineKind>,
    ) -> (CutQuality, Option<usize>) {
        let carried =
            |fence: usize| Some(fence).filter(|at| self.fences.get(*at).is_some_and(|it| it.is_carried));
        let is_line_end = at == line.end;
        match line.kind {
            LineKind::Opens(fence) if is_line_end => (CutQuality::Inside, carried(fence)),
            LineKind::Opens(_) => (CutQuality::Inside, None),
            LineKind::Closes { fence, end } if at < end => (CutQuality::Inside, carried(fence)),
            LineKind::Code(fence) => match carried(fence) {
                // The next message would start with an empty block.
                Some(_) if is_line_end && matches!(next, Some(LineKind::Closes { .. })) => {
                    (CutQuality::Inside, Some(fence))
                }
                Some(_) if is_line_end => (CutQuality::CodeLine, Some(fence)),
                Some(_) => (inner, Some(fence)),
                None if is_line_end => (CutQuality::Line, None),
                None => (inner, None),
            },
            LineKind::Prose | LineKind::Empty | LineKind::Closes { .. } if is_line_end => match next {
                Some(LineKind::Prose) if line.kind == LineKind::Prose => (CutQuality::Line, None),
                _ => (CutQuality::Paragraph, None),
            },
            LineKind::Prose | LineKind::Empty | LineKind::Closes { .. } => (inner, None),
        }
    }
}

/// Quality of a cut within a line, after the grapheme `before`.
fn inner_quality(before: &str, rest: &str) -> CutQuality {
    let is_within_ticks = before.ends_with(['`', '~']) && rest.starts_with(before);
    if before.ends_with(char::is_whitespace) || is_within_ticks {
        return CutQuality::Inside;
    }
    let is_blank = rest.starts_with(is_blank);
    let next = if is_blank { rest.trim_start_matches([' ', '\t']) } else { rest };
    match is_blank {
        // Would open or close a block at the start of a message.
        _ if next.starts_with("```") || next.starts_with("~~~") => CutQuality::Inside,
        true => CutQuality::Blank,
        false => CutQuality::Character,
    }
}

fn is_blank(char: char) -> bool {
    char.is_whitespace() && !matches!(char, '\u{a0}' | '\u{2007}' | '\u{202f}')
}

fn parse_lines(text: &str) -> (Vec<SourceLine>, Vec<CodeFence>) {
    let (mut lines, mut fences) = (Vec::new(), Vec::<CodeFence>::new());
    let mut open = false;
    let mut start = 0;
    for whole in text.split_inclusive('\n') {
        let line = whole.strip_suffix('\n').unwrap_or(whole);
        let line = line.strip_suffix('\r').unwrap_or(line);
        let end = start + line.len();
        let at = fences.len().saturating_sub(1);
        let kind = match (fences.last_mut().filter(|_| open), opening_fence(line)) {
            (Some(fence), _) => match closing_fence_len(line, &fence.ticks) {
                Some(length) => {
                    open = false;
                    fence.own_len += length;
                    LineKind::Closes { fence: at, end: start + length }
                }
                None => LineKind::Code(at),
            },
            (None, Some(fence)) => {
                open = true;
                fences.push(fence);
                LineKind::Opens(fences.len() - 1)
            }
            (None, None) if line.trim().is_empty() => LineKind::Empty,
            (None, None) => LineKind::Prose,
        };
        lines.push(SourceLine { start, end, kind });
        start += whole.len();
    }
    (lines, fences)
}

fn opening_fence(line: &str) -> Option<CodeFence> {
    let (ticks, info) = delimiter(line)?;
    if ticks.starts_with('`') && info.contains('`') {
        return None;
    }
    let language = info.split_whitespace().next().unwrap_or_default().to_owned();
    Some(CodeFence { ticks: ticks.to_owned(), language, own_len: line.len(), is_carried: false })
}

/// The length of a closing fence.
fn closing_fence_len(line: &str, open: &str) -> Option<usize> {
    let (ticks, rest) = delimiter(line)?;
    let closes = ticks.starts_with(open) && rest.trim().is_empty();
    closes.then(|| line.len() - rest.len())
}

/// The fence at the start of a line, and the rest.
fn delimiter(line: &str) -> Option<(&str, &str)> {
    let text = line.trim_start_matches([' ', '\t']);
    let tick = text.chars().next().filter(|char| matches!(char, '`' | '~'))?;
    let rest = text.trim_start_matches(tick);
    let ticks = text.strip_suffix(rest)?;
    (ticks.len() >= 3 && line.len() - text.len() <= MAX_FENCE_INDENT).then_some((ticks, rest))
}

/// Spans outside code blocks that should stay whole: inline code, links and URLs, in order.
fn unbreakable_spans(text: &str, lines: &[SourceLine]) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    for (start, paragraph) in paragraphs(text, lines) {
        let mut spans = inline_code_spans(paragraph);
        spans.extend(link_spans(paragraph));
        spans.extend(url_spans(paragraph));
        spans.sort_by_key(|span| (span.start, span.end));
        found.extend(spans.into_iter().map(|span| span.start + start..span.end + start));
    }
    merge_spans(found)
}

/// Where a text is code: blocks and inline code.
pub(crate) fn code_spans(text: &str) -> Vec<Range<usize>> {
    let (lines, _) = parse_lines(text);
    let is_block = |line: &&SourceLine| {
        matches!(line.kind, LineKind::Opens(_) | LineKind::Code(_) | LineKind::Closes { .. })
    };
    let mut found: Vec<_> = lines.iter().filter(is_block).map(|line| line.start..line.end).collect();
    for (start, paragraph) in paragraphs(text, &lines) {
        found.extend(
            inline_code_spans(paragraph).into_iter().map(|span| span.start + start..span.end + start),
        );
    }
    found
}

fn paragraphs<'a>(text: &'a str, lines: &[SourceLine]) -> Vec<(usize, &'a str)> {
    let mut found = Vec::new();
    let mut lines =
        lines.iter().filter(|line| matches!(line.kind, LineKind::Prose | LineKind::Empty)).peekable();
    while let Some(first) = lines.next() {
        if first.kind == LineKind::Empty {
            continue;
        }
        let mut last = first;
        while let Some(line) =
            lines.next_if(|line| line.kind == LineKind::Prose && line.start <= last.end + 2)
        {
            last = line;
        }
        found.extend(text.get(first.start..last.end).map(|paragraph| (first.start, paragraph)));
    }
    found
}

fn merge_spans(spans: Vec<Range<usize>>) -> Vec<Range<usize>> {
    let mut merged: Vec<Range<usize>> = Vec::with_capacity(spans.len());
    for span in spans {
        match merged.last_mut() {
            Some(last) if span.start < last.end => last.end = last.end.max(span.end),
            _ => merged.push(span),
        }
    }
    merged
}

/// Inline code: between two backtick runs of equal length.
fn inline_code_spans(paragraph: &str) -> Vec<Range<usize>> {
    let mut runs: Vec<Range<usize>> = Vec::new();
    for (at, _) in paragraph.match_indices('`') {
        match runs.last_mut() {
            Some(run) if run.end == at => run.end = at + 1,
            _ => runs.push(at..at + 1),
        }
    }
    let mut later: HashMap<usize, usize> = HashMap::new();
    let mut partner: Vec<Option<usize>> =
        runs.iter().enumerate().rev().map(|(n, run)| later.insert(run.len(), n)).collect();
    partner.reverse();
    let mut spans = Vec::new();
    let mut from = 0;
    for (n, (run, partner)) in runs.iter().zip(partner).enumerate() {
        if let Some((end, last)) = partner.and_then(|end| Some((end, runs.get(end)?)))
            && n >= from
        {
            spans.push(run.start..last.end);
            from = end + 1;
        }
    }
    spans
}

fn link_spans(paragraph: &str) -> Vec<Range<usize>> {
    let mut spans = Vec::new();
    let mut brackets = Vec::new();
    // Start of the link whose target is being read, and open parentheses in it.
    let mut target: Option<(usize, usize)> = None;
    let mut before = None;
    for (at, char) in paragraph.char_indices() {
        match (char, &mut target) {
            ('(', Some((_, depth))) => *depth += 1,
            (')', Some((start, 1))) => {
                spans.push(*start..at + 1);
                target = None;
            }
            (')', Some((_, depth))) => *depth -= 1,
            ('\n', _) => {
                brackets.clear();
                target = None;
            }
            (_, Some(_)) => {}
            ('[', None) => brackets.push(at),
            (']', None) => before = brackets.pop().map(|start| (start, at + 1)),
            ('(', None) => {
                target = before.filter(|(_, end)| *end == at).map(|(start, _)| (start, 1));
            }
            _ => {}
        }
    }
    spans
}

fn url_spans(paragraph: &str) -> Vec<Range<usize>> {
    let mut spans: Vec<Range<usize>> = Vec::new();
    for (colon, _) in paragraph.match_indices("://") {
        let Some((before, after)) = paragraph.split_at_checked(colon) else { continue };
        let scheme = before.len() - before.trim_end_matches(|char: char| char.is_ascii_alphanumeric()).len();
        let start = colon - scheme;
        if scheme > 0 && spans.last().is_none_or(|span| span.end <= start) {
            let end = after.find(|char: char| char.is_whitespace() || matches!(char, '<' | '>'));
            spans.push(start..colon + end.unwrap_or(after.len()));
        }
    }
    spans
}
