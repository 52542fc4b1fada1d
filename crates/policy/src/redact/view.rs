//! What a rule may look at.

use std::cell::Cell;

/// How far a shape rule may look ahead of its anchor before it must decide.
pub(super) const AHEAD: usize = 1024;

/// How many bytes before the anchor stay readable.
pub(super) const BEHIND: usize = 96;

/// Bytes round an anchor. Notes whether a rule asked for a byte that has not arrived: such a decision is
/// not final, and only such a decision.
pub(super) struct View<'b> {
    bytes: &'b [u8],
    /// Where the last placeholder ended; what stood before it can no longer be seen.
    floor: Option<usize>,
    ended: bool,
    starved: Cell<bool>,
}

impl<'b> View<'b> {
    pub(super) fn new(bytes: &'b [u8], floor: Option<usize>, ended: bool) -> Self {
        Self { bytes, floor, ended, starved: Cell::new(false) }
    }

    /// Everything that has arrived.
    pub(super) fn bytes(&self) -> &'b [u8] {
        self.bytes
    }

    /// The byte at `at`, or none at the end of the text.
    pub(super) fn get(&self, at: usize) -> Option<u8> {
        let byte = self.bytes.get(at).copied();
        if byte.is_none() && !self.ended {
            self.starved.set(true);
        }
        byte
    }

    /// The byte before `at`, as a reader of the output sees it.
    pub(super) fn before(&self, at: usize) -> Option<u8> {
        if self.floor.is_some_and(|floor| at <= floor) {
            return Some(b']');
        }
        self.bytes.get(at.checked_sub(1)?).copied()
    }

    /// Bytes that have arrived in this range.
    pub(super) fn slice(&self, from: usize, to: usize) -> &'b [u8] {
        self.bytes.get(from..to.min(self.bytes.len())).unwrap_or_default()
    }

    /// Whether the text continues with `word` at `at`.
    pub(super) fn has(&self, at: usize, word: &[u8]) -> bool {
        word.iter().enumerate().all(|(i, byte)| self.get(at + i) == Some(*byte))
    }

    /// The end of the run of bytes of this kind that begins at `at`, at most `limit` bytes on.
    pub(super) fn run(&self, at: usize, limit: usize, kind: impl Fn(u8) -> bool) -> usize {
        (at..at + limit).find(|i| !self.get(*i).is_some_and(&kind)).unwrap_or(at + limit)
    }

    /// Whether a decision made with this view could change when more bytes arrive.
    pub(super) fn starved(&self) -> bool {
        self.starved.get()
    }

    /// Whether a token may begin at `at`: the byte before is no letter or digit, or it ends an escape
    /// such as `\n`, `%20` or a color code.
    pub(super) fn boundary(&self, at: usize) -> bool {
        let Some(last) = self.before(at) else { return true };
        if !last.is_ascii_alphanumeric() {
            return last != b'_';
        }
        let back = |n: usize| at.checked_sub(n).and_then(|at| self.before(at));
        let json = matches!(last, b'n' | b't' | b'r') && back(1) == Some(b'\\');
        let percent = last.is_ascii_hexdigit()
            && back(1).is_some_and(|b| b.is_ascii_hexdigit())
            && back(2) == Some(b'%');
        json || percent || (last == b'm' && self.after_color_code(at))
    }

    fn after_color_code(&self, at: usize) -> bool {
        let back = |n: usize| at.checked_sub(n).and_then(|at| self.before(at));
        let digits =
            (1..=16).find(|n| !back(*n).is_some_and(|b| b.is_ascii_digit() || b == b';')).unwrap_or(16);
        back(digits) == Some(b'[') && back(digits + 1) == Some(0x1b)
    }
}
