//! `hermes shell`: an interactive terminal in a place.

use std::io::{self, IsTerminal, Read};
use std::process::ExitCode;

use hermes_exec::{OpenPlace, ResolvedPlace, Terminal, TerminalEvent};
use hermes_types::{Job, SessionKey};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

use crate::Context;
use crate::approval::{self, Consent, Decision};
use crate::args::PlaceArgs;
use crate::command::config::settings;
use crate::place::{self, Survivors};
use crate::screen::{OutputFormat, Tone};
use crate::terminal::{RawMode, size};
use hermes_config::failure::{Failure, FailureKind};
use hermes_config::keys::Config;
use hermes_config::resolve::{self, PlaceRequest, SessionChoice};

/// What runs there.
const SHELL: &str = "if command -v bash >/dev/null; then exec bash -i; else exec sh -i; fi";
/// Keystrokes that wait to be passed on.
const TYPED: usize = 16;

pub(crate) fn run(args: &PlaceArgs, context: &Context) -> Result<ExitCode, Failure> {
    if context.screen.format == OutputFormat::Json
        || !io::stdin().is_terminal()
        || !io::stdout().is_terminal()
    {
        return Err(Failure::new(FailureKind::Usage, "`hermes shell` needs a terminal on both sides")
            .hint("`hermes exec` runs a single command"));
    }
    let config = settings(context)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let code = runtime.block_on(shell(&args.request(), context, config));
    // Somebody may still be reading the keyboard.
    runtime.shutdown_background();
    code
}

async fn shell(request: &PlaceRequest, context: &Context, config: &Config) -> Result<ExitCode, Failure> {
    let session = SessionChoice::new(request, config)?;
    let run = async |plan: &ResolvedPlace, place: &OpenPlace| {
        (run_shell(plan, place, &session.key, context, config).await, Survivors::Unknown)
    };
    place::with_place(context, config, request, &session, run).await
}

async fn run_shell(
    plan: &ResolvedPlace,
    place: &OpenPlace,
    session: &SessionKey,
    context: &Context,
    config: &Config,
) -> Result<ExitCode, Failure> {
    let job = Job::shell(SHELL, place.cwd().await.map_err(resolve::place_failure)?);
    // The command itself is the consent to a shell.
    let decision = approval::approve(context, config, plan.place(), session, job, Consent::Given).await?;
    let permit = match decision {
        Decision::Allowed(permit) => permit,
        Decision::Refused(refused) => return approval::report_refusal(context, &refused),
        Decision::Interrupted => return Ok(ExitCode::from(130)),
    };
    let screen = context.screen;
    let backend = plan.backend_name();
    screen.print_stderr(&screen.paint(Tone::Quiet, &format!("{} on {backend}; exit leaves it", plan.name())));
    let env: Vec<_> = ["TERM", "COLORTERM"]
        .iter()
        .filter_map(|name| Some(((*name).to_owned(), context.variable(name)?.to_owned())))
        .collect();
    let terminal = place.open_terminal(permit, size()?, &env).await.map_err(resolve::place_failure)?;
    let _raw = RawMode::new()?;
    attend(terminal, context).await
}

/// Carries bytes between the two terminals until the program ends.
async fn attend(mut terminal: Terminal, context: &Context) -> Result<ExitCode, Failure> {
    let (typed, mut keys) = mpsc::channel::<Vec<u8>>(TYPED);
    std::thread::spawn(move || {
        let mut buffer = [0; 4096];
        while let Ok(count @ 1..) = io::stdin().lock().read(&mut buffer) {
            if typed.blocking_send(buffer.get(..count).unwrap_or_default().to_vec()).is_err() {
                return;
            }
        }
    });
    let mut resized = signal(SignalKind::window_change())?;
    let mut keyboard = true;
    loop {
        tokio::select! {
            shown = terminal.next_event() => match shown.map_err(resolve::place_failure)? {
                TerminalEvent::Output(bytes) => context.screen.bytes(&bytes)?,
                TerminalEvent::Exit(code) => return Ok(ExitCode::from(u8::try_from(code).unwrap_or(1))),
            },
            bytes = keys.recv(), if keyboard => match bytes {
                Some(bytes) => terminal.write(&bytes).await.map_err(resolve::place_failure)?,
                None => keyboard = false,
            },
            _ = resized.recv() => terminal.resize(size()?).await.map_err(resolve::place_failure)?,
        }
    }
}
