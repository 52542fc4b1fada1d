//! The gate: decides whether a job may run, asks, or refuses.
//!
//! | # | condition, checked in this order | result |
//! |---|---|---|
//! | 1 | an owner's deny rule matches | refuse, in every environment |
//! | 2 | the floor matches, and the host or an owner's directory is reachable | refuse |
//! | 3 | nothing of the owner's can be damaged or sent away, and no owner's ask rule matches | allow |
//! | 4 | nothing matches, or grants and allow rules cover every match | allow |
//! | 5 | the mode is `off`, and all of the text could be read | allow |
//! | 6 | there is no approver | refuse, unless configured otherwise, or the mode is `smart` and a model may answer |
//! | 7 | the text is too long to be shown in full | refuse |
//! | 8 | otherwise | ask |

use hermes_types::{Allowance, Attendance, Guard, Job, Origin, Place, Reach, Timestamp, TypedInput, Work};
use serde::{Deserialize, Serialize};

use crate::allowance::{ClassNeeds, MIXED_ACCESS, UNGUARDED_CODE, is_redirected};
use crate::escape::EscapedText;
use crate::grant::{Coverage, Grants};
use crate::permit::Permit;
use crate::question::{Question, QuestionId, StoredQuestion};
use crate::refusal::Refusal;
use crate::rules::{self, Harms, MAX_MATCHES, Match, Tier};
use crate::shell::{
    Script, Segment, Surroundings, understand, understand_file, understand_input, understand_python,
};
use crate::text_pattern::TextPattern;
use crate::user_rule::{UserRule, UserVerdict};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ApprovalMode {
    #[default]
    Manual,
    /// A model is asked before a person. It may refuse, or allow what is contained.
    Smart,
    /// Only the floor and the owner's deny rules apply.
    Off,
}

/// The result of a question when there is no approver.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Unattended {
    #[default]
    Deny,
    Allow,
}

/// The time and randomness for one decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moment {
    pub now: Timestamp,
    /// 16 random bytes for the question id.
    pub seed: [u8; 16],
}

#[derive(Debug, PartialEq, Eq)]
#[must_use = "a verdict decides whether something runs"]
pub enum Verdict {
    Allow(Permit),
    Ask(Box<Question>),
    Deny(Refusal),
}

impl Verdict {
    /// Whether additional grants could change it to `Allow`.
    pub fn can_be_granted(&self) -> bool {
        match self {
            Self::Ask(_) => true,
            Self::Deny(refusal) => matches!(refusal, Refusal::Unattended(_) | Refusal::TooLong { .. }),
            Self::Allow(_) => false,
        }
    }
}

/// The gate with the owner's settings.
#[derive(Debug, Clone, Default)]
pub struct Gate {
    pub mode: ApprovalMode,
    pub unattended: Unattended,
    pub rules: Vec<UserRule>,
    /// Texts that never run, as the Python program reads `approvals.deny`.
    pub denied_texts: Vec<TextPattern>,
    /// Plain commands that run without a question, as it reads `command_allowlist`.
    pub allowed_texts: Vec<TextPattern>,
    pub grants: Grants,
    pub question_limits: QuestionLimits,
    /// The guard of commands on this machine.
    pub guard: Guard,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QuestionLimits {
    pub timeout_secs: u64,
    /// The maximum length of a text that can be shown in full.
    pub max_chars: usize,
}

impl Default for QuestionLimits {
    fn default() -> Self {
        Self { timeout_secs: 300, max_chars: 8_000 }
    }
}

/// The findings about a job, for `hermes approvals test`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct GateReport {
    pub verdict: &'static str,
    /// Whether the floor matched.
    pub floor: bool,
    pub rules: Vec<Match>,
    /// Whether the question is one that a model may answer with yes in the mode `smart`.
    pub contained: bool,
    /// The simple commands found.
    pub segments: Vec<String>,
    /// The protected classes that it may use, or would after approval.
    pub may_use: Vec<&'static str>,
}

/// An analyzed job.
struct Findings {
    script: Script,
    matches: Vec<Match>,
    denied: Option<String>,
    needs: ClassNeeds,
}

impl Gate {
    pub fn judge(&self, job: Job, origin: &Origin, moment: Moment) -> Verdict {
        let findings = self.findings(&job, origin);
        self.decide(job, origin, moment, findings)
    }

