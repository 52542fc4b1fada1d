//! The way of a letter: known already, let in, kept, and given to its session.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hermes_agent::{QuestionPolicy, SessionConfig, TurnEvent};
use hermes_store::{Answer, Choice, LetterId, NewLetter, NewPart, Store, TurnId};
use hermes_types::{Person, SessionKey, Timestamp};
use serde_json::json;
use tokio::sync::oneshot::error::TryRecvError;
use tokio::sync::{mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::audit::Audit;
use crate::beside::Beside;
use crate::channel::{Arrival, Channel, Desk, Health, Incoming, Post, Sign, Unfit, Waiting};
use crate::command::Command;
use crate::depot::{self, Depot};
use crate::house::House;
use crate::key::{Sharing, session_key};
use crate::letter::{Letter, Press, ReplyPlace, Room, RoomKind, Sender};
use crate::limit::{Limiter, Pace};
use crate::media::Media;
use crate::office::Office;
use crate::people::{Admission, Behavior, People, Tier};
use crate::reset::Reset;
use crate::session::{self, Busy, Item, MAILBOX, Session, Showing};

/// Letters and presses that may wait to be looked at.
const ARRIVALS: usize = 256;
/// How many of them are kept at once.
const BATCH: usize = 64;
/// How long answered letters are remembered, so that they are not answered again, and files that came with them are kept on
/// this machine.
const REMEMBERED: u64 = 7 * 24 * 3_600;
/// How often what nobody needs any more is looked for.
const TIDIES: Duration = Duration::from_secs(3_600);
/// How long whatever is under way may take when the gateway ends.
const DRAIN: Duration = Duration::from_secs(30);
/// How long what is still to be delivered may take then.
const FAREWELL: Duration = Duration::from_secs(5);
/// How long to wait before the store is asked again after it failed.
pub(crate) const STORE_PAUSE: Duration = Duration::from_secs(1);
/// How often it is looked whether it was.
const LOOK: Duration = Duration::from_millis(50);

/// How often the same stranger is noted.
const STRANGERS: Pace = Pace { per_minute: 1, burst: 1 };

/// How a gateway behaves.
#[derive(Debug, Clone)]
pub struct Rules {
    /// Who shares a session.
    pub sharing: Sharing,
    /// What is done about what is said while something is under way.
    pub busy: Busy,
    /// How much one person may say.
    pub pace: Pace,
    /// What is seen of work that is under way.
    pub showing: Showing,
    /// When a conversation that nobody went on with is over.
    pub reset: Reset,
    /// What becomes of files.
    pub media: Media,
}

/// One channel and everything behind it.
#[derive(Debug)]
pub struct Gateway {
    shared: Arc<Shared>,
    /// Sessions in which somebody is being told that a command is heard. What comes after it waits for that.
    hearing: HashMap<SessionKey, oneshot::Receiver<()>>,
}

/// What the sessions of a channel share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) store: Store,
    pub(crate) channel: Arc<dyn Channel>,
    pub(crate) office: Arc<Office>,
    pub(crate) house: Arc<dyn House>,
    pub(crate) sharing: Sharing,
    pub(crate) busy: Busy,
    pub(crate) showing: Showing,
    pub(crate) people: People,
    /// Copies of files on their way.
    pub(crate) depot: Arc<Depot>,
    /// Directories of places whose files may be sent, besides the ones they work in.
    pub(crate) besides: Vec<String>,
    pub(crate) reset: Reset,
    pub(crate) beside: Beside,
    /// Conversations in which nobody is asked. It is kept nowhere else.
    waived: Mutex<HashSet<SessionKey>>,
    audit: Audit,
    /// How often it is noted that a stranger came: nobody fills a disk who may not even talk.
    strangers: Limiter,
    limiter: Limiter,
    sessions: Mutex<HashMap<SessionKey, mpsc::Sender<Item>>>,
    tasks: TaskTracker,
}

