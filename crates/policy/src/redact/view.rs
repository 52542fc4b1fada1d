//! The bytes that a rule may examine.

use std::cell::Cell;

/// How far a rule may look ahead of its anchor.
pub(super) const MAX_LOOKAHEAD: usize = 1024;

/// How far a rule may look behind its anchor.
pub(super) const MAX_LOOKBEHIND: usize = 96;

/// The bytes around an anchor. Records whether a rule asked for a byte not yet received; only such
/// a decision is not final.
pub(super) struct ScanView<'b> {
    bytes: &'b [u8],
    /// The end of the last placeholder; the bytes before it are no longer visible.
    floor: Option<usize>,
    ended: bool,
    needs_more: Cell<bool>,
}

impl<'b> ScanView<'b> {
    pub(super) fn new(bytes: &'b [u8], floor: Option<usize>, ended: bool) -> Self {
        Self { bytes, floor, ended, needs_more: Cell::new(false) }
    }

    /// The byte at `at`; `None` at the end of the text.
    pub(super) fn get(&self, at: usize) -> Option<u8> {
        let byte = self.bytes.get(at).copied();
        if byte.is_none() && !self.ended {
            self.needs_more.set(true);
        }
        byte
    }

    /// The byte before `at`, as in the output.
    pub(super) fn before(&self, at: usize) -> Option<u8> {
        if self.floor.is_some_and(|floor| at <= floor) {
            return Some(b']');
        }
        self.bytes.get(at.checked_sub(1)?).copied()
    }

    pub(super) fn slice(&self, from: usize, to: usize) -> &'b [u8] {
        self.bytes.get(from..to.min(self.bytes.len())).unwrap_or_default()
    }

    pub(super) fn has(&self, at: usize, word: &[u8]) -> bool {
        word.iter().enumerate().all(|(i, byte)| self.get(at + i) == Some(*byte))
    }

    /// The end of the run of bytes that starts at `at`, at most `limit` bytes later.
    pub(super) fn run(&self, at: usize, limit: usize, kind: impl Fn(u8) -> bool) -> usize {
        (at..at + limit).find(|i| !self.get(*i).is_some_and(&kind)).unwrap_or(at + limit)
    }

    /// Whether the decision could change when more bytes arrive.
    pub(super) fn needs_more(&self) -> bool {
        self.needs_more.get()
    }

    /// Whether a token may begin at `at`: the byte before is not a letter or digit, or it ends an
    /// escape such as `
    /// `, `%20` or a color code.
    pub(super) fn is_token_start(&self, at: usize) -> bool {
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
