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

use crate::hands::lock;
use crate::prompt::{Told, shared};
use crate::{GuardRules, Hands, Setup};

/// How much of what was said first becomes the title.
const TITLE: usize = 60;

/// Who answers, and how much they may.
#[derive(Debug, Clone)]
pub struct Mind {
    /// How models are reached.
    pub client: Client,
    /// The model, and those that are asked when it fails.
    pub chain: Vec<Endpoint>,
    /// The longest answer in tokens.
    pub max_output: Option<u32>,
    /// How much it should think.
    pub effort: Option<Effort>,
    /// How it is shown pictures.
    pub sight: Sight,
    /// How often it may be asked in one turn.
    pub budget: u32,
    /// What is done about a model that goes round in circles.
    pub guard: GuardRules,
}

impl Mind {
    /// The model that is asked first, and who serves it.
    fn names(&self) -> (String, String) {
        self.chain.first().map(|first| (first.model.clone(), first.provider.clone())).unwrap_or_default()
    }
}

/// A conversation that can go on.
#[derive(Debug)]
pub struct Conversation {
    pub(crate) store: Store,
    pub(crate) id: SessionId,
    pub(crate) hands: Arc<Hands>,
    pub(crate) mind: Mind,
    pub(crate) told: Told,
    pub(crate) history: Vec<Message>,
}

/// What a person says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Saying {
    /// The words.
    pub text: String,
    /// The pictures that are shown with them. The words say which files they are: not every model sees.
    pub images: Vec<Image>,
}

impl From<&str> for Saying {
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
    Told(serde_json::Error),
}

/// How whoever sits at a door can steer a turn that is under way.
#[derive(Debug, Clone, Default)]
pub struct Control {
    /// Ends it.
    pub stop: CancellationToken,
    /// What it answers and how, where that goes by mail.
    pub mail: Mail,
    steering: Arc<Mutex<Option<Untold>>>,
}

/// What somebody said while a turn was under way, and nobody was told yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Untold {
    /// The words.
    pub words: String,
    /// The letters that said them.
    pub letters: Vec<LetterId>,
}

/// The letters a turn answers, and what is written back. Both are kept with the turn: whatever happens, a letter is answered
/// if its turn has ended, and only then.
#[derive(Clone, Default)]
pub struct Mail {
    /// The letters. A turn that is carried on knows its own.
    pub letters: Vec<LetterId>,
    /// What is written back when a turn ends so, with these words.
    pub reply: Option<Replying>,
}

/// Writes the reply to what a turn answers.
pub type Replying =
    Arc<dyn Fn(&Exit, &str) -> Pin<Box<dyn Future<Output = Vec<NewPart>> + Send>> + Send + Sync>;

impl fmt::Debug for Mail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mail").field("letters", &self.letters).finish_non_exhaustive()
    }
}

impl Control {
    /// For a turn that goes by mail.
    pub fn by_mail(mail: Mail) -> Self {
        Self { mail, ..Self::default() }
    }

    /// Tells the model something with the next result of a tool.
    pub fn steer(&self, text: impl Into<String>) {
        self.tell(text.into(), None);
    }

    /// Tells the model what a letter says with the next result of a tool. Once that is kept the turn answers the letter too.
    pub fn steer_by(&self, letter: LetterId, text: impl Into<String>) {
        self.tell(text.into(), Some(letter));
    }

    fn tell(&self, text: String, letter: Option<LetterId>) {
        let mut untold = lock(&self.steering);
        match &mut *untold {
            Some(untold) => {
                untold.words.push('\n');
                untold.words.push_str(&text);
                untold.letters.extend(letter);
            }
            none => *none = Some(Untold { words: text, letters: letter.into_iter().collect() }),
        }
    }

    /// Takes what nobody has been told yet.
    pub fn untold(&self) -> Option<Untold> {
        lock(&self.steering).take()
    }
}

/// What happens in a turn.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// An answer of the model follows.
    Answering {
        /// In which turn.
        turn: TurnId,
        /// How many steps were kept before it. It has the same number when the turn is carried on elsewhere.
        step: u32,
        /// What was said of it already.
        so_far: String,
    },
    /// More words of the answer.
    Text(String),
    /// More thoughts.
    Reasoning(String),
    /// The model failed and is asked again.
    Retrying {
        /// What was wrong.
        why: String,
        /// After this long.
        wait: Duration,
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
        worked: bool,
        /// How long it took.
        took: Duration,
    },
    /// A tool begins.
    Calling {
        /// Which call it is.
        call: CallId,
        /// The tool.
        tool: String,
        /// What it is about, in one line.
        preview: String,
    },
    /// A tool is done.
    Called {
        /// Which call it was.
        call: CallId,
        /// The tool.
        tool: String,
        /// Whether it worked.
        worked: bool,
        /// How long it took.
        took: Duration,
        /// What came of it, in one line.
        preview: String,
    },
}

/// Who is told what happens.
pub type Watch<'a> = &'a (dyn Fn(Event) + Send + Sync);

/// How a turn ended.
#[derive(Debug, Clone, PartialEq)]
pub struct Ended {
    /// Why.
    pub exit: Exit,
    /// The answer, as far as there is one.
    pub text: String,
    /// How often a model was asked.
    pub calls: u32,
    /// What that took.
    pub usage: Usage,
    /// US dollars, as far as providers said it.
    pub cost: Option<f64>,
    /// What was said meanwhile and the model was not told.
    pub untold: Option<Untold>,
}

