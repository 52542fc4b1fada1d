//! `hermes status`: configuration, backends, environments, exposures and platform health.

mod text;

use std::process::ExitCode;
use std::time::Duration;

use hermes_exec::health::{BackendHealth, Usability};
use hermes_exec::{ListedPlace, PlaceState, ProcessView, TreeStatus};
use hermes_store::QuestionRow;
use hermes_types::{BackendName, EnvName, Timestamp};
use serde_json::{Map, Value, json};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::command::config::settings;
use crate::command::process::handle;
use crate::command::sandbox;
use crate::database::with_store;
use crate::{Config, Context, Failure, FailureKind, Result, backend_health, block_on};
use hermes_config::layers::Source;
use hermes_config::resolve;

/// How long an environment may take to list its processes.
const LIST_TIMEOUT: Duration = Duration::from_secs(2);

pub(crate) fn run(context: &Context) -> Result<ExitCode> {
    let config = settings(context)?;
    let probe = |backend: &BackendName| backend_health::probe(context, config, *backend);
    let backends: Vec<_> = BackendName::ALL.iter().map(probe).collect();
    let is_usable = |name| backends.iter().any(|health| health.backend == name && health.is_usable());
    let is_down = super::gateway::platforms(context).iter().any(|(_, health)| health["state"] == "down");
    let works = !is_down && backend_health::configured(config).into_iter().all(is_usable);
    let (places, questions) =
        block_on(async { Ok((places(context, config).await?, questions(context).await?)) })?;
    let mut facts = settings_facts(context, config, is_usable(resolve::gateway::chat_backend(config)));
    facts["backends"] = backends.iter().map(backend_facts).collect::<Map<_, _>>().into();
    facts["places"] = places.iter().map(|(place, _)| place_facts(place)).collect();
    facts["processes"] = places.iter().flat_map(|(place, views)| process_facts(place, views)).collect();
    facts["questions"] = questions;
    context.screen.print(&facts, text::text(context, &facts).trim_end())?;
    Ok(if works { ExitCode::SUCCESS } else { FailureKind::Unavailable.code() })
}

/// The pending questions.
async fn questions(context: &Context) -> Result<Value> {
    let now = Timestamp::now();
    let open = with_store(context, async |store| Ok(store.open_questions(now).await?)).await?;
    let row = |question: &QuestionRow| {
        json!({
            "id": question.id,
            "session": question.key.as_str(),
            "text": question.shown["text"],
            "expires_seconds": question.expires.seconds().saturating_sub(now.seconds()),
        })
    };
    Ok(open.iter().map(row).collect())
}

/// All environments with their processes, sorted by name.
async fn places(context: &Context, config: &Config) -> Result<Vec<(ListedPlace, Vec<ProcessView>)>> {
    let listed = resolve::places(context, config).list().await;
    let listed = listed.map_err(|error| Failure::unavailable(error.to_string()))?;
    let mut places = listed.into_iter().map(with_processes).collect::<JoinSet<_>>().join_all().await;
    places.sort_by(|(one, _), (other, _)| one.record.name.cmp(&other.record.name));
    Ok(places)
}

async fn with_processes(mut place: ListedPlace) -> (ListedPlace, Vec<ProcessView>) {
    if !matches!(place.state, PlaceState::Running(_)) {
        return (place, Vec::new());
    }
    let views = timeout(LIST_TIMEOUT, async { place.processes().await?.list().await }).await;
    let Ok(Ok(views)) = views else {
        place.state = PlaceState::Unresponsive;
        return (place, Vec::new());
    };
    (place, views)
}

