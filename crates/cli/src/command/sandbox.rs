//! `hermes sandbox`: the places that exist.

mod pull;

use std::process::ExitCode;
use std::time::Duration;

use hermes_exec::{ListedPlace, PlaceRecord, PlaceState, Places};
use hermes_types::Timestamp;
use serde_json::{Value, json};

use crate::Context;
use crate::args::SandboxAction;
use crate::command::config::settings;
use crate::screen::{OutputFormat, Tone, format_age, one_line};
use hermes_config::failure::{Failure, FailureKind};
use hermes_config::resolve;

pub(crate) fn run(action: SandboxAction, context: &Context) -> Result<ExitCode, Failure> {
    let places = resolve::places(context, settings(context)?);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        match action {
            SandboxAction::Pull { image } => pull::pull(&image, context).await,
            SandboxAction::Ls => list(&places, context).await,
            SandboxAction::Show { id } => show(&places, &id, context).await,
            SandboxAction::Rm { ids, all, force } => {
                let use_of = if force { InUse::End } else { InUse::Refuse };
                let ids = if all { all_names(&places).await? } else { ids };
                remove(&places, &ids, use_of, context).await
            }
            SandboxAction::Prune { files } => {
                let files = if files { Files::Remove } else { Files::Keep };
                prune(&places, files, context).await
            }
        }
    })
}

/// How long a connection may take to end.
const MOMENT: Duration = Duration::from_millis(300);

/// What to do with an environment that is in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum InUse {
    Refuse,
    End,
}

/// What to do with persistent files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Files {
    Keep,
    Remove,
}

async fn list(places: &Places, context: &Context) -> Result<ExitCode, Failure> {
    let found = places.list().await.map_err(resolve::place_failure)?;
    if context.screen.format == OutputFormat::Json {
        context.screen.json(&json!({"places": found.iter().map(facts).collect::<Vec<_>>()}))?;
        return Ok(ExitCode::SUCCESS);
    }
    if found.is_empty() {
        context.screen.print_stderr("no environments; `hermes exec` and `hermes shell` create them");
        return Ok(ExitCode::SUCCESS);
    }
    let row = |found: &ListedPlace| {
        vec![
            found.record.name.clone(),
            found.record.backend.clone(),
            state(found),
            format_age(since(found)),
            session(&found.record, 40),
        ]
    };
    let rows: Vec<_> = found.iter().map(row).collect();
    context.screen.table(&["NAME", "BACKEND", "STATE", "AGE", "SESSION"], &rows)?;
    Ok(ExitCode::SUCCESS)
}

/// Whose it is.
fn session(record: &PlaceRecord, most: usize) -> String {
    if record.is_warm() { "(ready for the next)".to_owned() } else { one_line(&record.session, most) }
}

