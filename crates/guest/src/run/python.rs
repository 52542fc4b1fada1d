//! Python programs: their private directory, their environment, and the socket that leads to their host.
//!
//! All files of a program are in one directory below the guest's own, which nobody else may enter. The guest makes it
//! and removes it, so nothing is left when the host dies, and a guest that was killed itself has a successor that
//! sweeps.

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
    Delivery, Doing, Fault, Interpreter, Mode, Python, Run, SOCKET_VARIABLE, Workdir,
};
use hermes_guest::protocol::mux::Mux;
use hermes_guest::removal;

use super::prepare::{self, Launched, Reach, Stop};
use crate::guest::Guest;
use crate::process::launch::{Plan, StandardError};
use crate::process::table::Entry;
use crate::process::{Role, os};
use crate::session::Session;
use crate::shell;
use crate::shell::state::Map;
use crate::tunnel::{self, Carrier};

/// How the names of the directories begin.
const PREFIX: &str = "code-";
/// What Python reads first.
const START: &str = include_str!("start.py");
/// Variables of the session that say which Python is active there.
const ACTIVE: [&str; 4] = ["PATH", "VIRTUAL_ENV", "CONDA_PREFIX", "CONDA_DEFAULT_ENV"];

/// The directory of one program, with its socket.
#[derive(Debug)]
pub(super) struct Room {
    path: PathBuf,
    carrier: RefCell<Option<Carrier>>,
}

impl Room {
    fn make(run_dir: &Path) -> io::Result<Self> {
        for number in 0_u64.. {
            let path = run_dir.join(format!("{PREFIX}{number}"));
            match fs::DirBuilder::new().mode(0o700).create(&path) {
                // That of another program, or of one who guessed.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                made => return made.map(|()| Self { path, carrier: RefCell::default() }),
            }
        }
        Err(io::ErrorKind::AlreadyExists.into())
    }

    fn write(&self, name: &OsStr, content: &[u8]) -> io::Result<PathBuf> {
        let path = self.path.join(name);
        fs::write(&path, content)?;
        Ok(path)
    }

    /// Cuts every connection and removes every file. For when nothing of the program runs any more.
    pub(super) async fn close(&self) {
        let carrier = self.carrier.borrow_mut().take();
        if let Some(carrier) = carrier {
            carrier.cut().await;
        }
        let path = self.path.clone();
        // What cannot be removed is swept away by the next guest.
        drop(tokio::task::spawn_blocking(move || removal::remove(&path)).await);
    }
}

/// Removes the directories of programs that are gone.
pub(crate) fn sweep(run_dir: &Path) {
    for entry in fs::read_dir(run_dir).into_iter().flatten().flatten() {
        if entry.file_name().as_bytes().starts_with(PREFIX.as_bytes()) {
            removal::remove(&entry.path()).ok();
        }
    }
}

/// Starts a Python program.
pub(super) async fn launch(
    guest: &Rc<Guest>,
    mux: &Mux,
    session: Rc<Session>,
    run: Run,
    python: Python,
) -> Result<Launched, Stop> {
    if !matches!(run.mode, Mode::Foreground { output: Delivery::Summary, .. }) || run.terminal.is_some() {
        return Err(Fault::Malformed.into());
    }
    let mut env = environment(guest, &session, python.interpreter);
    let mut interpreters = interpreters(&env).into_iter().map(|path| path.into_os_string().into_vec());
    let interpreter = interpreters.next().ok_or(Fault::NoPython)?;
    let prepared = |error: &io::Error| Stop::Fault(os(Doing::Prepare, error));
    let room = Rc::new(Room::make(guest.table.dir()).map_err(|error| prepared(&error))?);
    let launched = async {
        let cwd = match run.workdir {
            Workdir::Private => {
                let work = room.path.join("work");
                fs::create_dir(&work).map_err(|error| prepared(&error))?;
                work.into_os_string().into_vec()
            }
            workdir => prepare::directory(&session, &workdir)?.0,
        };
        let dir = prepare::open_dir(&cwd)
            .map_err(|error| prepare::bad_directory(&session, &cwd, Reach::AllButDirectory, &error))?;
        let (name, text) = &python.module;
        let mut module = name.to_vec();
        module.extend_from_slice(b".py");
        let write = |name: &[u8], text: &[u8]| {
            room.write(OsStr::from_bytes(name), text).map_err(|error| prepared(&error))
        };
        write(b"script.py", &python.script)?;
        write(&module, text)?;
        let start = write(b"start.py", START.as_bytes())?;
        let socket = room.path.join("calls");
        *room.carrier.borrow_mut() = Some(tunnel::carry_all(guest, mux, python.number, &room.path, "calls")?);
        env.extend(run.env.into_iter().map(|(name, value)| (name.into_vec(), value.into_vec())));
        let here = room.path.clone().into_os_string().into_vec();
        let ours = [
            ("PWD", cwd.clone()),
            ("PYTHONDONTWRITEBYTECODE", b"1".to_vec()),
            ("PYTHONIOENCODING", b"utf-8".to_vec()),
            ("PYTHONUTF8", b"1".to_vec()),
            ("PYTHONPATH", here),
            (SOCKET_VARIABLE, socket.into_os_string().into_vec()),
        ];
        env.extend(ours.map(|(name, value)| (name.as_bytes().to_vec(), value)));
        let argv: Vec<Vec<u8>> = [interpreter.clone(), start.into_os_string().into_vec()]
            .into_iter()
            .chain(interpreters)
            .collect();
        let plan = Plan {
            program: &interpreter,
            argv: &argv,
            env: &env,
            dir,
            stdin: run.stdin,
            terminal: None,
            errors: StandardError::Apart(usize::try_from(python.keep_errors).unwrap_or(limit::KEEP)),
        };
        let entry = Entry {
            session: run.session,
            command: python.script.into_vec(),
            cwd,
            role: Role::Foreground,
            patterns: Vec::new(),
            keep: usize::try_from(run.keep).unwrap_or(usize::MAX),
            spool: run.spool,
        };
        Ok(guest.table.start(plan, entry)?)
    }
    .await;
    match launched {
        Ok(process) => Ok(Launched::python(process, session, room)),
        Err(stop) => {
            room.close().await;
            Err(stop)
        }
    }
}

