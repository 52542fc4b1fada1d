//! Pending questions and grants.

use hermes_policy::escape::{EscapedText, escape};
use hermes_store::{AnswerResult, GrantRow, QuestionRow, QuestionState, Store};
use hermes_types::{Answer, Choice, GrantScope, Person, Timestamp};
use serde_json::{Value, json};

use crate::Context;
use crate::approval::owner;
use crate::screen::{Tone, format_since, format_until, one_line};
use hermes_config::failure::Failure;
use hermes_config::resolve::store::find;

pub(super) async fn list(context: &Context) -> Result<(), Failure> {
    let open = match find(context).await? {
        Some(store) => store.open_questions(Timestamp::now()).await?,
        None => Vec::new(),
    };
    let screen = context.screen;
    if screen.is_json() {
        return screen.json(&json!({"questions": open.iter().map(facts).collect::<Vec<_>>()}));
    }
    if open.is_empty() {
        screen.print_stderr("no pending questions");
    }
    for question in &open {
        let (session, left) = (question.key.as_str(), format_until(question.expires));
        let line = format!("session {session}, asks {}, {left} left", approvers(question));
        let id = screen.paint(Tone::Strong, &question.id);
        screen.line(&format!("{id}  {}", screen.paint(Tone::Quiet, &one_line(&line, 200))))?;
        screen.line(&indent(&display_text(question)))?;
    }
    Ok(())
}

fn approvers(question: &QuestionRow) -> String {
    question.approvers.iter().map(Person::as_str).collect::<Vec<_>>().join(", ")
}

pub(crate) async fn answer(context: &Context, id: &str, choice: Choice) -> Result<(), Failure> {
    let store = find(context).await?.ok_or_else(|| unknown_question(id))?;
    let question = find_question(&store, id).await?;
    let answer = Answer { by: owner(), at: Timestamp::now(), choice };
    match store.answer_question(&question.id, answer.clone()).await? {
        AnswerResult::Accepted => {}
        AnswerResult::NoQuestion => return Err(unknown_question(id)),
        AnswerResult::NotApprover => {
            let who = one_line(&approvers(&question), 200);
            return Err(Failure::refused(format!("only {who} can answer question {}", question.id)));
        }
        AnswerResult::TooLate(state) => {
            return Err(Failure::failed(format!("question {} {}", question.id, describe_state(&state)))
                .hint("Run `hermes approvals ls` to list pending questions."));
        }
    }
    if context.screen.is_json() {
        let state = QuestionState::Answered(answer);
        return context.screen.json(&facts(&QuestionRow { state, ..question }));
    }
    let (tone, result) = match &answer.choice {
        Choice::Once => (Tone::Good, "approved this time"),
        Choice::Session => (Tone::Good, "approved in this session"),
        Choice::Always => (Tone::Good, "approved from now on"),
        Choice::Deny { .. } => (Tone::Bad, "denied"),
    };
    let result = context.screen.paint(tone, result);
    context.screen.line(&format!("{result}:\n{}", indent(&display_text(&question))))
}

pub(super) async fn grants(context: &Context) -> Result<(), Failure> {
    let grants = match find(context).await? {
        Some(store) => store.grants().await?,
        None => Vec::new(),
    };
    let row = |grant: &GrantRow| {
        let scope = match &grant.scope {
            GrantScope::Session(key) => one_line(key.as_str(), 30),
            GrantScope::Always => "always".to_owned(),
        };
        let (by, age) = (one_line(grant.given_by.as_str(), 24), format_since(grant.given_at));
        vec![grant.id.clone(), scope, by, age, granted_command(grant)]
    };
    context.screen.list(
        &json!({"grants": grants.iter().map(grant_facts).collect::<Vec<_>>()}),
        "no grants",
        &["ID", "IN", "BY", "AGE", "COMMAND"],
        &grants.iter().map(row).collect::<Vec<_>>(),
    )
}

