//! The built-in jail on this machine.
//!
//! | | |
//! |---|---|
//! | needs | user namespaces, Landlock and seccomp; no root, no daemon |
//! | confines | files, processes, system calls, network; resources where this machine can |
//! | cleans up | the guest is the first process of the jail; it exits when idle, which ends the jail |

use std::ffi::OsString;
use std::os::unix::net;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use hermes_sandbox::{Jail, JailLimits, JailStreams, Launcher, Lifetime, PreparedLauncher, RunningJail};
use hermes_types::{BackendName, MountAccess, Network, Reach};
use rustix::event::{PollFd, PollFlags, Timespec};
use serde::Serialize;
use tokio::net::UnixStream;
use tokio::task::{JoinHandle, spawn_blocking};

use super::bind::{self, BindMount};
use crate::registry::{PlaceDir, SOCKET_NAME, create_dirs, run_blocking};
use crate::{Error, ResolvedPlace, embed};

/// A program that creates jails calls this first.
pub use hermes_sandbox::helper_main;

/// Paths inside the jail.
const GUEST_PATH: &str = "/sandbox/guest";
const RUN_DIR: &str = "/sandbox/run";
pub const HOME_DIR: &str = "/sandbox/home";
/// The initial working directory inside the jail.
pub const WORKSPACE_DIR: &str = "/workspace";

/// The subdirectory of this backend below the directory of kept files.
pub const KEPT_SUBDIR: &str = "sandbox";

const START_TIMEOUT: Duration = Duration::from_secs(10);
/// Starting takes less than a millisecond, the smallest delay of the runtime's timer.
const POLL_INTERVAL: Duration = Duration::from_micros(50);

/// A launcher that is starting; dropping it ends the launcher.
pub(crate) type LauncherTask = JoinHandle<Result<PreparedLauncher, hermes_sandbox::Error>>;

/// The person whose commands run in a place.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Audience {
    /// The owner, whose tools in the owner's home are visible.
    #[default]
    Owner,
    /// Other people, who do not see the owner's home.
    Others,
}

impl Audience {
    fn is_owner(&self) -> bool {
        *self == Self::Owner
    }
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SandboxBackend {
    /// The program that creates jails; it calls `hermes_sandbox::helper_main` first.
    #[serde(skip)]
    pub helper: PathBuf,
    /// The host directory for kept files. With `None` the files are in the place directory and
    /// removed with it.
    pub files: Option<PathBuf>,
    /// The home of the owner, whose credentials are hidden.
    pub owner_home: PathBuf,
    #[serde(skip_serializing_if = "Audience::is_owner")]
    #[serde(rename = "works_for")]
    pub audience: Audience,
    pub binds: Vec<BindMount>,
    pub network: Network,
    pub limits: JailLimits,
    /// `PATH`, `LANG`, `TERM` and `TZ` for commands. Not part of the identity, so a session is the
    /// same in every terminal.
    #[serde(skip)]
    pub base_env: Vec<(String, String)>,
}

impl SandboxBackend {
    pub(super) fn reach(&self) -> Reach {
        // The host's own services listen on its loopback interface.
        if self.network == Network::Full {
            return Reach::Host;
        }
        bind::binds_reach(&self.binds)
    }

    /// What commands see of the owner's files: the mounts and, if they work for the owner, the home.
    pub(crate) fn shown_mounts(&self) -> Vec<BindMount> {
        let (source, target) = (self.owner_home.clone(), self.owner_home.clone());
        let home = BindMount { source, target, access: MountAccess::ReadOnly };
        let shown = self.audience.is_owner().then_some(home);
        shown.into_iter().chain(self.binds.iter().cloned()).collect()
    }

    /// Starts the launcher early, because it takes longer than the remaining preparation.
    pub(super) fn start_launcher(&self) -> LauncherTask {
        let launcher = Launcher::new(&self.helper);
        spawn_blocking(move || launcher.prepare())
    }

