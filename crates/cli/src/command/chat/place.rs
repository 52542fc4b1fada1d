//! `!COMMAND`: a command of the person's own, in the session's place and through its gate. The model is not told.

use std::time::Duration;

use hermes_agent::{Control, Hands, No, Scene, Watch};
use hermes_exec::{AtDeadline, Attention, Directory, Ending, Error, Happening, Input, Outcome, Wish};
use hermes_types::{CallId, Job};

use super::talk::{Talk, Turned};
use crate::failure::Failure;
use crate::screen::{Screen, Tone};
use crate::wire;

/// How often a session may move away under a command that waits for its permit.
const ATTEMPTS: u32 = 5;

/// How a command ended.
enum Ran {
    Outcome(Box<Outcome>),
    Refused(No),
    /// Somebody ended it before there was a place.
    Stopped,
}

pub(super) async fn run(talk: &mut Talk<'_>, command: &str) -> Result<Turned, Failure> {
    let screen = talk.context().screen;
    let wish = Wish {
        timeout: Some(Duration::from_secs(talk.config().terminal.timeout)),
        at_deadline: AtDeadline::Kill,
        keep: u32::try_from(talk.config().tool_output.max_bytes).unwrap_or(u32::MAX),
        input: Input::Nothing,
        env: Vec::new(),
        attention: Attention::Live,
        directory: Directory::Session,
        terminal: None,
    };
    let (hands, control) = (talk.hands().clone(), Control::default());
    hands.begin_turn();
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
        Some(Ok(Ran::Outcome(outcome))) => match outcome.ending {
            Ending::TimedOut => seat.quiet("stopped at its time limit"),
            Ending::Interrupted => seat.quiet("interrupted"),
            Ending::BadDirectory => seat.quiet("nothing was run: the session's directory is gone"),
            Ending::Exited if outcome.code != 0 => seat.quiet(&format!("exit code {}", outcome.code)),
            Ending::Exited | Ending::Background(_) => {}
        },
    }
    Ok(Turned::Nothing)
}

/// Runs it, and shows its output as it comes.
async fn watched(
    hands: &Hands,
    text: &str,
    wish: Wish,
    control: &Control,
    screen: Screen,
    watch: Watch<'_>,
) -> Result<Ran, Failure> {
    let call = CallId::new("!");
    let scene = Scene { call: &call, stop: &control.stop, occasion: None, watch };
    let sandbox = tokio::select! {
        sandbox = hands.sandbox(watch) => sandbox.map_err(wire::fault)?,
        () = control.stop.cancelled() => return Ok(Ran::Stopped),
    };
    let mut attempts = 0;
    let mut command = loop {
        let cwd = sandbox.cwd().await.map_err(wire::fault)?;
        let permit = match hands.permit(Job::shell(text, cwd), scene).await {
            Ok(permit) => permit,
            Err(no) => return Ok(Ran::Refused(no)),
        };
        attempts += 1;
        match sandbox.start(permit, wish.clone()).await {
            // Another command of the session was faster; the gate must hear of the new directory.
            Err(Error::Moved) if attempts < ATTEMPTS => {}
            started => break started.map_err(wire::fault)?,
        }
    };
    let mut ends_a_line = true;
    let mut is_stopped = false;
    loop {
        tokio::select! {
            happening = command.next() => match happening.map_err(wire::fault)? {
                Happening::Output(bytes) => {
                    ends_a_line = bytes.ends_with(b"\n");
                    screen.bytes(&bytes)?;
                }
                Happening::End(outcome) => {
                    if !ends_a_line {
                        screen.text("\n")?;
                    }
                    return Ok(Ran::Outcome(Box::new(outcome)));
                }
            },
            () = control.stop.cancelled(), if !is_stopped => {
                is_stopped = true;
                command.interrupt().await.map_err(wire::fault)?;
            }
        }
    }
}
