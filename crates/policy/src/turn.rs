//! What was denied in one turn, so that the same is not tried by other ways.

use crate::question::Question;
use crate::refusal::Refusal;

/// How many repeats of something denied end the turn.
const PATIENCE: usize = 3;

/// The denials of one turn.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Turn {
    denied: Vec<String>,
    tries: usize,
}

/// What becomes of a question in the light of what was denied before.
#[derive(Debug, PartialEq, Eq)]
pub enum Considered {
    /// It is new: put it to a person.
    Fresh(Box<Question>),
    /// The same was denied: refuse at once.
    Repeated(Refusal),
    /// The same was denied and tried again too often: refuse, and end the turn.
    EndTurn(Refusal),
}

impl Turn {
    /// Remembers that a person, or the floor, said no to what this question is about.
    pub fn denied(&mut self, question: &Question) {
        self.tries += 1;
        for found in question.matches() {
            if !self.denied.contains(&found.what) {
                self.denied.push(found.what.clone());
            }
        }
    }

    /// Lets a question through unless it is about something that was denied in this turn.
    pub fn consider(&mut self, question: Question) -> Considered {
        if !question.matches().iter().any(|found| self.denied.contains(&found.what)) {
            return Considered::Fresh(Box::new(question));
        }
        self.denied(&question);
        if self.tries >= PATIENCE {
            Considered::EndTurn(Refusal::Repeated)
        } else {
            Considered::Repeated(Refusal::Repeated)
        }
    }
}
