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

use crate::backend::{CreatedPlace, PlaceCreation};
use crate::command::{CommandMode, RunningCommand, Terminal};
use crate::pidfd::ProcessRef;
use crate::proxy::{self, ProxyTask};
use crate::registry::{PlaceDir, PlaceRecord, is_recently_swept, remove, remove_stale_if_due, run_blocking};
use crate::{Error, GuestFiles, Processes, ResolvedPlace, Size, capacity};

/// How often a place is looked for that ends at the very moment it is found.
const MAX_CONNECT_ATTEMPTS: u32 = 3;

/// What a caller wants of a command besides its text.
#[derive(Debug, Clone)]
pub struct RunOptions {
    /// How long it may run.
    pub timeout: Option<Duration>,
    /// What happens then.
    pub at_deadline: AtDeadline,
    /// Bytes of output that are kept to be shown.
    pub keep_bytes: u32,
    /// What it reads.
    pub input: CommandInput,
    /// Variables for this command alone.
    pub env: Vec<(String, String)>,
    /// Whether anybody waits for it.
    pub output: OutputMode,
    /// Whether the directory of its job is the session's own.
    pub directory: WorkingDirectory,
    /// A terminal of this size instead of pipes.
    pub terminal_size: Option<Size>,
}

/// What a command reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CommandInput {
    /// Nothing.
    None,
    /// These bytes.
    Data(Vec<u8>),
    /// What is written to it later, each time with a permit.
    Stream,
}

/// Whether anybody waits for a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OutputMode {
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
pub enum WorkingDirectory {
    /// Where the session is. If the session has moved since the gate was asked, nothing runs.
    Session,
    /// Another one, for this command only.
    Override,
}

/// Whether a place had to be made again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StateLoss {
    /// It is the one that was there, or the first.
    No,
    /// One was there before and is gone with its state.
    Yes,
}

/// A place with its guest, open for one session. It may be held for long: a place that has ended meanwhile is made
/// again for the next command, whose outcome says so.
#[derive(Debug)]
pub struct OpenPlace {
    place: ResolvedPlace,
    connection: Mutex<GuestConnection>,
}

/// A guest that was found.
pub(crate) struct FoundGuest {
    pub(crate) client: Client,
    pub(crate) settings: SettingsMatch,
}

/// Whether a place is the one that is wanted.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum SettingsMatch {
    /// With the same settings.
    Same,
    /// With others.
    Different,
}

/// A guest, and what became of its place on the way to it.
pub(crate) struct AcquiredGuest {
    client: Client,
    state_loss: StateLoss,
    unenforced_limits: Vec<String>,
}

/// A connection to the guest, with the session open.
#[derive(Debug)]
struct GuestConnection {
    client: Client,
    /// What nobody has been told yet.
    state_loss: StateLoss,
    /// Where the session was when it was opened, until somebody has asked. Should it have moved since, a job that was
    /// judged by this does not run, and whoever asks again is told anew.
    cwd: Option<String>,
    /// Whether its session was there before.
    origin: Origin,
    /// The limits that are not enforced in a place that was made for it.
    unenforced_limits: Vec<String>,
    /// The way out, where the place has no other.
    _proxy: Option<ProxyTask>,
}

impl ResolvedPlace {
    /// Finds the place, or makes it. Of two callers one makes it and both get it.
    pub async fn open(&self) -> Result<OpenPlace, Error> {
        Ok(OpenPlace { connection: Mutex::new(self.connect().await?), place: self.clone() })
    }

    async fn connect(&self) -> Result<GuestConnection, Error> {
        for _ in 1..MAX_CONNECT_ATTEMPTS {
            match self.try_connect().await {
                // It was ending just then.
                Err(Error::Guest(client::Error::Gone)) => {}
                Err(Error::Guest(client::Error::Breach(_))) => break,
                done => return done,
            }
        }
        // What greets like a guest and then breaks its word cannot be believed again.
        self.end_place().await?;
        Ok(GuestConnection { state_loss: StateLoss::Yes, ..self.try_connect().await? })
    }

    async fn end_place(&self) -> Result<(), Error> {
        let room = PlaceDir::for_place(self);
        let _lock = room.lock().await?;
        room.end_place().await
    }

