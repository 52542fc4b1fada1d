//! The people behind a door, as tools see them.

use std::fmt;
use std::pin::Pin;

use hermes_policy::{Answer, Question};

/// Something that is waited for.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Puts questions to people. Every door has its own way to do so.
pub trait Approver: Send + Sync + fmt::Debug {
    /// Puts a question of the gate and waits for the answer; none if nobody answers in time. Whoever stops waiting takes
    /// nothing back: the question stays open until it expires.
    fn ask_permission<'a>(&'a self, question: &'a Question) -> BoxFuture<'a, Option<Answer>>;

    /// Puts a question of the model and waits for the answer; none if nobody answers in time, or nobody is there.
    fn clarify<'a>(&'a self, question: &'a Clarification) -> BoxFuture<'a, Option<String>>;
}

/// What a model wants to know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Clarification {
    /// The question.
    pub question: String,
    /// What can be chosen; the person may also answer in their own words. Often empty.
    pub choices: Vec<String>,
}
