//! How the sessions of chats are furnished.

use std::sync::{Arc, Mutex, PoisonError};

use hermes_agent::{ModelConfig, SessionConfig, SystemPrompt};
use hermes_exec::health::Usability;
use hermes_exec::{Audience, ListedPlace, PlaceState, Reaper, TreeStatus};
use hermes_gateway::{
    BoxFuture, Chat, ChatKind, Error, Platform, SessionHost, SessionRequest, is_shared_session, service,
};
use hermes_model::Client;
use hermes_store::Store;
use hermes_types::{BackendName, EntryPoint, Person, SessionKey, Timestamp};
use tokio::sync::Notify;

use crate::Context;
use crate::approval::owner;
use crate::backend_health;
use crate::command::config::refuse_managed;
use hermes_config::change;
use hermes_config::failure::{Failure, FailureKind};
use hermes_config::keys::{Config, PlaceScope};
use hermes_config::resolve::agent::{self, Actor, SharedResources};
use hermes_config::resolve::gateway::{SHARED_DIR, chat_backend, session_scope, shared_volume};
use hermes_config::resolve::{self, PlaceRequest, ResolveMode, Retention, SessionChoice, model};

/// The key of the model that answers where no other was chosen.
const MODEL: &str = "model.default";

/// Makes sure that commands of chats can run where they are to.
pub(crate) fn check(context: &Context, config: &Config) -> Result<(), Failure> {
    let backend = chat_backend(config);
    let Usability::Unusable(trouble) = backend_health::probe(context, config, backend).usability else {
        return Ok(());
    };
    let failure = Failure::new(
        FailureKind::Unavailable,
        format!("commands of chats are to run on the {backend} backend, but: {}", trouble.what),
    );
    let others = [
        (BackendName::Sandbox, "in the built-in sandbox"),
        (BackendName::Docker, "in containers"),
        (BackendName::Local, "as you, on this machine, with the gate asking"),
    ];
    let others = others.into_iter().filter(|(other, _)| *other != backend);
    Err(others.fold(failure.hint(trouble.remedy), |failure, (other, what)| {
        failure.hint(format!("`hermes config set gateway.terminal_backend {other}` runs them {what}"))
    }))
}

/// What is done for the sessions of chats.
pub(crate) struct ChatHouse {
    context: Arc<Context>,
    config: Config,
    args: PlaceRequest,
    store: Store,
    stock: SharedResources,
    /// The way to the models.
    client: Client,
    /// The model that somebody chose for everybody.
    preferred: Mutex<Option<String>>,
    /// Told when somebody wants hermes to start anew.
    restart: Notify,
}

impl std::fmt::Debug for ChatHouse {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ChatHouse").field("args", &self.args).finish_non_exhaustive()
    }
}

impl ChatHouse {
    pub(crate) fn new(context: Arc<Context>, mut config: Config, store: Store) -> Result<Self, Failure> {
        config.terminal.docker_volumes.extend(shared_volume(&context, &config)?);
        let backend = chat_backend(&config);
        let takes_images = !matches!(backend, BackendName::Local | BackendName::Sandbox | BackendName::Ssh);
        let image = config.gateway.sandbox_image.clone().filter(|_| takes_images);
        config.terminal.lifetime_seconds = config.gateway.sandbox_lifetime;
        config.approvals.timeout = config.approvals.gateway_timeout;
        let args = PlaceRequest { backend: Some(backend), image, session: None, audience: Audience::Others };
        let stock = SharedResources::new(&context, &config);
        let client = model::client(&context);
        Ok(Self {
            context,
            config,
            args,
            store,
            stock,
            client,
            preferred: Mutex::default(),
            restart: Notify::new(),
        })
    }

    /// Why nobody could be answered now, if so. The model may come later.
    pub(crate) fn trouble(&self) -> Option<Failure> {
        model::model_config(&self.context, &self.config, self.client.clone(), None).err()
    }

    /// Waits until somebody wants hermes to start anew.
    pub(crate) async fn restarted(&self) {
        self.restart.notified().await;
    }

