//! One redaction pass over a text.

use std::ops::Range;

use super::PLACEHOLDER;
use super::anchor::Anchors;

/// Replaces the secrets that `find_secret` finds at the anchors; `None` if there are none.
pub(super) fn replace_secrets<R: Copy>(
    bytes: &[u8],
    anchors: &Anchors<R>,
    find_secret: impl Fn(&ScanView<'_>, usize, &mut dyn Iterator<Item = R>) -> Option<Range<usize>>,
) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    let mut view = ScanView::new(bytes);
    let mut judged = 0;
    while let Some((at, mut rules)) = anchors.find(bytes, judged) {
        judged = at + 1;
        if let Some(secret) = find_secret(&view, at, &mut rules) {
            out.extend_from_slice(view.slice(view.floor.unwrap_or(0), secret.start));
            out.extend_from_slice(PLACEHOLDER.as_bytes());
            judged = secret.end;
            view.floor = Some(secret.end);
        }
    }
    out.extend_from_slice(view.slice(view.floor?, bytes.len()));
    Some(out)
}

/// The bytes that a rule examines.
pub(super) struct ScanView<'b> {
    bytes: &'b [u8],
    /// The end of the last secret; the bytes before it are replaced.
    floor: Option<usize>,
}

impl<'b> ScanView<'b> {
    pub(super) fn new(bytes: &'b [u8]) -> Self {
        Self { bytes, floor: None }
    }

    pub(super) fn get(&self, at: usize) -> Option<u8> {
        self.bytes.get(at).copied()
    }

    /// The byte before `at`, as in the output.
    pub(super) fn before(&self, at: usize) -> Option<u8> {
        if self.floor.is_some_and(|floor| at <= floor) {
            return Some(b']');
        }
        self.get(at.checked_sub(1)?)
    }

    pub(super) fn slice(&self, from: usize, to: usize) -> &'b [u8] {
        self.bytes.get(from..to.min(self.bytes.len())).unwrap_or_default()
    }

    pub(super) fn has(&self, at: usize, word: &[u8]) -> bool {
        self.slice(at, at + word.len()) == word
    }

    /// The end of the run of bytes that starts at `at`, at most `limit` bytes later.
    pub(super) fn run(&self, at: usize, limit: usize, kind: impl Fn(u8) -> bool) -> usize {
        let run = self.slice(at, at.saturating_add(limit));
        at + run.iter().position(|byte| !kind(*byte)).unwrap_or(run.len())
    }

    /// The end of the run of bytes that starts at `at`, however long it is.
    pub(super) fn run_end(&self, at: usize, kind: impl Fn(u8) -> bool) -> usize {
        self.run(at, self.bytes.len(), kind)
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