impl Gateway {
    /// A gateway for one channel.
    pub fn new(
        store: Store,
        channel: Arc<dyn Channel>,
        house: Arc<dyn House>,
        people: People,
        audit: Audit,
        rules: Rules,
    ) -> Self {
        let office = Arc::new(Office::new(Arc::clone(&channel), store.clone()));
        let depot = Arc::new(Depot::new(&rules.media.home, channel.platform().word()));
        let shared = Shared {
            depot,
            besides: rules.media.besides,
            store,
            channel,
            office,
            house,
            sharing: rules.sharing,
            busy: rules.busy,
            showing: rules.showing,
            people,
            reset: rules.reset,
            beside: Beside::default(),
            waived: Mutex::default(),
            audit,
            strangers: Limiter::new(STRANGERS),
            limiter: Limiter::new(rules.pace),
            sessions: Mutex::default(),
            tasks: TaskTracker::new(),
        };
        Self { shared: Arc::new(shared), hearing: HashMap::new() }
    }

    /// Works until it is told to stop: goes on with what was left, then takes what comes. Tells how the channel is.
    pub async fn run(mut self, health: watch::Sender<Health>, stop: CancellationToken) -> Result<(), Unfit> {
        tokio::select! {
            () = self.recover() => {}
            () = stop.cancelled() => {}
        }
        let (arrivals, mut arrived) = mpsc::channel(ARRIVALS);
        let closing = CancellationToken::new();
        let office = tokio::spawn(Arc::clone(&self.shared.office).run(closing.clone()));
        let channel = Arc::clone(&self.shared.channel);
        let (bookmark, bookmarks) = watch::channel(None);
        let librarian = tokio::spawn(keep_bookmarks(Arc::clone(&self.shared), bookmarks));
        let tidying = tokio::spawn(keep_tidy(self.shared.store.clone(), Arc::clone(&self.shared.depot)));
        let desk = Desk { arrivals, health, bookmark };
        let mut connected = {
            let stop = stop.clone();
            tokio::spawn(async move { channel.run(desk, stop).await })
        };
        let mut batch = Vec::new();
        let ended = loop {
            tokio::select! {
                1.. = arrived.recv_many(&mut batch, BATCH) => self.arrive(std::mem::take(&mut batch)).await,
                ended = &mut connected => break ended.unwrap_or_else(|error| Err(broken(&error))),
            }
        };
        tidying.abort();
        // What does not end in time is gone on with by whoever comes next.
        self.shared.tasks.close();
        self.shared.sessions().clear();
        if tokio::time::timeout(DRAIN, self.shared.tasks.wait()).await.is_err() {
            tracing::warn!("something is still under way; it goes on with the next start");
        }
        self.shared.office.wake();
        // What was answered meanwhile is delivered too, if that can be done soon.
        let delivered = async {
            let word = self.shared.channel.platform().word();
            while self.shared.store.undelivered(word, Vec::new()).await.is_ok_and(|parts| !parts.is_empty()) {
                tokio::time::sleep(LOOK).await;
            }
        };
        tokio::time::timeout(FAREWELL, delivered).await.ok();
        closing.cancel();
        office.await.ok();
        // It ends by itself when the channel has.
        librarian.await.ok();
        ended
    }

    /// Goes on with the letters that were not answered.
    async fn recover(&mut self) {
        let word = self.shared.channel.platform().word();
        self.shared.depot.forget_incoming();
        for copy in self.shared.depot.left_outgoing() {
            let name = copy.file_name().unwrap_or_default().to_string_lossy();
            // What may still be sent is kept.
            if let Ok(false) = self.shared.store.awaits(word, &name).await {
                depot::remove(&copy);
            }
        }
        let waiting = insist("letters that wait cannot be read", || self.shared.store.waiting_letters(word));
        for kept in waiting.await {
            let letter: Letter = match serde_json::from_value(kept.event) {
                Ok(letter) => letter,
                Err(error) => {
                    tracing::error!(%error, "a letter cannot be read");
                    continue;
                }
            };
            let admit = || self.shared.people.admit(&letter.room, &letter.sender);
            match insist("nobody knows whether somebody is let in", admit).await {
                Admission::In(tier) => {
                    let is_unheard = letter.is_unheard() && kept.turn.is_none();
                    let mut item = self.shared.item(kept.id, letter, tier, kept.turn);
                    let (shared, key) = (Arc::clone(&self.shared), kept.key.clone());
                    let work = async move {
                        if !is_unheard || shared.is_heard(kept.id, &kept.key, &mut item.letter).await {
                            shared.give(&kept.key, item).await;
                        }
                    };
                    self.in_order(key, is_unheard, work).await;
                }
                // Whoever is not let in any more is not answered.
                Admission::Stranger(_) => self.shared.done(kept.id).await,
            }
        }
    }

