//! The image of a place, fetched when it is missing.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use hermes_exec::backend::docker::pull::{self, PullError, PullOptions};

use super::{credentials, local};
use crate::failure::Failure;
use crate::keys::Config;
use crate::{ConfigContext, Warn};

/// What a pull of this image is allowed.
pub async fn means(context: &ConfigContext, config: &Config, image: &str) -> PullOptions {
    Pulls::new(context, config).means(image).await
}

/// What is to be known to say what a pull is allowed.
#[derive(Clone)]
pub(super) struct Pulls {
    warn: Warn,
    /// Where the owner's credentials are.
    directory: PathBuf,
    timeout: Duration,
}

impl Pulls {
    pub(super) fn new(context: &ConfigContext, config: &Config) -> Self {
        let home = local::owner_home(context);
        let directory = credentials::directory(context.variable("DOCKER_CONFIG"), &home);
        let timeout = Duration::from_secs(config.terminal.docker_pull_timeout);
        Self { warn: Arc::clone(&context.warn), directory, timeout }
    }

    pub(super) async fn means(&self, image: &str) -> PullOptions {
        let found = credentials::credentials(&self.directory, pull::registry_host(image)).await;
        // Most images are for everybody.
        let credentials = found.unwrap_or_else(|what| {
            (self.warn)(&format!("the registry is asked without your credentials: {what}"));
            None
        });
        PullOptions { credentials, timeout: self.timeout }
    }
}

/// What to do about an image that could not be had.
pub(super) fn advise(failure: Failure, image: &str, fault: Option<&PullError>) -> Failure {
    let pull = format!("`hermes sandbox pull {image}` gets it from its registry");
    let load = "`docker load -i FILE` brings in one that was saved to a file";
    let other = "`terminal.docker_image` chooses another one";
    match fault {
        None => failure.hint(pull).hint(load).hint(other),
        Some(PullError::InvalidName) => {
            failure.hint("a name is like registry.example/owner/image:tag, in small letters").hint(other)
        }
        Some(PullError::NotFound) => {
            failure.hint("see whether name and tag are right").hint(load).hint(other)
        }
        Some(PullError::Denied) => {
            let host = pull::registry_host(image);
            failure.hint(format!("`docker login {host}` lets you in, if name and tag are right")).hint(other)
        }
        Some(PullError::UnsendableSecret) => {
            failure.hint(format!("`docker pull {image}` can send it")).hint(other)
        }
        Some(PullError::WrongPlatform) => failure.hint(other),
        Some(PullError::DiskFull) => failure.hint("`docker image prune` removes images that nothing uses"),
        Some(PullError::TimedOut(_) | PullError::Stalled(_)) => failure
            .hint(format!("`hermes sandbox pull {image}` tries again; what was fetched may be used again"))
            .hint("`terminal.docker_pull_timeout` says how many seconds it may take"),
        Some(PullError::Unreachable(_) | PullError::Other(_)) => {
            failure.hint(format!("`hermes sandbox pull {image}` tries again")).hint(load).hint(other)
        }
    }
}
