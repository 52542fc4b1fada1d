//! Where a text can be cut, and how good each place is.

use std::collections::HashMap;
use std::ops::Range;

use unicode_segmentation::UnicodeSegmentation;

use crate::channel::Unit;

/// Delimiters of code blocks that are indented further are text.
const DEEPEST: usize = 32;

/// How good a place for a cut is, the worst first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Place {
    /// In something that should stay whole.
    Inside,
    /// Between two characters.
    Between,
    /// Before a blank.
    Blank,
    /// At the end of a line of code.
    CodeLine,
    /// At the end of a line.
    Line,
    /// At the end of a paragraph or a code block.
    Paragraph,
}

/// A place between two characters.
#[derive(Debug, Clone, Copy)]
pub(super) struct Mark {
    /// Where, in bytes.
    pub(super) at: usize,
    /// The length of all before it.
    pub(super) units: usize,
    pub(super) place: Place,
    /// The code block that is open there.
    pub(super) fence: Option<usize>,
}

/// A code block, as far as it is needed to end it in one message and to go on in the next.
#[derive(Debug)]
pub(super) struct Fence {
    /// The delimiter.
    ticks: String,
    language: String,
    /// What its own delimiters take.
    own: usize,
    /// Whether there is room to close and open it.
    is_carried: bool,
}

impl Fence {
    /// What opens it again.
    pub(super) fn opening(&self) -> String {
        format!("{}{}\n", self.ticks, self.language)
    }

    pub(super) fn opening_length(&self, unit: Unit) -> usize {
        self.ticks.len() + unit.length(&self.language) + 1
    }

    /// What closes it.
    pub(super) fn closing(&self) -> String {
        format!("\n{}", self.ticks)
    }

    pub(super) fn closing_length(&self) -> usize {
        self.ticks.len() + 1
    }
}

/// A line, without what ends it.
#[derive(Debug, Clone, Copy)]
struct Line {
    start: usize,
    end: usize,
    kind: Kind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Empty,
    Prose,
    Opens(usize),
    Code(usize),
    /// What stands behind the delimiter belongs to the block no more.
    Closes {
        fence: usize,
        end: usize,
    },
}

/// The places of a text for a room of so many units.
#[derive(Debug)]
pub(super) struct Map {
    pub(super) marks: Vec<Mark>,
    pub(super) fences: Vec<Fence>,
}

impl Map {
    pub(super) fn new(text: &str, room: usize, unit: Unit) -> Self {
        let (lines, mut fences) = lines(text);
        for fence in &mut fences {
            let taken = fence.own + fence.opening_length(unit) + fence.closing_length();
            fence.is_carried = taken * 2 <= room;
        }
        let spans = spans(text, &lines);
        let mut map = Self { marks: Vec::new(), fences };
        map.mark(text, unit, &lines, &spans);
        map
    }

    fn mark(&mut self, text: &str, unit: Unit, lines: &[Line], spans: &[Range<usize>]) {
        let mut lines = lines.iter().peekable();
        let mut line = lines.next().copied();
        let mut spans = spans.iter().peekable();
        let mut units = 0;
        for (start, grapheme) in text.grapheme_indices(true) {
            units += unit.length(grapheme);
            let at = start + grapheme.len();
            while let Some(next) = lines.next_if(|next| next.start <= at) {
                line = Some(*next);
            }
            while spans.next_if(|span| span.end <= at).is_some() {}
            let Some(line) = line else { break };
            let edge = Edge {
                at,
                before: grapheme,
                rest: text.get(at..).unwrap_or_default(),
                is_in_span: spans.peek().is_some_and(|span| span.start < at),
            };
            let (place, fence) = self.judge(edge, line, lines.peek().map(|next| next.kind));
            self.marks.push(Mark { at, units, place, fence });
        }
    }

    fn judge(&self, edge: Edge<'_>, line: Line, next: Option<Kind>) -> (Place, Option<usize>) {
        let carried =
            |fence: usize| Some(fence).filter(|at| self.fences.get(*at).is_some_and(|it| it.is_carried));
        let is_line_end = edge.at == line.end;
        match line.kind {
            Kind::Opens(fence) if is_line_end => (Place::Inside, carried(fence)),
            Kind::Opens(_) => (Place::Inside, None),
            Kind::Closes { fence, end } if edge.at < end => (Place::Inside, carried(fence)),
            Kind::Code(fence) => match carried(fence) {
                // What follows would begin with a block that has nothing in it.
                Some(_) if is_line_end && matches!(next, Some(Kind::Closes { .. })) => {
                    (Place::Inside, Some(fence))
                }
                Some(_) if is_line_end => (Place::CodeLine, Some(fence)),
                Some(_) => (edge.place(), Some(fence)),
                None if is_line_end => (Place::Line, None),
                None => (edge.place(), None),
            },
            Kind::Prose | Kind::Empty | Kind::Closes { .. } if edge.is_in_span => (Place::Inside, None),
            Kind::Prose | Kind::Empty | Kind::Closes { .. } if is_line_end => match next {
                Some(Kind::Prose) if line.kind == Kind::Prose => (Place::Line, None),
                _ => (Place::Paragraph, None),
            },
            Kind::Prose | Kind::Empty | Kind::Closes { .. } => (edge.place(), None),
        }
    }
}

/// What is around a place.
#[derive(Debug, Clone, Copy)]
struct Edge<'a> {
    at: usize,
    before: &'a str,
    rest: &'a str,
    is_in_span: bool,
}

