//! `hermes completions SHELL`.

use std::process::ExitCode;

use clap::{Command, CommandFactory};
use clap_complete::Shell;

use crate::Context;
use crate::args::Args;
use hermes_config::failure::{Failure, FailureKind};

pub(crate) fn run(shell: Shell, context: &Context) -> Result<ExitCode, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut for_people(), "hermes", &mut script);
    let script =
        String::from_utf8(script).map_err(|error| Failure::new(FailureKind::Failed, error.to_string()))?;
    context.screen.text(&script)?;
    Ok(ExitCode::SUCCESS)
}

/// The command line without what hermes says only to itself.
fn for_people() -> Command {
    let whole = Args::command();
    let commands = whole.get_subcommands().filter(|command| !command.is_hide_set()).cloned();
    let arguments = whole.get_arguments().cloned();
    Command::new("hermes").version(env!("CARGO_PKG_VERSION")).args(arguments).subcommands(commands)
}
