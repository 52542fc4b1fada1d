//! Fixtures for the tests of this crate.

use std::time::Duration;

use hermes_model::{
    Api, ApiCredentials, Client, Endpoint, EnvProxies, Error, ImageMode, Prompt, Reply, ReplyEvent, Retries,
};
use hermes_testkit::ScriptedModel;
use hermes_types::{Message, Secret, ToolSpec};
use serde_json::json;

pub(crate) const APIS: [Api; 3] = [Api::ChatCompletions, Api::AnthropicMessages, Api::Responses];

/// An endpoint of the scripted model, with short delays.
pub(crate) fn endpoint(model: &ScriptedModel, api: Api) -> Endpoint {
    let base = match api {
        Api::AnthropicMessages => model.anthropic_url(),
        Api::ChatCompletions | Api::Responses | Api::OllamaChat => model.url(),
    };
    let mut endpoint = Endpoint::new("test", api, base.parse().unwrap(), "scripted");
    endpoint.credentials = Some(ApiCredentials::Key(Secret::new("sk-test")));
    endpoint.retries = Retries {
        max_attempts: 3,
        initial_delay: Duration::from_millis(1),
        max_delay: Duration::from_millis(5),
    };
    endpoint
}

pub(crate) fn tools() -> Vec<ToolSpec> {
    let schema = json!({"type": "object", "properties": {"command": {"type": "string", "pattern": "^l", "format": "x"}}});
    ["terminal", "read_file"]
        .map(|name| ToolSpec {
            name: name.to_owned(),
            description: format!("the tool {name}"),
            parameters: schema.clone(),
        })
        .to_vec()
}

pub(crate) fn user(text: &str) -> Message {
    Message::user(text)
}

pub(crate) fn prompt<'a>(tools: &'a [ToolSpec], messages: &'a [Message]) -> Prompt<'a> {
    Prompt {
        system: "You are Hermes.",
        tools,
        messages,
        max_output: None,
        effort: None,
        session: "s1",
        image_mode: ImageMode::Text,
    }
}

/// A client without images.
pub(crate) fn client() -> Client {
    Client::new(EnvProxies::default(), |_| None)
}

/// Asks the model and collects the events.
pub(crate) async fn ask(
    client: &Client,
    chain: &[Endpoint],
    messages: &[Message],
) -> (Result<Reply, Error>, Vec<ReplyEvent>) {
    let tools = tools();
    let mut events = Vec::new();
    let reply = client.complete(chain, &prompt(&tools, messages), &mut |event| events.push(event)).await;
    (reply, events)
}

/// The text of the events.
pub(crate) fn shown_text(events: &[ReplyEvent]) -> String {
    let texts = events.iter().filter_map(|event| match event {
        ReplyEvent::Text(text) => Some(text.as_str()),
        _ => None,
    });
    texts.collect()
}
