//! The order of decisions.
//!
//! | # | step | result |
//! |---|---|---|
//! | 1 | an owner's deny rule matches | refused, wherever it runs |
//! | 2 | the floor matches, and the host or a directory of the owner can be reached | refused |
//! | 3 | nothing of the owner's can be harmed from there, and no owner's ask rule matches | allowed |
//! | 4 | nothing matches, or grants and allow rules cover all that does | allowed |
//! | 5 | mode `off` | allowed |
//! | 6 | nobody is there to answer | refused, unless the owner chose otherwise |
//! | 7 | it cannot be shown whole | refused |
//! | 8 | else | asked |

use hermes_types::{Attendance, Job, Origin, Reach, Timestamp, Work};
use serde::{Deserialize, Serialize};

use crate::grant::{Covers, Grants};
use crate::permit::Permit;
use crate::question::{Question, QuestionId, StoredQuestion};
use crate::refusal::Refusal;
use crate::rules::{self, Harms, Match, Tier};
use crate::shell::{Script, Segment, Surroundings, understand, understand_file, understand_python};
use crate::user_rule::{UserRule, UserVerdict};
use crate::visible::Shown;

/// How much is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// A person decides.
    #[default]
    Manual,
    /// A model may refuse, or allow what is uncertain and contained; a person decides the rest.
    Smart,
    /// Only the floor and the owner's deny rules hold.
    Off,
}

/// What happens to a question when nobody is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Unattended {
    /// It is refused.
    #[default]
    Deny,
    /// It is allowed, because the owner said so.
    Allow,
}

/// The moment and the randomness of one judgment, handed in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moment {
    /// Now.
    pub now: Timestamp,
    /// Sixteen random bytes, for the id of a question.
    pub seed: [u8; 16],
}

/// May it run?
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a verdict decides whether something runs"]
pub enum Verdict {
    /// Yes.
    Allow(Permit),
    /// If a person says so.
    Ask(Box<Question>),
    /// No.
    Deny(Refusal),
}

impl Verdict {
    /// Whether more grants could make it a yes.
    pub fn yields_to_grants(&self) -> bool {
        match self {
            Self::Ask(_) => true,
            Self::Deny(refusal) => matches!(refusal, Refusal::Unattended(_) | Refusal::TooLong { .. }),
            Self::Allow(_) => false,
        }
    }
}

/// A model's opinion on a question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Opinion {
    /// It should not run. Always heard.
    Refuse(String),
    /// A person should decide.
    Unsure,
    /// It is harmless. Heard only where the harm is uncertain and contained.
    Harmless,
}

/// The gate, with what the owner has decided.
#[derive(Debug, Clone, Default)]
pub struct Gate {
    /// How much is asked.
    pub mode: Mode,
    /// What happens when nobody is there.
    pub unattended: Unattended,
    /// The owner's rules.
    pub rules: Vec<UserRule>,
    /// What people have allowed to happen again.
    pub grants: Grants,
    /// How questions are put.
    pub asking: Asking,
}

/// How questions are put.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Asking {
    /// How long a question stays open, in seconds.
    pub patience: u64,
    /// How many characters can be shown whole.
    pub room: usize,
}

impl Default for Asking {
    fn default() -> Self {
        Self { patience: 300, room: 8_000 }
    }
}

/// Everything the gate found out about a job, for `approvals test`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Report {
    /// `allow`, `ask` or `deny`.
    pub verdict: &'static str,
    /// Whether the floor was hit.
    pub floor: bool,
    /// Every rule that matched.
    pub rules: Vec<Match>,
    /// Every simple command that was found.
    pub segments: Vec<String>,
}

/// A job that was read and compared with everything that speaks against it.
struct Findings {
    script: Script,
    matches: Vec<Match>,
    denied: Option<String>,
}

impl Gate {
    /// Judges a job.
    pub fn judge(&self, job: Job, origin: &Origin, moment: Moment) -> Verdict {
        let findings = self.findings(&job, origin, moment.now);
        self.decide(job, origin, moment, findings)
    }

    /// Judges the job of a stored question again, keeping its id and end.
    pub fn reopen(&self, stored: StoredQuestion, origin: &Origin, moment: Moment) -> Verdict {
        match self.judge(stored.job, origin, moment) {
            Verdict::Ask(mut question) => {
                question.id = stored.id;
                question.expires = stored.expires;
                Verdict::Ask(question)
            }
            other => other,
        }
    }

    /// What a model's opinion makes of a question. It can never lift the floor or a deny: those were no questions.
    pub fn consult(&self, question: Box<Question>, opinion: Opinion) -> Verdict {
        match opinion {
            Opinion::Refuse(reason) => Verdict::Deny(Refusal::Opinion(reason)),
            Opinion::Harmless if self.mode == Mode::Smart && question.contained => {
                Verdict::Allow(Permit::new(question.job, question.place, question.session, Vec::new()))
            }
            Opinion::Harmless | Opinion::Unsure => Verdict::Ask(question),
        }
    }

