//! What an agent works with, from settings. Every door makes its sessions here.

use std::sync::{Arc, RwLock};
use std::time::Duration;

use hermes_agent::{Ask, Limits, Setup, Tool, Web};
use hermes_exec::Plan;
use hermes_policy::redact::Redactor;
use hermes_types::{Attendance, Door, Person, Secret};

use super::image::Pulls;
use crate::Context;
use crate::config::keys::Config;
use crate::log;

/// Who opens a session, and how they are asked.
pub(crate) struct Visitor {
    /// Who it is.
    pub(crate) person: Person,
    /// By which door.
    pub(crate) door: Door,
    /// How they are asked.
    pub(crate) ask: Arc<dyn Ask>,
}

/// What the hands of a session are made of.
pub(crate) fn setup(context: &Context, config: &Config, plan: Plan, visitor: Visitor) -> Setup {
    let Visitor { person, door, ask } = visitor;
    let pulls = Pulls::new(context, config);
    let size = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
    Setup {
        plan,
        gate: Arc::new(RwLock::new(super::gate(config))),
        attendance: Attendance::Attended(vec![person.clone()]),
        person,
        door,
        ask,
        redactor: redactor(context, config),
        limits: Limits {
            timeout: Duration::from_secs(config.terminal.timeout),
            max_foreground: Duration::from_secs(config.terminal.max_foreground_timeout),
            output_bytes: u32::try_from(config.tool_output.max_bytes).unwrap_or(u32::MAX),
            read_lines: config.tool_output.max_lines,
            line_length: size(config.tool_output.max_line_length),
            read_chars: size(config.general.file_read_max_chars),
        },
        tools: Tool::ALL.to_vec(),
        means: Arc::new(move |image| {
            let pulls = pulls.clone();
            Box::pin(async move { pulls.means(&image).await })
        }),
        web: Arc::new(Web::default()),
    }
}

/// Takes out of what a model sees every secret that the configuration holds or that goes into places.
fn redactor(context: &Context, config: &Config) -> Redactor {
    match log::secrets(&context.loaded) {
        None => Redactor::silent(),
        Some(mut secrets) => {
            let forwarded = config.terminal.docker_forward_env.iter();
            let values = forwarded.filter_map(|name| context.loaded.layers.filled(name.as_str()));
            secrets.extend(values.map(Secret::new));
            Redactor::new(&secrets)
        }
    }
}
