//! Delivers parts: one after the other in each chat, chats beside each other, until it is known what became of each.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hermes_store::{Delivery, Fate, Outgoing, Store};
use hermes_types::{SessionKey, Timestamp};
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::channel::{Channel, Found, Post, Sign, Undelivered};
use crate::depot;
use crate::gateway::STORE_PAUSE;
use crate::letter::Letter;
use crate::session;

/// The first pause after a failure; each is twice as long as the one before it.
const PAUSE: Duration = Duration::from_millis(500);
/// The longest pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// What is said with a message that may be there twice.
const PERHAPS_TWICE: &str = "(this may have been sent before)";

/// The way out of one channel.
#[derive(Debug)]
pub(crate) struct Office {
    channel: Arc<dyn Channel>,
    store: Store,
    wake: Notify,
    delivered: watch::Sender<()>,
    answers: Mutex<HashMap<SessionKey, Answering>>,
}

/// What is answered in a session, or was last.
#[derive(Debug)]
struct Answering {
    letter: Letter,
    /// Whether something of the answer cannot be delivered.
    is_lost: bool,
}

impl Office {
    pub(crate) fn new(channel: Arc<dyn Channel>, store: Store) -> Self {
        Self {
            channel,
            store,
            wake: Notify::new(),
            delivered: watch::Sender::new(()),
            answers: Mutex::default(),
        }
    }

    /// Takes note of what is answered now. If that cannot be delivered, the letter shows it: nobody could say so in words.
    pub(crate) fn answering(&self, key: &SessionKey, letter: &Letter) {
        self.answers().insert(key.clone(), Answering { letter: letter.clone(), is_lost: false });
    }

    /// Whether something of the last answer cannot be delivered.
    pub(crate) fn has_lost(&self, key: &SessionKey) -> bool {
        self.answers().get(key).is_some_and(|answering| answering.is_lost)
    }

    /// Forgets what was answered in a session.
    pub(crate) fn forget(&self, key: &SessionKey) {
        self.answers().remove(key);
    }

    fn answers(&self) -> MutexGuard<'_, HashMap<SessionKey, Answering>> {
        self.answers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has a letter show that its answer cannot be delivered.
    fn lose(&self, key: &SessionKey) {
        let letter = self.answers().get_mut(key).map(|answering| {
            answering.is_lost = true;
            answering.letter.clone()
        });
        if let Some(letter) = letter {
            let channel = Arc::clone(&self.channel);
            // The chat waits for it no longer than it must.
            tokio::spawn(async move { channel.mark(&letter, Sign::Failed).await });
        }
    }

    /// Tells whenever it is known what became of something.
    pub(crate) fn delivered(&self) -> watch::Receiver<()> {
        self.delivered.subscribe()
    }

    /// Says that there is something to deliver.
    pub(crate) fn wake(&self) {
        self.wake.notify_one();
    }

    /// Delivers until it is told to stop. What is being sent then is waited for by nobody: the store knows that it is
    /// doubtful.
    pub(crate) async fn run(self: Arc<Self>, stop: CancellationToken) {
        let mut busy = HashSet::new();
        let mut chats = JoinSet::new();
        // Other programs write here too.
        let mut news = self.store.news();
        loop {
            for (chat, parts) in self.waiting(&busy).await {
                busy.insert(chat.clone());
                let office = Arc::clone(&self);
                chats.spawn(async move {
                    for part in parts {
                        office.deliver(part).await;
                    }
                    chat
                });
            }
            tokio::select! {
                () = stop.cancelled() => return,
                () = self.wake.notified() => {}
                () = news.next() => {}
                Some(done) = chats.join_next() => {
                    if let Ok(chat) = done {
                        busy.remove(&chat);
                    }
                }
            }
        }
    }

    /// What waits in chats where nothing is being sent.
    async fn waiting(&self, busy: &HashSet<String>) -> HashMap<String, Vec<Outgoing>> {
        let mut chats: HashMap<String, Vec<Outgoing>> = HashMap::new();
        // However much waits in those, it does not keep the others from being seen.
        let without = busy.iter().cloned().collect();
        match self.store.undelivered(self.channel.platform().word(), without).await {
            Ok(parts) => {
                for part in parts {
                    chats.entry(part.chat.clone()).or_default().push(part);
                }
            }
            Err(error) => {
                tracing::error!(%error, "what is to be delivered cannot be read");
                tokio::time::sleep(STORE_PAUSE).await;
                self.wake();
            }
        }
        chats
    }

