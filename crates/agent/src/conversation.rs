//! A conversation: what was said, who answers, and the hands that do the work.

use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hermes_model::{Client, Effort, Endpoint, Sight};
use hermes_store::{Clash, LetterId, NewPart, NewSession, Prompt, SessionId, Store, TurnId};
use hermes_types::{CallId, EntryPoint, Image, Message, Timestamp, Usage};
use thiserror::Error;
use tokio_util::sync::CancellationToken;

use crate::prompt::{SystemPrompt, intern_tools};
use crate::tool_context::lock;
use crate::{LoopGuardConfig, SessionConfig, ToolContext};

/// How much of what was said first becomes the title.
const MAX_TITLE_CHARS: usize = 60;

/// Who answers, and how much they may.
#[derive(Debug, Clone)]
pub struct ModelConfig {
    /// How models are reached.
    pub client: Client,
    /// The model, and those that are asked when it fails.
    pub endpoints: Vec<Endpoint>,
    /// The longest answer in tokens.
    pub max_output: Option<u32>,
    /// How much it should think.
    pub effort: Option<Effort>,
    /// How it is shown pictures.
    pub image_mode: Sight,
    /// How often it may be asked in one turn.
    pub max_model_calls: u32,
    /// What is done about a model that goes round in circles.
    pub loop_guard: LoopGuardConfig,
}

impl ModelConfig {
    /// The model that is asked first, and who serves it.
    fn primary_model(&self) -> (String, String) {
        self.endpoints.first().map(|first| (first.model.clone(), first.provider.clone())).unwrap_or_default()
    }
}

/// A conversation that can go on.
#[derive(Debug)]
pub struct Conversation {
    pub(crate) store: Store,
    pub(crate) id: SessionId,
    pub(crate) context: Arc<ToolContext>,
    pub(crate) model: ModelConfig,
    pub(crate) prompt: SystemPrompt,
    pub(crate) history: Vec<Message>,
}

/// What a person says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UserInput {
    /// The words.
    pub text: String,
    /// The pictures that are shown with them. The words say which files they are: not every model sees.
    pub images: Vec<Image>,
}

impl From<&str> for UserInput {
    fn from(text: &str) -> Self {
        Self { text: text.to_owned(), images: Vec::new() }
    }
}

/// What can go wrong with a conversation itself. What a model or a tool does wrong is how a turn [`Ended`].
#[derive(Debug, Error)]
pub enum Error {
    /// What is said cannot be kept, so nothing is done either.
    #[error(transparent)]
    Store(#[from] hermes_store::Error),
    /// What was kept of the session cannot be read.
    #[error("the tool list that was kept with the session cannot be read: {0}")]
    StoredTools(serde_json::Error),
}

/// How whoever sits at a door can steer a turn that is under way.
#[derive(Debug, Clone, Default)]
pub struct TurnControl {
    /// Ends it.
    pub stop: CancellationToken,
    /// What it answers and how, where that goes by mail.
    pub reply_sink: ReplySink,
    pending_steer: Arc<Mutex<Option<PendingSteer>>>,
}

/// What somebody said while a turn was under way, and nobody was told yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PendingSteer {
    /// The words.
    pub text: String,
    /// The letters that said them.
    pub messages: Vec<LetterId>,
}

/// The letters a turn answers, and what is written back. Both are kept with the turn: whatever happens, a letter is answered
/// if its turn has ended, and only then.
#[derive(Clone, Default)]
pub struct ReplySink {
    /// The letters. A turn that is carried on knows its own.
    pub messages: Vec<LetterId>,
    /// What is written back when a turn ends so, with these words.
    pub reply: Option<ReplyFn>,
}

/// Writes the reply to what a turn answers.
pub type ReplyFn =
    Arc<dyn Fn(&StopReason, &str) -> Pin<Box<dyn Future<Output = Vec<NewPart>> + Send>> + Send + Sync>;

impl fmt::Debug for ReplySink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mail").field("letters", &self.messages).finish_non_exhaustive()
    }
}

impl TurnControl {
    /// For a turn that goes by mail.
    pub fn with_reply_sink(mail: ReplySink) -> Self {
        Self { reply_sink: mail, ..Self::default() }
    }

    /// Tells the model something with the next result of a tool.
    pub fn steer(&self, text: impl Into<String>) {
        self.push_steer(text.into(), None);
    }

    /// Tells the model what a letter says with the next result of a tool. Once that is kept the turn answers the letter too.
    pub fn steer_with_message(&self, letter: LetterId, text: impl Into<String>) {
        self.push_steer(text.into(), Some(letter));
    }