    pub(super) async fn create(
        &self,
        place: &ResolvedPlace,
        dir: &PlaceDir,
        launcher: LauncherTask,
    ) -> Result<UnixStream, Error> {
        let guest = embed::install_guest(&place.installation.cache_dir)?;
        let files = place.storage_dir();
        for name in ["workspace", "home"] {
            create_dirs(&files.join(name))?;
        }
        let run = dir.create_shared(&place.storage_dir(), None)?;
        let mut jail = self.jail(place, &guest, &files, run);
        jail.run_dir = Some(dir.path().into());
        let prepared = launcher.await.map_err(unavailable)?.map_err(unavailable)?;
        let (socket, dir) = (dir.socket(), dir.clone());
        let stream = run_blocking(move || launch_jail(prepared, &jail, &dir)).await?;
        UnixStream::from_std(stream).map_err(Error::file(&socket))
    }

    fn jail(&self, place: &ResolvedPlace, guest: &Path, files: &Path, run: PathBuf) -> Jail {
        let mut jail = Jail::new(GUEST_PATH, &self.owner_home);
        // The files of other places and the sockets of their guests, wherever the owner put them.
        let hidden = [&place.installation.home, &place.installation.run_dir].into_iter().chain(&self.files);
        jail.masked.extend(hidden.map(OsString::from));
        // A home of `/` is not a home.
        if self.audience == Audience::Others && self.owner_home.parent().is_some() {
            jail.binds.clear();
            jail.masked.push(self.owner_home.clone().into());
        }
        let mut show = |source: PathBuf, target: PathBuf, access| {
            let (source, target) = (source.into(), target.into());
            jail.binds.push(hermes_sandbox::JailMount { source, target, access });
        };
        show(guest.to_owned(), GUEST_PATH.into(), MountAccess::ReadOnly);
        show(run, RUN_DIR.into(), MountAccess::ReadWrite);
        show(files.join("workspace"), WORKSPACE_DIR.into(), MountAccess::ReadWrite);
        show(files.join("home"), HOME_DIR.into(), MountAccess::ReadWrite);
        for bind in &self.binds {
            show(bind.source.clone(), bind.target.clone(), bind.access);
        }
        let words = ["serve", "--foreground", "--socket"].map(OsString::from);
        jail.arguments.extend(words);
        jail.arguments.push(Path::new(RUN_DIR).join(SOCKET_NAME).into());
        jail.arguments.extend(["--idle".into(), place.spec.lifetime.as_secs().to_string().into()]);
        jail.environment = self.base_env.iter().map(|(name, value)| (name.into(), value.into())).collect();
        jail.environment.push(("HOME".into(), HOME_DIR.into()));
        jail.directory = WORKSPACE_DIR.into();
        jail.network = match self.network {
            Network::Full => hermes_sandbox::JailNetwork::Full,
            // The proxy needs only the loopback interface that every jail has.
            Network::None | Network::Proxy => hermes_sandbox::JailNetwork::None,
        };
        jail.limits = self.limits.clone();
        jail.lifetime = Lifetime::Detached;
        jail
    }

    pub(super) fn kept_dir(&self, place: &ResolvedPlace) -> Option<PathBuf> {
        Some(self.files.as_ref()?.join(KEPT_SUBDIR).join(place.name()))
    }
}

/// Launches the jail and waits until its guest accepts connections.
fn launch_jail(prepared: PreparedLauncher, jail: &Jail, dir: &PlaceDir) -> Result<net::UnixStream, Error> {
    let mut running = prepared.launch(jail, &JailStreams::default()).map_err(unavailable)?;
    let deadline = Instant::now() + START_TIMEOUT;
    loop {
        if let Ok(stream) = dir.connect_blocking() {
            stream.set_nonblocking(true).map_err(unavailable)?;
            return Ok(stream);
        }
        if Instant::now() > deadline || has_ended(&running) {
            let killed = running.kill().map_err(unavailable)?;
            return Err(unavailable(format!("the guest did not respond and ended with {killed:?}")));
        }
        std::thread::sleep(POLL_INTERVAL);
    }
}

fn unavailable(reason: impl ToString) -> Error {
    Error::Unavailable { backend: BackendName::Sandbox, reason: reason.to_string() }
}

/// Whether the jail has ended, so that no guest will answer.
fn has_ended(running: &RunningJail) -> bool {
    let mut poll = [PollFd::from_borrowed_fd(running.pidfd(), PollFlags::IN)];
    rustix::event::poll(&mut poll, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).is_ok_and(|ready| ready > 0)
}
