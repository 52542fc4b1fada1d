//! `hermes exec`: runs one command in an environment, with approval checks.

use std::io::{self, Read};
use std::process::ExitCode;
use std::time::Duration;

use hermes_exec::{
    EndReason, ExitNotice, OpenPlace, Outcome, OutputMode, ProcessHandle, ResolvedPlace, RunOptions,
    StateLoss, Stdin, WorkingDirectory,
};
use hermes_policy::escape::escape;
use hermes_types::{EnvName, shell_quote};
use serde_json::json;
use tokio::signal::unix::{SignalKind, signal};

use crate::approval::{Consent, approve};
use crate::args::ExecArgs;
use crate::command::config::settings;
use crate::place::{self, Survivors};
use crate::screen::Tone;
use crate::{Config, Context, Result, block_on};
use hermes_config::resolve::{self, ResolveMode, SessionChoice};

pub(crate) fn run(args: ExecArgs, context: &Context) -> Result<ExitCode> {
    block_on(exec(args, context, settings(context)?))
}

async fn exec(args: ExecArgs, context: &Context, config: &Config) -> Result<ExitCode> {
    if args.dry_run {
        return dry_run(&args, context, config).await;
    }
    let run = async |resolved: &ResolvedPlace, place: &OpenPlace| {
        let result = run_command(place, resolved, &args, context, config).await;
        let survivors = match &result {
            Ok(Ok(outcome)) if matches!(outcome.end_reason, EndReason::Background(_)) => {
                Survivors::Background
            }
            Ok(Ok(outcome)) if outcome.leftover.is_some() => Survivors::Leftover,
            _ => Survivors::None,
        };
        (result.map(|result| (resolved.clone(), result)), survivors)
    };
    match place::with_place(context, config, &args.place.request(), run).await? {
        (resolved, Ok(outcome)) => report(context, &resolved, args.cwd.as_deref(), &outcome),
        (_, Err(code)) => Ok(code),
    }
}

/// Prints the request that would create the environment. Nothing is created or run, so nothing is
/// asked.
async fn dry_run(args: &ExecArgs, context: &Context, config: &Config) -> Result<ExitCode> {
    let request = args.place.request();
    let session = SessionChoice::new(&request, config)?;
    let resolved = resolve::resolve_place(context, config, &request, &session, ResolveMode::Inspect)?;
    let request = resolved.create_request().await?;
    let screen = context.screen;
    if resolve::known_install(context).is_none() {
        screen.warn("no install id yet: the names shown will change once this home is first used");
    }
    let backend = resolved.backend_name().as_str();
    if screen.is_json() {
        screen.json(&json!({
            "backend": backend,
            "place": resolved.name(),
            "session": session.key.as_str(),
            "reach": resolved.place().reach,
            "engine": request.engine,
            "container": request.container,
            "request": request.body,
            "unenforced": request.unenforced,
        }))?;
        return Ok(ExitCode::SUCCESS);
    }
    let rows = [
        ("backend", Some(backend.to_owned())),
        ("name", Some(resolved.name())),
        ("engine", request.engine),
        ("container", request.container),
    ];
    for (name, value) in rows {
        if let Some(value) = value {
            screen.line(&format!("{}  {value}", screen.paint(Tone::Strong, &format!("{name:9}"))))?;
        }
    }
    screen.line(&format!("{}\n{:#}", screen.paint(Tone::Strong, "request"), request.body))?;
    request.unenforced.iter().for_each(|limit| screen.warn(limit));
    Ok(ExitCode::SUCCESS)
}

/// Runs the command; returns an exit code if it was not approved.
async fn run_command(
    place: &OpenPlace,
    resolved: &ResolvedPlace,
    args: &ExecArgs,
    context: &Context,
    config: &Config,
) -> Result<Result<Outcome, ExitCode>> {
    let options = run_options(args, context, config)?;
    let consent = Consent::new(args.yes, !args.stdin);
    let text = command_text(&args.command);
    let judge = async |job| {
        let decision = approve(context, config, resolved.place(), resolved.session(), job, consent);
        decision.await?.permit_or_report(context)
    };
    let mut interrupts = signal(SignalKind::interrupt())?;
    let interrupt = async || interrupts.recv().await.unwrap_or_default();
    let print = |bytes: &[u8]| context.screen.bytes(bytes);
    let cwd = args.cwd.as_deref();
    let result = place::run_command(place, &text, cwd, &options, judge, print, interrupt).await?;
    if let Ok(outcome) = &result {
        tracing::info!(place = resolved.name(), code = outcome.code, "command ended");
    }
    Ok(result)
}