    fn setup(&self, visit: SessionRequest) -> Result<SessionConfig, Failure> {
        let place = self.place(&visit.key, &visit.chat, Some(&visit.person));
        let session = SessionChoice { key: place, keep: Retention::All };
        let plan =
            resolve::resolve_place(&self.context, &self.config, &self.args, &session, ResolveMode::Create)?;
        let plan = plan.with_session(visit.key);
        let visitor = Actor {
            person: visit.person,
            entry_point: EntryPoint::Chat,
            attendance: visit.attendance,
            approver: visit.approver,
        };
        Ok(agent::session_config(&self.stock, &self.config, plan, visitor, self.store.clone()))
    }

    /// The key of a session's place.
    fn place(&self, key: &SessionKey, room: &Chat, person: Option<&Person>) -> SessionKey {
        let platform = room.platform.as_str();
        // Where several people speak, nobody's own place is open to the others.
        let person = person.filter(|_| !is_shared_session(room, session_scope(&self.config)));
        match (self.config.gateway.sandbox_scope, person) {
            (PlaceScope::User, Some(person)) => SessionKey::new(format!("user {}", person.as_str())),
            (PlaceScope::Session | PlaceScope::User, _) => key.clone(),
            (PlaceScope::Chat, _) => SessionKey::new(format!("chat {platform}:{}", room.id)),
            (PlaceScope::Shared, _) => SessionKey::new("all chats"),
        }
    }

    /// Removes what is left of places that are gone, from now on.
    pub(crate) fn reap(&self) -> Result<Reaper, Failure> {
        let session = SessionChoice { key: SessionKey::new("chats"), keep: Retention::All };
        let plan =
            resolve::resolve_place(&self.context, &self.config, &self.args, &session, ResolveMode::Create)?;
        Ok(resolve::places(&self.context, &self.config).start_reaper(plan.engine_access()))
    }
}

impl SessionHost for ChatHouse {
    fn session_setup<'a>(&'a self, visit: SessionRequest) -> BoxFuture<'a, Result<SessionConfig, Error>> {
        Box::pin(async move { self.setup(visit).map_err(|failure| Error::Host(in_words(&failure))) })
    }

    fn model_for(&self, model: Option<&str>) -> Result<ModelConfig, Error> {
        let preferred = self.preferred.lock().unwrap_or_else(PoisonError::into_inner).clone();
        model::model_config(&self.context, &self.config, self.client.clone(), model.or(preferred.as_deref()))
            .map_err(|failure| Error::Host(in_words(&failure)))
    }

    fn set_default_model(&self, model: &str) -> Result<(), Error> {
        refuse_managed(&self.context).map_err(|failure| Error::Host(failure.message))?;
        change::set(self.context.home.path(), MODEL, model)
            .map_err(|error| Error::Host(error.to_string()))?;
        *self.preferred.lock().unwrap_or_else(PoisonError::into_inner) = Some(model.to_owned());
        Ok(())
    }

    fn system_prompt(&self, setup: &SessionConfig, model: &str, room: &Chat) -> SystemPrompt {
        let mut told = agent::system_prompt(&self.context, setup, model);
        let place = match room.kind {
            ChatKind::Dm => "a direct message",
            ChatKind::Group => "a group",
            ChatKind::Thread => {
                "a thread, where several people may take part: each message begins with a name"
            }
        };
        told.text.push_str(&format!(
            "\n\nYou talk on {} in {place}. Answers are read in a chat: keep them short. To send a file that is below {}, \
             name it in your answer on a line of its own: MEDIA:<path>",
            room.platform.as_str(),
            setup.place.initial_cwd()
        ));
        if self.config.gateway.shared_home {
            told.text.push_str(&format!(
                "\n`{SHARED_DIR}` is a directory that all chats share: what is there, others can read and change."
            ));
        }
        if let Some(prompt) = prompt(&self.config, room) {
            told.text.push_str(&format!("\n\n{prompt}"));
        }
        told
    }

    fn has_running_processes<'a>(
        &'a self,
        key: &'a SessionKey,
        room: &'a Chat,
        person: &'a Person,
    ) -> BoxFuture<'a, bool> {
        Box::pin(async move {
            let places =
                match places_of(&self.context, &self.config, &self.place(key, room, Some(person))).await {
                    Ok(places) => places,
                    Err(why) => {
                        tracing::warn!(why, "nobody knows what runs in the place of a chat");
                        return true;
                    }
                };
            is_busy(&places).await
        })
    }

    fn request_restart(&self, room: &Chat, message: &str) -> Result<(), Error> {
        service::request_restart(self.context.home.path(), room, message)
            .map_err(|error| Error::Host(error.to_string()))?;
        self.restart.notify_one();
        Ok(())
    }

    fn remove_idle_sandbox<'a>(&'a self, key: &'a SessionKey) -> BoxFuture<'a, Result<(), Error>> {
        Box::pin(async move {
            let places = places_of(&self.context, &self.config, key).await.map_err(Error::Host)?;
            if is_busy(&places).await {
                return Err(Error::Host("a process runs in its environment".to_owned()));
            }
            close(&self.context, &self.config, &self.store, key).await.map_err(Error::Host)
        })
    }

    fn remove_sandbox<'a>(&'a self, key: &'a SessionKey, room: &'a Chat) -> BoxFuture<'a, Result<(), Error>> {
        Box::pin(async move {
            let is_own = match self.config.gateway.sandbox_scope {
                PlaceScope::Session => true,
                PlaceScope::User => is_shared_session(room, session_scope(&self.config)),
                PlaceScope::Chat | PlaceScope::Shared => false,
            };
            if !is_own {
                return Ok(());
            }
            clear(&self.context, &self.config, key).await.map_err(Error::Host)
        })
    }
}

