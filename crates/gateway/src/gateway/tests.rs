//! What a gateway does whatever the channel.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use hermes_agent::{ModelConfig, SessionConfig, SystemPrompt};
use hermes_store::Fate;

use super::*;
use crate::channel::{Found, Manners, Undelivered, Unfetched};
use crate::house::Visit;
use crate::letter::{Attachment, Interaction, Platform, Sender};
use crate::people;
use crate::session::Progress;

/// A channel on which letters come until something is said, and which notes what that is.
#[derive(Debug, Default)]
struct Wall {
    sent: watch::Sender<Vec<String>>,
    breaks: bool,
    /// Why nothing is sent, as often as there is something here.
    trouble: Mutex<VecDeque<Undelivered>>,
    /// What comes of looking, as often as there is something here, and what was looked for.
    found: Mutex<VecDeque<Found>>,
    sought: Mutex<Vec<String>>,
}

impl Channel for Wall {
    fn platform(&self) -> Platform {
        Platform::Discord
    }

    fn manners(&self) -> Manners {
        Platform::Discord.manners()
    }

    fn run<'a>(&'a self, desk: Desk, stop: CancellationToken) -> Waiting<'a, Result<(), Unfit>> {
        Box::pin(async move {
            assert!(!self.breaks, "a mistake");
            for number in 1.. {
                if !self.sent.borrow().is_empty() {
                    break;
                }
                let (kept, is_kept) = tokio::sync::oneshot::channel();
                let what = Incoming::Said(Box::new(letter(&number.to_string())));
                desk.arrivals.send(Arrival { what, kept }).await.unwrap();
                is_kept.await.unwrap();
                tokio::time::sleep(LOOK).await;
            }
            stop.cancelled().await;
            Ok(())
        })
    }

    fn send<'a>(
        &'a self,
        _: &'a str,
        post: &'a Post,
        mark: &'a str,
    ) -> Waiting<'a, Result<String, Undelivered>> {
        self.sent.send_modify(|sent| sent.push(post.text.clone()));
        let trouble = self.trouble.lock().unwrap().pop_front();
        Box::pin(async { trouble.map_or_else(|| Ok(mark.to_owned()), Err) })
    }

    fn find<'a>(&'a self, _: &'a str, post: &'a Post, _: &'a str) -> Waiting<'a, Found> {
        self.sought.lock().unwrap().push(post.text.clone());
        let found = self.found.lock().unwrap().pop_front();
        Box::pin(async { found.unwrap_or(Found::Unclear) })
    }

    fn edit<'a>(&'a self, _: &'a str, _: &'a str, _: &'a Post) -> Waiting<'a, Result<(), Undelivered>> {
        Box::pin(async { Ok(()) })
    }

    fn open_thread<'a>(&'a self, _: &'a Letter, _: &'a str) -> Waiting<'a, Result<Room, Undelivered>> {
        Box::pin(async { Err(Undelivered::Never("there are none".to_owned())) })
    }

    fn typing<'a>(&'a self, _: &'a str) -> Waiting<'a, ()> {
        Box::pin(async {})
    }

    fn mark<'a>(&'a self, _: &'a Letter, _: Sign) -> Waiting<'a, ()> {
        Box::pin(async {})
    }

    fn whisper<'a>(&'a self, _: &'a Interaction, _: &'a str) -> Waiting<'a, ()> {
        Box::pin(async {})
    }

    fn fetch<'a>(&'a self, _: &'a Attachment, _: &'a Path, _: u64) -> Waiting<'a, Result<u64, Unfetched>> {
        Box::pin(async { Err(Unfetched::Failed("there are none".to_owned())) })
    }
}

/// A house that breaks once, and then has no room.
#[derive(Debug, Default)]
struct Ruin(AtomicBool);

