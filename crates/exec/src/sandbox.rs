//! A place that is open, and the commands that run in it.

pub mod script;

use std::time::{Duration, SystemTime};

use hermes_guest::client::{self, Client};
use hermes_guest::protocol::limit;
use hermes_guest::protocol::message::{
    AtDeadline, AtEnd, Deadline, Delivery, Fault, Mode, OpenSession, Origin, Program, Run, SessionKey,
    StateRule, Stdin, Workdir,
};
use hermes_policy::Permit;
use hermes_policy::withheld::FAMILIES;
use hermes_types::{Network, Work};
use serde_bytes::ByteBuf;
use tokio::sync::Mutex;

use crate::anchor::Anchor;
use crate::backend::{Begun, Fresh};
use crate::command::{Command, Kind, Terminal};
use crate::proxy::{self, Attached};
use crate::registry::{Record, Room, blocking, is_swept, remove, sweep_now_and_then};
use crate::{Error, Files, Plan, Processes, Size, admission};

/// How often a place is looked for that ends at the very moment it is found.
const ATTEMPTS: u32 = 3;

/// What a caller wants of a command besides its text.
#[derive(Debug, Clone)]
pub struct Wish {
    /// How long it may run.
    pub timeout: Option<Duration>,
    /// What happens then.
    pub at_deadline: AtDeadline,
    /// Bytes of output that are kept to be shown.
    pub keep: u32,
    /// What it reads.
    pub input: Input,
    /// Variables for this command alone.
    pub env: Vec<(String, String)>,
    /// Whether anybody waits for it.
    pub attention: Attention,
    /// Whether the directory of its job is the session's own.
    pub directory: Directory,
    /// A terminal of this size instead of pipes.
    pub terminal: Option<Size>,
}

/// What a command reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Input {
    /// Nothing.
    Nothing,
    /// These bytes.
    Data(Vec<u8>),
    /// What is written to it later, each time with a permit.
    Later,
}

/// Whether anybody waits for a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Attention {
    /// The output is wanted as it comes.
    Live,
    /// The output is wanted at the end.
    AtEnd,
    /// It goes on by itself.
    Background {
        /// Lets a later caller recognize it.
        label: String,
        /// A notice for each line of output that contains one of these.
        watch: Vec<String>,
        /// Whether its end is worth a notice.
        at_end: AtEnd,
    },
}

/// Where a command runs. Either way it is the directory of its job, by which it was judged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Directory {
    /// Where the session is. If the session has moved since the gate was asked, nothing runs.
    Session,
    /// Another one, for this command only.
    Other,
}

/// Whether a place had to be made again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reset {
    /// It is the one that was there, or the first.
    No,
    /// One was there before and is gone with its state.
    Yes,
}

/// A place with its guest, open for one session. It may be held for long: a place that has ended meanwhile is made
/// again for the next command, whose outcome says so.
#[derive(Debug)]
pub struct Sandbox {
    plan: Plan,
    live: Mutex<Live>,
}

/// A guest that was found.
pub(crate) struct Here {
    pub(crate) client: Client,
    pub(crate) made: Made,
}

/// Whether a place is the one that is wanted.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Made {
    /// With the same settings.
    AsWanted,
    /// With others.
    Otherwise,
}

/// A guest, and what became of its place on the way to it.
pub(crate) struct Entry {
    client: Client,
    reset: Reset,
    unenforced: Vec<String>,
}

/// A connection to the guest, with the session open.
#[derive(Debug)]
struct Live {
    client: Client,
    /// What nobody has been told yet.
    reset: Reset,
    /// Where the session was when it was opened, until somebody has asked. Should it have moved since, a job that was
    /// judged by this does not run, and whoever asks again is told anew.
    cwd: Option<String>,
    /// Whether its session was there before.
    origin: Origin,
    /// The limits that are not enforced in a place that was made for it.
    unenforced: Vec<String>,
    /// The way out, where the place has no other.
    _proxy: Option<Attached>,
}

impl Plan {
    /// Finds the place, or makes it. Of two callers one makes it and both get it.
    pub async fn open(&self) -> Result<Sandbox, Error> {
        Ok(Sandbox { live: Mutex::new(self.enter().await?), plan: self.clone() })
    }

