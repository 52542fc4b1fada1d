//! The files that set a session up before its first command.
//!
//! Each is sourced by a bash of its own, which starts with what the files before it left: one that exits, fails or
//! becomes another program takes nothing from the others.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::rc::Rc;

use hermes_guest::protocol::limit;
use hermes_guest::protocol::message::{
    Cause, Delivery, Mode, Program, Run, Shell, StateRule, Stdin, Workdir,
};
use serde_bytes::ByteBuf;
use tokio::time::{Instant, timeout_at};

use super::prepare;
use crate::guest::Guest;
use crate::process::Process;
use crate::session::Session;
use crate::shell::{self, script};

/// Returns when the session can be used. Of all who ask, one sources the files and the others wait for it.
pub(crate) async fn ready(guest: &Guest, session: &Rc<Session>) {
    session.ready.get_or_init(|| source_all(guest, session)).await;
}

async fn source_all(guest: &Guest, session: &Rc<Session>) {
    let search_path = session.state.borrow().env.get(b"PATH".as_slice()).cloned();
    if !matches!(shell::find(search_path.as_deref()), Some(Shell::Bash(_))) {
        return;
    }
    let deadline = Instant::now() + limit::INIT;
    let there = session.init.iter().filter(|file| Path::new(OsStr::from_bytes(file)).is_file());
    for file in there {
        if Instant::now() >= deadline {
            return;
        }
        source(guest, session, file, deadline).await;
    }
}

/// Sources one file. One that is not done by the deadline changes nothing.
async fn source(guest: &Guest, session: &Rc<Session>, file: &[u8], deadline: Instant) {
    let cwd = session.state.borrow().cwd.clone();
    let cwd = if Path::new(OsStr::from_bytes(&cwd)).is_dir() { cwd } else { b"/".to_vec() };
    let mut text = b"\\builtin . ".to_vec();
    script::quote(&mut text, file);
    // What the file wants done when its shell ends is not meant for now.
    text.extend_from_slice(b"; trap - EXIT");
    let run = Run {
        session: session.key.clone(),
        program: Program::Shell(ByteBuf::from(text)),
        workdir: Workdir::Other(ByteBuf::from(cwd)),
        env: Vec::new(),
        stdin: Stdin::Null,
        terminal: None,
        deadline: None,
        mode: Mode::Foreground { output: Delivery::Summary, state: StateRule::Keep },
        keep: 0,
        spool: 0,
    };
    // A session without its files is better than none.
    let Ok(launched) = prepare::launch(guest, session.clone(), run) else { return };
    let process = launched.process.clone();
    if timeout_at(deadline, process.until(Process::has_exited)).await.is_ok() {
        launched.settle_all_but(|name| session.withheld.iter().any(|pattern| covers(pattern, name)));
    }
    // Whatever a file leaves running would keep the place from ever being idle.
    process.kill(Cause::Deadline).await;
    // It may have been pruned meanwhile, which comes to the same.
    drop(guest.table.forget(process.id));
}

/// Whether a pattern, which may end in `*`, stands for this name.
fn covers(pattern: &[u8], name: &[u8]) -> bool {
    match pattern.strip_suffix(b"*") {
        Some(start) => name.get(..start.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(start)),
        None => name.eq_ignore_ascii_case(pattern),
    }
}
