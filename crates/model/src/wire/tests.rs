//! The differences between vendors in the requests they get.

use std::sync::Arc;

use hermes_types::{
    Call, CallArguments, CallId, Digest, Image, ImageKind, Message, Part, Reasoning, ToolSpec,
};
use serde_json::{Map, Value, json};

use super::*;
use crate::endpoint::Effort;
use crate::vision::{ImageLoader, ImageMode, LoadedImages, recent_images};

fn at(provider: &str, api: Api, base: &str, model: &str) -> Endpoint {
    Endpoint::new(provider, api, base.parse().unwrap(), model)
}

fn call(id: &str) -> Call {
    let arguments = CallArguments::Object(Map::new());
    Call { id: CallId::new(id), name: "t".to_owned(), arguments, replay: None }
}

fn history(issuer: &str, replay: Option<Value>) -> Vec<Message> {
    let user = |text: &str| Message::user(text);
    let call = call("c1");
    let reasoning = Reasoning { text: "hm".to_owned(), issuer: Some(issuer.to_owned()), replay };
    vec![
        user("a"),
        Message::Assistant {
            parts: vec![Part::Reasoning(reasoning), Part::Text { text: "b".to_owned() }, Part::Call(call)],
        },
        Message::Tool { call: CallId::new("c1"), name: "t".to_owned(), text: "c".to_owned() },
        Message::Assistant { parts: vec![Part::Text { text: "d".to_owned() }] },
        user("e"),
    ]
}

fn encode(endpoint: &Endpoint, messages: &[Message], quirks: &ServerQuirks) -> Value {
    encode_with_images(endpoint, messages, quirks, LoadedImages::default())
}

fn encode_with_images(
    endpoint: &Endpoint,
    messages: &[Message],
    quirks: &ServerQuirks,
    images: LoadedImages<'_>,
) -> Value {
    let tools = [ToolSpec {
        name: "t".to_owned(),
        description: String::new(),
        parameters: json!({"type": "object"}),
    }];
    let prompt = Prompt {
        system: "s",
        tools: &tools,
        messages,
        max_output: Some(100),
        effort: Some(Effort::High),
        session: "k",
        image_mode: ImageMode::Text,
    };
    serde_json::from_slice(&ModelRequest { endpoint, prompt: &prompt, quirks, images }.body()).unwrap()
}

#[test]
fn reasoning_goes_back_as_text_to_vendors_that_require_it() {
    let cases = [
        ("deepseek", "https://api.deepseek.com/v1", "deepseek/m", "hm"),
        ("kimi-coding", "https://api.moonshot.ai/v1", "kimi-coding/m", "hm"),
        // Reasoning of another vendor or model is not sent, but the field must not be empty.
        ("xiaomi", "https://api.xiaomimimo.com/v1", "deepseek/m", " "),
        ("deepseek", "https://api.deepseek.com/v1", "deepseek/other", " "),
    ];
    for (provider, base, issuer, expected) in cases {
        let endpoint = at(provider, Api::ChatCompletions, base, "m");
        let body = encode(&endpoint, &history(issuer, None), &ServerQuirks::default());
        let assistants =
            body["messages"].as_array().unwrap().iter().filter(|message| message["role"] == "assistant");
        let contents: Vec<&Value> = assistants.map(|message| &message["reasoning_content"]).collect();
        // Only the first one calls a tool.
        assert_eq!(contents, [&json!(expected), &Value::Null], "{provider}");
        let all = ServerQuirks { replay_all_reasoning: true, ..ServerQuirks::default() };
        let body = encode(&endpoint, &history(issuer, None), &all);
        assert_eq!(body["messages"][4]["reasoning_content"], " ");
    }
    let other = at("custom", Api::ChatCompletions, "http://localhost:1/v1", "m");
    assert!(
        !encode(&other, &history("deepseek", None), &ServerQuirks::default())
            .to_string()
            .contains("reasoning_content")
    );
}