    /// Explains what would be decided, without making a permit.
    pub fn report(&self, job: &Job, origin: &Origin, moment: Moment) -> Report {
        let findings = self.findings(job, origin, moment.now);
        let segments = findings
            .script
            .segments
            .iter()
            .filter(|segment| is_command(segment))
            .map(Segment::show)
            .collect();
        let rules = findings.matches.clone();
        let (verdict, floor) = match self.decide(job.clone(), origin, moment, findings) {
            Verdict::Allow(_) => ("allow", false),
            Verdict::Ask(_) => ("ask", false),
            Verdict::Deny(refusal) => ("deny", matches!(refusal, Refusal::Floor(_))),
        };
        Report { verdict, floor, rules, segments }
    }

    fn findings(&self, job: &Job, origin: &Origin, now: Timestamp) -> Findings {
        let place = &origin.place;
        let around = Surroundings { cwd: &job.cwd, home: &place.home, hermes_home: &place.hermes_home };
        let script = match &job.work {
            Work::Shell(text) | Work::Input(text) => understand(text, &around),
            Work::Python(text) => understand_python(text, &around),
            Work::File(file) => understand_file(file, &around),
        };
        let owned: &[String] = match &place.reach {
            Reach::Directories(directories) => directories,
            Reach::Nothing | Reach::Host => &[],
        };
        let mut matches = rules::matches(&script, &around, owned);
        let mut denied = None;
        for rule in self.rules.iter().filter(|rule| rule.holds(place.backend, &origin.session, now)) {
            for segment in script.segments.iter().filter(|segment| rule.pattern.concerns(segment)) {
                match rule.verdict {
                    UserVerdict::Deny => denied = denied.or_else(|| Some(segment.show())),
                    UserVerdict::Ask => matches.push(Match::by_owner(segment)),
                    UserVerdict::Allow => {}
                }
            }
        }
        Findings { script, matches, denied }
    }

    fn decide(&self, job: Job, origin: &Origin, moment: Moment, findings: Findings) -> Verdict {
        let Findings { script, matches, denied } = findings;
        let place = &origin.place;
        let allow =
            |job: Job| Verdict::Allow(Permit::new(job, place.id.clone(), origin.session.clone(), Vec::new()));
        if let Some(command) = denied {
            return Verdict::Deny(Refusal::UserRule { command });
        }
        let floor: Vec<Match> = matches.iter().filter(|found| found.tier == Tier::Floor).cloned().collect();
        if !floor.is_empty() && place.reach != Reach::Nothing {
            return Verdict::Deny(Refusal::Floor(floor));
        }
        let can_harm = |found: &Match| match place.reach {
            Reach::Nothing => false,
            Reach::Directories(_) => found.harms == Harms::Owner,
            Reach::Host => true,
        };
        let open: Vec<Match> = matches
            .into_iter()
            .filter(|found| {
                (can_harm(found) || found.is_by_owner())
                    && !self.settled(found, &job, &script, origin, moment.now)
            })
            .collect();
        if open.is_empty() || self.mode == Mode::Off {
            return allow(job);
        }
        let approvers = match &origin.attendance {
            Attendance::Attended(approvers) => approvers.clone(),
            Attendance::Unattended => {
                return match self.unattended {
                    Unattended::Deny => Verdict::Deny(Refusal::Unattended(open)),
                    Unattended::Allow => allow(job),
                };
            }
        };
        let sources: Vec<String> = open.iter().map(|found| found.source.clone()).collect();
        let shown = Shown::new(&job.work.text(), &sources);
        let length = shown.length();
        if length > self.asking.room {
            return Verdict::Deny(Refusal::TooLong { length, limit: self.asking.room });
        }
        Verdict::Ask(Box::new(Question {
            id: QuestionId::from_seed(moment.seed),
            covers: covers(&open, &job, &script),
            contained: open.iter().all(|found| found.contained || !can_harm(found)),
            place: place.id.clone(),
            session: origin.session.clone(),
            approvers,
            expires: moment.now.plus(self.asking.patience),
            matches: open,
            shown,
            job,
        }))
    }

    /// Whether a match was settled before, by a grant or an allow rule.
    fn settled(&self, found: &Match, job: &Job, script: &Script, origin: &Origin, now: Timestamp) -> bool {
        let text = Covers::Text { text: job.work.text().into_owned(), cwd: job.cwd.clone() };
        if self.grants.cover(&text, &origin.session) {
            return true;
        }
        let Some(segment) = found.at.and_then(|at| script.segments.get(at)) else { return false };
        let granted =
            Covers::segment(segment).is_some_and(|covers| self.grants.cover(&covers, &origin.session));
        let allowed = || {
            self.rules.iter().any(|rule| {
                rule.verdict == UserVerdict::Allow
                    && rule.holds(origin.place.backend, &origin.session, now)
                    && rule.pattern.covers(segment)
            })
        };
        granted || (!found.is_by_owner() && allowed())
    }
}

fn is_command(segment: &Segment) -> bool {
    !segment.program.pieces().is_empty() || !segment.redirects.is_empty() || !segment.assignments.is_empty()
}

/// What a lasting yes to these matches would cover.
fn covers(open: &[Match], job: &Job, script: &Script) -> Vec<Covers> {
    let mut found = Vec::new();
    for matched in open {
        let covers = matched.at.and_then(|at| script.segments.get(at)).and_then(Covers::segment);
        let covers = covers
            .unwrap_or_else(|| Covers::Text { text: job.work.text().into_owned(), cwd: job.cwd.clone() });
        if !found.contains(&covers) {
            found.push(covers);
        }
    }
    found
}