    async fn enter(&self) -> Result<Live, Error> {
        for _ in 1..ATTEMPTS {
            match self.try_enter().await {
                // It was ending just then.
                Err(Error::Guest(client::Error::Gone)) => {}
                Err(Error::Guest(client::Error::Breach(_))) => break,
                done => return done,
            }
        }
        // What greets like a guest and then breaks its word cannot be believed again.
        self.reset().await?;
        Ok(Live { reset: Reset::Yes, ..self.try_enter().await? })
    }

    async fn reset(&self) -> Result<(), Error> {
        let room = Room::of(self);
        let _lock = room.lock().await?;
        room.end().await
    }

    async fn try_enter(&self) -> Result<Live, Error> {
        let Entry { client, reset: was_here, unenforced } = self.find_or_make().await?;
        let mut env = pairs(&self.spec.env);
        let is_proxied = self.spec.backend.network() == Network::Proxy;
        if is_proxied {
            env.extend(pairs(&proxy::environment()));
        }
        let init: Vec<_> = self.spec.init.iter().map(|file| ByteBuf::from(file.as_bytes())).collect();
        let withheld = FAMILIES.iter().flat_map(|family| family.names).map(|name| ByteBuf::from(*name));
        let open = OpenSession {
            key: self.guest_session(),
            cwd: ByteBuf::from(self.spec.cwd.as_bytes()),
            env,
            // Nothing but these files can bring in what is to stay outside.
            withheld: if init.is_empty() { Vec::new() } else { withheld.collect() },
            init,
        };
        let attach = async { if is_proxied { proxy::attach(&client).await.map(Some) } else { Ok(None) } };
        let (proxy, view) = tokio::join!(attach, client.open_session(open));
        let (proxy, view) = (proxy?, view?);
        // A place whose guest lost the session has lost its state, whoever made it.
        let reset = if view.origin == Origin::Created { was_here } else { Reset::No };
        let cwd = Some(String::from_utf8_lossy(&view.cwd).into_owned());
        Ok(Live { client, reset, cwd, origin: view.origin, unenforced, _proxy: proxy })
    }

    pub(crate) async fn find_or_make(&self) -> Result<Entry, Error> {
        let room = Room::of(self);
        let found = |client| Entry { client, reset: Reset::No, unenforced: Vec::new() };
        if let Some(Here { client, made: Made::AsWanted }) = self.find(&room).await {
            return Ok(found(client));
        }
        let begun = self.spec.backend.begin();
        let _lock = room.lock().await?;
        let before = room.record();
        // Somebody else may have made it meanwhile.
        match self.find(&room).await {
            Some(Here { client, made: Made::AsWanted }) => return Ok(found(client)),
            // It is not what was judged, so nothing runs there for us; and what runs there is not ours to end.
            Some(Here { client, made: Made::Otherwise })
                if client.stats().await.is_ok_and(|stats| stats.running > 0) =>
            {
                return Err(Error::Changed { name: self.name() });
            }
            // A guest that cannot be talked to is of another version, or broken.
            _ => room.end().await?,
        }
        let files = self.spec.backend.files(self);
        let kept = files.as_deref().and_then(Record::beside);
        if kept.as_ref().and_then(|record| record.anchor).is_some_and(Anchor::lives) {
            return Err(Error::InUseElsewhere { name: self.name() });
        }
        // Only a place that never was can be another that is ready.
        if before.is_none()
            && kept.is_none()
            && let Some(client) = self.take_ready(&room).await?
        {
            return Ok(found(client));
        }
        let run = self.host.run.clone();
        let engines = self.spec.backend.engines();
        // The way to another thread and back takes longer than the look.
        if !is_swept(&run) {
            blocking(move || sweep_now_and_then(&run, engines)).await?;
        }
        admission::admit(&self.host, &room, engines).await?;
        let made = self.make(begun, &room).await;
        if made.is_err() {
            // What cannot be removed now is in the record, for whoever sweeps.
            drop(room.end().await);
        }
        let (client, unenforced) = made?;
        let reset = if before.is_some() || kept.is_some() { Reset::Yes } else { Reset::No };
        Ok(Entry { client, reset, unenforced })
    }

    pub(crate) async fn find(&self, room: &Room) -> Option<Here> {
        let stream = self.spec.backend.reach_guest(room).await.ok()?;
        // Without a record nobody knows what it is: whoever made it was killed, or is about to write that down.
        let made = if room.record()?.place == *self.id() { Made::AsWanted } else { Made::Otherwise };
        tokio::select! {
            client = Client::connect(stream) => Some(Here { client: client.ok()?, made }),
            () = self.stuck() => None,
        }
    }

