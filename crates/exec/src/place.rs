//! An open place and the commands that run in it.

pub mod script;

use std::time::Duration;

use hermes_guest::client::{self, Client};
use hermes_guest::protocol::guard::{GuardState, RunConfinement};
use hermes_guest::protocol::limit;
use hermes_guest::protocol::message::{
    ExitNotice, OpenSession, OutputDelivery, Program, RunMode, RunRequest, SessionOrigin, ShellSessionKey,
    StatePolicy, Stdin, WorkingDir,
};
use hermes_policy::Permit;
use hermes_policy::secret_env::SECRET_FAMILIES;
use hermes_types::{Job, Network, ShellContext, Timestamp, Work};
use serde_bytes::ByteBuf;
use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::backend::local;
use crate::backend::sandbox::LauncherTask;
use crate::command::RunningCommand;
use crate::guard::GuardedRun;
use crate::pidfd::ProcessRef;
use crate::proxy::{self, ProxyTask};
use crate::registry::{
    MARK_INTERVAL, PlaceDir, PlaceRecord, discard, is_recently_swept, remove_stale_if_due, run_blocking,
};
use crate::{Backend, Error, GuestFiles, Processes, ResolvedPlace, Terminal, TerminalSize, capacity, guard};

/// Attempts to connect to a place that ends while it is found.
const MAX_CONNECT_ATTEMPTS: u32 = 3;

#[derive(Debug, Clone)]
pub struct RunOptions {
    pub timeout: Option<Duration>,
    /// Bytes of output to return.
    pub keep_bytes: u32,
    /// Text for a stream is written later, each time with a permit.
    pub stdin: Stdin,
    /// Variables for this command only.
    pub env: Vec<(String, String)>,
    pub output: OutputMode,
    pub directory: WorkingDirectory,
    /// Runs the command on a terminal of this size instead of pipes.
    pub terminal_size: Option<TerminalSize>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OutputMode {
    /// Output is delivered as it arrives.
    Live,
    /// Output is delivered at the end.
    AtEnd,
    Background {
        /// Lets a later caller recognize the process.
        label: String,
        /// Sends a notice for each line of output that contains one of these.
        watch: Vec<String>,
        at_end: ExitNotice,
    },
}

/// The directory of a command. Either way it is the directory of its job, by which the gate judged
/// it. If the state of the session's shell has changed since then, nothing runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WorkingDirectory {
    /// The session's directory. If the session has moved since the gate was asked, nothing runs.
    Session,
    /// Another directory, for this command only.
    Override,
}

/// Whether the place was recreated and lost its state.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum StateLoss {
    #[default]
    No,
    Yes,
}

/// A place with its guest, open for one session. It may be held for a long time: if the place ends,
/// the next command recreates it, and its outcome says so.
#[derive(Debug)]
pub struct OpenPlace {
    place: ResolvedPlace,
    connection: Mutex<GuestConnection>,
}

/// The guest of a place that runs with the requested settings, or with others.
pub(crate) enum FoundGuest {
    Same(Client),
    Different(Client),
}

pub(crate) struct AcquiredGuest {
    client: Client,
    state_loss: StateLoss,
    unenforced_limits: Vec<String>,
}

/// A connection to the guest with an open session.
#[derive(Debug)]
struct GuestConnection {
    client: Client,
    /// A loss that no command outcome has reported yet.
    state_loss: StateLoss,
    /// The directory of the session when it was opened, until a caller reads it. If the session
    /// moves later, a job judged by this directory does not run and the caller asks again.
    cwd: Option<String>,
    /// The shell state that the guest reported last.
    shell: ShellContext,
    /// Whether the session existed before.
    origin: SessionOrigin,
    /// Whether the guest confines commands without approval.
    guard: GuardState,
    /// Limits that are not enforced in a place created by this call.
    unenforced_limits: Vec<String>,
    /// When the use of the place was recorded.
    marked: Instant,
    /// Network access for a place that has none of its own.
    _proxy: Option<ProxyTask>,
}

impl ResolvedPlace {
    /// Finds or creates the place. Concurrent callers get the same one.
    pub async fn open(&self) -> Result<OpenPlace, Error> {
        Ok(OpenPlace { connection: Mutex::new(self.connect().await?), place: self.clone() })
    }

