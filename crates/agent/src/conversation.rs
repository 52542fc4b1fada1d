//! A conversation: its history, its model, and the context in which its tools run.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use hermes_model::{Client, Effort, Endpoint, ImageMode};
use hermes_store::{InboxId, NewSession, SessionId, SessionPrompt, Store, TurnId};
use hermes_types::{CallId, EntryPoint, Image, Message, Timestamp, Usage};
use serde_json::json;
use strum::IntoStaticStr;
use tokio_util::sync::CancellationToken;

use crate::prompt::{SystemPrompt, intern_tools};
use crate::tool_support::text::truncate_chars;
use crate::{Error, LoopGuardConfig, SessionConfig, ToolContext, TurnJournal, lock};

/// The first line of the first message becomes the title.
const MAX_TITLE_CHARS: usize = 60;

/// The model of a conversation and its limits.
#[derive(Clone)]
pub struct ModelConfig {
    pub client: Client,
    /// The model, and the ones to fall back to when it fails.
    pub endpoints: Vec<Endpoint>,
    /// Tokens of one reply.
    pub max_output: Option<u32>,
    pub effort: Option<Effort>,
    pub image_mode: ImageMode,
    /// Requests to the model in one turn. As many again are free for scripts that do the work of many
    /// calls.
    pub max_model_calls: u32,
    /// How long a turn may wait without any activity.
    pub idle_timeout: Option<Duration>,
    pub loop_guard: LoopGuardConfig,
}

impl ModelConfig {
    /// The name of the first model, and its provider.
    pub fn primary_model(&self) -> (String, String) {
        self.endpoints.first().map(|first| (first.model.clone(), first.provider.clone())).unwrap_or_default()
    }
}

/// One conversation of the store.
pub struct Conversation {
    pub(crate) store: Store,
    pub(crate) id: SessionId,
    pub(crate) context: Arc<ToolContext>,
    pub(crate) model: ModelConfig,
    pub(crate) prompt: SystemPrompt,
    pub(crate) history: Vec<Message>,
}

/// A message of the user.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UserInput {
    pub text: String,
    /// The text names the files of these images, because not every model accepts images.
    pub images: Vec<Image>,
}

impl From<&str> for UserInput {
    fn from(text: &str) -> Self {
        Self { text: text.to_owned(), images: Vec::new() }
    }
}

/// Stops and steers a running turn.
#[derive(Clone)]
pub struct TurnControl {
    pub stop: CancellationToken,
    pub(crate) journal: Arc<dyn TurnJournal>,
    pending_steer: Arc<Mutex<Option<PendingSteer>>>,
}

/// Text for a running turn that the model has not seen yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PendingSteer {
    pub text: String,
    /// The messages that it came with.
    pub messages: Vec<InboxId>,
}

impl TurnControl {
    pub fn new(stop: CancellationToken, journal: Arc<dyn TurnJournal>) -> Self {
        Self { stop, journal, pending_steer: Arc::default() }
    }

    /// Gives the model a text together with the next tool result. Once that is stored, the turn
    /// answers the message that the text came with, if there is one.
    pub fn steer(&self, text: String, message: Option<InboxId>) {
        match &mut *lock(&self.pending_steer) {
            Some(pending) => {
                pending.text.push('\n');
                pending.text.push_str(&text);
                pending.messages.extend(message);
            }
            none => *none = Some(PendingSteer { text, messages: message.into_iter().collect() }),
        }
    }

    /// Takes the text that the model has not seen yet.
    pub fn take_pending_steer(&self) -> Option<PendingSteer> {
        lock(&self.pending_steer).take()
    }
}

