//! Which engine creates the containers.

use std::path::PathBuf;

use hermes_exec::backend::docker::discover::{DiscoveredEngine, EngineHints};
use hermes_exec::backend::docker::engine_error::EngineError;

use super::local;
use crate::ConfigContext;
use crate::failure::{Failure, FailureKind};
use crate::keys::Config;

/// Where the engine listens, and how that is known.
pub fn find(context: &ConfigContext, config: &Config) -> Result<DiscoveredEngine, EngineError> {
    let variable = |name: &str| context.variable(name).map(str::to_owned);
    let home = PathBuf::from(local::owner_home(context));
    let own_sockets = || format!("/run/user/{}", rustix::process::getuid().as_raw());
    let clues = EngineHints {
        docker_host: variable("DOCKER_HOST"),
        docker_context: variable("DOCKER_CONTEXT"),
        docker_tls_verify: variable("DOCKER_TLS_VERIFY"),
        container_host: variable("CONTAINER_HOST"),
        binary: config.terminal.docker_binary.clone().filter(|word| !word.trim().is_empty()),
        docker_config: variable("DOCKER_CONFIG").map_or_else(|| home.join(".docker"), PathBuf::from),
        runtime_dir: variable("XDG_RUNTIME_DIR").unwrap_or_else(own_sockets).into(),
        home_dir: home,
    };
    clues.discover()
}

/// What is wrong with the engine, and what to do about it.
pub fn engine_failure(fault: &EngineError) -> Failure {
    let kind = match fault {
        EngineError::Address { .. } | EngineError::Binary { .. } | EngineError::Context { .. } => {
            FailureKind::Configuration
        }
        _ => FailureKind::Unavailable,
    };
    let message = format!("cannot use the docker backend: {fault}");
    Failure { kind, message, hints: fault.hints() }
}
