//! `hermes sessions`: conversations.

use std::io::{IsTerminal, stderr, stdin};
use std::process::ExitCode;
use std::time::Duration;

use hermes_gateway::Platform;
use hermes_policy::escape::escape;
use hermes_store::{
    CostStatus, Error, Lineage, ListFilter, MessageFilter, MessageRow, SearchQuery, Seq, SessionId,
    SessionQuery, SessionRow, Store, Viewer,
};
use hermes_types::{CallArguments, Message, Part, Timestamp};
use serde_json::{Value, json};

use crate::Context;
use crate::approval::{Consent, confirm};
use crate::args::SessionsAction;
use crate::chat_host;
use crate::command::config::settings;
use crate::screen::{OutputFormat, Tone, format_age, one_line};
use hermes_config::failure::{Failure, FailureKind};
use hermes_config::resolve::store::{find, store_failure};

/// Sessions of one page, when all are wanted.
const PAGE_SIZE: usize = 200;
/// Messages that are shown at most; the others are in the export.
const MAX_SHOWN_CHARS: u32 = 10_000;

pub(crate) fn run(action: SessionsAction, context: &Context) -> Result<ExitCode, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let store = find(context).await?;
        let done = run_action(action, context, store.as_ref()).await;
        if let Some(store) = store {
            store.close().await;
        }
        done
    })
}

/// Without a database there are no sessions; that is no fault.
async fn run_action(
    action: SessionsAction,
    context: &Context,
    store: Option<&Store>,
) -> Result<ExitCode, Failure> {
    match (action, store) {
        (SessionsAction::Ls { limit, after, source, archived, all }, store) => {
            let shelf = match (all, archived) {
                (true, _) => ListFilter::All,
                (false, true) => ListFilter::Archived,
                (false, false) => ListFilter::Current,
            };
            list(context, store, limit, after, source, shelf).await
        }
        (SessionsAction::Search { text, limit, skip, source }, store) => {
            search(context, store, SearchQuery { text: text.join(" "), source, skip, limit }).await
        }
        (SessionsAction::Export { ids, all: false }, store) => export(context, store, &ids).await,
        (SessionsAction::Export { all: true, .. }, store) => export_all(context, store).await,
        (SessionsAction::Show { id, limit, all }, Some(store)) => {
            let which = if all { MessageFilter::All } else { MessageFilter::Active };
            show(context, store, &id, limit, which).await
        }
        (SessionsAction::Show { id, .. }, None) => Err(store_failure(Error::NoSession(id))),
        (SessionsAction::Rm { ids }, store) => remove(context, store, &ids).await,
        (SessionsAction::Prune { older_than, dry_run: true, .. }, store) => {
            prunable(context, store, before(older_than)).await
        }
        (SessionsAction::Prune { older_than, yes, .. }, store) => {
            let consent = match (yes, stdin().is_terminal() && stderr().is_terminal()) {
                (true, _) => Consent::Given,
                (false, true) => Consent::Ask,
                (false, false) => Consent::Unavailable,
            };
            prune(context, store, before(older_than), consent).await
        }
    }
}

fn before(days: u32) -> Timestamp {
    Timestamp::from_seconds(Timestamp::now().seconds().saturating_sub(u64::from(days) * 86_400))
}

fn since(at: Timestamp) -> Duration {
    Duration::from_secs(Timestamp::now().seconds().saturating_sub(at.seconds()))
}

async fn find_session(store: Option<&Store>, word: &str) -> Result<SessionRow, Failure> {
    match store {
        Some(store) => store.find_session(&Viewer::Owner, word).await.map_err(store_failure),
        None => Err(store_failure(Error::NoSession(word.to_owned()))),
    }
}

