//! Image pulls.

use std::path::{Path, PathBuf};
use std::time::Duration;

use hermes_exec::backend::docker::pull::{self, PullError, PullSettings};

use super::local;
use crate::ConfigContext;
use crate::failure::Failure;
use crate::keys::Config;

pub fn pull_settings(context: &ConfigContext, config: &Config) -> PullSettings {
    let home = local::owner_home(context);
    let docker_config =
        context.variable("DOCKER_CONFIG").map_or_else(|| Path::new(&home).join(".docker"), PathBuf::from);
    PullSettings { docker_config, timeout: Duration::from_secs(config.terminal.docker_pull_timeout) }
}

/// Adds hints about an image that is missing, or whose pull failed.
pub(super) fn add_image_hints(failure: Failure, image: &str, error: Option<&PullError>) -> Failure {
    let pull = format!("Run `hermes sandbox pull {image}` to pull it from its registry.");
    let retry = format!("Run `hermes sandbox pull {image}` to try again.");
    let load = "Run `docker load -i FILE` to load an image from a file.";
    let other = "Set `terminal.docker_image` to use another image.";
    match error {
        None => failure.hint(pull).hint(load).hint(other),
        Some(PullError::InvalidName) => {
            failure.hint("Use a name such as registry.example/owner/image:tag, in lower case.").hint(other)
        }
        Some(PullError::NotFound) => failure.hint("Check the name and the tag.").hint(load).hint(other),
        Some(PullError::Denied) => {
            let host = pull::registry_host(image);
            failure.hint(format!("Check the name and the tag, then run `docker login {host}`.")).hint(other)
        }
        Some(PullError::UnsendableSecret) => {
            failure.hint(format!("Run `docker pull {image}`, which can send it.")).hint(other)
        }
        Some(PullError::WrongPlatform) => failure.hint(other),
        Some(PullError::DiskFull) => failure.hint("Run `docker image prune` to remove unused images."),
        Some(PullError::TimedOut(_) | PullError::Stalled(_)) => {
            failure.hint(retry).hint("Set `terminal.docker_pull_timeout` to allow more seconds.")
        }
        Some(PullError::Unreachable(_) | PullError::Other(_)) => failure.hint(retry).hint(load).hint(other),
    }
}