/// Why a turn ended.
#[derive(Debug, Clone, PartialEq)]
pub enum Exit {
    /// With an answer.
    Answered,
    /// Somebody ended it.
    Interrupted,
    /// The model was asked as often as it may be.
    Exhausted,
    /// The answer was cut off more often than can be mended.
    Truncated,
    /// The model said nothing, again and again.
    Empty,
    /// The model called tools that are not there, again and again.
    Confused,
    /// The model went round in circles.
    Circling(String),
    /// What was denied was tried again, in other ways.
    Denied,
    /// The provider or the model refused.
    Refused(String),
    /// No model could be reached.
    Failed(hermes_model::Error),
}

impl Exit {
    /// Its word.
    pub const fn word(&self) -> &'static str {
        match self {
            Self::Answered => "answered",
            Self::Interrupted => "interrupted",
            Self::Exhausted => "exhausted",
            Self::Truncated => "truncated",
            Self::Empty => "empty",
            Self::Confused => "confused",
            Self::Circling(_) => "circling",
            Self::Denied => "denied",
            Self::Refused(_) => "refused",
            Self::Failed(_) => "failed",
        }
    }

    /// What a person should know about it; nothing when all is well.
    pub fn explained(&self) -> Option<String> {
        Some(match self {
            Self::Answered => return None,
            Self::Interrupted => "interrupted".to_owned(),
            Self::Exhausted => {
                "stopped: the model was asked as often as `agent.max_turns` allows in one turn".to_owned()
            }
            Self::Truncated => {
                "stopped: the answer was cut off by the output limit again and again; `model.max_tokens` raises it"
                    .to_owned()
            }
            Self::Empty => "stopped: the model answered with nothing, several times".to_owned(),
            Self::Confused => "stopped: the model kept calling tools in ways that cannot be understood".to_owned(),
            Self::Circling(what) => format!("stopped: {what}"),
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
    pub async fn begin(hands: Arc<Hands>, mind: Mind, told: Told, first: &str) -> Result<Self, Error> {
        let setup = hands.setup();
        let store = setup.store.clone();
        let (model, provider) = mind.names();
        let new = NewSession {
            key: setup.session.clone(),
            source: source(setup),
            person: setup.person.clone(),
            model,
            provider,
            prompt: kept(&told)?,
            cwd: Some(setup.plan.initial_cwd().to_owned()),
            parent: None,
        };
        let id = store.create(new, Timestamp::now()).await?;
        let title: String = first.lines().next().unwrap_or_default().chars().take(TITLE).collect();
        if !title.trim().is_empty() {
            store.set_title(&id, title.trim(), Clash::Number).await?;
        }
        hands.recall(&[]);
        Ok(Self { store, id, hands, mind, told, history: Vec::new() })
    }

    /// One that was begun before, as it was left.
    pub async fn resume(hands: Arc<Hands>, mind: Mind, id: SessionId) -> Result<Self, Error> {
        let store = hands.setup().store.clone();
        let prompt = store.prompt(&id).await?;
        let tools = shared(serde_json::from_str(&prompt.tools).map_err(Error::Told)?);
        let told = Told { system: prompt.text, tools };
        store.reopen(&id).await?;
        let history: Vec<Message> = store.history(&id).await?.into_iter().map(|kept| kept.message).collect();
        hands.recall(&history);
        hands.recall_notices(&history);
        Ok(Self { store, id, hands, mind, told, history })
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
    pub fn mind(&self) -> &Mind {
        &self.mind
    }

    /// The hands that do the work.
    pub fn hands(&self) -> &Arc<Hands> {
        &self.hands
    }

    /// Lets another model answer from now on. It is told anew who it is, which costs what its provider had cached.
    pub async fn change_mind(&mut self, mind: Mind, told: Told) -> Result<(), Error> {
        let (model, provider) = mind.names();
        self.store.set_model(&self.id, &provider, &model).await?;
        self.store.set_prompt(&self.id, kept(&told)?).await?;
        (self.mind, self.told) = (mind, told);
        Ok(())
    }

    /// Takes back what was said last, with all that came of it, and gives it; none if nothing was said.
    pub async fn undo(&mut self) -> Result<Option<Saying>, Error> {
        let Some(at) = self.history.iter().rposition(|message| matches!(message, Message::User { .. }))
        else {
            return Ok(None);
        };
        self.store.undo(&self.id, 1).await?;
        let taken = self.history.split_off(at).into_iter().next();
        Ok(taken.map(|said| Saying { text: said.text(), images: said.images().to_vec() }))
    }

    /// Ends it, for a reason in a word. It can be resumed.
    pub async fn end(self, reason: &str) -> Result<(), Error> {
        Ok(self.store.end(&self.id, reason, Timestamp::now()).await?)
    }
}

/// Where a conversation comes from: the door, and for chats the platform, by which the people of it are called.
fn source(setup: &Setup) -> String {
    match (setup.door, setup.person.as_str().split_once(':')) {
        (EntryPoint::Chat, Some((platform, _))) => platform.to_owned(),
        (door, _) => serde_json::to_value(door)
            .ok()
            .and_then(|word| word.as_str().map(str::to_owned))
            .unwrap_or_default(),
    }
}

fn kept(told: &Told) -> Result<Prompt, Error> {
    let tools = serde_json::to_string(&*told.tools).map_err(Error::Told)?;
    Ok(Prompt { text: told.system.clone(), tools })
}
