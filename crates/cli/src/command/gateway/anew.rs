//! Starting anew: the process becomes a new one of the same program, and whoever asked for it is told.

use std::fs;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

use hermes_gateway::{Chat, ChatAddress};
use hermes_store::Store;
use hermes_types::Timestamp;
use rustix::process::{Pid, WaitOptions, waitpid};
use serde::{Deserialize, Serialize};

use hermes_config::failure::Failure;
use hermes_config::resolve::store::told;

/// Who is to be told when it is done.
const FILE: &str = "gateway_restart.json";

#[derive(Serialize, Deserialize)]
struct Asked {
    platform: hermes_gateway::Platform,
    chat: String,
    /// The message that asked.
    message: String,
}

/// Notes who asked, before anything is ended.
pub(crate) fn note(home: &Path, room: &Chat, message: &str) -> io::Result<()> {
    let asked = Asked { platform: room.platform, chat: room.id.clone(), message: message.to_owned() };
    let whole = home.join(format!("{FILE}.new"));
    fs::write(&whole, serde_json::to_vec(&asked)?)?;
    fs::rename(whole, home.join(FILE))
}

/// Tells whoever asked that it is done. Nobody is told twice, whatever happens in between.
pub(super) async fn tell(home: &Path, store: &Store) -> Result<(), Failure> {
    let path = home.join(FILE);
    let Ok(text) = fs::read(&path) else { return Ok(()) };
    match serde_json::from_slice::<Asked>(&text) {
        Ok(Asked { platform, chat, message }) => {
            let address = ChatAddress { platform, chat };
            let mark = format!("restarted:{}:{message}", platform.as_str());
            let parts = address.outbox_parts("back again", &mark);
            store.reply(Vec::new(), parts, Timestamp::now()).await.map_err(told)?;
        }
        Err(error) => tracing::warn!(%error, "whoever asked for a restart cannot be told of it"),
    }
    Ok(fs::remove_file(path)?)
}

/// Becomes a new process of the same program, with the same words; only a failure comes back. All locks of this one are free
/// then, since no file is handed on.
pub(super) fn start() -> io::Error {
    let program = match std::env::current_exe() {
        Ok(program) => program,
        Err(error) => return error,
    };
    #[expect(clippy::disallowed_methods, reason = "this program, anew")]
    let mut command = Command::new(in_place(program));
    command.args(std::env::args_os().skip(1)).exec()
}

/// Takes note of the ends of what this process had started before it became a new one. Nobody else does, and what nobody takes note of
/// is never quite gone.
pub(super) fn adopt() {
    let pid = std::process::id();
    let listed = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    let children: Vec<Pid> =
        listed.split_whitespace().filter_map(|child| Pid::from_raw(child.parse().ok()?)).collect();
    if children.is_empty() {
        return;
    }
    let waiter = thread::Builder::new().name("hermes-adopted".to_owned()).spawn(move || {
        for child in children {
            if let Err(error) = waitpid(Some(child), WaitOptions::empty()) {
                tracing::debug!(%error, "somebody else took note of an end");
            }
        }
    });
    if let Err(error) = waiter {
        tracing::warn!(%error, "nobody takes note of the ends of what was started before");
    }
}

/// The program, or what was put in its place since it was started.
fn in_place(program: PathBuf) -> PathBuf {
    let replaced = program.to_str().and_then(|path| path.strip_suffix(" (deleted)")).map(PathBuf::from);
    replaced.filter(|_| !program.exists()).unwrap_or(program)
}
