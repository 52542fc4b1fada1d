//! Python programs: private directory, environment, and the socket that leads to the host.
//!
//! All files of a program are in one private directory below that of the guest. The guest creates
//! and removes it, so nothing is left when the host dies; the next guest removes the directories of
//! a guest that was killed.

use std::cell::RefCell;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use hermes_guest::protocol::limit;
use hermes_guest::protocol::message::{
    FailedOperation, OutputDelivery, Program, PythonInterpreter, Rejection, RunMode, RunRequest,
    SOCKET_VARIABLE, WorkingDir,
};
use hermes_guest::protocol::mux::Mux;
use hermes_types::removal;
use tokio_util::task::AbortOnDropHandle;

use super::spawn::{self, EnteredView, RunningProgram, SpawnError, StateScope};
use crate::guest::Guest;
use crate::process::launch::LaunchSpec;
use crate::process::os_error;
use crate::process::table::NewProcess;
use crate::session::ShellSession;
use crate::shell;
use crate::shell::state::{self, ByteMap};
use crate::tunnel;

const DIR_PREFIX: &str = "code-";
/// Runs first and starts the script.
const START_SCRIPT: &str = include_str!("start.py");
/// Variables of the session that select the active Python.
const ACTIVE_PYTHON_VARS: [&str; 4] = ["PATH", "VIRTUAL_ENV", "CONDA_PREFIX", "CONDA_DEFAULT_ENV"];

#[derive(Debug)]
pub(super) struct PythonDir {
    path: PathBuf,
    forwarder: RefCell<Option<AbortOnDropHandle<()>>>,
}

impl PythonDir {
    fn create(run_dir: &Path) -> io::Result<Self> {
        for number in 0_u64.. {
            let path = run_dir.join(format!("{DIR_PREFIX}{number}"));
            match fs::DirBuilder::new().mode(0o700).create(&path) {
                // In use by another program, or created by a command.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                made => return made.map(|()| Self { path, forwarder: RefCell::default() }),
            }
        }
        Err(io::ErrorKind::AlreadyExists.into())
    }

    /// Closes all connections and removes all files. Call it after the program and its descendants
    /// are gone.
    pub(super) async fn remove(&self) {
        let forwarder = self.forwarder.borrow_mut().take();
        if let Some(forwarder) = forwarder {
            forwarder.abort();
            // The error is the cancellation.
            drop(forwarder.await);
        }
        let path = self.path.clone();
        // The next guest removes leftovers.
        drop(tokio::task::spawn_blocking(move || removal::remove_dir(&path)).await);
    }
}

/// Removes directories of programs that no longer run.
pub(crate) fn remove_leftover_dirs(run_dir: &Path) {
    for record in fs::read_dir(run_dir).into_iter().flatten().flatten() {
        if record.file_name().as_bytes().starts_with(DIR_PREFIX.as_bytes()) {
            removal::remove_dir(&record.path()).ok();
        }
    }
}

pub(super) async fn spawn_python(
    guest: &Rc<Guest>,
    mux: &Mux,
    session: Rc<ShellSession>,
    run: RunRequest,
    entered: EnteredView,
) -> Result<RunningProgram, SpawnError> {
    let Program::Python(python) = run.program else { return Err(Rejection::Malformed.into()) };
    if !matches!(run.mode, RunMode::Foreground { output: OutputDelivery::Summary, .. })
        || run.terminal.is_some()
    {
        return Err(Rejection::Malformed.into());
    }
    let mut env = python_env(guest, &session, python.interpreter);
    let mut interpreters = find_interpreters(&env).into_iter().map(|path| path.into_os_string().into_vec());
    let interpreter = interpreters.next().ok_or(Rejection::NoPython)?;
    let python_dir = PythonDir::create(&guest.table.work_dir).map_err(os_error(FailedOperation::Prepare))?;
    let python_dir = Rc::new(python_dir);
    let launched = async {
        let cwd = match run.workdir {
            WorkingDir::Private => {
                let work = python_dir.path.join("work");
                fs::create_dir(&work).map_err(os_error(FailedOperation::Prepare))?;
                work.into_os_string().into_vec()
            }
            workdir => spawn::working_dir(&session, &workdir)?.0,
        };
        let dir = spawn::open_dir(&cwd)
            .map_err(|error| spawn::missing_dir(&session, &cwd, StateScope::AllButDirectory, &error))?;
        let (name, text) = &python.module;
        let mut module = name.to_vec();
        module.extend_from_slice(b".py");
        let write = |name: &[u8], text: &[u8]| {
            let path = python_dir.path.join(OsStr::from_bytes(name));
            fs::write(&path, text).map_err(os_error(FailedOperation::Prepare)).map(|()| path)
        };
        write(b"script.py", &python.script)?;
        write(&module, text)?;
        let start = write(b"start.py", START_SCRIPT.as_bytes())?;
        let socket = python_dir.path.join("calls");
        *python_dir.forwarder.borrow_mut() =
            Some(tunnel::forward_socket(guest, mux, python.listener, &python_dir.path, "calls")?);
        env.extend(state::byte_pairs(run.env));
        let dir_path = python_dir.path.clone().into_os_string().into_vec();
        let own_vars = [
            ("PWD", cwd.clone()),
            ("PYTHONDONTWRITEBYTECODE", b"1".to_vec()),
            ("PYTHONIOENCODING", b"utf-8".to_vec()),
            ("PYTHONUTF8", b"1".to_vec()),
            ("PYTHONPATH", dir_path),
            (SOCKET_VARIABLE, socket.into_os_string().into_vec()),
        ];
        env.extend(own_vars.map(|(name, value)| (name.as_bytes().to_vec(), value)));
        let argv: Vec<Vec<u8>> = [interpreter.clone(), start.into_os_string().into_vec()]
            .into_iter()
            .chain(interpreters)
            .collect();
        let spec = LaunchSpec {
            program: &interpreter,
            argv: &argv,
            env: &env,
            dir,
            cwd: &cwd,
            view: entered.view,
            inherited: Vec::new(),
            stdin: run.stdin,
            terminal: None,
            stderr_bytes: Some(
                usize::try_from(python.stderr_bytes).unwrap_or(limit::MAX_MEMORY_OUTPUT_BYTES),
            ),
        };
        let record = NewProcess {
            session: run.session,
            command: python.script.into_vec(),
            cwd: cwd.clone(),
            mode: run.mode,
            memory_bytes: run.memory_bytes,
            spool_bytes: run.spool_bytes,
        };
        Ok(guest.table.start(spec, record, entered.run)?)
    }
    .await;
    match launched {
        Ok(process) => Ok(RunningProgram { process, session, shell: None, python_dir: Some(python_dir) }),
        Err(stop) => {
            python_dir.remove().await;
            Err(stop)
        }
    }
}

