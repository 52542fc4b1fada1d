//! The configuration of agent sessions. Every entry point creates its sessions here.

use std::fs::File;
use std::io::Read;
use std::sync::Arc;
use std::time::Duration;

use hermes_agent::{
    ApprovalReviewer, Approver, CodeExecutionConfig, SessionConfig, SystemPrompt, SystemPromptInput, Tool,
    ToolLimits, WebClient,
};
use hermes_exec::ResolvedPlace;
use hermes_exec::backend::docker::pull::PullSettings;
use hermes_policy::Gate;
use hermes_policy::redact::Redactor;
use hermes_store::Store;
use hermes_types::{Attendance, EntryPoint, Person, Secret, Timestamp};

use super::image::pull_settings;
use crate::keys::Config;
use crate::secrets::secrets;
use crate::{ConfigContext, Warn};

/// The most that is read of SOUL.md.
const MAX_SOUL_BYTES: u64 = 64 << 10;

/// The person a session runs for, and how its questions are asked.
pub struct Actor {
    pub person: Person,
    pub entry_point: EntryPoint,
    pub attendance: Attendance,
    pub approver: Arc<dyn Approver>,
}

/// Resources that all sessions of a process share.
pub struct SharedResources {
    gate: Arc<Gate>,
    reviewer: Option<Arc<ApprovalReviewer>>,
    redactor: Redactor,
    pulls: PullSettings,
    warn: Warn,
    web: Arc<WebClient>,
}

impl SharedResources {
    pub fn new(context: &ConfigContext, config: &Config) -> Self {
        Self {
            gate: Arc::new(super::gate(config)),
            reviewer: reviewer(context, config),
            redactor: redactor(context, config),
            pulls: pull_settings(context, config),
            warn: Arc::clone(&context.warn),
            web: Arc::default(),
        }
    }
}

/// The configuration of a session.
pub fn session_config(
    shared: &SharedResources,
    config: &Config,
    place: ResolvedPlace,
    actor: Actor,
    store: Store,
) -> SessionConfig {
    let Actor { person, entry_point, attendance, approver } = actor;
    let size = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
    SessionConfig {
        session: place.session().clone(),
        place,
        gate: Arc::clone(&shared.gate),
        attendance,
        person,
        entry_point,
        approver,
        reviewer: shared.reviewer.clone(),
        redactor: shared.redactor.clone(),
        limits: ToolLimits {
            timeout: Duration::from_secs(config.terminal.timeout),
            max_foreground: Duration::from_secs(config.terminal.max_foreground_timeout),
            output_bytes: u32::try_from(config.tool_output.max_bytes).unwrap_or(u32::MAX),
            read_lines: config.tool_output.max_lines,
            line_length: size(config.tool_output.max_line_length),
            read_chars: size(config.general.file_read_max_chars),
            code_execution: CodeExecutionConfig {
                timeout: Duration::from_secs(config.code_execution.timeout),
                max_tool_calls: u32::try_from(config.code_execution.max_tool_calls).unwrap_or(u32::MAX),
                mode: config.code_execution.mode,
            },
        },
        tools: Tool::ALL.to_vec(),
        store,
        pull: shared.pulls.clone(),
        warn: Arc::clone(&shared.warn),
        web: Arc::clone(&shared.web),
    }
}

/// The model that is asked before a person, in the mode `smart`.
pub fn reviewer(context: &ConfigContext, config: &Config) -> Option<Arc<ApprovalReviewer>> {
    super::model::approval_reviewer(context, config, redactor(context, config)).map(Arc::new)
}

/// Masks the secrets of the configuration and of forwarded variables in text for a model.
fn redactor(context: &ConfigContext, config: &Config) -> Redactor {
    let Some(mut secrets) = secrets(&context.loaded) else { return Redactor::disabled() };
    let forwarded = config.terminal.docker_forward_env.iter();
    let values = forwarded.filter_map(|name| context.loaded.layers.non_blank_variable(name.as_str()));
    secrets.extend(values.map(Secret::new));
    Redactor::new(&secrets)
}

/// The system prompt of a session.
pub fn system_prompt(context: &ConfigContext, setup: &SessionConfig, model: &str) -> SystemPrompt {
    let mut soul = String::new();
    if let Ok(file) = File::open(context.home.path().join("SOUL.md"))
        && let Err(error) = file.take(MAX_SOUL_BYTES).read_to_string(&mut soul)
    {
        context.warn(&format!("cannot read SOUL.md: {error}"));
        soul.clear();
    }
    let (year, month, day) = Timestamp::now().date();
    SystemPromptInput {
        soul: Some(&soul),
        tools: &setup.tools,
        backend: setup.place.backend_name(),
        cwd: setup.place.initial_cwd(),
        today: &format!("{year:04}-{month:02}-{day:02}"),
        model,
    }
    .build()
}
