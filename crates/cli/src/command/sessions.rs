//! `hermes sessions`: stored conversations.

use std::io::{IsTerminal, stderr, stdin};

use hermes_gateway::Platform;
use hermes_policy::escape::escape;
use hermes_store::{
    Error, MessageFilter, MessageRow, PruneResult, SearchQuery, Seq, SessionId, SessionQuery, SessionRow,
    Store, Viewer,
};
use hermes_types::{CallArguments, Message, Part, Timestamp};
use serde_json::{Value, json};

use crate::approval::{Consent, confirm};
use crate::args::SessionsAction;
use crate::chat_host;
use crate::command::config::settings;
use crate::screen::{Tone, format_since, one_line};
use crate::{Context, block_on};
use hermes_config::failure::Failure;
use hermes_config::resolve::store::find;

/// Rows per query when all are read.
const PAGE_SIZE: usize = 200;
/// The most messages that `show` prints; the export has all.
const MAX_SHOWN_MESSAGES: u32 = 10_000;

pub(crate) fn run(action: SessionsAction, context: &Context) -> Result<(), Failure> {
    block_on(async {
        let store = find(context).await?;
        let result = run_action(action, context, store.as_ref()).await;
        if let Some(store) = store {
            store.close().await;
        }
        result
    })
}

/// Without a database there are no conversations, which is not an error.
async fn run_action(action: SessionsAction, context: &Context, store: Option<&Store>) -> Result<(), Failure> {
    match action {
        SessionsAction::Ls { limit, after, source } => {
            list(context, store, SessionQuery { source, after: after.map(SessionId::new), limit }).await
        }
        SessionsAction::Search { text, limit, skip, source } => {
            search(context, store, SearchQuery { text: text.join(" "), source, skip, limit }).await
        }
        SessionsAction::Export { ids, all: false } => export(context, store, &ids).await,
        SessionsAction::Export { all: true, .. } => export_all(context, store).await,
        SessionsAction::Show { id, limit, all } => {
            let filter = if all { MessageFilter::All } else { MessageFilter::Active };
            show(context, store, &id, limit, filter).await
        }
        SessionsAction::Rm { ids } => remove(context, store, &ids).await,
        SessionsAction::Prune { older_than, dry_run, yes } => {
            let age = u64::from(older_than) * 86_400;
            let before = Timestamp::from_seconds(Timestamp::now().seconds().saturating_sub(age));
            if dry_run {
                return list_prunable(context, store, before).await;
            }
            let consent = match (yes, stdin().is_terminal() && stderr().is_terminal()) {
                (true, _) => Consent::Given,
                (false, true) => Consent::Ask,
                (false, false) => Consent::Unavailable,
            };
            prune(context, store, before, consent).await
        }
    }
}

async fn find_session(store: Option<&Store>, name: &str) -> Result<SessionRow, Failure> {
    match store {
        Some(store) => Ok(store.find_session(&Viewer::Owner, name).await?),
        None => Err(Error::NoSession(name.to_owned()).into()),
    }
}

async fn list(context: &Context, store: Option<&Store>, query: SessionQuery) -> Result<(), Failure> {
    let sessions = match store {
        Some(store) => store.sessions(&Viewer::Owner, query).await?,
        None => Vec::new(),
    };
    let row = |session: &SessionRow| {
        vec![
            session.id.to_string(),
            format_since(session.touched),
            one_line(&session.source, 12),
            session.messages.to_string(),
            one_line(&session.model, 30),
            one_line(session.title.as_deref().unwrap_or("-"), 100),
        ]
    };
    context.screen.list(
        &json!({"sessions": sessions.iter().map(facts).collect::<Vec<_>>()}),
        "no sessions",
        &["ID", "USED", "SOURCE", "MESSAGES", "MODEL", "TITLE"],
        &sessions.iter().map(row).collect::<Vec<_>>(),
    )
}

