//! The `hermes` command: configuration, wiring and what a person sees.
//!
//! This is the only crate that reads the environment and the configuration files; every other crate is handed
//! typed values. [`run`] is the whole program: it reads the arguments, finds the home and hands both to
//! a file in `command`, one per word on the command line. [`config`] holds the settings, [`failure`] what can go wrong
//! and with which exit code.

pub mod args;
mod ask;
mod backends;
mod command;
pub mod config;
pub mod failure;
mod holes;
mod home;
mod keyboard;
mod log;
mod people;
mod progress;
mod screen;
mod stage;
mod terminal;
mod wire;

use std::collections::BTreeMap;
use std::io;
use std::process::ExitCode;

use clap::Parser;
use clap::error::ErrorKind;

use args::{Args, Command, GatewayAction};
use ask::Consent;
use command::doctor::Depth;
use config::Loaded;
use failure::Failure;
use home::Home;
use log::Unasked;
use screen::{Format, Screen};

/// What every command is given.
struct Context {
    home: Home,
    screen: Screen,
    /// The configuration as it was at the start, whether or not it can be used.
    loaded: Loaded,
}

impl Context {
    fn variable(&self, name: &str) -> Option<&str> {
        self.loaded.layers.process.get(name).map(String::as_str).filter(|value| !value.trim().is_empty())
    }

    /// The configuration as it is after a change.
    fn reload(&self) -> Loaded {
        config::load(self.home.path(), self.loaded.layers.process.clone(), self.loaded.layers.flags.clone())
    }
}

/// Reads the command line and does what it says.
pub fn run() -> ExitCode {
    let parsed = Args::try_parse().and_then(|mut args| Ok((args.take_command()?, args)));
    let (command, args) = match parsed {
        Ok(parsed) => parsed,
        Err(error) => return usage(&error),
    };
    // A name or value that is not text cannot set anything here.
    let process: BTreeMap<String, String> = environment();
    let screen = Screen::new(if args.json { Format::Json } else { Format::Text }, &process);
    let result = Home::find(args.home.as_deref(), &process).and_then(|home| {
        let loaded = config::load(home.path(), process, BTreeMap::new());
        log::start(home.path(), args.verbose, unasked(&command), &loaded)?;
        dispatch(command, &Context { home, screen, loaded })
    });
    match result {
        Ok(code) => code,
        Err(failure) => screen.fail(&failure),
    }
}

fn unasked(command: &Command) -> Unasked {
    match command {
        Command::Gateway { action: GatewayAction::Run } => Unasked::Serving,
        _ => Unasked::Nothing,
    }
}

fn dispatch(command: Command, context: &Context) -> Result<ExitCode, Failure> {
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
                (false, _) => Depth::Look,
                (true, false) => Depth::Live(Consent::Nobody),
                (true, true) => Depth::Live(Consent::Given),
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
fn usage(error: &clap::Error) -> ExitCode {
    let asked_for = matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion);
    // Nothing was read into `Args`; what stands behind `--` belongs to the command.
    let json = std::env::args_os().take_while(|word| word != "--").any(|word| word == "--json");
    if json && !asked_for {
        return Screen::new(Format::Json, &BTreeMap::new()).fail(&misused(&error.render().to_string()));
    }
    match error.print() {
        Ok(()) if asked_for => ExitCode::SUCCESS,
        // Whoever reads only the beginning got what they asked for.
        Err(error) if asked_for && error.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        _ => failure::Kind::Usage.code(),
    }
}

/// What clap says: its first paragraph is what is wrong, and the lines of the others what to do.
fn misused(said: &str) -> Failure {
    let (wrong, advice) = said.split_once("\n\n").unwrap_or((said, ""));
    let words: Vec<&str> = wrong.split_whitespace().filter(|word| *word != "error:").collect();
    let lines = advice.lines().map(str::trim).filter(|line| !line.is_empty());
    let hints = lines.map(|line| line.strip_prefix("tip: ").unwrap_or(line).to_owned()).collect();
    Failure { kind: failure::Kind::Usage, message: words.join(" "), hints }
}