fn settings_facts(context: &Context, config: &Config, is_chat_backend_usable: bool) -> Value {
    let loaded = &context.loaded;
    let source = |path: &str| loaded.resolved(path).map(|resolved| &resolved.source);
    let terminal = &config.terminal;
    let mut found = vec![&loaded.layers.file_path, &loaded.layers.dotenv_path];
    found.retain(|path| path.exists());
    let volumes: Vec<String> = terminal.docker_volumes.iter().map(ToString::to_string).collect();
    let default_backend = is_chat_backend_usable.then(|| resolve::gateway::chat_backend(config));
    let gateway = super::gateway::facts(context);
    json!({
        "version": env!("CARGO_PKG_VERSION"),
        "home": context.home.path(),
        "config": {
            "file": loaded.layers.file_path,
            "env": loaded.layers.dotenv_path,
            "found": found,
            "problems": loaded.problems,
        },
        "terminal": {
            "backend": terminal.backend.as_str(),
            "source": source("terminal.backend"),
            "image": image(config, terminal.backend),
            "lifetime_seconds": terminal.lifetime_seconds,
            "volumes": volumes,
            "forwarded": forwarded(context, config),
        },
        "gateway": {
            "backend": config.gateway.terminal_backend.map(BackendName::as_str),
            "effective": config.gateway.terminal_backend.or(default_backend).map(BackendName::as_str),
            "source": source("gateway.terminal_backend"),
            "image": config.gateway.sandbox_image,
            "lifetime_seconds": config.gateway.sandbox_lifetime,
            "warning": resolve::gateway::local_backend_warning(config),
            "running": gateway["running"],
            "platforms": gateway["platforms"],
        },
        "model": model(context, config, source("model.default")),
    })
}

/// The model, or the problem that prevents its use.
fn model(context: &Context, config: &Config, source: Option<&Source>) -> Value {
    let name = Some(config.model.default.as_str()).filter(|name| !name.is_empty());
    match resolve::model::models(context, config, None) {
        Ok(models) => {
            let fallback = |endpoint: &hermes_model::Endpoint| json!({"name": endpoint.model, "provider": endpoint.provider});
            let first = models.chain.first();
            json!({
                "name": first.map(|first| &first.model),
                "provider": first.map(|first| &first.provider),
                "source": source,
                "address": first.map(|first| first.base_url.as_str()),
                "protocol": first.map(|first| first.api.as_str()),
                "key": models.key_source,
                "fallbacks": models.chain.iter().skip(1).map(fallback).collect::<Vec<_>>(),
                "problem": null,
            })
        }
        Err(failure) => json!({
            "name": name,
            "provider": config.model.provider,
            "source": source,
            "problem": failure.message,
            "remedy": failure.hints.first(),
        }),
    }
}

/// The variables that commands can read, and whether each has a value.
fn forwarded(context: &Context, config: &Config) -> Vec<Value> {
    let terminal = &config.terminal;
    let uses_docker = backend_health::configured(config).contains(&BackendName::Docker);
    let docker_names: &[EnvName] = if uses_docker { &terminal.docker_forward_env } else { &[] };
    let variable = |name: &EnvName| {
        let present = context.loaded.layers.non_blank_variable(name.as_str()).is_some();
        json!({"name": name.as_str(), "present": present})
    };
    terminal.env_passthrough.0.iter().chain(docker_names).map(variable).collect()
}

/// The image of the backend, if it uses one.
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

fn backend_facts(health: &BackendHealth) -> (String, Value) {
    let (usable, reason, remedy) = match &health.usability {
        Usability::Usable => (Some(true), None, None),
        Usability::Unusable(problem) => {
            (Some(false), Some(problem.what.as_str()), Some(problem.remedy.as_str()))
        }
        Usability::Unknown(reason) => (None, Some(*reason), None),
    };
    let confines = &health.confinement;
    let mut facts = json!({"usable": usable, "reason": reason, "remedy": remedy, "confines": confines});
    if let Some(engine) = &health.engine {
        facts["engine"] = json!(engine);
    }
    if let Some(guard) = &health.guard {
        facts["guard"] = json!(guard);
    }
    (health.backend.as_str().to_owned(), facts)
}

fn place_facts(place: &ListedPlace) -> Value {
    let mut facts = sandbox::common_facts(place);
    if matches!(place.state, PlaceState::Running(_)) {
        facts["state"] = json!("live");
    }
    facts["processes"] = json!(sandbox::stats(place).map(|stats| stats.running));
    facts["holes"] = json!(place.record.exposures());
    facts
}

fn process_facts(place: &ListedPlace, views: &[ProcessView]) -> Vec<Value> {
    let row = |view: &ProcessView| {
        json!({
            "id": handle(&place.record, view),
            "place": place.record.name,
            "command": String::from_utf8_lossy(&view.command),
            "age_seconds": view.age.as_secs(),
            "running": view.tree == TreeStatus::Alive,
            "exit_code": view.exit.as_ref().map(|exit| exit.code),
        })
    };
    views.iter().map(row).collect()
}
