//! What an agent works with, from settings. Every door makes its sessions here.

use std::fs::File;
use std::io::Read;
use std::sync::Arc;
use std::time::Duration;

use hermes_agent::{
    Approver, CodeExecutionConfig, SessionConfig, SystemPrompt, SystemPromptInput, Tool, ToolLimits,
    WebClient,
};
use hermes_exec::ResolvedPlace;
use hermes_exec::backend::docker::pull::PullSettings;
use hermes_policy::Gate;
use hermes_policy::redact::Redactor;
use hermes_store::Store;
use hermes_types::{Attendance, EntryPoint, Person, Secret, Timestamp};

use super::image::{pull_options, pull_settings};
use crate::keys::Config;
use crate::secrets::secrets;
use crate::{ConfigContext, Warn};

/// The most that is read of the owner's words about who the model is.
const MAX_SOUL_BYTES: u64 = 64 << 10;

/// Who opens a session, and how they are asked.
pub struct Actor {
    /// Who it is.
    pub person: Person,
    /// By which door.
    pub entry_point: EntryPoint,
    /// Who may answer questions.
    pub attendance: Attendance,
    /// How they are asked.
    pub approver: Arc<dyn Approver>,
}

/// What all sessions of a process share.
pub struct SharedResources {
    gate: Arc<Gate>,
    redactor: Redactor,
    pulls: PullSettings,
    warn: Warn,
    web: Arc<WebClient>,
}

impl SharedResources {
    pub fn new(context: &ConfigContext, config: &Config) -> Self {
        Self {
            gate: Arc::new(super::gate(config)),
            redactor: redactor(context, config),
            pulls: pull_settings(context, config),
            warn: Arc::clone(&context.warn),
            web: Arc::default(),
        }
    }
}

/// What the hands of a session are made of.
pub fn session_config(
    stock: &SharedResources,
    config: &Config,
    plan: ResolvedPlace,
    visitor: Actor,
    store: Store,
) -> SessionConfig {
    let Actor { person, entry_point: door, attendance, approver: ask } = visitor;
    let (pulls, warn) = (stock.pulls.clone(), Arc::clone(&stock.warn));
    let size = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
    SessionConfig {
        session: plan.session().clone(),
        place: plan,
        gate: Arc::clone(&stock.gate),
        attendance,
        person,
        entry_point: door,
        approver: ask,
        redactor: stock.redactor.clone(),
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
        pull_auth: Arc::new(move |image| {
            let (pulls, warn) = (pulls.clone(), Arc::clone(&warn));
            Box::pin(async move { pull_options(&pulls, &image, |message| warn(message)).await })
        }),
        web: Arc::clone(&stock.web),
    }
}

/// Takes out of what a model sees every secret that the configuration holds or that goes into places.
fn redactor(context: &ConfigContext, config: &Config) -> Redactor {
    let Some(mut secrets) = secrets(&context.loaded) else { return Redactor::disabled() };
    let forwarded = config.terminal.docker_forward_env.iter();
    let values = forwarded.filter_map(|name| context.loaded.layers.non_blank_variable(name.as_str()));
    secrets.extend(values.map(Secret::new));
    Redactor::new(&secrets)
}

/// What the model is told first.
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