    /// Takes in what came. What cannot be kept is not confirmed, so that the platform does not take it as heard.
    async fn arrive(&mut self, arrivals: Vec<Arrival>) {
        let mut known = Vec::with_capacity(arrivals.len());
        for Arrival { what, kept } in arrivals {
            match what {
                Incoming::Said(letter) => match self.shared.admitted(&letter).await {
                    Ok(Some(tier)) => known.push((letter, tier, kept)),
                    // Whoever does not wait for it does not need it.
                    Ok(None) => kept.send(()).unwrap_or_default(),
                    Err(error) => tracing::error!(%error, "nobody knows whether somebody is let in"),
                },
                Incoming::Pressed(press) => {
                    let shared = Arc::clone(&self.shared);
                    self.shared.tasks.spawn(async move { shared.pressed(*press).await });
                    kept.send(()).unwrap_or_default();
                }
            }
        }
        let letters = known.iter().map(|(letter, ..)| self.shared.letter(letter)).collect();
        let received = self.shared.keep(letters).await;
        for ((letter, tier, kept), received) in known.into_iter().zip(received) {
            match received {
                Ok(Some(id)) => {
                    let (shared, key, is_unheard) =
                        (Arc::clone(&self.shared), self.shared.key(&letter), letter.is_unheard());
                    let work = async move {
                        let mut letter = *letter;
                        if !is_unheard || shared.is_heard(id, &shared.key(&letter), &mut letter).await {
                            shared.begin(id, letter, tier).await;
                        }
                    };
                    self.in_order(key, is_unheard, work).await;
                }
                Ok(None) => {}
                // It never will be, and must not keep the others waiting.
                Err(error @ hermes_store::Error::TooLarge { .. }) => {
                    tracing::error!(%error, "a letter cannot be kept");
                }
                Err(error) => {
                    tracing::error!(%error, "a letter cannot be kept yet");
                    continue;
                }
            }
            kept.send(()).unwrap_or_default();
        }
    }

    /// Does something about a letter, after what is done about those before it in its session. What may take a while is not waited
    /// for.
    async fn in_order(
        &mut self,
        key: SessionKey,
        takes_a_while: bool,
        work: impl Future<Output = ()> + Send + 'static,
    ) {
        self.hearing.retain(|_, done| done.try_recv() == Err(TryRecvError::Empty));
        let before = self.hearing.remove(&key);
        if before.is_none() && !takes_a_while {
            return work.await;
        }
        let (end, done) = oneshot::channel();
        self.hearing.insert(key, done);
        self.shared.aside(async move {
            if let Some(before) = before {
                before.await.ok();
            }
            work.await;
            drop(end);
        });
    }
}

/// A channel that ended because of a mistake of ours.
fn broken(error: &tokio::task::JoinError) -> Unfit {
    let remedy = "start the gateway again; `logs/agent.log` says more".to_owned();
    Unfit { why: format!("the connection broke: {error}"), remedy }
}

/// Removes what nobody needs any more, however long the gateway runs.
async fn keep_tidy(store: Store, depot: Arc<Depot>) {
    loop {
        let before = Timestamp::from_seconds(Timestamp::now().seconds().saturating_sub(REMEMBERED));
        if let Err(error) = store.forget_mail(before).await {
            tracing::warn!(%error, "old letters cannot be forgotten");
        }
        let depot = Arc::clone(&depot);
        let forget = move || {
            depot.forget_brought(Duration::from_secs(REMEMBERED));
            depot.album.forget();
        };
        tokio::task::spawn_blocking(forget).await.ok();
        tokio::time::sleep(TIDIES).await;
    }
}

/// Asks the store until it answers.
async fn insist<T, F: Future<Output = Result<T, hermes_store::Error>>>(
    otherwise: &str,
    ask: impl Fn() -> F,
) -> T {
    loop {
        match ask().await {
            Ok(answer) => return answer,
            Err(error) => tracing::error!(%error, "{otherwise}"),
        }
        tokio::time::sleep(STORE_PAUSE).await;
    }
}

