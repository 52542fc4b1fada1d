//! Turns a request into a running program: directory, environment, shell.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

use hermes_guest::protocol::limit;
use hermes_guest::protocol::message::{
    ExitCause, ExitReport, FailedOperation, ProcessId, Program, Rejection, RunMode, RunRequest, StatePolicy,
    TreeStatus, WorkingDir,
};
use rustix::fs::{Access, AtFlags, CWD, Mode as FileMode, OFlags};
use serde_bytes::ByteBuf;

use super::python::PythonDir;
use crate::files::resolve;
use crate::guest::Guest;
use crate::process::launch::{LaunchSpec, memory_file};
use crate::process::table::NewProcess;
use crate::process::{GuestProcess, os_error};
use crate::session::ShellSession;
use crate::shell::script::{self, ShellFiles};
use crate::shell::state::{self, ShellState};
use crate::shell::{self, Shell, dump};
use crate::view::{ConfinedRun, View};

/// A running program, and the session state that its exit may change.
pub(super) struct RunningProgram {
    pub(super) process: Rc<GuestProcess>,
    pub(super) session: Rc<ShellSession>,
    /// Set for a command of a shell.
    pub(super) shell: Option<ShellRun>,
    /// Set for a Python program.
    pub(super) python_dir: Option<Rc<PythonDir>>,
}

/// What it takes to find the state changes of a shell.
pub(super) struct ShellRun {
    initial_state: ShellState,
    files: ShellFiles,
    scope: StateScope,
}

/// Which part of the session state a command changes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum StateScope {
    WholeSession,
    /// The command runs in another directory.
    AllButDirectory,
}

/// Why a program was not started.
pub(super) enum SpawnError {
    Request(Rejection),
    NoWorkingDir(Box<ExitReport>),
}

impl From<Rejection> for SpawnError {
    fn from(fault: Rejection) -> Self {
        Self::Request(fault)
    }
}

pub(super) fn spawn_program(
    guest: &Guest,
    session: Rc<ShellSession>,
    run: RunRequest,
    entered: EnteredView,
) -> Result<RunningProgram, SpawnError> {
    let mut initial = session.state.borrow().clone();
    let (cwd, scope) = working_dir(&session, &run.workdir)?;
    initial.cwd = cwd;
    let dir = open_dir(&initial.cwd).map_err(|error| missing_dir(&session, &initial.cwd, scope, &error))?;
    initial.env.extend(state::byte_pairs(run.env));
    initial.env.insert(b"PWD".to_vec(), initial.cwd.clone());
    let state_rule = match run.mode {
        RunMode::Foreground { state, .. } => state,
        RunMode::Background { .. } => StatePolicy::Discard,
    };
    let Program::Shell(command) = run.program else { return Err(Rejection::Malformed.into()) };
    let (program, argv, files) = shell_command(&initial, &command, state_rule, &entered)?;
    let inherited = files.inherited().map_err(os_error(FailedOperation::Prepare))?;
    let spec = LaunchSpec {
        program: &program,
        argv: &argv,
        env: &initial.env,
        dir,
        cwd: &initial.cwd,
        view: entered.view,
        inherited,
        stdin: run.stdin,
        terminal: run.terminal,
        stderr_bytes: None,
    };
    let record = NewProcess {
        session: run.session,
        command: command.into_vec(),
        cwd: initial.cwd.clone(),
        mode: run.mode,
        memory_bytes: run.memory_bytes,
        spool_bytes: run.spool_bytes,
    };
    let process = guest.table.start(spec, record, entered.run)?;
    let shell = Some(ShellRun { initial_state: initial, files, scope });
    Ok(RunningProgram { process, session, shell, python_dir: None })
}

/// The working directory of a program, and whether the session follows it.
pub(super) fn working_dir(
    session: &ShellSession,
    workdir: &WorkingDir,
) -> Result<(Vec<u8>, StateScope), Rejection> {
    let state = session.state.borrow();
    match workdir {
        WorkingDir::Session => Ok((state.cwd.clone(), StateScope::WholeSession)),
        WorkingDir::SessionAt(expected) if **expected == state.cwd => {
            Ok((state.cwd.clone(), StateScope::WholeSession))
        }
        WorkingDir::SessionAt(_) => Err(Rejection::SessionMoved),
        WorkingDir::Other(workdir) => {
            let cwd = resolve::absolute_path(workdir, Some(&state)).map_err(Rejection::File)?;
            Ok((cwd, StateScope::AllButDirectory))
        }
        WorkingDir::Private => Err(Rejection::Malformed),
    }
}

