//! Answers to approval questions, and the scope of grants.

use serde::{Deserialize, Serialize};

use crate::{Person, SessionKey, Timestamp};

/// The answer of an approver.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Answer {
    /// The approver, as authenticated by the entry point.
    pub by: Person,
    pub at: Timestamp,
    #[serde(flatten)]
    pub choice: Choice,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "choice", rename_all = "lowercase")]
pub enum Choice {
    /// Allow it this time.
    Once,
    /// Allow it, and the same again in this session.
    Session,
    /// Allow it, and the same again from now on.
    Always,
    Deny {
        /// Passed on to the model.
        reason: Option<String>,
    },
}

/// How long a grant lasts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum GrantScope {
    Session(SessionKey),
    /// Until it is revoked.
    Always,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_serializes_with_the_keywords_of_the_command_line() {
        let choice = Choice::Deny { reason: Some("no".to_owned()) };
        let answer = Answer { by: Person::new("cli"), at: Timestamp::from_seconds(1), choice };
        let json = serde_json::json!({"by": "cli", "at": 1, "choice": "deny", "reason": "no"});
        assert_eq!(serde_json::to_value(answer).unwrap(), json);
    }
}
