//! The environments of chats.

use hermes_exec::backend::docker::engine::EngineAddress;
use hermes_gateway::SessionScope;
use hermes_types::{BackendName, MountAccess, Volume, VolumeSource, create_private_dir};

use super::engine;
use crate::ConfigContext;
use crate::failure::Failure;
use crate::keys::Config;

/// The mount point of the directory that all chats share.
pub const SHARED_DIR: &str = "/shared";

/// The backend that runs commands of chats. `local` must be chosen for chats explicitly; the
/// default instead of it is the sandbox.
pub fn chat_backend(config: &Config) -> BackendName {
    config.gateway.terminal_backend.unwrap_or(match config.terminal.backend {
        BackendName::Local => BackendName::Sandbox,
        other => other,
    })
}

/// The directory that all chats share, if enabled.
pub fn shared_volume(context: &ConfigContext, config: &Config) -> Result<Option<Volume>, Failure> {
    if !config.gateway.shared_home {
        return Ok(None);
    }
    let invalid = |reason: String| {
        Failure::configuration(format!("gateway.shared_home: {reason}"))
            .hint("Run `hermes config set gateway.terminal_backend sandbox` (or docker) to use a backend that can mount it.")
            .hint("Run `hermes config unset gateway.shared_home` to give each chat only its own files.")
    };
    let backend = chat_backend(config);
    let is_mountable = match backend {
        BackendName::Sandbox => true,
        BackendName::Docker => {
            matches!(engine::find(context, config)?.address, EngineAddress::Unix(_))
        }
        _ => false,
    };
    if !is_mountable {
        return Err(invalid(format!(
            "environments of the {backend} backend cannot mount a directory of this machine"
        )));
    }
    if config.terminal.docker_volumes.iter().any(|volume| volume.target == SHARED_DIR) {
        return Err(invalid(format!("terminal.docker_volumes mounts something else at {SHARED_DIR}")));
    }
    let directory = context.home.path().join("shared");
    create_private_dir(&directory)?;
    let Some(path) = directory.to_str() else {
        return Err(invalid(format!("{} is not text", directory.display())));
    };
    Ok(Some(Volume {
        source: VolumeSource::Path(path.to_owned()),
        target: SHARED_DIR.to_owned(),
        access: MountAccess::ReadWrite,
        options: Vec::new(),
    }))
}

pub fn session_scope(config: &Config) -> SessionScope {
    SessionScope {
        group_per_user: config.general.group_sessions_per_user,
        thread_per_user: config.general.thread_sessions_per_user,
    }
}

/// The warning at every start if commands of chats run on this machine.
pub fn local_backend_warning(config: &Config) -> Option<String> {
    (chat_backend(config) == BackendName::Local).then(|| {
        "commands of chats run on this machine as you: all users of the bot can reach your files, within what \
         the gate allows. Set gateway.terminal_backend to sandbox or docker to confine them"
            .to_owned()
    })
}
