//! One session: its task works on one letter after the other, and hears what is said meanwhile.

mod ask;
mod files;
mod live;
mod obey;
mod words;

use std::collections::VecDeque;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use hermes_agent::{
    Conversation, PendingSteer, ReplyFn, ReplySink, StopReason, ToolContext, TurnControl, TurnEvent,
    TurnResult, UserInput,
};
use hermes_store::{LetterId, Store, TurnId};
use hermes_types::{Attendance, Image, Message, Person, SessionKey, Timestamp};
use tokio::sync::{mpsc, oneshot};

use crate::beside::Task;
use crate::channel::{Channel, Sign, Waiting};
use crate::command::{self, Command};
use crate::gateway::Shared;
use crate::house::Visit;
use crate::letter::{Letter, Remark, ReplyPlace};
use crate::people::{Admission, Tier};
use ask::ChatAsk;
pub(crate) use ask::{answered, pressed};
use files::Carrier;
use live::Live;
pub use live::{Progress, Showing};
pub(crate) use words::{part, parts};

/// Letters that wait for a session; whoever sends more is told so.
pub(crate) const MAILBOX: usize = 64;
/// How long a session that has nothing to do stays in memory.
const LINGER: Duration = Duration::from_secs(60);
/// A letter that is older than this is answered with a word about it.
const LATE: u64 = 600;
/// How often opening a thread is tried.
const TRIES: u32 = 3;

/// What a turn begins with.
#[derive(Debug, Clone, Copy)]
enum Begin<'a> {
    /// A letter, with its files.
    Letter,
    /// Words.
    Words(&'a str),
    /// What another turn left.
    Left,
}

/// What a session is given to work on.
#[derive(Debug)]
pub(crate) struct Item {
    /// What it is in the inbox.
    pub(crate) id: LetterId,
    /// What it says.
    pub(crate) letter: Letter,
    /// Pictures that it shows besides those among its files.
    pub(crate) images: Vec<Image>,
    /// Who wrote it.
    pub(crate) person: Person,
    /// What they may do.
    pub(crate) tier: Tier,
    /// Who may answer questions about it.
    pub(crate) approvers: Vec<Person>,
    /// The turn that began to answer it before hermes was restarted.
    pub(crate) turn: Option<TurnId>,
    /// What is said with the answer.
    pub(crate) notes: Vec<String>,
}

impl Item {
    /// The same with other words.
    fn saying(self, text: String) -> Self {
        Self { letter: Letter { text, ..self.letter }, ..self }
    }

    /// The same, saying again what was said before.
    fn repeating(self, saying: UserInput) -> Self {
        Self { images: saying.images, ..self.saying(saying.text) }
    }
}

/// What is done about a letter while another one is worked on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Busy {
    /// It waits.
    Queue,
    /// The work is ended, and it is next.
    Interrupt,
    /// The model is told with the next result of a tool.
    Steer,
}

/// The task of one session.
pub(crate) struct Session {
    shared: Arc<Shared>,
    key: SessionKey,
    mailbox: mpsc::Receiver<Item>,
    /// What is next, before what is in the mailbox.
    next: VecDeque<Item>,
    /// What was said during the turn that is under way, for the model to hear in it.
    steering: Vec<Item>,
    hands: Option<Arc<ToolContext>>,
    conversation: Option<Conversation>,
    ask: Arc<ChatAsk>,
    /// The model somebody chose.
    model: Option<String>,
    /// What was answered last.
    last: Option<Item>,
    /// Whether people were told that too much waits here.
    is_full: bool,
    /// What is worked on here, if it is beside the conversation of a chat.
    task: Option<Task>,
}

impl Session {
    pub(crate) fn new(
        shared: Arc<Shared>,
        key: SessionKey,
        mailbox: mpsc::Receiver<Item>,
        first: &Letter,
    ) -> Self {
        let ask = Arc::new(ChatAsk::new(Arc::clone(&shared), key.clone(), first.room.clone()));
        let task = shared.beside.enter(&key, words::title(&first.text));
        Self {
            task,
            shared,
            key,
            mailbox,
            next: VecDeque::new(),
            steering: Vec::new(),
            hands: None,
            conversation: None,
            ask,
            model: None,
            last: None,
            is_full: false,
        }
    }

