//! The environment of a test session and its approver. Also used by the helper program and by the
//! benchmark, which have no test harness.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hermes_agent::{
    ApprovalReviewer, Approver, BoxFuture, CallContext, Clarification, CodeExecutionConfig, CodeMode,
    SessionConfig, Tool, ToolContext, ToolLimits, ToolResult, WebClient,
};
use hermes_exec::backend::docker::engine::EngineAddress;
use hermes_exec::backend::docker::pull::PullSettings;
use hermes_exec::backend::docker::{self, RunAs};
use hermes_exec::{
    Backend, DockerBackend, Installation, LocalBackend, PlaceLimits, ResolvedPlace, SandboxBackend, Spec,
    backend,
};
use hermes_policy::redact::Redactor;
use hermes_policy::{ApprovalMode, Gate, Question};
use hermes_store::Store;
use hermes_types::{
    Answer, Attendance, CallId, Choice, EntryPoint, Network, Person, Secret, SessionKey, Timestamp,
};
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// The settings of a session.
#[derive(Clone)]
pub(crate) struct TestEnv {
    pub(crate) kind: BackendKind,
    /// Contains all files of the execution environments.
    pub(crate) folder: PathBuf,
    /// Contains the home of the owner and the home of hermes.
    pub(crate) owner: PathBuf,
    pub(crate) cache: PathBuf,
    pub(crate) helper: PathBuf,
    pub(crate) mode: ApprovalMode,
    pub(crate) reviewer: Option<Arc<ApprovalReviewer>>,
    pub(crate) network: Network,
    pub(crate) tools: Vec<Tool>,
    pub(crate) attendance: Attendance,
    pub(crate) secrets: Vec<Secret>,
    pub(crate) read_chars: usize,
    pub(crate) web: Arc<WebClient>,
    pub(crate) code: CodeExecutionConfig,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum BackendKind {
    Local,
    Sandbox,
    Docker { socket: PathBuf, image: String },
}

/// A session with its tools.
pub(crate) struct TestSession {
    pub(crate) context: ToolContext,
    pub(crate) approver: Arc<ScriptedApprover>,
    pub(crate) stop: CancellationToken,
}

/// An approver that answers every question alike, or not at all, and records the questions.
#[derive(Debug, Default)]
pub(crate) struct ScriptedApprover {
    choice: Mutex<Option<Choice>>,
    reply: Mutex<Option<String>>,
    questions: Mutex<Vec<String>>,
    question_ids: Mutex<Vec<String>>,
    pub(crate) asked: Notify,
}

impl Approver for ScriptedApprover {
    fn ask_permission<'a>(&'a self, question: &'a Question) -> BoxFuture<'a, Option<Answer>> {
        self.questions.lock().unwrap().push(question.job().work.text().into_owned());
        self.question_ids.lock().unwrap().push(question.id().as_str().to_owned());
        self.asked.notify_one();
        let choice = self.choice.lock().unwrap().clone();
        Box::pin(async move {
            let Some(choice) = choice else { return std::future::pending().await };
            let by = question.approvers()[0].clone();
            Some(Answer { by, at: Timestamp::now(), choice })
        })
    }

    fn clarify<'a>(&'a self, question: &'a Clarification) -> BoxFuture<'a, Option<String>> {
        self.questions.lock().unwrap().push(question.question.clone());
        Box::pin(std::future::ready(self.reply.lock().unwrap().clone()))
    }
}

impl ScriptedApprover {
    pub(crate) fn answer_with(&self, choice: Choice) {
        *self.choice.lock().unwrap() = Some(choice);
    }

    pub(crate) fn stop_answering(&self) {
        *self.choice.lock().unwrap() = None;
    }

    pub(crate) fn reply_with(&self, text: &str) {
        *self.reply.lock().unwrap() = Some(text.to_owned());
    }

    pub(crate) fn questions(&self) -> Vec<String> {
        self.questions.lock().unwrap().clone()
    }

    /// The questions since the last call.
    pub(crate) fn take_questions(&self) -> Vec<String> {
        std::mem::take(&mut self.questions.lock().unwrap())
    }

