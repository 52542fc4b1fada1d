//! What the hosts of terminal and chat sessions share: settings, models and environments.

use std::sync::{Arc, Mutex, PoisonError};

use hermes_config::change;
use hermes_config::resolve::agent::{self, Actor, SharedResources};
use hermes_config::resolve::{self, PlaceRequest, ResolveMode, SessionChoice, model};
use hermes_exec::{Audience, ListedPlace, PlaceState, TreeStatus};
use hermes_model::Client;
use hermes_session::{ModelConfig, SessionConfig};
use hermes_store::Store;
use hermes_types::SessionKey;

use crate::command::config::refuse_managed;
use crate::{Config, Context, Failure, Result};

/// The config key that `/model NAME --global` sets.
const DEFAULT_MODEL_KEY: &str = "model.default";

pub(crate) struct HostServices {
    pub(crate) context: Arc<Context>,
    pub(crate) config: Config,
    pub(crate) request: PlaceRequest,
    pub(crate) store: Store,
    resources: SharedResources,
    client: Client,
    /// The model for all sessions, if it is not that of the config.
    default_model: Mutex<Option<String>>,
}

impl HostServices {
    pub(crate) fn new(
        context: Arc<Context>,
        config: Config,
        request: PlaceRequest,
        store: Store,
        model: Option<String>,
    ) -> Self {
        let (resources, client) = (SharedResources::new(&context, &config), model::client(&context));
        Self { context, config, request, store, resources, client, default_model: Mutex::new(model) }
    }

    /// Sets up a session with the environment of `choice`.
    pub(crate) fn session_config(
        &self,
        config: &Config,
        choice: &SessionChoice,
        key: &SessionKey,
        actor: Actor,
    ) -> Result<SessionConfig> {
        let place =
            resolve::resolve_place(&self.context, config, &self.request, choice, ResolveMode::Create)?;
        let place = place.with_session(key.clone());
        let place = match self.request.audience {
            Audience::Others => place.for_person(actor.person.clone()),
            Audience::Owner => place,
        };
        Ok(agent::session_config(&self.resources, config, place, actor, self.store.clone()))
    }

    pub(crate) fn model_config(&self, model: Option<&str>) -> Result<ModelConfig> {
        let default = self.default_model.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let chosen = model.or(default.as_deref());
        model::model_config(&self.context, &self.config, self.client.clone(), chosen, self.request.audience)
    }

    pub(crate) fn set_default_model(&self, model: &str) -> Result<()> {
        refuse_managed(&self.context)?;
        change::set(self.context.home.path(), DEFAULT_MODEL_KEY, model)
            .map_err(|error| Failure::failed(error.to_string()))?;
        *self.default_model.lock().unwrap_or_else(PoisonError::into_inner) = Some(model.to_owned());
        Ok(())
    }

    /// Whether a process runs in an environment of a session.
    pub(crate) async fn has_running_processes(&self, key: &SessionKey) -> Result<bool, hermes_exec::Error> {
        let places = places_of(&self.context, &self.config, key).await?;
        for place in places.iter().filter(|place| matches!(place.state, PlaceState::Running(_))) {
            // Nothing runs in an environment that ended just now.
            let views = async { place.processes().await?.list().await }.await.unwrap_or_default();
            if views.iter().any(|view| view.tree == TreeStatus::Alive) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

async fn places_of(
    context: &Context,
    config: &Config,
    key: &SessionKey,
) -> Result<Vec<ListedPlace>, hermes_exec::Error> {
    let found = resolve::places(context, config).find(key.as_str()).await?;
    Ok(found.into_iter().filter(|place| place.record.session == key.as_str()).collect())
}

/// Removes the environments of a session and all that is in them.
pub(crate) async fn remove_places(
    context: &Context,
    config: &Config,
    key: &SessionKey,
) -> Result<(), hermes_session::Error> {
    let remove = async {
        for place in places_of(context, config, key).await? {
            place.remove().await?;
        }
        Ok(())
    };
    remove.await.map_err(|error: hermes_exec::Error| hermes_session::Error::Host(error.to_string()))
}
