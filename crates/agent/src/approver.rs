//! The people whom a session can ask.

use std::fmt;

pub use futures_util::future::BoxFuture;
use hermes_policy::Question;
use hermes_types::Answer;

/// Puts questions to people. Every entry point has an implementation of its own.
pub trait Approver: Send + Sync + fmt::Debug {
    /// Asks a question of the gate; none if no answer comes in time. Dropping the future does not
    /// withdraw the question: it stays open until it expires.
    fn ask_permission<'a>(&'a self, question: &'a Question) -> BoxFuture<'a, Option<Answer>>;

    /// Asks a question of the model; none if no answer comes in time, or no person is there.
    fn clarify<'a>(&'a self, question: &'a Clarification) -> BoxFuture<'a, Option<String>>;
}

/// A question of the model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Clarification {
    pub question: String,
    /// The choices offered, often none. The person may also answer in their own words.
    pub choices: Vec<String>,
}
