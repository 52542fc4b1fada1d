//! Why something does not run.

use hermes_types::Person;
use thiserror::Error;

use crate::rules::Match;

/// A no, with its reason for the model and for people.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Refusal {
    /// The floor: nobody can allow it.
    #[error("never allowed: {}", reasons(.0))]
    Floor(Vec<Match>),
    /// A deny rule of the owner.
    #[error("the owner's rules deny `{command}`")]
    UserRule {
        /// The part of the command that is denied.
        command: String,
    },
    /// It would need a yes, and nobody is there to give it.
    #[error("needs a person's yes and nobody is there: {}", reasons(.0))]
    Unattended(Vec<Match>),
    /// It cannot be shown whole, so nobody can say yes to it.
    #[error(
        "too long to be shown whole ({length} characters, {limit} at most), so it cannot be approved; put it into a file in parts"
    )]
    TooLong {
        /// How long it is when shown.
        length: usize,
        /// How much can be shown.
        limit: usize,
    },
    /// A person said no.
    #[error("denied by {}{}", .by.as_str(), .reason.as_deref().map(|reason| format!(": {reason}")).unwrap_or_default())]
    Person {
        /// Who.
        by: Person,
        /// Why, in their words.
        reason: Option<String>,
    },
    /// A model that was consulted said no.
    #[error("judged too dangerous: {0}")]
    Opinion(String),
    /// The answer came from somebody who may not give it. The question stays open.
    #[error("{} may not answer this question", .0.as_str())]
    NotApprover(Person),
    /// The answer names another question.
    #[error("the answer is for another question")]
    OtherQuestion,
    /// The answer came too late.
    #[error("the question has expired")]
    Expired,
    /// The same was denied before in this turn.
    #[error("an equivalent command was already denied in this turn; do not try other ways to do the same")]
    Repeated,
}

fn reasons(matches: &[Match]) -> String {
    let mut reasons: Vec<&str> = matches.iter().map(|found| found.reason).collect();
    reasons.dedup();
    reasons.join("; ")
}
