//! A conversation with a scripted model on this machine.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hermes_agent::{
    Approver, BoxFuture, Clarification, CodeExecutionConfig, CodeMode, Conversation, LoopGuardConfig,
    ModelConfig, SessionConfig, SystemPrompt, SystemPromptInput, Tool, ToolContext, ToolLimits, TurnControl,
    TurnEvent, TurnResult,
};
use hermes_exec::backend::docker::pull::PullOptions;
use hermes_exec::{Backend, Installation, LocalBackend, ResolvedPlace, Spec};
use hermes_model::{Api, Client, Endpoint, Sight};
use hermes_policy::redact::Redactor;
use hermes_policy::{Answer, Choice, Gate, Question};
use hermes_store::Store;
use hermes_testkit::{ScriptedModel, Step};
use hermes_types::{Attendance, BackendName, EntryPoint, Message, Person, SessionKey, Timestamp};
use tempfile::TempDir;
use tokio::sync::Notify;

/// Everything of one test.
pub(crate) struct Bed {
    pub(crate) folder: TempDir,
    pub(crate) model: ScriptedModel,
    pub(crate) store: Store,
    pub(crate) people: Arc<People>,
    pub(crate) guard: LoopGuardConfig,
    pub(crate) budget: u32,
    pub(crate) events: Mutex<Vec<TurnEvent>>,
}

/// Somebody who answers every question alike, or never.
#[derive(Debug, Default)]
pub(crate) struct People {
    pub(crate) choice: Mutex<Option<Choice>>,
    pub(crate) asked: Mutex<Vec<String>>,
    /// Told when somebody was asked.
    pub(crate) heard: Notify,
}

impl Approver for People {
    fn ask_permission<'a>(&'a self, question: &'a Question) -> BoxFuture<'a, Option<Answer>> {
        self.asked.lock().unwrap().push(question.id().as_str().to_owned());
        self.heard.notify_one();
        let choice = self.choice.lock().unwrap().clone();
        Box::pin(async move {
            let Some(choice) = choice else { return std::future::pending().await };
            let (id, by) = (question.id().clone(), question.approvers()[0].clone());
            Some(Answer { question: id, by, at: now(), choice })
        })
    }

    fn clarify<'a>(&'a self, _question: &'a Clarification) -> BoxFuture<'a, Option<String>> {
        Box::pin(async { None })
    }
}

pub(crate) fn now() -> Timestamp {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    Timestamp::from_seconds(since.as_secs())
}

impl Bed {
    pub(crate) async fn new(steps: impl IntoIterator<Item = Step>) -> Self {
        Self::with(ScriptedModel::start(steps).unwrap()).await
    }

    pub(crate) async fn with(model: ScriptedModel) -> Self {
        let folder = tempfile::tempdir().unwrap();
        for name in ["work", "hermes"] {
            std::fs::create_dir(folder.path().join(name)).unwrap();
        }
        Self {
            store: Store::open(folder.path().join("hermes.db")).await.unwrap(),
            folder,
            model,
            people: Arc::default(),
            guard: LoopGuardConfig::default(),
            budget: 20,
            events: Mutex::default(),
        }
    }

    pub(crate) fn work(&self) -> PathBuf {
        self.folder.path().join("work")
    }

    pub(crate) fn plan(&self) -> ResolvedPlace {
        let work = self.work().display().to_string();
        let base_env = vec![("PATH".to_owned(), "/usr/local/bin:/usr/bin:/bin".to_owned())];
        let host = Installation {
            install_id: "test".to_owned(),
            run_dir: self.folder.path().join("run"),
            cache_dir: PathBuf::from(env!("CARGO_TARGET_TMPDIR")),
            home: self.folder.path().join("hermes"),
            max_places: 10,
        };
        let spec = Spec {
            backend: Backend::Local(LocalBackend { base_env }),
            cwd: work.clone(),
            home: work,
            env: Vec::new(),
            init: Vec::new(),
            lifetime: Duration::from_secs(60),
        };
        ResolvedPlace::new(host, spec, SessionKey::new("s")).unwrap()
    }

