//! `cargo xtask test`: starts the peers, then runs every test.

use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context, Result};

use crate::{peers, root};

pub(crate) fn main(filters: &[String]) -> Result<ExitCode> {
    let started = peers::main(&["up".to_owned()])?;
    // Outside of CI, tests without a peer are reported and the others run.
    if started != ExitCode::SUCCESS && std::env::var("CI").is_ok_and(|value| value == "true") {
        return Ok(started);
    }
    let tests: &[&str] =
        if has_nextest() { &["nextest", "run", "--workspace"] } else { &["test", "--workspace", "--quiet"] };
    let mut passed = run_cargo(tests, filters)?;
    // nextest leaves out the examples in the documentation.
    if has_nextest() && filters.is_empty() {
        passed &= run_cargo(&["test", "--workspace", "--quiet", "--doc"], &[])?;
    }
    // Repeated below the results, where it is seen.
    peers::main(&["status".to_owned()])?;
    eprintln!("the peers keep running; `cargo xtask peers down` stops them");
    Ok(if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn has_nextest() -> bool {
    let mut command = Command::new(env!("CARGO"));
    command.args(["nextest", "--version"]).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

fn run_cargo(args: &[&str], filters: &[String]) -> Result<bool> {
    let mut command = Command::new(env!("CARGO"));
    command.args(args).args(filters).current_dir(root());
    Ok(command.status().with_context(|| format!("{command:?}"))?.success())
}
