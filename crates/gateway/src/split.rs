//! An answer as messages that a platform takes.

mod map;

use std::ops::Range;

use crate::channel::{Manners, Unit};
use map::{Map, Mark, Place};

/// Digits that the number of a message may have.
const MOST_DIGITS: u32 = 6;

/// Cuts a text into messages that are no longer than a platform takes. Several are numbered, ` (1/2)`, unless messages are so
/// short that this would take a good part of them.
///
/// A cut is at the end of a paragraph or a line if there is one in the second half of what a message can take, else
/// before a word. Code blocks are closed and opened again; code in a line, links and what is read as one character stay whole
/// where they fit into a message. Blanks at a cut are left out, and nothing else is. A blank text is no message.
pub fn split(text: &str, manners: &Manners) -> Vec<String> {
    let unit = manners.unit;
    // No text can be cut finer.
    let room = manners.longest.max(match unit {
        Unit::Chars => 1,
        Unit::Utf16 => 2,
    });
    let text = without_blank_ends(text);
    if text.is_empty() {
        return Vec::new();
    }
    if unit.length(text) <= room {
        return vec![text.to_owned()];
    }
    for digits in 1..=MOST_DIGITS {
        let number = " (/)".len() + 2 * digits as usize;
        if room < number * 4 {
            break;
        }
        let parts = Cutting::new(text, room - number, unit).parts();
        let count = parts.len();
        if count == 1 {
            return parts;
        }
        if count < 10_usize.pow(digits) {
            return parts.into_iter().zip(1..).map(|(part, n)| numbered(part, n, count)).collect();
        }
    }
    Cutting::new(text, room, unit).parts()
}

/// Where a text is code: in blocks, and in lines.
pub(crate) fn code(text: &str) -> Vec<Range<usize>> {
    map::all_code(text)
}

/// Cuts a text that is still being written. A code block that is open is closed, so that every message can be read.
pub fn split_draft(text: &str, manners: &Manners) -> Vec<String> {
    let text = without_blank_ends(text);
    let map = Map::new(text, manners.longest, manners.unit);
    let open = map.marks.last().and_then(|mark| mark.fence).and_then(|at| map.fences.get(at));
    match open {
        Some(fence) => split(&format!("{text}{}", fence.closing()), manners),
        None => split(text, manners),
    }
}

/// A line that ends a code block may have nothing behind it.
fn numbered(part: String, n: usize, count: usize) -> String {
    let last = part.lines().next_back().unwrap_or_default().trim_start();
    let between = if last.starts_with("```") || last.starts_with("~~~") { '\n' } else { ' ' };
    format!("{part}{between}({n}/{count})")
}

/// A text without blanks at its end and blank lines at its beginning.
fn without_blank_ends(text: &str) -> &str {
    let text = text.trim_end();
    let blank = text.len() - text.trim_start().len();
    let lines = text.get(..blank).and_then(|blank| blank.rfind('\n')).map_or(0, |at| at + 1);
    text.get(lines..).unwrap_or(text)
}

/// What one message has of a text.
#[derive(Debug, PartialEq, Eq)]
struct Piece {
    /// The code block that it begins in.
    opens: Option<usize>,
    body: Range<usize>,
    /// The code block that it ends in.
    closes: Option<usize>,
}

struct Cutting<'a> {
    text: &'a str,
    room: usize,
    unit: Unit,
    map: Map,
}

impl<'a> Cutting<'a> {
    fn new(text: &'a str, room: usize, unit: Unit) -> Self {
        Self { text, room, unit, map: Map::new(text, room, unit) }
    }

    fn parts(&self) -> Vec<String> {
        let part = |piece: Piece| {
            let opening = piece.opens.and_then(|at| self.map.fences.get(at)).map(map::Fence::opening);
            let closing = piece.closes.and_then(|at| self.map.fences.get(at)).map(map::Fence::closing);
            let body = self.text.get(piece.body).unwrap_or_default();
            [opening.as_deref().unwrap_or_default(), body, closing.as_deref().unwrap_or_default()].concat()
        };
        self.pieces().into_iter().map(part).collect()
    }