    fn push_steer(&self, text: String, letter: Option<LetterId>) {
        let mut untold = lock(&self.pending_steer);
        match &mut *untold {
            Some(untold) => {
                untold.text.push('\n');
                untold.text.push_str(&text);
                untold.messages.extend(letter);
            }
            none => *none = Some(PendingSteer { text, messages: letter.into_iter().collect() }),
        }
    }

    /// Takes what nobody has been told yet.
    pub fn take_pending_steer(&self) -> Option<PendingSteer> {
        lock(&self.pending_steer).take()
    }
}

/// What happens in a turn.
#[derive(Debug, Clone, PartialEq)]
pub enum TurnEvent {
    /// An answer of the model follows.
    ReplyStarted {
        /// In which turn.
        turn: TurnId,
        /// How many steps were kept before it. It has the same number when the turn is carried on elsewhere.
        step: u32,
        /// What was said of it already.
        partial: String,
    },
    /// More words of the answer.
    Text(String),
    /// More thoughts.
    Reasoning(String),
    /// The model failed and is asked again.
    Retrying {
        /// What was wrong.
        reason: String,
        /// After this long.
        delay: Duration,
    },
    /// Another model is asked.
    Fallback {
        /// The one that failed.
        from: String,
        /// The one that is asked.
        to: String,
    },
    /// An image that a tool needs is fetched.
    Pulling {
        /// Which one.
        image: String,
        /// Bytes that are here.
        bytes: u64,
        /// Bytes that there are, as far as that is known.
        total: u64,
    },
    /// It is there, or will not come.
    Pulled {
        /// Which one.
        image: String,
        /// Whether it is there.
        succeeded: bool,
        /// How long it took.
        elapsed: Duration,
    },
    /// A tool begins.
    ToolStarted {
        /// Which call it is.
        call: CallId,
        /// The tool.
        tool: String,
        /// What it is about, in one line.
        preview: String,
    },
    /// A tool is done.
    ToolFinished {
        /// Which call it was.
        call: CallId,
        /// The tool.
        tool: String,
        /// Whether it worked.
        succeeded: bool,
        /// How long it took.
        elapsed: Duration,
        /// What came of it, in one line.
        preview: String,
    },
}

/// Who is told what happens.
pub type TurnObserver<'a> = &'a (dyn Fn(TurnEvent) + Send + Sync);

/// How a turn ended.
#[derive(Debug, Clone, PartialEq)]
pub struct TurnResult {
    /// Why.
    pub stop_reason: StopReason,
    /// The answer, as far as there is one.
    pub text: String,
    /// How often a model was asked.
    pub model_calls: u32,
    /// What that took.
    pub usage: Usage,
    /// US dollars, as far as providers said it.
    pub cost: Option<f64>,
    /// What was said meanwhile and the model was not told.
    pub pending_steer: Option<PendingSteer>,
}

/// Why a turn ended.
#[derive(Debug, Clone, PartialEq)]
pub enum StopReason {
    /// With an answer.
    Answered,
    /// Somebody ended it.
    Interrupted,
    /// The model was asked as often as it may be.
    BudgetExhausted,
    /// The answer was cut off more often than can be mended.
    Truncated,
    /// The model said nothing, again and again.
    EmptyReply,
    /// The model called tools that are not there, again and again.
    InvalidCalls,
    /// The model went round in circles.
    Loop(String),
    /// What was denied was tried again, in other ways.
    Denied,
    /// The provider or the model refused.
    Refused(String),
    /// No model could be reached.
    Failed(hermes_model::Error),
}

impl StopReason {
    /// Its word.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Answered => "answered",
            Self::Interrupted => "interrupted",
            Self::BudgetExhausted => "exhausted",
            Self::Truncated => "truncated",
            Self::EmptyReply => "empty",
            Self::InvalidCalls => "confused",
            Self::Loop(_) => "circling",
            Self::Denied => "denied",
            Self::Refused(_) => "refused",
            Self::Failed(_) => "failed",
        }
    }

    /// What a person should know about it; nothing when all is well.
    pub fn user_message(&self) -> Option<String> {
        Some(match self {
            Self::Answered => return None,
            Self::Interrupted => "interrupted".to_owned(),
            Self::BudgetExhausted => {
                "stopped: the model was asked as often as `agent.max_turns` allows in one turn".to_owned()
            }
            Self::Truncated => {
                "stopped: the answer was cut off by the output limit again and again; `model.max_tokens` raises it"
                    .to_owned()
            }
            Self::EmptyReply => "stopped: the model answered with nothing, several times".to_owned(),
            Self::InvalidCalls => "stopped: the model kept calling tools in ways that cannot be understood".to_owned(),
            Self::Loop(what) => format!("stopped: {what}"),
            Self::Denied => "stopped: what was denied was tried again in other ways".to_owned(),
            Self::Refused(why) => format!("refused by the model's provider: {why}"),
            Self::Failed(error) => match error.hint() {
                Some(hint) => format!("{error}\n{hint}"),
                None => error.to_string(),
            },
        })
    }
}

