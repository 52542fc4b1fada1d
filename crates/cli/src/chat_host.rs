//! The host of chat sessions.

use std::sync::Arc;

use hermes_config::keys::{Config, PlaceScope};
use hermes_config::resolve::agent::{self, Actor};
use hermes_config::resolve::gateway::{SHARED_DIR, chat_backend, session_scope, shared_volume};
use hermes_config::resolve::{self, PlaceRequest, ResolveMode, Retention, SessionChoice};
use hermes_exec::health::Usability;
use hermes_exec::{Audience, Reaper};
use hermes_gateway::{Chat, ChatKind, GatewayHost, InboundMessage, Platform, is_shared_session, service};
use hermes_session::{
    BoxFuture, Error, ModelConfig, SessionConfig, SessionHost, SessionRequest, SystemPrompt,
};
use hermes_store::Store;
use hermes_types::{BackendName, EntryPoint, Person, SessionKey, Timestamp};
use tokio::sync::Notify;

use crate::approval::owner;
use crate::backend_health;
use crate::session_host::{HostServices, remove_places};
use crate::{Context, Failure, Result};

/// Fails if the commands of chats cannot run on their backend.
pub(crate) fn check(context: &Context, config: &Config) -> Result<()> {
    let backend = chat_backend(config);
    let Usability::Unusable(trouble) = backend_health::probe(context, config, backend).usability else {
        return Ok(());
    };
    let message = format!("cannot run commands of chats on the {backend} backend: {}", trouble.what);
    let others = [
        (BackendName::Sandbox, "in the built-in sandbox"),
        (BackendName::Docker, "in containers"),
        (BackendName::Local, "as you, on this machine, with the gate asking"),
    ];
    let others = others.into_iter().filter(|(other, _)| *other != backend);
    Err(others.fold(Failure::unavailable(message).hint(trouble.remedy), |failure, (other, what)| {
        failure.hint(format!("`hermes config set gateway.terminal_backend {other}` runs them {what}"))
    }))
}

/// Provides models and environments for chat sessions.
pub(crate) struct ChatHost {
    services: HostServices,
    pub(crate) restart: Notify,
}

impl ChatHost {
    pub(crate) fn new(context: Arc<Context>, mut config: Config, store: Store) -> Result<Self> {
        config.terminal.docker_volumes.extend(shared_volume(&context, &config)?);
        let backend = chat_backend(&config);
        let takes_images = !matches!(backend, BackendName::Local | BackendName::Sandbox | BackendName::Ssh);
        let image = config.gateway.sandbox_image.clone().filter(|_| takes_images);
        config.terminal.lifetime_seconds = config.gateway.sandbox_lifetime;
        config.approvals.timeout = config.approvals.gateway_timeout;
        let request =
            PlaceRequest { backend: Some(backend), image, session: None, audience: Audience::Others };
        let services = HostServices::new(context, config, request, store, None);
        Ok(Self { services, restart: Notify::new() })
    }

    /// Why no message can be answered now, if so. The model may be configured later.
    pub(crate) fn model_failure(&self) -> Option<Failure> {
        self.services.model_config(None).err()
    }

    /// The key of a session's environment.
    fn place_key(&self, key: &SessionKey, chat: &Chat, person: &Person) -> SessionKey {
        let platform = chat.platform.as_str();
        match self.services.config.gateway.sandbox_scope {
            // In a shared session, the environment of one person is not open to the others.
            PlaceScope::User if !self.is_shared(chat) => SessionKey::new(format!("user {}", person.as_str())),
            PlaceScope::Session | PlaceScope::User => key.clone(),
            PlaceScope::Chat => SessionKey::new(format!("chat {platform}:{}", chat.id)),
            PlaceScope::Shared => SessionKey::new("all chats"),
        }
    }

    fn is_shared(&self, chat: &Chat) -> bool {
        is_shared_session(chat, session_scope(&self.services.config))
    }

    /// Starts to remove leftovers of environments.
    pub(crate) fn start_reaper(&self) -> Result<Reaper> {
        let HostServices { context, config, request, .. } = &self.services;
        let choice = SessionChoice { key: SessionKey::new("chats"), keep: Retention::All };
        let place = resolve::resolve_place(context, config, request, &choice, ResolveMode::Create)?;
        Ok(resolve::places(context, config).start_reaper(place.backend().engine_access()))
    }
}

impl SessionHost<InboundMessage> for ChatHost {
    fn session_setup(&self, request: SessionRequest<'_, InboundMessage>) -> Result<SessionConfig, Error> {
        let SessionRequest { key, message, person, attendance, approver, .. } = request;
        let choice = SessionChoice { key: self.place_key(key, &message.chat, &person), keep: Retention::All };
        let actor = Actor { person, entry_point: EntryPoint::Chat, attendance, approver };
        self.services
            .session_config(&self.services.config, &choice, key, actor)
            .map_err(|error| host_error(&error))
    }

