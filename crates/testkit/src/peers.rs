//! The peers that `cargo xtask peers up` installed, as far as they have to do with models.

use std::io::Write;
use std::path::{Path, PathBuf};

use serde_json::Value;

/// The vendors' clients, and a mock server that others made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Models {
    /// A Python with the packages `openai`, `anthropic` and `discord.py`.
    pub python: PathBuf,
    /// The script of aimock, for `node`.
    pub aimock: PathBuf,
}

/// Where they are. Without them a test cannot do what it is for: in CI that is a failure, elsewhere it is said loudly.
#[expect(clippy::disallowed_methods, reason = "whoever starts the peers says so the same way")]
pub fn models() -> Option<Models> {
    let told = std::env::var_os("HERMES_PEERS_DIR").map(PathBuf::from);
    let directory = told.unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/peers"));
    let found = find(&directory.join("peers.json"));
    if found.is_none() {
        let missing = "MISSING PEER models: NOTHING WAS TESTED; get it with: cargo xtask peers up models";
        let is_ci = std::env::var("CI").is_ok_and(|value| value == "true");
        assert!(!is_ci, "{missing}");
        // Not through the test's own output, which nobody sees when it passes.
        writeln!(std::io::stderr(), "{missing}").ok();
    }
    found
}

fn find(report: &Path) -> Option<Models> {
    let report: Value = serde_json::from_slice(&std::fs::read(report).ok()?).ok()?;
    let peers = report["peers"].as_array()?;
    let access = &peers.iter().find(|peer| peer["name"] == "models")?["access"];
    let path = |key: &str| access[key].as_str().map(PathBuf::from).filter(|path| path.exists());
    Some(Models { python: path("python")?, aimock: path("aimock")? })
}