    async fn make(&self, begun: Begun<'_>, room: &Room) -> Result<(Client, Vec<String>), Error> {
        let mut record = self.record();
        let Fresh { stream, request, unenforced } = begun.make(self, room, &record).await?;
        record.request = request;
        record.unenforced.clone_from(&unenforced);
        // The process of a container may be anybody's on this machine.
        record.anchor = record.container.is_none().then(|| Anchor::of(&stream)).flatten();
        let room = room.clone();
        let written = blocking(move || {
            record.write(room.path())?;
            record.files.iter().try_for_each(|files| record.write(files))
        });
        // Both to their end: whoever clears up after one must not be in the way of the other.
        let (written, client) = tokio::join!(written, Client::connect(stream));
        written?;
        Ok((client?, unenforced))
    }

    /// What is written down about the place when it is made.
    pub(crate) fn record(&self) -> Record {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Record {
            place: self.id().clone(),
            name: self.name(),
            backend: self.backend().as_str().to_owned(),
            session: self.whose().as_str().to_owned(),
            created: now.as_secs(),
            lifetime: self.spec.lifetime.as_secs(),
            reach: self.spec.backend.reach(),
            spec: serde_json::to_value(&self.spec).unwrap_or_default(),
            files: self.spec.backend.files(self),
            anchor: None,
            container: self.spec.backend.container(self),
            request: None,
            unenforced: Vec::new(),
        }
    }

    /// Returns when it is known of the place that it cannot answer.
    async fn stuck(&self) {
        let record = Room::of(self).record();
        match record.and_then(|record| record.container) {
            Some(container) => container.until_stuck().await,
            None => std::future::pending().await,
        }
    }

    fn guest_session(&self) -> SessionKey {
        // Keys may be of any length for us, but not for the guest; whoever shares a place shares its shell too.
        SessionKey::from("session")
    }
}

impl Sandbox {
    /// Where the session is now. The gate must judge a job by this directory.
    pub async fn cwd(&self) -> Result<String, Error> {
        if let Some(cwd) = self.ready().await?.cwd.take() {
            return Ok(cwd);
        }
        let key = self.plan.guest_session();
        let client = self.client().await?;
        let shown = tokio::select! {
            shown = client.show_session(&key) => shown,
            () = self.plan.stuck() => {
                self.replace().await?;
                Err(client::Error::Gone)
            }
        };
        let shown = match shown {
            // Its place ended just then; nothing was asked of it that could be done twice.
            Err(client::Error::Gone) => self.client().await?.show_session(&key).await,
            shown => shown,
        };
        Ok(String::from_utf8_lossy(&shown?.cwd).into_owned())
    }

    /// Makes the place again, whatever is there.
    async fn replace(&self) -> Result<(), Error> {
        let mut live = self.live.lock().await;
        self.plan.reset().await?;
        *live = Live { reset: Reset::Yes, ..self.plan.enter().await? };
        Ok(())
    }

    /// The limits that are not enforced, if the place was made for this. They are told once.
    pub async fn unenforced(&self) -> Vec<String> {
        std::mem::take(&mut self.live.lock().await.unenforced)
    }

    /// What runs there in the background.
    pub async fn processes(&self) -> Result<Processes, Error> {
        let client = self.client().await?;
        Ok(Processes::new(client, self.plan.id().clone(), self.plan.session.clone()))
    }

    /// The files of the place.
    pub async fn files(&self) -> Result<Files, Error> {
        Ok(Files {
            client: self.client().await?,
            place: self.plan.id().clone(),
            session: self.plan.session.clone(),
            guest_session: self.plan.guest_session(),
        })
    }

    /// Ends the place and removes everything it left on this machine. When this returns it is gone.
    pub async fn remove(self) -> Result<(), Error> {
        let room = Room::of(&self.plan);
        let lock = room.lock().await?;
        drop(self.live);
        room.end().await?;
        if let Some(container) = self.plan.spec.backend.container(&self.plan) {
            container.remove_files().await?;
        }
        if let Some(files) = self.plan.spec.backend.files(&self.plan) {
            let container = self.plan.spec.backend.container(&self.plan);
            blocking(move || remove(&files, container.as_ref())).await?;
        }
        lock.discard()
    }

    /// Ends the place, unless somebody else is there or something runs; its kept files stay.
    pub async fn leave(self) -> Result<(), Error> {
        let room = Room::of(&self.plan);
        let lock = room.lock().await?;
        let stats = self.client().await?.stats().await?;
        drop(self.live);
        if stats.clients > 1 || stats.running > 0 {
            return Ok(());
        }
        room.end().await?;
        lock.discard()
    }

