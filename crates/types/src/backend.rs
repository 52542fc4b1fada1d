//! Backend and network names as written in the configuration.

use std::str::FromStr;

use serde::Serialize;
use strum::{Display, IntoStaticStr, VariantArray};
use thiserror::Error;

/// A kind of execution environment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Display, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "lowercase")]
pub enum BackendName {
    /// This machine, without confinement.
    Local,
    /// The built-in Linux sandbox.
    Sandbox,
    /// A Docker or Podman container.
    Docker,
    /// Another host, through the owner's `ssh` client.
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
    /// Every backend, in display order.
    pub const ALL: &[Self] = Self::VARIANTS;

    /// The configuration keyword.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("unknown backend `{name}`; known are {}", known_backends())]
pub struct UnknownBackend {
    pub name: String,
}

fn known_backends() -> String {
    BackendName::ALL.iter().map(|backend| backend.as_str()).collect::<Vec<_>>().join(", ")
}

impl FromStr for BackendName {
    type Err = UnknownBackend;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let name = text.trim();
        if name == "apptainer" {
            return Ok(Self::Singularity);
        }
        let found = Self::ALL.iter().find(|backend| backend.as_str() == name);
        found.copied().ok_or_else(|| UnknownBackend { name: name.to_owned() })
    }
}

/// The network access of an environment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, IntoStaticStr)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum Network {
    /// The backend's default network.
    Full,
    /// Loopback only.
    None,
    /// Public hosts only, through a proxy in the Hermes process.
    Proxy,
}

impl Network {
    /// The configuration keyword.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_parses_back_to_its_backend() {
        for name in BackendName::ALL {
            assert_eq!(name.as_str().parse(), Ok(*name));
        }
        assert_eq!(" apptainer ".parse(), Ok(BackendName::Singularity));
    }

    #[test]
    fn an_unknown_name_lists_the_known_backends() {
        let error = "dokcer".parse::<BackendName>().unwrap_err();
        assert_eq!(
            error.to_string(),
            "unknown backend `dokcer`; known are local, sandbox, docker, ssh, singularity, modal, daytona, kubernetes"
        );
    }
}
