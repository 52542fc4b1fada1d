//! Putting a job to the gate, and the gate's question to whoever is there.

use std::io::{self, IsTerminal};
use std::process::ExitCode;
use std::sync::Arc;

use hermes_agent::tool::CallContext;
use hermes_agent::{Approver, Denied, ToolContext};
use hermes_exec::ResolvedPlace;
use hermes_policy::visible::visible;
use hermes_policy::{Answer, Choice, Moment, Permit, Question, Refusal, Verdict};
use hermes_types::{Attendance, CallId, EntryPoint, Job, Origin, Person, Place, SessionKey, Timestamp};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::Context;
use crate::people::Desk;
use crate::screen::{Format, Screen, Tone};
use crate::stage::Stage;
use hermes_config::failure::{Failure, Kind};
use hermes_config::keys::Config;
use hermes_config::resolve::agent::{self, Stock, Visitor};
use hermes_config::resolve::{self, random};

/// Who answers a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Consent {
    /// It is answered already, with yes.
    Given,
    /// Whoever sits at the terminal.
    Ask,
    /// Nobody: the input is something else.
    Nobody,
}

/// A no, and the question it answers where there was one.
#[derive(Debug)]
pub(crate) struct Refused {
    reason: String,
    rules: Vec<String>,
    question: Option<String>,
}

impl Refused {
    /// A no without a question.
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

/// A question of which nothing is left but what is said about a no.
struct Asked {
    rules: Vec<String>,
    id: String,
}

impl Asked {
    fn of(question: &Question) -> Self {
        let rules = question.matches().iter().map(|found| found.id.to_owned()).collect();
        Self { rules, id: question.id().as_str().to_owned() }
    }