#[test]
fn openrouter_gets_its_details_back_and_claude_its_four_cache_markers() {
    let details = json!([{"type": "reasoning.encrypted", "data": "x"}]);
    let messages =
        history("openrouter/anthropic/claude-opus-4.6", Some(json!({"reasoning_details": details})));
    let endpoint =
        at("openrouter", Api::ChatCompletions, "https://openrouter.ai/api/v1", "anthropic/claude-opus-4.6");
    let body = encode(&endpoint, &messages, &ServerQuirks::default());
    assert_eq!(body["messages"][2]["reasoning_details"], details);
    // These models read the effort from another field.
    assert_eq!((&body["verbosity"], &body["reasoning"]), (&json!("high"), &Value::Null));
    assert_eq!(body["usage"], json!({"include": true}));
    let marked: Vec<usize> = body["messages"]
        .as_array()
        .unwrap()
        .iter()
        .enumerate()
        .filter(|(_, message)| message.to_string().contains("cache_control"))
        .map(|(at, _)| at)
        .collect();
    assert_eq!(marked, [0, 3, 4, 5]);
    let no_reasoning = ServerQuirks { drop_reasoning: true, ..ServerQuirks::default() };
    assert!(encode(&endpoint, &messages, &no_reasoning)["messages"][2]["reasoning_details"].is_null());
    let other = at("openrouter", Api::ChatCompletions, "https://openrouter.ai/api/v1", "qwen/qwen3");
    let body = encode(&other, &messages, &ServerQuirks::default());
    assert_eq!(body["reasoning"], json!({"effort": "high"}));
    assert!(!body.to_string().contains("cache_control"));
}

#[tokio::test]
async fn images_are_sent_in_the_form_of_each_vendor() {
    let image = Image { sha256: Digest::new([1; 32]), kind: ImageKind::Gif, size: 6 };
    let gone = Image { sha256: Digest::new([0; 32]), ..image.clone() };
    let stored = image.clone();
    let loader: ImageLoader = Arc::new(move |image| (*image == stored).then(|| b"GIF89a".to_vec()));
    let user_message = |text: &str, images: &[&Image]| Message::User {
        text: text.to_owned(),
        images: images.iter().copied().cloned().collect(),
    };
    let messages =
        [user_message("look", &[&gone, &image]), user_message("and this", &[&image]), user_message("", &[])];
    let (without_text, without_image) = ([user_message(" ", &[&image])], [user_message("look", &[&gone])]);
    let all = [&messages[..], &without_text, &without_image];
    let positions: Vec<&Image> = all.into_iter().flat_map(recent_images).collect();
    let images = LoadedImages::load(&positions, &loader).await;
    let encode = |api, base: &str, model: &str, messages: &[Message]| {
        encode_with_images(&at("x", api, base, model), messages, &ServerQuirks::default(), images.clone())
    };
    let text = "look\n\nand this\n\n";
    let url = "data:image/gif;base64,R0lGODlh";
    let part = json!({"type": "image_url", "image_url": {"url": url}});
    let chat = encode(Api::ChatCompletions, "http://h/v1", "m", &messages);
    let content = json!([{"type": "text", "text": text}, part, part]);
    assert_eq!(chat["messages"][1], json!({"role": "user", "content": content}));
    let without_text = encode(Api::ChatCompletions, "http://h/v1", "m", &without_text);
    assert_eq!(without_text["messages"][1]["content"], json!([part]));
    let without_image = encode(Api::ChatCompletions, "http://h/v1", "m", &without_image);
    assert_eq!(without_image["messages"][1]["content"], "look");
    let marked =
        encode(Api::ChatCompletions, "https://openrouter.ai/api/v1", "anthropic/claude-opus-4.6", &messages);
    let marker = json!({"type": "ephemeral"});
    let content = json!([{"type": "text", "text": text, "cache_control": marker}, part, part]);
    assert_eq!(marked["messages"][1]["content"], content);
    let claude = encode(Api::AnthropicMessages, "https://api.anthropic.com", "claude-opus-4-6", &messages);
    let source = json!({"type": "base64", "media_type": "image/gif", "data": "R0lGODlh"});
    let block = json!({"type": "image", "source": source});
    let content = json!([block, block, {"type": "text", "text": text, "cache_control": marker}]);
    assert_eq!(claude["messages"][0], json!({"role": "user", "content": content}));
    let responses = encode(Api::Responses, "https://api.openai.com/v1", "gpt-5.1", &messages);
    let part = json!({"type": "input_image", "image_url": url, "detail": "auto"});
    let content = json!([{"type": "input_text", "text": text}, part, part]);
    assert_eq!(responses["input"][0], json!({"role": "user", "content": content}));
}

