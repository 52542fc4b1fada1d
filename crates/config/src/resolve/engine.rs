//! The container engine.

use std::path::PathBuf;

use hermes_exec::backend::docker::discover::{DiscoveredEngine, EngineHints};
use hermes_exec::backend::docker::engine_error::EngineError;

use super::local;
use crate::ConfigContext;
use crate::failure::{Failure, FailureKind};
use crate::keys::Config;

/// Finds the address of the engine.
pub fn find(context: &ConfigContext, config: &Config) -> Result<DiscoveredEngine, EngineError> {
    let variable = |name: &str| context.variable(name).map(str::to_owned);
    let home = PathBuf::from(local::owner_home(context));
    let default_runtime_dir = || format!("/run/user/{}", rustix::process::getuid().as_raw());
    let hints = EngineHints {
        docker_host: variable("DOCKER_HOST"),
        docker_context: variable("DOCKER_CONTEXT"),
        docker_tls_verify: variable("DOCKER_TLS_VERIFY"),
        container_host: variable("CONTAINER_HOST"),
        binary: config.terminal.docker_binary.clone().filter(|binary| !binary.trim().is_empty()),
        docker_config: variable("DOCKER_CONFIG").map_or_else(|| home.join(".docker"), PathBuf::from),
        runtime_dir: variable("XDG_RUNTIME_DIR").unwrap_or_else(default_runtime_dir).into(),
        home_dir: home,
    };
    hints.discover()
}

impl From<EngineError> for Failure {
    fn from(error: EngineError) -> Self {
        let kind = match error {
            EngineError::Address { .. } | EngineError::Binary { .. } | EngineError::Context { .. } => {
                FailureKind::Configuration
            }
            _ => FailureKind::Unavailable,
        };
        let message = format!("cannot use the docker backend: {error}");
        Self { kind, message, hints: error.hints() }
    }
}
