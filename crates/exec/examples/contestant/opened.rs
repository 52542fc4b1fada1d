//! Places and commands of the benchmark.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use hermes_exec::backend::docker::{self, engine::EngineAddress};
use hermes_exec::backend::sandbox::{HOME_DIR, WORKSPACE_DIR};
use hermes_exec::{
    Backend, DockerBackend, Installation, LocalBackend, OpenPlace, Outcome, OutputMode, PlaceLimits,
    ResolvedPlace, RunOptions, RunningCommand, SandboxBackend, Spec, Stdin, WorkingDirectory,
};
use hermes_policy::{Gate, Moment, Permit, Verdict};
use hermes_sandbox::JailLimits;
use hermes_types::{
    Answer, Attendance, Choice, EntryPoint, Guard, Job, Origin, Person, SessionKey, Timestamp, Work,
};
use serde_json::Value;

pub(crate) const OWNER_HOME: &str = "/root";

#[derive(Debug, Clone)]
pub(crate) struct Layout {
    pub(crate) home: PathBuf,
    pub(crate) run: PathBuf,
}

pub(crate) struct Opened {
    plan: ResolvedPlace,
    pub(crate) sandbox: OpenPlace,
    place_dir: PathBuf,
    session: SessionKey,
}

impl Opened {
    pub(crate) async fn new(layout: &Layout, name: &str) -> Self {
        let session = SessionKey::new(name);
        let plan = layout.plan(&session);
        let place_dir = layout.run.join(plan.name());
        Self { sandbox: plan.open().await.unwrap(), place_dir, session, plan }
    }

    /// Runs a command and waits for its output.
    pub(crate) async fn run(&self, text: &str) -> Outcome {
        self.start(text, OutputMode::AtEnd, None).await.wait().await.unwrap()
    }

    pub(crate) async fn start(
        &self,
        text: &str,
        attention: OutputMode,
        timeout: Option<Duration>,
    ) -> RunningCommand {
        let job = self.sandbox.job(Work::Shell(text.to_owned())).await.unwrap();
        let options = RunOptions {
            timeout: timeout.or(Some(Duration::from_secs(180))),
            keep_bytes: 50_000,
            stdin: Stdin::Null,
            env: Vec::new(),
            output: attention,
            directory: WorkingDirectory::Session,
            terminal_size: None,
        };
        self.sandbox.start_command(self.permit(job), options).await.unwrap()
    }

    pub(crate) fn permit(&self, job: Job) -> Permit {
        let owner = Person::new("cli");
        let origin = Origin {
            person: owner.clone(),
            entry_point: EntryPoint::Cli,
            session: self.session.clone(),
            attendance: Attendance::Attended(vec![owner.clone()]),
            place: self.plan.place(),
        };
        let now = Timestamp::from_seconds(0);
        match Gate::default().judge(job, &origin, Moment { now, seed: [0; 16] }) {
            Verdict::Allow(permit) => permit,
            Verdict::Ask(question) => {
                let answer = Answer { by: owner, at: now, choice: Choice::Once };
                question.answer(answer).unwrap()
            }
            Verdict::Deny(refusal) => panic!("{refusal}"),
        }
    }

    /// The pid of the guest.
    pub(crate) fn guest(&self) -> u32 {
        let record = fs::read(self.place_dir.join("place.json")).unwrap();
        let record: Value = serde_json::from_slice(&record).unwrap();
        record["anchor"]["pid"].as_u64().unwrap().try_into().unwrap()
    }
}

impl Layout {
    pub(crate) fn plan(&self, session: &SessionKey) -> ResolvedPlace {
        let host = Installation {
            install_id: format!("bench-{}", std::process::id()),
            run_dir: self.run.clone(),
            cache_dir: self.home.join("cache"),
            home: self.home.clone(),
            limits: PlaceLimits { max_places: 10_000, ..PlaceLimits::default() },
        };
        let base_env = vec![("PATH".to_owned(), std::env::var("PATH").unwrap())];
        let workspace = self.home.join("workspace").display().to_string();
        let (backend, cwd, home) = match session.as_str().split(' ').next() {
            Some(local @ ("local" | "unguarded")) => {
                let guard = if local == "local" { Guard::Protect } else { Guard::Off };
                let backend = Backend::Local(LocalBackend { base_env, guard });
                (backend, workspace.as_str(), workspace.as_str())
            }
            Some("docker") => {
                (Backend::Docker(self.docker(session)), docker::WORKSPACE_DIR, docker::HOME_DIR)
            }
            _ => (
                Backend::Sandbox(SandboxBackend {
                    helper: std::env::current_exe().unwrap(),
                    files: Some(self.home.join("sandboxes")),
                    owner_home: PathBuf::from(OWNER_HOME),
                    audience: hermes_exec::Audience::Owner,
                    binds: Vec::new(),
                    network: hermes_types::Network::Proxy,
                    // The default limits.
                    limits: JailLimits {
                        memory: Some(5120 << 20),
                        processes: Some(256),
                        millicpus: Some(1000),
                        scratch: Some(512 << 20),
                    },
                    base_env,
                }),
                WORKSPACE_DIR,
                HOME_DIR,
            ),
        };
        let spec = Spec {
            backend,
            cwd: cwd.to_owned(),
            home: home.to_owned(),
            env: Vec::new(),
            init: Vec::new(),
            lifetime: Duration::from_secs(600),
        };
        ResolvedPlace::new(host, spec, session.clone()).unwrap()
    }

    /// With the default limits.
    fn docker(&self, session: &SessionKey) -> DockerBackend {
        let socket = std::env::var("DOCKER_HOST").unwrap();
        DockerBackend {
            engine: EngineAddress::Unix(socket.strip_prefix("unix://").unwrap().into()),
            image: std::env::var("TERMINAL_DOCKER_IMAGE").unwrap(),
            files: Some(self.home.join("sandboxes")),
            volumes: Vec::new(),
            binds: Vec::new(),
            network: hermes_types::Network::Full,
            limits: docker::ContainerLimits {
                millicpus: Some(1000),
                memory: Some(5120 << 20),
                disk: Some(51200 << 20),
                processes: Some(256),
                ..docker::ContainerLimits::default()
            },
            user: docker::RunAs::Image,
            run_args: Box::default(),
            // Only sessions that ask for one get a warm place.
            warm_count: u32::from(session.as_str().starts_with("docker ready")),
            remove_orphans: true,
        }
    }
}
