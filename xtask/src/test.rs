//! `cargo xtask test`: starts the peers, then runs every test.

use std::process::{Command, ExitCode};

use anyhow::{Context, Result};

use crate::{peers, root};

pub(crate) fn main(filters: &[String]) -> Result<ExitCode> {
    let started = peers::main(&["up".to_owned()])?;
    // Outside of CI, tests without a peer are reported and the others run.
    if started != ExitCode::SUCCESS && std::env::var("CI").is_ok_and(|value| value == "true") {
        return Ok(started);
    }
    let status = Command::new(env!("CARGO"))
        .args(["test", "--workspace", "--quiet"])
        .args(filters)
        .current_dir(root())
        .status()
        .context("cargo test")?;
    // Repeated below the results, where it is seen.
    peers::main(&["status".to_owned()])?;
    eprintln!("the peers keep running; `cargo xtask peers down` stops them");
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
