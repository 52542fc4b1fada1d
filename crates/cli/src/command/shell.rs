//! `hermes shell`: an interactive terminal in an environment.

use std::io::{self, IsTerminal, Read};
use std::process::ExitCode;

use hermes_exec::{Error, OpenPlace, ResolvedPlace, Terminal, TerminalEvent};
use hermes_types::Work;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

use crate::approval::{Consent, approve};
use crate::args::PlaceArgs;
use crate::command::config::settings;
use crate::place::{self, Survivors};
use crate::screen::Tone;
use crate::terminal::{TerminalGuard, size};
use crate::{Config, Context, Failure, Result, block_on};
use hermes_config::resolve::PlaceRequest;

const SHELL_SCRIPT: &str = "if command -v bash >/dev/null; then exec bash -i; else exec sh -i; fi";
/// Reads of the keyboard that wait to be sent.
const KEYBOARD_QUEUE_LEN: usize = 16;

pub(crate) fn run(args: &PlaceArgs, context: &Context) -> Result<ExitCode> {
    if context.screen.is_json() || !io::stdin().is_terminal() || !io::stdout().is_terminal() {
        return Err(Failure::usage("`hermes shell` requires a terminal for input and output")
            .hint("Use `hermes exec` to run a single command."));
    }
    block_on(shell(&args.request(), context, settings(context)?))
}

async fn shell(request: &PlaceRequest, context: &Context, config: &Config) -> Result<ExitCode> {
    let run = async |resolved: &ResolvedPlace, place: &OpenPlace| {
        (run_shell(resolved, place, context, config).await, Survivors::Unknown)
    };
    place::with_place(context, config, request, run).await
}

async fn run_shell(
    resolved: &ResolvedPlace,
    place: &OpenPlace,
    context: &Context,
    config: &Config,
) -> Result<ExitCode> {
    let job = place.job(Work::Shell(SHELL_SCRIPT.to_owned())).await?;
    // Running `hermes shell` is the consent.
    let decision =
        approve(context, config, resolved.place(), resolved.session(), job, Consent::Given).await?;
    let permit = match decision.permit_or_report(context)? {
        Ok(permit) => permit,
        Err(code) => return Ok(code),
    };
    let screen = context.screen;
    let line = format!("{} on {}; exit leaves it", resolved.name(), resolved.backend_name());
    screen.print_stderr(&screen.paint(Tone::Quiet, &line));
    let env: Vec<_> = ["TERM", "COLORTERM"]
        .iter()
        .filter_map(|name| Some(((*name).to_owned(), context.variable(name)?.to_owned())))
        .collect();
    let terminal = place.open_terminal(permit, size()?, &env).await?;
    let _guard = TerminalGuard::raw()?;
    place.keep_in_use(relay(terminal, context)).await
}

/// Copies bytes between the two terminals until the program ends.
async fn relay(mut terminal: Terminal, context: &Context) -> Result<ExitCode> {
    let (sender, mut keys) = mpsc::channel::<Vec<u8>>(KEYBOARD_QUEUE_LEN);
    std::thread::spawn(move || {
        let mut buffer = [0; 4096];
        while let Ok(count @ 1..) = io::stdin().lock().read(&mut buffer) {
            if sender.blocking_send(buffer.get(..count).unwrap_or_default().to_vec()).is_err() {
                return;
            }
        }
    });
    let mut resized = signal(SignalKind::window_change())?;
    let mut is_open = true;
    loop {
        tokio::select! {
            event = terminal.next_event() => match event.map_err(Error::from)? {
                TerminalEvent::Output(page) => context.screen.bytes(&page.data)?,
                TerminalEvent::Exited(report) => {
                    return Ok(ExitCode::from(u8::try_from(report.code).unwrap_or(1)));
                }
            },
            bytes = keys.recv(), if is_open => match bytes {
                Some(bytes) => terminal.write_stdin(&bytes).await.map_err(Error::from)?,
                None => is_open = false,
            },
            _ = resized.recv() => terminal.resize(size()?).await.map_err(Error::from)?,
        }
    }
}