async fn show(
    context: &Context,
    store: Option<&Store>,
    name: &str,
    limit: u32,
    filter: MessageFilter,
) -> Result<(), Failure> {
    let session = find_session(store, name).await?;
    let Some(store) = store else { return Ok(()) };
    let screen = context.screen;
    let last = u32::try_from(session.messages).unwrap_or(u32::MAX);
    let first = Seq::new(last.saturating_sub(limit.min(MAX_SHOWN_MESSAGES)));
    if !screen.is_json() {
        screen.text(&session_header(context, &session))?;
        if first > Seq::START {
            let line = format!("({} earlier messages; `hermes sessions export` prints all)", first.number());
            screen.line(&format!("\n{}", screen.paint(Tone::Quiet, &line)))?;
        }
    }
    let mut messages = Vec::new();
    let mut after = first;
    loop {
        let page = store.messages(&session.id, filter, after, PAGE_SIZE).await?;
        let Some(last) = page.last() else { break };
        after = last.seq;
        if screen.is_json() {
            messages.extend(page);
        } else {
            page.iter().try_for_each(|row| screen.text(&format!("\n{}", format_message(context, row))))?;
        }
    }
    if !screen.is_json() {
        return Ok(());
    }
    let mut facts = facts(&session);
    facts["skipped"] = json!(first.number());
    facts["messages"] = json!(messages);
    screen.json(&facts)
}

fn session_header(context: &Context, session: &SessionRow) -> String {
    let usage = session.usage;
    let mut rows = vec![
        ("id", session.id.to_string()),
        ("title", session.title.clone().unwrap_or_else(|| "-".to_owned())),
        ("source", format!("{}, {}", session.source, session.person.as_str())),
        ("model", format!("{} ({})", session.model, session.provider)),
        ("began", format!("{} ago", format_since(session.started))),
        ("used", format!("{} ago", format_since(session.touched))),
        ("usage", format!("{} calls, {} tokens in, {} out", session.api_calls, usage.prompt(), usage.output)),
        ("cost", session.cost_text()),
    ];
    if let (Some(ended), Some(reason)) = (session.ended, &session.end_reason) {
        rows.push(("ended", format!("{} ago: {reason}", format_since(ended))));
    }
    rows.extend(session.cwd.clone().map(|cwd| ("directory", cwd)));
    let line = |(name, value): &(&str, String)| {
        format!("{} {}\n", context.screen.paint(Tone::Quiet, &format!("{name:14}")), one_line(value, 200))
    };
    rows.iter().map(line).collect()
}

/// A message as text. Its content is untrusted and is escaped.
fn format_message(context: &Context, row: &MessageRow) -> String {
    let screen = context.screen;
    let undone = if row.undone { ", undone" } else { "" };
    let title = |who: &str| screen.paint(Tone::Strong, &format!("{} {who}{undone}", row.seq.number()));
    match &row.message {
        Message::User { text, images } => {
            let images: String = images.iter().map(|image| format!("{image}\n")).collect();
            format!("{}\n{}\n{images}", title("user"), escape(text))
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
                    let line = format!("→ {} {arguments}", call.name);
                    format!("{}\n", screen.paint(Tone::Quiet, &one_line(&line, 400)))
                }
            });
            format!("{}\n{}", title("model"), parts.collect::<String>())
        }
    }
}

async fn search(context: &Context, store: Option<&Store>, query: SearchQuery) -> Result<(), Failure> {
    let hits = match store {
        Some(store) => store.search(&Viewer::Owner, query).await?,
        None => Vec::new(),
    };
    let screen = context.screen;
    if screen.is_json() {
        return screen.json(&json!({"hits": hits}));
    }
    if hits.is_empty() {
        screen.print_stderr("no matches");
    }
    for hit in &hits {
        let title = hit.title.as_deref().map(|title| format!("  {}", one_line(title, 60)));
        let title = title.unwrap_or_default();
        let heading = format!("{} {}, {} ago{title}", hit.session, hit.seq.number(), format_since(hit.at));
        let part = |text: &str| one_line(text, 200);
        let found = screen.paint(Tone::Strong, &part(&hit.snippet.found));
        let line = format!("{}{found}{}", part(&hit.snippet.before), part(&hit.snippet.after));
        screen.line(&format!("{}\n  {line}", screen.paint(Tone::Quiet, &heading)))?;
    }
    Ok(())
}

async fn export(context: &Context, store: Option<&Store>, names: &[String]) -> Result<(), Failure> {
    // All names are looked up before anything is printed.
    let mut ids = Vec::new();
    for name in names {
        ids.push(find_session(store, name).await?.id);
    }
    let Some(store) = store else { return Ok(()) };
    for id in &ids {
        print_export(context, store, id).await?;
    }
    Ok(())
}