pub(super) async fn revoke(context: &Context, id: &str) -> Result<(), Failure> {
    let list_hint = "Run `hermes approvals grants` to list the grants.";
    let unknown = || Failure::failed(format!("no grant `{id}`")).hint(list_hint);
    let store = find(context).await?.ok_or_else(unknown)?;
    let grants = store.grants().await?;
    let has_prefix = |grant: &&GrantRow| !id.is_empty() && grant.id.starts_with(id);
    let found: Vec<&GrantRow> = grants.iter().filter(has_prefix).collect();
    let exact = found.iter().find(|grant| grant.id == id).copied();
    let grant = match (exact, found.as_slice()) {
        (Some(grant), _) => grant,
        (None, [grant]) => grant,
        (None, []) => return Err(unknown()),
        (None, several) => {
            return Err(Failure::usage(format!("`{id}` matches {} grants", several.len())).hint(list_hint));
        }
    };
    let revoked = store.revoke_grant(&grant.id, &owner(), Timestamp::now()).await?.ok_or_else(unknown)?;
    if context.screen.is_json() {
        return context.screen.json(&grant_facts(&revoked));
    }
    context.screen.line(&format!("revoked: {}", granted_command(&revoked)))
}

/// The question with an id or id prefix; pending ones take precedence.
async fn find_question(store: &Store, id: &str) -> Result<QuestionRow, Failure> {
    let mut found = store.questions_by_prefix(id).await?;
    if let Some(at) = found.iter().position(|question| question.id == id) {
        return Ok(found.swap_remove(at));
    }
    if found.len() > 1 {
        found.retain(|question| question.state == QuestionState::Open);
    }
    match (found.len(), found.pop()) {
        (1, Some(question)) => Ok(question),
        (0, _) | (_, None) => Err(unknown_question(id)),
        (count, Some(_)) => Err(Failure::usage(format!("`{id}` matches {count} questions"))
            .hint("Run `hermes approvals ls` to list them.")),
    }
}

fn unknown_question(id: &str) -> Failure {
    Failure::failed(format!("no question `{id}`"))
        .hint("Run `hermes approvals ls` to list pending questions.")
}

fn describe_state(state: &QuestionState) -> String {
    match state {
        QuestionState::Open => "is pending".to_owned(),
        QuestionState::Expired => "has expired".to_owned(),
        QuestionState::Withdrawn => "was withdrawn".to_owned(),
        QuestionState::Answered(answer) => {
            let result = if matches!(answer.choice, Choice::Deny { .. }) { "denied" } else { "approved" };
            format!("was already {result} by {}", one_line(answer.by.as_str(), 60))
        }
    }
}

/// The text of a question, with the dangerous part marked.
fn display_text(question: &QuestionRow) -> String {
    match serde_json::from_value::<EscapedText>(question.shown.clone()) {
        Ok(text) => text.to_marked_string(),
        // Another version wrote it.
        Err(_) => escape(&question.shown.to_string()),
    }
}

fn indent(text: &str) -> String {
    text.lines().map(|line| format!("  {line}")).collect::<Vec<_>>().join("\n")
}

fn granted_command(grant: &GrantRow) -> String {
    let text = match serde_json::from_value::<hermes_policy::Grant>(grant.json.clone()) {
        Ok(grant) => grant.covers.show(),
        Err(_) => grant.json.to_string(),
    };
    one_line(&text, 400)
}

/// The JSON document of a question.
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
        "text": display_text(question),
        "approvers": question.approvers,
        "created": question.created.seconds(),
        "expires": question.expires.seconds(),
        "state": state,
        "answer": answer,
    })
}

/// The JSON document of a grant.
fn grant_facts(grant: &GrantRow) -> Value {
    let session = match &grant.scope {
        GrantScope::Session(key) => Some(key.as_str()),
        GrantScope::Always => None,
    };
    json!({
        "id": grant.id,
        "scope": if session.is_some() { "session" } else { "always" },
        "session_key": session,
        "command": granted_command(grant),
        "grant": grant.json,
        "given_by": grant.given_by,
        "given_at": grant.given_at.seconds(),
    })
}
