//! The peers that `cargo xtask peers up` installed.

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::prerequisite::report_missing;

/// The vendors' clients, and a mock server that others made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelPeers {
    /// A Python with the packages `openai`, `anthropic` and `discord.py`.
    pub python: PathBuf,
    /// The script of aimock, for `node`.
    pub aimock: PathBuf,
}

/// Where the vendors' clients are.
pub fn models() -> Option<ModelPeers> {
    let access = access("models")?;
    let path = |key: &str| access[key].as_str().map(PathBuf::from).filter(|path| path.exists());
    Some(ModelPeers { python: path("python")?, aimock: path("aimock")? })
}

/// How a peer is reached. Without it a test cannot do what it is for: in CI that is a failure, elsewhere it is said loudly.
pub fn access(name: &str) -> Option<Value> {
    let found = optional(name);
    if found.is_none() {
        report_missing(&format!("peer {name} is missing; get it with: cargo xtask peers up {name}"));
    }
    found
}

/// The same for one that need not be there.
pub fn optional(name: &str) -> Option<Value> {
    Some(named("peers", name)?["access"].clone()).filter(|access| !access.is_null())
}

/// Where an engine listens.
pub fn socket(name: &str) -> Option<PathBuf> {
    access(name)?["socket"].as_str().map(PathBuf::from)
}

/// What is known about an image.
pub fn image(name: &str) -> Option<Value> {
    named("images", name)
}

/// The number of the ordinary user that some peers belong to.
pub fn user() -> Option<u32> {
    u32::try_from(report()?["user"]["uid"].as_u64()?).ok()
}

fn named(list: &str, name: &str) -> Option<Value> {
    report()?[list].as_array()?.iter().find(|one| one["name"] == name).cloned()
}

#[expect(clippy::disallowed_methods, reason = "whoever starts the peers says so the same way")]
fn report() -> Option<Value> {
    let told = std::env::var_os("HERMES_PEERS_DIR").map(PathBuf::from);
    let directory = told.unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/peers"));
    serde_json::from_slice(&std::fs::read(directory.join("peers.json")).ok()?).ok()
}
