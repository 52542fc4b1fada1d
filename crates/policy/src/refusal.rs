//! Reasons for a refusal.

use hermes_types::Person;
use thiserror::Error;

use crate::rules::Match;

/// A refusal, with a reason for the model and the user.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Refusal {
    /// A floor rule, which nothing overrides.
    #[error("never allowed: {}", reasons(.0))]
    Floor(Vec<Match>),
    #[error("the owner's rules deny `{command}`")]
    UserRule {
        /// The denied part of the command.
        command: String,
    },
    #[error("needs approval, but there is no approver: {}", reasons(.0))]
    Unattended(Vec<Match>),
    /// A text that cannot be shown in full cannot be approved.
    #[error(
        "too long to be shown in full ({length} characters, the limit is {limit}), so it cannot be approved; write it to a file in parts"
    )]
    TooLong { length: usize, limit: usize },
    /// An approver denied it.
    #[error("denied by {}{}", .by.as_str(), .reason.as_deref().map(|reason| format!(": {reason}")).unwrap_or_default())]
    Person { by: Person, reason: Option<String> },
    /// The model of the mode `smart` refused it.
    #[error("refused by the model (approvals.mode smart): {reason}")]
    Model { reason: String },
    /// The answer came from a person who is not an approver. The question stays open.
    #[error("{} may not answer this question", .0.as_str())]
    NotApprover(Person),
    #[error("the question has expired")]
    Expired,
    #[error("an equivalent command was already denied in this turn; do not try other ways to do the same")]
    Repeated,
}

fn reasons(matches: &[Match]) -> String {
    let mut reasons: Vec<&str> = matches.iter().map(|found| found.reason).collect();
    reasons.dedup();
    reasons.join("; ")
}
