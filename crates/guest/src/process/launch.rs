//! Starts a program: descriptors, environment, directory.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::rc::Rc;

use hermes_guest::protocol::message::{Size, Stdin};
use rustix::fs::{CWD, MemfdFlags, Mode, OFlags};
use rustix::pipe::PipeFlags;
use rustix::pty::OpenptFlags;
use rustix::termios::Winsize;
use serde_bytes::ByteBuf;

use super::Feed;
use super::errors::Errors;
use super::shim::{self, Controlling, Shimmed};
use super::tend::Source;
use crate::shell::state::Map;

/// Room in the pipe a program writes to, so that it seldom waits for us.
const PIPE: usize = 256 * 1024;

/// A program ready to start.
pub(crate) struct Plan<'a> {
    /// What is executed; the first word is only what it is told to be called.
    pub(crate) program: &'a [u8],
    pub(crate) argv: &'a [Vec<u8>],
    pub(crate) env: &'a Map,
    pub(crate) dir: OwnedFd,
    pub(crate) stdin: Stdin,
    pub(crate) terminal: Option<Size>,
    pub(crate) errors: StandardError,
}

/// What becomes of a program's standard error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StandardError {
    /// It is a part of the output.
    Output,
    /// So much of its beginning is kept apart.
    Apart(usize),
}

/// A program that has started.
#[derive(Debug)]
pub(super) struct Started {
    pub(super) shimmed: Shimmed,
    pub(super) source: Source,
    pub(super) feed: Feed,
    /// What is still to be typed into its terminal, which takes only as much as the program reads.
    pub(super) typed: Option<ByteBuf>,
    pub(super) errors: Option<Errors>,
}

#[expect(clippy::disallowed_methods, reason = "the guest is what starts programs")]
pub(super) fn start(plan: Plan<'_>) -> io::Result<Started> {
    let mut words = plan.argv.iter().map(|word| OsStr::from_bytes(word));
    let mut command = Command::new(OsStr::from_bytes(plan.program));
    command.arg0(words.next().ok_or(io::ErrorKind::InvalidInput)?).args(words).env_clear();
    command.envs(plan.env.iter().map(|(name, value)| (OsStr::from_bytes(name), OsStr::from_bytes(value))));
    match plan.terminal {
        Some(size) => on_terminal(command, plan.dir, plan.stdin, size),
        None => on_pipes(command, plan.dir, plan.stdin, plan.errors),
    }
}

fn on_pipes(
    mut command: Command,
    dir: OwnedFd,
    stdin: Stdin,
    standard_error: StandardError,
) -> io::Result<Started> {
    let (output, output_end) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
    // A smaller pipe only costs speed.
    rustix::pipe::fcntl_setpipe_size(&output, PIPE).ok();
    let (input_end, feed) = match stdin {
        Stdin::Null => (nothing()?, Feed::None),
        Stdin::Data(data) => (memory("stdin", &data)?, Feed::None),
        Stdin::Stream => {
            let (input_end, input) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
            (input_end, Feed::Pipe(Rc::new(shim::nonblocking(input)?)))
        }
    };
    let (error_end, errors) = match standard_error {
        StandardError::Output => (output_end.try_clone()?, None),
        StandardError::Apart(room) => {
            let (errors, error_end) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
            (error_end, Some(Errors::new(shim::nonblocking(errors)?, room)))
        }
    };
    command.stdin(input_end).stdout(output_end).stderr(error_end);
    let shimmed = shim::spawn(command, dir, Controlling::Nothing)?;
    Ok(Started { shimmed, source: Source::Pipe(shim::nonblocking(output)?), feed, typed: None, errors })
}

fn on_terminal(mut command: Command, dir: OwnedFd, stdin: Stdin, size: Size) -> io::Result<Started> {
    let master = rustix::pty::openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
    rustix::pty::grantpt(&master)?;
    rustix::pty::unlockpt(&master)?;
    let name = rustix::pty::ptsname(&master, Vec::new())?;
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
    let terminal = rustix::fs::openat(CWD, name, flags, Mode::empty())?;
    set_size(&master, size)?;
    let typed = match stdin {
        Stdin::Data(data) => Some(data),
        Stdin::Null | Stdin::Stream => None,
    };
    command.stdin(terminal.try_clone()?).stdout(terminal.try_clone()?).stderr(terminal);
    let shimmed = shim::spawn(command, dir, Controlling::Terminal)?;
    let master = Rc::new(shim::nonblocking(master)?);
    let source = Source::Terminal(master.clone());
    Ok(Started { shimmed, source, feed: Feed::Terminal(master), typed, errors: None })
}

/// Sets a terminal's size; the programs on it are told by SIGWINCH.
pub(super) fn set_size(master: &impl AsFd, size: Size) -> io::Result<()> {
    let size = Winsize { ws_row: size.rows, ws_col: size.columns, ws_xpixel: 0, ws_ypixel: 0 };
    Ok(rustix::termios::tcsetwinsize(master, size)?)
}

/// A file in memory with this content, read from its beginning.
pub(crate) fn memory(name: &str, content: &[u8]) -> io::Result<OwnedFd> {
    let fd = rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC)?;
    let mut file = File::from(fd);
    file.write_all(content)?;
    io::Seek::rewind(&mut file)?;
    Ok(file.into())
}

/// Something that is at its end; an image may have no `/dev/null`.
fn nothing() -> io::Result<OwnedFd> {
    rustix::fs::openat(CWD, "/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())
        .map_err(io::Error::from)
        .or_else(|_missing| memory("nothing", b""))
}
