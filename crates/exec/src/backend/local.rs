//! This machine. Commands without approval run under the guard.
//!
//! | | |
//! |---|---|
//! | needs | nothing |
//! | confines | credentials, sockets and start-up files (`guard.rs`); the gate asks before dangerous commands |
//! | cleans up | the guest exits when the place has been idle for its lifetime |

use std::io::ErrorKind;
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use hermes_guest::protocol::guard::WORK_DIR;
use hermes_types::{BackendName, Guard};
use serde::Serialize;
use tokio::net::UnixStream;
use tokio::process::Command;

use crate::registry::PlaceDir;
use crate::{Error, ResolvedPlace, embed};

const START_TIMEOUT: Duration = Duration::from_secs(10);

#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct LocalBackend {
    /// `PATH`, `LANG`, `TERM`, `TZ`, `USER` and `SHELL` for commands. Not part of the identity, so
    /// a session is the same in every terminal.
    #[serde(skip)]
    pub base_env: Vec<(String, String)>,
    pub guard: Guard,
}

/// Longer paths leave no room for the name of a socket.
const MAX_WORK_DIR_BYTES: usize = 75;

/// The guest's directory for output and Python programs.
pub(crate) fn work_dir(place: &ResolvedPlace) -> PathBuf {
    let storage = place.storage_dir();
    if storage.as_os_str().len() > MAX_WORK_DIR_BYTES {
        return PlaceDir::for_place(place).guest_dir().join(WORK_DIR);
    }
    storage
}

impl LocalBackend {
    pub(super) async fn create(&self, place: &ResolvedPlace, dir: &PlaceDir) -> Result<UnixStream, Error> {
        let unavailable = |reason: String| Error::Unavailable { backend: BackendName::Local, reason };
        let guest = embed::install_guest(&place.installation.cache_dir)?;
        #[expect(clippy::disallowed_methods, reason = "only the guest is started here")]
        let mut command = Command::from(std::process::Command::new(&guest));
        command
            .arg("serve")
            .arg("--socket")
            .arg(dir.socket())
            .args(["--idle", &place.spec.lifetime.as_secs().to_string()])
            .arg("--run-dir")
            .arg(dir.path())
            .arg("--work-dir")
            .arg(work_dir(place))
            .env_clear()
            .envs(self.base_env.iter().map(|(name, value)| (name, value)))
            .env("HOME", &place.spec.home)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        // The guest detaches itself; the process started here exits once the guest accepts
        // connections.
        let start = async {
            loop {
                match command.output().await {
                    // Another thread that forked during the write still holds the file open for a
                    // moment.
                    Err(error) if error.kind() == ErrorKind::ExecutableFileBusy => {
                        tokio::time::sleep(Duration::from_millis(5)).await;
                    }
                    result => return result,
                }
            }
        };
        let started = tokio::time::timeout(START_TIMEOUT, start).await;
        let output = started
            .map_err(|_elapsed| unavailable(format!("the guest did not start within {START_TIMEOUT:?}")))?
            .map_err(|error| unavailable(format!("cannot start the guest: {error}")))?;
        // A hermes that was killed while creating this place may have left a starting guest, which
        // is just as good.
        let stream = dir.connect().await;
        if output.status.success() || stream.is_ok() {
            return stream.map_err(Error::file(&dir.socket()));
        }
        Err(unavailable(String::from_utf8_lossy(&output.stderr).trim().to_owned()))
    }
}

/// Tries whether this machine allows the guard. The error is the reason why it does not. Blocks.
pub(crate) fn check_guard() -> Result<(), String> {
    let start_error = |error| format!("cannot start the guest: {error}");
    let guest = embed::guest_in_memory().map_err(start_error)?;
    let path = format!("/proc/{}/fd/{}", std::process::id(), guest.as_raw_fd());
    #[expect(clippy::disallowed_methods, reason = "only the guest is started here")]
    let mut command = std::process::Command::new(path);
    let output = command.args(["view", "--check"]).env_clear().stdin(Stdio::null()).output();
    let output = output.map_err(start_error)?;
    if output.status.success() {
        return Ok(());
    }
    let message = String::from_utf8_lossy(&output.stderr);
    Err(message.trim().trim_start_matches("hermes-guest: ").to_owned())
}
