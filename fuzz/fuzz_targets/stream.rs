//! Any bytes as the answer of a model: every protocol gives a reply or a fault, and a call that was cut off is broken.
//!
//! `cargo +nightly fuzz run stream -- -max_len=65536 -timeout=2 -rss_limit_mb=512`

#![no_main]

use hermes_model::{Api, Endpoint, Finish, Prompt, Sight, decode_recording};
use hermes_types::{Arguments, Message, Part, ToolSpec};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (u8, u8, &[u8])| {
    let (api, size, bytes) = input;
    let api = match api % 3 {
        0 => Api::ChatCompletions,
        1 => Api::AnthropicMessages,
        _ => Api::Responses,
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
        sight: &Sight::Text,
    };
    let pieces = bytes.chunks(usize::from(size).max(1)).map(|piece| piece.to_vec().into()).collect();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    let mut shown = String::new();
    let mut listen = |event| {
        if let hermes_model::ReplyEvent::Text(text) = event {
            shown.push_str(&text);
        }
    };
    let Ok(reply) = runtime.block_on(decode_recording(&endpoint, &prompt, pieces, &mut listen)) else { return };
    let open = reply.parts.iter().rev().find_map(|part| match part {
        Part::Call(call) => Some(&call.arguments),
        _ => None,
    });
    if matches!(reply.finish, Finish::Length | Finish::Dropped(_)) && api == Api::ChatCompletions {
        assert!(!matches!(open, Some(Arguments::Object(object)) if object.is_empty()), "nothing came, and it was run");
    }
});
