//! Recorded streams of vendors: complete, damaged, and truncated at every byte.

use std::fs;

use bytes::Bytes;
use hermes_model::{Api, Endpoint, Finish, Reply, decode_recording};
use hermes_types::{Call, CallArguments, CallId, Part, Reasoning, Usage};
use serde_json::{Value, json};

use crate::support::{prompt, tools, user};

struct Case {
    name: &'static str,
    api: Api,
    parts: Vec<Part>,
    finish: Finish,
    usage: [u64; 5],
    cost: Option<f64>,
}

fn call(id: &str, name: &str, arguments: Value) -> Part {
    let arguments = CallArguments::Object(arguments.as_object().unwrap().clone());
    Part::Call(Call { id: CallId::new(id), name: name.to_owned(), arguments, replay: None })
}

fn says(text: &str) -> Part {
    Part::Text { text: text.to_owned() }
}

fn thought(text: &str, replay: Option<Value>) -> Part {
    Part::Reasoning(Reasoning { text: text.to_owned(), issuer: Some("test@127.0.0.1/m".to_owned()), replay })
}

fn cases() -> Vec<Case> {
    let chat = Api::ChatCompletions;
    let ls = || json!({"command": "ls -l"});
    let details = json!({"reasoning_details": [{
        "type": "reasoning.text", "text": "The user wants a listing.", "format": "anthropic-claude-v1", "index": 0, "signature": "EqQBsig",
    }]});
    let signed = json!({"type": "thinking", "thinking": "I should list it.", "signature": "EqQB"});
    let redacted = json!({"type": "redacted_thinking", "data": "EmwK"});
    let item = json!({
        "id": "rs_1", "type": "reasoning", "summary": [{"type": "summary_text", "text": "**Listing**"}], "encrypted_content": "gAAAAABo",
    });
    vec![
        Case {
            name: "openai",
            api: chat,
            parts: vec![
                says("Checking both."),
                call("call_A", "terminal", ls()),
                call("call_B", "read_file", json!({"path": "/etc/hosts"})),
            ],
            finish: Finish::Calls,
            usage: [26, 64, 0, 40, 12],
            cost: None,
        },
        Case {
            name: "openrouter",
            api: chat,
            parts: vec![
                thought("The user wants a listing.", Some(details)),
                says("On it."),
                call("toolu_01", "terminal", json!({"command": "ls"})),
            ],
            finish: Finish::Calls,
            usage: [30, 150, 20, 30, 9],
            cost: Some(0.00175),
        },
        Case {
            name: "ollama",
            api: chat,
            parts: vec![
                thought("Two things to do.", None),
                call("call_x1", "terminal", json!({"command": "ls"})),
                call("call_x2", "terminal", json!({"command": "pwd"})),
            ],
            finish: Finish::Calls,
            usage: [300, 0, 0, 25, 0],
            cost: None,
        },
        Case {
            name: "vllm",
            api: chat,
            parts: vec![thought("Look first.", None), call("chatcmpl-tool-9c1", "terminal", ls())],
            finish: Finish::Calls,
            usage: [50, 0, 0, 10, 0],
            cost: None,
        },
        Case {
            name: "llama-cpp",
            api: chat,
            parts: vec![call("abc123", "terminal", ls())],
            finish: Finish::Calls,
            usage: [70, 0, 0, 18, 0],
            cost: None,
        },
        Case {
            name: "deepseek",
            api: chat,
            parts: vec![thought("先看一下。", None), says("There are three files.")],
            finish: Finish::Stop,
            usage: [56, 64, 0, 22, 8],
            cost: None,
        },
        Case {
            name: "anthropic",
            api: Api::AnthropicMessages,
            parts: vec![
                thought("I should list it.", Some(signed)),
                thought("", Some(redacted)),
                says("Okay, let's see."),
                call("toolu_01T", "terminal", ls()),
                call("toolu_01U", "read_file", json!({})),
            ],
            finish: Finish::Calls,
            usage: [21, 400, 188, 89, 0],
            cost: None,
        },
        Case {
            name: "responses",
            api: Api::Responses,
            parts: vec![
                thought("**Listing**", Some(item)),
                says("Here it is."),
                call("call_un", "terminal", ls()),
            ],
            finish: Finish::Calls,
            usage: [11, 64, 0, 33, 10],
            cost: None,
        },
    ]
}

