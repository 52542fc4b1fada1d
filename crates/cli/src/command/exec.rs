//! `hermes exec`: one command, in a place, through the gate.

use std::io::{self, IsTerminal, Read};
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use hermes_exec::{
    AtDeadline, AtEnd, Attention, Directory, Ending, Handle, Happening, Input, Outcome, Plan, Reset, Wish,
};
use hermes_policy::{Answer, Choice, Moment, Permit, Question, Refusal, Verdict};
use hermes_types::{Attendance, Door, Job, Origin, Person, SessionKey, Timestamp};
use serde_json::json;

use crate::Context;
use crate::args::ExecArgs;
use crate::command::config::usable;
use crate::command::keep_proxy;
use crate::config::keys::Config;
use crate::failure::{Failure, Kind};
use crate::screen::{Format, Tone};
use crate::wire;

/// The lifetime of a place that is to leave nothing behind, should we be killed before we remove it.
const ONE_SHOT: Duration = Duration::from_secs(60);
/// How often a session may move away under a command that waits for its permit.
const ATTEMPTS: u32 = 5;

pub(crate) fn run(args: ExecArgs, context: &Context) -> Result<ExitCode, Failure> {
    let loaded = usable(context)?;
    let Some(config) = &loaded.config else {
        return Err(Failure::new(Kind::Configuration, "the configuration cannot be used"));
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(exec(args, context, config))
}

async fn exec(args: ExecArgs, context: &Context, config: &Config) -> Result<ExitCode, Failure> {
    let backend = args.backend.unwrap_or(config.terminal.backend);
    let (session, lifetime) = match args.session.as_deref() {
        Some("") => (format!("once {:032x}", u128::from_le_bytes(random()?)), ONE_SHOT),
        Some(key) => (key.to_owned(), Duration::from_secs(config.terminal.lifetime_seconds)),
        None => {
            let here = std::env::current_dir()?.display().to_string();
            (here, Duration::from_secs(config.terminal.lifetime_seconds))
        }
    };
    let session = SessionKey::new(session);
    let plan = wire::plan(context, config, backend, session.clone(), lifetime)?;
    let sandbox = plan.open().await.map_err(fault)?;
    let input = if args.stdin {
        let mut input = Vec::new();
        io::stdin().lock().read_to_end(&mut input)?;
        Input::Data(input)
    } else {
        Input::Nothing
    };
    let env = args
        .env
        .iter()
        .filter_map(|name| Some((name.as_str().to_owned(), context.loaded.layers.variable(name.as_str())?)));
    let attention = match (args.background, context.screen.format) {
        (true, _) => Attention::Background { label: String::new(), watch: Vec::new(), at_end: AtEnd::Notify },
        (false, Format::Text) => Attention::Live,
        (false, Format::Json) => Attention::AtEnd,
    };
    let timeout = Duration::from_secs(args.timeout.unwrap_or(config.terminal.timeout));
    let wish = Wish {
        timeout: (!args.background).then_some(timeout),
        at_deadline: AtDeadline::Kill,
        keep: u32::try_from(config.tool_output.max_bytes).unwrap_or(u32::MAX),
        input,
        env: env.collect(),
        attention,
        directory: if args.cwd.is_some() { Directory::Other } else { Directory::Session },
    };
    let mut attempts = 0;
    let mut command = loop {
        let cwd = match &args.cwd {
            Some(cwd) => cwd.clone(),
            None => sandbox.cwd().await.map_err(fault)?,
        };
        let job = Job::shell(text(&args.command), cwd);
        let permit = match ask(context, config, &plan, &session, job, &args)? {
            Ok(permit) => permit,
            Err(refused) => return refuse(context, &refused),
        };
        tracing::info!(place = plan.name(), %backend, "command started");
        attempts += 1;
        match sandbox.start(permit, wish.clone()).await {
            // Another command of the session was faster; the gate must hear of the new directory.
            Err(hermes_exec::Error::Moved) if attempts < ATTEMPTS => {}
            started => break started.map_err(fault)?,
        }
    };
    let outcome = loop {
        tokio::select! {
            happening = command.next() => match happening.map_err(fault)? {
                Happening::Output(bytes) => context.screen.bytes(&bytes)?,
                Happening::End(outcome) => break outcome,
            },
            interrupted = tokio::signal::ctrl_c() => {
                interrupted?;
                command.interrupt().await.map_err(fault)?;
            }
        }
    };
    tracing::info!(place = plan.name(), code = outcome.code, "command ended");
    if args.session.as_deref() == Some("") && !matches!(outcome.ending, Ending::Background(_)) {
        drop(command);
        sandbox.remove().await.map_err(fault)?;
    } else if matches!(outcome.ending, Ending::Background(_)) || outcome.left.is_some() {
        keep_proxy::start(context, &plan)?;
    }
    report(context, &plan, &session, &outcome)
}

/// One word is a whole command line; several are the words of one command, quoted so that they stay what they are.
fn text(words: &[String]) -> String {
    match words {
        [line] => line.clone(),
        words => {
            let plain = |word: &str| {
                !word.is_empty()
                    && word.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-./:=@%+,".contains(&b))
            };
            let quoted = words.iter().map(|word| match plain(word) {
                true => word.clone(),
                false => format!("'{}'", word.replace('\'', "'\\''")),
            });
            quoted.collect::<Vec<_>>().join(" ")
        }
    }
}

fn random() -> Result<[u8; 16], Failure> {
    let mut seed = [0; 16];
    getrandom::fill(&mut seed).map_err(|error| Failure::new(Kind::Failed, error.to_string()))?;
    Ok(seed)
}

/// A no, and the question it answers where there was one.
struct Refused {
    refusal: Refusal,
    rules: Vec<String>,
    question: Option<String>,
}

/// Asks the gate, and whoever is there.
fn ask(
    context: &Context,
    config: &Config,
    plan: &Plan,
    session: &SessionKey,
    job: Job,
    args: &ExecArgs,
) -> Result<Result<Permit, Refused>, Failure> {
    let owner = Person::new("cli");
    let origin = Origin {
        attendance: Attendance::Attended(vec![owner.clone()]),
        person: owner.clone(),
        door: Door::Cli,
        session: session.clone(),
        place: plan.place(),
    };
    let now = || {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Timestamp::from_seconds(since.as_secs())
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
    let choice = if args.yes {
        Choice::Once
    } else if io::stdin().is_terminal() && io::stderr().is_terminal() && !args.stdin {
        put(context, &question)?
    } else {
        Choice::Deny(Some("there is no terminal to ask on; --yes says yes".to_owned()))
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
    let screen = context.screen;
    screen.aside(&question.shown().plain());
    for found in question.matches() {
        screen.aside(&format!("  {} {}", screen.paint(Tone::Doubtful, "!"), found.reason));
    }
    screen.prompt("run it? [y/N]");
    let mut answer = String::new();
    io::stdin().read_line(&mut answer)?;
    Ok(match answer.trim().to_ascii_lowercase().as_str() {
        "y" | "yes" => Choice::Once,
        _ => Choice::Deny(None),
    })
}

fn refuse(context: &Context, refused: &Refused) -> Result<ExitCode, Failure> {
    let reason = refused.refusal.to_string();
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

fn fault(error: hermes_exec::Error) -> Failure {
    Failure::new(Kind::Unavailable, error.to_string())
}

fn report(
    context: &Context,
    plan: &Plan,
    session: &SessionKey,
    outcome: &Outcome,
) -> Result<ExitCode, Failure> {
    let process = match outcome.ending {
        Ending::Background(id) => Some(Handle::new(plan.id(), id).to_string()),
        _ => None,
    };
    if context.screen.format == Format::Json {
        context.screen.json(&json!({
            "exit_code": outcome.code,
            "output": String::from_utf8_lossy(&outcome.output),
            "timed_out": outcome.ending == Ending::TimedOut,
            "interrupted": outcome.ending == Ending::Interrupted,
            "truncated": outcome.omitted > 0,
            "total_bytes": outcome.total,
            "spool": null,
            "duration_ms": outcome.duration.as_secs_f64() * 1000.0,
            "cwd": outcome.cwd,
            "session": session.as_str(),
            "backend": plan.backend().word(),
            "place": plan.name(),
            "place_reset": outcome.reset == Reset::Yes,
            "process": process,
        }))?;
    } else if let Some(process) = process {
        context.screen.line(&process)?;
    } else {
        match outcome.ending {
            Ending::TimedOut => context.screen.aside("stopped at its time limit"),
            Ending::BadDirectory => context.screen.aside("its directory is not there"),
            Ending::Exited | Ending::Interrupted | Ending::Background(_) => {}
        }
    }
    Ok(ExitCode::from(u8::try_from(outcome.code).unwrap_or(1)))
}