/// The variables of the place and those that the host gave, not what commands of the session have exported; but if the
/// session has a Python of its own, also what tells where that is.
fn environment(guest: &Guest, session: &Session, interpreter: Interpreter) -> Map {
    let base = guest.base_env.iter().map(|(name, value)| (name.to_vec(), value.to_vec()));
    let mut env: Map = base.chain(session.given()).collect();
    if interpreter == Interpreter::Session {
        let state = session.state.borrow();
        let active = ACTIVE.iter().filter_map(|name| state.env.get_key_value(name.as_bytes()));
        env.extend(active.map(|(name, value)| (name.clone(), value.clone())));
    }
    env
}

/// The interpreters there are, best first.
fn interpreters(env: &Map) -> Vec<PathBuf> {
    let value = |name: &str| env.get(name.as_bytes()).map(Vec::as_slice);
    let active = ["VIRTUAL_ENV", "CONDA_PREFIX"].into_iter().filter_map(value);
    let active = active.map(|dir| PathBuf::from(OsStr::from_bytes(dir)).join("bin/python"));
    let active = active.filter(|path| path.is_absolute() && shell::runs(path));
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
    fn what_a_guest_that_was_killed_left_is_swept_away_and_nothing_else() {
        let run_dir = tempfile::tempdir().unwrap();
        let (first, second) = (Room::make(run_dir.path()).unwrap(), Room::make(run_dir.path()).unwrap());
        assert_ne!(first.path, second.path);
        fs::create_dir_all(first.path.join("work/deep")).unwrap();
        fs::set_permissions(&second.path, std::os::unix::fs::PermissionsExt::from_mode(0o000)).unwrap();
        fs::write(run_dir.path().join("sock"), "").unwrap();
        sweep(run_dir.path());
        let left: Vec<_> =
            fs::read_dir(run_dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left, ["sock"]);
    }

    #[test]
    fn an_active_environment_comes_before_the_path_and_what_is_not_there_is_passed_over() {
        let place = tempfile::tempdir().unwrap();
        let make = |path: &str| {
            let path = place.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, "#!").unwrap();
            fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
            path
        };
        let env = |pairs: &[(&str, &str)]| -> Map {
            let in_place = |dir: &str| place.path().join(dir).into_os_string().into_vec();
            pairs.iter().map(|(name, dir)| (name.as_bytes().to_vec(), in_place(dir))).collect()
        };
        let all = [("VIRTUAL_ENV", "venv"), ("CONDA_PREFIX", "conda"), ("PATH", "bin")];
        assert_eq!(interpreters(&env(&all)), Vec::<PathBuf>::new());
        let conda = make("conda/bin/python");
        let path = make("bin/python3");
        assert_eq!(interpreters(&env(&all)), [conda.clone(), path.clone()]);
        let venv = make("venv/bin/python");
        assert_eq!(interpreters(&env(&all)), [venv, conda, path.clone()]);
        let old = make("bin/python");
        assert_eq!(interpreters(&env(&[("PATH", "bin")])), [path, old]);
    }
}
