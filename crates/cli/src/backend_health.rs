//! The health of the configured backends.

use hermes_config::failure::Failure;
use hermes_config::keys::Config;
use hermes_config::resolve::{self, ResolveMode, engine};
use hermes_exec::health::{BackendHealth, BackendProblem};
use hermes_types::BackendName;

use crate::Context;

/// The backends that commands of this configuration run on.
pub(crate) fn configured(config: &Config) -> Vec<BackendName> {
    let mut names = vec![config.terminal.backend];
    let has_chats = config.discord.bot_token.is_some();
    names.extend(
        config.gateway.terminal_backend.or_else(|| has_chats.then(|| resolve::gateway::chat_backend(config))),
    );
    names.dedup();
    names
}

/// Probes a backend. Nothing is left behind.
pub(crate) fn probe(context: &Context, config: &Config, backend: BackendName) -> BackendHealth {
    let probed = match backend {
        BackendName::Local => Ok(BackendHealth::local()),
        BackendName::Sandbox => sandbox(context, config),
        BackendName::Docker if !configured(config).contains(&backend) => {
            Ok(BackendHealth::not_probed(backend))
        }
        BackendName::Docker => docker(context, config),
        _ => Ok(BackendHealth::unsupported(backend)),
    };
    probed.unwrap_or_else(|problem| BackendHealth::unusable(backend, problem))
}

fn sandbox(context: &Context, config: &Config) -> Result<BackendHealth, BackendProblem> {
    let home = context.variable("HOME").unwrap_or("/");
    let settings = resolve::sandbox_backend(context, config, home).map_err(problem)?;
    Ok(BackendHealth::of_sandbox(&settings))
}

fn docker(context: &Context, config: &Config) -> Result<BackendHealth, BackendProblem> {
    let source = engine::find(context, config).map_err(|error| BackendProblem::from(&error))?.source;
    let home = context.variable("HOME").unwrap_or("/");
    // If only chats use the backend, their image counts.
    let image =
        config.gateway.sandbox_image.as_deref().filter(|_| config.terminal.backend != BackendName::Docker);
    let settings = resolve::docker(context, config, image, home, ResolveMode::Inspect).map_err(problem)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| problem(Failure::from(error)))?;
    Ok(runtime.block_on(BackendHealth::of_docker(&settings, &source)))
}

fn problem(failure: Failure) -> BackendProblem {
    BackendProblem { what: failure.message, remedy: failure.hints.join("; ") }
}
