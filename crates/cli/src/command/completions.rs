//! `hermes completions SHELL`.

use std::process::ExitCode;

use clap::CommandFactory;
use clap_complete::Shell;

use crate::Context;
use crate::args::Args;
use crate::failure::{Failure, Kind};

pub(crate) fn run(shell: Shell, context: &Context) -> Result<ExitCode, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Args::command(), "hermes", &mut script);
    let script = String::from_utf8(script).map_err(|error| Failure::new(Kind::Failed, error.to_string()))?;
    context.screen.text(&script)?;
    Ok(ExitCode::SUCCESS)
}
