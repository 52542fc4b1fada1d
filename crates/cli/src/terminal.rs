//! The terminal that a person types at.

use std::io;

use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};

/// Typed characters are not shown as long as this lives.
pub(crate) struct Silent {
    before: Termios,
}

impl Silent {
    pub(crate) fn new() -> io::Result<Self> {
        let before = tcgetattr(io::stdin())?;
        let mut silent = before.clone();
        silent.local_modes.remove(LocalModes::ECHO);
        silent.local_modes.insert(LocalModes::ECHONL);
        tcsetattr(io::stdin(), OptionalActions::Flush, &silent)?;
        Ok(Self { before })
    }
}

impl Drop for Silent {
    fn drop(&mut self) {
        // A terminal that is gone needs no restoring.
        tcsetattr(io::stdin(), OptionalActions::Flush, &self.before).ok();
    }
}