    fn pieces(&self) -> Vec<Piece> {
        let mut pieces = Vec::new();
        let (mut at, mut opens) = (self.unindented(0), None);
        while let Some(cut) = self.cut(at, opens) {
            let end = match cut.fence {
                Some(_) => cut.at,
                None => at + self.between(at, cut.at).trim_end().len(),
            };
            pieces.push(Piece { opens, body: at..end, closes: cut.fence });
            at = self.resumed(cut);
            opens = cut.fence;
        }
        let closes = self.map.marks.last().and_then(|mark| mark.fence);
        pieces.push(Piece { opens, body: at..self.text.len(), closes });
        pieces
    }

    /// Where to end a message that begins here; nowhere if all the rest fits.
    fn cut(&self, at: usize, opens: Option<usize>) -> Option<Mark> {
        let marks = self.map.marks.get(self.map.marks.partition_point(|mark| mark.at <= at)..)?;
        let (first, last) = (marks.first()?, marks.last()?);
        let base = first.units - self.unit.length(self.between(at, first.at));
        let room = self.room.saturating_sub(self.opening(opens));
        let fits = |mark: &Mark| mark.units - base + self.closing(mark.fence) <= room;
        if fits(last) {
            return None;
        }
        let blank = self.text.len() - at - self.between(at, self.text.len()).trim_start().len();
        let rank = |mark: &Mark| match (mark.place, (mark.units - base) * 2 >= room) {
            (Place::Inside, _) => (0, Place::Inside),
            // Not even half a message: the longest is the best.
            (_, false) => (1, Place::Between),
            (place, true) => (2, place),
        };
        let best = marks
            .iter()
            .take_while(|mark| mark.units - base <= room)
            .filter(|mark| fits(mark) && (mark.fence.is_some() || mark.at > at + blank))
            .max_by_key(|mark| rank(mark));
        best.copied().or_else(|| self.hard_cut(at, room, *first))
    }

    /// In the middle of what is read as one character, because it does not fit.
    fn hard_cut(&self, at: usize, room: usize, first: Mark) -> Option<Mark> {
        let room = room.saturating_sub(self.closing(first.fence));
        let mut units = 0;
        let mut end = at;
        for char in self.between(at, self.text.len()).chars() {
            units += self.unit.length(char.encode_utf8(&mut [0; 4]));
            if units > room && end > at {
                break;
            }
            end += char.len_utf8();
        }
        Some(Mark { at: end, ..first })
    }

    /// Where the next message begins.
    fn resumed(&self, cut: Mark) -> usize {
        let rest = self.between(cut.at, self.text.len());
        if cut.fence.is_some() {
            let after = rest.strip_prefix('\r').unwrap_or(rest).strip_prefix('\n').unwrap_or(rest);
            return self.text.len() - after.len();
        }
        let blank = rest.len() - rest.trim_start().len();
        match rest.get(..blank).and_then(|blank| blank.rfind('\n')) {
            Some(line) => self.unindented(cut.at + line + 1),
            None => cut.at + blank,
        }
    }

    /// The beginning of a line, or of its words if they are so deep that nothing would fit beside the blanks.
    fn unindented(&self, line: usize) -> usize {
        let rest = self.between(line, self.text.len());
        let words = rest.trim_start();
        let indent = self.unit.length(self.between(line, self.text.len() - words.len()));
        if indent * 2 >= self.room { self.text.len() - words.len() } else { line }
    }

    /// What it takes to open a block again.
    fn opening(&self, fence: Option<usize>) -> usize {
        fence.and_then(|at| self.map.fences.get(at)).map_or(0, |fence| fence.opening_length(self.unit))
    }

    /// What it takes to close a block.
    fn closing(&self, fence: Option<usize>) -> usize {
        fence.and_then(|at| self.map.fences.get(at)).map_or(0, map::Fence::closing_length)
    }

    fn between(&self, start: usize, end: usize) -> &'a str {
        self.text.get(start..end).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests;
