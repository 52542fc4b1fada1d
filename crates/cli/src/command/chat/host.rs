//! The host of sessions at a terminal.

use std::path::Path;
use std::sync::Arc;

use hermes_config::resolve::agent::{self, Actor};
use hermes_config::resolve::{PlaceRequest, SessionChoice};
use hermes_session::{
    BoxFuture, Error, ModelConfig, SessionConfig, SessionHost, SessionRequest, SystemPrompt, ToolContext,
    parent_session,
};
use hermes_store::Store;
use hermes_types::{BackendName, EntryPoint, Person, SessionKey};

use super::frontend::TerminalMessage;
use crate::place::release_place;
use crate::session_host::{HostServices, remove_places};
use crate::{Config, Context, Failure, Result};

/// Provides models and environments for sessions at a terminal.
pub(super) struct TerminalHost {
    services: HostServices,
    /// The environment that the command line names.
    choice: SessionChoice,
}

impl TerminalHost {
    pub(super) fn new(
        context: Arc<Context>,
        config: Config,
        request: PlaceRequest,
        store: Store,
        model: Option<String>,
    ) -> Result<Self> {
        let choice = SessionChoice::new(&request, &config)?;
        Ok(Self { services: HostServices::new(context, config, request, store, model), choice })
    }

    pub(super) fn key(&self) -> &SessionKey {
        &self.choice.key
    }

    /// Fails if no model can answer.
    pub(super) fn check_model(&self) -> Result<()> {
        self.services.model_config(None).map(drop)
    }

    fn choice(&self, key: &SessionKey) -> Result<SessionChoice> {
        if *key == self.choice.key {
            return Ok(self.choice.clone());
        }
        let session = Some(key.as_str().to_owned());
        SessionChoice::new(&PlaceRequest { session, ..self.services.request.clone() }, &self.services.config)
    }

    /// Sets up a session, in the directory of a conversation that is resumed if it still exists.
    pub(super) fn setup(&self, key: &SessionKey, cwd: Option<&str>, actor: Actor) -> Result<SessionConfig> {
        let mut config = self.services.config.clone();
        let backend = self.services.request.backend.unwrap_or(config.terminal.backend);
        if let Some(cwd) = cwd
            && (backend != BackendName::Local || Path::new(cwd).is_dir())
        {
            cwd.clone_into(&mut config.terminal.cwd);
        }
        self.services.session_config(&config, &self.choice(key)?, key, actor)
    }

    /// Keeps or removes an environment that is no longer used here.
    pub(super) async fn leave(&self, tools: ToolContext) -> Result<()> {
        let place = tools.config().place.clone();
        let choice = self.choice(place.session())?;
        release_place(&self.services.context, &self.services.request, &place, &choice, tools).await
    }
}

impl SessionHost<TerminalMessage> for TerminalHost {
    fn session_setup(&self, request: SessionRequest<'_, TerminalMessage>) -> Result<SessionConfig, Error> {
        let SessionRequest { key, person, attendance, approver, cwd, .. } = request;
        let actor = Actor { person, entry_point: EntryPoint::Cli, attendance, approver };
        self.setup(key, cwd, actor).map_err(|failure| host_error(&failure))
    }

    fn model_for(&self, model: Option<&str>) -> Result<ModelConfig, Error> {
        self.services.model_config(model).map_err(|failure| host_error(&failure))
    }

    fn set_default_model(&self, model: &str) -> Result<(), Error> {
        self.services.set_default_model(model).map_err(|failure| host_error(&failure))
    }

    fn system_prompt(&self, config: &SessionConfig, model: &str, _message: &TerminalMessage) -> SystemPrompt {
        agent::system_prompt(&self.services.context, config, model)
    }

    fn has_running_processes<'a>(
        &'a self,
        key: &'a SessionKey,
        _message: &'a TerminalMessage,
        _person: &'a Person,
    ) -> BoxFuture<'a, bool> {
        Box::pin(async move { self.services.has_running_processes(key).await.unwrap_or(true) })
    }

    /// The environment belongs to the directory or to the named session; only background tasks have
    /// one of their own.
    fn remove_sandbox<'a>(
        &'a self,
        key: &'a SessionKey,
        _message: &'a TerminalMessage,
    ) -> BoxFuture<'a, Result<bool, Error>> {
        Box::pin(async move {
            if parent_session(key).is_none() {
                return Ok(false);
            }
            remove_places(&self.services.context, &self.services.config, key).await.map(|()| true)
        })
    }

    fn release<'a>(&'a self, tools: ToolContext) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            if let Err(failure) = self.leave(tools).await {
                self.services.context.warn(&failure.message);
            }
        })
    }
}

fn host_error(failure: &Failure) -> Error {
    let hints = failure.hints.iter().map(|hint| format!("\n  → {hint}"));
    Error::Host(std::iter::once(failure.message.clone()).chain(hints).collect())
}
