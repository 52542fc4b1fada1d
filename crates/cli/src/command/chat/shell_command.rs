//! `!COMMAND`: runs a shell command in the session's environment, through its gate. The model does
//! not see it.

use std::sync::Arc;
use std::time::Duration;

use hermes_agent::{CallContext, Denied, ToolContext, TurnObserver};
use hermes_exec::{EndReason, Outcome, OutputMode, RunOptions};
use hermes_types::CallId;
use tokio_util::sync::CancellationToken;

use super::input::Running;
use super::repl::{Repl, TurnOutcome};
use crate::place;
use crate::screen::{Screen, Tone};
use crate::{Config, Result};

pub(super) async fn run(repl: &mut Repl, config: &Config, command: &str) -> Result<TurnOutcome> {
    let screen = repl.context.screen;
    let timeout = Duration::from_secs(config.terminal.timeout);
    let keep_bytes = u32::try_from(config.tool_output.max_bytes).unwrap_or(u32::MAX);
    let options = place::foreground_options(timeout, keep_bytes, OutputMode::Live);
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
        Some(Ok(Some(Err(denied)))) => {
            output.view.print_note(&format!("{}: {denied}", screen.paint(Tone::Bad, "refused")));
        }
        Some(Ok(None)) => output.print_quiet("interrupted"),
        Some(Ok(Some(Ok(outcome)))) => match outcome.end_reason {
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

/// Runs a command and prints its output while it runs. Returns none if it was stopped before the
/// environment was open.
async fn run_streaming(
    tools: &ToolContext,
    text: &str,
    options: RunOptions,
    stop: &CancellationToken,
    screen: Screen,
    observer: TurnObserver<'_>,
) -> Result<Option<Result<Outcome, Denied>>> {
    let call = CallId::new("!");
    let context = CallContext { call_id: &call, stop, turn: None, observer };
    let place = tokio::select! {
        place = tools.open_place(observer) => place?,
        () = stop.cancelled() => return Ok(None),
    };
    let judge = async |job| Ok(tools.request_permit(job, context).await);
    let mut ends_line = true;
    let print = |bytes: &[u8]| {
        ends_line = bytes.ends_with(b"\n");
        screen.bytes(bytes)
    };
    let mut is_stopped = false;
    let interrupt = async || {
        if is_stopped {
            std::future::pending::<()>().await;
        }
        stop.cancelled().await;
        is_stopped = true;
    };
    let result = place::run_command(place, text, None, &options, judge, print, interrupt).await?;
    if !ends_line {
        screen.text("\n")?;
    }
    Ok(Some(result))
}