    async fn connect(&self) -> Result<GuestConnection, Error> {
        for _ in 1..MAX_CONNECT_ATTEMPTS {
            match self.try_connect().await {
                // The place was just ending.
                Err(Error::Guest(client::Error::Disconnected)) => {}
                Err(Error::Guest(client::Error::Protocol(_))) => break,
                done => return done,
            }
        }
        // A guest that breaks the protocol cannot be trusted again.
        self.end_place().await?;
        Ok(GuestConnection { state_loss: StateLoss::Yes, ..self.try_connect().await? })
    }

    async fn end_place(&self) -> Result<(), Error> {
        let dir = PlaceDir::for_place(self);
        let _lock = dir.lock().await?;
        dir.end_place().await
    }

    async fn try_connect(&self) -> Result<GuestConnection, Error> {
        let AcquiredGuest { client, state_loss: place_loss, mut unenforced_limits } =
            self.find_or_create().await?;
        PlaceDir::for_place(self).mark_used();
        let mut env = to_byte_pairs(&self.spec.env);
        let is_proxied = self.spec.backend.network() == Network::Proxy;
        if is_proxied {
            env.extend(to_byte_pairs(&proxy::proxy_env()));
        }
        let init: Vec<_> = self.spec.init.iter().map(|file| ByteBuf::from(file.as_bytes())).collect();
        let withheld =
            SECRET_FAMILIES.iter().flat_map(|family| family.names).map(|name| ByteBuf::from(*name));
        let open = OpenSession {
            key: self.guest_session_key(),
            cwd: ByteBuf::from(self.spec.cwd.as_bytes()),
            env,
            // Only these files could set a withheld variable.
            protected_env: if init.is_empty() { Vec::new() } else { withheld.collect() },
            init_files: init,
            guard: match &self.spec.backend {
                Backend::Local(local) => guard::guard_spec(self, local.guard, &local::work_dir(self)),
                Backend::Sandbox(_) | Backend::Docker(_) => None,
            },
        };
        let start_proxy =
            async { if is_proxied { proxy::attach(&client).await.map(Some) } else { Ok(None) } };
        let (proxy, view) = tokio::join!(start_proxy, client.open_session(open));
        let (proxy, view) = (proxy?, view?);
        // A guest that lost the session lost its state, even if another process created the place.
        let state_loss = if view.origin == SessionOrigin::Created { place_loss } else { StateLoss::No };
        let cwd = Some(String::from_utf8_lossy(&view.cwd).into_owned());
        let origin = view.origin;
        if let GuardState::Unavailable(reason) = &view.guard {
            let open = "so only the gate protects your files (terminal.guard)";
            unenforced_limits.push(format!("the guard is not available, {open}: {reason}"));
        }
        let shell = view.shell.unwrap_or_default();
        Ok(GuestConnection {
            client,
            state_loss,
            cwd,
            shell,
            origin,
            guard: view.guard,
            unenforced_limits,
            marked: Instant::now(),
            _proxy: proxy,
        })
    }

    pub(crate) async fn find_or_create(&self) -> Result<AcquiredGuest, Error> {
        let dir = PlaceDir::for_place(self);
        let found =
            |client| AcquiredGuest { client, state_loss: StateLoss::No, unenforced_limits: Vec::new() };
        if let Some(FoundGuest::Same(client)) = self.find_guest(&dir).await {
            return Ok(found(client));
        }
        let launcher = self.spec.backend.start_launcher();
        let _lock = dir.lock().await?;
        let before = dir.record();
        // Another process may have created it before we got the lock.
        match self.find_guest(&dir).await {
            Some(FoundGuest::Same(client)) => return Ok(found(client)),
            // The gate did not judge this place, so nothing may run in it; and its processes are
            // not ours to end.
            Some(FoundGuest::Different(client))
                if client.stats().await.is_ok_and(|stats| stats.running > 0) =>
            {
                return Err(Error::SettingsChanged { name: self.name() });
            }
            // A guest that cannot be reached is of another version or broken.
            _ => dir.end_place().await?,
        }
        let files = self.spec.backend.kept_dir(self);
        let kept = files.as_deref().and_then(PlaceRecord::read_from);
        if kept.as_ref().and_then(|record| record.process).is_some_and(ProcessRef::is_alive) {
            return Err(Error::InUseElsewhere { name: self.name() });
        }
        // A place that existed before has files, so a warm place cannot replace it.
        if before.is_none()
            && kept.is_none()
            && capacity::has_room(self)?
            && let Some(client) = self.take_warm(&dir).await?
        {
            self.person.iter().try_for_each(|person| dir.set_person(person.as_str()))?;
            return Ok(found(client));
        }
        let run = self.installation.run_dir.clone();
        let engines = self.spec.backend.engine_access();
        // Checking first avoids a switch to another thread.
        if !is_recently_swept(&run) {
            run_blocking(move || remove_stale_if_due(&run, engines)).await?;
        }
        capacity::reserve(self, &dir, engines).await?;
        let created = self.create_place(launcher, &dir).await;
        if created.is_err() {
            // If this fails, the record lets the reaper retry.
            drop(dir.end_place().await);
        }
        let (client, unenforced_limits) = created?;
        let state_loss = if before.is_some() || kept.is_some() { StateLoss::Yes } else { StateLoss::No };
        Ok(AcquiredGuest { client, state_loss, unenforced_limits })
    }

