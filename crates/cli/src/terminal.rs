//! The terminal of standard input and output.

use std::io;

use hermes_exec::TerminalSize;
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};

pub(crate) const DEFAULT_COLUMNS: usize = 80;

/// The size of the window.
pub(crate) fn size() -> io::Result<TerminalSize> {
    let window = tcgetwinsize(io::stdout())?;
    Ok(TerminalSize { rows: window.ws_row, columns: window.ws_col })
}

/// The columns of the terminal of standard error. A pseudo terminal may report no size.
pub(crate) fn columns() -> usize {
    let columns = tcgetwinsize(io::stderr()).map_or(0, |window| usize::from(window.ws_col));
    if columns == 0 { DEFAULT_COLUMNS } else { columns }
}

/// Restores the mode of the terminal when it is dropped.
pub(crate) struct TerminalGuard {
    before: Termios,
}

impl TerminalGuard {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self { before: tcgetattr(io::stdin())? })
    }

    /// Passes every key to the program.
    pub(crate) fn raw() -> io::Result<Self> {
        Self::change(OptionalActions::Drain, Termios::make_raw)
    }

    /// Hides typed characters, except the final line break. Discards earlier input.
    pub(crate) fn no_echo() -> io::Result<Self> {
        Self::change(OptionalActions::Flush, |mode| {
            mode.local_modes.remove(LocalModes::ECHO);
            mode.local_modes.insert(LocalModes::ECHONL);
        })
    }

    fn change(when: OptionalActions, change: impl FnOnce(&mut Termios)) -> io::Result<Self> {
        let guard = Self::new()?;
        let mut mode = guard.before.clone();
        change(&mut mode);
        tcsetattr(io::stdin(), when, &mode)?;
        Ok(guard)
    }
}

impl Drop for TerminalGuard {
    fn drop(&mut self) {
        // Fails only if the terminal is gone.
        tcsetattr(io::stdin(), OptionalActions::Drain, &self.before).ok();
    }
}
