//! `!COMMAND`: runs a shell command in the session's environment, through its gate. The model does
//! not see it.

use std::sync::Arc;
use std::time::Duration;

use hermes_agent::{CallContext, Denied, ToolContext, TurnObserver};
use hermes_exec::{
    CommandEvent, CommandInput, EndReason, Error, Outcome, OutputMode, RunOptions, WorkingDirectory,
};
use hermes_types::{CallId, Job};
use tokio_util::sync::CancellationToken;

use super::input::Running;
use super::repl::{Repl, TurnOutcome};
use crate::screen::{Screen, Tone};
use hermes_config::failure::Failure;
use hermes_config::keys::Config;
use hermes_config::resolve;

/// How often a command is judged again because the directory of the session changed.
const MAX_START_ATTEMPTS: u32 = 5;

/// How a command ended.
enum ShellCommandResult {
    Outcome(Box<Outcome>),
    Refused(Denied),
    /// It was stopped before the environment was open.
    Stopped,
}

pub(super) async fn run(repl: &mut Repl, config: &Config, command: &str) -> Result<TurnOutcome, Failure> {
    let screen = repl.context().screen;
    let options = RunOptions {
        timeout: Some(Duration::from_secs(config.terminal.timeout)),
        keep_bytes: u32::try_from(config.tool_output.max_bytes).unwrap_or(u32::MAX),
        input: CommandInput::None,
        env: Vec::new(),
        output: OutputMode::Live,
        directory: WorkingDirectory::Session,
        terminal_size: None,
    };
    let (tools, stop) = (repl.tools().await?, CancellationToken::new());
    tools.approvals().begin_turn();
    let output = Arc::clone(&repl.output);
    let view = Arc::clone(&output.view);
    let observer = move |event| view.show_event(&event);
    let work = run_streaming(&tools, command, options, &stop, screen, &observer);
    let result = repl.input.run_with_input(Running::ShellCommand, &stop, work).await?;
    output.view.finish();
    match result {
        None => return Ok(TurnOutcome::Abandoned),
        Some(Err(failure)) => drop(screen.report_failure(&failure)),
        Some(Ok(ShellCommandResult::Refused(denied))) => {
            output.view.print_note(&format!("{}: {denied}", screen.paint(Tone::Bad, "refused")));
        }
        Some(Ok(ShellCommandResult::Stopped)) => output.print_quiet("interrupted"),
        Some(Ok(ShellCommandResult::Outcome(outcome))) => match outcome.end_reason {
            EndReason::TimedOut => output.print_quiet("stopped at its time limit"),
            EndReason::Interrupted => output.print_quiet("interrupted"),
            EndReason::BadDirectory => output.print_quiet("nothing was run: the session's directory is gone"),
            EndReason::Exited if outcome.code != 0 => {
                output.print_quiet(&format!("exit code {}", outcome.code))
            }
            EndReason::Exited | EndReason::Background(_) => {}
        },
    }
    Ok(TurnOutcome::NoTurn)
}

/// Runs a command and prints its output while it runs.
async fn run_streaming(
    tools: &ToolContext,
    text: &str,
    options: RunOptions,
    stop: &CancellationToken,
    screen: Screen,
    observer: TurnObserver<'_>,
) -> Result<ShellCommandResult, Failure> {
    let call = CallId::new("!");
    let context = CallContext { call_id: &call, stop, turn: None, observer };
    let sandbox = tokio::select! {
        sandbox = tools.open_place(observer) => sandbox.map_err(resolve::place_failure)?,
        () = stop.cancelled() => return Ok(ShellCommandResult::Stopped),
    };
    let mut attempts = 0;
    let mut command = loop {
        let cwd = sandbox.cwd().await.map_err(resolve::place_failure)?;
        let permit = match tools.request_permit(Job::shell(text, cwd), context).await {
            Ok(permit) => permit,
            Err(denied) => return Ok(ShellCommandResult::Refused(denied)),
        };
        attempts += 1;
        match sandbox.start_command(permit, options.clone()).await {
            // Another command of the session changed the directory: judge again.
            Err(Error::SessionMoved) if attempts < MAX_START_ATTEMPTS => {}
            started => break started.map_err(resolve::place_failure)?,
        }
    };
    let mut ends_line = true;
    let mut is_stopped = false;
    loop {
        tokio::select! {
            event = command.next_event() => match event.map_err(resolve::place_failure)? {
                CommandEvent::Output(bytes) => {
                    ends_line = bytes.ends_with(b"\n");
                    screen.bytes(&bytes)?;
                }
                CommandEvent::End(outcome) => {
                    if !ends_line {
                        screen.text("\n")?;
                    }
                    return Ok(ShellCommandResult::Outcome(Box::new(outcome)));
                }
            },
            () = stop.cancelled(), if !is_stopped => {
                is_stopped = true;
                command.interrupt().await.map_err(resolve::place_failure)?;
            }
        }
    }
}
