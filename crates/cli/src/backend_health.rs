//! The health of the configured backends.

use std::path::Path;

use hermes_config::resolve::{self, ResolveMode, engine};
use hermes_exec::health::{BackendHealth, BackendProblem};
use hermes_types::BackendName;

use crate::{Config, Context, Failure, block_on};

/// The backends that run commands of this configuration.
pub(crate) fn configured(config: &Config) -> Vec<BackendName> {
    let mut names = vec![config.terminal.backend];
    let has_chats = config.discord.bot_token.is_some();
    names.extend(
        config.gateway.terminal_backend.or_else(|| has_chats.then(|| resolve::gateway::chat_backend(config))),
    );
    names.dedup();
    names
}

/// Probes a backend and removes everything that the probe creates.
pub(crate) fn probe(context: &Context, config: &Config, backend: BackendName) -> BackendHealth {
    let home = context.variable("HOME").unwrap_or("/");
    let health = match backend {
        BackendName::Local => {
            let home = Path::new(home);
            let cwd = std::env::current_dir().unwrap_or_else(|_missing| home.to_owned());
            Ok(BackendHealth::of_local(config.terminal.guard, home, &cwd))
        }
        BackendName::Sandbox => resolve::sandbox_backend(context, config, home)
            .map(|settings| BackendHealth::of_sandbox(&settings))
            .map_err(problem),
        BackendName::Docker if !configured(config).contains(&backend) => {
            Ok(BackendHealth::not_probed(backend))
        }
        BackendName::Docker => probe_docker(context, config, home),
        _ => Ok(BackendHealth::unsupported(backend)),
    };
    health.unwrap_or_else(|problem| BackendHealth::unusable(backend, problem))
}

fn probe_docker(context: &Context, config: &Config, home: &str) -> Result<BackendHealth, BackendProblem> {
    let source = engine::find(context, config).map_err(|error| BackendProblem::from(&error))?.source;
    // If only chats use the backend, their image counts.
    let image =
        config.gateway.sandbox_image.as_deref().filter(|_| config.terminal.backend != BackendName::Docker);
    let settings = resolve::docker(context, config, image, home, ResolveMode::Inspect).map_err(problem)?;
    block_on(async { Ok(BackendHealth::of_docker(&settings, &source).await) }).map_err(problem)
}

fn problem(failure: Failure) -> BackendProblem {
    BackendProblem { what: failure.message, remedy: failure.hints.join(" ") }
}
