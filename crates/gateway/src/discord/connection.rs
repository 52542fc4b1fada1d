//! The connection to the gateway: it is kept, noticed when it is lost, and made again.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use hermes_agent::http::tls;
use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use twilight_model::gateway::{CloseCode, Intents, OpCode};

use super::arrive::{self, Event, read};
use super::payload::{Interaction, Message, Ready};
use super::places::Contents;
use super::socket::{self, Heard, Socket};
use super::{Account, Bookmark, Me, lock, rest};
use crate::channel::{Desk, Health, Unfit};

/// What the bot wants to be told.
const INTENTS: Intents = Intents::GUILDS
    .union(Intents::GUILD_MESSAGES)
    .union(Intents::DIRECT_MESSAGES)
    .union(Intents::MESSAGE_CONTENT);
/// Where Discord's own gateway is.
const DISCORD: &str = "wss://gateway.discord.gg";
/// How many events wait for their turn.
const WAITING: usize = 1000;
/// The longest the platform says nothing before it told its pace.
const GREETING: Duration = Duration::from_secs(15);
/// How often the platform wants to hear of us where it does not say it well.
const PACE: Duration = Duration::from_secs(40);
/// The longest between two tries to connect.
const LONGEST: Duration = Duration::from_secs(60);
/// How often a session may be begun.
const BEGINS: Duration = Duration::from_secs(5);

const DISPATCH: u8 = OpCode::Dispatch as u8;
const HEARTBEAT: u8 = OpCode::Heartbeat as u8;
const IDENTIFY: u8 = OpCode::Identify as u8;
const RESUME: u8 = OpCode::Resume as u8;
const RECONNECT: u8 = OpCode::Reconnect as u8;
const INVALID_SESSION: u8 = OpCode::InvalidSession as u8;
const HELLO: u8 = OpCode::Hello as u8;

/// Something the gateway says.
#[derive(Debug, Deserialize)]
struct Envelope<'a> {
    op: u8,
    #[serde(default)]
    t: Option<String>,
    #[serde(default)]
    s: Option<u64>,
    #[serde(borrow)]
    d: Option<&'a RawValue>,
}

#[derive(Debug, Deserialize)]
struct Hello {
    /// Milliseconds, not always whole ones.
    heartbeat_interval: f64,
}

/// How a connection ended.
enum End {
    /// It was told to stop.
    Stopped,
    /// It cannot heal.
    Unfit(Unfit),
    /// It was lost.
    Lost(String),
    /// The gateway wants another one.
    Another,
    /// Its session is over, and a new one is to be begun.
    Over,
}

/// A session that can be gone on with.
struct Session {
    id: String,
    /// Where, if not where all begin.
    url: Option<String>,
    /// The last thing that was told in it.
    sequence: u64,
}

/// Stays connected until it is told to stop.
pub(super) async fn run(account: &Arc<Account>, desk: Desk, stop: CancellationToken) -> Result<(), Unfit> {
    let remedy = "install the package ca-certificates, or name a file of certificates in SSL_CERT_FILE";
    account.rest.road.tls().map_err(|why| Unfit { why, remedy: remedy.to_owned() })?;
    desk.health.send_replace(Health::Connecting);
    let (sender, events) = mpsc::channel(WAITING);
    let bookmark = account.bookmark.clone();
    let session = bookmark.as_ref().map(|bookmark| Session {
        id: bookmark.session.clone(),
        url: bookmark.url.clone(),
        sequence: bookmark.sequence,
    });
    let keeper = Keeper {
        account,
        desk: &desk,
        events: sender,
        stop,
        failures: 0,
        pace: GREETING,
        bookmark,
        session,
        begun: None,
    };
    tokio::select! {
        end = keeper.stay() => end,
        () = arrive::work(account, &desk, events) => Ok(()),
    }
}

/// Who keeps the connection.
struct Keeper<'a> {
    account: &'a Arc<Account>,
    desk: &'a Desk,
    events: mpsc::Sender<(Event, Option<Bookmark>)>,
    stop: CancellationToken,
    /// How often connecting failed in a row.
    failures: u32,
    /// How long the platform may say nothing.
    pace: Duration,
    /// How far the platform was heard.
    bookmark: Option<Bookmark>,
    session: Option<Session>,
    /// When a session was begun.
    begun: Option<Instant>,
}

