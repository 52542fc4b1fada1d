//! Image pulls.

use std::path::{Path, PathBuf};
use std::time::Duration;

use hermes_exec::backend::docker::credentials::CredentialsError;
use hermes_exec::backend::docker::pull::{self, PullError, PullOptions, PullSettings};

use super::local;
use crate::ConfigContext;
use crate::failure::Failure;
use crate::keys::Config;

/// How this configuration pulls images.
pub fn pull_settings(context: &ConfigContext, config: &Config) -> PullSettings {
    let home = local::owner_home(context);
    let docker_config =
        context.variable("DOCKER_CONFIG").map_or_else(|| Path::new(&home).join(".docker"), PathBuf::from);
    PullSettings { docker_config, timeout: Duration::from_secs(config.terminal.docker_pull_timeout) }
}

/// The options to pull an image. A broken credential store is a warning.
pub async fn pull_options(settings: &PullSettings, image: &str, warn: impl Fn(&str)) -> PullOptions {
    let (options, warning) = settings.options_for(image).await;
    if let Some(error) = warning {
        warn(&credentials_warning(&error));
    }
    options
}

/// The warning about a pull without credentials.
pub fn credentials_warning(error: &CredentialsError) -> String {
    format!("pulling without registry credentials: {error}")
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
            .hint("Set `terminal.docker_pull_timeout` to allow more seconds."),
        Some(PullError::Unreachable(_) | PullError::Other(_)) => {
            failure.hint(format!("`hermes sandbox pull {image}` tries again")).hint(load).hint(other)
        }
    }
}
