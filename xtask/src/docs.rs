//! Pages made from the code: `cargo xtask docs`.

use std::fs;
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, ensure};

use crate::root;

pub(crate) fn main() -> Result<ExitCode> {
    let output = Command::new(env!("CARGO"))
        .args(["run", "--quiet", "--package", "hermes-cli", "--", "config", "schema", "--markdown"])
        .current_dir(root())
        .output()
        .context("cargo run")?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let page = root().join("docs").join("config.md");
    fs::write(&page, output.stdout).with_context(|| page.display().to_string())?;
    eprintln!("wrote {}", page.display());
    Ok(ExitCode::SUCCESS)
}
