//! Whether a backend can be used on this machine, and what it confines.

mod docker;
mod sandbox;

use std::path::Path;

use hermes_types::{BackendName, Guard};
use serde::{Serialize, Serializer};

use crate::Error;
use crate::backend::docker::engine_error::EngineError;
use crate::backend::local;
use crate::guard::Repositories;

pub use docker::EngineSummary;

#[derive(Debug)]
pub struct BackendHealth {
    pub backend: BackendName,
    pub usability: Usability,
    pub confinement: Confinement,
    /// The engine, for a backend that uses one.
    pub engine: Option<EngineSummary>,
    /// The guard, for commands on this machine.
    pub guard: Option<GuardHealth>,
}

/// Whether commands on this machine run under the guard.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct GuardHealth {
    pub setting: Guard,
    /// Why it is not available, unless it is off.
    pub problem: Option<String>,
    /// The git repositories whose hooks and settings it protects.
    pub repositories: Option<RepositoryCount>,
}

/// How many git repositories the guard found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct RepositoryCount {
    pub found: usize,
    /// Whether there are more, which it did not look for.
    pub is_limited: bool,
}

#[derive(Debug)]
pub enum Usability {
    Usable,
    Unusable(BackendProblem),
    /// The backend was not checked, for this reason.
    Unknown(&'static str),
}

/// The reason why a backend cannot be used, and the remedy.
#[derive(Debug, Clone)]
pub struct BackendProblem {
    pub what: String,
    pub remedy: String,
}

/// The guarantees of a backend against its commands, by area.
#[derive(Debug)]
pub struct Confinement(pub [(&'static str, Guarantee); 5]);

/// Whether a backend keeps its commands from an area, and the reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "state", content = "reason")]
pub enum Guarantee {
    #[serde(rename = "held")]
    Held(String),
    #[serde(rename = "not held")]
    NotHeld(String),
    #[serde(rename = "unknown")]
    Unknown(String),
}

impl BackendHealth {
    fn new(backend: BackendName, usability: Usability, confinement: Confinement) -> Self {
        Self { backend, usability, confinement, engine: None, guard: None }
    }

    /// Tries the guard of sessions with these directories. Blocks.
    pub fn of_local(guard: Guard, home: &Path, cwd: &Path) -> Self {
        let open = Guarantee::NotHeld("commands run as you; the gate asks first".to_owned());
        let problem = match guard {
            Guard::Off => None,
            Guard::Protect | Guard::Project => local::check_guard().err(),
        };
        let repositories = (guard != Guard::Off && problem.is_none()).then(|| {
            let repositories = Repositories::find(home, cwd);
            RepositoryCount { found: repositories.git_dirs.len(), is_limited: !repositories.is_complete }
        });
        let health = Self::new(BackendName::Local, Usability::Usable, Confinement::all(&open));
        Self { guard: Some(GuardHealth { setting: guard, problem, repositories }), ..health }
    }

    /// A backend that nothing is configured to use is not probed.
    pub fn not_probed(backend: BackendName) -> Self {
        let reason = "not checked: no setting uses this backend";
        let unknown = Guarantee::Unknown(reason.to_owned());
        Self::new(backend, Usability::Unknown(reason), Confinement::all(&unknown))
    }

    pub fn unsupported(backend: BackendName) -> Self {
        let problem = BackendProblem {
            what: "not part of this version".to_owned(),
            remedy: "Choose `docker`, `sandbox` or `local`; until then its commands do not run.".to_owned(),
        };
        let unknown = Guarantee::Unknown(problem.what.clone());
        Self::new(backend, Usability::Unusable(problem), Confinement::all(&unknown))
    }

    pub fn unusable(backend: BackendName, problem: BackendProblem) -> Self {
        let missing = match backend {
            BackendName::Docker => "no engine is available",
            _ => "no jail can be created to probe it",
        };
        let unknown = Guarantee::Unknown(missing.to_owned());
        Self::new(backend, Usability::Unusable(problem), Confinement::all(&unknown))
    }

    pub fn is_usable(&self) -> bool {
        matches!(self.usability, Usability::Usable)
    }
}

impl From<&EngineError> for BackendProblem {
    fn from(error: &EngineError) -> Self {
        Self { what: error.to_string(), remedy: error.hints().join(" ") }
    }
}

impl From<Error> for BackendProblem {
    fn from(error: Error) -> Self {
        match &error {
            Error::Engine(error) => Self::from(error),
            other => Self { what: other.to_string(), remedy: String::new() },
        }
    }
}

impl Confinement {
    fn all(guarantee: &Guarantee) -> Self {
        let areas = ["files", "network", "processes", "syscalls", "resources"];
        Self(areas.map(|area| (area, guarantee.clone())))
    }
}

impl Serialize for Confinement {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(area, guarantee)| (area, guarantee)))
    }
}
