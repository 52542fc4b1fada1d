//! The peers that `cargo xtask peers up` installed.

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::prerequisite::report_missing;

/// The vendors' clients, and a mock server of another project.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelPeers {
    /// A Python with the packages `openai`, `anthropic` and `discord.py`.
    pub python: PathBuf,
    /// The script of aimock, for `node`.
    pub aimock: PathBuf,
}

pub fn models() -> Option<ModelPeers> {
    let access = access("models")?;
    let path = |key: &str| access[key].as_str().map(PathBuf::from).filter(|path| path.exists());
    Some(ModelPeers { python: path("python")?, aimock: path("aimock")? })
}

/// How to reach a peer. A missing peer fails the test in CI and prints a warning elsewhere.
pub fn access(name: &str) -> Option<Value> {
    let found = optional(name);
    if found.is_none() {
        report_missing(&format!("peer {name} is missing; get it with: cargo xtask peers up {name}"));
    }
    found
}

/// As [`access`], for a peer that may be missing.
pub fn optional(name: &str) -> Option<Value> {
    Some(named("peers", name)?["access"].clone()).filter(|access| !access.is_null())
}

/// The socket of a container engine.
pub fn socket(name: &str) -> Option<PathBuf> {
    access(name)?["socket"].as_str().map(PathBuf::from)
}

/// The description of a test image.
pub fn image(name: &str) -> Option<Value> {
    named("images", name)
}

/// The uid of the unprivileged user that owns some peers.
pub fn user() -> Option<u32> {
    u32::try_from(report()?["user"]["uid"].as_u64()?).ok()
}

fn named(list: &str, name: &str) -> Option<Value> {
    report()?[list].as_array()?.iter().find(|one| one["name"] == name).cloned()
}

#[expect(clippy::disallowed_methods, reason = "`cargo xtask peers` uses the same variable")]
fn report() -> Option<Value> {
    let configured = std::env::var_os("HERMES_PEERS_DIR").map(PathBuf::from);
    let directory =
        configured.unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/peers"));
    serde_json::from_slice(&std::fs::read(directory.join("peers.json")).ok()?).ok()
}
