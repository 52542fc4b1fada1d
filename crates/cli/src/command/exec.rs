//! `hermes exec`: one command, in a place, through the gate.

use std::io::{self, Read};
use std::process::ExitCode;
use std::time::Duration;

use hermes_exec::{
    CommandEvent, CommandInput, EndReason, ExitNotice, OpenPlace, Outcome, OutputMode, ProcessHandle,
    ResolvedPlace, RunOptions, StateLoss, WorkingDirectory,
};
use hermes_policy::escape::escape;
use hermes_types::{EnvName, Job, SessionKey, shell_quote};
use serde_json::json;
use tokio::signal::unix::{SignalKind, signal};

use crate::Context;
use crate::approval::{self, Consent, Decision, RefusalReport};
use crate::args::ExecArgs;
use crate::command::config::settings;
use crate::place::{self, Survivors};
use crate::screen::{OutputFormat, Tone};
use hermes_config::failure::Failure;
use hermes_config::keys::Config;
use hermes_config::resolve::{self, ResolveMode, SessionChoice};

/// How often a session may move away under a command that waits for its permit.
const MAX_START_ATTEMPTS: u32 = 5;

pub(crate) fn run(args: ExecArgs, context: &Context) -> Result<ExitCode, Failure> {
    let config = settings(context)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(exec(args, context, config))
}

async fn exec(args: ExecArgs, context: &Context, config: &Config) -> Result<ExitCode, Failure> {
    let request = args.place.request();
    let session = SessionChoice::new(&request, config)?;
    if args.dry_run {
        return dry_run(&args, context, config, &session).await;
    }
    let run = async |plan: &ResolvedPlace, place: &OpenPlace| {
        let done = run_in(place, plan, &args, context, config).await;
        let survivors = match &done {
            Ok(ExecResult::Ended(outcome)) if matches!(outcome.end_reason, EndReason::Background(_)) => {
                Survivors::Background
            }
            Ok(ExecResult::Ended(outcome)) if outcome.leftover.is_some() => Survivors::Leftover,
            _ => Survivors::None,
        };
        (done.map(|done| (plan.clone(), done)), survivors)
    };
    let (plan, done) = place::with_place(context, config, &request, &session, run).await?;
    match done {
        ExecResult::Ended(outcome) => report(context, &plan, &session.key, args.cwd.as_deref(), &outcome),
        ExecResult::Refused(refused) => approval::report_refusal(context, &refused),
        ExecResult::Abandoned => Ok(ExitCode::from(130)),
    }
}

/// Says what would be asked for to make the place. Nothing is made and nothing runs, so nobody is asked.
async fn dry_run(
    args: &ExecArgs,
    context: &Context,
    config: &Config,
    session: &SessionChoice,
) -> Result<ExitCode, Failure> {
    let plan = resolve::resolve_place(context, config, &args.place.request(), session, ResolveMode::Inspect)?;
    let request = plan.create_request().await.map_err(resolve::place_failure)?;
    let screen = context.screen;
    if !resolve::has_identity(context) {
        screen.warn("no install id yet: the names shown will change once this home is first used");
    }
    if screen.format == OutputFormat::Json {
        screen.json(&json!({
            "backend": plan.backend_name().as_str(),
            "place": plan.name(),
            "session": session.key.as_str(),
            "reach": plan.place().reach,
            "engine": request.engine,
            "container": request.container,
            "request": request.body,
            "unenforced": request.unenforced,
        }))?;
        return Ok(ExitCode::SUCCESS);
    }
    let backend = plan.backend_name();
    let rows = [
        ("backend", Some(backend.as_str().to_owned())),
        ("place", Some(plan.name())),
        ("engine", request.engine),
        ("container", request.container),
    ];
    for (name, value) in rows {
        if let Some(value) = value {
            screen.line(&format!("{}  {value}", screen.paint(Tone::Strong, &format!("{name:9}"))))?;
        }
    }
    screen.line(&format!("{}\n{:#}", screen.paint(Tone::Strong, "request"), request.body))?;
    for limit in &request.unenforced {
        screen.warn(limit);
    }
    Ok(ExitCode::SUCCESS)
}

/// What became of a command.
enum ExecResult {
    Ended(Outcome),
    Refused(RefusalReport),
    /// Nothing ran: whoever was asked has gone.
    Abandoned,
}

