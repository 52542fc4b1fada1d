//! Asks a model one thing, by hand: `ask PROTOCOL BASE_URL MODEL WORDS`, with the key on standard input if there is one.
//! Says what came, and how long it took from the start of the program to the first event.

use std::io::{Read, Write};
use std::time::Instant;

use hermes_model::{Api, Client, Credentials, Endpoint, Prompt};
use hermes_types::{Message, Secret, ToolSpec};
use serde_json::json;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let begun = Instant::now();
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [api, base_url, model, text] = words.as_slice() else {
        return Err("usage: ask PROTOCOL BASE_URL MODEL WORDS".into());
    };
    let api = Api::from_word(api).ok_or("chat_completions, anthropic_messages or codex_responses")?;
    let mut key = String::new();
    std::io::stdin().read_to_string(&mut key)?;
    let mut endpoint = Endpoint::new("custom", api, base_url.parse()?, model.as_str());
    if !key.trim().is_empty() {
        endpoint.credentials = Credentials::Key(Secret::new(key.trim()));
    }
    let tools = [ToolSpec {
        name: "terminal".to_owned(),
        description: "Runs a shell command and gives its output.".to_owned(),
        parameters: json!({"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]}),
    }];
    let messages = [Message::user(text)];
    let prompt = Prompt {
        system: "You are a helpful assistant.",
        tools: &tools,
        messages: &messages,
        max_output: Some(512),
        effort: None,
        sight: &hermes_model::Sight::Text,
        session: "ask",
    };
    let client = Client::default();
    let mut out = std::io::stdout();
    let mut first = None;
    let mut listen = |event| {
        first.get_or_insert_with(|| begun.elapsed());
        writeln!(std::io::stdout(), "{event:?}").ok();
    };
    let chain = [endpoint];
    let reply = client.complete(&chain, &prompt, &mut listen).await;
    writeln!(out, "first event after {first:?}, all after {:?}", begun.elapsed())?;
    writeln!(out, "{reply:#?}")?;
    let window = client.window(&chain[0]).await;
    writeln!(out, "{window:?}")?;
    Ok(())
}