/// The places with this key.
async fn places_of(context: &Context, config: &Config, key: &SessionKey) -> Result<Vec<ListedPlace>, String> {
    let places = resolve::places(context, config);
    let found = places.find(key.as_str()).await.map_err(|error| error.to_string())?;
    Ok(found.into_iter().filter(|place| place.record.session == key.as_str()).collect())
}

/// Whether something runs in places.
async fn is_busy(places: &[ListedPlace]) -> bool {
    for place in places.iter().filter(|place| matches!(place.state, PlaceState::Running(_))) {
        // A place that ended just now has nothing that runs.
        let Ok(processes) = place.processes().await else { continue };
        let Ok(views) = processes.list().await else { continue };
        if views.iter().any(|view| view.tree == TreeStatus::Alive) {
            return true;
        }
    }
    false
}

/// Ends what belongs to a conversation of a chat and outlives it: what was allowed in it, and its place.
pub(crate) async fn close(
    context: &Context,
    config: &Config,
    store: &Store,
    key: &SessionKey,
) -> Result<(), String> {
    store.revoke_session_grants(key, &owner(), Timestamp::now()).await.map_err(|error| error.to_string())?;
    clear(context, config, key).await
}

/// Ends them with all that is in them.
async fn clear(context: &Context, config: &Config, key: &SessionKey) -> Result<(), String> {
    for place in places_of(context, config, key).await? {
        place.remove().await.map_err(|error| error.to_string())?;
    }
    Ok(())
}

/// What the owner wants the model to be told in a room: what is set for it, or for the channel it is a thread of.
fn prompt<'a>(config: &'a Config, room: &Chat) -> Option<&'a str> {
    let prompts = match room.platform {
        Platform::Discord => &config.discord.channel_prompts.0,
    };
    let of = |id: &str| prompts.iter().find(|(known, _)| known == id).map(|(_, prompt)| prompt.trim());
    of(&room.id).or_else(|| room.parent.as_deref().and_then(of)).filter(|prompt| !prompt.is_empty())
}

/// What a chat is told of a failure. What to do about it is for the owner.
fn in_words(failure: &Failure) -> String {
    tracing::warn!(message = failure.message, hints = ?failure.hints, "a chat could not be served");
    format!("this cannot be worked on now: {}", failure.message)
}
