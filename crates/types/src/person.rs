//! People, as the doors name them.

use serde::{Deserialize, Serialize};

/// One person, by the identity their door vouches for, such as `discord:1234` or `cli:ada`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Person(String);

impl Person {
    /// A person with this authenticated identity.
    pub fn new(identity: impl Into<String>) -> Self {
        Self(identity.into())
    }

    /// The identity as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}
