//! Grants: commands that may run again without a question.
//!
//! A grant covers a parsed command: its program, options and operands, in its directory, in its
//! kind of environment, and behind the commands that carry it to another host, container or user.
//! It never covers the shell around the command or the rule that asked.

use hermes_types::{
    BackendName, GrantScope, Job, Person, Place, Reach, SessionKey, Timestamp, TypedInput, Work,
};
use serde::{Deserialize, Serialize};

use crate::escape::escape;
use crate::programs::{self, Runs};
use crate::shell::{Script, Segment};

#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct GrantId(pub(crate) String);

impl GrantId {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Where a command runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GrantSite {
    /// The keyword of the backend.
    backend: String,
    reach: Reach,
    /// The commands that run it on another host, in a container or as another user.
    through: Vec<String>,
}

impl GrantSite {
    fn new(place: &Place, through: Vec<String>) -> Self {
        Self { backend: place.backend.as_str().to_owned(), reach: place.reach.clone(), through }
    }

    fn show(&self) -> String {
        let reach = match &self.reach {
            Reach::Nothing => String::new(),
            Reach::Directories(directories) => format!(" with {}", directories.join(", ")),
            Reach::Host if self.backend == BackendName::Local.as_str() => String::new(),
            Reach::Host => " with access to the host".to_owned(),
        };
        let through: String = self.through.iter().map(|command| format!(", through `{command}`")).collect();
        format!("on {}{reach}{through}", self.backend)
    }
}

/// Wrappers that run their command here, as the same user.
const TRANSPARENT: &[&str] =
    &["env", "ionice", "nice", "nohup", "setsid", "stdbuf", "time", "timeout", "xargs"];

/// The commands that carry a segment elsewhere, outermost first. A segment follows the one that
/// runs it.
fn carriers(script: &Script, at: usize) -> Option<Vec<String>> {
    let (before, rest) = script.segments.split_at_checked(at)?;
    let via = &rest.first()?.via;
    let is_shell = |name: &str| programs::find(name).runs.iter().any(|runs| matches!(runs, Runs::Shell));
    let carriers =
        via.iter().enumerate().filter(|(_, name)| !TRANSPARENT.contains(&name.as_str()) && !is_shell(name));
    let command = |(depth, name): (usize, &String)| {
        let runs_it = |outer: &&Segment| outer.name == *name && via.get(..depth) == Some(&outer.via);
        before.iter().rev().find(runs_it).map(Segment::show)
    };
    carriers.map(command).collect()
}

/// The command or text that a grant covers. A grant of an earlier version names no site and matches
/// nothing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
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
        #[serde(default)]
        site: Option<GrantSite>,
    },
    /// A text with commands that could not all be analyzed, verbatim.
    Text {
        text: String,
        cwd: String,
        /// The digest of the session state by which it was read.
        #[serde(default)]
        state: String,
        #[serde(default)]
        site: Option<GrantSite>,
    },
}

impl Coverage {
    /// The command of a segment, if all of it is known.
    pub(crate) fn from_segment(script: &Script, at: usize, place: &Place) -> Option<Self> {
        let segment = script.segments.get(at)?;
        let site = Some(GrantSite::new(place, carriers(script, at)?));
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
        Some(Self::Command { program, assignments, words, redirects, input, cwd, site })
    }

    /// The whole text of a job.
    pub(crate) fn from_job(job: &Job, place: &Place) -> Self {
        let text = match &job.work {
            // The same text may end another line, or be typed into another program.
            Work::Input(TypedInput { program, typed_before, text }) => {
                format!("{}{text} (typed into {program})", typed_before.as_deref().unwrap_or("…"))
            }
            work => work.text().into_owned(),
        };
        Self::Text {
            text,
            cwd: job.cwd.clone(),
            state: job.shell.digest.clone(),
            site: Some(GrantSite::new(place, Vec::new())),
        }
    }

    /// The command in readable form, escaped.
    pub fn show(&self) -> String {
        let at = |site: &Option<GrantSite>| match site {
            Some(site) => site.show(),
            None => "nowhere, as an earlier version did not record where".to_owned(),
        };
        let text = match self {
            Self::Command { program, assignments, words, redirects, input, cwd, site } => {
                let parts = assignments.iter().chain([program]).chain(words).chain(redirects);
                let command = parts.map(String::as_str).collect::<Vec<_>>().join(" ");
                let input = input.as_ref().map(|text| format!(", fed with {text:?}")).unwrap_or_default();
                format!("{command} (in {cwd}, {}{input})", at(site))
            }
            Self::Text { text, cwd, site, .. } => {
                format!("exactly this text, in {cwd}, {}: {text}", at(site))
            }
        };
        escape(&text)
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