/// Keeps how far a platform was heard, as long as it is heard.
async fn keep_bookmarks(shared: Arc<Shared>, mut bookmarks: watch::Receiver<Option<String>>) {
    let word = shared.channel.platform().word();
    while bookmarks.changed().await.is_ok() {
        let place = bookmarks.borrow_and_update().clone();
        if let Some(place) = place
            && let Err(error) = shared.store.set_bookmark(word, &place, Timestamp::now()).await
        {
            tracing::warn!(%error, "how far a platform was heard cannot be kept");
        }
    }
}

/// Where a letter is answered.
fn answer_room(letter: &Letter) -> Room {
    match &letter.reply {
        ReplyPlace::Here => letter.room.clone(),
        // A thread that is opened under a message usually has the id of that message.
        ReplyPlace::Thread(name) => Room {
            kind: RoomKind::Thread,
            chat: letter.message.clone(),
            thread: Some(letter.message.clone()),
            parent: Some(letter.room.chat.clone()),
            name: Some(name.clone()),
            platform: letter.room.platform,
        },
    }
}

impl Shared {
    fn sessions(&self) -> MutexGuard<'_, HashMap<SessionKey, mpsc::Sender<Item>>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether somebody is let in who wrote this, and what they may do. A stranger gets what strangers get.
    async fn admitted(self: &Arc<Self>, letter: &Letter) -> Result<Option<Tier>, hermes_store::Error> {
        let behavior = match self.people.admit(&letter.room, &letter.sender).await? {
            Admission::In(tier) => return Ok(Some(tier)),
            Admission::Stranger(behavior) => behavior,
        };
        let word = letter.room.platform.word();
        // Somebody who is let in no longer wrote this when they were.
        if self.store.is_received(word, &letter.room.chat, &letter.message).await? {
            return Ok(None);
        }
        let person = letter.room.platform.person(&letter.sender.id);
        if self.strangers.take(&person, Timestamp::now()).is_ok() {
            self.audit.note("stranger", &json!({ "person": person, "room": letter.room.chat }));
        }
        if behavior == Behavior::Pair
            && let Some(text) = self.people.greet(&letter.room, &letter.sender, Timestamp::now()).await?
        {
            self.tell(&letter.room, &text).await;
        }
        Ok(None)
    }

    /// Has a letter answered that is kept and new.
    async fn begin(self: &Arc<Self>, id: LetterId, letter: Letter, tier: Tier) {
        let key = self.key(&letter);
        let person = letter.room.platform.person(&letter.sender.id);
        let what = json!({ "person": person, "session": key, "message": letter.message });
        // What ends or answers something is heard from whoever says too much, too.
        let taken = match Command::read(&letter) {
            Some(Command::Stop(_) | Command::Approve { .. } | Command::Deny { .. }) => Ok(()),
            _ => self.limiter.take(&person, letter.sent),
        };
        match taken {
            Ok(()) => {
                self.audit.note("letter", &what);
                self.give(&key, self.item(id, letter, tier, None)).await;
            }
            Err(wait) => {
                let seconds = wait.left.as_secs() + 1;
                let text = format!(
                    "that is too much at once: neither this nor what follows is read; say it again in {seconds} seconds"
                );
                if wait.is_new {
                    self.audit.note("flood", &what);
                    self.refuse(id, &key, &letter, &text).await;
                } else {
                    self.done(id).await;
                }
                // Each one shows that it was not read.
                let channel = Arc::clone(&self.channel);
                self.aside(async move {
                    match &letter.interaction {
                        Some(interaction) => channel.whisper(interaction, &text).await,
                        None => channel.mark(&letter, Sign::Failed).await,
                    }
                });
            }
        }
    }

    /// Tells whoever used a command that it is heard. False where they were told that it failed: then nothing is done.
    async fn is_heard(self: &Arc<Self>, id: LetterId, key: &SessionKey, letter: &mut Letter) -> bool {
        let Some(command) = &mut letter.interaction else { return true };
        if !self.channel.hear(command).await {
            self.done(id).await;
            return false;
        }
        command.is_heard = true;
        if let Err(error) = self.store.readdress(id, key, json!(letter)).await {
            tracing::warn!(%error, "it cannot be noted that a command was heard");
        }
        true
    }

    /// The session that a letter is answered in.
    fn key(&self, letter: &Letter) -> SessionKey {
        self.key_in(&answer_room(letter), &letter.sender)
    }