    pub(crate) fn hands(&self) -> Arc<ToolContext> {
        let person = Person::new("cli");
        let limits = ToolLimits {
            timeout: Duration::from_secs(60),
            max_foreground: Duration::from_secs(600),
            output_bytes: 50_000,
            read_lines: 2_000,
            line_length: 2_000,
            read_chars: 100_000,
            code_execution: CodeExecutionConfig {
                timeout: Duration::from_secs(300),
                max_tool_calls: 50,
                mode: CodeMode::Project,
            },
        };
        Arc::new(ToolContext::new(SessionConfig {
            session: self.plan().session().clone(),
            place: self.plan(),
            gate: Arc::new(Gate::default()),
            attendance: Attendance::Attended(vec![person.clone()]),
            person,
            entry_point: EntryPoint::Cli,
            approver: self.people.clone(),
            redactor: Redactor::new([]),
            limits,
            tools: Tool::ALL.to_vec(),
            store: self.store.clone(),
            pull_auth: Arc::new(|_image| {
                Box::pin(async { PullOptions { credentials: None, timeout: Duration::from_secs(1) } })
            }),
            web: Arc::default(),
        }))
    }

    pub(crate) fn mind(&self) -> ModelConfig {
        let url = self.model.url().parse().unwrap();
        ModelConfig {
            client: Client::default(),
            endpoints: vec![Endpoint::new("custom", Api::ChatCompletions, url, "scripted")],
            max_output: None,
            effort: None,
            image_mode: Sight::Text,
            max_model_calls: self.budget,
            loop_guard: self.guard,
        }
    }

    pub(crate) fn told(&self) -> SystemPrompt {
        let work = self.work().display().to_string();
        let opening = SystemPromptInput {
            soul: None,
            tools: &Tool::ALL,
            backend: BackendName::Local,
            cwd: &work,
            today: "2026-01-31",
            model: "scripted",
        };
        opening.build()
    }

    pub(crate) async fn begin(&self) -> Conversation {
        Conversation::create(self.hands(), self.mind(), self.told(), "a title").await.unwrap()
    }

    pub(crate) async fn say(&self, conversation: &mut Conversation, text: &str) -> TurnResult {
        self.say_with(conversation, text, &TurnControl::default()).await
    }

    pub(crate) async fn say_with(
        &self,
        conversation: &mut Conversation,
        text: &str,
        control: &TurnControl,
    ) -> TurnResult {
        let watch = |event| self.events.lock().unwrap().push(event);
        conversation.run_turn(text, control, &watch).await.unwrap()
    }

    /// What was kept, in a line each.
    pub(crate) async fn kept(&self, conversation: &Conversation) -> Vec<String> {
        let kept = self.store.history(conversation.id()).await.unwrap();
        let messages: Vec<Message> = kept.into_iter().map(|kept| kept.message).collect();
        assert_eq!(messages, conversation.history());
        messages.iter().map(line).collect()
    }

    /// The answers of tools that the model saw with its last request.
    pub(crate) fn seen(&self) -> Vec<serde_json::Value> {
        let last = self.model.received().pop().unwrap();
        let messages = last.json["messages"].as_array().unwrap();
        messages
            .iter()
            .filter(|message| message["role"] == "tool")
            .map(|message| serde_json::from_str(message["content"].as_str().unwrap()).unwrap())
            .collect()
    }

    /// Ends the place, and finds the server content with what it got.
    pub(crate) async fn leave(self) {
        assert_eq!(self.model.failures(), Vec::<String>::new());
        self.plan().open().await.unwrap().remove().await.unwrap();
        self.store.close().await;
    }
}

fn line(message: &Message) -> String {
    match message {
        Message::User { text, .. } => format!("user: {text}"),
        Message::Assistant { .. } => {
            let calls: Vec<_> = message.calls().map(|call| format!(" [{}]", call.id.as_str())).collect();
            format!("assistant: {}{}", message.text(), calls.concat())
        }
        Message::Tool { call, .. } => format!("tool: [{}]", call.as_str()),
    }
}
