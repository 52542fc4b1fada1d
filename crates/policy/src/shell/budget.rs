//! The bounds that keep understanding a command finite.

use std::cell::Cell;

/// The longest script that is read at all.
pub(super) const MAX_BYTES: usize = 256 * 1024;
/// How deep commands, substitutions and scripts within scripts may nest.
pub(super) const MAX_DEPTH: usize = 48;
/// How many simple commands one script may come to.
pub(super) const MAX_SEGMENTS: usize = 2_000;
/// How many words one command may have.
pub(super) const MAX_WORDS: usize = 2_048;
/// How many redirections one command may have.
pub(super) const MAX_REDIRECTS: usize = 256;
/// How many words a single brace expression may become.
pub(super) const MAX_BRACES: usize = 64;

/// Why a script was not understood.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Trouble {
    Syntax(&'static str),
    TooDeep,
    TooMuch,
}

/// Work that may still be spent on one job. Parsing can go back and try again, and scripts can hold scripts, so the
/// only safe bound is on the sum.
#[derive(Debug)]
pub(super) struct Budget {
    steps: Cell<usize>,
}

impl Budget {
    pub(super) fn for_text(text: &str) -> Self {
        Self { steps: Cell::new(text.len().saturating_mul(8).saturating_add(100_000)) }
    }

    pub(super) fn spend(&self, steps: usize) -> Result<(), Trouble> {
        match self.steps.get().checked_sub(steps) {
            Some(left) => {
                self.steps.set(left);
                Ok(())
            }
            None => {
                self.steps.set(0);
                Err(Trouble::TooMuch)
            }
        }
    }
}