/// Something that happens in a turn.
#[derive(Debug, Clone, PartialEq)]
pub enum TurnEvent {
    /// The model starts a reply.
    ReplyStarted {
        turn: TurnId,
        /// Steps stored before this reply. It stays the same when another process resumes the turn.
        step: u32,
        /// The part of the reply that came before an interruption.
        partial: String,
    },
    /// More text of the reply.
    Text(String),
    /// More reasoning of the model.
    Reasoning(String),
    /// The request failed and is retried after a delay.
    Retrying { reason: String, delay: Duration },
    /// Another model takes over.
    Fallback { from: String, to: String },
    /// A tool needs a container image that is being pulled.
    Pulling {
        image: String,
        bytes: u64,
        /// Total bytes, as far as they are known.
        total: u64,
    },
    /// A pull has ended.
    Pulled { image: String, succeeded: bool, elapsed: Duration },
    ToolStarted {
        call: CallId,
        tool: String,
        /// The subject of the call in one line.
        preview: String,
    },
    ToolFinished {
        call: CallId,
        tool: String,
        succeeded: bool,
        elapsed: Duration,
        /// The result in one line.
        preview: String,
    },
}

/// Receives the events of a turn.
pub type TurnObserver<'a> = &'a (dyn Fn(TurnEvent) + Send + Sync);

/// The end of a turn.
#[derive(Debug, Clone, PartialEq)]
pub struct TurnResult {
    pub stop_reason: StopReason,
    /// The reply, as far as there is one.
    pub text: String,
    /// Requests to models.
    pub model_calls: u32,
    pub usage: Usage,
    /// US dollars, as far as providers report them.
    pub cost: Option<f64>,
    /// Text that came too late for the model to see.
    pub pending_steer: Option<PendingSteer>,
}

/// Why a turn ended.
#[derive(Debug, Clone, PartialEq, IntoStaticStr)]
#[strum(serialize_all = "lowercase", const_into_str)]
pub enum StopReason {
    Answered,
    /// A person stopped the turn.
    Interrupted,
    /// The limit of model requests is reached.
    #[strum(serialize = "exhausted")]
    BudgetExhausted,
    /// The reply was cut off by the output limit too often.
    Truncated,
    /// The connection to the model broke too often in one reply.
    Disconnected,
    /// The model used the whole output limit for reasoning.
    #[strum(serialize = "reasoning")]
    ReasoningExhausted,
    /// Nothing happened for this long.
    #[strum(serialize = "timeout")]
    TimedOut(Duration),
    /// The model repeated calls without progress.
    Loop,
    /// The model kept returning empty replies.
    #[strum(serialize = "empty")]
    EmptyReply,
    /// The model kept calling tools that do not exist or with unreadable arguments.
    #[strum(serialize = "confused")]
    InvalidCalls,
    /// The model kept trying a denied action in other ways.
    Denied,
    /// The provider filtered the reply.
    Refused(String),
    /// No model answered.
    Failed(hermes_model::Error),
}

impl StopReason {
    pub const fn as_str(&self) -> &'static str {
        self.into_str()
    }

    /// The text to show to a person; none after a normal reply.
    pub fn user_message(&self) -> Option<String> {
        Some(match self {
            Self::Answered => return None,
            Self::Interrupted => "interrupted".to_owned(),
            Self::BudgetExhausted => {
                "stopped: reached the limit of model requests in one turn (`agent.max_turns`)".to_owned()
            }
            Self::Truncated => {
                "stopped: the reply was cut off by the output limit several times; raise `model.max_tokens`"
                    .to_owned()
            }
            Self::Disconnected => "stopped: the connection to the model broke several times".to_owned(),
            Self::ReasoningExhausted => {
                "stopped: the model used the whole output limit for reasoning; lower `agent.reasoning_effort` or \
                 raise `model.max_tokens`"
                    .to_owned()
            }
            Self::TimedOut(limit) => {
                format!("stopped: nothing happened for {} s (`agent.gateway_timeout`)", limit.as_secs())
            }
            Self::Loop => {
                "stopped: the model repeated the same calls without progress (`tool_loop_guardrails`)".to_owned()
            }
            Self::EmptyReply => "stopped: the model returned empty replies".to_owned(),
            Self::InvalidCalls => "stopped: the model kept making invalid tool calls".to_owned(),
            Self::Denied => "stopped: the model kept trying a denied action".to_owned(),
            Self::Refused(reason) if reason.trim().is_empty() => {
                "refused by the model's provider, which gave no reason. Rephrase the request, or choose another \
                 model."
                    .to_owned()
            }
            Self::Refused(reason) => format!("refused by the model's provider: {reason}"),
            Self::Failed(error) => {
                let lines = std::iter::once(error.to_string()).chain(error.hints());
                lines.collect::<Vec<_>>().join("\n")
            }
        })
    }
}