impl Keeper<'_> {
    async fn stay(mut self) -> Result<(), Unfit> {
        loop {
            let goes_on = match self.connect().await {
                End::Stopped => return Ok(()),
                End::Unfit(unfit) => {
                    self.desk.health.send_replace(Health::Down { why: unfit.why.clone() });
                    return Err(unfit);
                }
                End::Lost(why) => {
                    self.down(why);
                    self.rest().await
                }
                End::Another => {
                    self.desk.health.send_replace(Health::Connecting);
                    self.rest().await
                }
                End::Over => {
                    self.session = None;
                    self.desk.health.send_replace(Health::Connecting);
                    // The platform wants some seconds of peace.
                    self.sleep(Duration::from_secs(1).mul_f64(1.0 + 4.0 * fastrand::f64())).await
                }
            };
            if !goes_on {
                return Ok(());
            }
        }
    }

    /// Connects, and listens until the connection has to be made anew.
    async fn connect(&mut self) -> End {
        let settings = &self.account.settings;
        if self.session.is_none()
            && let Some(begun) = self.begun
            && !self.sleep((begun + BEGINS).saturating_duration_since(Instant::now())).await
        {
            return End::Stopped;
        }
        let start = settings.gateway_url.as_deref().unwrap_or(DISCORD);
        let url = self.session.as_ref().and_then(|session| session.url.as_deref());
        // The token is never said in the open where it was to be said in secret.
        let url = url.filter(|url| socket::is_secret(url) || !socket::is_secret(start));
        let stop = self.stop.clone();
        let connected = tokio::select! {
            biased;
            () = stop.cancelled() => return End::Stopped,
            connected = Socket::connect(url.unwrap_or(start), &self.account.rest.road) => connected,
        };
        let mut socket = match connected {
            Ok(socket) => socket,
            Err(error) => {
                // A session can be gone on with where all begin, too.
                if let Some(session) = &mut self.session {
                    session.url = None;
                }
                return End::Lost(self.account.rest.road.unreached(&tls::why_and_remedy(&*error)));
            }
        };
        let end = self.listen(&mut socket).await;
        match end {
            // Who closed it or was cut off hears nothing more.
            End::Lost(_) | End::Unfit(_) => drop(socket),
            End::Stopped => socket.leave().await,
            // What is still to be done need not wait for it.
            End::Another | End::Over => drop(tokio::spawn(socket.leave())),
        }
        end
    }

    async fn listen(&mut self, socket: &mut Socket) -> End {
        self.pace = GREETING;
        loop {
            let stop = self.stop.clone();
            let next = tokio::select! {
                biased;
                () = stop.cancelled() => return End::Stopped,
                next = tokio::time::timeout(self.pace, socket.next()) => next,
            };
            let ended = match next {
                Err(_) => Some(End::Lost("Discord fell silent".to_owned())),
                Ok(Heard::Text(text)) => self.take(socket, &text).await,
                Ok(Heard::Closed { code, reason }) => Some(match hopeless(code) {
                    Some(unfit) => End::Unfit(unfit),
                    None => End::Lost(format!(
                        "Discord closed the connection ({})",
                        format!("{code} {reason}").trim_end()
                    )),
                }),
                Ok(Heard::Gone(why)) => Some(End::Lost(why)),
            };
            if let Some(end) = ended {
                return end;
            }
        }
    }

    /// Takes what the gateway says. Gives how the connection ends, if that ends it.
    async fn take(&mut self, socket: &mut Socket, text: &str) -> Option<End> {
        let envelope = read::<Envelope<'_>>("an event", text)?;
        let body = envelope.d.map(RawValue::get).unwrap_or("null");
        match envelope.op {
            HELLO => {
                let hello = read::<Hello>("a greeting", body)?;
                let every = Duration::try_from_secs_f64(hello.heartbeat_interval / 1000.0).unwrap_or(PACE);
                // Whether it answers is noticed sooner; this is for when nothing gets through.
                self.pace = every.saturating_mul(2).saturating_add(Duration::from_secs(1));
                socket.keep_alive(every);
                return self.greet(socket).await.err().map(End::Lost);
            }
            HEARTBEAT => return socket.tell_alive().await.err().map(End::Lost),
            RECONNECT => return Some(End::Another),
            INVALID_SESSION if body == "true" => return Some(End::Another),
            INVALID_SESSION => return Some(End::Over),
            DISPATCH => {}
            _ => return None,
        }
        socket.sequence = envelope.s.or(socket.sequence);
        let event = self.dispatch(&envelope.t?, body);
        if let (Some(session), Some(sequence)) = (&mut self.session, envelope.s) {
            session.sequence = sequence;
        }
        let event = event?;
        if let (Some(bookmark), Some(sequence)) = (&mut self.bookmark, envelope.s) {
            bookmark.sequence = sequence;
        }
        tokio::select! {
            () = self.stop.cancelled() => Some(End::Stopped),
            sent = self.events.send((event, self.bookmark.clone())) => match sent {
                Ok(()) => None,
                Err(_) => Some(End::Stopped),
            },
        }
    }

    /// Begins a session, or goes on with one.
    async fn greet(&mut self, socket: &mut Socket) -> Result<(), String> {
        let token = rest::bare(self.account.settings.token.expose());
        let greeting = match &self.session {
            Some(session) => {
                socket.sequence = Some(session.sequence);
                let seq = session.sequence;
                json!({"op": RESUME, "d": {"token": token, "session_id": session.id, "seq": seq}})
            }
            None => {
                self.begun = Some(Instant::now());
                let properties = json!({"os": std::env::consts::OS, "browser": "hermes", "device": "hermes"});
                let intents = INTENTS.bits();
                json!({"op": IDENTIFY, "d": {"token": token, "intents": intents, "properties": properties}})
            }
        };
        socket.say(&greeting).await
    }

    fn dispatch(&mut self, name: &str, body: &str) -> Option<Event> {
        let account = self.account;
        // Whoever tells what happens has taken the session up again, whether it says so or not.
        if name != "READY" && *self.desk.health.borrow() != Health::Up {
            self.up();
        }
        match name {
            "READY" => {
                let ready: Ready = read("a greeting", body)?;
                let user = ready.user.id.to_string();
                // They are the same for all bots but the oldest.
                let application =
                    ready.application.map_or_else(|| user.clone(), |named| named.id.to_string());
                let me = Me { user, application };
                *account.me.write().unwrap_or_else(PoisonError::into_inner) = Some(me.clone());
                let (session, url) = (ready.session_id, ready.resume_gateway_url);
                self.session = Some(Session { id: session.clone(), url: url.clone(), sequence: 0 });
                self.bookmark = Some(Bookmark { session, url, sequence: 0, heard: 0, me });
                self.up();
                return Some(Event::Began(ready.guilds.into_iter().map(|guild| guild.id).collect()));
            }
            "GUILD_CREATE" => {
                let contents: Contents = read("a server", body)?;
                let told = Event::Told(contents.guild(), contents.last(), contents.halls());
                lock(&account.places).learn_all(contents);
                return Some(told);
            }
            "THREAD_LIST_SYNC" => lock(&account.places).learn_all(read("a server", body)?),
            "CHANNEL_CREATE" | "CHANNEL_UPDATE" | "THREAD_CREATE" | "THREAD_UPDATE" => {
                lock(&account.places).learn(read("a channel", body)?);
            }
            "CHANNEL_DELETE" | "THREAD_DELETE" => lock(&account.places).forget(&read("a channel", body)?),
            "MESSAGE_CREATE" => {
                let message: Box<Message> = read("a message", body)?;
                if account.me().is_some_and(|me| me.user == message.author.id.to_string()) {
                    if let Some(nonce) = &message.nonce {
                        account.heard(nonce, &message.id.to_string());
                    }
                    return None;
                }
                return Some(Event::Said(message));
            }
            "INTERACTION_CREATE" => {
                let call: Interaction = read("a command", body)?;
                tokio::spawn(arrive::take_call(Arc::clone(account), self.desk.arrivals.clone(), call));
            }
            _ => {}
        }
        None
    }

    fn up(&mut self) {
        self.failures = 0;
        self.desk.health.send_replace(Health::Up);
    }

    fn down(&self, why: String) {
        self.desk.health.send_replace(Health::Down { why });
    }

    /// Waits before the next try. False when it was told to stop.
    async fn rest(&mut self) -> bool {
        let wait = pause(self.failures, fastrand::f64());
        self.failures = self.failures.saturating_add(1);
        self.sleep(wait).await
    }

    async fn sleep(&self, wait: Duration) -> bool {
        tokio::select! {
            biased;
            () = self.stop.cancelled() => false,
            () = tokio::time::sleep(wait) => true,
        }
    }
}

