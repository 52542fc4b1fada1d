//! Hands of one session, and the people behind them.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hermes_agent::tool::CallContext;
use hermes_agent::{
    Approver, BoxFuture, Clarification, CodeExecutionConfig, CodeMode, SessionConfig, Tool, ToolContext,
    ToolLimits, ToolResult, WebClient,
};
use hermes_exec::{Backend, Installation, LocalBackend, ResolvedPlace, SandboxBackend, Spec, backend};
use hermes_policy::redact::Redactor;
use hermes_policy::{Answer, Choice, Gate, Mode, Question};
use hermes_store::Store;
use hermes_types::{Attendance, CallId, EntryPoint, Network, Person, Secret, SessionKey, Timestamp};
use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;

/// Where a session has its place, and what it is allowed.
#[derive(Debug, Clone)]
pub(crate) struct Bed {
    pub(crate) kind: Kind,
    /// Everything of its places is below this directory.
    pub(crate) folder: PathBuf,
    /// What the owner of this machine has is below this one.
    pub(crate) owner: PathBuf,
    pub(crate) cache: PathBuf,
    pub(crate) helper: PathBuf,
    pub(crate) mode: Mode,
    pub(crate) tools: Vec<Tool>,
    pub(crate) attendance: Attendance,
    pub(crate) secrets: Vec<Secret>,
    pub(crate) read_chars: usize,
    pub(crate) web: Arc<WebClient>,
}

/// Which backend.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Kind {
    Local,
    Sandbox,
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
    pub(crate) replies: Mutex<Option<String>>,
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

    fn clarify<'a>(&'a self, question: &'a Clarification) -> BoxFuture<'a, Option<String>> {
        self.heard.lock().unwrap().push(question.question.clone());
        Box::pin(std::future::ready(self.replies.lock().unwrap().clone()))
    }
}

impl Somebody {
    /// The questions since the last time.
    pub(crate) fn questions(&self) -> Vec<String> {
        std::mem::take(&mut self.heard.lock().unwrap())
    }

    pub(crate) fn will_say(&self, choice: Choice) {
        *self.says.lock().unwrap() = Some(choice);
    }
}

impl Bed {
    pub(crate) fn new(kind: Kind, folder: &Path, owner: &Path, cache: &Path, helper: &Path) -> Self {
        Self {
            kind,
            folder: folder.to_owned(),
            owner: owner.to_owned(),
            cache: cache.to_owned(),
            helper: helper.to_owned(),
            mode: Mode::Off,
            tools: Tool::ALL.to_vec(),
            attendance: Attendance::Attended(vec![Person::new("cli")]),
            secrets: Vec::new(),
            read_chars: 100_000,
            web: Arc::new(WebClient::default()),
        }
    }

    pub(crate) fn plan(&self) -> ResolvedPlace {
        let host = Installation {
            install_id: self.folder.display().to_string(),
            run_dir: self.folder.join("run"),
            cache_dir: self.cache.clone(),
            home: self.hermes_home(),
            max_places: 100,
        };
        let base_env = vec![("PATH".to_owned(), "/usr/local/bin:/usr/bin:/bin".to_owned())];
        let work = self.work().display().to_string();
        let home = self.home().display().to_string();
        let (backend, cwd, home) = match &self.kind {
            Kind::Local => (Backend::Local(LocalBackend { base_env }), work, home),
            Kind::Sandbox => {
                let sandboxed = SandboxBackend {
                    helper: self.helper.clone(),
                    files: Some(self.folder.join("kept")),
                    owner_home: self.home(),
                    audience: hermes_exec::Audience::Owner,
                    binds: Vec::new(),
                    network: Network::None,
                    limits: Default::default(),
                    base_env,
                };
                let (cwd, home) = (backend::sandbox::WORKSPACE_DIR, backend::sandbox::HOME_DIR);
                (Backend::Sandbox(sandboxed), cwd.to_owned(), home.to_owned())
            }
        };
        let env = vec![("GIVEN".to_owned(), "value".to_owned())];
        let spec = Spec { backend, cwd, home, env, init: Vec::new(), lifetime: Duration::from_secs(60) };
        ResolvedPlace::new(host, spec, SessionKey::new("s")).unwrap()
    }

    /// Where a session on this machine works.
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

    pub(crate) async fn hands(&self) -> Session {
        let person = Arc::new(Somebody::default());
        let setup = SessionConfig {
            session: self.plan().session().clone(),
            place: self.plan(),
            gate: Arc::new(Gate { mode: self.mode, ..Gate::default() }),
            person: Person::new("cli"),
            entry_point: EntryPoint::Cli,
            attendance: self.attendance.clone(),
            approver: person.clone(),
            redactor: Redactor::new(&self.secrets),
            limits: ToolLimits {
                timeout: Duration::from_secs(60),
                max_foreground: Duration::from_secs(600),
                output_bytes: 50_000,
                read_lines: 2_000,
                line_length: 2_000,
                read_chars: self.read_chars,
                code_execution: CodeExecutionConfig {
                    timeout: Duration::from_secs(60),
                    max_tool_calls: 50,
                    mode: CodeMode::Project,
                },
            },
            tools: self.tools.clone(),
            store: Store::open(self.folder.join("hermes.db")).await.unwrap(),
            pull_auth: Arc::new(|image| panic!("nobody pulls {image}")),
            web: self.web.clone(),
        };
        Session { hands: ToolContext::new(setup), person, stop: CancellationToken::new() }
    }
}

impl Session {
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
