//! One redaction pass over a stream of bytes.

use super::PLACEHOLDER;
use super::anchor::Anchors;
use super::view::{MAX_LOOKBEHIND, ScanView};

/// The rules of a pass.
pub(super) trait ScanRules {
    type Rule: Copy;

    /// The positions where a secret may begin.
    fn anchors(&self) -> &Anchors<Self::Rule>;

    /// Decides about a position with an anchor of these rules.
    fn decide(&self, view: &ScanView<'_>, at: usize, rules: impl Iterator<Item = Self::Rule>)
    -> ScanDecision;
}

/// The decision about one position.
#[derive(Clone, Copy)]
pub(super) enum ScanDecision {
    Plain,
    /// Hides everything from `start` to the end of the secret.
    Hide {
        start: usize,
        rest: SecretTail,
    },
    /// More bytes are needed. The bytes before `start` can be shown in any case.
    Wait {
        start: usize,
    },
}

impl ScanDecision {
    /// Hides what was found, unless more bytes could change that.
    pub(super) fn new(view: &ScanView<'_>, wait_from: usize, found: Option<(usize, SecretTail)>) -> Self {
        match found {
            _ if view.needs_more() => Self::Wait { start: wait_from },
            Some((start, rest)) => Self::Hide { start, rest },
            None => Self::Plain,
        }
    }
}

/// The bytes that belong to a secret whose start was found.
#[derive(Clone, Copy)]
pub(super) enum SecretTail {
    /// This many, then possibly the last characters of a base64 text.
    Known { left: usize, tail: u8, padding: u8 },
    /// All bytes of a class, after a prefix of any bytes.
    While { prefix: usize, class: fn(u8) -> bool },
    /// All bytes up to this one, a backslash before it, or the end of the line.
    Until(u8),
    /// A private key block: at most `left` more bytes, up to and including its last line.
    Key { left: usize, matched: usize },
}

const KEY_END: &[u8] = b"-----END ";

impl SecretTail {
    pub(super) fn all(class: fn(u8) -> bool) -> Self {
        Self::While { prefix: 0, class }
    }

    /// Whether `byte` is still part of the secret, and the state after it.
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
        }
    }

    fn step_key(left: usize, matched: usize, byte: u8) -> Option<Self> {
        let left = left.checked_sub(1)?;
        let matched = if KEY_END.get(matched) == Some(&byte) {
            matched + 1
        } else if byte == b'-' {
            // The marker begins with five dashes; a sixth dash may still be followed by the word.
            if matched == 5 { 5 } else { 1 }
        } else {
            0
        };
        if matched == KEY_END.len() {
            let class =
                |byte: u8| byte.is_ascii_uppercase() || byte.is_ascii_digit() || b" -".contains(&byte);
            return Some(Self::all(class));
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

/// The state of a pass.
#[derive(Default)]
pub(super) struct Scan {
    /// Bytes not yet decided, preceded by some that rules may look back at.
    bytes: Vec<u8>,
    position: ScanPosition,
}

#[derive(Default)]
struct ScanPosition {
    /// Everything before this was written or hidden.
    done: usize,
    /// Everything before this was decided.
    judged: usize,
    /// The end of the last secret.
    floor: Option<usize>,
    /// The unfinished secret at `done`.
    rest: Option<SecretTail>,
}

impl Scan {
    /// Scans a whole text; `None` if nothing had to be hidden.
    pub(super) fn whole(rules: &impl ScanRules, bytes: &[u8]) -> Option<Vec<u8>> {
        let mut place = ScanPosition::default();
        let mut out = Vec::new();
        place.advance(rules, bytes, true, &mut out);
        place.floor.is_some().then_some(out)
    }

    pub(super) fn push(&mut self, rules: &impl ScanRules, chunk: &[u8], out: &mut Vec<u8>) {
        self.bytes.extend_from_slice(chunk);
        self.position.advance(rules, &self.bytes, false, out);
        self.drop_unneeded();
    }

    pub(super) fn finish(mut self, rules: &impl ScanRules, out: &mut Vec<u8>) {
        self.position.advance(rules, &self.bytes, true, out);
    }

    #[cfg(test)]
    pub(super) fn held_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Drops the bytes that no rule can look at any more.
    fn drop_unneeded(&mut self) {
        let unneeded = self.position.done.min(self.position.judged).saturating_sub(MAX_LOOKBEHIND);
        self.bytes.drain(..unneeded);
        self.position.done -= unneeded;
        self.position.judged -= unneeded;
        self.position.floor = self.position.floor.map(|floor| floor.saturating_sub(unneeded));
    }
}

impl ScanPosition {
    fn advance(&mut self, rules: &impl ScanRules, bytes: &[u8], ended: bool, out: &mut Vec<u8>) {
        loop {
            if let Some(rest) = self.rest
                && !self.hide(rest, bytes)
            {
                return;
            }
            let view = ScanView::new(bytes, self.floor, ended);
            let Some((at, found)) = rules.anchors().find(bytes, self.judged) else {
                let left = bytes.get(self.judged..).unwrap_or_default();
                self.judged = bytes.len() - if ended { 0 } else { rules.anchors().partial_len(left) };
                return self.show(bytes, self.judged, out);
            };
            match rules.decide(&view, at, found) {
                ScanDecision::Plain => self.judged = at + 1,
                ScanDecision::Wait { start } => {
                    self.judged = at;
                    return self.show(bytes, start, out);
                }
                ScanDecision::Hide { start, rest } => {
                    self.show(bytes, start, out);
                    out.extend_from_slice(PLACEHOLDER.as_bytes());
                    self.done = start.max(self.done);
                    self.rest = Some(rest);
                }
            }
        }
    }

    /// Skips the bytes of a secret; false if it may continue in bytes not yet received.
    fn hide(&mut self, rest: SecretTail, bytes: &[u8]) -> bool {
        self.rest = Some(rest);
        while let Some(byte) = bytes.get(self.done)
            && let Some(rest) = self.rest
        {
            self.rest = rest.step(*byte);
            self.done += usize::from(self.rest.is_some());
        }
        self.judged = self.done;
        self.floor = Some(self.done);
        self.rest.is_none()
    }

    fn show(&mut self, bytes: &[u8], until: usize, out: &mut Vec<u8>) {
        if let Some(plain) = bytes.get(self.done..until) {
            out.extend_from_slice(plain);
            self.done = until;
        }
    }
}
