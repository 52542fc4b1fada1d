//! The built-in jail on this machine.
//!
//! | | |
//! |---|---|
//! | needs | user namespaces, Landlock and seccomp of the kernel; no root, no daemon |
//! | confines | files, processes, system calls, network; resources as far as this machine can |
//! | cleans up | the guest is the jail's first process and ends itself, and with it the jail, when idle |

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use hermes_sandbox::{Access, Jail, Launcher, Lifetime, Limits, Prepared, Running, Streams};
use hermes_types::{BackendName, Network, Reach};
use rustix::event::{PollFd, PollFlags, Timespec};
use serde::Serialize;
use tokio::net::UnixStream;
use tokio::task::{JoinHandle, spawn_blocking};

use super::bind::{self, BindMount, Writable};
use crate::registry::{PlaceDir, SOCKET_NAME};
use crate::{Error, ResolvedPlace, embed};

/// What a program calls first that is to make jails.
pub use hermes_sandbox::helper_main;

/// Where things are inside.
const GUEST_PATH: &str = "/sandbox/guest";
const RUN_DIR: &str = "/sandbox/run";
/// The home directory of commands, inside.
pub const HOME_DIR: &str = "/sandbox/home";
/// The directory commands start in, inside.
pub const WORKSPACE_DIR: &str = "/workspace";

/// The directory of this backend among those with kept files.
pub const KEPT_SUBDIR: &str = "sandbox";

/// How long the guest may take to answer once the jail is made.
const START_TIMEOUT: Duration = Duration::from_secs(10);
/// How often is looked. It takes less than a millisecond, which is the least that the clock of the runtime can wait.
const POLL_INTERVAL: Duration = Duration::from_micros(50);

/// Somebody on his way who will make a jail. Dropped, he turns round.
pub(crate) type LauncherTask = JoinHandle<Result<Prepared, hermes_sandbox::Error>>;

/// Whom the commands of a place are run for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Audience {
    /// The owner, whose tools they find in the owner's home.
    #[default]
    Owner,
    /// Others, who have no business there.
    Others,
}

impl Audience {
    fn is_owner(&self) -> bool {
        *self == Self::Owner
    }
}

/// The settings of this backend.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SandboxBackend {
    /// The program that makes jails: it calls `hermes_sandbox::helper_main` first.
    #[serde(skip)]
    pub helper: PathBuf,
    /// Where the kept files of places are on the host. Without it nothing is kept: a place has its files in its
    /// room, and both end together.
    pub files: Option<PathBuf>,
    /// The home of the owner, whose credentials are hidden.
    pub owner_home: PathBuf,
    /// Whether the rest of it can be read.
    #[serde(skip_serializing_if = "Audience::is_owner")]
    #[serde(rename = "works_for")]
    pub audience: Audience,
    /// Other directories of the host.
    pub binds: Vec<BindMount>,
    /// What commands reach over the network.
    pub network: Network,
    /// How much may be used.
    pub limits: Limits,
    /// `PATH`, `LANG`, `TERM` and `TZ` for commands. No part of the identity: the session is the same in every
    /// terminal.
    #[serde(skip)]
    pub base_env: Vec<(String, String)>,
}

impl SandboxBackend {
    pub(super) fn reach(&self) -> Reach {
        // The machine's own services listen on its loopback.
        if self.network == Network::Full {
            return Reach::Host;
        }
        bind::binds_reach(&self.binds)
    }

    /// Starts what makes the jail: it takes longer to be there than all that must be done here before it is told.
    pub(super) fn start_launcher(&self) -> LauncherTask {
        let launcher = Launcher::program(&self.helper);
        spawn_blocking(move || launcher.prepare())
    }

    pub(super) async fn create(
        &self,
        plan: &ResolvedPlace,
        room: &PlaceDir,
        preparing: LauncherTask,
    ) -> Result<UnixStream, Error> {
        let unavailable = |reason: String| Error::Unavailable { backend: BackendName::Sandbox, reason };
        let guest = embed::install_guest(&plan.installation.cache_dir)?;
        let files = self.files_dir(plan);
        for name in ["workspace", "home"] {
            let path = files.join(name);
            fs::DirBuilder::new().recursive(true).mode(0o700).create(&path).map_err(Error::file(&path))?;
        }
        let run = room.create_shared(self.kept_dir(plan).as_deref(), None)?;
        let mut jail = self.jail(plan, &guest, &files, run);
        jail.room = Some(room.path().into());
        let prepared = preparing.await.map_err(|error| unavailable(error.to_string()))?;
        let prepared = prepared.map_err(|error| unavailable(error.to_string()))?;
        let launched = {
            let room = room.clone();
            spawn_blocking(move || launch_jail(prepared, &jail, &room))
        };
        let stream = launched.await.map_err(|error| unavailable(error.to_string()))?.map_err(unavailable)?;
        UnixStream::from_std(stream).map_err(Error::file(&room.socket()))
    }

