//! Where the commands of chats run and what the chats share, from settings.

use hermes_exec::backend::docker::engine::EngineAddress;
use hermes_gateway::SessionScope;
use hermes_types::{BackendName, MountAccess, Volume, VolumeSource};

use super::engine;
use crate::ConfigContext;
use crate::failure::{Failure, FailureKind};
use crate::file::create_private_dir;
use crate::keys::Config;

/// Where places of chats see the directory that they share.
pub const SHARED_DIR: &str = "/shared";

/// Where the commands of chats run: what the owner chose for them, or for everything. The owner's own machine must be chosen
/// for chats by its name; where nothing is chosen it is the built-in sandbox.
pub fn chat_backend(config: &Config) -> BackendName {
    config.gateway.terminal_backend.unwrap_or(match config.terminal.backend {
        BackendName::Local => BackendName::Sandbox,
        other => other,
    })
}

/// The directory that all chats share, if they are to share one.
pub fn shared_volume(context: &ConfigContext, config: &Config) -> Result<Option<Volume>, Failure> {
    if !config.gateway.shared_home {
        return Ok(None);
    }
    let refused = |why: String| {
        Failure::new(FailureKind::Configuration, format!("gateway.shared_home: {why}"))
            .hint("`hermes config set gateway.terminal_backend sandbox` (or docker) runs commands where it can be mounted")
            .hint("`hermes config unset gateway.shared_home` lets each chat have its own files only")
    };
    let backend = chat_backend(config);
    let is_here = match backend {
        BackendName::Sandbox => true,
        BackendName::Docker => {
            let engine = engine::find(context, config).map_err(|fault| engine::engine_failure(&fault))?;
            matches!(engine.address, EngineAddress::Unix(_))
        }
        _ => false,
    };
    if !is_here {
        return Err(refused(format!(
            "environments of the {backend} backend cannot mount a directory of this machine"
        )));
    }
    if config.terminal.docker_volumes.iter().any(|volume| volume.target == SHARED_DIR) {
        return Err(refused(format!("terminal.docker_volumes mounts something else at {SHARED_DIR}")));
    }
    let directory = context.home.path().join("shared");
    create_private_dir(&directory)?;
    let Some(path) = directory.to_str() else {
        return Err(refused(format!("{} is not text", directory.display())));
    };
    Ok(Some(Volume {
        source: VolumeSource::Path(path.to_owned()),
        target: SHARED_DIR.to_owned(),
        access: MountAccess::ReadWrite,
        options: Vec::new(),
    }))
}

/// Who shares a session.
pub fn session_scope(config: &Config) -> SessionScope {
    SessionScope {
        group_per_user: config.general.group_sessions_per_user,
        thread_per_user: config.general.thread_sessions_per_user,
    }
}

/// What is said at every start where chats reach the owner's machine.
pub fn local_backend_warning(config: &Config) -> Option<String> {
    (chat_backend(config) == BackendName::Local).then(|| {
        "commands of chats run on this machine as you: whoever may write to the bot can reach your files, within what \
         the gate allows. gateway.terminal_backend: sandbox (or docker) confines them"
            .to_owned()
    })
}