    /// Works until there is nothing to do.
    pub(crate) async fn run(mut self) {
        match self.task.clone() {
            Some(task) => self.complete(&task).await,
            None => self.serve().await,
        }
    }

    /// Works on one letter and on all that comes of it. Nothing is left of it then but the answer.
    async fn complete(&mut self, task: &Task) {
        // The letter is there as soon as the session is.
        let Some(item) = self.mailbox.recv().await else { return };
        let (room, person) = (item.letter.room.clone(), item.person.clone());
        self.take(item).await;
        while let Some(hands) = self.hands.clone().filter(|hands| hands.has_subscriptions()) {
            tokio::select! {
                biased;
                () = task.stop.cancelled() => break,
                // Whoever comes next finds what runs in the place.
                None = self.mailbox.recv() => return,
                notice = hands.next_process_event() => self.hear(&notice).await,
            }
        }
        if let Err(why) = self.finish("done", (&room, &person)).await {
            tracing::warn!(why, "something is left of what was worked on beside a conversation");
        }
        self.shared.beside.leave(&self.key);
        self.shared.leave(&self.key, &self.mailbox);
    }

    /// Works until there was nothing to do for a while, and nothing is awaited.
    async fn serve(&mut self) {
        loop {
            if let Some(item) = self.next.pop_front() {
                self.take(item).await;
                continue;
            }
            let hands = self.hands.clone();
            let notice = async {
                match &hands {
                    Some(hands) => hands.next_process_event().await,
                    None => pending().await,
                }
            };
            tokio::select! {
                biased;
                item = self.mailbox.recv() => match item {
                    Some(item) => self.take(item).await,
                    None => return,
                },
                notice = notice => self.hear(&notice).await,
                () = tokio::time::sleep(LINGER) => {
                    let awaits = hands.is_some_and(|hands| hands.has_subscriptions());
                    if !awaits && self.shared.leave(&self.key, &self.mailbox) {
                        return;
                    }
                }
            }
        }
    }

    /// Tells the model what a background process has to tell. What comes of it is said to whoever spoke last.
    async fn hear(&mut self, notice: &str) {
        let Some(item) = self.last.take() else { return };
        // A process of somebody who is let in no longer would speak to the model in their place.
        match self.shared.people.admit(&item.letter.room, &item.letter.sender).await {
            Ok(Admission::In(_)) => {}
            Ok(Admission::Stranger(_)) => {
                let person = item.person.as_str();
                return tracing::info!(person, "a notice for somebody who is let in no longer is not told");
            }
            Err(error) => return tracing::error!(%error, "nobody knows whether somebody is let in"),
        }
        if let Err(why) = self.attend(&item, Begin::Words(notice)).await {
            tracing::warn!(why, "a notice of a background process could not be told");
        }
        self.last = Some(item);
        self.shared.office.wake();
    }

    async fn take(&mut self, mut item: Item) {
        self.is_full = false;
        match self.settle(&mut item).await {
            Ok(None) => {}
            Ok(Some(other)) => return self.shared.give(&other, item).await,
            Err(why) => return self.say(&item, &why).await,
        }
        self.ask.enter(&item);
        match Command::read(&item.letter).filter(|_| item.turn.is_none() && self.task.is_none()) {
            Some(command) => self.obey(item, command).await,
            None => {
                self.begin_anew_if_due(&mut item).await;
                self.answer(item).await;
            }
        }
    }