impl House for Ruin {
    fn furnish<'a>(&'a self, _: Visit) -> Waiting<'a, Result<SessionConfig, String>> {
        Box::pin(async {
            assert!(self.0.swap(true, Ordering::Relaxed), "a mistake");
            Err("there is no room".to_owned())
        })
    }

    fn mind(&self, _: Option<&str>) -> Result<ModelConfig, String> {
        Err("nobody answers".to_owned())
    }

    fn prefer(&self, _: &str) -> Result<(), String> {
        Ok(())
    }

    fn told(&self, _: &SessionConfig, _: &str, _: &Room) -> SystemPrompt {
        panic!("there is no room")
    }

    fn is_busy<'a>(&'a self, _: &'a SessionKey, _: &'a Room, _: &'a Person) -> Waiting<'a, bool> {
        Box::pin(async { false })
    }

    fn restart(&self, _: &Room, _: &str) -> Result<(), String> {
        Ok(())
    }

    fn clear<'a>(&'a self, _: &'a SessionKey, _: &'a Room) -> Waiting<'a, Result<(), String>> {
        Box::pin(async { Ok(()) })
    }
}

fn letter(message: &str) -> Letter {
    Letter {
        room: Room {
            platform: Platform::Discord,
            kind: RoomKind::Dm,
            chat: "5".to_owned(),
            thread: None,
            parent: None,
            name: None,
        },
        sender: Sender { id: "1".to_owned(), name: "ann".to_owned(), is_bot: false, roles: Vec::new() },
        message: message.to_owned(),
        sent: Timestamp::now(),
        text: "hello".to_owned(),
        files: Vec::new(),
        quote: None,
        reply: ReplyPlace::Here,
        interaction: None,
    }
}

/// A gateway that lets everybody in.
async fn gateway(home: &Path, channel: Arc<Wall>) -> Gateway {
    let store = Store::open(home.join("hermes.db")).await.unwrap();
    let own = people::Rules { allow_all_users: true, ..people::Rules::default() };
    let settings = people::Settings {
        platforms: HashMap::from([(Platform::Discord, own)]),
        allowed_users: Vec::new(),
        allow_all_users: false,
        strangers: None,
    };
    let rules = Rules {
        sharing: Sharing::default(),
        busy: Busy::Queue,
        pace: Pace::default(),
        showing: Showing { words: None, tools: Progress::Off, refresh: None },
        reset: Reset { idle: None, daily: None, notify: false },
        media: Media { besides: Vec::new(), home: home.to_owned() },
    };
    let audit = Audit::open(&home.join("audit.jsonl")).unwrap();
    let people = People::new(settings, store.clone());
    Gateway::new(store, channel, Arc::new(Ruin::default()), people, audit, rules)
}

#[tokio::test]
async fn a_session_that_broke_is_begun_anew_with_the_next_letter() {
    let home = tempfile::tempdir().unwrap();
    let wall = Arc::new(Wall::default());
    let gateway = gateway(home.path(), Arc::clone(&wall)).await;
    let (health, _watched) = watch::channel(Health::Connecting);
    let stop = CancellationToken::new();
    let running = tokio::spawn(gateway.run(health, stop.clone()));
    let mut sent = wall.sent.subscribe();
    let said = tokio::time::timeout(Duration::from_secs(60), sent.wait_for(|sent| !sent.is_empty()));
    assert_eq!(said.await.unwrap().unwrap().first().map(String::as_str), Some("there is no room"));
    stop.cancel();
    assert_eq!(running.await.unwrap(), Ok(()));
}

#[tokio::test]
async fn a_channel_that_broke_does_not_end_as_if_all_were_well() {
    let home = tempfile::tempdir().unwrap();
    let gateway = gateway(home.path(), Arc::new(Wall { breaks: true, ..Wall::default() })).await;
    let (health, _watched) = watch::channel(Health::Connecting);
    let ended = gateway.run(health, CancellationToken::new()).await;
    assert!(ended.as_ref().is_err_and(|unfit| unfit.why.contains("broke")), "{ended:?}");
}

