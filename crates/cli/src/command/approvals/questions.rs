//! The questions that wait, and what was allowed.

use std::process::ExitCode;
use std::time::Duration;

use hermes_policy::escape::{EscapedText, escape};
use hermes_store::{AnswerResult, GrantRow, QuestionRow, QuestionState, Store};
use hermes_types::{Answer, Choice, GrantScope, Person, Timestamp};
use serde_json::{Value, json};

use crate::Context;
use crate::approval::owner;
use crate::screen::{OutputFormat, Tone, format_age, one_line};
use hermes_config::failure::{Failure, FailureKind};
use hermes_config::resolve::store::{find, store_failure};

pub(super) async fn list(context: &Context) -> Result<ExitCode, Failure> {
    let open = match find(context).await? {
        Some(store) => store.open_questions(Timestamp::now()).await.map_err(store_failure)?,
        None => Vec::new(),
    };
    if context.screen.format == OutputFormat::Json {
        context.screen.json(&json!({"questions": open.iter().map(facts).collect::<Vec<_>>()}))?;
        return Ok(ExitCode::SUCCESS);
    }
    if open.is_empty() {
        context.screen.print_stderr("no pending question");
        return Ok(ExitCode::SUCCESS);
    }
    for question in &open {
        let left = format_age(Duration::from_secs(
            question.expires.seconds().saturating_sub(Timestamp::now().seconds()),
        ));
        let who: Vec<&str> = question.approvers.iter().map(Person::as_str).collect();
        let place = format!("session {}, asks {}, {left} left", question.key.as_str(), who.join(", "));
        let id = context.screen.paint(Tone::Strong, &question.id);
        context
            .screen
            .line(&format!("{id}  {}", context.screen.paint(Tone::Quiet, &one_line(&place, 200))))?;
        context.screen.line(&indented(&shown(question)))?;
    }
    Ok(ExitCode::SUCCESS)
}

pub(crate) async fn answer(context: &Context, id: &str, choice: Choice) -> Result<ExitCode, Failure> {
    let store = find(context).await?.ok_or_else(|| unknown(id))?;
    let question = one(&store, id).await?;
    let given = Answer { by: owner(), at: Timestamp::now(), choice };
    let refused = |text: String| Err(Failure::new(FailureKind::Refused, text));
    match store.answer_question(&question.id, given.clone()).await.map_err(store_failure)? {
        AnswerResult::Accepted => {}
        AnswerResult::NoQuestion => return Err(unknown(id)),
        AnswerResult::NotApprover => {
            let who: Vec<&str> = question.approvers.iter().map(Person::as_str).collect();
            return refused(format!(
                "question {} is for {} to answer",
                question.id,
                one_line(&who.join(", "), 200)
            ));
        }
        AnswerResult::TooLate(state) => {
            return Err(Failure::new(
                FailureKind::Failed,
                format!("question {} {}", question.id, fate(&state)),
            )
            .hint("`hermes approvals ls` lists those that wait"));
        }
    }
    if context.screen.format == OutputFormat::Json {
        let state = QuestionState::Answered(given);
        context.screen.json(&facts(&QuestionRow { state, ..question }))?;
        return Ok(ExitCode::SUCCESS);
    }
    let word = match &given.choice {
        Choice::Once => context.screen.paint(Tone::Good, "approved this time"),
        Choice::Session => context.screen.paint(Tone::Good, "approved in this session"),
        Choice::Always => context.screen.paint(Tone::Good, "approved from now on"),
        Choice::Deny { .. } => context.screen.paint(Tone::Bad, "denied"),
    };
    context.screen.line(&format!("{word}:\n{}", indented(&shown(&question))))?;
    Ok(ExitCode::SUCCESS)
}

pub(super) async fn grants(context: &Context) -> Result<ExitCode, Failure> {
    let grants = match find(context).await? {
        Some(store) => store.grants().await.map_err(store_failure)?,
        None => Vec::new(),
    };
    if context.screen.format == OutputFormat::Json {
        context.screen.json(&json!({"grants": grants.iter().map(grant_facts).collect::<Vec<_>>()}))?;
        return Ok(ExitCode::SUCCESS);
    }
    if grants.is_empty() {
        context.screen.print_stderr("nothing was allowed to happen again");
        return Ok(ExitCode::SUCCESS);
    }
    let row = |grant: &GrantRow| {
        let scope = match &grant.scope {
            GrantScope::Session(key) => one_line(key.as_str(), 30),
            GrantScope::Always => "always".to_owned(),
        };
        let since = Duration::from_secs(Timestamp::now().seconds().saturating_sub(grant.given_at.seconds()));
        vec![grant.id.clone(), scope, one_line(grant.given_by.as_str(), 24), format_age(since), covers(grant)]
    };
    let rows: Vec<_> = grants.iter().map(row).collect();
    context.screen.table(&["ID", "IN", "BY", "AGE", "COMMAND"], &rows)?;
    Ok(ExitCode::SUCCESS)
}