    /// A no that somebody said.
    fn refused(self, refusal: &Refusal) -> Refused {
        let reason = match refusal {
            // On this door it can only have been the owner.
            Refusal::Person { reason: None, .. } => "you said no".to_owned(),
            Refusal::Person { reason: Some(reason), .. } if reason == NO_TERMINAL => {
                format!("it has to be asked about: {reason}")
            }
            Refusal::Person { reason: Some(reason), .. } => format!("you said no: {}", visible(reason)),
            refusal => refusal.to_string(),
        };
        Refused { reason, rules: self.rules, question: Some(self.id) }
    }
}

/// Why a question is answered with no where nobody can be asked.
pub(crate) const NO_TERMINAL: &str = "there is no terminal to ask on; `--yes` says yes";

/// Asks the gate, and whoever is there.
pub(crate) fn ask(
    context: &Context,
    config: &Config,
    place: Place,
    session: &SessionKey,
    job: Job,
    consent: Consent,
) -> Result<Result<Permit, Refused>, Failure> {
    let question = match judge(config, place, session, job)? {
        Verdict::Allow(permit) => return Ok(Ok(permit)),
        Verdict::Deny(refusal) => return Ok(Err(Refused::unasked(&refusal))),
        Verdict::Ask(question) => question,
    };
    let choice = match consent {
        Consent::Given => Choice::Once,
        Consent::Ask if io::stdin().is_terminal() && io::stderr().is_terminal() => put(context, &question)?,
        Consent::Ask | Consent::Nobody => {
            if context.screen.format == Format::Text {
                reasons(context.screen, &question);
            }
            Choice::Deny(Some(NO_TERMINAL.to_owned()))
        }
    };
    let asked = Asked::of(&question);
    let answer = Answer { question: question.id().clone(), by: owner(), at: Timestamp::now(), choice };
    Ok(question.answered(answer).map_err(|refusal| asked.refused(&refusal)))
}

fn judge(config: &Config, place: Place, session: &SessionKey, job: Job) -> Result<Verdict, Failure> {
    let person = owner();
    let attendance = Attendance::Attended(vec![person.clone()]);
    let origin = Origin { attendance, person, entry_point: EntryPoint::Cli, session: session.clone(), place };
    Ok(resolve::gate(config).judge(job, &origin, Moment { now: Timestamp::now(), seed: random()? }))
}

/// What came of a question that is kept.
pub(crate) enum Answered {
    /// It may run.
    Yes(Permit),
    /// It may not.
    No(Refused),
    /// Whoever was asked has interrupted it.
    Left,
}

/// Asks the gate, and as tools do whoever is there or elsewhere: what was allowed to happen again counts, and the
/// question is kept. What needs no question does not need the store either.
pub(crate) async fn ask_anywhere(
    context: &Context,
    config: &Config,
    plan: &ResolvedPlace,
    job: Job,
    consent: Consent,
) -> Result<Answered, Failure> {
    match judge(config, plan.place(), plan.session(), job.clone())? {
        Verdict::Allow(permit) => return Ok(Answered::Yes(permit)),
        verdict if verdict.yields_to_grants() => {}
        Verdict::Deny(refusal) => return Ok(Answered::No(Refused::unasked(&refusal))),
        Verdict::Ask(_) => {}
    }
    let desk = Arc::new(Desk::new(context.screen, Arc::new(Stage::plain(context.screen)), consent));
    let attendance = Attendance::Attended(vec![owner()]);
    let visitor = Visitor {
        person: owner(),
        door: EntryPoint::Cli,
        attendance,
        ask: Arc::clone(&desk) as Arc<dyn Approver>,
    };
    let store = resolve::store::open(context).await?;
    let hands =
        ToolContext::new(agent::setup(&Stock::new(context, config), config, plan.clone(), visitor, store));
    let fault = |no: Denied| Failure::new(Kind::Failed, no.to_string());
    let question = match hands.judge(job).await.map_err(fault)? {
        Verdict::Allow(permit) => return Ok(Answered::Yes(permit)),
        Verdict::Deny(refusal) => return Ok(Answered::No(Refused::unasked(&refusal))),
        Verdict::Ask(question) => question,
    };
    let asked = Asked::of(&question);
    let (call, stop) = (CallId::new(asked.id.clone()), CancellationToken::new());
    let scene = CallContext { call_id: &call, stop: &stop, turn: None, observer: &|_event| {} };
    match desk.attend(hands.ask(*question, scene), &stop).await? {
        Ok(permit) => Ok(Answered::Yes(permit)),
        Err(Denied::Refused(Refusal::Expired)) if stop.is_cancelled() => Ok(Answered::Left),
        Err(Denied::Refused(refusal)) => Ok(Answered::No(asked.refused(&refusal))),
        Err(no) => Err(fault(no)),
    }
}

/// Shows a question and reads the answer; anything but a clear yes is a no.
fn put(context: &Context, question: &Question) -> Result<Choice, Failure> {
    context.screen.aside(&question.shown().plain());
    reasons(context.screen, question);
    Ok(if confirm(context, "run it? [y/N]")? { Choice::Once } else { Choice::Deny(None) })
}

/// Says why there is a question.
pub(crate) fn reasons(screen: Screen, question: &Question) {
    let mark = screen.paint(Tone::Doubtful, "!");
    for found in question.matches() {
        screen.aside(&format!("  {mark} {}", found.reason));
    }
}

/// Asks for a yes at the terminal.
pub(crate) fn confirm(context: &Context, prompt: &str) -> Result<bool, Failure> {
    context.screen.prompt(prompt);
    let mut answer = String::new();
    io::stdin().read_line(&mut answer)?;
    Ok(matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes"))
}

/// Says no, and why.
pub(crate) fn refuse(context: &Context, refused: &Refused) -> Result<ExitCode, Failure> {
    let reason = &refused.reason;
    match context.screen.format {
        Format::Json => context.screen.json(&json!({"refused": {
            "rules": refused.rules, "reason": reason, "question": refused.question,
        }}))?,
        Format::Text => {
            let word = context.screen.paint(Tone::Bad, "refused");
            context.screen.aside(&format!("{word}: {reason}"));
        }
    }
    Ok(Kind::Refused.code())
}

/// Whoever sits at this terminal.
pub(crate) fn owner() -> Person {
    Person::new("cli")
}
