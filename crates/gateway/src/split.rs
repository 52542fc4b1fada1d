//! Splits a Markdown text into messages of the length that a platform accepts.
//!
//! The scanner in `map` is our own instead of `pulldown-cmark`, because chat platforms do not follow
//! CommonMark: a fence opens a code block at any indentation and inside of lists, indented text is
//! not code, and a bare URL is a link. A streamed reply is also incomplete, and what matters here is
//! which cuts keep each part readable on its own.

mod map;

use std::ops::Range;

use crate::channel::Capabilities;
pub(crate) use map::code_spans;
use map::{CodeFence, CutMap, CutPoint, CutQuality};

/// Most digits of a part number.
const MAX_NUMBER_DIGITS: u32 = 6;

/// Splits a text into messages of at most the platform's length. Several are numbered, ` (1/2)`,
/// unless the limit is so short that numbers would take much of it.
///
/// Cuts are made at the end of a paragraph or line in the second half of a message, else before a
/// word. Code blocks are closed and reopened; inline code, links and grapheme clusters stay whole
/// where they fit. Only whitespace at a cut is dropped. A blank text gives no message.
pub fn split_message(text: &str, capabilities: &Capabilities) -> Vec<String> {
    // The smallest possible piece is one character.
    let max_len = capabilities.max_message_len.max(2);
    let text = trim_blank_ends(text);
    if text.is_empty() {
        return Vec::new();
    }
    if message_len(text) <= max_len {
        return vec![text.to_owned()];
    }
    for digits in 1..=MAX_NUMBER_DIGITS {
        let number = " (/)".len() + 2 * digits as usize;
        if max_len < number * 4 {
            break;
        }
        let parts = MessageSplitter::new(text, max_len - number).parts();
        let count = parts.len();
        if count == 1 {
            return parts;
        }
        if count < 10_usize.pow(digits) {
            return parts.into_iter().zip(1..).map(|(part, n)| with_part_number(part, n, count)).collect();
        }
    }
    MessageSplitter::new(text, max_len).parts()
}

/// The length of a text as platforms limit it, in UTF-16 units.
pub(crate) fn message_len(text: &str) -> usize {
    text.encode_utf16().count()
}

/// Splits a partial text; an open code block is closed so that each message renders.
pub(crate) fn split_draft(text: &str, capabilities: &Capabilities) -> Vec<String> {
    let text = trim_blank_ends(text);
    let map = CutMap::new(text, capabilities.max_message_len);
    let open = map.cuts.last().and_then(|cut| cut.fence).and_then(|at| map.fences.get(at));
    match open {
        Some(fence) => split_message(&format!("{text}{}", fence.closing()), capabilities),
        None => split_message(text, capabilities),
    }
}

/// A closing fence must be alone on its line.
fn with_part_number(part: String, n: usize, count: usize) -> String {
    let last = part.lines().next_back().unwrap_or_default().trim_start();
    let between = if last.starts_with("```") || last.starts_with("~~~") { '\n' } else { ' ' };
    format!("{part}{between}({n}/{count})")
}

/// Trims trailing whitespace and leading blank lines.
fn trim_blank_ends(text: &str) -> &str {
    let text = text.trim_end();
    let blank = text.len() - text.trim_start().len();
    let lines = text.get(..blank).and_then(|blank| blank.rfind('\n')).map_or(0, |at| at + 1);
    text.get(lines..).unwrap_or(text)
}

/// The part of the text that one message gets.
#[derive(Debug, PartialEq, Eq)]
struct MessageSlice {
    /// Fence reopened at the start.
    opens: Option<usize>,
    body: Range<usize>,
    /// Fence closed at the end.
    closes: Option<usize>,
}

struct MessageSplitter<'a> {
    text: &'a str,
    max_len: usize,
    map: CutMap,
}

impl<'a> MessageSplitter<'a> {
    fn new(text: &'a str, max_len: usize) -> Self {
        Self { text, max_len, map: CutMap::new(text, max_len) }
    }

    fn parts(&self) -> Vec<String> {
        let part = |piece: MessageSlice| {
            let opening = self.fence(piece.opens).map(CodeFence::opening);
            let closing = self.fence(piece.closes).map(CodeFence::closing);
            let body = self.text.get(piece.body).unwrap_or_default();
            [opening.as_deref().unwrap_or_default(), body, closing.as_deref().unwrap_or_default()].concat()
        };
        self.slices().into_iter().map(part).collect()
    }