pub(super) async fn revoke(context: &Context, id: &str) -> Result<ExitCode, Failure> {
    let gone = || {
        Failure::new(FailureKind::Failed, format!("there is no grant `{id}`"))
            .hint("`hermes approvals grants` lists them")
    };
    let store = find(context).await?.ok_or_else(gone)?;
    let grants = store.grants().await.map_err(store_failure)?;
    let begin = |grant: &&GrantRow| !id.is_empty() && grant.id.starts_with(id);
    let found: Vec<&GrantRow> = grants.iter().filter(begin).collect();
    let exact = found.iter().find(|grant| grant.id == id).copied();
    let meant = match (exact, found.as_slice()) {
        (Some(grant), _) => grant,
        (None, [grant]) => grant,
        (None, []) => return Err(gone()),
        (None, several) => {
            return Err(Failure::new(
                FailureKind::Usage,
                format!("`{id}` could be any of {} grants", several.len()),
            )
            .hint("`hermes approvals grants` lists them"));
        }
    };
    let revoked = store
        .revoke_grant(&meant.id, &owner(), Timestamp::now())
        .await
        .map_err(store_failure)?
        .ok_or_else(gone)?;
    match context.screen.format {
        OutputFormat::Json => context.screen.json(&grant_facts(&revoked))?,
        OutputFormat::Text => context.screen.line(&format!("taken back: {}", covers(&revoked)))?,
    }
    Ok(ExitCode::SUCCESS)
}

/// The question that is meant: by its name or the beginning of it, those that wait before those that do not.
async fn one(store: &Store, id: &str) -> Result<QuestionRow, Failure> {
    let mut named = store.questions_by_prefix(id).await.map_err(store_failure)?;
    if let Some(at) = named.iter().position(|question| question.id == id) {
        return Ok(named.swap_remove(at));
    }
    if named.len() > 1 {
        named.retain(|question| question.state == QuestionState::Open);
    }
    match (named.len(), named.pop()) {
        (1, Some(question)) => Ok(question),
        (0, _) | (_, None) => Err(unknown(id)),
        (count, Some(_)) => {
            Err(Failure::new(FailureKind::Usage, format!("`{id}` could be any of {count} questions"))
                .hint("`hermes approvals ls` lists them"))
        }
    }
}

fn unknown(id: &str) -> Failure {
    Failure::new(FailureKind::Failed, format!("there is no question `{id}`"))
        .hint("`hermes approvals ls` lists those that wait")
}

fn fate(state: &QuestionState) -> String {
    match state {
        QuestionState::Open => "waits".to_owned(),
        QuestionState::Expired => "has expired".to_owned(),
        QuestionState::Withdrawn => "is no longer asked".to_owned(),
        QuestionState::Answered(answer) => {
            let word = match answer.choice {
                Choice::Once | Choice::Session | Choice::Always => "approved",
                Choice::Deny { .. } => "denied",
            };
            format!("was {word} already, by {}", one_line(answer.by.as_str(), 60))
        }
    }
}

/// What people were shown, the dangerous part marked.
fn shown(question: &QuestionRow) -> String {
    match serde_json::from_value::<EscapedText>(question.shown.clone()) {
        Ok(shown) => shown.to_marked_string(),
        // Written by another version, but it must be seen all the same.
        Err(_other_form) => escape(&question.shown.to_string()),
    }
}

fn indented(text: &str) -> String {
    text.lines().map(|line| format!("  {line}")).collect::<Vec<_>>().join("\n")
}

/// The command that a grant is for.
fn covers(grant: &GrantRow) -> String {
    let text = match serde_json::from_value::<hermes_policy::Grant>(grant.json.clone()) {
        Ok(known) => known.covers.show(),
        Err(_other_form) => grant.json.to_string(),
    };
    one_line(&text, 400)
}

/// What `--json` says about a question.
fn facts(question: &QuestionRow) -> Value {
    let (state, answer) = match &question.state {
        QuestionState::Open => ("open", None),
        QuestionState::Expired => ("expired", None),
        QuestionState::Withdrawn => ("withdrawn", None),
        QuestionState::Answered(answer) => ("answered", Some(answer)),
    };
    json!({
        "id": question.id,
        "session_key": question.key,
        "session": question.session,
        "call": question.call,
        "shown": question.shown,
        "text": shown(question),
        "approvers": question.approvers,
        "created": question.created.seconds(),
        "expires": question.expires.seconds(),
        "state": state,
        "answer": answer,
    })
}

/// What `--json` says about a grant.
fn grant_facts(grant: &GrantRow) -> Value {
    let session = match &grant.scope {
        GrantScope::Session(key) => Some(key.as_str()),
        GrantScope::Always => None,
    };
    json!({
        "id": grant.id,
        "scope": if session.is_some() { "session" } else { "always" },
        "session_key": session,
        "command": covers(grant),
        "grant": grant.json,
        "given_by": grant.given_by,
        "given_at": grant.given_at.seconds(),
    })
}