    /// Starts the job of a permit. The permit must be for this place and this session.
    pub async fn start(&self, permit: Permit, wish: Wish) -> Result<Command, Error> {
        let foreground = |output| Mode::Foreground { output, state: StateRule::Keep };
        let (kind, mode) = match wish.attention {
            Attention::Live => (Kind::Live, foreground(Delivery::Live)),
            Attention::AtEnd => (Kind::Summary, foreground(Delivery::Summary)),
            Attention::Background { label, watch, at_end } => {
                let watch = watch.into_iter().map(ByteBuf::from).collect();
                (Kind::Background, Mode::Background { label: ByteBuf::from(label), watch, at_end })
            }
        };
        let cwd = permit.job().cwd.clone();
        let run = Run {
            env: pairs(&wish.env),
            stdin: match wish.input {
                Input::Nothing => Stdin::Null,
                Input::Data(data) => Stdin::Data(ByteBuf::from(data)),
                Input::Later => Stdin::Stream,
            },
            terminal: wish.terminal,
            deadline: wish.timeout.map(|after| Deadline { after, then: wish.at_deadline }),
            keep: wish.keep,
            ..self.redeem(permit, wish.directory, mode)?
        };
        let (client, reset) = self.client_and_news().await?;
        let running = client.run(run).await.map_err(moved)?;
        Ok(Command::new(running, cwd, reset, kind))
    }

    /// Gives a person a terminal in which the job of the permit runs: what is typed there is not judged again.
    pub async fn terminal(
        &self,
        permit: Permit,
        size: Size,
        env: &[(String, String)],
    ) -> Result<Terminal, Error> {
        let mode = Mode::Foreground { output: Delivery::Live, state: StateRule::Leave };
        let run = Run {
            env: pairs(env),
            stdin: Stdin::Stream,
            terminal: Some(size),
            ..self.redeem(permit, Directory::Session, mode)?
        };
        let (client, _reset) = self.client_and_news().await?;
        Ok(Terminal::new(client.run(run).await.map_err(moved)?))
    }

    /// Turns a permit into something to run, with nothing asked for besides.
    fn redeem(&self, permit: Permit, directory: Directory, mode: Mode) -> Result<Run, Error> {
        let job = permit.redeem(self.plan.id(), &self.plan.session)?;
        let Work::Shell(text) = job.work else { return Err(Error::NotACommand) };
        // The gate judged the job by its directory, so it runs there or not at all.
        let workdir = match directory {
            Directory::Session => Workdir::SessionAt(ByteBuf::from(job.cwd)),
            Directory::Other => Workdir::Other(ByteBuf::from(job.cwd)),
        };
        Ok(Run {
            session: self.plan.guest_session(),
            program: Program::Shell(ByteBuf::from(text)),
            workdir,
            env: Vec::new(),
            stdin: Stdin::Null,
            terminal: None,
            deadline: None,
            mode,
            keep: 0,
            spool: limit::SPOOL,
        })
    }

    async fn client(&self) -> Result<Client, Error> {
        Ok(self.ready().await?.client.clone())
    }

    /// The connection for a command, which may move the session, and the one chance to learn that the place was made
    /// again.
    async fn client_and_news(&self) -> Result<(Client, Reset), Error> {
        let mut live = self.ready().await?;
        live.cwd = None;
        Ok((live.client.clone(), std::mem::replace(&mut live.reset, Reset::No)))
    }

    async fn ready(&self) -> Result<tokio::sync::MutexGuard<'_, Live>, Error> {
        let mut live = self.live.lock().await;
        if live.client.is_closed() {
            let untold = live.reset;
            *live = self.plan.enter().await?;
            // We had a session; if this one is new, ours is lost.
            if untold == Reset::Yes || live.origin == Origin::Created {
                live.reset = Reset::Yes;
            }
        }
        Ok(live)
    }
}

/// A session that is elsewhere by now is not a fault: the caller looks again.
fn moved(error: client::Error) -> Error {
    match error {
        client::Error::Refused(Fault::Moved) => Error::Moved,
        other => Error::Guest(other),
    }
}

fn pairs(env: &[(String, String)]) -> Vec<(ByteBuf, ByteBuf)> {
    let bytes = |text: &String| ByteBuf::from(text.as_bytes());
    env.iter().map(|(name, value)| (bytes(name), bytes(value))).collect()
}
