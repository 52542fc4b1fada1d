//! The interface to the program that runs the gateway.

use hermes_session::{Error, SessionHost};
use hermes_types::SessionKey;

use crate::channel::BoxFuture;
use crate::message::{Chat, InboundMessage};

/// Provides what the gateway needs from the program around it.
pub trait GatewayHost: SessionHost<InboundMessage> {
    /// Restarts the gateway once running turns have ended, and announces it in the chat.
    /// `message` makes the announcement unique.
    fn request_restart(&self, chat: &Chat, message: &str) -> Result<(), Error>;

    /// Removes the session's environment unless processes run in it.
    fn remove_idle_sandbox<'a>(&'a self, key: &'a SessionKey) -> BoxFuture<'a, Result<(), Error>>;
}
