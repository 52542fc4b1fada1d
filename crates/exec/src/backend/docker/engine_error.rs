//! Errors of a container engine.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use thiserror::Error;

use super::discover::EngineSource;
use super::engine::{EngineAddress, MIN_API_VERSION};

const START: &str = "Start it: `sudo systemctl start docker`, or for Podman `systemctl --user start podman.socket` \
                     or `podman system service --time 0`.";
const NAME_IT: &str = "If it listens elsewhere, set DOCKER_HOST=unix:///path/of/socket.";

#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum EngineError {
    #[error("no engine found at {}", join_paths(searched))]
    NotFound { searched: Vec<PathBuf> },
    #[error("{origin} is {text}, {problem}")]
    Address { origin: EngineSource, text: String, problem: AddressProblem },
    #[error("terminal.docker_binary is {word}; expected docker or podman")]
    Binary { word: String },
    #[error("the docker context {name} is unusable: {reason}")]
    Context { name: String, reason: String },
    #[error("no such socket: {}", socket.display())]
    SocketMissing { socket: PathBuf },
    #[error("permission denied: {}", socket.display())]
    PermissionDenied {
        socket: PathBuf,
        /// The group that may use the socket, if it can be read.
        group: Option<u32>,
    },
    #[error("cannot connect to {address}: {reason}")]
    ConnectionRefused { address: EngineAddress, reason: String },
    #[error("{address} did not respond within {} seconds", timeout.as_secs())]
    TimedOut { address: EngineAddress, timeout: Duration },
    #[error("{address} does not speak the Engine API: {reason}")]
    NotAnEngine { address: EngineAddress, reason: String },
    #[error("{address} has Engine API version {version}; {}.{} or later is required", MIN_API_VERSION.0, MIN_API_VERSION.1)]
    TooOld { address: EngineAddress, version: String },
    #[error("the engine runs on {engine}, but this hermes was built for {guest}")]
    WrongArchitecture { engine: String, guest: String },
    #[error("the engine at {address} remaps user ids, so `docker_run_as_host_user` cannot be honored")]
    UsersRemapped { address: EngineAddress },
    #[error("the engine cannot mount {}: {reason}", path.display())]
    Mount { path: PathBuf, reason: String },
    #[error("{address}: {reason}")]
    Failed { address: EngineAddress, reason: String },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum AddressProblem {
    #[error("but ssh is not supported")]
    Ssh,
    #[error("but TLS is not supported")]
    Tls,
    #[error("but named pipes exist only on Windows")]
    Pipe,
    #[error("which only the engine itself can use")]
    Descriptor,
    #[error("which is not a valid address")]
    Unknown,
}

impl EngineError {
    /// Remedies for the user.
    pub fn hints(&self) -> Vec<String> {
        let hints: &[&str] = match self {
            Self::NotFound { .. } => {
                &[START, "Install one: `sudo apt install podman`, or the equivalent of your system.", NAME_IT]
            }
            Self::Address { problem, .. } => return vec![problem.remedy().to_owned()],
            Self::Binary { .. } => &["Set terminal.docker_binary to `podman` or `docker`, or unset it."],
            Self::Context { .. } => {
                &["Run `docker context ls` to list contexts, or `docker context use default`."]
            }
            Self::SocketMissing { .. } => &[START, NAME_IT],
            Self::PermissionDenied { group, .. } => return permission_hints(*group),
            Self::ConnectionRefused { .. } => &[START],
            Self::TimedOut { .. } => {
                &["Check its log with `journalctl -u docker` or `journalctl --user -u podman`, and restart \
                 it if it hangs."]
            }
            Self::NotAnEngine { .. } => &[NAME_IT],
            Self::TooOld { .. } => &["Update it to Docker 20.10, Podman 4 or later."],
            Self::WrongArchitecture { .. } => {
                &["Use an engine with the same architecture, or a hermes built for the engine's."]
            }
            Self::UsersRemapped { .. } => {
                &["Unset terminal.docker_run_as_host_user, or add `--userns=host` to \
                 terminal.docker_extra_args."]
            }
            Self::Mount { path, .. } if path.exists() => {
                &["The engine runs as another user, in its own file system or on another machine. Choose a \
                 path that it can access."]
            }
            Self::Mount { .. } => &["Create it, or remove it from terminal.docker_volumes."],
            Self::Failed { .. } => &[],
        };
        hints.iter().map(|hint| (*hint).to_owned()).collect()
    }

