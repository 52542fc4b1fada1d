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
    let passed = if has_nextest() {
        // nextest does not run documentation tests.
        let filters: Vec<&str> = filters.iter().map(String::as_str).collect();
        run_cargo(&[&["nextest", "run", "--workspace", "--no-fail-fast"], filters.as_slice()].concat())?
            && run_cargo(&["test", "--workspace", "--doc", "--quiet"])?
    } else {
        let filters: Vec<&str> = filters.iter().map(String::as_str).collect();
        run_cargo(&[&["test", "--workspace", "--quiet"], filters.as_slice()].concat())?
    };
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

fn run_cargo(args: &[&str]) -> Result<bool> {
    let mut command = Command::new(env!("CARGO"));
    let status = command.args(args).current_dir(root()).status();
    Ok(status.with_context(|| format!("cargo {}", args.join(" ")))?.success())
}
