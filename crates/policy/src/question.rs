//! What a person is asked, and what they answer.

use hermes_types::{Job, Person, PlaceId, SessionKey, Timestamp};
use serde::{Deserialize, Serialize};

use crate::grant::{Covers, Grant, GrantId, GrantScope};
use crate::permit::Permit;
use crate::refusal::Refusal;
use crate::rules::Match;
use crate::visible::Shown;

/// The unguessable name of a question.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct QuestionId(String);

impl QuestionId {
    /// An id from 16 random bytes.
    pub fn from_seed(seed: [u8; 16]) -> Self {
        Self(format!("q_{}", base32(&seed)))
    }

    /// The id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<String> for QuestionId {
    fn from(text: String) -> Self {
        Self(text)
    }
}

/// Lower-case base32 without padding.
fn base32(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";
    let mut text = String::new();
    let (mut bits, mut count) = (0_u32, 0);
    for byte in bytes {
        bits = (bits << 8) | u32::from(*byte);
        count += 8;
        while count >= 5 {
            count -= 5;
            let index = usize::try_from((bits >> count) & 31).unwrap_or_default();
            text.push(char::from(LETTERS.get(index).copied().unwrap_or(b'a')));
        }
    }
    if count > 0 {
        let index = usize::try_from((bits << (5 - count)) & 31).unwrap_or_default();
        text.push(char::from(LETTERS.get(index).copied().unwrap_or(b'a')));
    }
    text
}

/// A job that waits for a person. Only the gate makes one; it can be answered once.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a question that is not put to anybody leaves the job waiting"]
pub struct Question {
    pub(crate) id: QuestionId,
    pub(crate) job: Job,
    pub(crate) place: PlaceId,
    pub(crate) session: SessionKey,
    pub(crate) approvers: Vec<Person>,
    pub(crate) expires: Timestamp,
    pub(crate) matches: Vec<Match>,
    pub(crate) shown: Shown,
    pub(crate) covers: Vec<Covers>,
    pub(crate) contained: bool,
}

/// What a store keeps of an open question. It has no power of its own: [`crate::Gate::reopen`] judges the job again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredQuestion {
    /// The question's id.
    pub id: QuestionId,
    /// The job that waits.
    pub job: Job,
    /// When the question ends.
    pub expires: Timestamp,
}

/// A person's answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// Which question is answered.
    pub question: QuestionId,
    /// Who answers, as authenticated by their door.
    pub by: Person,
    /// When.
    pub at: Timestamp,
    /// What they chose.
    pub choice: Choice,
}

/// What can be chosen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Choice {
    /// Yes, this time.
    Once,
    /// Yes, and the same again in this session.
    Session,
    /// Yes, and the same again from now on.
    Always,
    /// No, with a reason the model reads.
    Deny(Option<String>),
}

impl Question {
    /// Its id.
    pub fn id(&self) -> &QuestionId {
        &self.id
    }

    /// The job that waits.
    pub fn job(&self) -> &Job {
        &self.job
    }

    /// The rules that matched, with reasons.
    pub fn matches(&self) -> &[Match] {
        &self.matches
    }

    /// The whole text, made visible, the dangerous part marked.
    pub fn shown(&self) -> &Shown {
        &self.shown
    }

    /// Who may answer.
    pub fn approvers(&self) -> &[Person] {
        &self.approvers
    }

    /// When it ends.
    pub fn expires(&self) -> Timestamp {
        self.expires
    }

    /// What `session` and `always` would cover, to show before a person says yes. Empty: only `once` is offered.
    pub fn covers(&self) -> &[Covers] {
        &self.covers
    }

    /// Whether the harm is uncertain and stays where it can be undone, so that a model's word may be enough.
    pub fn is_contained(&self) -> bool {
        self.contained
    }

    /// What a store keeps.
    pub fn stored(&self) -> StoredQuestion {
        StoredQuestion { id: self.id.clone(), job: self.job.clone(), expires: self.expires }
    }

    /// Whether a person may answer; ask before [`Question::answered`], so that the question stays open for others.
    pub fn may_be_answered_by(&self, person: &Person) -> bool {
        self.approvers.contains(person)
    }

    /// Turns the answer into a permit or a refusal.
    pub fn answered(self, answer: Answer) -> Result<Permit, Refusal> {
        if answer.question != self.id {
            return Err(Refusal::OtherQuestion);
        }
        if !self.may_be_answered_by(&answer.by) {
            return Err(Refusal::NotApprover(answer.by));
        }
        if answer.at >= self.expires {
            return Err(Refusal::Expired);
        }
        let scope = match answer.choice {
            Choice::Deny(reason) => return Err(Refusal::Person { by: answer.by, reason }),
            Choice::Once => None,
            Choice::Session => Some(GrantScope::Session(self.session.clone())),
            Choice::Always => Some(GrantScope::Always),
        };
        let mut grants = Vec::new();
        for (index, covers) in self.covers.into_iter().enumerate() {
            let Some(scope) = &scope else { break };
            // A text that could not be understood is not remembered beyond the session.
            let scope = match (&covers, scope) {
                (Covers::Text { .. }, GrantScope::Always) => GrantScope::Session(self.session.clone()),
                (_, scope) => scope.clone(),
            };
            let id = GrantId(format!("g_{}_{index}", self.id.as_str().trim_start_matches("q_")));
            grants.push(Grant { id, covers, scope, given_by: answer.by.clone(), given_at: answer.at });
        }
        Ok(Permit::new(self.job, self.place, self.session, grants))
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