async fn list(
    context: &Context,
    store: Option<&Store>,
    limit: usize,
    after: Option<String>,
    source: Option<String>,
    shelf: ListFilter,
) -> Result<ExitCode, Failure> {
    let found = match store {
        Some(store) => {
            let listing = SessionQuery { source, filter: shelf, after: after.map(SessionId::new), limit };
            store.sessions(&Viewer::Owner, listing).await.map_err(store_failure)?
        }
        None => Vec::new(),
    };
    if context.screen.format == OutputFormat::Json {
        let facts: Vec<Value> = found.iter().map(facts).collect();
        context.screen.json(&json!({"sessions": facts}))?;
        return Ok(ExitCode::SUCCESS);
    }
    if found.is_empty() {
        context.screen.print_stderr("there are no sessions");
        return Ok(ExitCode::SUCCESS);
    }
    let row = |session: &SessionRow| {
        vec![
            session.id.to_string(),
            format_age(since(session.touched)),
            one_line(&session.source, 12),
            session.messages.to_string(),
            one_line(&session.model, 30),
            one_line(session.title.as_deref().unwrap_or("-"), 100),
        ]
    };
    let rows: Vec<_> = found.iter().map(row).collect();
    context.screen.table(&["ID", "USED", "SOURCE", "MESSAGES", "MODEL", "TITLE"], &rows)?;
    Ok(ExitCode::SUCCESS)
}

