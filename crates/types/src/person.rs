//! Authenticated users.

use serde::{Deserialize, Serialize};

/// A user, by the identity that the entry point authenticated, such as `discord:1234` or `cli:ada`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Person(String);

impl Person {
    pub fn new(identity: impl Into<String>) -> Self {
        Self(identity.into())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}