    fn model_for(&self, model: Option<&str>) -> Result<ModelConfig, Error> {
        self.services.model_config(model).map_err(|failure| host_error(&failure))
    }

    fn set_default_model(&self, model: &str) -> Result<(), Error> {
        self.services.set_default_model(model).map_err(|failure| Error::Host(failure.message))
    }

    fn system_prompt(&self, config: &SessionConfig, model: &str, message: &InboundMessage) -> SystemPrompt {
        let chat = &message.chat;
        let mut prompt = agent::system_prompt(&self.services.context, config, model);
        let kind = match chat.kind {
            ChatKind::Dm => "a direct message",
            ChatKind::Group => "a group",
            ChatKind::Thread => {
                "a thread, where several people may take part: each message begins with a name"
            }
        };
        prompt.text.push_str(&format!(
            "\n\nYou talk on {} in {kind}. Answers are read in a chat: keep them short. To send a file that is below {}, \
             name it in your answer on a line of its own: MEDIA:<path>",
            chat.platform.as_str(),
            config.place.initial_cwd()
        ));
        if self.services.config.gateway.shared_home {
            prompt.text.push_str(&format!(
                "\n`{SHARED_DIR}` is a directory that all chats share: what is there, others can read and change."
            ));
        }
        if let Some(text) = channel_prompt(&self.services.config, chat) {
            prompt.text.push_str(&format!("\n\n{text}"));
        }
        prompt
    }

    fn has_running_processes<'a>(
        &'a self,
        key: &'a SessionKey,
        message: &'a InboundMessage,
        person: &'a Person,
    ) -> BoxFuture<'a, bool> {
        Box::pin(async move {
            let key = self.place_key(key, &message.chat, person);
            self.services.has_running_processes(&key).await.unwrap_or_else(|error| {
                tracing::warn!(%error, "cannot list the processes of a chat");
                true
            })
        })
    }

    fn remove_sandbox<'a>(
        &'a self,
        key: &'a SessionKey,
        message: &'a InboundMessage,
    ) -> BoxFuture<'a, Result<bool, Error>> {
        Box::pin(async move {
            let is_own = match self.services.config.gateway.sandbox_scope {
                PlaceScope::Session => true,
                PlaceScope::User => self.is_shared(&message.chat),
                PlaceScope::Chat | PlaceScope::Shared => false,
            };
            if is_own {
                remove_places(&self.services.context, &self.services.config, key).await?;
            }
            Ok(is_own)
        })
    }
}

impl GatewayHost for ChatHost {
    fn request_restart(&self, chat: &Chat, message: &str) -> Result<(), Error> {
        service::request_restart(self.services.context.home.path(), chat, message)
            .map_err(|error| Error::Host(error.to_string()))?;
        self.restart.notify_one();
        Ok(())
    }

    fn remove_idle_sandbox<'a>(&'a self, key: &'a SessionKey) -> BoxFuture<'a, Result<(), Error>> {
        Box::pin(async move {
            let HostServices { context, config, store, .. } = &self.services;
            let is_busy = self.services.has_running_processes(key).await;
            if is_busy.map_err(|error| Error::Host(error.to_string()))? {
                return Err(Error::Host("a process runs in its environment".to_owned()));
            }
            close_session(context, config, store, key).await
        })
    }
}

/// Ends what outlives a conversation of a chat: its grants and its environment.
pub(crate) async fn close_session(
    context: &Context,
    config: &Config,
    store: &Store,
    key: &SessionKey,
) -> Result<(), Error> {
    store.revoke_session_grants(key, &owner(), Timestamp::now()).await?;
    remove_places(context, config, key).await
}

/// The prompt that the owner set for a chat, or for the channel of a thread.
fn channel_prompt<'a>(config: &'a Config, chat: &Chat) -> Option<&'a str> {
    let prompts = match chat.platform {
        Platform::Discord => &config.discord.channel_prompts,
    };
    let find = |id: &str| prompts.iter().find(|(known, _)| known == id).map(|(_, prompt)| prompt.trim());
    find(&chat.id).or_else(|| chat.parent.as_deref().and_then(find)).filter(|prompt| !prompt.is_empty())
}

/// What a chat shows of a failure. The hints are for the owner.
fn host_error(failure: &Failure) -> Error {
    tracing::warn!(message = failure.message, hints = ?failure.hints, "cannot serve a chat");
    Error::Host(format!("cannot process the message now: {}", failure.message))
}