impl Conversation {
    /// A new one, with what the model is told first.
    pub async fn create(
        hands: Arc<ToolContext>,
        mind: ModelConfig,
        told: SystemPrompt,
        first: &str,
    ) -> Result<Self, Error> {
        let setup = hands.config();
        let store = setup.store.clone();
        let (model, provider) = mind.primary_model();
        let new = NewSession {
            key: setup.session.clone(),
            source: session_source(setup),
            person: setup.person.clone(),
            model,
            provider,
            prompt: stored_prompt(&told)?,
            cwd: Some(setup.place.initial_cwd().to_owned()),
            parent: None,
        };
        let id = store.create(new, Timestamp::now()).await?;
        let title: String = first.lines().next().unwrap_or_default().chars().take(MAX_TITLE_CHARS).collect();
        if !title.trim().is_empty() {
            store.set_title(&id, title.trim(), Clash::Number).await?;
        }
        hands.restore_todo(&[]);
        Ok(Self { store, id, context: hands, model: mind, prompt: told, history: Vec::new() })
    }

    /// One that was begun before, as it was left.
    pub async fn resume(hands: Arc<ToolContext>, mind: ModelConfig, id: SessionId) -> Result<Self, Error> {
        let store = hands.config().store.clone();
        let prompt = store.prompt(&id).await?;
        let tools = intern_tools(serde_json::from_str(&prompt.tools).map_err(Error::StoredTools)?);
        let told = SystemPrompt { text: prompt.text, tools };
        store.reopen(&id).await?;
        let history: Vec<Message> = store.history(&id).await?.into_iter().map(|kept| kept.message).collect();
        hands.restore_todo(&history);
        hands.restore_subscriptions(&history);
        Ok(Self { store, id, context: hands, model: mind, prompt: told, history })
    }

    /// Which one it is.
    pub fn id(&self) -> &SessionId {
        &self.id
    }

    /// What was said.
    pub fn history(&self) -> &[Message] {
        &self.history
    }

    /// Who answers.
    pub fn model_config(&self) -> &ModelConfig {
        &self.model
    }

    /// The hands that do the work.
    pub fn tool_context(&self) -> &Arc<ToolContext> {
        &self.context
    }

    /// Lets another model answer from now on. It is told anew who it is, which costs what its provider had cached.
    pub async fn set_model(&mut self, mind: ModelConfig, told: SystemPrompt) -> Result<(), Error> {
        let (model, provider) = mind.primary_model();
        self.store.set_model(&self.id, &provider, &model).await?;
        self.store.set_prompt(&self.id, stored_prompt(&told)?).await?;
        (self.model, self.prompt) = (mind, told);
        Ok(())
    }

    /// Takes back what was said last, with all that came of it, and gives it; none if nothing was said.
    pub async fn undo(&mut self) -> Result<Option<UserInput>, Error> {
        let Some(at) = self.history.iter().rposition(|message| matches!(message, Message::User { .. }))
        else {
            return Ok(None);
        };
        self.store.undo(&self.id, 1).await?;
        let taken = self.history.split_off(at).into_iter().next();
        Ok(taken.map(|said| UserInput { text: said.text(), images: said.images().to_vec() }))
    }

    /// Ends it, for a reason in a word. It can be resumed.
    pub async fn end(self, reason: &str) -> Result<(), Error> {
        Ok(self.store.end(&self.id, reason, Timestamp::now()).await?)
    }
}

/// Where a conversation comes from: the door, and for chats the platform, by which the people of it are called.
fn session_source(setup: &SessionConfig) -> String {
    match (setup.entry_point, setup.person.as_str().split_once(':')) {
        (EntryPoint::Chat, Some((platform, _))) => platform.to_owned(),
        (door, _) => serde_json::to_value(door)
            .ok()
            .and_then(|word| word.as_str().map(str::to_owned))
            .unwrap_or_default(),
    }
}

fn stored_prompt(told: &SystemPrompt) -> Result<Prompt, Error> {
    let tools = serde_json::to_string(&*told.tools).map_err(Error::StoredTools)?;
    Ok(Prompt { text: told.text.clone(), tools })
}
