//! Sources the init files of a session before its first command.
//!
//! Each file is sourced by its own bash, which starts with the state that the previous files left:
//! a file that exits, fails or execs another program does not affect the others.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::rc::Rc;

use hermes_guest::protocol::guard::RunConfinement;
use hermes_guest::protocol::limit;
use hermes_guest::protocol::message::{
    ExitCause, OutputDelivery, Program, RunMode, RunRequest, StatePolicy, Stdin, WorkingDir,
};
use hermes_types::text::shell_quote_bytes;
use serde_bytes::ByteBuf;
use tokio::time::{Instant, timeout_at};

use super::spawn::{self, EnteredView};
use crate::guest::Guest;
use crate::process::GuestProcess;
use crate::session::ShellSession;
use crate::shell::{self, Shell};

/// Returns when the session is initialized. The first caller sources the files, the others wait.
pub(crate) async fn ensure_initialized(guest: &Guest, session: &Rc<ShellSession>) {
    let initialize = async || {
        source_files(guest, session).await;
        session.set_new_state();
    };
    session.initialized.get_or_init(initialize).await;
}

async fn source_files(guest: &Guest, session: &Rc<ShellSession>) {
    let search_path = session.state.borrow().env.get(b"PATH".as_slice()).cloned();
    if !matches!(shell::find_shell(search_path.as_deref()), Some(Shell::Bash(_))) {
        return;
    }
    let deadline = Instant::now() + limit::INIT_TIMEOUT;
    let existing = session.init_files.iter().filter(|file| Path::new(OsStr::from_bytes(file)).is_file());
    for file in existing {
        if Instant::now() >= deadline {
            return;
        }
        source_file(guest, session, file, deadline).await;
    }
}

/// Sources one file. A file that exceeds the deadline has no effect.
async fn source_file(guest: &Guest, session: &Rc<ShellSession>, file: &[u8], deadline: Instant) {
    let cwd = session.state.borrow().cwd.clone();
    let cwd = if Path::new(OsStr::from_bytes(&cwd)).is_dir() { cwd } else { b"/".to_vec() };
    let mut text = b"\\builtin . ".to_vec();
    text.extend(shell_quote_bytes(file));
    // An EXIT trap of the file must not run now.
    text.extend_from_slice(b"; trap - EXIT");
    let run = RunRequest {
        session: session.key.clone(),
        program: Program::Shell(ByteBuf::from(text)),
        workdir: WorkingDir::Other(ByteBuf::from(cwd)),
        judged_shell: None,
        env: Vec::new(),
        stdin: Stdin::Null,
        terminal: None,
        deadline: None,
        mode: RunMode::Foreground { output: OutputDelivery::Summary, state: StatePolicy::Apply },
        memory_bytes: 0,
        spool_bytes: 0,
        confinement: RunConfinement::None,
    };
    // The session works without its init files.
    let Ok(running) = spawn::spawn_program(guest, session.clone(), run, EnteredView::default()) else {
        return;
    };
    let process = running.process.clone();
    if timeout_at(deadline, process.wait_until(GuestProcess::has_exited)).await.is_ok() {
        running
            .apply_state(|name| session.protected_env.iter().any(|pattern| pattern_matches(pattern, name)));
    }
    // A leftover process would keep the environment from becoming idle.
    process.kill(ExitCause::Deadline).await;
    guest.table.forget(process.id);
}

/// Whether a pattern, which may end in `*`, matches a name.
fn pattern_matches(pattern: &[u8], name: &[u8]) -> bool {
    match pattern.strip_suffix(b"*") {
        Some(start) => name.get(..start.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(start)),
        None => name.eq_ignore_ascii_case(pattern),
    }
}
