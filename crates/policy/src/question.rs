//! Questions to approvers.

use hermes_types::{Allowance, Answer, Choice, GrantScope, Job, Person, PlaceId, SessionKey, Timestamp};
use serde::{Deserialize, Serialize};

use crate::escape::EscapedText;
use crate::grant::{Coverage, Grant, GrantId};
use crate::permit::Permit;
use crate::refusal::Refusal;
use crate::rules::Match;

/// An unguessable question id.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct QuestionId(String);

impl QuestionId {
    /// Derives an id from 16 random bytes.
    pub fn from_seed(seed: [u8; 16]) -> Self {
        Self(format!("q_{}", base32(seed)))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<String> for QuestionId {
    fn from(text: String) -> Self {
        Self(text)
    }
}

/// Lowercase base32 without padding.
fn base32(seed: [u8; 16]) -> String {
    const ALPHABET: &str = "abcdefghijklmnopqrstuvwxyz234567";
    let bits = u128::from_be_bytes(seed);
    // The last of the 26 digits has only three bits left.
    let digit = |index: u32| 31 & bits.checked_shr(123_u32.wrapping_sub(5 * index)).unwrap_or(bits << 2);
    (0..26).filter_map(|index| ALPHABET.chars().nth(usize::try_from(digit(index)).ok()?)).collect()
}

/// A job that waits for an approver. Only the gate creates one; it can be answered once.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "an unasked question leaves the job waiting"]
pub struct Question {
    pub(crate) id: QuestionId,
    pub(crate) job: Job,
    pub(crate) place: PlaceId,
    pub(crate) session: SessionKey,
    pub(crate) approvers: Vec<Person>,
    pub(crate) expires: Timestamp,
    pub(crate) matches: Vec<Match>,
    pub(crate) text: EscapedText,
    pub(crate) covers: Vec<Coverage>,
    pub(crate) allowance: Allowance,
    /// What the job may use if a model allows it; none if only a person can.
    pub(crate) contained: Option<Allowance>,
}

/// The stored form of an open question. It grants nothing: [`crate::Gate::reopen`] judges the job
/// again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredQuestion {
    pub id: QuestionId,
    pub job: Job,
    pub expires: Timestamp,
}

impl Question {
    pub fn id(&self) -> &QuestionId {
        &self.id
    }

    pub fn job(&self) -> &Job {
        &self.job
    }

    /// The matched rules with their reasons.
    pub fn matches(&self) -> &[Match] {
        &self.matches
    }

    /// The full text, escaped, with the dangerous parts marked.
    pub fn text(&self) -> &EscapedText {
        &self.text
    }

    pub fn approvers(&self) -> &[Person] {
        &self.approvers
    }

    pub fn expires(&self) -> Timestamp {
        self.expires
    }

    /// The coverage of a `session` or `always` grant, to show to the approver. If empty, only
    /// `once` is offered.
    pub fn coverage(&self) -> &[Coverage] {
        &self.covers
    }

    /// What the job may use of what the guard protects, if it is approved.
    pub fn allowance(&self) -> &Allowance {
        &self.allowance
    }

    /// Whether a model may allow the job in the mode `smart`: everything was read, and the harm stays
    /// in the working directory or the session.
    pub fn is_contained(&self) -> bool {
        self.contained.is_some()
    }

    /// The permit of a contained question that a model allowed. It opens nothing protected beyond
    /// what the job would get unasked, and gives no grant.
    pub fn allow_contained(self) -> Result<Permit, Box<Self>> {
        match self.contained {
            Some(allowance) => Ok(Permit::new(self.job, self.place, self.session, allowance, Vec::new())),
            None => Err(Box::new(self)),
        }
    }

    /// Expires this much later, because the approvers see it later.
    pub fn extend(&mut self, seconds: u64) {
        self.expires = self.expires.plus(seconds);
    }

    /// The refusal of a question that no person can answer.
    pub fn refuse_unattended(self) -> Refusal {
        Refusal::Unattended(self.matches)
    }

    pub fn to_stored(&self) -> StoredQuestion {
        StoredQuestion { id: self.id.clone(), job: self.job.clone(), expires: self.expires }
    }

    /// Whether a person may answer. Check before [`Question::answer`], which closes the question.
    pub fn can_be_answered_by(&self, person: &Person) -> bool {
        self.approvers.contains(person)
    }

    /// Turns the answer into a permit or a refusal.
    pub fn answer(self, answer: Answer) -> Result<Permit, Refusal> {
        if !self.can_be_answered_by(&answer.by) {
            return Err(Refusal::NotApprover(answer.by));
        }
        if answer.at >= self.expires {
            return Err(Refusal::Expired);
        }
        let scope = match answer.choice {
            Choice::Deny { reason } => return Err(Refusal::Person { by: answer.by, reason }),
            Choice::Once => None,
            Choice::Session => Some(GrantScope::Session(self.session.clone())),
            Choice::Always => Some(GrantScope::Always),
        };
        let mut grants = Vec::new();
        for (index, covers) in self.covers.into_iter().enumerate() {
            let Some(scope) = &scope else { break };
            // A text that could not be analyzed is not granted beyond the session.
            let scope = match (&covers, scope) {
                (Coverage::Text { .. }, GrantScope::Always) => GrantScope::Session(self.session.clone()),
                (_, scope) => scope.clone(),
            };
            let id = GrantId(format!("g_{}_{index}", self.id.as_str().trim_start_matches("q_")));
            grants.push(Grant { id, covers, scope, given_by: answer.by.clone(), given_at: answer.at });
        }
        Ok(Permit::new(self.job, self.place, self.session, self.allowance, grants))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_the_seed_in_base32() {
        assert_eq!(QuestionId::from_seed([0; 16]).as_str(), "q_aaaaaaaaaaaaaaaaaaaaaaaaaa");
        assert_eq!(
            QuestionId::from_seed([255; 16]).as_str(),
            "q_7777777777777777777777777 4".replace(' ', "")
        );
    }
}