#[test]
fn openai_has_its_own_field_names() {
    let endpoint = at("openai-api", Api::ChatCompletions, "https://api.openai.com/v1", "gpt-5.1");
    let body = encode(&endpoint, &history("x", None), &ServerQuirks::default());
    assert_eq!((&body["max_completion_tokens"], &body["max_tokens"]), (&json!(100), &Value::Null));
    assert_eq!(body["messages"][0], json!({"role": "developer", "content": "s"}));
    assert_eq!(body["reasoning_effort"], "high");
    let body = encode(
        &at("x", Api::ChatCompletions, "http://h/v1", "gpt-5.1"),
        &history("x", None),
        &ServerQuirks::default(),
    );
    assert_eq!((&body["max_tokens"], &body["messages"][0]["role"]), (&json!(100), &json!("system")));
    // A server that rejects the old name gets the new one.
    let quirks =
        ServerQuirks { rejected_fields: ["max_tokens".to_owned()].into(), ..ServerQuirks::default() };
    let body = encode(&at("x", Api::ChatCompletions, "http://h/v1", "m"), &history("x", None), &quirks);
    assert_eq!((&body["max_completion_tokens"], &body["max_tokens"]), (&json!(100), &Value::Null));
}

#[test]
fn claude_gets_the_reasoning_settings_of_its_version() {
    let cases = [
        ("claude-opus-4-6", json!({"type": "adaptive"}), json!({"effort": "high"}), 100),
        ("claude-sonnet-4-5", json!({"type": "enabled", "budget_tokens": 16384}), Value::Null, 20480),
        ("claude-haiku-4-5", Value::Null, Value::Null, 100),
        ("MiniMax-M2", Value::Null, Value::Null, 100),
    ];
    for (model, thinking, output, cap) in cases {
        let endpoint = at("anthropic", Api::AnthropicMessages, "https://api.anthropic.com", model);
        let body = encode(&endpoint, &history("x", None), &ServerQuirks::default());
        assert_eq!(
            (&body["thinking"], &body["output_config"], &body["max_tokens"]),
            (&thinking, &output, &json!(cap)),
            "{model}"
        );
    }
}