    pub(crate) async fn find_guest(&self, dir: &PlaceDir) -> Option<FoundGuest> {
        let stream = dir.connect().await.ok()?;
        // A guest without a record is unknown: its creator was killed, or has not written the
        // record yet.
        let found = if dir.record()?.place == *self.id() { FoundGuest::Same } else { FoundGuest::Different };
        tokio::select! {
            client = Client::connect(stream) => Some(found(client.ok()?)),
            () = self.until_unresponsive() => None,
        }
    }

    async fn create_place(
        &self,
        launcher: Option<LauncherTask>,
        dir: &PlaceDir,
    ) -> Result<(Client, Vec<String>), Error> {
        let mut record = self.new_record();
        let stream = self.spec.backend.create(launcher, self, dir, &mut record).await?;
        let unenforced = record.unenforced.clone();
        // The peer of a container socket may be any process of this host.
        record.process = record.container.is_none().then(|| ProcessRef::of_peer(&stream)).flatten();
        let dir = dir.clone();
        let written = run_blocking(move || {
            record.write(dir.path())?;
            record.files.iter().try_for_each(|files| record.write(files))
        });
        // Both run to their end, so that cleanup after one does not race with the other.
        let (written, client) = tokio::join!(written, Client::connect(stream));
        written?;
        Ok((client?, unenforced))
    }

    pub(crate) fn new_record(&self) -> PlaceRecord {
        PlaceRecord {
            place: self.id().clone(),
            name: self.name(),
            backend: self.backend_name().as_str().to_owned(),
            session: self.owner_key.as_str().to_owned(),
            created: Timestamp::now().seconds(),
            lifetime: self.spec.lifetime.as_secs(),
            max_idle: self.installation.limits.max_idle.map_or(0, |limit| limit.as_secs()),
            max_age: self.installation.limits.max_age.map_or(0, |limit| limit.as_secs()),
            reach: self.spec.reach(),
            egress: self.spec.egress(),
            exposures: Some(self.spec.exposures()),
            spec: self.spec_json.clone(),
            files: self.spec.backend.kept_dir(self),
            process: None,
            container: self.spec.backend.container(self),
            request: None,
            unenforced: Vec::new(),
        }
    }

    /// Returns once the place is known to be unable to answer.
    async fn until_unresponsive(&self) {
        let record = PlaceDir::for_place(self).record();
        match record.and_then(|record| record.container) {
            Some(container) => container.until_inactive().await,
            None => std::future::pending().await,
        }
    }

    fn guest_session_key(&self) -> ShellSessionKey {
        // The guest limits the length of keys. Sessions that share a place also share its shell.
        ShellSessionKey::from("session")
    }
}

impl OpenPlace {
    /// The session's current directory.
    pub async fn cwd(&self) -> Result<String, Error> {
        Ok(self.session_state().await?.0)
    }

    /// A job in the session's current state, by which the gate must judge it.
    pub async fn job(&self, work: Work) -> Result<Job, Error> {
        let (cwd, shell) = self.session_state().await?;
        let lacks_guard = matches!(self.connection.lock().await.guard, GuardState::Unavailable(_));
        Ok(Job { work, cwd, shell, lacks_guard })
    }

