//! `hermes sandbox`: lists and manages environments.

mod pull;

use std::time::Duration;

use hermes_exec::{ListedPlace, PlaceRecord, PlaceState, Places, Stats};
use hermes_types::{Reach, Timestamp};
use serde_json::{Value, json};

use crate::args::SandboxAction;
use crate::command::config::settings;
use crate::command::only_item;
use crate::screen::{Tone, format_age, format_count, format_since, one_line};
use crate::{Context, Failure, Result, block_on};
use hermes_config::resolve;

/// How long a closed connection may still be counted.
const DISCONNECT_DELAY: Duration = Duration::from_millis(300);

pub(crate) fn run(action: SandboxAction, context: &Context) -> Result<()> {
    let places = resolve::places(context, settings(context)?);
    block_on(async {
        match action {
            SandboxAction::Pull { image } => pull::pull(&image, context).await,
            SandboxAction::Ls => list(&places, context).await,
            SandboxAction::Show { id } => show(&places, &id, context).await,
            SandboxAction::Rm { ids, all, force } => {
                let ids = if all {
                    places.list().await?.into_iter().map(|place| place.record.name).collect()
                } else {
                    ids
                };
                remove(&places, &ids, force, context).await
            }
            SandboxAction::Prune { files } => prune(&places, files, context).await,
        }
    })
}

async fn list(places: &Places, context: &Context) -> Result<()> {
    let listed = places.list().await?;
    let row = |place: &ListedPlace| {
        vec![
            place.record.name.clone(),
            place.record.backend.clone(),
            format_state(place),
            format_since(created(place)),
            format_session(&place.record, 40),
        ]
    };
    context.screen.list(
        &json!({"places": listed.iter().map(facts).collect::<Vec<_>>()}),
        "no environments; `hermes exec` and `hermes shell` create them",
        &["NAME", "BACKEND", "STATE", "AGE", "SESSION"],
        &listed.iter().map(row).collect::<Vec<_>>(),
    )
}

fn format_session(record: &PlaceRecord, columns: usize) -> String {
    if record.is_warm() { "(in the warm pool)".to_owned() } else { one_line(&record.session, columns) }
}

async fn show(places: &Places, id: &str, context: &Context) -> Result<()> {
    let place = find_place(places, id).await?;
    let processes = match stats(&place) {
        Some(_) => place.processes().await?.list().await?,
        None => Vec::new(),
    };
    let record = &place.record;
    let exposures = record.exposures();
    let screen = context.screen;
    if screen.is_json() {
        let views: Vec<Value> = processes.iter().map(|view| super::process::facts(record, view)).collect();
        let mut facts = facts(&place);
        facts["holes"] = json!(exposures);
        facts["spec"] = record.spec.clone();
        facts["engine"] = json!(record.container.as_ref().map(|container| container.engine.to_string()));
        facts["container"] = json!(record.container.as_ref().map(|container| &container.name));
        facts["request"] = json!(record.request);
        facts["unenforced"] = json!(record.unenforced);
        facts["processes"] = Value::from(views);
        return screen.json(&facts);
    }
    let mut rows = vec![
        ("name", record.name.clone()),
        ("backend", record.backend.clone()),
        ("session", format_session(record, 200)),
        ("state", format_state(&place)),
        ("age", format_since(created(&place))),
        ("lifetime", format!("{} s idle", record.lifetime)),
        ("reaches", format_reach(&record.reach)),
    ];
    rows.extend(exposures.iter().map(|exposure| ("exposes", exposure.to_string())));
    rows.extend(record.unenforced.iter().map(|limit| ("limit", limit.clone())));
    if let Some(container) = &record.container {
        rows.push(("engine", format!("{}, container {}", container.engine, container.name)));
    }
    rows.extend(record.files.iter().map(|files| ("files", files.display().to_string())));
    rows.extend(processes.iter().map(|view| {
        let command = one_line(&String::from_utf8_lossy(&view.command), 60);
        ("process", format!("{}  {command}", super::process::handle(record, view)))
    }));
    for (name, value) in rows {
        screen.line(&format!("{}  {value}", screen.paint(Tone::Strong, &format!("{name:8}"))))?;
    }
    let spec = serde_json::to_string_pretty(&record.spec).unwrap_or_default();
    screen.line(&format!("{}\n{spec}", screen.paint(Tone::Strong, "spec")))?;
    match &record.request {
        Some(request) => screen.line(&format!("{}\n{request:#}", screen.paint(Tone::Strong, "request"))),
        None => Ok(()),
    }
}

async fn remove(places: &Places, ids: &[String], force: bool, context: &Context) -> Result<()> {
    let mut chosen: Vec<ListedPlace> = Vec::new();
    for id in ids {
        let mut place = find_place(places, id).await?;
        if is_only_connected(&place) {
            tokio::time::sleep(DISCONNECT_DELAY).await;
            place = find_place(places, id).await?;
        }
        if !force && is_used(&place) {
            return Err(Failure::failed(format!("{} is in use", place.record.name)).hint(
                "Run `hermes sandbox show` to see what uses it, or add `--force` to remove it anyway.",
            ));
        }
        if !chosen.iter().any(|other| other.record.name == place.record.name) {
            chosen.push(place);
        }
    }
    for place in &chosen {
        place.remove().await?;
        if !context.screen.is_json() {
            context.screen.line(&place.record.name)?;
        }
    }
    if context.screen.is_json() {
        let names: Vec<&str> = chosen.iter().map(|place| place.record.name.as_str()).collect();
        context.screen.json(&json!({"removed": names}))?;
    }
    Ok(())
}

