//! The engine that makes containers.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bollard::{API_DEFAULT_VERSION, ClientVersion, Docker};
use hermes_types::BackendName;
use serde::{Deserialize, Serialize};

use crate::Error;

/// How long one answer may take, in seconds: an engine that removes a large layer is slow.
const ANSWER: u64 = 120;
/// How long it may take to say what it is.
const GREETING: Duration = Duration::from_secs(20);

/// What engines have said of themselves, by their addresses. Podman takes half a second to say it, and many when it is
/// busy.
static KNOWN: Mutex<BTreeMap<String, (ClientVersion, Facts)>> = Mutex::new(BTreeMap::new());

/// Where an engine listens.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Address {
    /// On this machine.
    Unix(PathBuf),
    /// On another one, or as if it were, without encryption.
    Tcp(String),
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix://{}", path.display()),
            Self::Tcp(host) => write!(f, "tcp://{host}"),
        }
    }
}

impl Address {
    /// What an engine there answered instead of doing what was asked.
    pub(super) fn fault(&self, error: &bollard::errors::Error) -> Error {
        self.unavailable(error.to_string())
    }

    /// Why nothing can be had of an engine there.
    pub(super) fn unavailable(&self, reason: impl std::fmt::Display) -> Error {
        Error::Unavailable { backend: BackendName::Docker, reason: format!("{self}: {reason}") }
    }
}

/// An engine that answers.
#[derive(Debug)]
pub struct Engine {
    /// What to ask.
    pub api: Docker,
    /// What it said of itself.
    pub facts: Facts,
}

/// What an engine says of itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Facts {
    /// Its version.
    pub version: String,
    /// The user it runs as is root inside of its containers.
    pub is_rootless: bool,
    /// Its architecture, in the words of the engine.
    pub architecture: String,
}

impl Engine {
    /// One that has been asked before what it is, or is asked now.
    pub(crate) async fn known(address: &Address) -> Result<Self, Error> {
        let known = lock().get(&address.to_string()).cloned();
        if let Some((version, facts)) = known
            && let Ok(api) = client(address, &version)
        {
            return Ok(Self { api, facts });
        }
        Self::connect(address).await
    }

    /// Asks the engine what it is.
    pub async fn connect(address: &Address) -> Result<Self, Error> {
        let unavailable = |reason: String| Error::Unavailable { backend: BackendName::Docker, reason };
        let failed = |error: bollard::errors::Error| unavailable(format!("{address}: {error}"));
        let greet = async {
            let api = client(address, API_DEFAULT_VERSION)?.negotiate_version().await?;
            let info = api.info().await?;
            Ok((api, info))
        };
        let (api, info) = tokio::time::timeout(GREETING, greet)
            .await
            .map_err(|_elapsed| unavailable(format!("{address} did not answer within {GREETING:?}")))?
            .map_err(failed)?;
        let options = info.security_options.unwrap_or_default();
        let facts = Facts {
            version: info.server_version.unwrap_or_default(),
            is_rootless: options.iter().any(|option| option == "name=rootless"),
            architecture: info.architecture.unwrap_or_default(),
        };
        lock().insert(address.to_string(), (api.client_version(), facts.clone()));
        Ok(Self { api, facts })
    }
}

fn lock() -> MutexGuard<'static, BTreeMap<String, (ClientVersion, Facts)>> {
    KNOWN.lock().unwrap_or_else(PoisonError::into_inner)
}

fn client(address: &Address, version: &ClientVersion) -> Result<Docker, bollard::errors::Error> {
    match address {
        Address::Unix(path) => Docker::connect_with_unix(&path.to_string_lossy(), ANSWER, version),
        Address::Tcp(host) => Docker::connect_with_http(host, ANSWER, version),
    }
}
