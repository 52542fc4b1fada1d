//! A private dockerd with its own containerd.
//!
//! | | |
//! |---|---|
//! | needs | root; Debian's docker.io, or any dockerd, containerd and runc |
//! | private | network namespace with its own `docker0` and packet filter, `/run`, data, socket, configuration |
//! | cleans up | its cell ends; images and layers stay in the state directory, stopped containers go at the next start |
//!
//! Containers reach each other and their bridge but not the machine's network. A bridge in the
//! machine's own network would need forwarding and packet filter rules there, and two dockerds
//! rewrite each other's.

use std::path::PathBuf;

use anyhow::Result;

use super::apt::Need;
use super::cell::{Cell, Isolation, Spec};
use super::dirs::{self, Dirs};
use super::engine;
use super::report::Access;

pub(crate) const NAME: &str = "docker";

pub(crate) const NEEDS: &[Need] = &[
    Need { program: "dockerd", package: "docker.io" },
    Need { program: "containerd", package: "containerd" },
    Need { program: "runc", package: "runc" },
    Need { program: "iptables", package: "iptables" },
];

/// Starts dockerd if it does not answer, and imports the images.
pub(crate) fn up(dirs: &Dirs) -> Result<()> {
    let (socket, storage) = (socket(dirs), dirs.state("docker"));
    dirs::make(&storage, 0o711)?;
    let spec = Spec {
        network: Isolation::Private,
        processes: Isolation::Private,
        script: include_str!("docker.sh"),
        args: vec![
            dirs.run_root().into(),
            storage.clone().into(),
            dirs.run("docker").into(),
            socket.clone().into(),
            dirs.id().into(),
        ],
    };
    dirs::make(&dirs.run("docker"), 0o700)?;
    engine::up(dirs, NAME, &spec, &socket, &storage)
}

/// Stops dockerd and every container in it.
pub(crate) fn down(dirs: &Dirs) -> Result<()> {
    Cell::new(dirs, NAME).stop()?;
    dirs::remove(&dirs.run("docker"))
}

/// Asks dockerd.
pub(crate) fn probe(dirs: &Dirs) -> Result<Access> {
    engine::probe(&socket(dirs))
}

fn socket(dirs: &Dirs) -> PathBuf {
    dirs.run("docker/docker.sock")
}
