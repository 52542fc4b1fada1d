//! What people have allowed to happen again.
//!
//! A grant binds a parsed command: its program, options and operands, in its directory. It never binds the shell that
//! wrapped the command, nor the rule that asked.

use hermes_types::{Person, SessionKey, Timestamp};
use serde::{Deserialize, Serialize};

use crate::shell::Segment;

/// The id of a grant.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct GrantId(pub(crate) String);

impl GrantId {
    /// The id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// How long a grant lasts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum GrantScope {
    /// As long as this session.
    Session(SessionKey),
    /// Until it is revoked.
    Always,
}

/// What a grant covers.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Covers {
    /// A parsed command.
    Command {
        /// The program, by name or by the path it was called with.
        program: String,
        /// Variables set for it alone.
        assignments: Vec<String>,
        /// Its words, in their order: an operand belongs to the option before it.
        words: Vec<String>,
        /// Where its input and output go.
        redirects: Vec<String>,
        /// The text it is fed.
        input: Option<String>,
        /// The directory it runs in.
        cwd: String,
    },
    /// A whole text whose commands could not all be known, word for word.
    Text {
        /// The text.
        text: String,
        /// The directory it runs in.
        cwd: String,
    },
}

impl Covers {
    /// The command a segment is, if all of it is known.
    pub(crate) fn segment(segment: &Segment) -> Option<Self> {
        let program = segment.program.known()?.to_owned();
        let cwd = segment.cwd.clone()?;
        let assignments = segment
            .assignments
            .iter()
            .map(|(name, value)| value.known().map(|value| format!("{name}={value}")))
            .collect::<Option<Vec<String>>>()?;
        let words = segment
            .args
            .iter()
            .map(|word| (!word.has_unknown()).then(|| word.show()))
            .collect::<Option<Vec<String>>>()?;
        let redirects = segment
            .redirects
            .iter()
            .map(|redirect| {
                let descriptor = redirect.descriptor.as_deref().unwrap_or_default();
                redirect
                    .target
                    .known()
                    .map(|target| format!("{descriptor}{} {target}", redirect.operator.sign()))
            })
            .collect::<Option<Vec<String>>>()?;
        // What comes out of another program may be something else next time.
        let input = match &segment.stdin.text {
            Some(text) => Some(text.known()?.to_owned()),
            None if segment.stdin.is_piped() => return None,
            None => None,
        };
        Some(Self::Command { program, assignments, words, redirects, input, cwd })
    }

    /// The command for people.
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

/// One command that may run again without asking.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    /// Its id.
    pub id: GrantId,
    /// What it covers.
    pub covers: Covers,
    /// How long it lasts.
    pub scope: GrantScope,
    /// Who gave it.
    pub given_by: Person,
    /// When.
    pub given_at: Timestamp,
}

/// All grants, as a value.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grants(Vec<Grant>);

impl Grants {
    /// The grants a store kept.
    pub fn new(grants: Vec<Grant>) -> Self {
        Self(grants)
    }

    /// Every grant, oldest first.
    pub fn list(&self) -> &[Grant] {
        &self.0
    }

    /// Adds what a person allowed.
    pub fn add(&mut self, grants: &[Grant]) {
        for grant in grants {
            if !self.0.iter().any(|known| known.covers == grant.covers && known.scope == grant.scope) {
                self.0.push(grant.clone());
            }
        }
    }

    /// Takes a grant back. Gives it, if there was one.
    pub fn revoke(&mut self, id: &GrantId) -> Option<Grant> {
        let at = self.0.iter().position(|grant| grant.id == *id)?;
        Some(self.0.remove(at))
    }

    /// Ends everything that was allowed for a session.
    pub fn end_session(&mut self, session: &SessionKey) {
        self.0.retain(|grant| !matches!(&grant.scope, GrantScope::Session(key) if key == session));
    }

    pub(crate) fn cover(&self, covers: &Covers, session: &SessionKey) -> bool {
        self.0.iter().any(|grant| {
            let here = match &grant.scope {
                GrantScope::Session(key) => key == session,
                GrantScope::Always => true,
            };
            here && grant.covers == *covers
        })
    }
}
