//! Starts a program with its descriptors, environment and working directory.

use std::ffi::{CString, OsStr};
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::rc::Rc;
use std::sync::Arc;

use hermes_guest::protocol::message::{Stdin, TerminalSize};
use rustix::fs::{CWD, MemfdFlags, Mode, OFlags};
use rustix::pipe::PipeFlags;
use rustix::pty::OpenptFlags;
use rustix::termios::Winsize;
use serde_bytes::ByteBuf;
use tokio::io::unix::AsyncFd;

use super::shim::{self, ControllingTerminal, ProgramSetup, ShimmedProcess};
use super::stderr::StderrCapture;
use crate::shell::state::ByteMap;
use crate::view::View;

/// Capacity of the output pipe, large enough that a program rarely blocks.
const OUTPUT_PIPE_BYTES: usize = 256 * 1024;

pub(crate) struct LaunchSpec<'a> {
    /// The file to execute; the first element of `argv` is only its name.
    pub(crate) program: &'a [u8],
    pub(crate) argv: &'a [Vec<u8>],
    pub(crate) env: &'a ByteMap,
    pub(crate) dir: OwnedFd,
    /// The path of `dir`.
    pub(crate) cwd: &'a [u8],
    pub(crate) view: Option<Arc<View>>,
    /// Descriptors that the program inherits under these numbers.
    pub(crate) inherited: Vec<(OwnedFd, i32)>,
    pub(crate) stdin: Stdin,
    pub(crate) terminal: Option<TerminalSize>,
    /// The size of a separate buffer that keeps the beginning of standard error. `None` merges it
    /// into the output.
    pub(crate) stderr_bytes: Option<usize>,
}

#[derive(Debug)]
pub(super) struct LaunchedProcess {
    pub(super) shimmed: ShimmedProcess,
    /// The reading end of the output; on a terminal, its master.
    pub(super) output: Rc<AsyncFd<OwnedFd>>,
    pub(super) stdin: Option<Rc<AsyncFd<OwnedFd>>>,
    /// Data still to write to the terminal, which accepts it only as fast as the program reads.
    pub(super) terminal_input: Option<ByteBuf>,
    pub(super) stderr: Option<StderrCapture>,
}

#[expect(clippy::disallowed_methods, reason = "the guest starts programs")]
pub(super) fn launch_process(spec: LaunchSpec<'_>) -> io::Result<LaunchedProcess> {
    let mut words = spec.argv.iter().map(|word| OsStr::from_bytes(word));
    let mut command = Command::new(OsStr::from_bytes(spec.program));
    command.arg0(words.next().ok_or(io::ErrorKind::InvalidInput)?).args(words).env_clear();
    command.envs(spec.env.iter().map(|(name, value)| (OsStr::from_bytes(name), OsStr::from_bytes(value))));
    let controlling = match spec.terminal {
        Some(_) => ControllingTerminal::Stdin,
        None => ControllingTerminal::None,
    };
    let setup = ProgramSetup {
        dir: spec.dir,
        path: CString::new(spec.cwd)?,
        view: spec.view,
        inherited: spec.inherited,
        controlling,
    };
    match spec.terminal {
        Some(size) => launch_on_terminal(command, setup, spec.stdin, size),
        None => launch_on_pipes(command, setup, spec.stdin, spec.stderr_bytes),
    }
}

fn launch_on_pipes(
    mut command: Command,
    setup: ProgramSetup,
    stdin: Stdin,
    stderr_bytes: Option<usize>,
) -> io::Result<LaunchedProcess> {
    let (output, output_end) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
    // A smaller pipe is slower but works.
    rustix::pipe::fcntl_setpipe_size(&output, OUTPUT_PIPE_BYTES).ok();
    let (input_end, stdin_writer) = match stdin {
        Stdin::Null => (open_null()?, None),
        Stdin::Data(data) => (memory_file("stdin", &data)?, None),
        Stdin::Stream => {
            let (input_end, input) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
            (input_end, Some(Rc::new(shim::nonblocking(input)?)))
        }
    };
    let (error_end, stderr_reader) = match stderr_bytes {
        None => (output_end.try_clone()?, None),
        Some(max_bytes) => {
            let (stderr_reader, error_end) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
            (error_end, Some(StderrCapture::new(shim::nonblocking(stderr_reader)?, max_bytes)))
        }
    };
    command.stdin(input_end).stdout(output_end).stderr(error_end);
    let shimmed = shim::spawn_under_shim(command, setup)?;
    Ok(LaunchedProcess {
        shimmed,
        output: Rc::new(shim::nonblocking(output)?),
        stdin: stdin_writer,
        terminal_input: None,
        stderr: stderr_reader,
    })
}

fn launch_on_terminal(
    mut command: Command,
    setup: ProgramSetup,
    stdin: Stdin,
    size: TerminalSize,
) -> io::Result<LaunchedProcess> {
    let master = rustix::pty::openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
    rustix::pty::grantpt(&master)?;
    rustix::pty::unlockpt(&master)?;
    let name = rustix::pty::ptsname(&master, Vec::new())?;
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
    let terminal = rustix::fs::openat(CWD, name, flags, Mode::empty())?;
    set_size(&master, size)?;
    let terminal_input = match stdin {
        Stdin::Data(data) => Some(data),
        Stdin::Null | Stdin::Stream => None,
    };
    command.stdin(terminal.try_clone()?).stdout(terminal.try_clone()?).stderr(terminal);
    let shimmed = shim::spawn_under_shim(command, setup)?;
    let master = Rc::new(shim::nonblocking(master)?);
    Ok(LaunchedProcess { shimmed, output: master.clone(), stdin: Some(master), terminal_input, stderr: None })
}

/// Sets the size of a terminal; the kernel sends SIGWINCH to its programs.
pub(super) fn set_size(master: &impl AsFd, size: TerminalSize) -> io::Result<()> {
    let size = Winsize { ws_row: size.rows, ws_col: size.columns, ws_xpixel: 0, ws_ypixel: 0 };
    Ok(rustix::termios::tcsetwinsize(master, size)?)
}

/// A memory file with this content, positioned at its beginning.
pub(crate) fn memory_file(name: &str, content: &[u8]) -> io::Result<OwnedFd> {
    let fd = rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC)?;
    let mut file = File::from(fd);
    file.write_all(content)?;
    io::Seek::rewind(&mut file)?;
    Ok(file.into())
}

/// An empty input; a container image may lack `/dev/null`.
fn open_null() -> io::Result<OwnedFd> {
    rustix::fs::openat(CWD, "/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())
        .map_err(io::Error::from)
        .or_else(|_missing| memory_file("nothing", b""))
}