/// Variables of the environment and of the host, but not those that commands exported. If the
/// session's Python is used, also the variables that select it.
fn python_env(guest: &Guest, session: &ShellSession, interpreter: PythonInterpreter) -> ByteMap {
    let mut env = guest.base_env.clone();
    env.extend(session.host_env());
    if interpreter == PythonInterpreter::Session {
        let state = session.state.borrow();
        let active = ACTIVE_PYTHON_VARS.iter().filter_map(|name| state.env.get_key_value(name.as_bytes()));
        env.extend(active.map(|(name, value)| (name.clone(), value.clone())));
    }
    env
}

/// The available interpreters, best first.
fn find_interpreters(env: &ByteMap) -> Vec<PathBuf> {
    let value = |name: &str| env.get(name.as_bytes()).map(Vec::as_slice);
    let active = ["VIRTUAL_ENV", "CONDA_PREFIX"].into_iter().filter_map(value);
    let active = active.map(|dir| PathBuf::from(OsStr::from_bytes(dir)).join("bin/python"));
    let active = active.filter(|path| path.is_absolute() && shell::is_executable(path));
    let found = ["python3", "python"].into_iter().filter_map(|name| shell::find_program(name, value("PATH")));
    let mut all: Vec<PathBuf> = active.collect();
    all.extend(found);
    all.dedup();
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_directories_of_a_killed_guest_are_removed() {
        let run_dir = tempfile::tempdir().unwrap();
        let (first, second) =
            (PythonDir::create(run_dir.path()).unwrap(), PythonDir::create(run_dir.path()).unwrap());
        assert_ne!(first.path, second.path);
        fs::create_dir_all(first.path.join("work/deep")).unwrap();
        fs::set_permissions(&second.path, std::os::unix::fs::PermissionsExt::from_mode(0o000)).unwrap();
        fs::write(run_dir.path().join("sock"), "").unwrap();
        remove_leftover_dirs(run_dir.path());
        let left: Vec<_> =
            fs::read_dir(run_dir.path()).unwrap().map(|record| record.unwrap().file_name()).collect();
        assert_eq!(left, ["sock"]);
    }

    #[test]
    fn an_active_environment_comes_before_the_path_and_missing_ones_are_skipped() {
        let place = tempfile::tempdir().unwrap();
        let make = |path: &str| {
            let path = place.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, "#!").unwrap();
            fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
            path
        };
        let env = |pairs: &[(&str, &str)]| -> ByteMap {
            let in_place = |dir: &str| place.path().join(dir).into_os_string().into_vec();
            pairs.iter().map(|(name, dir)| (name.as_bytes().to_vec(), in_place(dir))).collect()
        };
        let all = [("VIRTUAL_ENV", "venv"), ("CONDA_PREFIX", "conda"), ("PATH", "bin")];
        assert_eq!(find_interpreters(&env(&all)), Vec::<PathBuf>::new());
        let conda = make("conda/bin/python");
        let path = make("bin/python3");
        assert_eq!(find_interpreters(&env(&all)), [conda.clone(), path.clone()]);
        let venv = make("venv/bin/python");
        assert_eq!(find_interpreters(&env(&all)), [venv, conda, path.clone()]);
        let old = make("bin/python");
        assert_eq!(find_interpreters(&env(&[("PATH", "bin")])), [path, old]);
    }
}
