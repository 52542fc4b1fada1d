//! `hermes status`: what is set up, what runs, on which backend, with which holes.

mod text;

use std::process::ExitCode;
use std::time::Duration;

use hermes_exec::health::{BackendHealth, Usability};
use hermes_exec::{ListedPlace, PlaceState, ProcessHandle, ProcessView, TreeStatus};
use hermes_types::{BackendName, EnvName, Timestamp};
use serde_json::{Map, Value, json};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::Context;
use crate::backend_health;
use crate::command::config::usable_config;
use crate::screen::OutputFormat;
use hermes_config::LoadedConfig;
use hermes_config::failure::{Failure, FailureKind};
use hermes_config::keys::Config;
use hermes_config::layers::Source;
use hermes_config::resolve;

/// How long a place may take to list its processes.
const PATIENCE: Duration = Duration::from_secs(2);

pub(crate) fn run(context: &Context) -> Result<ExitCode, Failure> {
    let loaded = usable_config(context)?;
    let Some(config) = &loaded.config else {
        return Err(Failure::new(FailureKind::Configuration, "the configuration cannot be used"));
    };
    let standings = BackendName::ALL.map(|backend| backend_health::probe(context, config, backend));
    let usable = |backend| standings.iter().any(|s| s.backend == backend && s.is_usable());
    let is_down = super::gateway::platforms(context).iter().any(|(_, health)| health["state"] == "down");
    let works = !is_down && backend_health::configured(config).into_iter().all(usable);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let found = runtime.block_on(world(context, config))?;
    let questions = runtime.block_on(questions(context))?;
    let mut facts = settings(context, loaded, config, &standings);
    facts.insert("backends".to_owned(), standings.iter().map(standing).collect::<Map<_, _>>().into());
    facts.insert("places".to_owned(), found.iter().map(|(found, _)| place(found)).collect());
    facts.insert(
        "processes".to_owned(),
        found.iter().flat_map(|(place, views)| processes(place, views)).collect(),
    );
    facts.insert("questions".to_owned(), questions);
    let facts = Value::Object(facts);
    if context.screen.format == OutputFormat::Json {
        context.screen.json(&facts)?;
    } else {
        context.screen.text(&text::text(context, &facts))?;
    }
    Ok(if works { ExitCode::SUCCESS } else { FailureKind::Unavailable.code() })
}

/// The questions that wait for somebody.
async fn questions(context: &Context) -> Result<Value, Failure> {
    let Some(store) = resolve::store::find(context).await? else { return Ok(json!([])) };
    let open = store.open_questions(Timestamp::now()).await.map_err(resolve::store::store_failure)?;
    store.close().await;
    let row = |question: &hermes_store::QuestionRow| {
        json!({
            "id": question.id,
            "session": question.key.as_str(),
            "text": question.shown["text"],
            "expires_seconds": question.expires.seconds().saturating_sub(Timestamp::now().seconds()),
        })
    };
    Ok(open.iter().map(row).collect())
}

/// Every place there is, with what runs in it.
async fn world(context: &Context, config: &Config) -> Result<Vec<(ListedPlace, Vec<ProcessView>)>, Failure> {
    let places = resolve::places(context, config);
    let listed = places.list().await;
    let mut asked = JoinSet::new();
    for found in listed.map_err(|error| Failure::new(FailureKind::Unavailable, error.to_string()))? {
        asked.spawn(with_processes(found));
    }
    let mut world = Vec::new();
    while let Some(one) = asked.join_next().await {
        world.extend(one.ok());
    }
    world.sort_by(|(one, _), (other, _)| one.record.name.cmp(&other.record.name));
    Ok(world)
}

async fn with_processes(mut found: ListedPlace) -> (ListedPlace, Vec<ProcessView>) {
    if !matches!(found.state, PlaceState::Running(_)) {
        return (found, Vec::new());
    }
    let list = timeout(PATIENCE, async { found.processes().await?.list().await }).await;
    let Ok(Ok(views)) = list else {
        // It answered before and does not any more.
        found.state = PlaceState::Unresponsive;
        return (found, Vec::new());
    };
    (found, views)
}

