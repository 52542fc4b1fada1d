//! The accounts of chat platforms, from settings.

use std::sync::Arc;

use hermes_gateway::people::People;
use hermes_gateway::{Channel, Platform};
use hermes_store::Store;

use crate::config::keys::Config;
use crate::failure::Failure;

/// One account on one platform.
pub(crate) enum Account {}

/// All accounts that are set up.
pub(crate) fn accounts(_config: &Config) -> Result<Vec<Account>, Failure> {
    Ok(Vec::new())
}

impl Account {
    pub(crate) fn platform(&self) -> Platform {
        match *self {}
    }
    pub(crate) fn secret(&self) -> &str {
        match *self {}
    }
    pub(crate) fn people(&self, _config: &Config, _store: &Store) -> People {
        match *self {}
    }
    pub(crate) async fn connect(self, _store: &Store) -> Result<Arc<dyn Channel>, Failure> {
        match self {}
    }
}
