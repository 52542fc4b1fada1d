//! `!COMMAND`: a command of the person's own, in the session's place and through its gate. The model is not told.

use std::time::Duration;

use hermes_agent::{CallContext, Denied, ToolContext, TurnControl, TurnObserver};
use hermes_exec::{
    CommandEvent, CommandInput, DeadlineAction, EndReason, Error, Outcome, OutputMode, RunOptions,
    WorkingDirectory,
};
use hermes_types::{CallId, Job};

use super::talk::{Talk, Turned};
use crate::screen::{Screen, Tone};
use hermes_config::failure::Failure;
use hermes_config::resolve;

/// How often a session may move away under a command that waits for its permit.
const ATTEMPTS: u32 = 5;

/// How a command ended.
enum Ran {
    Outcome(Box<Outcome>),
    Refused(Denied),
    /// Somebody ended it before there was a place.
    Stopped,
}

pub(super) async fn run(talk: &mut Talk<'_>, command: &str) -> Result<Turned, Failure> {
    let screen = talk.context().screen;
    let wish = RunOptions {
        timeout: Some(Duration::from_secs(talk.config().terminal.timeout)),
        at_deadline: DeadlineAction::Kill,
        keep_bytes: u32::try_from(talk.config().tool_output.max_bytes).unwrap_or(u32::MAX),
        input: CommandInput::None,
        env: Vec::new(),
        output: OutputMode::Live,
        directory: WorkingDirectory::Session,
        terminal_size: None,
    };
    let (hands, control) = (talk.hands().clone(), TurnControl::default());
    hands.approvals().begin_turn();
    let watch = talk.seat().watch();
    let ran = talk.seat().attend(&control, watched(&hands, command, wish, &control, screen, &watch)).await?;
    let seat = talk.seat();
    seat.stage().finish();
    match ran {
        None => return Ok(Turned::Left),
        Some(Err(failure)) => drop(screen.fail(&failure)),
        Some(Ok(Ran::Refused(no))) => {
            seat.stage().note(&format!("{}: {no}", screen.paint(Tone::Bad, "refused")));
        }
        Some(Ok(Ran::Stopped)) => seat.quiet("interrupted"),
        Some(Ok(Ran::Outcome(outcome))) => match outcome.end_reason {
            EndReason::TimedOut => seat.quiet("stopped at its time limit"),
            EndReason::Interrupted => seat.quiet("interrupted"),
            EndReason::BadDirectory => seat.quiet("nothing was run: the session's directory is gone"),
            EndReason::Exited if outcome.code != 0 => seat.quiet(&format!("exit code {}", outcome.code)),
            EndReason::Exited | EndReason::Background(_) => {}
        },
    }
    Ok(Turned::Nothing)
}

/// Runs it, and shows its output as it comes.
async fn watched(
    hands: &ToolContext,
    text: &str,
    wish: RunOptions,
    control: &TurnControl,
    screen: Screen,
    watch: TurnObserver<'_>,
) -> Result<Ran, Failure> {
    let call = CallId::new("!");
    let scene = CallContext { call_id: &call, stop: &control.stop, turn: None, observer: watch };
    let sandbox = tokio::select! {
        sandbox = hands.open_place(watch) => sandbox.map_err(resolve::fault)?,
        () = control.stop.cancelled() => return Ok(Ran::Stopped),
    };
    let mut attempts = 0;
    let mut command = loop {
        let cwd = sandbox.cwd().await.map_err(resolve::fault)?;
        let permit = match hands.request_permit(Job::shell(text, cwd), scene).await {
            Ok(permit) => permit,
            Err(no) => return Ok(Ran::Refused(no)),
        };
        attempts += 1;
        match sandbox.start_command(permit, wish.clone()).await {
            // Another command of the session was faster; the gate must hear of the new directory.
            Err(Error::SessionMoved) if attempts < ATTEMPTS => {}
            started => break started.map_err(resolve::fault)?,
        }
    };
    let mut ends_a_line = true;
    let mut is_stopped = false;
    loop {
        tokio::select! {
            happening = command.next_event() => match happening.map_err(resolve::fault)? {
                CommandEvent::Output(bytes) => {
                    ends_a_line = bytes.ends_with(b"\n");
                    screen.bytes(&bytes)?;
                }
                CommandEvent::End(outcome) => {
                    if !ends_a_line {
                        screen.text("\n")?;
                    }
                    return Ok(Ran::Outcome(Box::new(outcome)));
                }
            },
            () = control.stop.cancelled(), if !is_stopped => {
                is_stopped = true;
                command.interrupt().await.map_err(resolve::fault)?;
            }
        }
    }
}
