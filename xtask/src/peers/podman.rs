//! Podman's Docker-compatible service, once as root and once as an ordinary user.
//!
//! | | |
//! |---|---|
//! | needs | root to start both; Debian's podman, runc, and for the user uidmap, slirp4netns, fuse-overlayfs |
//! | private | `/run`, locks, storage, socket; as root also the network namespace with its bridge |
//! | cleans up | its cell ends; images stay in the state directory, stopped containers go at the next start |
//!
//! runc and not crun: crun refuses a machine that has both versions of cgroups mounted.

use std::os::unix::fs::chown;
use std::path::PathBuf;

use anyhow::Result;

use super::apt::Need;
use super::cell::{Cell, Isolation, Spec};
use super::dirs::{self, Dirs};
use super::engine;
use super::report::Access;
use super::user;

/// The user that Podman runs as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Podman {
    Root,
    Rootless,
}

const ROOT_NEEDS: &[Need] = &[
    Need { program: "podman", package: "podman" },
    Need { program: "runc", package: "runc" },
    Need { program: "iptables", package: "iptables" },
];

const ROOTLESS_NEEDS: &[Need] = &[
    Need { program: "podman", package: "podman" },
    Need { program: "runc", package: "runc" },
    Need { program: "newuidmap", package: "uidmap" },
    Need { program: "slirp4netns", package: "slirp4netns" },
    Need { program: "fuse-overlayfs", package: "fuse-overlayfs" },
];

impl Podman {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Root => "podman",
            Self::Rootless => "podman-rootless",
        }
    }

    pub(crate) fn needs(self) -> &'static [Need] {
        match self {
            Self::Root => ROOT_NEEDS,
            Self::Rootless => ROOTLESS_NEEDS,
        }
    }

    /// Starts the service if it does not answer, and imports the images.
    pub(crate) fn up(self, dirs: &Dirs) -> Result<()> {
        let socket = self.socket(dirs);
        let (storage, run) = (dirs.state(self.name()), self.run(dirs));
        dirs::make(&storage, 0o700)?;
        dirs::make(&run, 0o700)?;
        let mut args = vec![dirs.run_root().into(), storage.clone().into(), run.clone().into()];
        args.push(socket.clone().into());
        let (script, network) = match self {
            Self::Root => (include_str!("podman.sh"), Isolation::Private),
            Self::Rootless => {
                let user = user::ensure()?;
                chown(&storage, Some(user.uid), Some(user.gid))?;
                chown(&run, Some(user.uid), Some(user.gid))?;
                args.extend([user.name.into(), user.home.into()]);
                // A rootless container already has its own network.
                (include_str!("podman-rootless.sh"), Isolation::Machine)
            }
        };
        let spec = Spec { network, processes: Isolation::Private, script, args };
        engine::up(dirs, self.name(), &spec, &socket, &storage)
    }

    /// Stops the service and every container in it.
    pub(crate) fn down(self, dirs: &Dirs) -> Result<()> {
        Cell::new(dirs, self.name()).stop()?;
        dirs::remove(&self.run(dirs))
    }

    /// Asks the service.
    pub(crate) fn probe(self, dirs: &Dirs) -> Result<Access> {
        engine::probe(&self.socket(dirs))
    }

    fn socket(self, dirs: &Dirs) -> PathBuf {
        self.run(dirs).join("podman.sock")
    }

    /// The names are short because Podman refuses a run root of more than 50 bytes; the refusal
    /// happens when a container ends, is not reported, and makes each `wait` 20 seconds longer.
    fn run(self, dirs: &Dirs) -> PathBuf {
        match self {
            Self::Root => dirs.run("root"),
            Self::Rootless => dirs.run("user"),
        }
    }
}
