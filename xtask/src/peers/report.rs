//! `peers.json`, which describes the peers to the tests.
//!
//! `cargo xtask peers up` and `down` write it into the state directory (`target/peers`, or the
//! directory named by `HERMES_PEERS_DIR`). It describes the state at that time; a test that finds a
//! peer gone fails, and `cargo xtask peers status` prints the reason.
//!
//! ```json
//! {
//!   "schema": 1,
//!   "shared_dir": "/…/target/peers/shared",
//!   "user": {
//!     "name": "hermes-peer",
//!     "uid": 1001,
//!     "gid": 1001,
//!     "home": "/home/hermes-peer"
//!   },
//!   "images": [
//!     {
//!       "name": "bash",
//!       "reference": "localhost/hermes-test:bash",
//!       "tarball": "/…/bash-….tar"
//!     }
//!   ],
//!   "peers": [
//!     {
//!       "name": "docker",
//!       "state": "up",
//!       "access": {
//!         "kind": "engine",
//!         "socket": "/run/…/docker.sock",
//!         "version": "…"
//!       }
//!     },
//!     {
//!       "name": "sshd",
//!       "state": "missing",
//!       "reason": "no sshd",
//!       "install": "apt-get install openssh-server"
//!     }
//!   ]
//! }
//! ```

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// The version of the format; it changes with every incompatible change.
pub(crate) const SCHEMA: u32 = 1;

/// The whole file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Report {
    /// Always [`SCHEMA`] when written by this version.
    pub(crate) schema: u32,
    /// A directory that anyone may write to. It has the same path here and inside Apptainer's
    /// private root, so a test can put files there and bind them into a container.
    pub(crate) shared_dir: PathBuf,
    /// The unprivileged user of rootless Podman, Apptainer and the second ssh login; absent before
    /// the first `up`.
    pub(crate) user: Option<User>,
    /// The images that every container engine holds.
    pub(crate) images: Vec<Image>,
    /// Every known peer, up or not.
    pub(crate) peers: Vec<Peer>,
}

/// The unprivileged user that some peers run as.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct User {
    /// Login name.
    pub(crate) name: String,
    /// User id.
    pub(crate) uid: u32,
    /// Primary group id.
    pub(crate) gid: u32,
    /// Home directory.
    pub(crate) home: PathBuf,
}

/// An image, built on this machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Image {
    /// `bash` (Debian with bash, coreutils and python3) or `busybox` (static busybox, no bash).
    pub(crate) name: String,
    /// The name to give to Docker and Podman.
    pub(crate) reference: String,
    /// The root file system as a tar archive, for engines that a test starts itself.
    pub(crate) tarball: PathBuf,
}

/// One peer and its condition.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Peer {
    /// `docker`, `podman`, `podman-rootless`, `sshd`, `apptainer`, `models` or `smollm`.
    pub(crate) name: String,
    /// Its state, and how to use or start it.
    #[serde(flatten)]
    pub(crate) condition: Condition,
}

/// Whether a peer can be used, and if not, the command that fixes it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub(crate) enum Condition {
    /// The peer answered a real request.
    Up {
        /// How to use it.
        access: Access,
    },
    /// The peer is installed but does not answer.
    Down {
        /// The reason.
        reason: String,
        /// The command that starts it.
        start: String,
    },
    /// The peer is not installed, or cannot run on this machine.
    Missing {
        /// The reason.
        reason: String,
        /// The command that installs it.
        install: String,
    },
}

/// How to use a peer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub(crate) enum Access {
    /// A Docker Engine API (Docker, or Podman's compatible one).
    Engine {
        /// The Unix socket.
        socket: PathBuf,
        /// The engine's version.
        version: String,
    },
    /// An OpenSSH server on loopback.
    Ssh {
        /// A client configuration: `ssh -F CONFIG ROOT_ALIAS true` works as it is.
        config: PathBuf,
        /// The alias in `config` that logs in as root.
        root_alias: String,
        /// The alias in `config` that logs in as the unprivileged user.
        user_alias: String,
        /// The server's address.
        host: String,
        /// The server's port.
        port: u16,
        /// The private key that both logins accept.
        identity: PathBuf,
        /// The file with the server's host key.
        known_hosts: PathBuf,
    },
    /// Apptainer, run as the unprivileged user in a private root.
    Apptainer {
        /// Put this before Apptainer's own arguments. The process becomes Apptainer, so its
        /// standard streams, environment, signals and exit code are Apptainer's; its working
        /// directory is the user's home.
        launch: Vec<String>,
        /// Apptainer's version.
        version: String,
        /// The images in the forms that Apptainer runs, with the paths it knows them by.
        images: Vec<ApptainerImage>,
    },
    /// Clients and a mock server for language models, to be started by a test.
    Models {
        /// A Python that has the packages `openai` and `anthropic`.
        python: PathBuf,
        /// The script of aimock, for `node`.
        aimock: PathBuf,
        /// The versions of the packages.
        version: String,
    },
    /// A language model that answers as OpenAI's do, without a key.
    Model {
        /// The base URL of the OpenAI-compatible API.
        url: String,
        /// The name of the model.
        model: String,
    },
}

/// An image in the forms that Apptainer runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ApptainerImage {
    /// As in [`Image::name`].
    pub(crate) name: String,
    /// The unpacked form, a directory.
    pub(crate) sandbox: PathBuf,
    /// The single-file form.
    pub(crate) sif: PathBuf,
}
