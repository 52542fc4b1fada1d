//! From a request to a running program: directory, environment, shell.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::rc::Rc;

use hermes_guest::protocol::limit;
use hermes_guest::protocol::message::{
    Cause, Counted, Delivery, Doing, Ended, Fault, Mode, ProcessId, Program, Run, Shell, StateFate,
    StateRule, Tree, Workdir,
};
use rustix::fs::{Access, AtFlags, CWD, Mode as FileMode, OFlags};
use serde_bytes::ByteBuf;

use super::python::Room;
use crate::files::place;
use crate::guest::Guest;
use crate::process::launch::{Plan, StandardError, memory};
use crate::process::table::Entry;
use crate::process::{Process, Role, os};
use crate::session::Session;
use crate::shell::state::State;
use crate::shell::{self, dump, script};

/// A program that runs, and what its end may change.
pub(super) struct Launched {
    pub(super) process: Rc<Process>,
    pub(super) session: Rc<Session>,
    start: State,
    shell: Option<ShellFiles>,
    reach: Reach,
    /// The directory of a Python program.
    pub(super) room: Option<Rc<Room>>,
}

/// Whether a `cd` in the command moves the session.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Reach {
    WholeSession,
    /// The command was sent elsewhere for once.
    AllButDirectory,
}

/// The files that a shell reads and writes; they stay open as long as the shell may want them.
struct ShellFiles {
    _script: OwnedFd,
    state: Option<OwnedFd>,
}

/// Why there is no running program.
pub(super) enum Stop {
    Fault(Fault),
    BadDirectory(Box<Ended>),
}

impl From<Fault> for Stop {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

pub(super) fn launch(guest: &Guest, session: Rc<Session>, run: Run) -> Result<Launched, Stop> {
    let mut start = session.state.borrow().clone();
    let (cwd, reach) = directory(&session, &run.workdir)?;
    start.cwd = cwd;
    let dir = open_dir(&start.cwd).map_err(|error| bad_directory(&session, &start.cwd, reach, &error))?;
    start.env.extend(run.env.into_iter().map(|(name, value)| (name.into_vec(), value.into_vec())));
    start.env.insert(b"PWD".to_vec(), start.cwd.clone());
    let state_rule = match run.mode {
        Mode::Foreground { state, .. } => state,
        Mode::Background { .. } => StateRule::Leave,
    };
    let keep = match run.mode {
        // What the reader has not taken yet is in memory, however little it wants to be kept.
        Mode::Foreground { output: Delivery::Live, .. } => limit::KEEP,
        _ => usize::try_from(run.keep).unwrap_or(usize::MAX),
    };
    let (role, patterns) = match run.mode {
        Mode::Foreground { .. } => (Role::Foreground, Vec::new()),
        Mode::Background { watch, .. } if watch.len() > limit::PATTERNS => {
            return Err(Fault::TooMany { what: Counted::Patterns, limit: limit::PATTERNS as u64 }.into());
        }
        Mode::Background { label, watch, at_end } => (Role::Background { label, at_end }, watch),
    };
    let (program, argv, command, shell) = match run.program {
        Program::Argv(argv) => {
            let argv: Vec<Vec<u8>> = argv.into_iter().map(ByteBuf::into_vec).collect();
            let command = argv.join(&b' ');
            (argv.first().cloned().unwrap_or_default(), argv, command, None)
        }
        Program::Shell(command) => {
            let (program, argv, files) = shell_words(&start, &command, state_rule)?;
            (program, argv, command.into_vec(), Some(files))
        }
        Program::Python(_) => return Err(Fault::Malformed.into()),
    };
    let plan = Plan {
        program: &program,
        argv: &argv,
        env: &start.env,
        dir,
        stdin: run.stdin,
        terminal: run.terminal,
        errors: StandardError::Output,
    };
    let entry = Entry {
        session: run.session,
        command,
        cwd: start.cwd.clone(),
        role,
        patterns,
        keep,
        spool: run.spool,
    };
    let process = guest.table.start(plan, entry)?;
    Ok(Launched { process, session, start, shell, reach, room: None })
}

/// Where a program runs, and whether the session moves with it.
pub(super) fn directory(session: &Session, workdir: &Workdir) -> Result<(Vec<u8>, Reach), Fault> {
    let state = session.state.borrow();
    match workdir {
        Workdir::Session => Ok((state.cwd.clone(), Reach::WholeSession)),
        Workdir::SessionAt(expected) if **expected == state.cwd => {
            Ok((state.cwd.clone(), Reach::WholeSession))
        }
        Workdir::SessionAt(_) => Err(Fault::Moved),
        Workdir::Other(workdir) => {
            let cwd = place::resolve(workdir, Some(&state)).map_err(Fault::File)?;
            Ok((cwd, Reach::AllButDirectory))
        }
        Workdir::Private => Err(Fault::Malformed),
    }
}

impl Launched {
    /// A Python program, which changes nothing in its session.
    pub(super) fn python(process: Rc<Process>, session: Rc<Session>, room: Rc<Room>) -> Self {
        let start = session.state.borrow().clone();
        Self { process, session, start, shell: None, reach: Reach::AllButDirectory, room: Some(room) }
    }