fn settings(
    context: &Context,
    loaded: &LoadedConfig,
    config: &Config,
    standings: &[BackendHealth],
) -> Map<String, Value> {
    let source = |path: &str| loaded.resolved(path).map(|resolved| &resolved.source);
    let terminal = &config.terminal;
    let mut found = vec![&loaded.layers.file_path, &loaded.layers.dotenv_path];
    found.retain(|path| path.exists());
    let volumes: Vec<String> = terminal.docker_volumes.iter().map(ToString::to_string).collect();
    // Chats use what is chosen for them, or the jail; where that does not work, nothing.
    let chosen = resolve::gateway::chat_backend(config);
    let works = standings.iter().any(|standing| standing.backend == chosen && standing.is_usable());
    let chats = config.gateway.terminal_backend.or(works.then_some(chosen));
    let gateway = super::gateway::facts(context);
    let facts = json!({
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
            "forwarded": forwarded(loaded, config),
        },
        "gateway": {
            "backend": config.gateway.terminal_backend.map(BackendName::as_str),
            "effective": chats.map(BackendName::as_str),
            "source": source("gateway.terminal_backend"),
            "image": config.gateway.sandbox_image,
            "lifetime_seconds": config.gateway.sandbox_lifetime,
            "warning": resolve::gateway::local_backend_warning(config),
            "running": gateway["running"],
            "platforms": gateway["platforms"],
        },
        "model": model(context, config, source("model.default")),
    });
    match facts {
        Value::Object(facts) => facts,
        _ => Map::new(),
    }
}

/// The model that would be asked. What keeps it from being asked is a fact too.
fn model(context: &Context, config: &Config, source: Option<&Source>) -> Value {
    let name = Some(config.model.default.as_str()).filter(|name| !name.is_empty());
    match resolve::model::models(context, config, None) {
        Ok(models) => {
            let asked = |endpoint: &hermes_model::Endpoint| json!({"name": endpoint.model, "provider": endpoint.provider});
            let first = models.chain.first();
            json!({
                "name": first.map(|first| &first.model),
                "provider": first.map(|first| &first.provider),
                "source": source,
                "address": first.map(|first| first.base_url.as_str()),
                "protocol": first.map(|first| first.api.as_str()),
                "key": models.key_source,
                "fallbacks": models.chain.iter().skip(1).map(asked).collect::<Vec<_>>(),
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

/// The variables that commands may see. A name on the list is as good as its value: who reads this must see at once
/// that one is missing.
fn forwarded(loaded: &LoadedConfig, config: &Config) -> Vec<Value> {
    let terminal = &config.terminal;
    let of_container: &[EnvName] = match backend_health::configured(config).contains(&BackendName::Docker) {
        true => &terminal.docker_forward_env,
        false => &[],
    };
    let names = terminal.env_passthrough.0.iter().chain(of_container);
    names
        .map(|name| {
            let present = loaded.layers.non_blank_variable(name.as_str()).is_some();
            json!({"name": name.as_str(), "present": present})
        })
        .collect()
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

fn standing(standing: &BackendHealth) -> (String, Value) {
    let (usable, reason, remedy) = match &standing.usability {
        Usability::Usable => (Some(true), None, None),
        Usability::Unusable(trouble) => {
            (Some(false), Some(trouble.what.as_str()), Some(trouble.remedy.as_str()))
        }
        Usability::Unknown(reason) => (None, Some(*reason), None),
    };
    let mut facts = json!({
        "usable": usable,
        "reason": reason,
        "remedy": remedy,
        "confines": standing.confinement,
    });
    if let Some(engine) = &standing.engine {
        facts["engine"] = json!(engine);
    }
    (standing.backend.as_str().to_owned(), facts)
}

fn place(found: &ListedPlace) -> Value {
    let record = &found.record;
    let (state, stats) = match found.state {
        PlaceState::Running(stats) => ("live", Some(stats)),
        PlaceState::Unresponsive => ("silent", None),
        PlaceState::OtherRunDir => ("elsewhere", None),
        PlaceState::Stopped => ("asleep", None),
    };
    json!({
        "name": record.name,
        "id": record.place,
        "backend": record.backend,
        "session": record.session,
        "state": state,
        "age_seconds": Timestamp::now().seconds().saturating_sub(record.created),
        "idle_seconds": stats.map(|stats| stats.idle.as_secs()),
        "lifetime_seconds": record.lifetime,
        // One of them is this program, looking.
        "clients": stats.map(|stats| stats.clients.saturating_sub(1)),
        "processes": stats.map(|stats| stats.running),
        "reach": record.reach,
        "holes": record.exposures(),
    })
}

fn processes(found: &ListedPlace, views: &[ProcessView]) -> Vec<Value> {
    let row = |view: &ProcessView| {
        json!({
            "id": ProcessHandle::new(&found.record.place, view.process).to_string(),
            "place": found.record.name,
            "command": String::from_utf8_lossy(&view.command),
            "age_seconds": view.age.as_secs(),
            "running": view.tree == TreeStatus::Alive,
            "exit_code": view.exit.as_ref().map(|ended| ended.code),
        })
    };
    views.iter().map(row).collect()
}
