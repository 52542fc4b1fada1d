//! This machine.
//!
//! | | |
//! |---|---|
//! | needs | nothing |
//! | confines | nothing: the gate asks |
//! | cleans up | the guest ends itself when it has been idle for the lifetime of the place |

use std::io::ErrorKind;
use std::process::Stdio;
use std::time::Duration;

use hermes_types::BackendName;
use serde::Serialize;
use tokio::net::UnixStream;
use tokio::process::Command;

use crate::registry::PlaceDir;
use crate::{Error, ResolvedPlace, embed};

/// How long the guest may take to be there.
const START_TIMEOUT: Duration = Duration::from_secs(10);

/// The settings of this backend.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct LocalBackend {
    /// `PATH`, `LANG`, `TERM`, `TZ`, `USER` and `SHELL` for commands. No part of the identity: the session is the same
    /// in every terminal.
    #[serde(skip)]
    pub base_env: Vec<(String, String)>,
}

impl LocalBackend {
    pub(super) async fn create(&self, plan: &ResolvedPlace, room: &PlaceDir) -> Result<UnixStream, Error> {
        let unavailable = |reason: String| Error::Unavailable { backend: BackendName::Local, reason };
        let guest = embed::install_guest(&plan.installation.cache_dir)?;
        #[expect(clippy::disallowed_methods, reason = "the guest is what a place is made of")]
        let mut command = Command::from(std::process::Command::new(&guest));
        command
            .arg("serve")
            .arg("--socket")
            .arg(room.socket())
            .args(["--idle", &plan.spec.lifetime.as_secs().to_string()])
            .arg("--room")
            .arg(room.path())
            .env_clear()
            .envs(self.base_env.iter().map(|(name, value)| (name, value)))
            .env("HOME", &plan.spec.home)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        // It goes on by itself; what we start only ends when the guest can be reached.
        let start = async {
            loop {
                match command.output().await {
                    // Another thread that forked while the file was written still holds it open, for a moment.
                    Err(error) if error.kind() == ErrorKind::ExecutableFileBusy => {
                        tokio::time::sleep(Duration::from_millis(5)).await;
                    }
                    result => return result,
                }
            }
        };
        let started = tokio::time::timeout(START_TIMEOUT, start).await;
        let output = started
            .map_err(|_elapsed| unavailable(format!("its guest was not there after {START_TIMEOUT:?}")))?
            .map_err(|error| unavailable(format!("its guest cannot be started: {error}")))?;
        // A hermes that was killed while it made this place may have left a guest that was only starting: it came
        // first, and is as good.
        let stream = room.connect().await;
        if output.status.success() || stream.is_ok() {
            return stream.map_err(Error::file(&room.socket()));
        }
        Err(unavailable(String::from_utf8_lossy(&output.stderr).trim().to_owned()))
    }
}