async fn export_all(context: &Context, store: Option<&Store>) -> Result<(), Failure> {
    let Some(store) = store else { return Ok(()) };
    let mut after = None;
    loop {
        let query = SessionQuery { after, limit: PAGE_SIZE, source: None };
        let page = store.sessions(&Viewer::Owner, query).await?;
        let Some(last) = page.last() else { return Ok(()) };
        after = Some(last.id.clone());
        for session in &page {
            print_export(context, store, &session.id).await?;
        }
    }
}

async fn print_export(context: &Context, store: &Store, id: &SessionId) -> Result<(), Failure> {
    store.export(id, |piece| context.screen.text(piece)).await
}

async fn remove(context: &Context, store: Option<&Store>, names: &[String]) -> Result<(), Failure> {
    // All names are looked up before anything is removed, because `last` would change.
    let mut sessions: Vec<SessionRow> = Vec::new();
    for name in names {
        let session = find_session(store, name).await?;
        if !sessions.iter().any(|known| known.id == session.id) {
            sessions.push(session);
        }
    }
    let Some(store) = store else { return Ok(()) };
    let screen = context.screen;
    for session in &sessions {
        let id = &session.id;
        let current = store.current_session(&session.key).await?;
        let is_current = current.is_some_and(|current| current.id == *id);
        store.remove_session(id).await?;
        // The environment of a chat belongs to its conversation; others may be shared.
        if is_current && Platform::from_name(&session.source).is_some() {
            chat_host::close_session(context, settings(context)?, store, &session.key).await.map_err(
                |error| Failure::failed(format!("cannot remove the environment of {id}: {error}")),
            )?;
        }
        if !screen.is_json() {
            screen.line(&format!("removed {id}"))?;
        }
    }
    if screen.is_json() {
        let ids: Vec<&SessionId> = sessions.iter().map(|session| &session.id).collect();
        screen.json(&json!({"removed": ids, "sessions": sessions.len()}))?;
    }
    Ok(())
}

async fn prunable(store: Option<&Store>, before: Timestamp) -> Result<Vec<SessionId>, Failure> {
    Ok(match store {
        Some(store) => store.prunable(before).await?,
        None => Vec::new(),
    })
}

async fn list_prunable(context: &Context, store: Option<&Store>, before: Timestamp) -> Result<(), Failure> {
    let ids = prunable(store, before).await?;
    if context.screen.is_json() {
        return context.screen.json(&json!({"would_remove": ids}));
    }
    if ids.is_empty() {
        context.screen.print_stderr("no sessions to remove");
    }
    ids.iter().try_for_each(|id| context.screen.line(id.as_str()))
}

async fn prune(
    context: &Context,
    store: Option<&Store>,
    before: Timestamp,
    consent: Consent,
) -> Result<(), Failure> {
    let count = prunable(store, before).await?.len();
    if count > 0 && consent == Consent::Unavailable {
        return Err(Failure::refused(format!("this would permanently remove {count} sessions"))
            .hint("Use `--dry-run` to list them, or `--yes` to remove them."));
    }
    let prompt = format!("permanently remove {count} sessions? [y/N]");
    if count > 0 && consent == Consent::Ask && !confirm(context, &prompt)? {
        return Err(Failure::refused("nothing was removed"));
    }
    let pruned = match store {
        Some(store) if count > 0 => store.prune(before).await?,
        _ => PruneResult::default(),
    };
    if context.screen.is_json() {
        return context.screen.json(&json!({"sessions": pruned.sessions, "freed_bytes": pruned.freed_bytes}));
    }
    let freed = pruned.freed_bytes / 1_000;
    context.screen.line(&format!("removed {} sessions, freed {freed} KB", pruned.sessions))
}

/// The JSON document of a session.
fn facts(session: &SessionRow) -> Value {
    let mut facts = json!(session);
    // The export also calls it `message_count`; `messages` holds the messages themselves.
    facts["message_count"] = facts["messages"].take();
    if let Value::Object(fields) = &mut facts {
        fields.shift_remove("messages");
    }
    facts
}