    /// Ends a conversation that nobody went on with, before a letter is answered in it.
    async fn begin_anew_if_due(&mut self, item: &mut Item) {
        let Ok(Some(current)) = self.store().current(&self.key).await else { return };
        let Some(over) = self.shared.reset.over(current.touched, item.letter.sent.min(Timestamp::now()))
        else {
            return;
        };
        // What is not done is gone on with first, whoever began it.
        let is_done = item.turn.is_none() && matches!(self.store().turn(&current.id).await, Ok(None));
        let room = &item.letter.room;
        if !is_done || self.shared.house.is_busy(&self.key, room, &item.person).await {
            return;
        }
        let left = self.finish(over.word(), (room, &item.person)).await.err();
        if let Some(why) = &left {
            tracing::warn!(why, "a conversation that is over could not be put away");
        }
        if self.shared.reset.notify {
            item.notes.push(over.told());
            item.notes.extend(left);
        }
    }

    /// Opens the thread that the answer is wanted in. Where that cannot be, the answer is given where it was asked. Gives the
    /// session of the thread, if that is another one: whoever opens a thread may call it as they like.
    async fn settle(&mut self, item: &mut Item) -> Result<Option<SessionKey>, String> {
        let ReplyPlace::Thread(name) = &item.letter.reply else { return Ok(None) };
        let name = name.clone();
        let mut key = self.key.clone();
        for attempt in 0..TRIES {
            match self.shared.channel.open_thread(&item.letter, &name).await {
                Ok(room) => {
                    self.shared.joined(&room).await;
                    key = self.shared.key_in(&room, &item.letter.sender);
                    item.letter.room = room;
                    break;
                }
                Err(error) => {
                    tracing::warn!(%error, attempt, "a thread could not be opened");
                    if matches!(error, crate::Undelivered::Never(_)) || attempt + 1 == TRIES {
                        item.notes.push(format!("no thread could be opened for this: {error}"));
                        break;
                    }
                    tokio::time::sleep(Duration::from_secs(u64::from(attempt) + 1)).await;
                }
            }
        }
        item.letter.reply = ReplyPlace::Here;
        let event = serde_json::to_value(&item.letter).map_err(|error| error.to_string())?;
        self.store().readdress(item.id, &key, event).await.map_err(|error| error.to_string())?;
        Ok((key != self.key).then_some(key))
    }

    fn store(&self) -> &Store {
        &self.shared.store
    }

    fn channel(&self) -> &Arc<dyn Channel> {
        &self.shared.channel
    }

    /// Answers a letter with words of ours.
    async fn say(&self, item: &Item, text: &str) {
        let text = words::headed(self.task.as_ref(), text);
        let parts = words::parts(&self.shared.channel, &self.key, &item.letter, &text);
        self.shared.put(vec![item.id], parts).await;
        if let Some(interaction) = item.letter.interaction.clone() {
            let channel = Arc::clone(self.channel());
            self.shared.aside(async move { channel.whisper(&interaction, "done").await });
        }
    }

    /// Has a letter answered by the model.
    async fn answer(&mut self, mut item: Item) {
        self.shared.office.answering(&self.key, &item.letter);
        let (channel, letter) = (Arc::clone(self.channel()), item.letter.clone());
        // Nothing waits for the platform but what is shown after it.
        let seen = tokio::spawn(async move {
            if letter.interaction.is_none() {
                channel.mark(&letter, Sign::Seen).await;
            }
        });
        let sign = match self.work(&item).await {
            Ok(StopReason::Answered) => Sign::Done,
            Ok(StopReason::Interrupted) => Sign::Nothing,
            Ok(_) => Sign::Failed,
            Err(why) => {
                self.say(&item, &why).await;
                Sign::Failed
            }
        };
        self.shared.office.wake();
        let (channel, letter) = (Arc::clone(self.channel()), item.letter.clone());
        let (office, key) = (Arc::clone(&self.shared.office), self.key.clone());
        self.shared.aside(async move {
            seen.await.ok();
            let sign = if office.has_lost(&key) { Sign::Failed } else { sign };
            match &letter.interaction {
                Some(interaction) => channel.whisper(interaction, "done").await,
                None => channel.mark(&letter, sign).await,
            }
        });
        // They were said.
        item.notes.clear();
        self.last = Some(item);
    }

