//! A bot that is connected, and whoever takes its letters.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use hermes_gateway::channel::{Arrival, Channel, Desk, Health, Incoming, Post, Unfit};
use hermes_gateway::discord::{Discord, Past, Settings};
use hermes_gateway::letter::{Letter, Press};
use hermes_testkit::discord::{Id, Limits, Options, Reply, Server};
use hermes_testkit::tls::{Authority, Front};
use hermes_types::Secret;
use serde_json::Value;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// Longer than anything takes.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) struct Bed {
    pub(crate) server: Server,
    pub(crate) discord: Arc<Discord>,
    pub(crate) arrivals: mpsc::Receiver<Arrival>,
    pub(crate) health: watch::Receiver<Health>,
    pub(crate) ann: Id,
    pub(crate) guild: Id,
    pub(crate) room: Id,
    bookmark: watch::Receiver<Option<String>>,
    stop: CancellationToken,
    task: JoinHandle<Result<(), Unfit>>,
}

/// A server with one person, one guild and one channel.
pub(crate) struct World {
    pub(crate) server: Server,
    pub(crate) ann: Id,
    pub(crate) guild: Id,
    pub(crate) room: Id,
}

pub(crate) async fn world(options: Options) -> World {
    let server = Server::start(options).await.unwrap();
    let ann = server.user("ann");
    let guild = server.guild("house", &[ann]);
    let room = server.channel(guild, "general");
    World { server, ann, guild, room }
}

/// A server that is spoken to in secret, by an address or this name, and the settings for it.
pub(crate) async fn behind(name: &str) -> (World, Front, Settings) {
    let world = world(wide()).await;
    let authority = Authority::new().unwrap();
    let front = Front::open(world.server.address(), &authority, name).unwrap();
    world.server.move_to(&format!("https://{}", front.address()));
    let settings = Settings { roots: Some(authority.roots().unwrap()), ..settings(&world.server) };
    (world, front, settings)
}

/// A server that takes as much as a test says.
pub(crate) fn wide() -> Options {
    Options { limits: Limits::Wide, ..Options::default() }
}

pub(crate) fn settings(server: &Server) -> Settings {
    Settings {
        api_base: Some(server.api_base()),
        gateway_url: Some(server.gateway_url()),
        ..Settings::new(Secret::new(server.token()))
    }
}

pub(crate) async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.expect("it takes too long")
}

pub(crate) fn text(words: &str) -> Post {
    Post { text: words.to_owned(), ..Post::default() }
}

impl Bed {
    /// Connected, with what an owner chooses who chooses nothing.
    pub(crate) async fn new() -> Self {
        Self::with(|_| {}).await
    }

    pub(crate) async fn with(choose: impl FnOnce(&mut Settings)) -> Self {
        let world = world(wide()).await;
        let mut settings = settings(&world.server);
        choose(&mut settings);
        let mut bed = Self::start(world, settings, Past::default());
        bed.until(|health| *health == Health::Up).await;
        bed
    }

    pub(crate) fn start(world: World, settings: Settings, past: Past) -> Self {
        let World { server, ann, guild, room } = world;
        let discord = Arc::new(Discord::new(settings, past));
        let (sender, arrivals) = mpsc::channel(16);
        let (health_sender, health) = watch::channel(Health::Connecting);
        let (bookmarks, bookmark) = watch::channel(None);
        let desk = Desk { arrivals: sender, health: health_sender, bookmark: bookmarks };
        let stop = CancellationToken::new();
        let (running, stopping) = (Arc::clone(&discord), stop.clone());
        let task = tokio::spawn(async move { running.run(desk, stopping).await });
        Self { server, discord, arrivals, health, ann, guild, room, bookmark, stop, task }
    }

    /// The text that calls the bot.
    pub(crate) fn call(&self, words: &str) -> String {
        format!("<@{}> {words}", self.server.bot())
    }

    /// Waits until the connection is as wanted.
    pub(crate) async fn until(&mut self, wanted: impl FnMut(&Health) -> bool) -> Health {
        within(self.health.wait_for(wanted)).await.unwrap().clone()
    }

    /// The next thing that comes. It is kept.
    pub(crate) async fn next(&mut self) -> Incoming {
        let arrival = within(self.arrivals.recv()).await.expect("nothing comes any more");
        arrival.kept.send(()).unwrap();
        arrival.what
    }

    pub(crate) async fn letter(&mut self) -> Letter {
        match self.next().await {
            Incoming::Said(letter) => *letter,
            Incoming::Pressed(press) => panic!("not a letter: {press:?}"),
        }
    }

    /// Has ann use a command. It is kept and heard as the gateway would do it.
    pub(crate) async fn called(&mut self, name: &str, options: Value) -> (Letter, io::Result<Reply>) {
        let (server, discord, arrivals) = (&self.server, &self.discord, &mut self.arrivals);
        let heard = async {
            let arrival = within(arrivals.recv()).await.unwrap();
            let Incoming::Said(letter) = arrival.what else { panic!("not a letter: {:?}", arrival.what) };
            arrival.kept.send(()).unwrap();
            discord.hear(letter.interaction.as_ref().unwrap()).await;
            *letter
        };
        tokio::join!(heard, server.invoke(self.ann, self.room, name, options))
    }

    pub(crate) async fn press(&mut self) -> Press {
        match self.next().await {
            Incoming::Pressed(press) => *press,
            Incoming::Said(letter) => panic!("not a press: {letter:?}"),
        }
    }

    /// Nothing came of all that was said until now.
    pub(crate) async fn nothing(&mut self) {
        let dm = self.server.dm(self.ann);
        self.server.say(self.ann, dm, "the next thing");
        assert_eq!(self.letter().await.text, "the next thing");
    }

    /// Ends, and begins again without a memory.
    pub(crate) async fn again(self) -> Self {
        self.stop.cancel();
        assert_eq!(within(self.task).await.unwrap(), Ok(()));
        let settings = settings(&self.server);
        let Self { server, ann, guild, room, .. } = self;
        let mut bed = Self::start(World { server, ann, guild, room }, settings, Past::default());
        bed.until(|health| *health == Health::Up).await;
        bed
    }

    /// Ends, and gives what the next one needs to know. The platform forgets its session.
    pub(crate) async fn leave(self) -> (World, Past) {
        self.stop.cancel();
        assert_eq!(within(self.task).await.unwrap(), Ok(()));
        let bookmark = self.bookmark.borrow().clone();
        self.server.forget_sessions();
        let Self { server, ann, guild, room, .. } = self;
        (World { server, ann, guild, room }, Past { bookmark, ..Past::default() })
    }

    /// Stops, and looks whether the bot behaved.
    pub(crate) async fn end(self) {
        self.stop.cancel();
        assert_eq!(within(self.task).await.unwrap(), Ok(()));
        assert_eq!(self.server.faults(), Vec::<String>::new());
    }

    /// Waits for the end that comes by itself.
    pub(crate) async fn ends(self) -> (Server, Result<(), Unfit>) {
        let end = within(self.task).await.unwrap();
        (self.server, end)
    }
}