    /// The session of somebody in a room.
    pub(crate) fn key_in(&self, room: &Room, sender: &Sender) -> SessionKey {
        session_key(room, &sender.id, self.sharing)
    }

    fn letter(&self, letter: &Letter) -> NewLetter {
        NewLetter {
            platform: letter.room.platform.word().to_owned(),
            chat: letter.room.chat.clone(),
            message: letter.message.clone(),
            key: self.key(letter),
            person: letter.room.platform.person(&letter.sender.id),
            at: Timestamp::now(),
            event: json!(letter),
        }
    }

    /// Keeps letters at once. Where that fails each is kept on its own: none is lost because of another.
    async fn keep(&self, letters: Vec<NewLetter>) -> Vec<Result<Option<LetterId>, hermes_store::Error>> {
        if letters.is_empty() {
            return Vec::new();
        }
        if let Ok(kept) = self.store.receive(letters.clone()).await {
            return kept.into_iter().map(Ok).collect();
        }
        let mut received = Vec::with_capacity(letters.len());
        for letter in letters {
            let kept = self.store.receive(vec![letter]).await;
            received.push(kept.map(|kept| kept.into_iter().flatten().next()));
        }
        received
    }

    /// Answers a letter with why it is not worked on.
    async fn refuse(self: &Arc<Self>, id: LetterId, key: &SessionKey, letter: &Letter, text: &str) {
        self.put(vec![id], session::parts(&self.channel, key, letter, text)).await;
    }

    /// Says something in chats, and is done with the letters it answers. What cannot be kept now is kept as soon as it can be.
    pub(crate) async fn put(self: &Arc<Self>, letters: Vec<LetterId>, parts: Vec<NewPart>) {
        if let Err(error) = self.store.reply(letters.clone(), parts.clone(), Timestamp::now()).await {
            tracing::error!(%error, "what is said cannot be kept yet");
            let shared = Arc::clone(self);
            self.aside(async move {
                loop {
                    tokio::time::sleep(STORE_PAUSE).await;
                    match shared.store.reply(letters.clone(), parts.clone(), Timestamp::now()).await {
                        Ok(_) => break shared.office.wake(),
                        // Whoever comes next finds the letters.
                        Err(hermes_store::Error::Closed | hermes_store::Error::TooLarge { .. }) => break,
                        Err(error) => tracing::debug!(%error, "what is said cannot be kept yet"),
                    }
                }
            });
        }
        self.office.wake();
    }

    fn item(&self, id: LetterId, letter: Letter, tier: Tier, turn: Option<TurnId>) -> Item {
        let person = letter.room.platform.person(&letter.sender.id);
        let approvers = self.people.approvers(letter.room.platform, &letter.sender);
        Item { id, letter, images: Vec::new(), person, tier, approvers, turn, notes: Vec::new() }
    }

    /// Gives something to a session, whose task is begun if there is none.
    pub(crate) fn give<'a>(self: &'a Arc<Self>, key: &'a SessionKey, item: Item) -> Waiting<'a, ()> {
        Box::pin(async move {
            if item.letter.room.kind == RoomKind::Thread {
                self.joined(&item.letter.room).await;
            }
            let refused = {
                let mut sessions = self.sessions();
                // It is kept, and whoever comes next goes on with it.
                if self.tasks.is_closed() {
                    return;
                }
                // One whose task broke is begun anew.
                if sessions.get(key).is_some_and(mpsc::Sender::is_closed) {
                    sessions.remove(key);
                }
                let mailbox = sessions.entry(key.clone()).or_insert_with(|| {
                    let (mailbox, items) = mpsc::channel(MAILBOX);
                    let session = Session::new(Arc::clone(self), key.clone(), items, &item.letter);
                    self.tasks.spawn(session.run());
                    mailbox
                });
                mailbox.try_send(item).err()
            };
            if let Some(refused) = refused {
                let item = refused.into_inner();
                let text = "too much is waiting here already; say it again later";
                self.refuse(item.id, key, &item.letter, text).await;
            }
        })
    }

    /// Lets the task of a session go, unless something came meanwhile.
    pub(crate) fn leave(&self, key: &SessionKey, mailbox: &mpsc::Receiver<Item>) -> bool {
        let mut sessions = self.sessions();
        let is_over = mailbox.is_empty();
        if is_over {
            sessions.remove(key);
            self.office.forget(key);
        }
        is_over
    }