impl Conversation {
    /// Creates a conversation. The first line of `first_message` becomes its title.
    pub async fn create(
        context: Arc<ToolContext>,
        model: ModelConfig,
        prompt: SystemPrompt,
        first_message: &str,
    ) -> Result<Self, Error> {
        let config = context.config();
        let store = config.store.clone();
        let (model_name, provider) = model.primary_model();
        let new = NewSession {
            key: config.session.clone(),
            source: session_source(config),
            person: config.person.clone(),
            model: model_name,
            provider,
            prompt: stored_prompt(&prompt)?,
            cwd: Some(config.place.initial_cwd().to_owned()),
        };
        let id = store.create_session(new, Timestamp::now()).await?;
        let title = truncate_chars(first_message.lines().next().unwrap_or_default(), MAX_TITLE_CHARS);
        if !title.trim().is_empty() {
            store.set_title(&id, title.trim()).await?;
        }
        context.restore_todo(&[]);
        Ok(Self { store, id, context, model, prompt, history: Vec::new() })
    }

    /// Opens a stored conversation.
    pub async fn resume(context: Arc<ToolContext>, model: ModelConfig, id: SessionId) -> Result<Self, Error> {
        let store = context.config().store.clone();
        let stored = store.session_prompt(&id).await?;
        let tools = intern_tools(serde_json::from_str(&stored.tools).map_err(Error::StoredTools)?);
        let prompt = SystemPrompt { text: stored.text, tools };
        store.reopen_session(&id).await?;
        let history: Vec<Message> = store.history(&id).await?.into_iter().map(|row| row.message).collect();
        context.restore_todo(&history);
        context.restore_subscriptions(&history);
        Ok(Self { store, id, context, model, prompt, history })
    }

    pub fn id(&self) -> &SessionId {
        &self.id
    }

    pub fn history(&self) -> &[Message] {
        &self.history
    }

    pub fn model_config(&self) -> &ModelConfig {
        &self.model
    }

    pub fn tool_context(&self) -> &Arc<ToolContext> {
        &self.context
    }

    /// Switches to another model. The new system prompt invalidates the cache of the provider.
    pub async fn set_model(&mut self, model: ModelConfig, prompt: SystemPrompt) -> Result<(), Error> {
        let (model_name, provider) = model.primary_model();
        self.store.set_model(&self.id, &provider, &model_name).await?;
        self.store.set_prompt(&self.id, stored_prompt(&prompt)?).await?;
        self.model = model;
        self.prompt = prompt;
        Ok(())
    }

    /// Removes the last user message and everything after it, and returns it; none if there is
    /// none.
    pub async fn undo(&mut self) -> Result<Option<UserInput>, Error> {
        let Some(at) = self.history.iter().rposition(|message| matches!(message, Message::User { .. }))
        else {
            return Ok(None);
        };
        self.store.undo(&self.id).await?;
        let removed = self.history.split_off(at).into_iter().next();
        Ok(removed.map(|message| UserInput { text: message.text(), images: message.images().to_vec() }))
    }

    /// Ends the conversation, for a reason in one word. It can be resumed.
    pub async fn end(self, reason: &str) -> Result<(), Error> {
        Ok(self.store.end_session(&self.id, reason, Timestamp::now()).await?)
    }
}

/// The entry point, or for chats the platform, which prefixes the ids of its users.
fn session_source(config: &SessionConfig) -> String {
    match (config.entry_point, config.person.as_str().split_once(':')) {
        (EntryPoint::Chat, Some((platform, _))) => platform.to_owned(),
        (entry_point, _) => json!(entry_point).as_str().unwrap_or_default().to_owned(),
    }
}

fn stored_prompt(prompt: &SystemPrompt) -> Result<SessionPrompt, Error> {
    let tools = serde_json::to_string(&*prompt.tools).map_err(Error::StoredTools)?;
    Ok(SessionPrompt { text: prompt.text.clone(), tools })
}
