//! A place that is open, and the commands that run in it.

use std::time::{Duration, SystemTime};

use hermes_guest::client::{Client, Event, Running};
use hermes_guest::protocol::limit;
use hermes_guest::protocol::message::{
    AtDeadline, AtEnd, Cause, Deadline, Delivery, Ended, Mode, OpenSession, Origin, Program, Run, StateRule,
    Stdin, Workdir,
};
use hermes_policy::Permit;
use hermes_types::Work;
use serde_bytes::ByteBuf;
use tokio::time::Instant;

use crate::registry::{Record, Room, sweep};
use crate::{Ending, Error, Files, Outcome, Plan};

/// What a caller wants of a command besides its text.
#[derive(Debug, Clone)]
pub struct Wish {
    /// How long it may run.
    pub timeout: Duration,
    /// Bytes of output that are kept to be shown.
    pub keep: u32,
    /// What it reads.
    pub input: Option<Vec<u8>>,
    /// Variables for this command alone.
    pub env: Vec<(String, String)>,
    /// Whether anybody waits for it.
    pub attention: Attention,
}

/// Whether anybody waits for a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Attention {
    /// The output is wanted as it comes.
    Live,
    /// The output is wanted at the end.
    AtEnd,
    /// It goes on by itself.
    Background,
}

/// A place with its guest, open for one session.
#[derive(Debug)]
pub struct Sandbox {
    plan: Plan,
    client: Client,
    /// Where the session was when it was entered.
    cwd: String,
    /// Whether a place that was here before is gone with its state.
    was_reset: Reset,
}

/// Whether a place had to be made again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reset {
    /// It is the one that was there, or the first.
    No,
    /// One was there before and is gone.
    Yes,
}

impl Plan {
    /// Finds the place, or makes it. Of two callers one makes it and both get it.
    pub async fn open(&self) -> Result<Sandbox, Error> {
        let room = Room::of(self);
        if let Ok(stream) = self.spec.backend.reach_guest(&room).await {
            return Sandbox::enter(self.clone(), Client::connect(stream).await?, Reset::No).await;
        }
        let waiting = room.clone();
        let lock = tokio::task::spawn_blocking(move || waiting.lock()).await;
        let _lock = lock.map_err(std::io::Error::other).map_err(Error::file(&room.socket()))??;
        // Somebody else may have made it meanwhile.
        if let Ok(stream) = self.spec.backend.reach_guest(&room).await {
            return Sandbox::enter(self.clone(), Client::connect(stream).await?, Reset::No).await;
        }
        let was_reset = if room.record().is_some() { Reset::Yes } else { Reset::No };
        let run = self.host.run.clone();
        let swept = tokio::task::spawn_blocking(move || sweep(&run)).await;
        swept.map_err(std::io::Error::other).map_err(Error::file(&room.socket()))??;
        room.clear()?;
        let made = self.make(&room).await;
        if made.is_err() {
            room.clear()?;
        }
        Sandbox::enter(self.clone(), made?, was_reset).await
    }

    async fn make(&self, room: &Room) -> Result<Client, Error> {
        room.make()?;
        self.spec.backend.make(self, room).await?;
        let stream = self.spec.backend.reach_guest(room).await.map_err(Error::file(&room.socket()))?;
        let client = Client::connect(stream).await?;
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        room.write(&Record {
            place: self.id().clone(),
            name: self.name(),
            backend: self.backend().word().to_owned(),
            session: self.session.as_str().to_owned(),
            created: now.as_secs(),
            lifetime: self.spec.lifetime.as_secs(),
        })?;
        Ok(client)
    }

    fn guest_session(&self) -> hermes_guest::protocol::message::SessionKey {
        // Keys may be of any length for us, but not for the guest; the place is this session's alone anyway.
        hermes_guest::protocol::message::SessionKey::from("session")
    }
}

impl Sandbox {
    async fn enter(plan: Plan, client: Client, was_reset: Reset) -> Result<Self, Error> {
        let about = client.about().await?;
        let mut env = about.base_env;
        env.extend(pairs(&plan.spec.env));
        let open =
            OpenSession { key: plan.guest_session(), cwd: ByteBuf::from(plan.spec.cwd.as_bytes()), env };
        let view = client.open_session(open).await?;
        // A place whose guest lost the session has lost its state, whoever made it.
        let was_reset = if view.origin == Origin::Created { was_reset } else { Reset::No };
        let cwd = String::from_utf8_lossy(&view.cwd).into_owned();
        Ok(Self { plan, client, cwd, was_reset })
    }

    /// Where the session was when it was opened. The gate must judge a job by this directory; if the session has
    /// moved meanwhile the job does not run, and the place is opened again.
    pub fn cwd(&self) -> &str {
        &self.cwd
    }

    /// Whether the state of an earlier place is lost.
    pub fn was_reset(&self) -> Reset {
        self.was_reset
    }