    async fn work(&mut self, item: &Item) -> Result<StopReason, String> {
        let told = |error: hermes_store::Error| error.to_string();
        self.open(item).await?;
        let Some(conversation) = &self.conversation else {
            return Err("there is no conversation".to_owned());
        };
        let open = self.store().turn(conversation.id()).await.map_err(told)?;
        let is_ours = open.as_ref().is_some_and(|open| Some(open.id) == item.turn);
        if open.is_some() {
            // Something was not ended before hermes was restarted. It comes first, whoever began it.
            let ended = self.attend(item, Begin::Left).await?;
            if is_ours {
                return Ok(ended.stop_reason);
            }
        } else if item.turn.is_some() && self.is_done(item).await? {
            return Ok(StopReason::Answered);
        }
        Ok(self.attend(item, Begin::Letter).await?.stop_reason)
    }

    /// Whether a letter was answered meanwhile.
    async fn is_done(&self, item: &Item) -> Result<bool, String> {
        let platform = item.letter.room.platform.word();
        let waiting = self.store().waiting_letters(platform).await.map_err(|error| error.to_string())?;
        Ok(!waiting.iter().any(|letter| letter.id == item.id))
    }

    /// Has something answered, or what was not answered to its end, while it hears what comes.
    async fn attend(&mut self, item: &Item, begin: Begin<'_>) -> Result<TurnResult, String> {
        let (Some(mut conversation), Some(hands)) = (self.conversation.take(), self.hands.clone()) else {
            return Err("there is no conversation".to_owned());
        };
        let letters = match begin {
            Begin::Letter => vec![item.id],
            Begin::Words(_) | Begin::Left => Vec::new(),
        };
        let live = self.live(item, &conversation, begin).await;
        let mut control = TurnControl::with_reply_sink(ReplySink { messages: letters, reply: None });
        if let Some(task) = &self.task {
            control.stop = task.stop.clone();
        }
        let carrier =
            Carrier { hands: Arc::clone(&hands), stop: control.stop.clone(), person: item.person.clone() };
        control.reply_sink.reply = Some(self.reply(item, Arc::clone(&live), carrier));
        let shared = Arc::clone(&self.shared);
        let (key, person, shown) = (self.key.clone(), item.person.clone(), Arc::clone(&live));
        let furniture = Arc::clone(&hands);
        let watch = move |event: TurnEvent| {
            shared.heard(&key, &person, furniture.config(), &event);
            shown.hear(&event);
        };
        let (shared, own_key) = (Arc::clone(&self.shared), self.key.clone());
        let ended = {
            let mut turn: Waiting<'_, _> = match begin {
                Begin::Letter => Box::pin(async {
                    // Whatever is kept of the turn says where the files are: they are fetched once.
                    let files = files::come(&shared, &hands, &item.letter, &control.stop).await;
                    let remarks = remarks(&shared, &own_key, &item.letter).await;
                    let text =
                        words::told(&item.letter, &remarks, &files.lines, shared.sharing, Timestamp::now());
                    let saying = UserInput { text, images: [item.images.clone(), files.images].concat() };
                    conversation.run_turn(saying, &control, &watch).await.map(Some)
                }),
                Begin::Words(text) => {
                    let said = conversation.run_turn(text, &control, &watch);
                    Box::pin(async { said.await.map(Some) })
                }
                Begin::Left => Box::pin(conversation.resume_turn(&control, &watch)),
            };
            let mut typing = tokio::time::interval(self.channel().manners().typing);
            loop {
                tokio::select! {
                    ended = &mut turn => break ended,
                    Some(other) = self.mailbox.recv() => self.meanwhile(other, &control).await,
                    _ = typing.tick() => {
                        if !self.ask.is_waiting() {
                            let (channel, chat) = (Arc::clone(self.channel()), item.letter.room.chat.clone());
                            self.shared.aside(async move { channel.typing(&chat).await });
                        }
                    }
                }
            }
        };
        self.conversation = Some(conversation);
        live.halt().await;
        match &ended {
            Ok(Some(ended)) => self.go_on_with(ended.pending_steer.clone(), &ended.stop_reason).await,
            _ => self.go_on_with(control.take_pending_steer(), &StopReason::Answered).await,
        }
        match ended {
            Ok(Some(ended)) => Ok(ended),
            Ok(None) => Err("there was nothing to go on with".to_owned()),
            Err(error) => Err(format!("this could not be worked on: {error}")),
        }
    }

    /// What will be seen of a turn, also of one that was begun before.
    async fn live(&self, item: &Item, conversation: &Conversation, begin: Begin<'_>) -> Arc<Live> {
        let open = match begin {
            Begin::Letter | Begin::Words(_) => None,
            Begin::Left => self.store().turn(conversation.id()).await.ok().flatten(),
        };
        let past = open.map_or_else(
            || (Timestamp::now(), Vec::new()),
            |open| {
                let since = conversation.history().iter().rev();
                let since = since.take_while(|message| !matches!(message, Message::User { .. }));
                (open.started, since.flat_map(Message::calls).map(|call| call.id.clone()).collect())
            },
        );
        Live::begin(
            Arc::clone(&self.shared),
            self.key.clone(),
            item.letter.clone(),
            Arc::clone(&self.ask),
            self.task.clone(),
            past,
        )
    }

    /// What is written back when a turn ends.
    fn reply(&self, item: &Item, live: Arc<Live>, carrier: Carrier) -> ReplyFn {
        let late = words::lateness(&item.letter, Timestamp::now(), LATE);
        let notes: Vec<String> = late.into_iter().chain(item.notes.iter().cloned()).collect();
        let how = Arc::new((live, notes, carrier));
        Arc::new(move |exit: &StopReason, text: &str| {
            let (how, exit, text) = (Arc::clone(&how), exit.clone(), text.to_owned());
            Box::pin(async move {
                let (live, notes, carrier) = &*how;
                live.end(&exit, &text, notes, carrier).await
            })
        })
    }

    /// Answers next what the model was not told, each as if it had waited. What was told is answered by the turn that heard
    /// it; what was meant for a turn that somebody ended has ended with it.
    async fn go_on_with(&mut self, untold: Option<PendingSteer>, exit: &StopReason) {
        let letters = untold.map(|untold| untold.messages).unwrap_or_default();
        let untold = self.steering.drain(..).filter(|item| letters.contains(&item.id));
        if *exit != StopReason::Interrupted {
            let waiting = std::mem::take(&mut self.next);
            self.next = untold.chain(waiting).collect();
            return;
        }
        drop(untold);
        self.shared.put(letters, Vec::new()).await;
    }

    /// Hears something while a turn is under way.
    async fn meanwhile(&mut self, item: Item, control: &TurnControl) {
        let command = Command::read(&item.letter);
        if command.is_none()
            && let Some(wanted) = self.ask.wanted(&item)
        {
            return self.clarify(item, wanted, control);
        }
        if let Some(command) = &command
            && let Err(why) = self.shared.people.may_use(&item.letter.room, item.tier, command)
        {
            return self.say(&item, &why).await;
        }
        match (command, self.shared.busy) {
            (Some(Command::Stop(extent)), _) => {
                control.stop.cancel();
                self.stop_beside(extent);
                self.say(&item, "stopped").await;
            }
            (Some(Command::New), _) => {
                control.stop.cancel();
                self.next.push_front(item);
            }
            (Some(Command::Steer(text)), _) => self.steer(item.saying(text), control).await,
            (Some(Command::Queue(text)), _) => self.wait(item.saying(text)).await,
            (Some(command), _) if command.busy() == command::Busy::Works => self.obey(item, command).await,
            (Some(_), _) => {
                self.say(&item, "something is under way: wait for it, or end it with /stop").await
            }
            (None, Busy::Queue) => self.wait(item).await,
            (None, Busy::Interrupt) => {
                control.stop.cancel();
                self.next.push_front(item);
            }
            (None, Busy::Steer) => self.steer(item, control).await,
        }
    }

    /// Gives the model what it asked somebody for, with its files. If it stopped waiting meanwhile, it is said like anything
    /// else.
    fn clarify(&self, item: Item, wanted: oneshot::Sender<String>, control: &TurnControl) {
        let (shared, hands) = (Arc::clone(&self.shared), self.hands.clone());
        let (key, stop) = (self.key.clone(), control.stop.clone());
        self.shared.aside(async move {
            let files = match &hands {
                Some(hands) => files::come(&shared, hands, &item.letter, &stop).await,
                None => files::Came::default(),
            };
            match wanted.send(words::with_files(&item.letter.text, &files.lines)) {
                Ok(()) => shared.done(item.id).await,
                Err(_unheard) => shared.give(&key, item).await,
            }
        });
    }

    async fn wait(&mut self, item: Item) {
        if self.next.len() < MAILBOX {
            return self.next.push_back(item);
        }
        // It is said once; of the others each shows that it was not read.
        if std::mem::replace(&mut self.is_full, true) {
            self.shared.done(item.id).await;
        } else {
            self.say(&item, "too much is waiting here already; say it again later").await;
        }
        let channel = Arc::clone(self.channel());
        self.shared.aside(async move { channel.mark(&item.letter, Sign::Failed).await });
    }

    /// Has the model told in the turn that is under way. What has files waits for a turn of its own, which fetches them.
    async fn steer(&mut self, item: Item, control: &TurnControl) {
        if self.steering.len() >= MAILBOX || !item.letter.files.is_empty() {
            return self.wait(item).await;
        }
        let text = words::told(&item.letter, &[], &[], self.shared.sharing, Timestamp::now());
        control.steer_with_message(item.id, text);
        self.steering.push(item);
    }

    /// Makes sure that there is a conversation, with hands that serve whoever wrote this.
    async fn open(&mut self, item: &Item) -> Result<(), String> {
        let kept = self.store().current(&self.key).await.map_err(|error| error.to_string())?;
        let kept = kept.map(|session| session.id);
        if self.conversation.as_ref().is_some_and(|known| kept.as_ref() != Some(known.id())) {
            // Its owner ended or removed it, and its place with it.
            (self.conversation, self.hands) = (None, None);
        }
        let attendance = Attendance::Attended(item.approvers.clone());
        let hands = match &self.hands {
            Some(hands) => Arc::clone(hands),
            None => {
                let visit = Visit {
                    key: self.key.clone(),
                    room: item.letter.room.clone(),
                    person: item.person.clone(),
                    attendance: attendance.clone(),
                    ask: Arc::clone(&self.ask) as Arc<dyn hermes_agent::Approver>,
                };
                let hands = Arc::new(ToolContext::new(self.shared.house.furnish(visit).await?));
                self.hands = Some(Arc::clone(&hands));
                hands
            }
        };
        hands.set_actor(item.person.clone(), attendance);
        hands.set_question_policy(self.shared.questions(&self.key));
        if self.conversation.is_some() {
            return Ok(());
        }
        let mind = self.shared.house.mind(self.model.as_deref())?;
        let conversation = match kept {
            Some(kept) => Conversation::resume(hands, mind, kept).await,
            None => {
                let model = mind.endpoints.first().map(|first| first.model.clone()).unwrap_or_default();
                let told = self.shared.house.told(hands.config(), &model, &item.letter.room);
                Conversation::create(hands, mind, told, &item.letter.text).await
            }
        };
        self.conversation = Some(conversation.map_err(|error| error.to_string())?);
        Ok(())
    }
}

/// What others said before a letter, without what the model of this session was told already.
async fn remarks(shared: &Shared, key: &SessionKey, letter: &Letter) -> Vec<Remark> {
    let mut remarks = shared.channel.before(letter).await;
    if remarks.is_empty() {
        return remarks;
    }
    let messages = remarks.iter().map(|remark| remark.message.clone()).collect();
    let (word, chat) = (letter.room.platform.word(), &letter.room.chat);
    match shared.store.letters_among(word, chat, key, messages).await {
        Ok(told) => remarks.retain(|remark| !told.contains(&remark.message)),
        Err(error) => {
            tracing::warn!(%error, "what was said before a letter cannot be sorted");
            remarks.clear();
        }
    }
    remarks
}
