//! Limits that keep the analysis of a command finite.

use std::cell::Cell;

use super::DoubtKind;

pub(super) const MAX_BYTES: usize = 256 * 1024;
/// Nested commands, substitutions and scripts.
pub(super) const MAX_DEPTH: usize = 48;
pub(super) const MAX_SEGMENTS: usize = 2_000;
pub(super) const MAX_WORDS: usize = 2_048;
pub(super) const MAX_REDIRECTS: usize = 256;
pub(super) const MAX_BRACE_WORDS: usize = 64;

/// The work left for one job. The parser can backtrack and scripts can contain scripts, so only a
/// limit on the total is safe.
#[derive(Debug)]
pub(super) struct Budget {
    steps: Cell<usize>,
}

impl Budget {
    pub(super) fn for_text(text: &str) -> Self {
        Self { steps: Cell::new(text.len().saturating_mul(8).saturating_add(100_000)) }
    }

    pub(super) fn spend(&self, steps: usize) -> Result<(), DoubtKind> {
        let left = self.steps.get().checked_sub(steps);
        self.steps.set(left.unwrap_or(0));
        left.map(|_| ()).ok_or(DoubtKind::TooMuch)
    }
}
