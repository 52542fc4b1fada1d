//! Approvals on the command line: asks for a permit and reports a refusal.

use std::io;
use std::process::ExitCode;
use std::sync::Arc;

use hermes_agent::approvals::{Approvals, ApprovedBy, Denied, judge_by_rules};
use hermes_agent::{Approver, CallContext};
use hermes_policy::escape::escape;
use hermes_policy::{Permit, Refusal, Verdict};
use hermes_types::{Attendance, CallId, EntryPoint, Job, Origin, Person, Place, SessionKey};
use serde::Serialize;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::screen::Tone;
use crate::terminal_approver::TerminalApprover;
use crate::turn_view::TurnView;
use crate::{Config, Context, Failure, FailureKind, Result};
use hermes_config::resolve;

/// How questions of a command are answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Consent {
    /// The command line says yes.
    Given,
    /// The person at the terminal is asked.
    Ask,
    /// No person can be asked, for example because standard input holds data.
    Unavailable,
}

impl Consent {
    /// The consent of `--yes`, or else of the person, if the terminal can be asked.
    pub(crate) fn new(yes: bool, can_ask: bool) -> Self {
        match (yes, can_ask) {
            (true, _) => Self::Given,
            (false, true) => Self::Ask,
            (false, false) => Self::Unavailable,
        }
    }
}

/// A refusal, and the question that was asked, if any.
#[derive(Debug, Serialize)]
pub(crate) struct RefusalReport {
    pub(crate) reason: String,
    rules: Vec<String>,
    question: Option<String>,
}

impl RefusalReport {
    /// The report of a refusal without a question.
    fn new(refusal: &Refusal) -> Self {
        let rules = match refusal {
            Refusal::Floor(matches) | Refusal::Unattended(matches) => {
                matches.iter().map(|rule| rule.id.to_owned()).collect()
            }
            _ => Vec::new(),
        };
        Self { reason: refusal.to_string(), rules, question: None }
    }
}

/// The reason for a refusal if no person can be asked.
pub(crate) const NO_TERMINAL: &str = "no terminal to ask on; use `--yes` to approve";

/// The decision about a job.
pub(crate) enum Decision {
    Allowed(Permit),
    Refused(RefusalReport),
    /// The person interrupted the question.
    Interrupted,
}

impl Decision {
    /// The permit. A refusal is reported, and its exit code returned.
    pub(crate) fn permit_or_report(self, context: &Context) -> Result<Result<Permit, ExitCode>> {
        Ok(match self {
            Self::Allowed(permit) => Ok(permit),
            Self::Refused(refusal) => Err(report_refusal(context, &refusal)?),
            Self::Interrupted => Err(ExitCode::from(130)),
        })
    }
}

/// Asks the gate and, if it requires approval, the approvers: the person at this terminal or
/// elsewhere. A job that needs no question does not open the store.
pub(crate) async fn approve(
    context: &Context,
    config: &Config,
    place: Place,
    session: &SessionKey,
    job: Job,
    consent: Consent,
) -> Result<Decision> {
    let failure = |denied: Denied| Failure::failed(denied.to_string());
    let gate = Arc::new(resolve::gate(config));
    let person = owner();
    let attendance = Attendance::Attended(vec![person.clone()]);
    let entry_point = EntryPoint::Cli;
    let origin = Origin { person, entry_point, session: session.clone(), attendance, place };
    match judge_by_rules(&gate, job.clone(), &origin).map_err(failure)? {
        Verdict::Allow(permit) => return Ok(Decision::Allowed(permit)),
        verdict if verdict.can_be_granted() => {}
        Verdict::Deny(refusal) => return Ok(Decision::Refused(RefusalReport::new(&refusal))),
        Verdict::Ask(_) => {}
    }
    let view = Arc::new(TurnView::plain(context.screen));
    let approver = Arc::new(TerminalApprover::new(context.screen, view, consent));
    let store = resolve::store::open(context).await?;
    let reviewer = (consent != Consent::Given).then(|| resolve::agent::reviewer(context, config)).flatten();
    let people = Arc::clone(&approver) as Arc<dyn Approver>;
    let approvals = Approvals::new(gate, origin, store, people, reviewer);
    let question = match approvals.judge(job).await.map_err(failure)? {
        Verdict::Allow(permit) => return Ok(Decision::Allowed(permit)),
        Verdict::Deny(refusal) => return Ok(Decision::Refused(RefusalReport::new(&refusal))),
        Verdict::Ask(question) => question,
    };
    let id = question.id().as_str().to_owned();
    let rules = question.matches().iter().map(|rule| rule.id.to_owned()).collect();
    let (call_id, stop) = (CallId::new(id.clone()), CancellationToken::new());
    let call = CallContext { call_id: &call_id, stop: &stop, turn: None, observer: &|_event| {} };
    match approver.run_with_answers(approvals.ask(*question, call), &stop).await? {
        Ok(approval) => {
            if let Some(model @ ApprovedBy::Model) = approval.approved_by {
                context.screen.print_stderr(&model.to_string());
            }
            Ok(Decision::Allowed(approval.permit))
        }
        Err(Denied::Refused(refusal @ Refusal::Model { .. })) => {
            Ok(Decision::Refused(RefusalReport { reason: refusal.to_string(), rules, question: None }))
        }
        Err(Denied::Refused(Refusal::Expired)) if stop.is_cancelled() => Ok(Decision::Interrupted),
        Err(Denied::Refused(refusal)) => {
            let reason = refusal_reason(&refusal);
            Ok(Decision::Refused(RefusalReport { reason, rules, question: Some(id) }))
        }
        Err(denied) => Err(failure(denied)),
    }
}

/// The reason of a refusal after a question. On the command line only the owner answers.
fn refusal_reason(refusal: &Refusal) -> String {
    match refusal {
        Refusal::Person { reason: None, .. } => "denied by you".to_owned(),
        Refusal::Person { reason: Some(reason), .. } if reason == NO_TERMINAL => {
            format!("needs approval: {reason}")
        }
        Refusal::Person { reason: Some(reason), .. } => format!("denied by you: {}", escape(reason)),
        refusal => refusal.to_string(),
    }
}

/// Asks for a yes at the terminal.
pub(crate) fn confirm(context: &Context, prompt: &str) -> Result<bool> {
    context.screen.prompt(prompt);
    let mut answer = String::new();
    io::stdin().read_line(&mut answer)?;
    Ok(matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes"))
}

fn report_refusal(context: &Context, refusal: &RefusalReport) -> Result<ExitCode> {
    let screen = context.screen;
    if screen.is_json() {
        screen.json(&json!({"refused": refusal}))?;
    } else {
        screen.print_stderr(&format!("{}: {}", screen.paint(Tone::Bad, "refused"), refusal.reason));
    }
    Ok(FailureKind::Refused.code())
}

/// The person at this terminal.
pub(crate) fn owner() -> Person {
    Person::new("cli")
}
