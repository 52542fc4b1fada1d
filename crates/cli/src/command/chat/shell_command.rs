//! `!COMMAND`: a command of the person's own, in the session's place and through its gate. The model is not told.

use std::time::Duration;

use hermes_agent::{CallContext, Denied, ToolContext, TurnControl, TurnObserver};
use hermes_exec::{
    CommandEvent, CommandInput, EndReason, Error, Outcome, OutputMode, RunOptions, WorkingDirectory,
};
use hermes_types::{CallId, Job};

use super::repl::{Repl, TurnOutcome};
use crate::screen::{Screen, Tone};
use hermes_config::failure::Failure;
use hermes_config::resolve;

/// How often a session may move away under a command that waits for its permit.
const MAX_START_ATTEMPTS: u32 = 5;

/// How a command ended.
enum ShellCommandResult {
    Outcome(Box<Outcome>),
    Refused(Denied),
    /// Somebody ended it before there was a place.
    Stopped,
}

pub(super) async fn run(talk: &mut Repl<'_>, command: &str) -> Result<TurnOutcome, Failure> {
    let screen = talk.context().screen;
    let wish = RunOptions {
        timeout: Some(Duration::from_secs(talk.config().terminal.timeout)),
        keep_bytes: u32::try_from(talk.config().tool_output.max_bytes).unwrap_or(u32::MAX),
        input: CommandInput::None,
        env: Vec::new(),
        output: OutputMode::Live,
        directory: WorkingDirectory::Session,
        terminal_size: None,
    };
    let (hands, control) = (talk.tools().clone(), TurnControl::default());
    hands.approvals().begin_turn();
    let watch = talk.input().event_sink();
    let ran = talk
        .input()
        .run_with_input(&control, run_streaming(&hands, command, wish, &control, screen, &watch))
        .await?;
    let seat = talk.input();
    seat.view().finish();
    match ran {
        None => return Ok(TurnOutcome::Abandoned),
        Some(Err(failure)) => drop(screen.report_failure(&failure)),
        Some(Ok(ShellCommandResult::Refused(no))) => {
            seat.view().print_note(&format!("{}: {no}", screen.paint(Tone::Bad, "refused")));
        }
        Some(Ok(ShellCommandResult::Stopped)) => seat.print_quiet("interrupted"),
        Some(Ok(ShellCommandResult::Outcome(outcome))) => match outcome.end_reason {
            EndReason::TimedOut => seat.print_quiet("stopped at its time limit"),
            EndReason::Interrupted => seat.print_quiet("interrupted"),
            EndReason::BadDirectory => seat.print_quiet("nothing was run: the session's directory is gone"),
            EndReason::Exited if outcome.code != 0 => {
                seat.print_quiet(&format!("exit code {}", outcome.code))
            }
            EndReason::Exited | EndReason::Background(_) => {}
        },
    }
    Ok(TurnOutcome::NoTurn)
}

/// Runs it, and shows its output as it comes.
async fn run_streaming(
    hands: &ToolContext,
    text: &str,
    wish: RunOptions,
    control: &TurnControl,
    screen: Screen,
    watch: TurnObserver<'_>,
) -> Result<ShellCommandResult, Failure> {
    let call = CallId::new("!");
    let scene = CallContext { call_id: &call, stop: &control.stop, turn: None, observer: watch };
    let sandbox = tokio::select! {
        sandbox = hands.open_place(watch) => sandbox.map_err(resolve::place_failure)?,
        () = control.stop.cancelled() => return Ok(ShellCommandResult::Stopped),
    };
    let mut attempts = 0;
    let mut command = loop {
        let cwd = sandbox.cwd().await.map_err(resolve::place_failure)?;
        let permit = match hands.request_permit(Job::shell(text, cwd), scene).await {
            Ok(permit) => permit,
            Err(no) => return Ok(ShellCommandResult::Refused(no)),
        };
        attempts += 1;
        match sandbox.start_command(permit, wish.clone()).await {
            // Another command of the session was faster; the gate must hear of the new directory.
            Err(Error::SessionMoved) if attempts < MAX_START_ATTEMPTS => {}
            started => break started.map_err(resolve::place_failure)?,
        }
    };
    let mut ends_a_line = true;
    let mut is_stopped = false;
    loop {
        tokio::select! {
            happening = command.next_event() => match happening.map_err(resolve::place_failure)? {
                CommandEvent::Output(bytes) => {
                    ends_a_line = bytes.ends_with(b"\n");
                    screen.bytes(&bytes)?;
                }
                CommandEvent::End(outcome) => {
                    if !ends_a_line {
                        screen.text("\n")?;
                    }
                    return Ok(ShellCommandResult::Outcome(Box::new(outcome)));
                }
            },
            () = control.stop.cancelled(), if !is_stopped => {
                is_stopped = true;
                command.interrupt().await.map_err(resolve::place_failure)?;
            }
        }
    }
}