    /// The files of the place.
    pub fn files(&self) -> Files<'_> {
        Files {
            client: &self.client,
            place: self.plan.id(),
            session: &self.plan.session,
            guest_session: self.plan.guest_session(),
        }
    }

    /// Removes what the place left on this machine. Its guest ends itself.
    pub fn remove(self) -> Result<(), Error> {
        Room::of(&self.plan).clear()?;
        self.plan.spec.backend.remove(&self.plan)
    }

    /// Starts the job of a permit. The permit must be for this place and this session.
    pub async fn start(&self, permit: Permit, wish: Wish) -> Result<Command, Error> {
        let job = permit.redeem(self.plan.id(), &self.plan.session)?;
        let Work::Shell(text) = job.work else { return Err(Error::NotACommand) };
        // The gate judged the job by its directory, so it runs there or not at all.
        let workdir = match job.cwd == self.cwd {
            true => Workdir::SessionAt(ByteBuf::from(job.cwd)),
            false => Workdir::Other(ByteBuf::from(job.cwd)),
        };
        let mode = match wish.attention {
            Attention::Live => Mode::Foreground { output: Delivery::Live, state: StateRule::Keep },
            Attention::AtEnd => Mode::Foreground { output: Delivery::Summary, state: StateRule::Keep },
            Attention::Background => {
                Mode::Background { label: ByteBuf::new(), watch: Vec::new(), at_end: AtEnd::Notify }
            }
        };
        let run = Run {
            session: self.plan.guest_session(),
            program: Program::Shell(ByteBuf::from(text)),
            workdir,
            env: pairs(&wish.env),
            stdin: wish.input.map_or(Stdin::Null, |input| Stdin::Data(ByteBuf::from(input))),
            terminal: None,
            deadline: (wish.attention != Attention::Background)
                .then_some(Deadline { after: wish.timeout, then: AtDeadline::Kill }),
            mode,
            keep: wish.keep,
            spool: limit::SPOOL,
        };
        let started = Instant::now();
        let running = self.client.run(run).await?;
        let cwd = self.cwd.clone();
        Ok(Command { running, started, attention: wish.attention, cwd })
    }
}

fn pairs(env: &[(String, String)]) -> Vec<(ByteBuf, ByteBuf)> {
    let bytes = |text: &String| ByteBuf::from(text.as_bytes());
    env.iter().map(|(name, value)| (bytes(name), bytes(value))).collect()
}

/// A command that runs. Dropping it kills its whole tree, unless it is in the background.
#[derive(Debug)]
pub struct Command {
    running: Running,
    started: Instant,
    attention: Attention,
    cwd: String,
}

/// What comes from a running command.
#[derive(Debug)]
pub enum Happening {
    /// Some of its output.
    Output(Vec<u8>),
    /// Its end.
    End(Outcome),
}

impl Command {
    /// The next thing that comes from it. Can be cancelled without losing anything.
    pub async fn next(&mut self) -> Result<Happening, Error> {
        if self.attention == Attention::Background {
            let ending = self.running.id().map_or(Ending::BadDirectory, Ending::Background);
            return Ok(Happening::End(self.outcome(0, ending, Vec::new(), 0, 0)));
        }
        Ok(match self.running.next().await? {
            Event::Output(page) => Happening::Output(page.data.into_vec()),
            Event::Moved(id) => Happening::End(self.outcome(0, Ending::Background(id), Vec::new(), 0, 0)),
            Event::Ended(ended) => Happening::End(self.ended(*ended)),
        })
    }

    /// Does what Ctrl-C does. The end still comes.
    pub async fn interrupt(&mut self) -> Result<(), Error> {
        Ok(self.running.interrupt().await?)
    }

    fn ended(&mut self, ended: Ended) -> Outcome {
        self.cwd = String::from_utf8_lossy(&ended.cwd).into_owned();
        let ending = match ended.cause {
            Cause::Exited | Cause::Signaled(_) | Cause::Killed => Ending::Exited,
            Cause::Deadline => Ending::TimedOut,
            Cause::Interrupted => Ending::Interrupted,
            Cause::BadDirectory => Ending::BadDirectory,
        };
        let kept = (ended.head.len() + ended.tail.len()) as u64;
        let omitted = match self.attention {
            Attention::AtEnd => ended.total.saturating_sub(kept),
            Attention::Live | Attention::Background => 0,
        };
        let output = [ended.head.into_vec(), ended.tail.into_vec()].concat();
        self.outcome(ended.code, ending, output, omitted, ended.total)
    }

    fn outcome(&self, code: i32, ending: Ending, output: Vec<u8>, omitted: u64, total: u64) -> Outcome {
        let duration = self.started.elapsed();
        Outcome { code, ending, output, omitted, total, duration, cwd: self.cwd.clone() }
    }
}
