//! Any bytes as the reply of a model: every protocol gives a reply or a failure, and a truncated call
//! is broken.
//!
//! `cargo +nightly fuzz run stream -- -max_len=65536 -timeout=2 -rss_limit_mb=512`

#![no_main]

use hermes_model::{Api, Endpoint, Finish, ImageMode, Prompt, ReplyEvent, decode_recording};
use hermes_types::{CallArguments, Message, Part, ToolSpec};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (u8, u8, &[u8])| {
    let (api, size, bytes) = input;
    let api = match api % 4 {
        0 => Api::ChatCompletions,
        1 => Api::AnthropicMessages,
        2 => Api::Responses,
        _ => Api::OllamaChat,
    };
    let endpoint = Endpoint::new("fuzz", api, "http://127.0.0.1/v1".parse().expect("an address"), "m");
    let tools = [ToolSpec {
        name: "terminal".to_owned(),
        description: String::new(),
        parameters: serde_json::json!({"type": "object"}),
    }];
    let messages = [Message::user("hi")];
    let prompt = Prompt {
        system: "",
        tools: &tools,
        messages: &messages,
        max_output: None,
        effort: None,
        session: "",
        image_mode: ImageMode::Text,
    };
    let pieces = bytes.chunks(usize::from(size).max(1)).map(|piece| piece.to_vec().into()).collect();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    let mut ignore_events = |_: ReplyEvent| {};
    let reply = runtime.block_on(decode_recording(&endpoint, &prompt, pieces, &mut ignore_events));
    let Ok(reply) = reply else { return };
    let last_call = reply.parts.iter().rev().find_map(|part| match part {
        Part::Call(call) => Some(&call.arguments),
        _ => None,
    });
    if matches!(reply.finish, Finish::Length | Finish::Dropped(_)) && api == Api::ChatCompletions {
        let is_empty = matches!(last_call, Some(CallArguments::Object(object)) if object.is_empty());
        assert!(!is_empty, "a call without arguments was truncated, and is not broken");
    }
});
