//! The `hermes` command: the command line and the terminal UI.
//!
//! [`run`] is the whole program: it parses the arguments, reads the environment, loads the configuration of the
//! home (`hermes_config`) and calls the module in `command` that has the name of the subcommand. A command that
//! cannot do its work returns a `Failure`, whose kind decides the exit code.

mod approval;
pub mod args;
mod backend_health;
mod chat_host;
mod command;
mod keyboard;
mod log;
mod place;
mod progress;
mod screen;
mod session_host;
mod terminal;
mod terminal_approver;
mod turn_view;

use std::collections::BTreeMap;
use std::io;
use std::ops::Deref;
use std::process::ExitCode;
use std::sync::Arc;

use clap::Parser;
use clap::error::ErrorKind;

use approval::Consent;
use args::{Args, Command, GatewayAction};
use command::doctor::DoctorMode;
use hermes_config::ConfigContext;
use hermes_config::failure::{Failure, FailureKind};
use hermes_config::home::Home;
use log::DefaultLogging;
use screen::{OutputFormat, Screen};

/// What every command gets: the configuration, through `Deref`, and the screen.
struct Context {
    config: ConfigContext,
    screen: Screen,
}

impl Deref for Context {
    type Target = ConfigContext;

    fn deref(&self) -> &ConfigContext {
        &self.config
    }
}

/// Reads the command line and does what it says.
pub fn run() -> ExitCode {
    let parsed = Args::try_parse().and_then(|mut args| Ok((args.take_command()?, args)));
    let (command, args) = match parsed {
        Ok(parsed) => parsed,
        Err(error) => return report_usage_error(&error),
    };
    // A name or value that is not text cannot set anything here.
    let process: BTreeMap<String, String> = environment();
    let screen = Screen::new(if args.json { OutputFormat::Json } else { OutputFormat::Text }, &process);
    let result = Home::find(args.home.as_deref(), &process).and_then(|home| {
        let loaded = hermes_config::load(home.path(), process, BTreeMap::new());
        log::init(home.path(), args.verbose, default_logging(&command), &loaded)?;
        let config = ConfigContext::new(home, loaded, Arc::new(move |message| screen.warn(message)));
        dispatch(command, &Arc::new(Context { config, screen }))
    });
    match result {
        Ok(code) => code,
        Err(failure) => screen.report_failure(&failure),
    }
}

fn default_logging(command: &Command) -> DefaultLogging {
    match command {
        Command::Gateway { action: GatewayAction::Run } => DefaultLogging::Gateway,
        _ => DefaultLogging::Quiet,
    }
}

fn dispatch(command: Command, context: &Arc<Context>) -> Result<ExitCode, Failure> {
    match command {
        Command::Chat(args) => command::chat::run(&args, context),
        Command::Config { action } => command::config::run(action, context),
        Command::Exec(args) => command::exec::run(args, context),
        Command::FillPool(args) => command::fill_pool::run(&args, context),
        Command::KeepProxy(args) => command::keep_proxy::run(&args),
        Command::Shell(args) => command::shell::run(&args, context),
        Command::Sandbox { action } => command::sandbox::run(action, context),
        Command::Process { action } => command::process::run(action, context),
        Command::Tool { action } => command::tool::run(action, context),
        Command::Sessions { action } => command::sessions::run(action, context),
        Command::Approvals { action } => command::approvals::run(action, context),
        Command::Gateway { action } => command::gateway::run(action, context),
        Command::Send(args) => command::send::run(args, context),
        Command::Pairing { action } => command::pairing::run(action, context),
        Command::Status => command::status::run(context),
        Command::Doctor { live, yes } => {
            let depth = match (live, yes) {
                (false, _) => DoctorMode::Offline,
                (true, false) => DoctorMode::Live(Consent::Unavailable),
                (true, true) => DoctorMode::Live(Consent::Given),
            };
            command::doctor::run(context, depth)
        }
        Command::Completions { shell } => command::completions::run(shell, context),
    }
}

#[expect(clippy::disallowed_methods, reason = "this is the one place that reads the environment")]
fn environment() -> BTreeMap<String, String> {
    std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .collect()
}

/// Help and version go to stdout and are no mistake; everything else clap refuses is one.
fn report_usage_error(error: &clap::Error) -> ExitCode {
    let asked_for = matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion);
    // Nothing was read into `Args`; what stands behind `--` belongs to the command.
    let json = std::env::args_os().take_while(|word| word != "--").any(|word| word == "--json");
    if json && !asked_for {
        return Screen::new(OutputFormat::Json, &BTreeMap::new())
            .report_failure(&usage_failure(&error.render().to_string()));
    }
    match error.print() {
        Ok(()) if asked_for => ExitCode::SUCCESS,
        // Whoever reads only the beginning got what they asked for.
        Err(error) if asked_for && error.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        _ => FailureKind::Usage.code(),
    }
}

/// What clap says: its first paragraph is what is wrong, and the lines of the others what to do.
fn usage_failure(said: &str) -> Failure {
    let (wrong, advice) = said.split_once("\n\n").unwrap_or((said, ""));
    let words: Vec<&str> = wrong.split_whitespace().filter(|word| *word != "error:").collect();
    let lines = advice.lines().map(str::trim).filter(|line| !line.is_empty());
    let hints = lines.map(|line| line.strip_prefix("tip: ").unwrap_or(line).to_owned()).collect();
    Failure { kind: FailureKind::Usage, message: words.join(" "), hints }
}