impl RunningProgram {
    /// Applies the state changes of the command to its session, except those of protected
    /// variables. A shell that was killed wrote no state, so the session does not change.
    pub(super) fn apply_state(&self, is_protected: impl Fn(&[u8]) -> bool) {
        let Some(ShellRun { initial_state, files, scope }) = &self.shell else { return };
        let dump = files.state.as_ref().and_then(read_state);
        let Some(mut after) = dump.and_then(|dump| dump::parse_dump(&dump)) else { return };
        if !initial_state.functions.contains_key(script::TRAP_FUNCTION) {
            after.functions.remove(script::TRAP_FUNCTION);
        }
        after.undo_unsafe_changes(initial_state);
        let is_excluded =
            |name: &[u8]| is_protected(name) || (*scope == StateScope::AllButDirectory && name == b"OLDPWD");
        after.env.retain(|name, _| !is_excluded(name));
        let kept = initial_state.env.iter().filter(|(name, _)| is_excluded(name));
        after.env.extend(kept.map(|(name, value)| (name.clone(), value.clone())));
        if *scope == StateScope::AllButDirectory {
            after.cwd.clone_from(&initial_state.cwd);
        }
        self.session.apply_changes(initial_state, after);
    }

    pub(super) fn session_cwd(&self) -> Vec<u8> {
        self.session.state.borrow().cwd.clone()
    }
}

/// Reads the dump of a shell, unless it exceeds the limit.
fn read_state(file: &OwnedFd) -> Option<Vec<u8>> {
    let file = File::from(file.try_clone().ok()?);
    let length = usize::try_from(file.metadata().ok()?.len()).ok()?;
    if length > limit::MAX_STATE_BYTES {
        return None;
    }
    let mut dump = vec![0; length];
    file.read_exact_at(&mut dump, 0).ok()?;
    Some(dump)
}

/// The view that a program runs in, if any.
#[derive(Default)]
pub(super) struct EnteredView {
    pub(super) view: Option<Arc<View>>,
    /// Counts the program while it runs. Not for the guest's own shells.
    pub(super) run: Option<ConfinedRun>,
}

/// How to run a command in a shell.
type ShellCommand = (Vec<u8>, Vec<Vec<u8>>, ShellFiles);

/// Prepares the arguments and memory files with which a shell runs a command.
fn shell_command(
    initial: &ShellState,
    command: &[u8],
    policy: StatePolicy,
    entered: &EnteredView,
) -> Result<ShellCommand, Rejection> {
    if command.contains(&0) {
        return Err(Rejection::Malformed);
    }
    let search_path = initial.env.get(b"PATH".as_slice()).map(Vec::as_slice);
    let shell = shell::find_shell(search_path).ok_or(Rejection::NoShell)?;
    let script = memory_file("script", b"").map_err(os_error(FailedOperation::Prepare))?;
    let state = match policy {
        StatePolicy::Apply => Some(memory_file("state", b"").map_err(os_error(FailedOperation::Prepare))?),
        StatePolicy::Discard => None,
    };
    let files = ShellFiles { script, state, are_inherited: entered.view.is_some() };
    let (path, words, argument, text): (_, &[&str], _, _) = match shell {
        Shell::Bash(path) => {
            let words = ["bash", "--noprofile", "--norc", "-c"].as_slice();
            (path, words, script::bash_argument(&files), script::bash_script(initial, &files, command))
        }
        Shell::Sh(path) => {
            (path, ["sh", "-c"].as_slice(), script::sh_argument(&files), script::sh_script(&files, command))
        }
    };
    let written = files.script.try_clone().map(File::from).and_then(|file| file.write_all_at(&text, 0));
    written.map_err(os_error(FailedOperation::Prepare))?;
    let words = words.iter().map(|word| word.as_bytes().to_vec());
    let argv = words.chain([argument.into_bytes()]).collect();
    Ok((path, argv, files))
}

pub(super) fn open_dir(path: &[u8]) -> io::Result<OwnedFd> {
    let path = Path::new(OsStr::from_bytes(path));
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let dir = rustix::fs::openat(CWD, path, flags, FileMode::empty())?;
    rustix::fs::accessat(CWD, path, Access::EXEC_OK, AtFlags::EACCESS)?;
    Ok(dir)
}

/// The result for a program whose working directory does not exist. A session whose own directory
/// is gone moves to the closest existing parent, so that its next command can run; this command
/// does not run there, because it was meant for another directory.
pub(super) fn missing_dir(
    session: &ShellSession,
    cwd: &[u8],
    scope: StateScope,
    error: &io::Error,
) -> SpawnError {
    if scope == StateScope::WholeSession {
        let mut left = cwd.to_vec();
        while open_dir(&left).is_err() && left.len() > 1 {
            let parent = memchr::memrchr(b'/', &left).unwrap_or(0);
            left.truncate(parent.max(1));
        }
        session.state.borrow_mut().cwd = left;
    }
    let mut message = b"cannot enter ".to_vec();
    message.extend_from_slice(cwd);
    message.extend_from_slice(format!(": {error}\n").as_bytes());
    SpawnError::NoWorkingDir(Box::new(ExitReport {
        process: ProcessId { pid: 0, started: 0 },
        code: 126,
        cause: ExitCause::NoWorkingDir,
        output_bytes: message.len() as u64,
        head: ByteBuf::from(message),
        tail: ByteBuf::new(),
        spool_path: None,
        stderr: ByteBuf::new(),
        cwd: ByteBuf::from(session.state.borrow().cwd.clone()),
        tree: TreeStatus::Gone,
        quarantined: Vec::new(),
    }))
}