fn run_options(args: &ExecArgs, context: &Context, config: &Config) -> Result<RunOptions> {
    let stdin = if args.stdin {
        let mut input = Vec::new();
        io::stdin().lock().read_to_end(&mut input)?;
        Stdin::Data(input.into())
    } else if args.background {
        // `hermes process write` sends the input.
        Stdin::Stream
    } else {
        Stdin::Null
    };
    let mut env = Vec::new();
    for name in args.env.iter().map(EnvName::as_str) {
        match context.loaded.layers.variable(name) {
            Some(value) => env.push((name.to_owned(), value)),
            None => context.screen.warn(&format!("{name} is not set; the command does not get it")),
        }
    }
    let output = match (args.background, context.screen.is_json()) {
        (true, _) => {
            OutputMode::Background { label: String::new(), watch: Vec::new(), at_end: ExitNotice::Notify }
        }
        (false, false) => OutputMode::Live,
        (false, true) => OutputMode::AtEnd,
    };
    let timeout = Duration::from_secs(args.timeout.unwrap_or(config.terminal.timeout));
    Ok(RunOptions {
        timeout: (!args.background).then_some(timeout),
        keep_bytes: u32::try_from(config.tool_output.max_bytes).unwrap_or(u32::MAX),
        stdin,
        env,
        output,
        directory: if args.cwd.is_some() { WorkingDirectory::Override } else { WorkingDirectory::Session },
        terminal_size: None,
    })
}

/// One word is a whole command line; several are the words of one command and are quoted.
fn command_text(words: &[String]) -> String {
    match words {
        [line] => line.clone(),
        words => {
            let is_plain = |word: &str| {
                !word.is_empty()
                    && word.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-./:=@%+,".contains(&b))
            };
            let quote = |word: &String| if is_plain(word) { word.clone() } else { shell_quote(word) };
            words.iter().map(quote).collect::<Vec<_>>().join(" ")
        }
    }
}

fn report(
    context: &Context,
    resolved: &ResolvedPlace,
    cwd: Option<&str>,
    outcome: &Outcome,
) -> Result<ExitCode> {
    let screen = context.screen;
    let process = match outcome.end_reason {
        EndReason::Background(id) => Some(ProcessHandle::new(resolved.id(), id).to_string()),
        _ => None,
    };
    let code = ExitCode::from(u8::try_from(outcome.code).unwrap_or(1));
    if screen.is_json() {
        screen.json(&json!({
            "exit_code": outcome.code,
            "output": String::from_utf8_lossy(&outcome.output),
            "timed_out": outcome.end_reason == EndReason::TimedOut,
            "interrupted": outcome.end_reason == EndReason::Interrupted,
            "truncated": outcome.omitted_bytes > 0,
            "total_bytes": outcome.total_bytes,
            "spool": outcome.spool_path,
            "duration_ms": outcome.duration.as_secs_f64() * 1000.0,
            "cwd": outcome.cwd,
            "session": resolved.session().as_str(),
            "backend": resolved.backend_name().as_str(),
            "place": resolved.name(),
            "place_reset": outcome.state_loss == StateLoss::Yes,
            "process": process,
            "guard_note": outcome.guard_note,
        }))?;
        return Ok(code);
    }
    if outcome.state_loss == StateLoss::Yes {
        let note = screen.paint(Tone::Quiet, "note");
        let text = "the environment was restarted: directory, variables and functions are reset";
        screen.print_stderr(&format!("{note}: {text}"));
    }
    if let Some(note) = &outcome.guard_note {
        screen.print_stderr(&format!("{}: {}", screen.paint(Tone::Quiet, "note"), escape(note)));
    }
    if let Some(process) = process {
        screen.line(&process)?;
    }
    match outcome.end_reason {
        EndReason::TimedOut => screen.print_stderr("stopped at its time limit"),
        EndReason::BadDirectory => screen.print_stderr(&match cwd {
            Some(cwd) => format!("nothing was run: {} is not a directory there", escape(cwd)),
            None => {
                let next = escape(&outcome.cwd);
                format!("nothing was run: the session's directory is gone; the next command runs in {next}")
            }
        }),
        EndReason::Exited | EndReason::Interrupted | EndReason::Background(_) => {}
    }
    Ok(code)
}
