//! A conversation with a scripted model, on this machine.

use std::ops::Deref;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hermes_agent::{
    Conversation, LoopGuardConfig, ModelConfig, SystemPrompt, SystemPromptInput, Tool, ToolContext,
    TurnControl, TurnEvent, TurnResult,
};
use hermes_model::{Api, Client, Endpoint, EnvProxies, ImageMode};
use hermes_policy::Gate;
use hermes_store::Store;
use hermes_testkit::{ScriptStep, ScriptedModel};
use hermes_types::{BackendName, Message};
use tokio_util::sync::CancellationToken;

use crate::env::ScriptedApprover;
use crate::fixture::Fixture;

pub(crate) struct ChatEnv {
    fixture: Fixture,
    pub(crate) model: ScriptedModel,
    pub(crate) store: Store,
    pub(crate) approver: Arc<ScriptedApprover>,
    pub(crate) max_model_calls: u32,
    pub(crate) idle_timeout: Option<Duration>,
    pub(crate) loop_guard: LoopGuardConfig,
    pub(crate) events: Mutex<Vec<TurnEvent>>,
}

impl Deref for ChatEnv {
    type Target = Fixture;

    fn deref(&self) -> &Fixture {
        &self.fixture
    }
}

impl ChatEnv {
    pub(crate) async fn new(steps: impl IntoIterator<Item = ScriptStep>) -> Self {
        Self::with_model(ScriptedModel::start(steps).unwrap()).await
    }

    pub(crate) async fn with_model(model: ScriptedModel) -> Self {
        let mut fixture = Fixture::local();
        fixture.mode = Gate::default().mode;
        Self {
            store: fixture.open_store().await,
            fixture,
            model,
            approver: Arc::default(),
            max_model_calls: 20,
            idle_timeout: None,
            loop_guard: LoopGuardConfig::default(),
            events: Mutex::default(),
        }
    }

    pub(crate) fn context(&self) -> Arc<ToolContext> {
        Arc::new(ToolContext::new(self.config(self.store.clone(), self.approver.clone())))
    }

    pub(crate) fn model_config(&self) -> ModelConfig {
        let url = self.model.url().parse().unwrap();
        ModelConfig {
            client: Client::new(EnvProxies::default(), |_| None),
            endpoints: vec![Endpoint::new("custom", Api::ChatCompletions, url, "scripted")],
            max_output: None,
            effort: None,
            image_mode: ImageMode::Text,
            max_model_calls: self.max_model_calls,
            idle_timeout: self.idle_timeout,
            loop_guard: self.loop_guard,
        }
    }

    fn prompt(&self) -> SystemPrompt {
        let work = self.work().display().to_string();
        let input = SystemPromptInput {
            soul: None,
            tools: Tool::ALL,
            backend: BackendName::Local,
            cwd: &work,
            today: "2026-01-31",
            model: "scripted",
        };
        input.build()
    }

    pub(crate) async fn create(&self) -> Conversation {
        Conversation::create(self.context(), self.model_config(), self.prompt(), "a title").await.unwrap()
    }

    pub(crate) async fn run(&self, conversation: &mut Conversation, text: &str) -> TurnResult {
        self.run_with(conversation, text, &turn_control()).await
    }

    pub(crate) async fn run_with(
        &self,
        conversation: &mut Conversation,
        text: &str,
        control: &TurnControl,
    ) -> TurnResult {
        let observer = |event| self.events.lock().unwrap().push(event);
        conversation.run_turn(text, control, &observer).await.unwrap()
    }

    /// The stored messages, one line each. They must equal the history in memory.
    pub(crate) async fn stored(&self, conversation: &Conversation) -> Vec<String> {
        let rows = self.store.history(conversation.id()).await.unwrap();
        let messages: Vec<Message> = rows.into_iter().map(|row| row.message).collect();
        assert_eq!(messages, conversation.history());
        messages.iter().map(line).collect()
    }

    /// The tool results in the last request to the model.
    pub(crate) fn seen(&self) -> Vec<serde_json::Value> {
        let last = self.model.received().pop().unwrap();
        let messages = last.json["messages"].as_array().unwrap();
        messages
            .iter()
            .filter(|message| message["role"] == "tool")
            .map(|message| serde_json::from_str(message["content"].as_str().unwrap()).unwrap())
            .collect()
    }

    /// Ends the execution environment. The model must have received only valid requests.
    pub(crate) async fn finish(self) {
        assert_eq!(self.model.failures(), Vec::<String>::new());
        self.fixture.end_places().await;
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

/// A control without a journal.
pub(crate) fn turn_control() -> TurnControl {
    TurnControl::new(CancellationToken::new(), Arc::new(()))
}
