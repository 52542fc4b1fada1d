//! `hermes completions SHELL`.

use clap::{Command, CommandFactory};
use clap_complete::Shell;

use crate::args::Args;
use crate::{Context, Result};

pub(crate) fn run(shell: Shell, context: &Context) -> Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut public_command(), "hermes", &mut script);
    context.screen.bytes(&script)
}

/// The command line without hidden commands.
fn public_command() -> Command {
    let whole = Args::command();
    let commands = whole.get_subcommands().filter(|command| !command.is_hide_set()).cloned();
    let arguments = whole.get_arguments().cloned();
    Command::new("hermes").version(env!("CARGO_PKG_VERSION")).args(arguments).subcommands(commands)
}
