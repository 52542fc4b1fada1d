//! Creates places of one backend, for the tests and for the processes that they start.

use std::path::PathBuf;
use std::time::Duration;

use hermes_exec::backend::docker::{self, RunAs, engine::EngineAddress, run_args::RunArgs};
use hermes_exec::{
    Backend, DockerBackend, Installation, LocalBackend, OutputMode, PlaceLimits, ResolvedPlace, RunOptions,
    SandboxBackend, Spec, Stdin, WorkingDirectory, backend,
};
use hermes_policy::{ApprovalMode, Gate, Moment, Permit, Verdict};
use hermes_sandbox::JailLimits;
use hermes_types::{
    Answer, Attendance, BackendName, Choice, EntryPoint, Job, Network, Origin, Person, SessionKey, Timestamp,
};

/// An engine, and the image of its containers.
#[derive(Debug, Clone)]
pub(crate) struct Peer {
    pub(crate) socket: PathBuf,
    pub(crate) image: String,
    /// Options of `docker run`.
    pub(crate) options: Vec<String>,
}

/// Creates places of one backend, isolated from all others.
#[derive(Debug, Clone)]
pub(crate) struct Fixture {
    pub(crate) backend: BackendName,
    /// The engine and image of containers.
    pub(crate) peer: Option<Peer>,
    /// Contains all files of these places.
    pub(crate) folder: PathBuf,
    /// The directory of the guest program.
    pub(crate) cache: PathBuf,
    /// The program that creates jails.
    pub(crate) helper: PathBuf,
    /// The home directory of the owner.
    pub(crate) owner: PathBuf,
    /// The longest idle time of a place.
    pub(crate) lifetime: Duration,
}

impl Fixture {
    pub(crate) fn plan(&self, session: &str) -> ResolvedPlace {
        ResolvedPlace::new(self.host(), self.spec(), SessionKey::new(session)).unwrap()
    }

    pub(crate) fn host(&self) -> Installation {
        Installation {
            // All users of an engine share the container names.
            install_id: self.folder.display().to_string(),
            run_dir: self.folder.join("run"),
            cache_dir: self.cache.clone(),
            home: self.folder.join("hermes"),
            limits: PlaceLimits { max_places: 100, ..PlaceLimits::default() },
        }
    }

    pub(crate) fn spec(&self) -> Spec {
        let base_env = vec![("PATH".to_owned(), "/usr/local/bin:/usr/bin:/bin".to_owned())];
        let work = self.folder.join("work").display().to_string();
        let (backend, cwd, home) = match self.backend {
            BackendName::Local => (
                Backend::Local(LocalBackend { base_env, guard: hermes_types::Guard::Protect }),
                work.clone(),
                work,
            ),
            BackendName::Sandbox => {
                let sandboxed = SandboxBackend {
                    helper: self.helper.clone(),
                    files: Some(self.persistent_dir()),
                    owner_home: self.owner.clone(),
                    audience: hermes_exec::Audience::Owner,
                    binds: Vec::new(),
                    network: Network::None,
                    limits: JailLimits { processes: Some(1000), ..JailLimits::default() },
                    base_env,
                };
                let (cwd, home) = (backend::sandbox::WORKSPACE_DIR, backend::sandbox::HOME_DIR);
                (Backend::Sandbox(sandboxed), cwd.to_owned(), home.to_owned())
            }
            BackendName::Docker => {
                let (cwd, home) = (docker::WORKSPACE_DIR, docker::HOME_DIR);
                (Backend::Docker(self.docker()), cwd.to_owned(), home.to_owned())
            }
            other => panic!("there is no bed for {}", other.as_str()),
        };
        let env = vec![("GIVEN".to_owned(), "value".to_owned())];
        Spec { backend, cwd, home, env, init: Vec::new(), lifetime: self.lifetime }
    }

    /// The settings of containers.
    pub(crate) fn docker(&self) -> DockerBackend {
        let Peer { socket, image, options } = self.peer.clone().unwrap();
        DockerBackend {
            engine: EngineAddress::Unix(socket),
            image,
            files: Some(self.persistent_dir()),
            volumes: Vec::new(),
            binds: Vec::new(),
            network: Network::None,
            limits: docker::ContainerLimits { processes: Some(1000), ..docker::ContainerLimits::default() },
            user: RunAs::Image,
            run_args: Box::new(RunArgs::parse(&options).unwrap()),
            warm_count: 0,
            remove_orphans: false,
        }
    }

    /// The directory of persistent files.
    pub(crate) fn persistent_dir(&self) -> PathBuf {
        self.folder.join("kept")
    }
}

/// A permit for the owner at a terminal who allows everything.
pub(crate) fn permit_for(plan: &ResolvedPlace, session: &str, job: Job) -> Permit {
    let mut gate = Gate { mode: ApprovalMode::Off, ..Gate::default() };
    gate.question_limits.max_chars = usize::MAX;
    match judge(&gate, plan, session, job) {
        Verdict::Allow(permit) => permit,
        // What cannot be read is asked about even so.
        Verdict::Ask(question) => {
            let answer =
                Answer { by: Person::new("cli"), at: Timestamp::from_seconds(0), choice: Choice::Once };
            question.answer(answer).unwrap()
        }
        other => panic!("{other:?}"),
    }
}

/// The gate's verdict for the owner at a terminal.
pub(crate) fn judge(gate: &Gate, plan: &ResolvedPlace, session: &str, job: Job) -> Verdict {
    let owner = Person::new("cli");
    let origin = Origin {
        person: owner.clone(),
        entry_point: EntryPoint::Cli,
        session: SessionKey::new(session),
        attendance: Attendance::Attended(vec![owner]),
        place: plan.place(),
    };
    let moment = Moment { now: Timestamp::from_seconds(0), seed: [0; 16] };
    gate.judge(job, &origin, moment)
}

/// Default options for a command.
pub(crate) fn run_options(attention: OutputMode) -> RunOptions {
    RunOptions {
        timeout: Some(Duration::from_secs(60)),
        keep_bytes: 50_000,
        stdin: Stdin::Null,
        env: Vec::new(),
        output: attention,
        directory: WorkingDirectory::Session,
        terminal_size: None,
    }
}
