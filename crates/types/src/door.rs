//! The ways in.

use serde::{Deserialize, Serialize};

/// By which door a request came.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Door {
    /// The terminal of the owner.
    Cli,
    /// A chat platform.
    Chat,
    /// The HTTP API.
    Api,
    /// A scheduled task.
    Cron,
    /// A client of the MCP server.
    Mcp,
}