    pub(crate) fn question_ids(&self) -> Vec<String> {
        self.question_ids.lock().unwrap().clone()
    }
}

impl TestEnv {
    pub(crate) fn new(kind: BackendKind, folder: &Path, owner: &Path, cache: &Path, helper: &Path) -> Self {
        Self {
            kind,
            folder: folder.to_owned(),
            owner: owner.to_owned(),
            cache: cache.to_owned(),
            helper: helper.to_owned(),
            mode: ApprovalMode::Off,
            reviewer: None,
            network: Network::None,
            tools: Tool::ALL.to_vec(),
            attendance: Attendance::Attended(vec![Person::new("cli")]),
            secrets: Vec::new(),
            read_chars: 100_000,
            web: Arc::default(),
            code: CodeExecutionConfig {
                timeout: Duration::from_secs(60),
                max_tool_calls: 50,
                mode: CodeMode::Project,
            },
        }
    }

    pub(crate) fn place(&self) -> ResolvedPlace {
        let host = Installation {
            install_id: self.folder.display().to_string(),
            run_dir: self.folder.join("run"),
            cache_dir: self.cache.clone(),
            home: self.hermes_home(),
            limits: PlaceLimits { max_places: 100, ..PlaceLimits::default() },
        };
        let base_env = vec![("PATH".to_owned(), "/usr/local/bin:/usr/bin:/bin".to_owned())];
        let files = Some(self.folder.join("kept"));
        let (backend, cwd, home) = match &self.kind {
            BackendKind::Local => {
                let (cwd, home) = (self.work().display().to_string(), self.home().display().to_string());
                (Backend::Local(LocalBackend { base_env, guard: hermes_types::Guard::Protect }), cwd, home)
            }
            BackendKind::Sandbox => {
                let sandboxed = SandboxBackend {
                    helper: self.helper.clone(),
                    files,
                    owner_home: self.home(),
                    audience: hermes_exec::Audience::Owner,
                    binds: Vec::new(),
                    network: self.network,
                    limits: Default::default(),
                    base_env,
                };
                let (cwd, home) = (backend::sandbox::WORKSPACE_DIR, backend::sandbox::HOME_DIR);
                (Backend::Sandbox(sandboxed), cwd.to_owned(), home.to_owned())
            }
            BackendKind::Docker { socket, image } => {
                let docker = DockerBackend {
                    engine: EngineAddress::Unix(socket.clone()),
                    image: image.clone(),
                    files,
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

    /// The working directory of a session on this machine.
    pub(crate) fn work(&self) -> PathBuf {
        self.owner.join("home/work")
    }

    /// The home of the owner of this machine.
    pub(crate) fn home(&self) -> PathBuf {
        self.owner.join("home")
    }

    pub(crate) fn hermes_home(&self) -> PathBuf {
        self.owner.join("hermes")
    }

    pub(crate) async fn open_store(&self) -> Store {
        Store::open(self.folder.join("hermes.db")).await.unwrap()
    }

    pub(crate) fn config(&self, store: Store, approver: Arc<ScriptedApprover>) -> SessionConfig {
        SessionConfig {
            session: self.place().session().clone(),
            place: self.place(),
            gate: Arc::new(Gate { mode: self.mode, ..Gate::default() }),
            person: Person::new("cli"),
            entry_point: EntryPoint::Cli,
            attendance: self.attendance.clone(),
            approver,
            reviewer: self.reviewer.clone(),
            redactor: Redactor::new(&self.secrets),
            limits: ToolLimits {
                timeout: Duration::from_secs(60),
                max_foreground: Duration::from_secs(600),
                output_bytes: 50_000,
                read_lines: 2_000,
                line_length: 2_000,
                read_chars: self.read_chars,
                code_execution: self.code,
            },
            tools: self.tools.clone(),
            store,
            pull: PullSettings { docker_config: PathBuf::new(), timeout: Duration::ZERO },
            warn: Arc::new(|message| panic!("{message}")),
            web: self.web.clone(),
        }
    }

    pub(crate) async fn session(&self) -> TestSession {
        let approver = Arc::new(ScriptedApprover::default());
        let config = self.config(self.open_store().await, approver.clone());
        TestSession { context: ToolContext::new(config), approver, stop: CancellationToken::new() }
    }
}

impl TestSession {
    pub(crate) async fn call(&self, tool: Tool, arguments: Value) -> ToolResult {
        let Value::Object(arguments) = arguments else { panic!("{arguments}") };
        let call_id = CallId::new("call");
        let call = CallContext { call_id: &call_id, stop: &self.stop, turn: None, observer: &|_| {} };
        self.context.call_tool(tool, arguments, call).await
    }

    /// Runs a script.
    pub(crate) async fn run(&self, code: &str) -> ToolResult {
        self.call(Tool::ExecuteCode, json!({"code": code})).await
    }
}
