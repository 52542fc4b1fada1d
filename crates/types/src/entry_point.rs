//! How a request reaches Hermes.

use serde::{Deserialize, Serialize};

/// The interface a request came through.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EntryPoint {
    /// The owner's terminal.
    Cli,
    /// A chat platform.
    Chat,
}
