//! Putting a job to the gate, and the gate's question to whoever is there.

use std::io::{self, IsTerminal};
use std::process::ExitCode;
use std::time::SystemTime;

use hermes_policy::{Answer, Choice, Moment, Permit, Question, Refusal, Verdict};
use hermes_types::{Attendance, Door, Job, Origin, Person, Place, SessionKey, Timestamp};
use serde_json::json;

use crate::Context;
use crate::config::keys::Config;
use crate::failure::{Failure, Kind};
use crate::screen::{Format, Screen, Tone};
use crate::wire;

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
    refusal: Refusal,
    rules: Vec<String>,
    question: Option<String>,
}

impl Refused {
    pub(crate) fn reason(&self) -> String {
        match &self.refusal {
            // On this door it can only have been whoever typed the command.
            Refusal::Person { reason: None, .. } => "you said no".to_owned(),
            Refusal::Person { reason: Some(reason), .. } => format!("it has to be asked about: {reason}"),
            refusal => refusal.to_string(),
        }
    }
}

/// Asks the gate, and whoever is there.
pub(crate) fn ask(
    context: &Context,
    config: &Config,
    place: Place,
    session: &SessionKey,
    job: Job,
    consent: Consent,
) -> Result<Result<Permit, Refused>, Failure> {
    let owner = owner();
    let origin = Origin {
        attendance: Attendance::Attended(vec![owner.clone()]),
        person: owner.clone(),
        door: Door::Cli,
        session: session.clone(),
        place,
    };
    let moment = Moment { now: now(), seed: random()? };
    let question = match wire::gate(config).judge(job, &origin, moment) {
        Verdict::Allow(permit) => return Ok(Ok(permit)),
        Verdict::Deny(refusal) => {
            let rules = match &refusal {
                Refusal::Floor(found) | Refusal::Unattended(found) => {
                    found.iter().map(|found| found.id.to_owned()).collect()
                }
                _ => Vec::new(),
            };
            return Ok(Err(Refused { refusal, rules, question: None }));
        }
        Verdict::Ask(question) => question,
    };
    let choice = match consent {
        Consent::Given => Choice::Once,
        Consent::Ask if io::stdin().is_terminal() && io::stderr().is_terminal() => put(context, &question)?,
        Consent::Ask | Consent::Nobody => {
            if context.screen.format == Format::Text {
                reasons(context.screen, &question);
            }
            Choice::Deny(Some("there is no terminal to ask on; `--yes` says yes".to_owned()))
        }
    };
    let rules = question.matches().iter().map(|found| found.id.to_owned()).collect();
    let id = question.id().clone();
    let answer = Answer { question: id.clone(), by: owner, at: now(), choice };
    Ok(question.answered(answer).map_err(|refusal| Refused {
        refusal,
        rules,
        question: Some(id.as_str().to_owned()),
    }))
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
    let reason = refused.reason();
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

/// The time of this machine.
pub(crate) fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_seconds(since.as_secs())
}

/// Sixteen bytes that nobody can guess.
pub(crate) fn random() -> Result<[u8; 16], Failure> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(|error| Failure::new(Kind::Failed, error.to_string()))?;
    Ok(bytes)
}
