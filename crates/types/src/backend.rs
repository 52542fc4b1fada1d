//! The words an owner writes to say where commands run and what network they get.

use std::fmt;
use std::str::FromStr;

use serde::Serialize;
use thiserror::Error;

/// A kind of place, by the word used in the configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum BackendName {
    /// This machine, unconfined.
    Local,
    /// The built-in jail on this machine.
    Sandbox,
    /// A container of Docker or Podman.
    Docker,
    /// Another host, over the owner's own `ssh`.
    Ssh,
    /// An Apptainer or Singularity instance.
    Singularity,
    /// A Modal cloud sandbox.
    Modal,
    /// A Daytona cloud sandbox.
    Daytona,
    /// A pod in a Kubernetes cluster.
    Kubernetes,
}

impl BackendName {
    /// Every backend, in the order they are listed to people.
    pub const ALL: [Self; 8] = [
        Self::Local,
        Self::Sandbox,
        Self::Docker,
        Self::Ssh,
        Self::Singularity,
        Self::Modal,
        Self::Daytona,
        Self::Kubernetes,
    ];

    /// The word in the configuration.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::Sandbox => "sandbox",
            Self::Docker => "docker",
            Self::Ssh => "ssh",
            Self::Singularity => "singularity",
            Self::Modal => "modal",
            Self::Daytona => "daytona",
            Self::Kubernetes => "kubernetes",
        }
    }
}

impl fmt::Display for BackendName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// A word that names no backend.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("unknown backend `{word}`; known are {}", known_backends())]
pub struct UnknownBackend {
    /// The word as it was written.
    pub word: String,
}

fn known_backends() -> String {
    BackendName::ALL.map(BackendName::word).join(", ")
}

impl FromStr for BackendName {
    type Err = UnknownBackend;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let word = text.trim();
        if word == "apptainer" {
            return Ok(Self::Singularity);
        }
        Self::ALL
            .into_iter()
            .find(|name| name.word() == word)
            .ok_or_else(|| UnknownBackend { word: word.to_owned() })
    }
}

/// What a place can reach over the network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Network {
    /// The backend's ordinary network.
    Full,
    /// Loopback inside the place and nothing else.
    None,
    /// Public hosts only, through a proxy in the host process.
    Proxy,
}

impl Network {
    /// The word in the configuration.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::None => "none",
            Self::Proxy => "proxy",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_reads_back_as_itself() {
        for name in BackendName::ALL {
            assert_eq!(name.word().parse(), Ok(name));
        }
        assert_eq!(" apptainer ".parse(), Ok(BackendName::Singularity));
    }

    #[test]
    fn an_unknown_word_lists_the_known_ones() {
        let error = "dokcer".parse::<BackendName>().unwrap_err();
        assert_eq!(
            error.to_string(),
            "unknown backend `dokcer`; known are local, sandbox, docker, ssh, singularity, modal, daytona, kubernetes"
        );
    }
}
