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
use crate::command::config::settings;
use crate::database::with_store;
use crate::screen::{Tone, format_since, one_line};
use crate::{Context, block_on};
use crate::{Failure, Result, chat_host};

/// Rows per query when all are read.
const PAGE_SIZE: usize = 200;
/// The most messages that `show` prints; the export has all.
const MAX_SHOWN_MESSAGES: u32 = 10_000;

pub(crate) fn run(action: SessionsAction, context: &Context) -> Result<()> {
    block_on(run_action(action, context))
}

async fn run_action(action: SessionsAction, context: &Context) -> Result<()> {
    match action {
        SessionsAction::Ls { limit, after, source } => {
            list(context, SessionQuery { source, after: after.map(SessionId::new), limit }).await
        }
        SessionsAction::Search { text, limit, skip, source } => {
            search(context, SearchQuery { text: text.join(" "), source, skip, limit }).await
        }
        SessionsAction::Export { all: true, .. } => {
            with_store(context, async |store| export_all(context, store).await).await
        }
        SessionsAction::Export { ids, all: false } => {
            with_sessions(context, &ids, async |store, sessions| export(context, store, sessions).await).await
        }
        SessionsAction::Show { id, limit, all } => {
            let filter = if all { MessageFilter::All } else { MessageFilter::Active };
            let names = std::slice::from_ref(&id);
            with_sessions(context, names, async |store, sessions| {
                show(context, store, sessions, limit, filter).await
            })
            .await
        }
        SessionsAction::Rm { ids } => {
            with_sessions(context, &ids, async |store, sessions| remove(context, store, sessions).await).await
        }
        SessionsAction::Prune { older_than, dry_run, yes } => {
            let age = u64::from(older_than) * 86_400;
            let before = Timestamp::from_seconds(Timestamp::now().seconds().saturating_sub(age));
            if dry_run {
                return list_prunable(context, before).await;
            }
            let consent = Consent::new(yes, stdin().is_terminal() && stderr().is_terminal());
            prune(context, before, consent).await
        }
    }
}

/// Runs `work` on the conversations with these names, which are all looked up before.
async fn with_sessions(
    context: &Context,
    names: &[String],
    work: impl AsyncFnOnce(&Store, &[SessionRow]) -> Result<()>,
) -> Result<()> {
    let found = with_store(context, async |store| {
        let mut sessions = Vec::new();
        for name in names {
            sessions.push(store.find_session(&Viewer::Owner, name).await?);
        }
        work(store, &sessions).await.map(Some)
    });
    let no_session = || Error::NoSession(names.first().cloned().unwrap_or_default()).into();
    found.await?.ok_or_else(no_session)
}

async fn list(context: &Context, query: SessionQuery) -> Result<()> {
    let read = async |store: &Store| Ok(store.sessions(&Viewer::Owner, query).await?);
    let sessions = with_store(context, read).await?;
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
        &json!({"sessions": sessions}),
        "no sessions",
        &["ID", "USED", "SOURCE", "MESSAGES", "MODEL", "TITLE"],
        &sessions.iter().map(row).collect::<Vec<_>>(),
    )
}

async fn show(
    context: &Context,
    store: &Store,
    sessions: &[SessionRow],
    limit: u32,
    filter: MessageFilter,
) -> Result<()> {
    let Some(session) = sessions.first() else { return Ok(()) };
    let screen = context.screen;
    let last = u32::try_from(session.messages).unwrap_or(u32::MAX);
    let first = Seq::new(last.saturating_sub(limit.min(MAX_SHOWN_MESSAGES)));
    if !screen.is_json() {
        screen.text(&session_header(context, session))?;
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
    let mut facts = json!(session);
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

async fn search(context: &Context, query: SearchQuery) -> Result<()> {
    let read = async |store: &Store| Ok(store.search(&Viewer::Owner, query).await?);
    let hits = with_store(context, read).await?;
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

async fn export_all(context: &Context, store: &Store) -> Result<()> {
    let mut after = None;
    loop {
        let query = SessionQuery { after, limit: PAGE_SIZE, source: None };
        let page = store.sessions(&Viewer::Owner, query).await?;
        let Some(last) = page.last() else { return Ok(()) };
        after = Some(last.id.clone());
        export(context, store, &page).await?;
    }
}

async fn export(context: &Context, store: &Store, sessions: &[SessionRow]) -> Result<()> {
    for session in sessions {
        store.export(&session.id, |piece| context.screen.text(piece)).await?;
    }
    Ok(())
}

async fn remove(context: &Context, store: &Store, sessions: &[SessionRow]) -> Result<()> {
    let screen = context.screen;
    let mut ids: Vec<&SessionId> = Vec::new();
    for session in sessions {
        let id = &session.id;
        if ids.contains(&id) {
            continue;
        }
        let current = store.current_session(&session.key).await?;
        let is_current = current.is_some_and(|current| current.id == *id);
        store.remove_session(id).await?;
        // The environment of a chat belongs to its conversation; others may be shared.
        if is_current && Platform::from_name(&session.source).is_some() {
            chat_host::close_session(context, settings(context)?, store, &session.key).await.map_err(
                |error| Failure::failed(format!("cannot remove the environment of {id}: {error}")),
            )?;
        }
        ids.push(id);
        if !screen.is_json() {
            screen.line(&format!("removed {id}"))?;
        }
    }
    if screen.is_json() {
        screen.json(&json!({"removed": ids, "sessions": ids.len()}))?;
    }
    Ok(())
}

async fn prunable(context: &Context, before: Timestamp) -> Result<Vec<SessionId>> {
    with_store(context, async |store| Ok(store.prunable(before).await?)).await
}

async fn list_prunable(context: &Context, before: Timestamp) -> Result<()> {
    let ids = prunable(context, before).await?;
    if context.screen.is_json() {
        return context.screen.json(&json!({"would_remove": ids}));
    }
    if ids.is_empty() {
        context.screen.print_stderr("no sessions to remove");
    }
    ids.iter().try_for_each(|id| context.screen.line(id.as_str()))
}

async fn prune(context: &Context, before: Timestamp, consent: Consent) -> Result<()> {
    let count = prunable(context, before).await?.len();
    if count > 0 && consent == Consent::Unavailable {
        return Err(Failure::refused(format!("this would permanently remove {count} sessions"))
            .hint("Use `--dry-run` to list them, or `--yes` to remove them."));
    }
    let prompt = format!("permanently remove {count} sessions? [y/N]");
    if count > 0 && consent == Consent::Ask && !confirm(context, &prompt)? {
        return Err(Failure::refused("nothing was removed"));
    }
    let pruned = with_store(context, async |store| match count {
        0 => Ok(PruneResult::default()),
        _ => Ok(store.prune(before).await?),
    });
    let PruneResult { sessions, freed_bytes } = pruned.await?;
    let text = format!("removed {sessions} sessions, freed {} KB", freed_bytes / 1_000);
    context.screen.print(&json!({"sessions": sessions, "freed_bytes": freed_bytes}), &text)
}