impl Edge<'_> {
    /// How good a place in the middle of a line is.
    fn place(self) -> Place {
        let is_within_ticks = self.before.ends_with(['`', '~']) && self.rest.starts_with(self.before);
        if self.before.ends_with(char::is_whitespace) || is_within_ticks {
            return Place::Inside;
        }
        let is_blank = self.rest.starts_with(is_blank);
        let next = if is_blank { self.rest.trim_start_matches([' ', '\t']) } else { self.rest };
        match is_blank {
            // It would open or close a block at the beginning of a message.
            _ if next.starts_with("```") || next.starts_with("~~~") => Place::Inside,
            true => Place::Blank,
            false => Place::Between,
        }
    }
}

/// Whether words may be parted there.
fn is_blank(char: char) -> bool {
    char.is_whitespace() && !matches!(char, '\u{a0}' | '\u{2007}' | '\u{202f}')
}

impl Unit {
    /// The length of a text.
    pub(crate) fn length(self, text: &str) -> usize {
        match self {
            Self::Chars => text.chars().count(),
            Self::Utf16 => text.encode_utf16().count(),
        }
    }
}

fn lines(text: &str) -> (Vec<Line>, Vec<Fence>) {
    let (mut lines, mut fences) = (Vec::new(), Vec::<Fence>::new());
    let mut open = false;
    let mut start = 0;
    for whole in text.split_inclusive('\n') {
        let line = whole.strip_suffix('\n').unwrap_or(whole);
        let line = line.strip_suffix('\r').unwrap_or(line);
        let end = start + line.len();
        let at = fences.len().saturating_sub(1);
        let kind = match (fences.last_mut().filter(|_| open), opening(line)) {
            (Some(fence), _) => match closing(line, &fence.ticks) {
                Some(length) => {
                    open = false;
                    fence.own += length;
                    Kind::Closes { fence: at, end: start + length }
                }
                None => Kind::Code(at),
            },
            (None, Some(fence)) => {
                open = true;
                fences.push(fence);
                Kind::Opens(fences.len() - 1)
            }
            (None, None) if line.trim().is_empty() => Kind::Empty,
            (None, None) => Kind::Prose,
        };
        lines.push(Line { start, end, kind });
        start += whole.len();
    }
    (lines, fences)
}

/// The block that a line opens.
fn opening(line: &str) -> Option<Fence> {
    let (ticks, info) = delimiter(line)?;
    if ticks.starts_with('`') && info.contains('`') {
        return None;
    }
    let language = info.split_whitespace().next().unwrap_or_default().to_owned();
    Some(Fence { ticks: ticks.to_owned(), language, own: line.len(), is_carried: false })
}

/// The length of what closes a block, if a line does.
fn closing(line: &str, open: &str) -> Option<usize> {
    let (ticks, rest) = delimiter(line)?;
    let closes = ticks.starts_with(open) && rest.trim().is_empty();
    closes.then(|| line.len() - rest.len())
}

/// A delimiter at the beginning of a line, and what follows it.
fn delimiter(line: &str) -> Option<(&str, &str)> {
    let text = line.trim_start_matches([' ', '\t']);
    let tick = text.chars().next().filter(|char| matches!(char, '`' | '~'))?;
    let rest = text.trim_start_matches(tick);
    let ticks = text.strip_suffix(rest)?;
    (ticks.len() >= 3 && line.len() - text.len() <= DEEPEST).then_some((ticks, rest))
}

/// What should not be cut outside of code blocks: code in a line, links and addresses, in their order.
fn spans(text: &str, lines: &[Line]) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    for (start, paragraph) in paragraphs(text, lines) {
        let mut spans = code(paragraph);
        spans.extend(links(paragraph));
        spans.extend(addresses(paragraph));
        spans.sort_by_key(|span| (span.start, span.end));
        found.extend(spans.into_iter().map(|span| span.start + start..span.end + start));
    }
    merged(found)
}

/// Where a text is code: in blocks, and in lines.
pub(super) fn all_code(text: &str) -> Vec<Range<usize>> {
    let (lines, _) = lines(text);
    let is_block = |line: &&Line| matches!(line.kind, Kind::Opens(_) | Kind::Code(_) | Kind::Closes { .. });
    let mut found: Vec<_> = lines.iter().filter(is_block).map(|line| line.start..line.end).collect();
    for (start, paragraph) in paragraphs(text, &lines) {
        found.extend(code(paragraph).into_iter().map(|span| span.start + start..span.end + start));
    }
    found
}

/// The paragraphs outside of code blocks, and where they begin.
fn paragraphs<'a>(text: &'a str, lines: &[Line]) -> Vec<(usize, &'a str)> {
    let mut found = Vec::new();
    let mut lines = lines.iter().filter(|line| matches!(line.kind, Kind::Prose | Kind::Empty)).peekable();
    while let Some(first) = lines.next() {
        if first.kind == Kind::Empty {
            continue;
        }
        let mut last = first;
        while let Some(line) = lines.next_if(|line| line.kind == Kind::Prose && line.start <= last.end + 2) {
            last = line;
        }
        found.extend(text.get(first.start..last.end).map(|paragraph| (first.start, paragraph)));
    }
    found
}

fn merged(spans: Vec<Range<usize>>) -> Vec<Range<usize>> {
    let mut merged: Vec<Range<usize>> = Vec::with_capacity(spans.len());
    for span in spans {
        match merged.last_mut() {
            Some(last) if span.start < last.end => last.end = last.end.max(span.end),
            _ => merged.push(span),
        }
    }
    merged
}

/// Code between two runs of as many backticks.
fn code(paragraph: &str) -> Vec<Range<usize>> {
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

/// `[words](target)`.
fn links(paragraph: &str) -> Vec<Range<usize>> {
    let mut spans = Vec::new();
    let mut brackets = Vec::new();
    // Where the link began whose target is being read, and how many parentheses are open in it.
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

/// Addresses that stand there as they are.
fn addresses(paragraph: &str) -> Vec<Range<usize>> {
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
