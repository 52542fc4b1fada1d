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
/// The readings of one command, if variables in it may have several values.
pub(super) const MAX_READINGS: usize = 16;

/// The work left for one job. The parser can backtrack and scripts can contain scripts, so only a
/// limit on the total is safe.
#[derive(Debug)]
pub(super) struct Budget {
    steps: Cell<usize>,
    /// Whether the parser met syntax that other shells read differently.
    bash_syntax: Cell<bool>,
}

impl Budget {
    pub(super) fn for_text(text: &str) -> Self {
        let steps = text.len().saturating_mul(8).saturating_add(100_000);
        Self { steps: Cell::new(steps), bash_syntax: Cell::new(false) }
    }

    pub(super) fn uses_bash_syntax(&self) {
        self.bash_syntax.set(true);
    }

    /// Whether bash syntax was met since the last call.
    pub(super) fn take_bash_syntax(&self) -> bool {
        self.bash_syntax.replace(false)
    }

    pub(super) fn spend(&self, steps: usize) -> Result<(), DoubtKind> {
        let left = self.steps.get().checked_sub(steps);
        self.steps.set(left.unwrap_or(0));
        left.map(|_| ()).ok_or(DoubtKind::TooMuch)
    }
}
