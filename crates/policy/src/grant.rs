//! Grants: commands that may run again without a question.
//!
//! A grant covers a parsed command: its program, options and operands, in its directory. It never
//! covers the shell around the command or the rule that asked.

use hermes_types::{GrantScope, Job, Person, SessionKey, Timestamp};
use serde::{Deserialize, Serialize};

use crate::shell::Segment;

#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct GrantId(pub(crate) String);

impl GrantId {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The command or text that a grant covers.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Coverage {
    Command {
        /// The program, by the name or path it was called with.
        program: String,
        assignments: Vec<String>,
        /// In order: an operand may belong to the option before it.
        words: Vec<String>,
        redirects: Vec<String>,
        /// The text on standard input.
        input: Option<String>,
        cwd: String,
    },
    /// A text with commands that could not all be analyzed, verbatim.
    Text { text: String, cwd: String },
}

impl Coverage {
    /// The command of a segment, if all of it is known.
    pub(crate) fn from_segment(segment: &Segment) -> Option<Self> {
        let program = segment.program.known()?.to_owned();
        let cwd = segment.cwd.clone()?;
        let assignments =
            segment.assignments.iter().map(|(name, value)| Some(format!("{name}={}", value.known()?)));
        let assignments = assignments.collect::<Option<_>>()?;
        let words = segment.args.iter().map(|word| (!word.has_unknown()).then(|| word.show()));
        let words = words.collect::<Option<_>>()?;
        let redirects =
            segment.redirects.iter().map(|redirect| Some(redirect.show_with(redirect.target.known()?)));
        let redirects = redirects.collect::<Option<_>>()?;
        // The output of another program may differ next time.
        let input = match &segment.stdin.text {
            Some(text) => Some(text.known()?.to_owned()),
            None if segment.stdin.is_piped() => return None,
            None => None,
        };
        Some(Self::Command { program, assignments, words, redirects, input, cwd })
    }

    /// The whole text of a job.
    pub(crate) fn from_job(job: &Job) -> Self {
        Self::Text { text: job.work.text().into_owned(), cwd: job.cwd.clone() }
    }

    /// The command in readable form.
    pub fn show(&self) -> String {
        match self {
            Self::Command { program, assignments, words, redirects, input, cwd } => {
                let parts = assignments.iter().chain([program]).chain(words).chain(redirects);
                let command = parts.map(String::as_str).collect::<Vec<_>>().join(" ");
                let input = input.as_ref().map(|text| format!(", fed with {text:?}")).unwrap_or_default();
                format!("{command} (in {cwd}{input})")
            }
            Self::Text { text, cwd } => format!("exactly this text, in {cwd}: {text}"),
        }
    }
}

/// A permission to run a command again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    pub id: GrantId,
    pub covers: Coverage,
    pub scope: GrantScope,
    pub given_by: Person,
    pub given_at: Timestamp,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grants(Vec<Grant>);

impl Grants {
    pub fn new(grants: Vec<Grant>) -> Self {
        Self(grants)
    }

    /// Every grant, oldest first.
    pub fn list(&self) -> &[Grant] {
        &self.0
    }

    pub fn add(&mut self, grants: &[Grant]) {
        for grant in grants {
            if !self.0.iter().any(|known| known.covers == grant.covers && known.scope == grant.scope) {
                self.0.push(grant.clone());
            }
        }
    }

    /// Removes and returns a grant.
    pub fn revoke(&mut self, id: &GrantId) -> Option<Grant> {
        let at = self.0.iter().position(|grant| grant.id == *id)?;
        Some(self.0.remove(at))
    }

    pub(crate) fn contains(&self, covers: &Coverage, session: &SessionKey) -> bool {
        self.0.iter().any(|grant| {
            let here = match &grant.scope {
                GrantScope::Session(key) => key == session,
                GrantScope::Always => true,
            };
            here && grant.covers == *covers
        })
    }
}
