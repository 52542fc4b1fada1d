//! Pending questions and grants.

use hermes_policy::escape::{EscapedText, escape};
use hermes_store::{AnswerResult, GrantRow, QuestionRow, QuestionState, Store};
use hermes_types::{Answer, Choice, GrantScope, Person, Timestamp};
use serde_json::{Value, json};

use crate::approval::owner;
use crate::command::only_item;
use crate::database::with_store;
use crate::screen::{Tone, format_since, format_until, one_line};
use crate::{Context, Failure, Result};

const QUESTIONS_HINT: &str = "Run `hermes approvals ls` to list pending questions.";
const GRANTS_HINT: &str = "Run `hermes approvals grants` to list the grants.";

pub(super) async fn list(context: &Context) -> Result<()> {
    let open = with_store(context, async |store| Ok(store.open_questions(Timestamp::now()).await?)).await?;
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
        for (label, values) in [("may use", "may_use"), ("covers", "covers")] {
            let values = question.shown[values].as_array().into_iter().flatten().filter_map(Value::as_str);
            let values = values.collect::<Vec<_>>().join(", ");
            if !values.is_empty() {
                screen.line(&screen.paint(Tone::Quiet, &one_line(&format!("  {label}: {values}"), 400)))?;
            }
        }
    }
    Ok(())
}

fn approvers(question: &QuestionRow) -> String {
    question.approvers.iter().map(Person::as_str).collect::<Vec<_>>().join(", ")
}

pub(crate) async fn answer(context: &Context, id: &str, choice: Choice) -> Result<()> {
    let answer = Answer { by: owner(), at: Timestamp::now(), choice };
    let answered = with_store(context, async |store| {
        let question = find_question(store, id).await?;
        let result = store.answer_question(&question.id, answer.clone()).await?;
        Ok(Some((question, result)))
    });
    let (question, result) = answered.await?.ok_or_else(|| unknown_question(id))?;
    match result {
        AnswerResult::Accepted => {}
        AnswerResult::NoQuestion => return Err(unknown_question(id)),
        AnswerResult::NotApprover => {
            let who = one_line(&approvers(&question), 200);
            return Err(Failure::refused(format!("only {who} can answer question {}", question.id)));
        }
        AnswerResult::TooLate(state) => {
            return Err(Failure::failed(format!("question {} {}", question.id, describe_state(&state)))
                .hint(QUESTIONS_HINT));
        }
    }
    let (tone, result) = match &answer.choice {
        Choice::Once => (Tone::Good, "approved this time"),
        Choice::Session => (Tone::Good, "approved in this session"),
        Choice::Always => (Tone::Good, "approved from now on"),
        Choice::Deny { .. } => (Tone::Bad, "denied"),
    };
    let result = context.screen.paint(tone, result);
    let text = format!("{result}:\n{}", indent(&display_text(&question)));
    context.screen.print(&facts(&QuestionRow { state: QuestionState::Answered(answer), ..question }), &text)
}

pub(super) async fn grants(context: &Context) -> Result<()> {
    let grants = with_store(context, async |store| Ok(store.grants(None).await?)).await?;
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

pub(super) async fn revoke(context: &Context, id: &str) -> Result<()> {
    let revoked = with_store(context, async |store| {
        let mut grants = store.grants(None).await?;
        let is_exact = grants.iter().any(|grant| grant.id == id);
        let has_prefix = |grant: &GrantRow| !id.is_empty() && grant.id.starts_with(id);
        grants.retain(|grant| if is_exact { grant.id == id } else { has_prefix(grant) });
        // `hermes doctor` names grants without a valid code, which are not listed.
        if grants.is_empty()
            && let Some(invalid) = store.revoke_grant(id, &owner(), Timestamp::now()).await?
        {
            return Ok(Some(invalid));
        }
        let grant = only_item(grants, "grant", id, GRANTS_HINT)?;
        Ok(store.revoke_grant(&grant.id, &owner(), Timestamp::now()).await?)
    });
    let unknown = || Failure::failed(format!("no grant `{id}`")).hint(GRANTS_HINT);
    let revoked = revoked.await?.ok_or_else(unknown)?;
    context.screen.print(&grant_facts(&revoked), &format!("revoked: {}", granted_command(&revoked)))
}

/// The question with an id or id prefix; pending ones take precedence.
async fn find_question(store: &Store, id: &str) -> Result<QuestionRow> {
    let mut found = store.questions_by_prefix(id).await?;
    let is_exact = found.iter().any(|question| question.id == id);
    if found.len() > 1 {
        let is_open = |question: &QuestionRow| question.state == QuestionState::Open;
        found.retain(|question| if is_exact { question.id == id } else { is_open(question) });
    }
    only_item(found, "question", id, QUESTIONS_HINT)
}

fn unknown_question(id: &str) -> Failure {
    Failure::failed(format!("no question `{id}`")).hint(QUESTIONS_HINT)
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
