//! The interface to the program that runs the gateway.

use std::fmt;
use std::sync::Arc;

use hermes_agent::{Approver, ModelConfig, SessionConfig, SystemPrompt};
use hermes_types::{Attendance, Person, SessionKey};

use crate::channel::BoxFuture;
use crate::error::Error;
use crate::message::Chat;

/// What a host needs to know to set up a session.
pub struct SessionRequest {
    pub key: SessionKey,
    pub chat: Chat,
    pub person: Person,
    pub attendance: Attendance,
    pub approver: Arc<dyn Approver>,
}

/// Provides what sessions need from outside the gateway: settings, models and environments.
pub trait SessionHost: Send + Sync + fmt::Debug {
    /// Sets up a session. The error is shown in the chat.
    fn session_setup<'a>(&'a self, request: SessionRequest) -> BoxFuture<'a, Result<SessionConfig, Error>>;

    /// The models to use. The error is shown in the chat.
    fn model_for(&self, model: Option<&str>) -> Result<ModelConfig, Error>;

    /// Makes `model` the default of all sessions.
    fn set_default_model(&self, model: &str) -> Result<(), Error>;

    fn system_prompt(&self, setup: &SessionConfig, model: &str, chat: &Chat) -> SystemPrompt;

    /// Whether background processes run in the session's environment. Unknown counts as true.
    fn has_running_processes<'a>(
        &'a self,
        key: &'a SessionKey,
        chat: &'a Chat,
        person: &'a Person,
    ) -> BoxFuture<'a, bool>;

    /// Restarts the gateway once running turns have ended, and announces it in the chat.
    /// `message_id` makes the announcement unique.
    fn request_restart(&self, chat: &Chat, message: &str) -> Result<(), Error>;

    /// Removes the session's environment and its files.
    fn remove_sandbox<'a>(&'a self, key: &'a SessionKey, chat: &'a Chat) -> BoxFuture<'a, Result<(), Error>>;

    /// Removes the session's environment unless processes run in it.
    fn remove_idle_sandbox<'a>(&'a self, key: &'a SessionKey) -> BoxFuture<'a, Result<(), Error>>;
}
