//! The people whom a session can ask.

pub use futures_util::future::BoxFuture;
use hermes_policy::Question;
use hermes_types::Answer;

/// Puts questions to people. Every entry point has an implementation of its own.
pub trait Approver: Send + Sync {
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

impl Clarification {
    /// The choice with the number that the reply is, or the reply itself.
    pub fn parse_answer(&self, reply: &str) -> String {
        let reply = reply.trim();
        let number = reply.parse::<usize>().ok().and_then(|number| number.checked_sub(1));
        number.and_then(|at| self.choices.get(at)).map_or(reply, String::as_str).to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_a_number_or_words() {
        let choices = vec!["red".to_owned(), "blue".to_owned()];
        let question = Clarification { question: String::new(), choices };
        for (reply, expected) in [("2", "blue"), ("1\n", "red"), ("3", "3"), ("0", "0"), ("green", "green")] {
            assert_eq!(question.parse_answer(reply), expected);
        }
    }
}
