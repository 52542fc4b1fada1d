//! Places of this side, and commands in them.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use hermes_exec::backend::docker::{self, engine::Address};
use hermes_exec::backend::sandbox::{HOME, WORKSPACE};
use hermes_exec::{
    AtDeadline, Attention, Backend, Command, Directory, Docker, Host, Input, Local, Outcome, Plan, Sandbox,
    Sandboxed, Spec, Wish,
};
use hermes_policy::{Answer, Choice, Gate, Moment, Permit, Verdict};
use hermes_sandbox::Limits;
use hermes_types::{Attendance, EntryPoint, Job, Origin, Person, SessionKey, Timestamp};
use serde_json::Value;

/// Whose credentials are hidden.
pub(crate) const OWNER_HOME: &str = "/root";

/// Where everything of this side is.
#[derive(Debug, Clone)]
pub(crate) struct Layout {
    pub(crate) home: PathBuf,
    pub(crate) run: PathBuf,
}

/// A place that is open.
pub(crate) struct Opened {
    plan: Plan,
    pub(crate) sandbox: Sandbox,
    /// Its directory on the host.
    room: PathBuf,
    session: SessionKey,
}

impl Opened {
    pub(crate) async fn new(layout: &Layout, name: &str) -> Self {
        let session = SessionKey::new(name);
        let plan = layout.plan(&session);
        let room = layout.run.join(plan.name());
        Self { sandbox: plan.open().await.unwrap(), room, session, plan }
    }

    /// Runs a command as an agent does that wants to know its output when it has ended.
    pub(crate) async fn run(&self, text: &str) -> Outcome {
        self.start(text, Attention::AtEnd, None).await.end().await.unwrap()
    }

    pub(crate) async fn start(&self, text: &str, attention: Attention, timeout: Option<Duration>) -> Command {
        let cwd = self.sandbox.cwd().await.unwrap();
        let wish = Wish {
            timeout: timeout.or(Some(Duration::from_secs(180))),
            at_deadline: AtDeadline::Kill,
            keep: 50_000,
            input: Input::Nothing,
            env: Vec::new(),
            attention,
            directory: Directory::Session,
            terminal: None,
        };
        self.sandbox.start(self.permit(Job::shell(text, cwd)), wish).await.unwrap()
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
                let question_id = question.id().clone();
                let answer = Answer { question: question_id, by: owner, at: now, choice: Choice::Once };
                question.answered(answer).unwrap()
            }
            Verdict::Deny(refusal) => panic!("{refusal}"),
        }
    }

    /// The process of its guest.
    pub(crate) fn guest(&self) -> u32 {
        let record = fs::read(self.room.join("place.json")).unwrap();
        let record: Value = serde_json::from_slice(&record).unwrap();
        record["anchor"]["pid"].as_u64().unwrap().try_into().unwrap()
    }
}

impl Layout {
    pub(crate) fn plan(&self, session: &SessionKey) -> Plan {
        let host = Host {
            install: format!("bench-{}", std::process::id()),
            run: self.run.clone(),
            cache: self.home.join("cache"),
            home: self.home.clone(),
            most_places: 10_000,
        };
        let base_env = vec![("PATH".to_owned(), std::env::var("PATH").unwrap())];
        let workspace = self.home.join("workspace").display().to_string();
        let (backend, cwd, home) = match session.as_str().split(' ').next() {
            Some("local") => (Backend::Local(Local { base_env }), workspace.as_str(), workspace.as_str()),
            Some("docker") => (Backend::Docker(self.docker(session)), docker::WORKSPACE, docker::HOME),
            _ => (
                Backend::Sandbox(Sandboxed {
                    helper: std::env::current_exe().unwrap(),
                    files: Some(self.home.join("sandboxes")),
                    owner_home: PathBuf::from(OWNER_HOME),
                    works_for: hermes_exec::WorksFor::Owner,
                    binds: Vec::new(),
                    network: hermes_types::Network::Proxy,
                    // Those that hermes asks for when the owner has said nothing.
                    limits: Limits {
                        memory: Some(5120 << 20),
                        processes: Some(256),
                        millicpus: Some(1000),
                        disk: Some(51200 << 20),
                        scratch: Some(512 << 20),
                        open_files: None,
                    },
                    base_env,
                }),
                WORKSPACE,
                HOME,
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
        Plan::new(host, spec, session.clone())
    }

    /// With the limits that hermes asks for when the owner has said nothing.
    fn docker(&self, session: &SessionKey) -> Docker {
        let socket = std::env::var("DOCKER_HOST").unwrap();
        Docker {
            engine: Address::Unix(socket.strip_prefix("unix://").unwrap().into()),
            image: std::env::var("TERMINAL_DOCKER_IMAGE").unwrap(),
            files: Some(self.home.join("sandboxes")),
            volumes: Vec::new(),
            binds: Vec::new(),
            network: hermes_types::Network::Full,
            limits: docker::Limits {
                millicpus: Some(1000),
                memory: Some(5120 << 20),
                disk: Some(51200 << 20),
                processes: Some(256),
                ..docker::Limits::default()
            },
            user: docker::User::Image,
            extra: Box::default(),
            // Only those who ask for it get one that is ready.
            pool: u32::from(session.as_str().starts_with("docker ready")),
            reaps_orphans: true,
        }
    }
}