    async fn try_connect(&self) -> Result<GuestConnection, Error> {
        let AcquiredGuest { client, state_loss: was_here, unenforced_limits: unenforced } =
            self.find_or_create().await?;
        let mut env = to_byte_pairs(&self.spec.env);
        let is_proxied = self.spec.backend.network() == Network::Proxy;
        if is_proxied {
            env.extend(to_byte_pairs(&proxy::proxy_env()));
        }
        let init: Vec<_> = self.spec.init.iter().map(|file| ByteBuf::from(file.as_bytes())).collect();
        let withheld = FAMILIES.iter().flat_map(|family| family.names).map(|name| ByteBuf::from(*name));
        let open = OpenSession {
            key: self.guest_session_key(),
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
        let reset = if view.origin == Origin::Created { was_here } else { StateLoss::No };
        let cwd = Some(String::from_utf8_lossy(&view.cwd).into_owned());
        Ok(GuestConnection {
            client,
            state_loss: reset,
            cwd,
            origin: view.origin,
            unenforced_limits: unenforced,
            _proxy: proxy,
        })
    }

    pub(crate) async fn find_or_create(&self) -> Result<AcquiredGuest, Error> {
        let room = PlaceDir::for_place(self);
        let found =
            |client| AcquiredGuest { client, state_loss: StateLoss::No, unenforced_limits: Vec::new() };
        if let Some(FoundGuest { client, settings: SettingsMatch::Same }) = self.find_guest(&room).await {
            return Ok(found(client));
        }
        let begun = self.spec.backend.start_creation();
        let _lock = room.lock().await?;
        let before = room.record();
        // Somebody else may have made it meanwhile.
        match self.find_guest(&room).await {
            Some(FoundGuest { client, settings: SettingsMatch::Same }) => return Ok(found(client)),
            // It is not what was judged, so nothing runs there for us; and what runs there is not ours to end.
            Some(FoundGuest { client, settings: SettingsMatch::Different })
                if client.stats().await.is_ok_and(|stats| stats.running > 0) =>
            {
                return Err(Error::SettingsChanged { name: self.name() });
            }
            // A guest that cannot be talked to is of another version, or broken.
            _ => room.end_place().await?,
        }
        let files = self.spec.backend.kept_dir(self);
        let kept = files.as_deref().and_then(PlaceRecord::read_from);
        if kept.as_ref().and_then(|record| record.process).is_some_and(ProcessRef::is_alive) {
            return Err(Error::InUseElsewhere { name: self.name() });
        }
        // Only a place that never was can be another that is ready.
        if before.is_none()
            && kept.is_none()
            && let Some(client) = self.take_warm(&room).await?
        {
            return Ok(found(client));
        }
        let run = self.installation.run_dir.clone();
        let engines = self.spec.backend.engine_access();
        // The way to another thread and back takes longer than the look.
        if !is_recently_swept(&run) {
            run_blocking(move || remove_stale_if_due(&run, engines)).await?;
        }
        capacity::reserve(&self.installation, &room, engines).await?;
        let made = self.create_place(begun, &room).await;
        if made.is_err() {
            // What cannot be removed now is in the record, for whoever sweeps.
            drop(room.end_place().await);
        }
        let (client, unenforced) = made?;
        let reset = if before.is_some() || kept.is_some() { StateLoss::Yes } else { StateLoss::No };
        Ok(AcquiredGuest { client, state_loss: reset, unenforced_limits: unenforced })
    }

    pub(crate) async fn find_guest(&self, room: &PlaceDir) -> Option<FoundGuest> {
        let stream = self.spec.backend.connect_guest(room).await.ok()?;
        // Without a record nobody knows what it is: whoever made it was killed, or is about to write that down.
        let settings =
            if room.record()?.place == *self.id() { SettingsMatch::Same } else { SettingsMatch::Different };
        tokio::select! {
            client = Client::connect(stream) => Some(FoundGuest { client: client.ok()?, settings }),
            () = self.until_unresponsive() => None,
        }
    }

    async fn create_place(
        &self,
        begun: PlaceCreation<'_>,
        room: &PlaceDir,
    ) -> Result<(Client, Vec<String>), Error> {
        let mut record = self.new_record();
        let CreatedPlace { stream, request, unenforced_limits: unenforced } =
            begun.create(self, room, &record).await?;
        record.request = request;
        record.unenforced.clone_from(&unenforced);
        // The process of a container may be anybody's on this machine.
        record.process = record.container.is_none().then(|| ProcessRef::of_peer(&stream)).flatten();
        let room = room.clone();
        let written = run_blocking(move || {
            record.write(room.path())?;
            record.files.iter().try_for_each(|files| record.write(files))
        });
        // Both to their end: whoever clears up after one must not be in the way of the other.
        let (written, client) = tokio::join!(written, Client::connect(stream));
        written?;
        Ok((client?, unenforced))
    }

    /// What is written down about the place when it is made.
    pub(crate) fn new_record(&self) -> PlaceRecord {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        PlaceRecord {
            place: self.id().clone(),
            name: self.name(),
            backend: self.backend_name().as_str().to_owned(),
            session: self.owner_key().as_str().to_owned(),
            created: now.as_secs(),
            lifetime: self.spec.lifetime.as_secs(),
            reach: self.spec.backend.reach(),
            spec: serde_json::to_value(&self.spec).unwrap_or_default(),
            files: self.spec.backend.kept_dir(self),
            process: None,
            container: self.spec.backend.container(self),
            request: None,
            unenforced: Vec::new(),
        }
    }

    /// Returns when it is known of the place that it cannot answer.
    async fn until_unresponsive(&self) {
        let record = PlaceDir::for_place(self).record();
        match record.and_then(|record| record.container) {
            Some(container) => container.until_inactive().await,
            None => std::future::pending().await,
        }
    }

    fn guest_session_key(&self) -> SessionKey {
        // Keys may be of any length for us, but not for the guest; whoever shares a place shares its shell too.
        SessionKey::from("session")
    }
}

impl OpenPlace {
    /// Where the session is now. The gate must judge a job by this directory.
    pub async fn cwd(&self) -> Result<String, Error> {
        if let Some(cwd) = self.lock_connection().await?.cwd.take() {
            return Ok(cwd);
        }
        let key = self.place.guest_session_key();
        let client = self.client().await?;
        let shown = tokio::select! {
            shown = client.show_session(&key) => shown,
            () = self.place.until_unresponsive() => {
                self.recreate().await?;
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
    async fn recreate(&self) -> Result<(), Error> {
        let mut live = self.connection.lock().await;
        self.place.end_place().await?;
        *live = GuestConnection { state_loss: StateLoss::Yes, ..self.place.connect().await? };
        Ok(())
    }

    /// The limits that are not enforced, if the place was made for this. They are told once.
    pub async fn take_unenforced_limits(&self) -> Vec<String> {
        std::mem::take(&mut self.connection.lock().await.unenforced_limits)
    }

    /// What runs there in the background.
    pub async fn processes(&self) -> Result<Processes, Error> {
        let client = self.client().await?;
        Ok(Processes::new(client, self.place.id().clone(), self.place.session.clone()))
    }

    /// The files of the place.
    pub async fn files(&self) -> Result<GuestFiles, Error> {
        Ok(GuestFiles {
            client: self.client().await?,
            place: self.place.id().clone(),
            session: self.place.session.clone(),
            guest_session: self.place.guest_session_key(),
        })
    }

    /// Ends the place and removes everything it left on this machine. When this returns it is gone.
    pub async fn remove(self) -> Result<(), Error> {
        let room = PlaceDir::for_place(&self.place);
        let lock = room.lock().await?;
        drop(self.connection);
        room.end_place().await?;
        if let Some(container) = self.place.spec.backend.container(&self.place) {
            container.remove_files().await?;
        }
        if let Some(files) = self.place.spec.backend.kept_dir(&self.place) {
            let container = self.place.spec.backend.container(&self.place);
            run_blocking(move || remove(&files, container.as_ref())).await?;
        }
        lock.discard()
    }

    /// Ends the place, unless somebody else is there or something runs; its kept files stay.
    pub async fn end_if_unused(self) -> Result<(), Error> {
        let room = PlaceDir::for_place(&self.place);
        let lock = room.lock().await?;
        let stats = self.client().await?.stats().await?;
        drop(self.connection);
        if stats.clients > 1 || stats.running > 0 {
            return Ok(());
        }
        room.end_place().await?;
        lock.discard()
    }

    /// Starts the job of a permit. The permit must be for this place and this session.
    pub async fn start_command(&self, permit: Permit, wish: RunOptions) -> Result<RunningCommand, Error> {
        let foreground = |output| Mode::Foreground { output, state: StateRule::Keep };
        let (kind, mode) = match wish.output {
            OutputMode::Live => (CommandMode::Live, foreground(Delivery::Live)),
            OutputMode::AtEnd => (CommandMode::Summary, foreground(Delivery::Summary)),
            OutputMode::Background { label, watch, at_end } => {
                let watch = watch.into_iter().map(ByteBuf::from).collect();
                (CommandMode::Background, Mode::Background { label: ByteBuf::from(label), watch, at_end })
            }
        };
        let cwd = permit.job().cwd.clone();
        let run = Run {
            env: to_byte_pairs(&wish.env),
            stdin: match wish.input {
                CommandInput::None => Stdin::Null,
                CommandInput::Data(data) => Stdin::Data(ByteBuf::from(data)),
                CommandInput::Stream => Stdin::Stream,
            },
            terminal: wish.terminal_size,
            deadline: wish.timeout.map(|after| Deadline { after, then: wish.at_deadline }),
            keep: wish.keep_bytes,
            ..self.redeem(permit, wish.directory, mode)?
        };
        let (client, reset) = self.client_for_command().await?;
        let running = client.run(run).await.map_err(map_moved_error)?;
        Ok(RunningCommand::new(running, cwd, reset, kind))
    }

    /// Gives a person a terminal in which the job of the permit runs: what is typed there is not judged again.
    pub async fn open_terminal(
        &self,
        permit: Permit,
        size: Size,
        env: &[(String, String)],
    ) -> Result<Terminal, Error> {
        let mode = Mode::Foreground { output: Delivery::Live, state: StateRule::Leave };
        let run = Run {
            env: to_byte_pairs(env),
            stdin: Stdin::Stream,
            terminal: Some(size),
            ..self.redeem(permit, WorkingDirectory::Session, mode)?
        };
        let (client, _reset) = self.client_for_command().await?;
        Ok(Terminal::new(client.run(run).await.map_err(map_moved_error)?))
    }

    /// Turns a permit into something to run, with nothing asked for besides.
    fn redeem(&self, permit: Permit, directory: WorkingDirectory, mode: Mode) -> Result<Run, Error> {
        let job = permit.redeem(self.place.id(), &self.place.session)?;
        let Work::Shell(text) = job.work else { return Err(Error::NotACommand) };
        // The gate judged the job by its directory, so it runs there or not at all.
        let workdir = match directory {
            WorkingDirectory::Session => Workdir::SessionAt(ByteBuf::from(job.cwd)),
            WorkingDirectory::Override => Workdir::Other(ByteBuf::from(job.cwd)),
        };
        Ok(Run {
            session: self.place.guest_session_key(),
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
        Ok(self.lock_connection().await?.client.clone())
    }

    /// The connection for a command, which may move the session, and the one chance to learn that the place was made
    /// again.
    async fn client_for_command(&self) -> Result<(Client, StateLoss), Error> {
        let mut live = self.lock_connection().await?;
        live.cwd = None;
        Ok((live.client.clone(), std::mem::replace(&mut live.state_loss, StateLoss::No)))
    }

    async fn lock_connection(&self) -> Result<tokio::sync::MutexGuard<'_, GuestConnection>, Error> {
        let mut live = self.connection.lock().await;
        if live.client.is_closed() {
            let untold = live.state_loss;
            *live = self.place.connect().await?;
            // We had a session; if this one is new, ours is lost.
            if untold == StateLoss::Yes || live.origin == Origin::Created {
                live.state_loss = StateLoss::Yes;
            }
        }
        Ok(live)
    }
}

/// A session that is elsewhere by now is not a fault: the caller looks again.
fn map_moved_error(error: client::Error) -> Error {
    match error {
        client::Error::Refused(Fault::Moved) => Error::SessionMoved,
        other => Error::Guest(other),
    }
}

fn to_byte_pairs(env: &[(String, String)]) -> Vec<(ByteBuf, ByteBuf)> {
    let bytes = |text: &String| ByteBuf::from(text.as_bytes());
    env.iter().map(|(name, value)| (bytes(name), bytes(value))).collect()
}
