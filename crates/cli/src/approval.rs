//! The terminal front end of approvals: asks for a permit and reports a refusal.

use std::io;
use std::process::ExitCode;
use std::sync::Arc;

use hermes_agent::approvals::{Approvals, Denied, judge_by_rules};
use hermes_agent::{Approver, CallContext};
use hermes_policy::escape::escape;
use hermes_policy::{Permit, Question, Refusal, Verdict};
use hermes_types::{Attendance, CallId, EntryPoint, Job, Origin, Person, Place, SessionKey};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::Context;
use crate::screen::{OutputFormat, Screen, Tone};
use crate::terminal_approver::TerminalApprover;
use crate::turn_view::TurnView;
use hermes_config::failure::{Failure, FailureKind};
use hermes_config::keys::Config;
use hermes_config::resolve;

/// Who answers a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Consent {
    /// The command line says yes.
    Given,
    /// The person at the terminal.
    Ask,
    /// No person, because the input is used for something else.
    Unavailable,
}

/// A refusal, and the question that was asked, if any.
#[derive(Debug)]
pub(crate) struct RefusalReport {
    reason: String,
    rules: Vec<String>,
    question: Option<String>,
}

impl RefusalReport {
    fn unasked(refusal: &Refusal) -> Self {
        let rules = match refusal {
            Refusal::Floor(found) | Refusal::Unattended(found) => {
                found.iter().map(|found| found.id.to_owned()).collect()
            }
            _ => Vec::new(),
        };
        Self { reason: refusal.to_string(), rules, question: None }
    }

    pub(crate) fn reason(&self) -> &str {
        &self.reason
    }
}

/// The facts about a question that a refusal reports.
struct AskedQuestion {
    rules: Vec<String>,
    id: String,
}

impl AskedQuestion {
    fn new(question: &Question) -> Self {
        let rules = question.matches().iter().map(|found| found.id.to_owned()).collect();
        Self { rules, id: question.id().as_str().to_owned() }
    }

    fn refused(self, refusal: &Refusal) -> RefusalReport {
        let reason = match refusal {
            // On the command line only the owner answers.
            Refusal::Person { reason: None, .. } => "you said no".to_owned(),
            Refusal::Person { reason: Some(reason), .. } if reason == NO_TERMINAL => {
                format!("it has to be asked about: {reason}")
            }
            Refusal::Person { reason: Some(reason), .. } => format!("you said no: {}", escape(reason)),
            refusal => refusal.to_string(),
        };
        RefusalReport { reason, rules: self.rules, question: Some(self.id) }
    }
}

/// The reason for a refusal when no person can be asked.
pub(crate) const NO_TERMINAL: &str = "no terminal to ask on; use `--yes` to approve";

/// The decision about a job.
pub(crate) enum Decision {
    Allowed(Permit),
    Refused(RefusalReport),
    /// The person interrupted the question.
    Interrupted,
}

/// Asks the gate and, if it wants a yes, the approvers: the person at this terminal or one elsewhere. A
/// job that needs no question needs no store either.
pub(crate) async fn approve(
    context: &Context,
    config: &Config,
    place: Place,
    session: &SessionKey,
    job: Job,
    consent: Consent,
) -> Result<Decision, Failure> {
    let failure = |denied: Denied| Failure::new(FailureKind::Failed, denied.to_string());
    let gate = Arc::new(resolve::gate(config));
    let person = owner();
    let attendance = Attendance::Attended(vec![person.clone()]);
    let entry_point = EntryPoint::Cli;
    let origin = Origin { person, entry_point, session: session.clone(), attendance, place };
    match judge_by_rules(&gate, job.clone(), &origin).map_err(failure)? {
        Verdict::Allow(permit) => return Ok(Decision::Allowed(permit)),
        verdict if verdict.can_be_granted() => {}
        Verdict::Deny(refusal) => return Ok(Decision::Refused(RefusalReport::unasked(&refusal))),
        Verdict::Ask(_) => {}
    }
    let desk =
        Arc::new(TerminalApprover::new(context.screen, Arc::new(TurnView::plain(context.screen)), consent));
    let store = resolve::store::open(context).await?;
    let approvals = Approvals::new(gate, origin, store, Arc::clone(&desk) as Arc<dyn Approver>);
    let question = match approvals.judge(job).await.map_err(failure)? {
        Verdict::Allow(permit) => return Ok(Decision::Allowed(permit)),
        Verdict::Deny(refusal) => return Ok(Decision::Refused(RefusalReport::unasked(&refusal))),
        Verdict::Ask(question) => question,
    };
    let asked = AskedQuestion::new(&question);
    let (call_id, stop) = (CallId::new(asked.id.clone()), CancellationToken::new());
    let call = CallContext { call_id: &call_id, stop: &stop, turn: None, observer: &|_event| {} };
    match desk.run_with_answers(approvals.ask(*question, call), &stop).await? {
        Ok(approval) => Ok(Decision::Allowed(approval.permit)),
        Err(Denied::Refused(Refusal::Expired)) if stop.is_cancelled() => Ok(Decision::Interrupted),
        Err(Denied::Refused(refusal)) => Ok(Decision::Refused(asked.refused(&refusal))),
        Err(denied) => Err(failure(denied)),
    }
}

/// Prints the reasons for a question.
pub(crate) fn print_reasons(screen: Screen, question: &Question) {
    let mark = screen.paint(Tone::Warning, "!");
    for found in question.matches() {
        screen.print_stderr(&format!("  {mark} {}", found.reason));
    }
}

/// Asks for a yes at the terminal.
pub(crate) fn confirm(context: &Context, prompt: &str) -> Result<bool, Failure> {
    context.screen.prompt(prompt);
    let mut answer = String::new();
    io::stdin().read_line(&mut answer)?;
    Ok(matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes"))
}

/// Prints a refusal.
pub(crate) fn report_refusal(context: &Context, refused: &RefusalReport) -> Result<ExitCode, Failure> {
    let reason = &refused.reason;
    match context.screen.format {
        OutputFormat::Json => context.screen.json(&json!({"refused": {
            "rules": refused.rules, "reason": reason, "question": refused.question,
        }}))?,
        OutputFormat::Text => {
            let word = context.screen.paint(Tone::Bad, "refused");
            context.screen.print_stderr(&format!("{word}: {reason}"));
        }
    }
    Ok(FailureKind::Refused.code())
}

/// The person at this terminal.
pub(crate) fn owner() -> Person {
    Person::new("cli")
}