    /// Directory and shell state of the session.
    async fn session_state(&self) -> Result<(String, ShellContext), Error> {
        let (client, known) = {
            let mut connection = self.lock_connection().await?;
            let known = connection.shell.clone();
            if let Some(cwd) = connection.cwd.take() {
                return Ok((cwd, known));
            }
            (connection.client.clone(), known)
        };
        let key = self.place.guest_session_key();
        let shown = tokio::select! {
            shown = client.show_session(&key, &known.digest) => shown,
            () = self.place.until_unresponsive() => {
                self.recreate().await?;
                Err(client::Error::Disconnected)
            }
        };
        let shown = match shown {
            // The place just ended; reading the directory again is harmless.
            Err(client::Error::Disconnected) => self.client().await?.show_session(&key, &known.digest).await,
            shown => shown,
        }?;
        let shell = match shown.shell {
            Some(changed) => {
                self.connection.lock().await.shell.clone_from(&changed);
                changed
            }
            None => known,
        };
        Ok((String::from_utf8_lossy(&shown.cwd).into_owned(), shell))
    }

    /// Ends and recreates the place.
    async fn recreate(&self) -> Result<(), Error> {
        let mut connection = self.connection.lock().await;
        self.place.end_place().await?;
        *connection = GuestConnection { state_loss: StateLoss::Yes, ..self.place.connect().await? };
        Ok(())
    }

    /// The limits that are not enforced, if this handle created the place. Returned once.
    pub async fn take_unenforced_limits(&self) -> Vec<String> {
        std::mem::take(&mut self.connection.lock().await.unenforced_limits)
    }

    /// The background processes of the place.
    pub async fn processes(&self) -> Result<Processes, Error> {
        let client = self.client().await?;
        Ok(Processes::new(client, self.place.id().clone(), self.place.session.clone()))
    }

    pub async fn files(&self) -> Result<GuestFiles, Error> {
        Ok(GuestFiles {
            client: self.client().await?,
            place: self.place.id().clone(),
            session: self.place.session.clone(),
            guest_session: self.place.guest_session_key(),
        })
    }

    /// Ends the place, removes all its files on this host and waits until it is gone.
    pub async fn remove(self) -> Result<(), Error> {
        let dir = PlaceDir::for_place(&self.place);
        let lock = dir.lock().await?;
        drop(self.connection);
        dir.end_place().await?;
        self.place.new_record().remove_files().await?;
        discard(lock)
    }

    /// Ends the place unless another client uses it or a process runs; kept files stay.
    pub async fn end_if_unused(self) -> Result<(), Error> {
        let dir = PlaceDir::for_place(&self.place);
        let lock = dir.lock().await?;
        let stats = self.client().await?.stats().await?;
        drop(self.connection);
        if stats.clients > 1 || stats.running > 0 {
            return Ok(());
        }
        dir.end_place().await?;
        discard(lock)
    }

    /// Starts the job of a permit, which must be for this place and this session.
    pub async fn start_command(&self, permit: Permit, options: RunOptions) -> Result<RunningCommand, Error> {
        let foreground = |output| RunMode::Foreground { output, state: StatePolicy::Apply };
        let mode = match options.output {
            OutputMode::Live => foreground(OutputDelivery::Live),
            OutputMode::AtEnd => foreground(OutputDelivery::Summary),
            OutputMode::Background { label, watch, at_end } => RunMode::Background {
                label: ByteBuf::from(label),
                watch_patterns: watch.into_iter().map(ByteBuf::from).collect(),
                exit_notice: at_end,
            },
        };
        let delivery = match mode {
            RunMode::Foreground { output, .. } => Some(output),
            RunMode::Background { .. } => None,
        };
        let cwd = permit.job().cwd.clone();
        let mut run = RunRequest {
            env: to_byte_pairs(&options.env),
            stdin: options.stdin,
            terminal: options.terminal_size,
            deadline: options.timeout,
            memory_bytes: options.keep_bytes,
            ..self.redeem(permit, options.directory, mode)?
        };
        let (client, state_loss) = self.client_for_command(&mut run.confinement).await?;
        let guarded = GuardedRun::new(&self.place, &run.confinement);
        let running = client.run(run).await?;
        let dir = PlaceDir::for_place(&self.place);
        Ok(RunningCommand { running, started: Instant::now(), cwd, state_loss, delivery, dir, guarded })
    }