    fn jail(&self, plan: &ResolvedPlace, guest: &Path, files: &Path, run: PathBuf) -> Jail {
        let mut jail = Jail::new(GUEST_PATH, &self.owner_home);
        // Wherever the owner put them: the files of other places, and the sockets that their guests obey.
        jail.masked.extend(
            [&plan.installation.home, &plan.installation.run_dir].into_iter().chain(&self.files).cloned(),
        );
        // Whoever has the whole machine for a home has none.
        if self.audience == Audience::Others && self.owner_home.parent().is_some() {
            jail.binds.clear();
            jail.masked.push(self.owner_home.clone());
        }
        let mut show = |source: PathBuf, target: PathBuf, access| {
            jail.binds.push(hermes_sandbox::Bind { source, target, access });
        };
        show(guest.to_owned(), GUEST_PATH.into(), Access::ReadOnly);
        show(run, RUN_DIR.into(), Access::ReadWrite);
        show(files.join("workspace"), WORKSPACE_DIR.into(), Access::ReadWrite);
        show(files.join("home"), HOME_DIR.into(), Access::ReadWrite);
        for bind in &self.binds {
            let access = match bind.writable {
                Writable::Yes => Access::ReadWrite,
                Writable::No => Access::ReadOnly,
            };
            show(bind.source.clone(), bind.target.clone(), access);
        }
        let words = ["serve", "--foreground", "--socket"].map(OsString::from);
        jail.arguments.extend(words);
        jail.arguments.push(Path::new(RUN_DIR).join(SOCKET_NAME).into());
        jail.arguments.extend(["--idle".into(), plan.spec.lifetime.as_secs().to_string().into()]);
        jail.environment = self.base_env.iter().map(|(name, value)| (name.into(), value.into())).collect();
        jail.environment.push(("HOME".into(), HOME_DIR.into()));
        jail.directory = WORKSPACE_DIR.into();
        jail.network = match self.network {
            Network::Full => hermes_sandbox::Network::Full,
            // The proxy needs no more than the loopback that every jail has.
            Network::None | Network::Proxy => hermes_sandbox::Network::None,
        };
        jail.limits = self.limits.clone();
        jail.lifetime = Lifetime::Detached;
        jail
    }

    /// Where the files of the place are: in its room, where they end with it, unless they are kept.
    pub(super) fn files_dir(&self, plan: &ResolvedPlace) -> PathBuf {
        self.kept_dir(plan).unwrap_or_else(|| PlaceDir::for_place(plan).path().join("files"))
    }

    /// Where they are kept.
    pub(super) fn kept_dir(&self, plan: &ResolvedPlace) -> Option<PathBuf> {
        Some(self.files.as_ref()?.join(KEPT_SUBDIR).join(plan.name()))
    }
}

/// Makes the jail and waits until its guest can be reached.
fn launch_jail(prepared: Prepared, jail: &Jail, room: &PlaceDir) -> Result<net::UnixStream, String> {
    let mut running = prepared.launch(jail, &Streams::default()).map_err(|error| error.to_string())?;
    let deadline = Instant::now() + START_TIMEOUT;
    loop {
        if let Ok(stream) = room.connect_blocking() {
            stream.set_nonblocking(true).map_err(|error| error.to_string())?;
            return Ok(stream);
        }
        if Instant::now() > deadline || has_ended(&running) {
            let killed = running.kill().map_err(|error| error.to_string())?;
            return Err(format!("its guest did not answer, and ended with {killed:?}"));
        }
        std::thread::sleep(POLL_INTERVAL);
    }
}

/// Whether nothing of a jail is left, so that nobody will answer.
fn has_ended(running: &Running) -> bool {
    let mut poll = [PollFd::from_borrowed_fd(running.pidfd(), PollFlags::IN)];
    rustix::event::poll(&mut poll, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).is_ok_and(|ready| ready > 0)
}