async fn show(
    context: &Context,
    store: &Store,
    word: &str,
    limit: u32,
    which: MessageFilter,
) -> Result<ExitCode, Failure> {
    let session = find_session(Some(store), word).await?;
    let last = u32::try_from(session.messages).unwrap_or(u32::MAX);
    let first = Seq::new(last.saturating_sub(limit.min(MAX_SHOWN_CHARS)));
    if context.screen.format == OutputFormat::Text {
        let mut text = session_header(context, &session);
        if first > Seq::START {
            let line =
                format!("({} earlier messages; `hermes sessions export` has them all)", first.number());
            text.push_str(&format!("\n{}\n", context.screen.paint(Tone::Quiet, &line)));
        }
        context.screen.text(&text)?;
    }
    let mut messages = Vec::new();
    let mut after = first;
    loop {
        let page = store.messages(&session.id, which, after, PAGE_SIZE).await.map_err(store_failure)?;
        let Some(kept) = page.last() else { break };
        after = kept.seq;
        match context.screen.format {
            OutputFormat::Json => messages.extend(page),
            OutputFormat::Text => page
                .iter()
                .try_for_each(|kept| context.screen.text(&format!("\n{}", message(context, kept))))?,
        }
    }
    if context.screen.format == OutputFormat::Json {
        let mut facts = facts(&session);
        facts["skipped"] = json!(first.number());
        facts["messages"] = json!(messages);
        context.screen.json(&facts)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn session_header(context: &Context, session: &SessionRow) -> String {
    let lineage = |lineage: Lineage| match lineage {
        Lineage::Continuation => "continues",
        Lineage::Branch => "branched from",
        Lineage::Delegate => "works for",
    };
    let origin = session.parent.as_ref().zip(session.lineage);
    let usage = session.usage;
    let mut rows = vec![
        ("id", session.id.to_string()),
        ("title", session.title.clone().unwrap_or_else(|| "-".to_owned())),
        ("source", format!("{}, {}", session.source, session.person.as_str())),
        ("model", format!("{} ({})", session.model, session.provider)),
        ("began", format!("{} ago", format_age(since(session.started)))),
        ("used", format!("{} ago", format_age(since(session.touched)))),
        ("usage", format!("{} calls, {} tokens in, {} out", session.api_calls, usage.prompt(), usage.output)),
        ("cost", format_cost(session)),
    ];
    if let Some((parent, how)) = origin {
        rows.push((lineage(how), parent.to_string()));
    }
    if let (Some(ended), Some(reason)) = (session.ended, &session.end_reason) {
        rows.push(("ended", format!("{} ago: {reason}", format_age(since(ended)))));
    }
    rows.extend(session.cwd.clone().map(|cwd| ("directory", cwd)));
    let line = |(name, value): &(&str, String)| {
        format!("{} {}\n", context.screen.paint(Tone::Quiet, &format!("{name:14}")), one_line(value, 200))
    };
    rows.iter().map(line).collect()
}

/// What a session cost, as far as anybody knows.
pub(crate) fn format_cost(session: &SessionRow) -> String {
    if session.cost == 0 && session.cost_status == CostStatus::Unknown {
        return "unknown".to_owned();
    }
    let (dollars, millionths) = (session.cost / 1_000_000, session.cost % 1_000_000);
    format!("${dollars}.{:04} ({})", millionths / 100, session.cost_status.as_str())
}

/// A message for people. What it holds may have come from anywhere, so nothing in it reaches the terminal as it is.
fn message(context: &Context, kept: &MessageRow) -> String {
    let screen = context.screen;
    let back = if kept.undone { ", taken back" } else { "" };
    let title = |who: &str| screen.paint(Tone::Strong, &format!("{} {who}{back}", kept.seq.number()));
    match &kept.message {
        Message::User { text, images } => {
            let images: String = images.iter().map(|image| format!("{image}\n")).collect();
            format!("{}\n{}\n{images}", title("person"), escape(text))
        }
        Message::Tool { name, text, .. } => {
            format!("{}\n{}\n", title(&format!("result of {}", one_line(name, 60))), escape(text))
        }
        Message::Assistant { parts } => {
            let parts = parts.iter().map(|part| match part {
                Part::Text { text } => format!("{}\n", escape(text)),
                Part::Reasoning(reasoning) if reasoning.text.is_empty() => String::new(),
                Part::Reasoning(reasoning) => {
                    format!("{}\n", screen.paint(Tone::Quiet, &escape(&reasoning.text)))
                }
                Part::Call(call) => {
                    let arguments = match &call.arguments {
                        CallArguments::Object(object) => Value::Object(object.clone()).to_string(),
                        CallArguments::Broken { text, .. } => text.clone(),
                    };
                    let line = format!("→ {} {}", call.name, arguments);
                    format!("{}\n", screen.paint(Tone::Quiet, &one_line(&line, 400)))
                }
            });
            format!("{}\n{}", title("model"), parts.collect::<String>())
        }
    }
}

async fn search(context: &Context, store: Option<&Store>, wanted: SearchQuery) -> Result<ExitCode, Failure> {
    let hits = match store {
        Some(store) => store.search(&Viewer::Owner, wanted).await.map_err(store_failure)?,
        None => Vec::new(),
    };
    if context.screen.format == OutputFormat::Json {
        context.screen.json(&json!({"hits": hits}))?;
        return Ok(ExitCode::SUCCESS);
    }
    if hits.is_empty() {
        context.screen.print_stderr("nothing was found");
        return Ok(ExitCode::SUCCESS);
    }
    for hit in &hits {
        let title =
            hit.title.as_deref().map(|title| format!("  {}", one_line(title, 60))).unwrap_or_default();
        let place = format!("{} {}, {} ago{title}", hit.session, hit.seq.number(), format_age(since(hit.at)));
        let part = |text: &str| one_line(text, 200);
        let found = context.screen.paint(Tone::Strong, &part(&hit.snippet.found));
        let line = format!("{}{found}{}", part(&hit.snippet.before), part(&hit.snippet.after));
        context.screen.line(&format!("{}\n  {line}", context.screen.paint(Tone::Quiet, &place)))?;
    }
    Ok(ExitCode::SUCCESS)
}

async fn export(context: &Context, store: Option<&Store>, words: &[String]) -> Result<ExitCode, Failure> {
    // All names are looked up first: half of what was asked for is worse than nothing.
    let mut found = Vec::new();
    for word in words {
        found.push(find_session(store, word).await?.id);
    }
    if let Some(store) = store {
        for id in &found {
            print(context, store, id).await?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

async fn export_all(context: &Context, store: Option<&Store>) -> Result<ExitCode, Failure> {
    let Some(store) = store else { return Ok(ExitCode::SUCCESS) };
    let mut after = None;
    loop {
        let listing = SessionQuery { filter: ListFilter::All, after, limit: PAGE_SIZE, source: None };
        let page = store.sessions(&Viewer::Owner, listing).await.map_err(store_failure)?;
        let Some(last) = page.last() else { return Ok(ExitCode::SUCCESS) };
        after = Some(last.id.clone());
        for session in &page {
            print(context, store, &session.id).await?;
        }
    }
}

async fn print(context: &Context, store: &Store, id: &SessionId) -> Result<(), Failure> {
    let mut export = store.export(id).await.map_err(store_failure)?;
    while let Some(piece) = export.next().await.map_err(store_failure)? {
        context.screen.text(&piece)?;
    }
    Ok(())
}

async fn remove(context: &Context, store: Option<&Store>, words: &[String]) -> Result<ExitCode, Failure> {
    // All names are looked up before anything is gone: `last` would be another one after that.
    let mut found: Vec<SessionRow> = Vec::new();
    for word in words {
        let session = find_session(store, word).await?;
        if !found.iter().any(|known| known.id == session.id) {
            found.push(session);
        }
    }
    let Some(store) = store else { return Ok(ExitCode::SUCCESS) };
    let mut removed = 0;
    for session in &found {
        let id = &session.id;
        let goes_on = store
            .current_session(&session.key)
            .await
            .map_err(store_failure)?
            .is_some_and(|current| current.id == *id);
        removed += store.remove_session(id).await.map_err(store_failure)?;
        // The place of a chat is its conversation's; others may be shared by several.
        if goes_on && Platform::from_name(&session.source).is_some() {
            chat_host::close_session(context, settings(context)?, store, &session.key).await.map_err(
                |why| {
                    Failure::new(FailureKind::Failed, format!("cannot remove the environment of {id}: {why}"))
                },
            )?;
        }
        if context.screen.format == OutputFormat::Text {
            context.screen.line(&format!("removed {id}"))?;
        }
    }
    if context.screen.format == OutputFormat::Json {
        let ids: Vec<&SessionId> = found.iter().map(|session| &session.id).collect();
        context.screen.json(&json!({"removed": ids, "sessions": removed}))?;
    }
    Ok(ExitCode::SUCCESS)
}

async fn prunable(context: &Context, store: Option<&Store>, before: Timestamp) -> Result<ExitCode, Failure> {
    let found = match store {
        Some(store) => store.prunable(before).await.map_err(store_failure)?,
        None => Vec::new(),
    };
    match context.screen.format {
        OutputFormat::Json => context.screen.json(&json!({"would_remove": found}))?,
        OutputFormat::Text if found.is_empty() => context.screen.print_stderr("nothing is that old"),
        OutputFormat::Text => found.iter().try_for_each(|id| context.screen.line(id.as_str()))?,
    }
    Ok(ExitCode::SUCCESS)
}

async fn prune(
    context: &Context,
    store: Option<&Store>,
    before: Timestamp,
    consent: Consent,
) -> Result<ExitCode, Failure> {
    let count = match store {
        Some(store) => store.prunable(before).await.map_err(store_failure)?.len(),
        None => 0,
    };
    if count > 0 && consent != Consent::Given {
        if consent == Consent::Unavailable {
            return Err(Failure::new(
                FailureKind::Refused,
                format!("{count} sessions would be gone for good"),
            )
            .hint("`--dry-run` lists them, `--yes` removes them"));
        }
        if !confirm(context, &format!("remove {count} sessions for good? [y/N]"))? {
            return Err(Failure::new(FailureKind::Refused, "nothing was removed"));
        }
    }
    let pruned = match store {
        Some(store) if count > 0 => store.prune(before).await.map_err(store_failure)?,
        _ => hermes_store::PruneResult::default(),
    };
    match context.screen.format {
        OutputFormat::Json => {
            context.screen.json(&json!({"sessions": pruned.sessions, "freed_bytes": pruned.freed_bytes}))?
        }
        OutputFormat::Text => {
            let freed = pruned.freed_bytes / 1_000;
            context.screen.line(&format!("removed {} sessions, {freed} KB given back", pruned.sessions))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// What `--json` says about a session.
fn facts(session: &SessionRow) -> Value {
    let mut facts = json!(session);
    // The number has the name that the export gives it; `messages` are the messages.
    facts["message_count"] = facts["messages"].take();
    if let Value::Object(fields) = &mut facts {
        fields.shift_remove("messages");
    }
    facts
}