/// How long to wait after so many failures: at once, then twice as long each time, and never two bots at the same moment.
fn pause(failures: u32, chance: f64) -> Duration {
    match failures {
        0 => Duration::ZERO,
        _ => Duration::from_secs(1 << failures.min(10)).min(LONGEST).mul_f64(0.5 + chance / 2.0),
    }
}

/// What is wrong when trying again cannot help.
fn hopeless(code: u16) -> Option<Unfit> {
    let (why, remedy) = match CloseCode::try_from(code).ok()? {
        CloseCode::AuthenticationFailed => (
            "Discord does not take the bot's token",
            "copy the token from the Bot page of the developer portal, and paste it to `hermes config set discord.bot_token -`",
        ),
        CloseCode::DisallowedIntents => (
            "the bot may not read message content",
            "turn on the Message Content Intent on the Bot page of the developer portal",
        ),
        CloseCode::ShardingRequired => {
            ("the bot is in more servers than one connection can serve", "remove it from some servers")
        }
        CloseCode::InvalidShard | CloseCode::InvalidApiVersion | CloseCode::InvalidIntents => {
            ("Discord no longer speaks with this version of hermes", "update hermes")
        }
        _ => return None,
    };
    Some(Unfit { why: why.to_owned(), remedy: remedy.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_and_are_never_the_same() {
        assert_eq!(pause(0, 0.9), Duration::ZERO);
        assert_eq!((pause(1, 0.0), pause(1, 1.0)), (Duration::from_secs(1), Duration::from_secs(2)));
        assert_eq!((pause(3, 0.0), pause(3, 1.0)), (Duration::from_secs(4), Duration::from_secs(8)));
        assert_eq!(pause(u32::MAX, 1.0), LONGEST);
    }

    #[test]
    fn only_what_cannot_heal_is_an_end() {
        for code in [1000, 1006, 4000, 4001, 4007, 4008, 4009, 4999] {
            assert_eq!(hopeless(code), None, "{code}");
        }
        for code in [4004, 4010, 4011, 4012, 4013, 4014] {
            assert!(hopeless(code).is_some_and(|unfit| !unfit.remedy.is_empty()), "{code}");
        }
    }
}