    async fn deliver(&self, part: Outgoing) {
        let Ok(mut post) = serde_json::from_value::<Post>(part.body.clone()) else {
            tracing::error!(part = part.id.number(), "a part cannot be read");
            return self.end(&part, &Post::default(), Delivery::Failed("it cannot be read".to_owned())).await;
        };
        // No other part of any store has it, also when a store is begun anew.
        let mark = format!("{:x}-{:x}", part.created.seconds(), part.id.number());
        let mut replaced = match &post.replaces {
            Some(mark) => self.sent_as(mark).await,
            None => None,
        };
        let begun = match &post.after {
            Some(mark) => self.sent_as(mark).await,
            None => None,
        };
        let chat = begun.as_deref().map_or(part.chat.as_str(), |begun| self.channel.after(&part.chat, begun));
        let mut doubtful = part.doubtful.is_some();
        let mut pause = PAUSE;
        loop {
            let (mut said, mut is_told_after) = (post.clone(), false);
            if doubtful && replaced.is_none() {
                match self.channel.find(chat, &post, &mark).await {
                    Found::There(message) => return self.end(&part, &post, Delivery::Sent(message)).await,
                    Found::NotThere => {}
                    Found::Unclear if !post.text.ends_with(PERHAPS_TWICE) => {
                        let (text, manners) =
                            (format!("{}\n{PERHAPS_TWICE}", post.text), self.channel.manners());
                        match manners.unit.length(&text) <= manners.longest {
                            true => said.text = text,
                            false => is_told_after = true,
                        }
                    }
                    Found::Unclear => {}
                }
            }
            if let Err(error) = self.store.delivering(part.id, Timestamp::now()).await {
                // What cannot be noted is not sent: nobody could tell later that it was.
                tracing::error!(%error, "nothing can be delivered");
                tokio::time::sleep(STORE_PAUSE).await;
                continue;
            }
            let sent = match &replaced {
                Some(message) => self.channel.edit(chat, message, &said).await.map(|()| message.clone()),
                None => self.channel.send(chat, &said, &mark).await,
            };
            match sent {
                Ok(message) => {
                    if is_told_after {
                        let chat = self.channel.after(chat, &message);
                        self.add(&part, chat, &post, "twice", PERHAPS_TWICE.to_owned()).await;
                    }
                    if replaced.is_some() {
                        // Nothing waits for it, and it ends soon by itself.
                        let (channel, chat, said) =
                            (Arc::clone(&self.channel), chat.to_owned(), said.clone());
                        let message = message.clone();
                        tokio::spawn(async move { channel.assure(&chat, &message, &said).await });
                    }
                    return self.end(&part, &said, Delivery::Sent(message)).await;
                }
                Err(Undelivered::Never(why)) if replaced.is_some() => {
                    tracing::info!(chat, why, "a message cannot be changed and is sent anew");
                    replaced = None;
                    continue;
                }
                Err(Undelivered::Never(why)) => {
                    tracing::warn!(chat, why, "a message cannot be delivered");
                    return self.end(&part, &post, Delivery::Failed(why)).await;
                }
                Err(Undelivered::Unknown(why)) => {
                    tracing::warn!(chat, why, "nobody knows whether a message arrived");
                    (doubtful, post) = (true, said);
                    tokio::time::sleep(pause).await;
                }
                Err(Undelivered::Later { after, why }) => {
                    tracing::info!(chat, why, "a message is delivered later");
                    // A try before this one may have arrived all the same.
                    if !doubtful {
                        self.note(&part, Delivery::Later(why)).await;
                    }
                    tokio::time::sleep(after.unwrap_or(pause)).await;
                }
            }
            pause = LONGEST_PAUSE.min(pause * 2);
        }
    }

    /// Is done with a part, however it ended, and with the copies of its files.
    async fn end(&self, part: &Outgoing, post: &Post, delivery: Delivery) {
        if let Delivery::Failed(why) = &delivery {
            self.lose(&part.key);
            if !post.files.is_empty() {
                self.tell_unsent(part, post, why).await;
            }
        }
        if let Delivery::Sent(message) = &delivery
            && self.channel.after(&part.chat, message) != part.chat
            && let Err(error) =
                self.store.take_part(self.channel.platform().word(), message, Timestamp::now()).await
        {
            tracing::error!(%error, "it cannot be noted that a thread was begun");
        }
        if self.note(part, delivery).await {
            post.files.iter().for_each(|file| depot::remove(&file.path));
        }
    }

    /// Says once that files cannot be sent, where they should be.
    async fn tell_unsent(&self, part: &Outgoing, post: &Post, why: &str) {
        let names: Vec<&str> = post.files.iter().map(|file| file.name.as_str()).collect();
        let text = format!("({} was not sent: {why})", names.join(", "));
        self.add(part, &part.chat, post, "unsent", text).await;
    }

    /// Says something about a part in a message of its own, once.
    async fn add(&self, part: &Outgoing, chat: &str, post: &Post, what: &str, text: String) {
        let word = Post { text, reply_to: post.reply_to.clone(), ..Post::default() };
        let mark = Some(format!("{what}-{:x}-{:x}", part.created.seconds(), part.id.number()));
        let word = session::part(&self.channel, &part.key, chat, mark, &word);
        if let Err(error) = self.store.reply(Vec::new(), vec![word], Timestamp::now()).await {
            tracing::error!(%error, what, "nobody can be told what became of a message");
        }
    }

    /// What the platform calls the message of a mark. Parts of a chat come in their order, so it was sent or never will be.
    async fn sent_as(&self, mark: &str) -> Option<String> {
        loop {
            match self.store.fate(mark).await {
                Ok(Some(Fate::Sent(message))) => return Some(message),
                Ok(_) => return None,
                Err(error) => {
                    tracing::error!(%error, "nothing can be delivered");
                    tokio::time::sleep(STORE_PAUSE).await;
                }
            }
        }
    }

    /// Keeps what is known about a part; says whether that was done.
    async fn note(&self, part: &Outgoing, delivery: Delivery) -> bool {
        while let Err(error) = self.store.delivered(part.id, delivery.clone(), Timestamp::now()).await {
            tracing::error!(%error, "what became of a message cannot be kept");
            if matches!(error, hermes_store::Error::Closed) {
                return false;
            }
            tokio::time::sleep(STORE_PAUSE).await;
        }
        self.delivered.send_replace(());
        true
    }
}
