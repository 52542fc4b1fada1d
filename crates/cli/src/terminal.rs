//! The terminal that a person types at.

use std::io;

use hermes_exec::TerminalSize;
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};

/// The size of the window.
pub(crate) fn size() -> io::Result<TerminalSize> {
    let window = tcgetwinsize(io::stdout())?;
    Ok(TerminalSize { rows: window.ws_row, columns: window.ws_col })
}

/// Whatever was changed about the terminal is changed back when this is gone.
pub(crate) struct TerminalGuard {
    before: Termios,
}

impl TerminalGuard {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self { before: tcgetattr(io::stdin())? })
    }
}

impl Drop for TerminalGuard {
    fn drop(&mut self) {
        // A terminal that is gone needs no restoring.
        tcsetattr(io::stdin(), OptionalActions::Now, &self.before).ok();
    }
}

/// Every key goes through as it is, as long as this lives.
pub(crate) struct RawMode {
    before: Termios,
}

impl RawMode {
    pub(crate) fn new() -> io::Result<Self> {
        let before = tcgetattr(io::stdin())?;
        let mut raw = before.clone();
        raw.make_raw();
        tcsetattr(io::stdin(), OptionalActions::Drain, &raw)?;
        Ok(Self { before })
    }
}

impl Drop for RawMode {
    fn drop(&mut self) {
        // A terminal that is gone needs no restoring.
        tcsetattr(io::stdin(), OptionalActions::Drain, &self.before).ok();
    }
}

/// Typed characters are not shown as long as this lives.
pub(crate) struct NoEcho {
    before: Termios,
}

impl NoEcho {
    pub(crate) fn new() -> io::Result<Self> {
        let before = tcgetattr(io::stdin())?;
        let mut silent = before.clone();
        silent.local_modes.remove(LocalModes::ECHO);
        silent.local_modes.insert(LocalModes::ECHONL);
        tcsetattr(io::stdin(), OptionalActions::Flush, &silent)?;
        Ok(Self { before })
    }
}

impl Drop for NoEcho {
    fn drop(&mut self) {
        // A terminal that is gone needs no restoring.
        tcsetattr(io::stdin(), OptionalActions::Flush, &self.before).ok();
    }
}