#[tokio::test(start_paused = true)]
async fn a_doubt_is_not_forgotten_while_nothing_can_be_reached() {
    let home = tempfile::tempdir().unwrap();
    let store = Store::open(home.path().join("hermes.db")).await.unwrap();
    let away = || Undelivered::Later { after: None, why: "it is away".to_owned() };
    let trouble = Mutex::new([Undelivered::Unknown("it broke".to_owned()), away(), away()].into());
    let found = Mutex::new([Found::Unclear, Found::NotThere, Found::There("7".to_owned())].into());
    let wall = Arc::new(Wall { trouble, found, ..Wall::default() });
    let channel: Arc<dyn Channel> = Arc::clone(&wall) as Arc<dyn Channel>;
    let post = Post { text: "hello".to_owned(), ..Post::default() };
    let part = session::part(&channel, &SessionKey::new("k"), "5", Some("m1".to_owned()), &post);
    store.reply(Vec::new(), vec![part], Timestamp::now()).await.unwrap();
    let stop = CancellationToken::new();
    let office = tokio::spawn(Arc::new(Office::new(channel, store.clone())).run(stop.clone()));
    while store.fate("m1").await.unwrap() != Some(Fate::Sent("7".to_owned())) {
        tokio::time::sleep(LOOK).await;
        assert!(wall.sent.borrow().len() < 4, "it was sent again and again");
    }
    assert_eq!(*wall.sent.borrow(), ["hello", "hello\n(this may have been sent before)", "hello"]);
    assert_eq!(*wall.sought.lock().unwrap(), ["hello", "hello", "hello"]);
    stop.cancel();
    office.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_doubt_that_has_no_room_in_a_message_is_a_message_of_its_own() {
    let home = tempfile::tempdir().unwrap();
    let store = Store::open(home.path().join("hermes.db")).await.unwrap();
    let trouble = Mutex::new([Undelivered::Unknown("it broke".to_owned())].into());
    let wall = Arc::new(Wall { trouble, ..Wall::default() });
    let channel: Arc<dyn Channel> = Arc::clone(&wall) as Arc<dyn Channel>;
    let long = "a".repeat(channel.manners().longest);
    let post = Post { text: long.clone(), ..Post::default() };
    let part = session::part(&channel, &SessionKey::new("k"), "5", Some("m1".to_owned()), &post);
    store.reply(Vec::new(), vec![part], Timestamp::now()).await.unwrap();
    let stop = CancellationToken::new();
    let office = tokio::spawn(Arc::new(Office::new(channel, store.clone())).run(stop.clone()));
    let mut sent = wall.sent.subscribe();
    let said = sent.wait_for(|sent| sent.len() == 3).await.unwrap().clone();
    assert_eq!(said, [&long, &long, "(this may have been sent before)"]);
    stop.cancel();
    office.await.unwrap();
}

/// Keeps a letter that was answered long ago.
async fn old(store: &Store, chat: &str, message: &str) {
    let letter = NewLetter {
        platform: "discord".to_owned(),
        chat: chat.to_owned(),
        message: message.to_owned(),
        key: SessionKey::new("k"),
        person: Person::new("discord:7"),
        at: Timestamp::from_seconds(1),
        event: json!({}),
    };
    let id = store.receive(vec![letter]).await.unwrap()[0].unwrap();
    store.reply(vec![id], Vec::new(), Timestamp::from_seconds(1)).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn old_letters_are_forgotten_as_long_as_the_gateway_runs() {
    let home = tempfile::tempdir().unwrap();
    let store = Store::open(home.path().join("hermes.db")).await.unwrap();
    let depot = Arc::new(Depot::new(home.path(), "discord"));
    let tidying = tokio::spawn(keep_tidy(store.clone(), depot));
    for message in ["1", "2", "3"] {
        old(&store, "chat", message).await;
        old(&store, "chat", &format!("{message} again")).await;
        while store.is_received("discord", "chat", message).await.unwrap() {
            tokio::time::sleep(TIDIES).await;
        }
    }
    tidying.abort();
}
