//! Why there is no engine to make containers.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use thiserror::Error;

use super::discover::EngineSource;
use super::engine::{EngineAddress, MIN_API_VERSION};

/// Why an engine cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum EngineError {
    /// Nothing says where one is, and none is where they usually are.
    #[error("no engine was found; there is none of {}", join_paths(searched))]
    NotFound {
        /// Where was looked, in this order.
        searched: Vec<PathBuf>,
    },
    /// What was said is an address that cannot be used.
    #[error("{} is {text}, {problem}", origin.subject())]
    Address {
        /// Who said so.
        origin: EngineSource,
        /// What was said.
        text: String,
        /// What is wrong with it.
        problem: AddressProblem,
    },
    /// The command of the engine is one that nobody knows.
    #[error("terminal.docker_binary is {word}, which is neither docker nor podman")]
    Binary {
        /// What was said.
        word: String,
    },
    /// The context of the docker command that was chosen is of no use.
    #[error("the docker context {name} cannot be used: {reason}")]
    Context {
        /// Which one.
        name: String,
        /// Why.
        reason: String,
    },
    /// The socket that was named is not there.
    #[error("there is no socket {}", socket.display())]
    SocketMissing {
        /// Which one.
        socket: PathBuf,
    },
    /// The socket is there for others.
    #[error("{} is there, but this user may not use it", socket.display())]
    PermissionDenied {
        /// Which one.
        socket: PathBuf,
        /// The group that may, if it can be seen.
        group: Option<u32>,
    },
    /// Nobody listens.
    #[error("nobody answers at {address}: {reason}")]
    ConnectionRefused {
        /// Where.
        address: EngineAddress,
        /// What the system said.
        reason: String,
    },
    /// Somebody listens who says nothing.
    #[error("{address} did not answer within {} seconds", timeout.as_secs())]
    TimedOut {
        /// Where.
        address: EngineAddress,
        /// How long it had.
        timeout: Duration,
    },
    /// Whoever listens is no engine.
    #[error("{address} does not speak the Engine API: {reason}")]
    NotAnEngine {
        /// Where.
        address: EngineAddress,
        /// What it said.
        reason: String,
    },
    /// The engine is older than what we ask of it.
    #[error("{address} speaks version {version} of the Engine API, and {}.{} is needed", MIN_API_VERSION.0, MIN_API_VERSION.1)]
    TooOld {
        /// Where.
        address: EngineAddress,
        /// What it speaks.
        version: String,
    },
    /// The engine runs programs of another processor.
    #[error("the engine runs programs for {engine}, and the guest of this hermes is for {guest}")]
    WrongArchitecture {
        /// What the engine runs.
        engine: String,
        /// What is carried along.
        guest: String,
    },
    /// The user that hermes runs as has another number inside.
    #[error("{address} gives its containers other users, so that none of them is the one hermes runs as")]
    UsersRemapped {
        /// Where.
        address: EngineAddress,
    },
    /// Something of this machine that the engine cannot show inside.
    #[error("the engine cannot mount {}: {reason}", path.display())]
    Mount {
        /// What was to be mounted.
        path: PathBuf,
        /// What the engine said.
        reason: String,
    },
    /// The engine could not do what was asked.
    #[error("{address}: {reason}")]
    Failed {
        /// Where.
        address: EngineAddress,
        /// What it said.
        reason: String,
    },
}

/// What is wrong with an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AddressProblem {
    /// It goes through ssh.
    Ssh,
    /// It is encrypted.
    Tls,
    /// It is a pipe of Windows.
    Pipe,
    /// It is a descriptor, which only the engine itself is given.
    Descriptor,
    /// It is nothing known.
    Unknown,
}

impl fmt::Display for AddressProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ssh => "and engines are not reached through ssh",
            Self::Tls => "and engines are not reached through TLS",
            Self::Pipe => "a pipe of Windows, which is not there on this system",
            Self::Descriptor => "which means something to an engine that is started, and to nobody else",
            Self::Unknown => "which is no known address",
        })
    }
}

impl EngineError {
    /// What the engine said when it was to show these paths inside, if it was about one of them.
    pub(super) fn from_mount_message(said: &str, sources: &[PathBuf]) -> Option<Self> {
        const REASONS: [&str; 3] = ["permission denied", "no such file or directory", "does not exist"];
        let reason = REASONS.into_iter().find(|reason| said.contains(reason))?;
        let named = sources.iter().filter(|path| said.contains(&*path.to_string_lossy()));
        let path = named.max_by_key(|path| path.as_os_str().len())?.clone();
        let reason = match reason {
            "permission denied" => "it may not go there",
            _ => "it sees nothing there",
        };
        Some(Self::Mount { path, reason: reason.to_owned() })
    }
}

fn join_paths(paths: &[PathBuf]) -> String {
    let paths: Vec<String> = paths.iter().map(|path: &PathBuf| Path::display(path).to_string()).collect();
    paths.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_engines_say_about_a_mount_names_the_path() {
        let sources = ["/a", "/a/b", "/c"].map(PathBuf::from);
        let said = |text: &str| EngineError::from_mount_message(text, &sources);
        let fault = |path: &str, reason: &str| {
            Some(EngineError::Mount { path: PathBuf::from(path), reason: reason.to_owned() })
        };
        assert_eq!(
            said("invalid mount config for type \"bind\": bind source path does not exist: /a/b"),
            fault("/a/b", "it sees nothing there")
        );
        let podman = "make cli opts(): making volume mountpoint for volume /c: mkdir /c: permission denied";
        assert_eq!(said(podman), fault("/c", "it may not go there"));
        assert_eq!(said("statfs /elsewhere: no such file or directory"), None);
        assert_eq!(said("the image /c is too large"), None);
    }
}
