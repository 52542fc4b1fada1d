//! One pass over a stream of bytes.

use super::PLACEHOLDER;
use super::view::{BEHIND, View};

/// What a pass looks for.
pub(super) trait Rules {
    /// The first place at or after `at` where something may begin, judged.
    fn next(&self, view: &View<'_>, at: usize) -> Option<(usize, Verdict)>;

    /// How many bytes at the end may be the beginning of something.
    fn unfinished(&self, bytes: &[u8]) -> usize;
}

/// What a rule says about one place.
#[derive(Clone, Copy)]
pub(super) enum Verdict {
    /// Nothing to hide here.
    Plain,
    /// Hide everything from `start` for as long as `rest` says.
    Hide { start: usize, rest: Rest },
    /// More bytes are needed. Those before `start` are safe to show whatever they turn out to be.
    Wait { start: usize },
}

/// Which bytes belong to a secret whose beginning has been found.
#[derive(Clone, Copy)]
pub(super) enum Rest {
    /// This many, then perhaps the last characters of a base64 text.
    Known { left: usize, tail: u8, padding: u8 },
    /// All that belong to the class, after a prefix that need not.
    While { prefix: usize, class: fn(u8) -> bool },
    /// All up to this byte, a backslash before it, or the end of the line.
    Until(u8),
    /// A private key block: at most `left` more bytes, up to and including its last line.
    Key { left: usize, matched: usize },
    /// The last line of a key block, after its marker.
    KeyEnd { left: usize, dashes: u8 },
    /// Nothing more.
    Done,
}

const KEY_END: &[u8] = b"-----END ";

impl Rest {
    /// Whether `byte` is still part of the secret, and what may follow it.
    fn step(self, byte: u8) -> Option<Self> {
        match self {
            Self::Known { left, tail, padding } => match (left, tail, padding, byte) {
                (1.., ..) => Some(Self::Known { left: left - 1, tail, padding }),
                (0, 1.., ..) if is_base64(byte) => Some(Self::Known { left: 0, tail: tail - 1, padding }),
                (0, _, 1.., b'=') => Some(Self::Known { left: 0, tail: 0, padding: padding - 1 }),
                _ => None,
            },
            Self::While { prefix: prefix @ 1.., class } => Some(Self::While { prefix: prefix - 1, class }),
            Self::While { class, .. } => class(byte).then_some(self),
            Self::Until(quote) => (!matches!(byte, b'\n' | b'\r' | b'\\') && byte != quote).then_some(self),
            Self::Key { left, matched } => Self::step_key(left, matched, byte),
            Self::KeyEnd { left, dashes } => match byte {
                b'-' if dashes == 4 => Some(Self::Done),
                b'-' => Some(Self::KeyEnd { left: left.checked_sub(1)?, dashes: dashes + 1 }),
                b'A'..=b'Z' | b'0'..=b'9' | b' ' => {
                    Some(Self::KeyEnd { left: left.checked_sub(1)?, dashes: 0 })
                }
                _ => None,
            },
            Self::Done => None,
        }
    }

    fn step_key(left: usize, matched: usize, byte: u8) -> Option<Self> {
        let left = left.checked_sub(1)?;
        let matched = if KEY_END.get(matched) == Some(&byte) {
            matched + 1
        } else if byte == b'-' {
            // The marker begins with five dashes; a sixth one may still be followed by the word.
            if matched == 5 { 5 } else { 1 }
        } else {
            0
        };
        if matched == KEY_END.len() {
            return Some(Self::KeyEnd { left: 48, dashes: 0 });
        }
        let body = byte.is_ascii_alphanumeric()
            || byte.is_ascii_whitespace()
            || matches!(byte, b'+' | b'/' | b'=' | b'\\' | b':' | b',' | b'-' | b'"' | b'\'');
        body.then_some(Self::Key { left, matched })
    }
}

pub(super) fn is_base64(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'-' | b'_')
}

/// How far a pass has come.
#[derive(Default)]
pub(super) struct Scan {
    /// Bytes not yet done with, and before them some that rules may look back at.
    bytes: Vec<u8>,
    place: Place,
}

#[derive(Default)]
struct Place {
    /// Everything before has been written or hidden.
    done: usize,
    /// Nothing begins between here and `done`, or nothing before here is left to judge.
    judged: usize,
    /// Where the last secret ended.
    floor: Option<usize>,
    /// The secret we are in the middle of.
    rest: Option<Rest>,
}

impl Scan {
    /// Runs over a whole text; none when nothing had to be hidden.
    pub(super) fn whole(rules: &impl Rules, bytes: &[u8]) -> Option<Vec<u8>> {
        let mut place = Place::default();
        let mut out = Vec::new();
        place.advance(rules, bytes, true, &mut out);
        place.floor.is_some().then_some(out)
    }

    pub(super) fn push(&mut self, rules: &impl Rules, chunk: &[u8], out: &mut Vec<u8>) {
        self.bytes.extend_from_slice(chunk);
        self.place.advance(rules, &self.bytes, false, out);
        self.forget();
    }

    pub(super) fn finish(mut self, rules: &impl Rules, out: &mut Vec<u8>) {
        self.place.advance(rules, &self.bytes, true, out);
    }

    #[cfg(test)]
    pub(super) fn held(&self) -> usize {
        self.bytes.len()
    }

    /// Drops the bytes no rule can look at any more.
    fn forget(&mut self) {
        let unneeded = self.place.done.min(self.place.judged).saturating_sub(BEHIND);
        self.bytes.drain(..unneeded);
        self.place.done -= unneeded;
        self.place.judged -= unneeded;
        self.place.floor = self.place.floor.map(|floor| floor.saturating_sub(unneeded));
    }
}

impl Place {
    fn advance(&mut self, rules: &impl Rules, bytes: &[u8], ended: bool, out: &mut Vec<u8>) {
        loop {
            if let Some(rest) = self.rest
                && !self.hide(rest, bytes)
            {
                return;
            }
            let view = View::new(bytes, self.floor, ended);
            match rules.next(&view, self.judged) {
                None => {
                    let held = if ended {
                        0
                    } else {
                        rules.unfinished(bytes.get(self.judged..).unwrap_or_default())
                    };
                    self.judged = bytes.len() - held;
                    return self.show(bytes, self.judged, out);
                }
                Some((at, Verdict::Plain)) => self.judged = at + 1,
                Some((at, Verdict::Wait { start })) => {
                    self.judged = at;
                    return self.show(bytes, start, out);
                }
                Some((_, Verdict::Hide { start, rest })) => {
                    self.show(bytes, start, out);
                    out.extend_from_slice(PLACEHOLDER.as_bytes());
                    self.done = start.max(self.done);
                    self.rest = Some(rest);
                }
            }
        }
    }

    /// Skips the bytes of a secret; false when it may go on in bytes that have not arrived.
    fn hide(&mut self, mut rest: Rest, bytes: &[u8]) -> bool {
        let mut over = false;
        for byte in bytes.get(self.done..).unwrap_or_default() {
            match rest.step(*byte) {
                Some(next) => {
                    rest = next;
                    self.done += 1;
                }
                None => {
                    over = true;
                    break;
                }
            }
        }
        self.judged = self.done;
        self.floor = Some(self.done);
        self.rest = (!over).then_some(rest);
        over
    }

    fn show(&mut self, bytes: &[u8], until: usize, out: &mut Vec<u8>) {
        if let Some(plain) = bytes.get(self.done..until) {
            out.extend_from_slice(plain);
            self.done = until;
        }
    }
}