async fn run_in(
    sandbox: &OpenPlace,
    plan: &ResolvedPlace,
    args: &ExecArgs,
    context: &Context,
    config: &Config,
) -> Result<ExecResult, Failure> {
    let wish = run_options(args, context, config)?;
    let consent = match (args.yes, args.stdin) {
        (true, _) => Consent::Given,
        (false, false) => Consent::Ask,
        (false, true) => Consent::Unavailable,
    };
    let mut attempts = 0;
    let mut command = loop {
        let cwd = match &args.cwd {
            Some(cwd) => cwd.clone(),
            None => sandbox.cwd().await.map_err(resolve::place_failure)?,
        };
        let job = Job::shell(command_text(&args.command), cwd);
        let decision = approval::approve(context, config, plan.place(), plan.session(), job, consent).await?;
        let permit = match decision {
            Decision::Allowed(permit) => permit,
            Decision::Refused(refused) => return Ok(ExecResult::Refused(refused)),
            Decision::Interrupted => return Ok(ExecResult::Abandoned),
        };
        attempts += 1;
        match sandbox.start_command(permit, wish.clone()).await {
            // Another command of the session was faster; the gate must hear of the new directory.
            Err(hermes_exec::Error::SessionMoved) if attempts < MAX_START_ATTEMPTS => {}
            started => break started.map_err(resolve::place_failure)?,
        }
    };
    let mut interrupts = signal(SignalKind::interrupt())?;
    loop {
        tokio::select! {
            happening = command.next_event() => match happening.map_err(resolve::place_failure)? {
                CommandEvent::Output(bytes) => context.screen.bytes(&bytes)?,
                CommandEvent::End(outcome) => {
                    tracing::info!(place = plan.name(), code = outcome.code, "command ended");
                    return Ok(ExecResult::Ended(outcome));
                }
            },
            _ = interrupts.recv() => command.interrupt().await.map_err(resolve::place_failure)?,
        }
    }
}

fn run_options(args: &ExecArgs, context: &Context, config: &Config) -> Result<RunOptions, Failure> {
    let input = if args.stdin {
        let mut input = Vec::new();
        io::stdin().lock().read_to_end(&mut input)?;
        CommandInput::Data(input)
    } else if args.background {
        // What `hermes process write` types.
        CommandInput::Stream
    } else {
        CommandInput::None
    };
    let mut env = Vec::new();
    for name in args.env.iter().map(EnvName::as_str) {
        match context.loaded.layers.variable(name) {
            Some(value) => env.push((name.to_owned(), value)),
            None => context.screen.warn(&format!("{name} is not set; the command does not get it")),
        }
    }
    let attention = match (args.background, context.screen.format) {
        (true, _) => {
            OutputMode::Background { label: String::new(), watch: Vec::new(), at_end: ExitNotice::Notify }
        }
        (false, OutputFormat::Text) => OutputMode::Live,
        (false, OutputFormat::Json) => OutputMode::AtEnd,
    };
    let timeout = Duration::from_secs(args.timeout.unwrap_or(config.terminal.timeout));
    Ok(RunOptions {
        timeout: (!args.background).then_some(timeout),
        keep_bytes: u32::try_from(config.tool_output.max_bytes).unwrap_or(u32::MAX),
        input,
        env,
        output: attention,
        directory: if args.cwd.is_some() { WorkingDirectory::Override } else { WorkingDirectory::Session },
        terminal_size: None,
    })
}

/// One word is a whole command line; several are the words of one command, quoted so that they stay what they are.
fn command_text(words: &[String]) -> String {
    match words {
        [line] => line.clone(),
        words => {
            let plain = |word: &str| {
                !word.is_empty()
                    && word.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-./:=@%+,".contains(&b))
            };
            let quoted = words.iter().map(|word| match plain(word) {
                true => word.clone(),
                false => shell_quote(word),
            });
            quoted.collect::<Vec<_>>().join(" ")
        }
    }
}

fn report(
    context: &Context,
    plan: &ResolvedPlace,
    session: &SessionKey,
    cwd: Option<&str>,
    outcome: &Outcome,
) -> Result<ExitCode, Failure> {
    if outcome.state_loss == StateLoss::Yes && context.screen.format == OutputFormat::Text {
        // Whoever set a variable a while ago must not wonder where it is.
        let note = context.screen.paint(Tone::Quiet, "note");
        let told = "the environment was restarted: directory, variables and functions are reset";
        context.screen.print_stderr(&format!("{note}: {told}"));
    }
    let process = match outcome.end_reason {
        EndReason::Background(id) => Some(ProcessHandle::new(plan.id(), id).to_string()),
        _ => None,
    };
    if context.screen.format == OutputFormat::Json {
        context.screen.json(&json!({
            "exit_code": outcome.code,
            "output": String::from_utf8_lossy(&outcome.output),
            "timed_out": outcome.end_reason == EndReason::TimedOut,
            "interrupted": outcome.end_reason == EndReason::Interrupted,
            "truncated": outcome.omitted_bytes > 0,
            "total_bytes": outcome.total_bytes,
            "spool": outcome.spool_path,
            "duration_ms": outcome.duration.as_secs_f64() * 1000.0,
            "cwd": outcome.cwd,
            "session": session.as_str(),
            "backend": plan.backend_name().as_str(),
            "place": plan.name(),
            "place_reset": outcome.state_loss == StateLoss::Yes,
            "process": process,
        }))?;
    } else if let Some(process) = process {
        context.screen.line(&process)?;
    } else {
        match outcome.end_reason {
            EndReason::TimedOut => context.screen.print_stderr("stopped at its time limit"),
            EndReason::BadDirectory => context.screen.print_stderr(&match cwd {
                Some(cwd) => format!("nothing was run: {} is not a directory there", escape(cwd)),
                None => {
                    let next = escape(&outcome.cwd);
                    format!(
                        "nothing was run: the session's directory is gone; the next command runs in {next}"
                    )
                }
            }),
            EndReason::Exited | EndReason::Interrupted | EndReason::Background(_) => {}
        }
    }
    Ok(ExitCode::from(u8::try_from(outcome.code).unwrap_or(1)))
}