fn recording(name: &str) -> String {
    fs::read_to_string(format!("{}/tests/fixtures/{name}.sse", env!("CARGO_MANIFEST_DIR"))).unwrap()
}

async fn decode(api: Api, bytes: &[u8], size: usize) -> Result<Reply, hermes_model::RequestFailure> {
    let endpoint = Endpoint::new("test", api, "http://127.0.0.1/v1".parse().unwrap(), "m");
    let (tools, messages) = (tools(), [user("hi")]);
    let pieces = bytes.chunks(size).map(Bytes::copy_from_slice).collect();
    decode_recording(&endpoint, &prompt(&tools, &messages), pieces, &mut |_| {}).await
}

impl Case {
    fn check(&self, reply: &Reply, how: &str) {
        let [input, cache_read, cache_write, output, reasoning] = self.usage;
        assert_eq!(reply.parts, self.parts, "{} {how}", self.name);
        assert_eq!(reply.finish, self.finish, "{} {how}", self.name);
        assert_eq!(
            reply.usage,
            Usage { input, cache_read, cache_write, output, reasoning },
            "{} {how}",
            self.name
        );
        assert_eq!(reply.cost, self.cost, "{} {how}", self.name);
    }
}

#[tokio::test]
async fn the_streams_of_eight_vendors_are_decoded_in_chunks_of_any_size() {
    for case in cases() {
        for size in [1, 3, 7, 4096] {
            let reply = decode(case.api, recording(case.name).as_bytes(), size).await.unwrap();
            case.check(&reply, &format!("by {size}"));
        }
    }
}

#[tokio::test]
async fn harmless_variations_do_not_break_a_stream() {
    for case in cases() {
        let text = recording(case.name);
        let noise = "event: brand.new\ndata: {\"type\":\"brand.new\",\"index\":99,\"x\":[1]}\n\n: a comment\n\ndata: not json {\n\nid: 7\n\ndata:\n\n";
        let damaged = [
            ("with other line ends", text.replace('\n', "\r\n")),
            ("with a byte order mark", format!("\u{feff}{text}")),
            (
                "with noise before each event",
                text.split_inclusive("\n\n").map(|event| format!("{noise}{event}")).collect(),
            ),
            ("without a space", text.replace("data: ", "data:")),
            ("without the end marker", text.replace("data: [DONE]\n\n", "")),
            ("without the last empty line", text.trim_end().to_owned()),
            ("with unknown fields", text.replace("data: {", "data: {\"brand_new\":{\"a\":[1]},")),
            (
                "with data after the end",
                format!("{text}data: {{\"choices\":[{{\"delta\":{{\"content\":\"x\"}}}}]}}\n\n"),
            ),
        ];
        for (how, text) in damaged {
            for size in [1, 7, 4096] {
                case.check(&decode(case.api, text.as_bytes(), size).await.unwrap(), how);
            }
        }
    }
}

#[tokio::test]
async fn a_truncated_stream_never_gives_a_call_that_was_not_made() {
    for case in cases() {
        let text = recording(case.name);
        let bytes = text.as_bytes();
        for end in (0..bytes.len()).step_by(3) {
            let Ok(reply) = decode(case.api, &bytes[..end], 4096).await else { continue };
            for part in &reply.parts {
                match part {
                    Part::Call(Call { arguments: CallArguments::Broken { .. }, .. }) => {}
                    Part::Call(_) => assert!(case.parts.contains(part), "{} at {end}: {part:?}", case.name),
                    Part::Text { text } => {
                        let whole = case.parts.iter().any(|part| matches!(part, Part::Text { text: whole } if whole.starts_with(text.as_str())));
                        assert!(whole, "{} at {end}: {text}", case.name);
                    }
                    Part::Reasoning(_) => {}
                }
            }
        }
    }
}

#[tokio::test]
async fn damaged_events_do_not_panic() {
    for case in cases() {
        let bytes = recording(case.name).into_bytes();
        for at in (0..bytes.len()).step_by(23) {
            for other in [b'{', b'"', b'\n', 0xff, b'9'] {
                let mut damaged = bytes.clone();
                damaged[at] = other;
                // Any reply or failure is fine.
                decode(case.api, &damaged, 64).await.ok();
            }
        }
    }
}
