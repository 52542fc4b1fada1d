//! Hands of one session, and the people behind them.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hermes_agent::tool::CallContext;
use hermes_agent::{
    Approver, BoxFuture, Clarification, CodeExecutionConfig, CodeMode, SessionConfig, Tool, ToolContext,
    ToolLimits, ToolResult, WebClient,
};
use hermes_exec::backend::docker::engine::EngineAddress;
use hermes_exec::backend::docker::{self, RunAs};
use hermes_exec::{
    Backend, DockerBackend, Installation, LocalBackend, ResolvedPlace, SandboxBackend, Spec, backend,
};
use hermes_policy::redact::Redactor;
use hermes_policy::{Answer, Choice, Gate, Mode, Question};
use hermes_store::Store;
use hermes_types::{Attendance, CallId, EntryPoint, Network, Person, SessionKey, Timestamp};
use serde_json::{Map, Value, json};
use tokio_util::sync::CancellationToken;

/// Where a session has its place, and what it is allowed.
#[derive(Debug, Clone)]
pub(crate) struct Bed {
    pub(crate) kind: Kind,
    /// Everything of its places is below this directory.
    pub(crate) folder: PathBuf,
    pub(crate) cache: PathBuf,
    pub(crate) helper: PathBuf,
    pub(crate) mode: Mode,
    pub(crate) network: Network,
    pub(crate) tools: Vec<Tool>,
    pub(crate) code: CodeExecutionConfig,
}

/// Which backend.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Kind {
    Local,
    Sandbox,
    /// An engine and an image of it.
    Docker {
        socket: PathBuf,
        image: String,
    },
}

/// A session at work.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) hands: ToolContext,
    pub(crate) person: Arc<Somebody>,
    pub(crate) stop: CancellationToken,
}

/// Says what was decided beforehand to every question, and remembers the questions.
#[derive(Debug, Default)]
pub(crate) struct Somebody {
    pub(crate) says: Mutex<Option<Choice>>,
    pub(crate) heard: Mutex<Vec<String>>,
}

impl Approver for Somebody {
    fn ask_permission<'a>(&'a self, question: &'a Question) -> BoxFuture<'a, Option<Answer>> {
        self.heard.lock().unwrap().push(question.job().work.text().into_owned());
        let choice = self.says.lock().unwrap().clone();
        Box::pin(async move {
            let answer = |choice| Answer {
                question: question.id().clone(),
                by: Person::new("cli"),
                at: Timestamp::from_seconds(0),
                choice,
            };
            match choice {
                Some(choice) => Some(answer(choice)),
                None => std::future::pending().await,
            }
        })
    }

    fn clarify<'a>(&'a self, _question: &'a Clarification) -> BoxFuture<'a, Option<String>> {
        Box::pin(std::future::ready(None))
    }
}

impl Bed {
    pub(crate) fn new(kind: Kind, folder: &Path, cache: &Path, helper: &Path) -> Self {
        Self {
            kind,
            folder: folder.to_owned(),
            cache: cache.to_owned(),
            helper: helper.to_owned(),
            mode: Mode::Off,
            network: Network::None,
            tools: Tool::ALL.to_vec(),
            code: CodeExecutionConfig {
                timeout: Duration::from_secs(60),
                max_tool_calls: 50,
                mode: CodeMode::Project,
            },
        }
    }

    pub(crate) fn plan(&self) -> ResolvedPlace {
        let host = Installation {
            install_id: self.folder.display().to_string(),
            run_dir: self.folder.join("run"),
            cache_dir: self.cache.clone(),
            home: self.folder.join("hermes"),
            max_places: 100,
        };
        let base_env = vec![("PATH".to_owned(), "/usr/local/bin:/usr/bin:/bin".to_owned())];
        let work = self.folder.join("work").display().to_string();
        let kept = Some(self.folder.join("kept"));
        let (backend, cwd, home) = match &self.kind {
            Kind::Local => (Backend::Local(LocalBackend { base_env }), work.clone(), work),
            Kind::Sandbox => {
                let sandboxed = SandboxBackend {
                    helper: self.helper.clone(),
                    files: kept,
                    owner_home: self.folder.join("owner"),
                    audience: hermes_exec::Audience::Owner,
                    binds: Vec::new(),
                    network: self.network,
                    limits: Default::default(),
                    base_env,
                };
                let (cwd, home) = (backend::sandbox::WORKSPACE_DIR, backend::sandbox::HOME_DIR);
                (Backend::Sandbox(sandboxed), cwd.to_owned(), home.to_owned())
            }
            Kind::Docker { socket, image } => {
                let docker = DockerBackend {
                    engine: EngineAddress::Unix(socket.clone()),
                    image: image.clone(),
                    files: kept,
                    volumes: Vec::new(),
                    binds: Vec::new(),
                    network: self.network,
                    limits: docker::ContainerLimits::default(),
                    user: RunAs::Image,
                    run_args: Box::default(),
                    warm_count: 0,
                    remove_orphans: false,
                };
                (Backend::Docker(docker), docker::WORKSPACE_DIR.to_owned(), docker::HOME_DIR.to_owned())
            }
        };
        let env = vec![("GIVEN".to_owned(), "value".to_owned())];
        let spec = Spec { backend, cwd, home, env, init: Vec::new(), lifetime: Duration::from_secs(60) };
        ResolvedPlace::new(host, spec, SessionKey::new("s")).unwrap()
    }

    pub(crate) async fn hands(&self) -> Session {
        let person = Arc::new(Somebody::default());
        let owner = Person::new("cli");
        let setup = SessionConfig {
            session: self.plan().session().clone(),
            place: self.plan(),
            gate: Arc::new(Gate { mode: self.mode, ..Gate::default() }),
            person: owner.clone(),
            entry_point: EntryPoint::Cli,
            attendance: Attendance::Attended(vec![owner]),
            approver: person.clone(),
            redactor: Redactor::new([]),
            limits: ToolLimits {
                timeout: Duration::from_secs(60),
                max_foreground: Duration::from_secs(600),
                output_bytes: 50_000,
                read_lines: 500,
                line_length: 2000,
                read_chars: 100_000,
                code_execution: self.code,
            },
            tools: self.tools.clone(),
            store: Store::open(self.folder.join("store.db")).await.unwrap(),
            pull_auth: Arc::new(|image| panic!("nobody pulls {image}")),
            web: Arc::new(WebClient::default()),
        };
        Session { hands: ToolContext::new(setup), person, stop: CancellationToken::new() }
    }
}

impl Session {
    /// Runs a script.
    pub(crate) async fn run(&self, code: &str) -> ToolResult {
        self.call(Tool::ExecuteCode, json!({"code": code})).await
    }

    pub(crate) async fn call(&self, tool: Tool, arguments: Value) -> ToolResult {
        let Value::Object(arguments) = arguments else { panic!("{arguments}") };
        let arguments: Map<String, Value> = arguments;
        let id = CallId::new("call");
        self.hands
            .call_tool(
                tool,
                arguments,
                CallContext { call_id: &id, stop: &self.stop, turn: None, observer: &|_| {} },
            )
            .await
    }
}
