//! The `hermes` command: the command line and the terminal UI.
//!
//! [`run`] is the whole program: it parses the arguments, reads the environment, loads the
//! configuration of the home (`hermes_config`) and calls the module in `command` with the name of
//! the subcommand. A command that fails returns a `Failure`, whose kind decides the exit code.

mod approval;
pub mod args;
mod backend_health;
mod chat_host;
mod command;
mod database;
mod keyboard;
mod log;
mod place;
mod progress;
mod screen;
mod self_use;
mod session_host;
mod terminal;
mod terminal_approver;
mod turn_view;

use std::collections::BTreeMap;
use std::io;
use std::ops::Deref;
use std::process::ExitCode;
use std::sync::Arc;

use clap::error::ErrorKind;
use clap::{CommandFactory, FromArgMatches};

use approval::Consent;
use args::{Args, Command};
use hermes_config::ConfigContext;
use hermes_config::failure::{Failure, FailureKind};
use hermes_config::home::Home;
use hermes_config::keys::Config;
use screen::{OutputFormat, Screen};

type Result<T, E = Failure> = std::result::Result<T, E>;

/// The context of every command: the configuration, through `Deref`, and the screen.
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

/// Parses the command line and runs the command.
pub fn run() -> ExitCode {
    let parsed = Args::command().try_get_matches().and_then(|matches| {
        let mut args = Args::from_arg_matches(&matches)?;
        Ok((subcommand_words(&matches), args.take_command()?, args))
    });
    let (words, command, args) = match parsed {
        Ok(parsed) => parsed,
        Err(error) => return report_usage_error(&error),
    };
    let process = environment();
    let screen = Screen::new(if args.json { OutputFormat::Json } else { OutputFormat::Text }, &process);
    let result = self_use::check(&words, &command).and_then(|()| {
        let home = Home::find(args.home.as_deref(), &process)?;
        let loaded = hermes_config::load(home.path(), process);
        log::init(home.path(), args.verbose, &command, &loaded)?;
        let config = ConfigContext::new(home, loaded, Arc::new(move |message| screen.warn(message)));
        dispatch(command, &Arc::new(Context { config, screen }))
    });
    match result {
        Ok(code) => code,
        Err(failure) => screen.report_failure(&failure),
    }
}

/// The names of the subcommand, such as `config set`.
fn subcommand_words(mut matches: &clap::ArgMatches) -> String {
    let mut words = Vec::new();
    while let Some((name, inner)) = matches.subcommand() {
        words.push(name);
        matches = inner;
    }
    words.join(" ")
}

fn dispatch(command: Command, context: &Arc<Context>) -> Result<ExitCode> {
    let done = match command {
        Command::Chat(args) => return command::chat::run(&args, context),
        Command::Exec(args) => return command::exec::run(args, context),
        Command::Shell(args) => return command::shell::run(&args, context),
        Command::Config(action) => return command::config::run(action, context),
        Command::Process(action) => return command::process::run(action, context),
        Command::Tool(action) => return command::tool::run(action, context),
        Command::Gateway(action) => return command::gateway::run(action, context),
        Command::Status => return command::status::run(context),
        Command::Doctor { live, yes } => {
            let consent = if yes { Consent::Given } else { Consent::Unavailable };
            return command::doctor::run(context, live.then_some(consent));
        }
        Command::FillPool(args) => command::fill_pool::run(&args, context),
        Command::KeepProxy(args) => command::keep_proxy::run(&args),
        Command::Sandbox(action) => command::sandbox::run(action, context),
        Command::Sessions(action) => command::sessions::run(action, context),
        Command::Approvals(action) => command::approvals::run(action, context),
        Command::Send(args) => command::send::run(&args, context),
        Command::Pairing(action) => command::pairing::run(action, context),
        Command::Completions { shell } => command::completions::run(shell, context),
    };
    done.map(|()| ExitCode::SUCCESS)
}

/// Runs a future on a runtime of this thread.
fn block_on<T>(future: impl Future<Output = Result<T>>) -> Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let result = runtime.block_on(future);
    // A thread may still be reading the keyboard.
    runtime.shutdown_background();
    result
}

/// The process environment. Names and values that are not UTF-8 are ignored.
#[expect(clippy::disallowed_methods, reason = "the only place that reads the environment")]
fn environment() -> BTreeMap<String, String> {
    std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .collect()
}

/// Prints help, the version, or a usage error.
fn report_usage_error(error: &clap::Error) -> ExitCode {
    let is_requested = matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion);
    // No `Args` exist here. Words after `--` belong to the command.
    let is_json = std::env::args_os().take_while(|word| word != "--").any(|word| word == "--json");
    if is_json && !is_requested {
        return Screen::new(OutputFormat::Json, &BTreeMap::new())
            .report_failure(&usage_failure(&error.render().to_string()));
    }
    match error.print() {
        Ok(()) if is_requested => ExitCode::SUCCESS,
        // The reader wanted only the beginning.
        Err(error) if is_requested && error.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        _ => FailureKind::Usage.code(),
    }
}

/// Converts a message of clap: the first paragraph is the error, the lines of the others are hints.
fn usage_failure(rendered: &str) -> Failure {
    let (message, hints) = rendered.split_once("\n\n").unwrap_or((rendered, ""));
    let words: Vec<&str> = message.split_whitespace().filter(|word| *word != "error:").collect();
    let lines = hints.lines().map(str::trim).filter(|line| !line.is_empty());
    let hints = lines.map(|line| line.strip_prefix("tip: ").unwrap_or(line).to_owned()).collect();
    Failure { hints, ..Failure::usage(words.join(" ")) }
}