async fn prune(places: &Places, removes_files: bool, context: &Context) -> Result<()> {
    let mut all = places.list().await?;
    if all.iter().any(is_only_connected) {
        tokio::time::sleep(DISCONNECT_DELAY).await;
        all = places.list().await?;
    }
    let unused = all.into_iter().filter(|place| !is_used(place));
    let (stopped, running): (Vec<_>, Vec<_>) = unused.partition(|place| place.state == PlaceState::Stopped);
    let names: Vec<String> = running.iter().map(|place| place.record.name.clone()).collect();
    let failed = places.end_all(running.clone()).await;
    places.remove_stale().await?;
    let mut removed = Vec::new();
    if removes_files {
        for place in stopped.iter().chain(&running).filter(|place| place.record.files.is_some()) {
            place.remove().await?;
            removed.push(place.record.name.clone());
        }
    }
    if let Some((place, error)) = failed.first() {
        return Err(Failure::failed(format!("{}: {error}", place.record.name)));
    }
    let screen = context.screen;
    if screen.is_json() {
        return screen.json(&json!({"ended": names, "files_removed": removed}));
    }
    let count = |number| format_count(number, "environment");
    screen.line(&format!("ended {}", count(names.len())))?;
    if removes_files {
        screen.line(&format!("removed the files of {}", count(removed.len())))?;
    } else if !stopped.is_empty() {
        let kept = count(stopped.len());
        screen.print_stderr(&format!("kept the files of {kept}; add `--files` to remove them"));
    }
    Ok(())
}

/// The environment with a name, name prefix or session.
async fn find_place(places: &Places, id: &str) -> Result<ListedPlace> {
    let found = places.find(id).await?;
    only_item(found, "environment", id, "Run `hermes sandbox ls` to list their names.")
}

/// Whether a command runs there, or another client is connected.
fn is_used(place: &ListedPlace) -> bool {
    let is_active = stats(place).is_some_and(|stats| stats.running > 0 || stats.clients > 1);
    is_active || place.state == PlaceState::OtherRunDir
}

/// Whether another client is connected, but no command runs. It may just have disconnected.
fn is_only_connected(place: &ListedPlace) -> bool {
    matches!(place.state, PlaceState::Running(stats) if stats.running == 0 && stats.clients > 1)
}

fn created(place: &ListedPlace) -> Timestamp {
    Timestamp::from_seconds(place.record.created)
}

fn format_state(place: &ListedPlace) -> String {
    match stats(place) {
        Some(stats) if stats.running > 0 => format!("{} running", stats.running),
        Some(stats) => format!("idle {}", format_age(stats.idle)),
        None => state(place).to_owned(),
    }
}

fn format_reach(reach: &Reach) -> String {
    match reach {
        Reach::Nothing => "nothing of this machine".to_owned(),
        Reach::Directories(paths) => format!("your directories at {}", paths.join(", ")),
        Reach::Host => "this machine".to_owned(),
    }
}

/// The activity of an environment that answers.
pub(crate) fn stats(place: &ListedPlace) -> Option<Stats> {
    match place.state {
        PlaceState::Running(stats) => Some(stats),
        PlaceState::Unresponsive | PlaceState::OtherRunDir | PlaceState::Stopped => None,
    }
}

/// The JSON document of an environment.
fn facts(place: &ListedPlace) -> Value {
    let mut facts = common_facts(place);
    facts["created"] = json!(place.record.created);
    facts["running"] = json!(stats(place).map(|stats| stats.running));
    facts["files"] = json!(place.record.files);
    facts
}

fn state(place: &ListedPlace) -> &'static str {
    match place.state {
        PlaceState::Running(stats) if stats.running > 0 => "running",
        PlaceState::Running(_) => "idle",
        PlaceState::Unresponsive => "silent",
        PlaceState::OtherRunDir => "elsewhere",
        PlaceState::Stopped => "asleep",
    }
}

/// The facts of an environment that all commands show.
pub(crate) fn common_facts(place: &ListedPlace) -> Value {
    let (record, stats) = (&place.record, stats(place));
    json!({
        "name": record.name,
        "id": record.place,
        "backend": record.backend,
        "session": record.session,
        "state": state(place),
        "age_seconds": Timestamp::now().seconds().saturating_sub(record.created),
        "idle_seconds": stats.map(|stats| stats.idle.as_secs()),
        "lifetime_seconds": record.lifetime,
        // This process is one of the clients.
        "clients": stats.map(|stats| stats.clients.saturating_sub(1)),
        "reach": record.reach,
    })
}