    fn slices(&self) -> Vec<MessageSlice> {
        let mut pieces = Vec::new();
        let (mut at, mut opens) = (self.skip_deep_indent(0), None);
        while let Some(cut) = self.next_cut(at, opens) {
            let end = match cut.fence {
                Some(_) => cut.at,
                None => at + self.between(at, cut.at).trim_end().len(),
            };
            pieces.push(MessageSlice { opens, body: at..end, closes: cut.fence });
            at = self.resume_at(cut);
            opens = cut.fence;
        }
        let closes = self.map.cuts.last().and_then(|cut| cut.fence);
        pieces.push(MessageSlice { opens, body: at..self.text.len(), closes });
        pieces
    }

    /// Where to end the message that starts at `at`; `None` if the rest fits.
    fn next_cut(&self, at: usize, opens: Option<usize>) -> Option<CutPoint> {
        let marks = self.map.cuts.get(self.map.cuts.partition_point(|cut| cut.at <= at)..)?;
        let (first, last) = (marks.first()?, marks.last()?);
        let base = first.units - message_len(self.between(at, first.at));
        let max_len = self.max_len.saturating_sub(self.opening_len(opens));
        let fits = |cut: &CutPoint| cut.units - base + self.closing_len(cut.fence) <= max_len;
        if fits(last) {
            return None;
        }
        let blank = self.text.len() - at - self.between(at, self.text.len()).trim_start().len();
        let rank = |cut: &CutPoint| match (cut.quality, (cut.units - base) * 2 >= max_len) {
            (CutQuality::Inside, _) => (0, CutQuality::Inside),
            // Less than half a message: prefer the longest.
            (_, false) => (1, CutQuality::Character),
            (place, true) => (2, place),
        };
        let best = marks
            .iter()
            .take_while(|cut| cut.units - base <= max_len)
            .filter(|cut| fits(cut) && (cut.fence.is_some() || cut.at > at + blank))
            .max_by_key(|cut| rank(cut));
        best.copied().or_else(|| self.hard_cut(at, max_len, *first))
    }

    /// Cuts inside a grapheme cluster that does not fit.
    fn hard_cut(&self, at: usize, max_len: usize, first: CutPoint) -> Option<CutPoint> {
        let max_len = max_len.saturating_sub(self.closing_len(first.fence));
        let mut units = 0;
        let mut end = at;
        for char in self.between(at, self.text.len()).chars() {
            units += char.len_utf16();
            if units > max_len && end > at {
                break;
            }
            end += char.len_utf8();
        }
        Some(CutPoint { at: end, ..first })
    }

    fn resume_at(&self, cut: CutPoint) -> usize {
        let rest = self.between(cut.at, self.text.len());
        if cut.fence.is_some() {
            let after = rest.strip_prefix('\r').unwrap_or(rest).strip_prefix('\n').unwrap_or(rest);
            return self.text.len() - after.len();
        }
        let blank = rest.len() - rest.trim_start().len();
        match rest.get(..blank).and_then(|blank| blank.rfind('\n')) {
            Some(line) => self.skip_deep_indent(cut.at + line + 1),
            None => cut.at + blank,
        }
    }

    /// The start of the line, or of its text if the indentation takes half the message.
    fn skip_deep_indent(&self, line: usize) -> usize {
        let rest = self.between(line, self.text.len());
        let words = rest.trim_start();
        let indent = message_len(self.between(line, self.text.len() - words.len()));
        if indent * 2 >= self.max_len { self.text.len() - words.len() } else { line }
    }

    fn fence(&self, number: Option<usize>) -> Option<&CodeFence> {
        self.map.fences.get(number?)
    }

    fn opening_len(&self, fence: Option<usize>) -> usize {
        self.fence(fence).map_or(0, CodeFence::opening_len)
    }

    fn closing_len(&self, fence: Option<usize>) -> usize {
        self.fence(fence).map_or(0, CodeFence::closing_len)
    }

    fn between(&self, start: usize, end: usize) -> &'a str {
        self.text.get(start..end).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests;
