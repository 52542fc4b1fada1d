//! Denials of the current turn, so that the model does not retry a denied command in another form.

use crate::question::Question;
use crate::refusal::Refusal;
use crate::rules::Match;

/// Attempts at denied commands that end the turn.
const MAX_ATTEMPTS: usize = 3;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DenialLog {
    denied: Vec<String>,
    attempts: usize,
}

/// The result of checking a question against earlier denials.
#[derive(Debug, PartialEq, Eq)]
pub enum DenialCheck {
    /// Not denied before: ask an approver.
    New(Box<Question>),
    /// Denied before: refuse at once.
    Repeated(Refusal),
    /// Denied before and retried too often: refuse and end the turn.
    EndTurn(Refusal),
}

impl DenialLog {
    /// Records the denial of a question.
    pub fn record(&mut self, question: &Question) {
        self.record_matches(question.matches());
    }

    fn record_matches(&mut self, matches: &[Match]) {
        self.attempts += 1;
        for found in matches {
            if !self.denied.contains(&found.what) {
                self.denied.push(found.what.clone());
            }
        }
    }

    /// Records a refusal by the floor. Returns whether the same was refused so often that the turn
    /// ends.
    pub fn record_refusal(&mut self, refusal: &Refusal) -> bool {
        let Refusal::Floor(matches) = refusal else { return false };
        let is_repeated = matches.iter().any(|found| self.denied.contains(&found.what));
        self.record_matches(matches);
        is_repeated && self.attempts >= MAX_ATTEMPTS
    }

    /// Passes a question on unless it concerns a command denied in this turn.
    pub fn check(&mut self, question: Question) -> DenialCheck {
        if !question.matches().iter().any(|found| self.denied.contains(&found.what)) {
            return DenialCheck::New(Box::new(question));
        }
        self.record(&question);
        if self.attempts >= MAX_ATTEMPTS {
            DenialCheck::EndTurn(Refusal::Repeated)
        } else {
            DenialCheck::Repeated(Refusal::Repeated)
        }
    }
}