    /// Judges the job of a stored question again, keeping the question's id and expiry.
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

    /// Reports the decision and its reasons without creating a permit.
    pub fn report(&self, job: &Job, origin: &Origin, moment: Moment) -> GateReport {
        let findings = self.findings(job, origin);
        let segments = findings
            .script
            .segments
            .iter()
            .filter(|segment| is_command(segment))
            .map(Segment::show)
            .collect();
        let rules = findings.matches.clone();
        let mut contained = false;
        let (verdict, floor, may_use) = match self.decide(job.clone(), origin, moment, findings) {
            Verdict::Allow(permit) => ("allow", false, permit.allowance().keywords()),
            Verdict::Ask(question) => {
                contained = question.is_contained();
                ("ask", false, question.allowance().keywords())
            }
            Verdict::Deny(refusal) => ("deny", matches!(refusal, Refusal::Floor(_)), Vec::new()),
        };
        GateReport { verdict, floor, rules, contained, segments, may_use }
    }

    fn findings(&self, job: &Job, origin: &Origin) -> Findings {
        let place = &origin.place;
        let around = Surroundings {
            cwd: &job.cwd,
            home: &place.home,
            hermes_home: &place.hermes_home,
            shell: &job.shell,
        };
        let script = match &job.work {
            Work::Shell(text) => understand(text, &around),
            Work::Input(TypedInput { program, typed_before, text }) => {
                understand_input(program, typed_before.as_deref(), text, &around)
            }
            Work::Python(text) => understand_python(text, &around),
            Work::File(file) => understand_file(file, &around),
        };
        let owned: &[String] = match &place.reach {
            Reach::Directories(directories) => directories,
            Reach::Nothing | Reach::Host => &[],
        };
        let mut matches = rules::matches(&script, &around, owned);
        let by_text = self.denied_texts.iter().find(|pattern| pattern.denies(job, &script));
        let mut denied = by_text.map(|pattern| pattern.to_string());
        for rule in &self.rules {
            for segment in script.segments.iter().filter(|segment| rule.pattern.may_match_word(segment)) {
                match rule.verdict {
                    UserVerdict::Deny => denied = denied.or_else(|| Some(segment.show())),
                    UserVerdict::Ask => matches.push(Match::by_owner(segment)),
                    UserVerdict::Allow => {}
                }
            }
        }
        let is_allowed = |segment: &Segment| self.is_allowed_by_owner(segment);
        let mut needs = if self.guard == Guard::Off || place.reach != Reach::Host {
            ClassNeeds::unguarded()
        } else if job.lacks_guard {
            ClassNeeds::lacking_guard(job, &script, is_allowed)
        } else {
            ClassNeeds::new(job, &script, &place.home, is_allowed)
        };
        let about_code = if needs.is_mixed() {
            Some((MIXED_ACCESS, "code that was not read would run with access to protected things"))
        } else if needs.is_unguarded_code() {
            Some((UNGUARDED_CODE, "runs code that was not read, and the guard is not available here"))
        } else {
            None
        };
        if let Some((rule, reason)) = about_code.filter(|_| script.doubts.is_empty()) {
            let text = job.work.text().into_owned();
            matches.push(Match::new(rule, Tier::Ask, reason, text.clone(), &text));
        }
        if !matches.is_empty() {
            needs.add_named(&script, &place.home);
        }
        Findings { script, matches, denied, needs }
    }

