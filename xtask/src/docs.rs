//! `cargo xtask docs`: writes the generated files.

use std::fs;
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, ensure};

use crate::{messages, root};

/// Each generated file, and the arguments of `cargo run` that print it.
const FILES: [(&str, &[&str]); 2] = [
    ("docs/config.md", &["--", "config", "schema", "--markdown"]),
    ("crates/cli/tests/snapshots/help.txt", &["--example", "help"]),
];

pub(crate) fn main() -> Result<ExitCode> {
    for path in messages::write(&root())? {
        eprintln!("wrote {path}");
    }
    for (file, arguments) in FILES {
        let output = Command::new(env!("CARGO"))
            .args(["run", "--quiet", "--package", "hermes-cli"])
            .args(arguments)
            .current_dir(root())
            .output()
            .context("cargo run")?;
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let path = root().join(file);
        fs::write(&path, output.stdout).with_context(|| path.display().to_string())?;
        eprintln!("wrote {}", path.display());
    }
    Ok(ExitCode::SUCCESS)
}