    /// Recognizes an engine message about one of these mount sources.
    pub(super) fn from_mount_message(message: &str, sources: &[PathBuf]) -> Option<Self> {
        const MISSING: &str = "no such file or directory on the engine's host";
        const REASONS: [(&str, &str); 3] = [
            ("permission denied", "permission denied"),
            ("no such file or directory", MISSING),
            ("does not exist", MISSING),
        ];
        let (_, reason) = REASONS.into_iter().find(|(text, _)| message.contains(text))?;
        let named = sources.iter().filter(|path| message.contains(&*path.to_string_lossy()));
        let path = named.max_by_key(|path| path.as_os_str().len())?.clone();
        Some(Self::Mount { path, reason: reason.to_owned() })
    }
}

impl AddressProblem {
    fn remedy(self) -> &'static str {
        match self {
            Self::Ssh => {
                "Forward its socket with `ssh -nNT -L /tmp/engine.sock:/var/run/docker.sock HOST`, then \
                 set DOCKER_HOST=unix:///tmp/engine.sock."
            }
            Self::Tls => {
                "Forward its socket with `ssh -nNT -L /tmp/engine.sock:/var/run/docker.sock HOST`, then \
                 set DOCKER_HOST=unix:///tmp/engine.sock and unset DOCKER_TLS_VERIFY."
            }
            Self::Pipe => "In WSL use the socket there: DOCKER_HOST=unix:///var/run/docker.sock.",
            Self::Descriptor => "Name the socket it listens on: DOCKER_HOST=unix:///var/run/docker.sock.",
            Self::Unknown => "Use unix:///path/of/socket or tcp://host:port.",
        }
    }
}

/// Remedies for a socket that another group owns.
fn permission_hints(group: Option<u32>) -> Vec<String> {
    let groups = fs::read_to_string("/etc/group").unwrap_or_default();
    let name = group.filter(|group| *group != 0).and_then(|group| {
        let mut rows = groups.lines().map(|line| line.split(':').collect::<Vec<_>>());
        rows.find_map(|row| match row.as_slice() {
            [name, _, id, ..] if id.parse() == Ok(group) => Some((*name).to_owned()),
            _ => None,
        })
    });
    let join = match name {
        Some(name) => format!(
            "Join the group {name}: `sudo usermod -aG {name} $USER`, then log in again; its members are \
             as powerful as root."
        ),
        None => "Only root may use it.".to_owned(),
    };
    let rootless = "Or use a rootless engine: `systemctl --user start podman.socket`, or rootless Docker \
         with `dockerd-rootless-setuptool.sh install`.";
    vec![join, rootless.to_owned()]
}

fn join_paths(paths: &[PathBuf]) -> String {
    let paths: Vec<String> = paths.iter().map(|path: &PathBuf| Path::display(path).to_string()).collect();
    paths.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_message_names_the_path() {
        let sources = ["/a", "/a/b", "/c"].map(PathBuf::from);
        let message = |text: &str| EngineError::from_mount_message(text, &sources);
        let fault = |path: &str, reason: &str| {
            Some(EngineError::Mount { path: PathBuf::from(path), reason: reason.to_owned() })
        };
        assert_eq!(
            message("invalid mount config for type \"bind\": bind source path does not exist: /a/b"),
            fault("/a/b", "no such file or directory on the engine's host")
        );
        let podman = "make cli opts(): making volume mountpoint for volume /c: mkdir /c: permission denied";
        assert_eq!(message(podman), fault("/c", "permission denied"));
        assert_eq!(message("statfs /elsewhere: no such file or directory"), None);
        assert_eq!(message("the image /c is too large"), None);
    }
}