    fn decide(&self, job: Job, origin: &Origin, moment: Moment, findings: Findings) -> Verdict {
        let Findings { script, matches, denied, needs } = findings;
        let place = &origin.place;
        let allow = |job: Job, allowance: Allowance| {
            let session = origin.session.clone();
            Verdict::Allow(Permit::new(job, place.id.clone(), session, allowance, Vec::new()))
        };
        if let Some(command) = denied {
            return Verdict::Deny(Refusal::UserRule { command });
        }
        let floor: Vec<Match> = matches.iter().filter(|found| found.tier == Tier::Floor).cloned().collect();
        if !floor.is_empty() && place.reach != Reach::Nothing {
            return Verdict::Deny(Refusal::Floor(floor));
        }
        let can_harm = |found: &Match| match place.reach {
            Reach::Nothing => found.leak.is_possible(place.egress),
            Reach::Directories(_) => found.harms == Harms::Owner,
            Reach::Host => true,
        };
        let asking: Vec<Match> =
            matches.into_iter().filter(|found| can_harm(found) || found.is_by_owner()).collect();
        let is_open = |found: &&Match| !self.is_granted(found, &job, &script, origin);
        let open: Vec<Match> = asking.iter().filter(is_open).cloned().collect();
        if asking.is_empty() {
            return allow(job, needs.unasked());
        }
        if open.is_empty() {
            return allow(job, needs.approved(&asking, true));
        }
        if self.mode == ApprovalMode::Off && !open.iter().any(Match::hides_floor) {
            return allow(job, needs.approved(&asking, false));
        }
        let contained = is_contained(&job, &script, &asking).then(|| needs.contained(&asking)).flatten();
        let approvers = match (&origin.attendance, self.unattended) {
            (Attendance::Attended(approvers), _) => approvers.clone(),
            (Attendance::Unattended, Unattended::Allow) => {
                return allow(job, needs.approved(&asking, false));
            }
            // Only a model can answer.
            (Attendance::Unattended, Unattended::Deny)
                if self.mode == ApprovalMode::Smart && contained.is_some() =>
            {
                Vec::new()
            }
            (Attendance::Unattended, Unattended::Deny) => return Verdict::Deny(Refusal::Unattended(open)),
        };
        let sources: Vec<String> = open.iter().map(|found| found.source.clone()).collect();
        let shown = EscapedText::new(&job.work.text(), &sources);
        let length = shown.char_count();
        if length > self.question_limits.max_chars {
            return Verdict::Deny(Refusal::TooLong { length, limit: self.question_limits.max_chars });
        }
        Verdict::Ask(Box::new(Question {
            id: QuestionId::from_seed(moment.seed),
            covers: coverage_of(&open, &job, &script, place),
            allowance: needs.approved(&asking, true),
            place: place.id.clone(),
            session: origin.session.clone(),
            approvers,
            expires: moment.now.plus(self.question_limits.timeout_secs),
            matches: open,
            contained,
            text: shown,
            job,
        }))
    }

    /// Whether a grant or an allow rule covers a match.
    fn is_granted(&self, found: &Match, job: &Job, script: &Script, origin: &Origin) -> bool {
        let is_allowed_text = || self.allowed_texts.iter().any(|pattern| pattern.allows(job, script));
        if self.grants.contains(&Coverage::from_job(job, &origin.place), &origin.session)
            || (!found.is_by_owner() && is_allowed_text())
        {
            return true;
        }
        let Some(at) = found.at else { return false };
        let Some(segment) = script.segments.get(at) else { return false };
        let granted = Coverage::from_segment(script, at, &origin.place)
            .is_some_and(|covers| self.grants.contains(&covers, &origin.session));
        granted || (!found.is_by_owner() && self.is_allowed_by_owner(segment))
    }

    fn is_allowed_by_owner(&self, segment: &Segment) -> bool {
        self.rules.iter().any(|rule| rule.verdict == UserVerdict::Allow && rule.pattern.covers(segment))
    }
}

fn is_command(segment: &Segment) -> bool {
    !segment.program.pieces().is_empty() || !segment.redirects.is_empty() || !segment.assignments.is_empty()
}

/// Whether everything that was read of a script and asks about it is contained, see
/// [`crate::rules`].
fn is_contained(job: &Job, script: &Script, asking: &[Match]) -> bool {
    matches!(job.work, Work::Shell(_))
        && script.doubts.is_empty()
        && asking.len() < MAX_MATCHES
        && asking.iter().all(|found| found.is_contained)
        && !is_redirected(job, script)
}

/// The coverage of a lasting grant for these matches.
fn coverage_of(open: &[Match], job: &Job, script: &Script, place: &Place) -> Vec<Coverage> {
    let mut found = Vec::new();
    for matched in open {
        let covers = matched.at.and_then(|at| Coverage::from_segment(script, at, place));
        let covers = covers.unwrap_or_else(|| Coverage::from_job(job, place));
        if !found.contains(&covers) {
            found.push(covers);
        }
    }
    found
}