    /// Puts what the command changed into its session, and says what became of it.
    pub(super) fn settle(&self) -> StateFate {
        self.settle_all_but(|_| false)
    }

    /// Leaves the variables out that `withheld` knows.
    pub(super) fn settle_all_but(&self, withheld: impl Fn(&[u8]) -> bool) -> StateFate {
        let Some(file) = self.shell.as_ref().and_then(|files| files.state.as_ref()) else {
            return StateFate::Left;
        };
        let Some(mut after) = read_state(file).and_then(|dump| dump::read(&dump)) else {
            return StateFate::Lost;
        };
        if !self.start.functions.contains_key(script::OUR_FUNCTION) {
            after.functions.remove(script::OUR_FUNCTION);
        }
        let left_alone =
            |name: &[u8]| withheld(name) || (self.reach == Reach::AllButDirectory && name == b"OLDPWD");
        after.env.retain(|name, _| !left_alone(name));
        let kept = self.start.env.iter().filter(|(name, _)| left_alone(name));
        after.env.extend(kept.map(|(name, value)| (name.clone(), value.clone())));
        if self.reach == Reach::AllButDirectory {
            after.cwd.clone_from(&self.start.cwd);
        }
        self.session.state.borrow_mut().apply(self.start.delta(&after));
        StateFate::Applied
    }

    pub(super) fn session_cwd(&self) -> Vec<u8> {
        self.session.state.borrow().cwd.clone()
    }
}

/// What the shell wrote, unless it is more than anyone's state.
fn read_state(file: &OwnedFd) -> Option<Vec<u8>> {
    let file = File::from(file.try_clone().ok()?);
    let length = usize::try_from(file.metadata().ok()?.len()).ok()?;
    if length > limit::STATE {
        return None;
    }
    let mut dump = vec![0; length];
    file.read_exact_at(&mut dump, 0).ok()?;
    Some(dump)
}

/// Path, arguments and files of a shell.
type ShellWords = (Vec<u8>, Vec<Vec<u8>>, ShellFiles);

/// The arguments that make a shell run this text, and the files it needs for that.
fn shell_words(start: &State, command: &[u8], rule: StateRule) -> Result<ShellWords, Fault> {
    if command.contains(&0) {
        return Err(Fault::Malformed);
    }
    let search_path = start.env.get(b"PATH".as_slice()).map(Vec::as_slice);
    let shell = shell::find(search_path).ok_or(Fault::NoShell)?;
    let prepared = |result: io::Result<OwnedFd>| result.map_err(|error| os(Doing::Prepare, &error));
    let script = prepared(memory("script", b""))?;
    let state = match rule {
        StateRule::Keep => Some(prepared(memory("state", b""))?),
        StateRule::Leave => None,
    };
    let files = script::Files { script: script.as_fd(), state: state.as_ref().map(AsFd::as_fd) };
    let (path, words, argument, text): (_, &[&str], _, _) = match shell {
        Shell::Bash(path) => {
            let words = ["bash", "--noprofile", "--norc", "-c"].as_slice();
            (path, words, script::bash_argument(&files), script::bash(start, &files, command))
        }
        Shell::Sh(path) => {
            (path, ["sh", "-c"].as_slice(), script::sh_argument(&files), script::sh(&files, command))
        }
    };
    let written = script.try_clone().map(File::from).and_then(|file| file.write_all_at(&text, 0));
    written.map_err(|error| os(Doing::Prepare, &error))?;
    let words = words.iter().map(|word| word.as_bytes().to_vec());
    let argv = words.chain([argument.into_bytes()]).collect();
    Ok((path.into_vec(), argv, ShellFiles { _script: script, state }))
}

pub(super) fn open_dir(path: &[u8]) -> io::Result<OwnedFd> {
    let path = Path::new(OsStr::from_bytes(path));
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let dir = rustix::fs::openat(CWD, path, flags, FileMode::empty())?;
    rustix::fs::accessat(CWD, path, Access::EXEC_OK, AtFlags::EACCESS)?;
    Ok(dir)
}

/// The program never ran. A session whose own directory is gone moves up to what is left of it, so that the next
/// command finds a place; this one does not run there, because it was meant for another.
pub(super) fn bad_directory(session: &Session, cwd: &[u8], reach: Reach, error: &io::Error) -> Stop {
    if reach == Reach::WholeSession {
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
    Stop::BadDirectory(Box::new(Ended {
        process: ProcessId { pid: 0, started: 0 },
        code: 126,
        cause: Cause::BadDirectory,
        total: message.len() as u64,
        head: ByteBuf::from(message),
        tail: ByteBuf::new(),
        spool: None,
        errors: ByteBuf::new(),
        cwd: ByteBuf::from(session.state.borrow().cwd.clone()),
        state: StateFate::Left,
        tree: Tree::Gone,
    }))
}