#[test]
fn responses_are_cached_by_session_and_not_stored() {
    let endpoint = at("openai-api", Api::Responses, "https://api.openai.com/v1", "gpt-5.1");
    let item = json!({"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "x"});
    let body =
        encode(&endpoint, &history("openai-api/gpt-5.1", Some(item.clone())), &ServerQuirks::default());
    assert_eq!((&body["prompt_cache_key"], &body["store"]), (&json!("k"), &json!(false)));
    assert_eq!(body["input"][1], item);
    assert_eq!(body["include"], json!(["reasoning.encrypted_content"]));
    let no_reasoning = ServerQuirks { drop_reasoning: true, ..ServerQuirks::default() };
    assert!(
        !encode(&endpoint, &history("openai-api/gpt-5.1", Some(item)), &no_reasoning)
            .to_string()
            .contains("rs_1")
    );
}

#[test]
fn configured_fields_override_ours_but_not_the_conversation() {
    let mut endpoint = at("x", Api::ChatCompletions, "http://h/v1", "m");
    endpoint.extra_fields =
        json!({"temperature": 0.2, "messages": [], "max_tokens": 7}).as_object().unwrap().clone();
    let body = encode(&endpoint, &history("x", None), &ServerQuirks::default());
    assert_eq!((&body["temperature"], &body["max_tokens"]), (&json!(0.2), &json!(7)));
    assert_eq!(body["messages"].as_array().unwrap().len(), 6);
}

#[test]
fn google_gets_a_signature_for_the_calls_of_other_models() {
    let google = "https://generativelanguage.googleapis.com/v1beta/openai";
    let foreign = json!({"google": {"thought_signature": "skip_thought_signature_validator"}});
    let cases = [("gemini-3-pro-preview", google, foreign), ("gemini-2.5-flash", google, Value::Null)];
    for (model, base, expected) in cases {
        let endpoint = at("gemini", Api::ChatCompletions, base, model);
        let body = encode(&endpoint, &history("x", None), &ServerQuirks::default());
        assert_eq!(body["messages"][2]["tool_calls"][0]["extra_content"], expected, "{model}");
    }
}

#[test]
fn mistral_gets_ids_of_nine_characters() {
    let endpoint = at("custom", Api::ChatCompletions, "https://api.mistral.ai/v1", "m");
    let body = encode(&endpoint, &history("x", None), &ServerQuirks::default());
    let id = body["messages"][2]["tool_calls"][0]["id"].as_str().unwrap();
    assert!(id.len() == 9 && id.chars().all(|c| c.is_ascii_alphanumeric()), "{id}");
    assert_eq!(body["messages"][3]["tool_call_id"], id);
}

#[test]
fn every_vendor_gets_an_effort_that_it_knows() {
    let effort = |endpoint: &Endpoint, effort: Effort| {
        let messages = [Message::user("hi")];
        let prompt = Prompt {
            system: "",
            tools: &[],
            messages: &messages,
            max_output: None,
            effort: Some(effort),
            session: "",
            image_mode: ImageMode::Text,
        };
        let request = ModelRequest {
            endpoint,
            prompt: &prompt,
            quirks: &ServerQuirks::default(),
            images: LoadedImages::default(),
        };
        let body: Value = serde_json::from_slice(&request.body()).unwrap();
        let fields =
            ["/reasoning_effort", "/verbosity", "/reasoning/effort", "/output_config/effort", "/think"];
        fields.iter().find_map(|field| body.pointer(field).cloned()).unwrap_or_default()
    };
    let chat = Api::ChatCompletions;
    let cases = [
        (at("x", chat, "http://h/v1", "m"), Effort::Ultra, json!("max")),
        (at("x", chat, "https://api.openai.com/v1", "gpt-5.1"), Effort::Ultra, json!("xhigh")),
        (at("x", chat, "https://api.deepseek.com/v1", "m"), Effort::Xhigh, json!("max")),
        (
            at("x", chat, "https://generativelanguage.googleapis.com/v1beta/openai", "m"),
            Effort::Max,
            json!("high"),
        ),
        (
            at("x", chat, "https://openrouter.ai/api/v1", "anthropic/claude-opus-4.6"),
            Effort::None,
            Value::Null,
        ),
        (at("x", Api::Responses, "https://api.openai.com/v1", "gpt-5.1"), Effort::Minimal, json!("low")),
        (at("x", Api::Responses, "https://api.openai.com/v1", "gpt-5.1"), Effort::Max, json!("xhigh")),
        (at("x", Api::Responses, "https://api.x.ai/v1", "grok-4"), Effort::Max, json!("high")),
        (
            at("x", Api::AnthropicMessages, "https://api.anthropic.com", "claude-opus-4-6"),
            Effort::Xhigh,
            json!("max"),
        ),
        (
            at("x", Api::AnthropicMessages, "https://api.anthropic.com", "claude-opus-4-7"),
            Effort::Xhigh,
            json!("xhigh"),
        ),
        (at("x", Api::OllamaChat, "http://h/v1", "gpt-oss:20b"), Effort::Max, json!("high")),
        (at("x", Api::OllamaChat, "http://h/v1", "qwen3"), Effort::None, json!(false)),
    ];
    for (endpoint, given, expected) in cases {
        assert_eq!(effort(&endpoint, given), expected, "{} {given:?}", endpoint.base_url);
    }
}
