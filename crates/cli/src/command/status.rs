//! `hermes status`: what is set up, and where each setting comes from.

use std::process::ExitCode;

use hermes_types::BackendName;
use serde_json::{Value, json};

use crate::Context;
use crate::command::config::usable;
use crate::config::Loaded;
use crate::config::keys::Config;
use crate::config::layers::Source;
use crate::failure::{Failure, Kind};
use crate::screen::{Format, Tone};

pub(crate) fn run(context: &Context) -> Result<ExitCode, Failure> {
    let loaded = usable(context)?;
    let Some(config) = &loaded.config else {
        return Err(Failure::new(Kind::Configuration, "the configuration cannot be used"));
    };
    let facts = facts(context, loaded, config);
    if context.screen.format == Format::Json {
        context.screen.json(&facts)?;
    } else {
        context.screen.text(&text(context, &facts))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn facts(context: &Context, loaded: &Loaded, config: &Config) -> Value {
    let source = |path: &str| loaded.resolved(path).map(|resolved| &resolved.source);
    let terminal = &config.terminal;
    // A name on the list is as good as its value: who reads this must see at once that one is missing.
    let forwarded: Vec<Value> = terminal
        .docker_forward_env
        .iter()
        .map(|name| {
            let value = loaded.layers.variable(name.as_str());
            json!({"name": name.as_str(), "present": value.is_some_and(|value| !value.trim().is_empty())})
        })
        .collect();
    let volumes: Vec<String> = terminal.docker_volumes.iter().map(ToString::to_string).collect();
    json!({
        "version": env!("CARGO_PKG_VERSION"),
        "home": context.home.path(),
        "config": {
            "file": loaded.layers.file_path,
            "env": loaded.layers.dotenv_path,
            "problems": loaded.problems,
        },
        "terminal": {
            "backend": terminal.backend.word(),
            "source": source("terminal.backend"),
            "image": image(config, terminal.backend),
            "lifetime_seconds": terminal.lifetime_seconds,
            "volumes": volumes,
            "forwarded": forwarded,
        },
        "gateway": {
            "backend": config.gateway.terminal_backend.map(BackendName::word),
            "source": source("gateway.terminal_backend"),
            "image": config.gateway.sandbox_image,
            "lifetime_seconds": config.gateway.sandbox_lifetime,
        },
        "model": {
            "name": (!config.model.default.is_empty()).then_some(&config.model.default),
            "provider": config.model.provider,
            "source": source("model.default"),
        },
    })
}

/// The image such a place is made from, where it is made from one.
fn image(config: &Config, backend: BackendName) -> Option<&str> {
    let terminal = &config.terminal;
    match backend {
        BackendName::Docker | BackendName::Kubernetes => Some(&terminal.docker_image),
        BackendName::Singularity => Some(&terminal.singularity_image),
        BackendName::Modal => Some(&terminal.modal_image),
        BackendName::Daytona => Some(&terminal.daytona_image),
        BackendName::Local | BackendName::Sandbox | BackendName::Ssh => None,
    }
}

fn text(context: &Context, facts: &Value) -> String {
    let screen = context.screen;
    let word = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let from = |source: &Value| {
        let told = serde_json::from_value::<Source>(source.clone())
            .map_or_else(|_| String::new(), |s| s.to_string());
        screen.paint(Tone::Quiet, &format!("({told})"))
    };
    let mut rows: Vec<(&str, String)> = vec![
        ("version", word(&facts["version"])),
        ("home", word(&facts["home"])),
        (
            "commands",
            format!("{} {}", word(&facts["terminal"]["backend"]), from(&facts["terminal"]["source"])),
        ),
    ];
    if !facts["terminal"]["image"].is_null() {
        rows.push(("  image", word(&facts["terminal"]["image"])));
    }
    rows.push(("  idle for", format!("{} s at most", facts["terminal"]["lifetime_seconds"])));
    for volume in facts["terminal"]["volumes"].as_array().into_iter().flatten() {
        rows.push(("  mount", word(volume)));
    }
    for entry in facts["terminal"]["forwarded"].as_array().into_iter().flatten() {
        let state = if entry["present"] == true {
            screen.paint(Tone::Good, "present")
        } else {
            screen.paint(Tone::Doubtful, "missing")
        };
        rows.push(("  variable", format!("{} {state}", word(&entry["name"]))));
    }
    let chats = match facts["gateway"]["backend"].as_str() {
        Some(backend) => format!("{backend} {}", from(&facts["gateway"]["source"])),
        None => "sandbox where it works".to_owned(),
    };
    rows.push(("chats", chats));
    let model = match facts["model"]["name"].as_str() {
        Some(name) => format!("{name} {}", from(&facts["model"]["source"])),
        None => "none; set one with `hermes config set model.default NAME`".to_owned(),
    };
    rows.push(("model", model));
    let problems = facts["config"]["problems"].as_array().map_or(0, Vec::len);
    if problems > 0 {
        rows.push(("settings", format!("{problems} remarks; see `hermes config check`")));
    }
    rows.into_iter()
        .map(|(name, value)| format!("{}  {value}\n", screen.paint(Tone::Strong, &format!("{name:10}"))))
        .collect()
}