    /// Opens a terminal that runs the job of the permit. Text typed there is not judged again.
    pub async fn open_terminal(
        &self,
        permit: Permit,
        size: TerminalSize,
        env: &[(String, String)],
    ) -> Result<Terminal, Error> {
        let mode = RunMode::Foreground { output: OutputDelivery::Live, state: StatePolicy::Discard };
        let mut run = RunRequest {
            env: to_byte_pairs(env),
            stdin: Stdin::Stream,
            terminal: Some(size),
            ..self.redeem(permit, WorkingDirectory::Session, mode)?
        };
        // The owner types there.
        run.confinement = RunConfinement::None;
        let (client, _reset) = self.client_for_command(&mut run.confinement).await?;
        Ok(client.run(run).await?)
    }

    /// Records that the place is in use while `work` takes its time.
    pub async fn keep_in_use<T>(&self, work: impl Future<Output = T>) -> T {
        PlaceDir::for_place(&self.place).keep_in_use(work).await
    }

    /// Turns a permit into a run request with default options.
    fn redeem(
        &self,
        permit: Permit,
        directory: WorkingDirectory,
        mode: RunMode,
    ) -> Result<RunRequest, Error> {
        let (job, confinement) = self.redeem_job(permit)?;
        let Work::Shell(text) = job.work else { return Err(Error::NotACommand) };
        // The gate judged the job by its directory, so it runs there or not at all.
        let workdir = match directory {
            WorkingDirectory::Session => WorkingDir::SessionAt(ByteBuf::from(job.cwd)),
            WorkingDirectory::Override => WorkingDir::Other(ByteBuf::from(job.cwd)),
        };
        let program = Program::Shell(ByteBuf::from(text));
        let judged_shell = Some(job.shell.digest);
        Ok(RunRequest { judged_shell, confinement, ..self.default_request(program, workdir, mode) })
    }

    /// The job of a permit, and what the guard keeps from it.
    fn redeem_job(&self, permit: Permit) -> Result<(Job, RunConfinement), Error> {
        let confinement = guard::confinement(permit.allowance());
        let job = permit.redeem(self.place.id(), &self.place.session)?;
        // The gate judged it as a job without the guard.
        let confinement = if job.lacks_guard { RunConfinement::None } else { confinement };
        Ok((job, confinement))
    }

    /// A run request with default options.
    fn default_request(&self, program: Program, workdir: WorkingDir, mode: RunMode) -> RunRequest {
        RunRequest {
            session: self.place.guest_session_key(),
            program,
            workdir,
            judged_shell: None,
            env: Vec::new(),
            stdin: Stdin::Null,
            terminal: None,
            deadline: None,
            mode,
            memory_bytes: 0,
            spool_bytes: limit::MAX_SPOOL_BYTES,
            confinement: RunConfinement::None,
        }
    }

    async fn client(&self) -> Result<Client, Error> {
        Ok(self.lock_connection().await?.client.clone())
    }

    /// The connection for a command. A command may move the session, so the known directory is
    /// dropped; and its outcome reports a pending state loss.
    async fn client_for_command(
        &self,
        confinement: &mut RunConfinement,
    ) -> Result<(Client, StateLoss), Error> {
        let mut connection = self.lock_connection().await?;
        connection.cwd = None;
        match connection.guard {
            GuardState::Active => {}
            // The place was recreated elsewhere than where the gate judged the job.
            GuardState::Unavailable(_) if *confinement != RunConfinement::None => {
                return Err(Error::SessionMoved);
            }
            GuardState::Unavailable(_) | GuardState::Off => *confinement = RunConfinement::None,
        }
        Ok((connection.client.clone(), std::mem::replace(&mut connection.state_loss, StateLoss::No)))
    }

    async fn lock_connection(&self) -> Result<tokio::sync::MutexGuard<'_, GuestConnection>, Error> {
        let mut connection = self.connection.lock().await;
        if connection.client.is_closed() {
            let pending_loss = connection.state_loss;
            *connection = self.place.connect().await?;
            // This handle had a session; a new one means that it was lost.
            if pending_loss == StateLoss::Yes || connection.origin == SessionOrigin::Created {
                connection.state_loss = StateLoss::Yes;
            }
        }
        if connection.marked.elapsed() > MARK_INTERVAL {
            PlaceDir::for_place(&self.place).mark_used();
            connection.marked = Instant::now();
        }
        Ok(connection)
    }
}

fn to_byte_pairs(env: &[(String, String)]) -> Vec<(ByteBuf, ByteBuf)> {
    let bytes = |text: &String| ByteBuf::from(text.as_bytes());
    env.iter().map(|(name, value)| (bytes(name), bytes(value))).collect()
}