    /// Does something on a platform that nothing waits for.
    pub(crate) fn aside(&self, what: impl Future<Output = ()> + Send + 'static) {
        self.tasks.spawn(what);
    }

    /// Notes that we take part in a thread.
    pub(crate) async fn joined(&self, room: &Room) {
        let Some(thread) = &room.thread else { return };
        self.channel.joined(thread);
        if let Err(error) = self.store.take_part(room.platform.word(), thread, Timestamp::now()).await {
            tracing::warn!(%error, "a thread cannot be remembered");
        }
    }

    /// Is done with a letter about which nothing is said.
    pub(crate) async fn done(self: &Arc<Self>, letter: LetterId) {
        self.put(vec![letter], Vec::new()).await;
    }

    /// Says something in a room that belongs to no session.
    pub(crate) async fn tell(self: &Arc<Self>, room: &Room, text: &str) {
        let post = Post { text: text.to_owned(), ..Post::default() };
        let key = SessionKey::new(String::new());
        let part = session::part(&self.channel, &key, &room.chat, None, &post);
        self.put(Vec::new(), vec![part]).await;
    }

    /// Notes a file that an answer sends.
    pub(crate) fn sends(&self, key: &SessionKey, person: &Person, file: &str, size: u64) {
        let what = json!({ "person": person, "session": key, "file": file, "size": size });
        self.audit.note("send", &what);
    }

    /// Whether people are asked in a session.
    pub(crate) fn questions(&self, key: &SessionKey) -> QuestionPolicy {
        if self.waived().contains(key) { QuestionPolicy::Waive } else { QuestionPolicy::Ask }
    }

    /// Asks nothing in a session, or asks again, and says which.
    pub(crate) fn waive(&self, key: &SessionKey, person: &Person) -> QuestionPolicy {
        let was_waived = self.waived().remove(key);
        if !was_waived {
            self.waived().insert(key.clone());
        }
        let questions = self.questions(key);
        let what = json!({ "person": person, "session": key, "asks": questions == QuestionPolicy::Ask });
        self.audit.note("yolo", &what);
        questions
    }

    /// Asks in a session whatever was said before.
    pub(crate) fn ask_again(&self, key: &SessionKey) {
        self.waived().remove(key);
    }

    fn waived(&self) -> MutexGuard<'_, HashSet<SessionKey>> {
        self.waived.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hears what happens in a turn of a session that is furnished so.
    pub(crate) fn heard(&self, key: &SessionKey, person: &Person, setup: &SessionConfig, event: &TurnEvent) {
        if let TurnEvent::ToolStarted { tool, preview, .. } = event {
            let (name, backend) = (setup.place.name(), setup.place.backend_name().to_string());
            let what = json!({
                "person": person, "session": key, "tool": tool, "what": preview, "place": name, "backend": backend,
            });
            self.audit.note("call", &what);
        }
    }

    async fn pressed(&self, press: Press) {
        // Nobody is told anything here who may not talk to us.
        let Ok(Admission::In(tier)) = self.people.admit(&press.room, &press.sender).await else { return };
        let person = press.room.platform.person(&press.sender.id);
        let Some((id, choice)) = session::pressed(&press.value) else {
            return self.channel.whisper(&press.interaction, "this button does nothing any more").await;
        };
        let text = self.decide(id, (&person, tier), choice).await;
        self.channel.whisper(&press.interaction, &text).await;
    }

    /// Answers a question of the gate. Gives words about what came of it.
    pub(crate) async fn decide(&self, id: &str, (person, tier): (&Person, Tier), choice: Choice) -> String {
        let platform = self.channel.platform();
        if choice == Choice::Always && !self.people.may_allow_for_good(platform, person, tier) {
            return "`always` holds for everybody, so it is for those who look after me, or approve for others; you \
                    can allow this once, or for this session"
                .to_owned();
        }
        let answer = Answer { by: person.clone(), at: Timestamp::now(), choice: choice.clone() };
        match self.store.answer(id, answer).await {
            Ok(answering) => {
                let text = session::answered(&answering, &choice);
                self.audit.note("answer", &json!({ "person": person, "question": id, "came_of_it": text }));
                text
            }
            Err(error) => error.to_string(),
        }
    }
}

#[cfg(test)]
mod tests;