async fn show(places: &Places, id: &str, context: &Context) -> Result<ExitCode, Failure> {
    let found = one(places, id).await?;
    let processes = match found.state {
        PlaceState::Running(_) => found
            .processes()
            .await
            .map_err(resolve::place_failure)?
            .list()
            .await
            .map_err(resolve::place_failure)?,
        PlaceState::Unresponsive | PlaceState::OtherRunDir | PlaceState::Stopped => Vec::new(),
    };
    let views: Vec<Value> = processes.iter().map(|view| super::process::facts(&found.record, view)).collect();
    let mut facts = facts(&found);
    let holes = found.record.exposures();
    facts["holes"] = json!(holes);
    facts["spec"] = found.record.spec.clone();
    facts["engine"] = json!(found.record.container.as_ref().map(|container| container.engine.to_string()));
    facts["container"] = json!(found.record.container.as_ref().map(|container| &container.name));
    facts["request"] = json!(found.record.request);
    facts["unenforced"] = json!(found.record.unenforced);
    facts["processes"] = Value::from(views);
    if context.screen.format == OutputFormat::Json {
        context.screen.json(&facts)?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut rows = vec![
        ("name", found.record.name.clone()),
        ("backend", found.record.backend.clone()),
        ("session", session(&found.record, 200)),
        ("state", state(&found)),
        ("age", format_age(since(&found))),
        ("lifetime", format!("{} s of idleness", found.record.lifetime)),
        ("reaches", reach(&found)),
    ];
    rows.extend(holes.iter().map(|hole| ("hole", hole.to_string())));
    rows.extend(found.record.unenforced.iter().map(|limit| ("limit", limit.clone())));
    if let Some(container) = &found.record.container {
        rows.push(("engine", format!("{}, container {}", container.engine, container.name)));
    }
    if let Some(files) = &found.record.files {
        rows.push(("files", files.display().to_string()));
    }
    for view in &processes {
        let shown = one_line(&String::from_utf8_lossy(&view.command), 60);
        rows.push(("process", format!("{}  {shown}", super::process::handle(&found.record, view))));
    }
    for (name, value) in rows {
        context
            .screen
            .line(&format!("{}  {value}", context.screen.paint(Tone::Strong, &format!("{name:8}"))))?;
    }
    let spec = serde_json::to_string_pretty(&found.record.spec).unwrap_or_default();
    context.screen.line(&format!("{}\n{spec}", context.screen.paint(Tone::Strong, "made as")))?;
    if let Some(request) = &found.record.request {
        context.screen.line(&format!("{}\n{request:#}", context.screen.paint(Tone::Strong, "request")))?;
    }
    Ok(ExitCode::SUCCESS)
}

async fn all_names(places: &Places) -> Result<Vec<String>, Failure> {
    let listed = places.list().await.map_err(resolve::place_failure)?;
    Ok(listed.into_iter().map(|listed| listed.record.name).collect())
}

async fn remove(
    places: &Places,
    ids: &[String],
    use_of: InUse,
    context: &Context,
) -> Result<ExitCode, Failure> {
    let mut chosen: Vec<ListedPlace> = Vec::new();
    for id in ids {
        let mut found = one(places, id).await?;
        if is_watched(&found) {
            tokio::time::sleep(MOMENT).await;
            found = one(places, id).await?;
        }
        if use_of == InUse::Refuse && is_used(&found) {
            return Err(Failure::new(FailureKind::Failed, format!("{} is in use", found.record.name)).hint(
                "Run `hermes sandbox show` to see what uses it, or add `--force` to remove it anyway.",
            ));
        }
        if !chosen.iter().any(|other| other.record.name == found.record.name) {
            chosen.push(found);
        }
    }
    for found in &chosen {
        found.remove().await.map_err(resolve::place_failure)?;
        if context.screen.format == OutputFormat::Text {
            context.screen.line(&found.record.name)?;
        }
    }
    if context.screen.format == OutputFormat::Json {
        let names: Vec<&str> = chosen.iter().map(|found| found.record.name.as_str()).collect();
        context.screen.json(&json!({"removed": names}))?;
    }
    Ok(ExitCode::SUCCESS)
}

async fn prune(places: &Places, files: Files, context: &Context) -> Result<ExitCode, Failure> {
    let mut all = places.list().await.map_err(resolve::place_failure)?;
    if all.iter().any(is_watched) {
        // A client that has just disconnected is still counted for a moment.
        tokio::time::sleep(MOMENT).await;
        all = places.list().await.map_err(resolve::place_failure)?;
    }
    let unused: Vec<ListedPlace> = all.into_iter().filter(|found| !is_used(found)).collect();
    let (asleep, awake): (Vec<_>, Vec<_>) =
        unused.into_iter().partition(|found| found.state == PlaceState::Stopped);
    let names: Vec<String> = awake.iter().map(|found| found.record.name.clone()).collect();
    let failed = places.end_all(awake.clone()).await;
    places.remove_stale().await.map_err(resolve::place_failure)?;
    let mut removed = Vec::new();
    if files == Files::Remove {
        for found in asleep.iter().chain(&awake).filter(|found| found.record.files.is_some()) {
            found.remove().await.map_err(resolve::place_failure)?;
            removed.push(found.record.name.clone());
        }
    }
    if let Some((found, error)) = failed.first() {
        return Err(Failure::new(FailureKind::Failed, format!("{}: {error}", found.record.name)));
    }
    match context.screen.format {
        OutputFormat::Json => context.screen.json(&json!({"ended": names, "files_removed": removed}))?,
        OutputFormat::Text => {
            let count = |number: usize| {
                if number == 1 { "1 environment".to_owned() } else { format!("{number} environments") }
            };
            context.screen.line(&format!("ended {}", count(names.len())))?;
            if files == Files::Remove {
                context.screen.line(&format!("removed the files of {}", count(removed.len())))?;
            } else if !asleep.is_empty() {
                let kept = count(asleep.len());
                context
                    .screen
                    .print_stderr(&format!("kept the files of {kept}; add `--files` to remove them"));
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The one place that is meant.
async fn one(places: &Places, id: &str) -> Result<ListedPlace, Failure> {
    let mut found = places.find(id).await.map_err(resolve::place_failure)?;
    match (found.pop(), found.len()) {
        (Some(found), 0) => Ok(found),
        (Some(_), more) => {
            Err(Failure::new(FailureKind::Usage, format!("`{id}` matches {} environments", more + 1))
                .hint("`hermes sandbox ls` lists their names"))
        }
        (None, _) => Err(Failure::new(FailureKind::Failed, format!("no environment `{id}`"))
            .hint("`hermes sandbox ls` lists them")),
    }
}

/// Whether something runs there or somebody besides us is connected.
fn is_used(found: &ListedPlace) -> bool {
    match found.state {
        PlaceState::Running(stats) => stats.running > 0 || stats.clients > 1,
        PlaceState::OtherRunDir => true,
        PlaceState::Unresponsive | PlaceState::Stopped => false,
    }
}

/// Whether somebody is connected, though nothing runs.
fn is_watched(found: &ListedPlace) -> bool {
    matches!(found.state, PlaceState::Running(stats) if stats.running == 0 && stats.clients > 1)
}

fn since(found: &ListedPlace) -> Duration {
    Duration::from_secs(Timestamp::now().seconds().saturating_sub(found.record.created))
}

fn state(found: &ListedPlace) -> String {
    match found.state {
        PlaceState::Running(stats) if stats.running > 0 => format!("{} running", stats.running),
        PlaceState::Running(stats) => format!("idle {}", format_age(stats.idle)),
        PlaceState::Unresponsive => "silent".to_owned(),
        PlaceState::OtherRunDir => "elsewhere".to_owned(),
        PlaceState::Stopped => "asleep".to_owned(),
    }
}

fn reach(found: &ListedPlace) -> String {
    use hermes_types::Reach;
    match &found.record.reach {
        Reach::Nothing => "nothing of yours".to_owned(),
        Reach::Directories(paths) => format!("your directories at {}", paths.join(", ")),
        Reach::Host => "this machine".to_owned(),
    }
}

/// What `--json` says about a place.
fn facts(found: &ListedPlace) -> Value {
    let record = &found.record;
    let (word, stats) = match found.state {
        PlaceState::Running(stats) if stats.running > 0 => ("running", Some(stats)),
        PlaceState::Running(stats) => ("idle", Some(stats)),
        PlaceState::Unresponsive => ("silent", None),
        PlaceState::OtherRunDir => ("elsewhere", None),
        PlaceState::Stopped => ("asleep", None),
    };
    json!({
        "name": record.name,
        "id": record.place,
        "backend": record.backend,
        "session": record.session,
        "state": word,
        "created": record.created,
        "age_seconds": since(found).as_secs(),
        "idle_seconds": stats.map(|stats| stats.idle.as_secs()),
        "lifetime_seconds": record.lifetime,
        "clients": stats.map(|stats| stats.clients.saturating_sub(1)),
        "running": stats.map(|stats| stats.running),
        "reach": record.reach,
        "files": record.files,
    })
}
