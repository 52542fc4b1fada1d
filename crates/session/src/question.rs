//! Answers to approval questions, and the texts about them.

use hermes_store::{AnswerResult, QuestionState, Store};
use hermes_types::{Answer, Choice, Person, Timestamp};

/// Answers a question. Returns the text to show.
pub async fn answer_question(store: &Store, id: &str, person: &Person, choice: Choice) -> String {
    let is_denial = matches!(choice, Choice::Deny { .. });
    let answer = Answer { by: person.clone(), at: Timestamp::now(), choice };
    match store.answer_question(id, answer).await {
        Ok(AnswerResult::Accepted) if is_denial => "denied".to_owned(),
        Ok(AnswerResult::Accepted) => "allowed".to_owned(),
        Ok(AnswerResult::TooLate(state)) => outcome_text(&state),
        Ok(AnswerResult::NotApprover) => {
            "Only the person who asked, or an approver, can answer this.".to_owned()
        }
        Ok(AnswerResult::NoQuestion) => "This question no longer exists.".to_owned(),
        Err(error) => error.to_string(),
    }
}

/// The state of a question in a few words.
pub fn outcome_text(state: &QuestionState) -> String {
    match state {
        QuestionState::Open => "still open".to_owned(),
        QuestionState::Expired => "expired without an answer".to_owned(),
        QuestionState::Withdrawn => "no longer needed".to_owned(),
        QuestionState::Answered(Answer { by, at, choice }) => {
            let what = match choice {
                Choice::Once => "allowed once",
                Choice::Session => "allowed in this session",
                Choice::Always => "always allowed",
                Choice::Deny { .. } => "denied",
            };
            let (seconds, by) = (at.seconds() % 86_400, by.as_str());
            format!("{what} by {by} at {:02}:{:02} UTC", seconds / 3_600, seconds / 60 % 60)
        }
    }
}
