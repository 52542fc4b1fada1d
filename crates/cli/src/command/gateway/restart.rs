//! Restart in place: replaces the process by a new one of the same program.

use std::fs;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;
use std::thread;

use rustix::process::{Pid, WaitOptions, waitpid};

/// Replaces this process by the same program with the same arguments; returns only on failure.
/// All locks are released, because no file is inherited.
pub(super) fn exec_self() -> io::Error {
    let program = match std::env::current_exe() {
        Ok(program) => program,
        Err(error) => return error,
    };
    #[expect(clippy::disallowed_methods, reason = "restarts this program")]
    let mut command = Command::new(current_path(program));
    command.args(std::env::args_os().skip(1)).exec()
}

/// Reaps children inherited across `exec`, which would otherwise remain zombies.
pub(super) fn reap_inherited() {
    let pid = std::process::id();
    let listed = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    let children: Vec<Pid> =
        listed.split_whitespace().filter_map(|child| Pid::from_raw(child.parse().ok()?)).collect();
    if children.is_empty() {
        return;
    }
    let reaper = thread::Builder::new().name("hermes-reaper".to_owned()).spawn(move || {
        for child in children {
            if let Err(error) = waitpid(Some(child), WaitOptions::empty()) {
                tracing::debug!(%error, "inherited child was reaped elsewhere");
            }
        }
    });
    if let Err(error) = reaper {
        tracing::warn!(%error, "cannot reap inherited children");
    }
}

/// The path of the program, or of the file that replaced it since it was started.
fn current_path(program: PathBuf) -> PathBuf {
    let replaced = program.to_str().and_then(|path| path.strip_suffix(" (deleted)")).map(PathBuf::from);
    replaced.filter(|_| !program.exists()).unwrap_or(program)
}
