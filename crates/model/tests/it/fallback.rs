//! Failures, retries and fallbacks.

use std::time::Duration;

use hermes_model::{Api, ApiCredentials, Effort, Error, FailureClass, Finish, ReplyEvent};
use hermes_testkit::model::{BodyDelivery, ModelScript};
use hermes_testkit::{ReplyItem, ScriptStep, ScriptedModel, ScriptedReply};
use hermes_types::{Call, CallArguments, CallId, Message, Part, Secret};
use serde_json::{Value, json};

use crate::support::{APIS, ask, client, endpoint, prompt, shown_text, tools, user};

fn overloaded() -> ScriptStep {
    ScriptStep::error(503, json!({"error": {"message": "overloaded", "type": "overloaded_error"}}))
}

fn retries(events: &[ReplyEvent]) -> Vec<u32> {
    let attempts = events.iter().filter_map(|event| match event {
        ReplyEvent::Retrying { attempt, .. } => Some(*attempt),
        _ => None,
    });
    attempts.collect()
}

fn class(reply: Result<hermes_model::Reply, Error>) -> FailureClass {
    reply.unwrap_err().class().unwrap()
}

#[tokio::test]
async fn only_transient_failures_are_retried() {
    for api in APIS {
        let model = ScriptedModel::start([overloaded(), overloaded(), ScriptStep::text("ok")]).unwrap();
        let (reply, events) = ask(&client(), &[endpoint(&model, api)], &[user("hi")]).await;
        assert!(reply.is_ok(), "{reply:?}");
        assert_eq!(retries(&events), [1, 2]);

        let model = ScriptedModel::start([overloaded(), overloaded(), overloaded()]).unwrap();
        let (reply, _) = ask(&client(), &[endpoint(&model, api)], &[user("hi")]).await;
        assert_eq!(class(reply), FailureClass::Overloaded);
        assert_eq!(model.steps_left(), 0);

        let script = ModelScript { key: Some("sk-other".to_owned()), ..ModelScript::default() };
        let model = ScriptedModel::start_script(script).unwrap();
        let (reply, events) = ask(&client(), &[endpoint(&model, api)], &[user("hi")]).await;
        assert_eq!(class(reply), FailureClass::Auth);
        assert_eq!(events, []);
        assert_eq!(model.received().len(), 1);
    }
}

#[tokio::test]
async fn the_delay_that_a_provider_asks_for_is_used() {
    let headers = vec![("retry-after".to_owned(), "0.01".to_owned())];
    let limited = ScriptStep::Error {
        status: 429,
        headers,
        body: json!({"error": {"message": "slow down", "type": "requests"}}),
    };
    let model = ScriptedModel::start([limited, ScriptStep::text("ok")]).unwrap();
    let (_, events) = ask(&client(), &[endpoint(&model, Api::ChatCompletions)], &[user("hi")]).await;
    let Some(ReplyEvent::Retrying { delay, .. }) = events.first() else { panic!("{events:?}") };
    assert_eq!(*delay, Duration::from_millis(10));
}

#[tokio::test]
async fn another_model_is_asked_only_when_it_may_help() {
    let body = |kind: &str| json!({"error": {"message": "x", "type": kind, "code": kind}});
    let cases = [
        (429, body("rate_limit_exceeded"), 1, true),
        (402, body("insufficient_quota"), 1, true),
        (401, body("invalid_api_key"), 1, true),
        (404, body("model_not_found"), 1, true),
        (503, body("overloaded_error"), 3, true),
        (400, body("context_length_exceeded"), 1, false),
        (413, body("request_too_large"), 1, false),
    ];
    for (status, body, requests, falls_back) in cases {
        let always = Some(ScriptStep::error(status, body.clone()));
        let first = ScriptedModel::start_script(ModelScript { always, ..ModelScript::default() }).unwrap();
        let second = ScriptedModel::start([ScriptStep::text("ok")]).unwrap();
        let own = endpoint(&first, Api::ChatCompletions);
        // The same model again is no fallback.
        let chain = [own.clone(), own, endpoint(&second, Api::AnthropicMessages)];
        let (reply, events) = ask(&client(), &chain, &[user("hi")]).await;
        assert_eq!(first.received().len(), requests, "{body}");
        assert_eq!(reply.is_ok(), falls_back, "{body}");
        let switched = events.iter().any(|event| matches!(event, ReplyEvent::Fallback { .. }));
        assert_eq!(switched, falls_back);
    }
    let (none, _) = ask(&client(), &[], &[user("hi")]).await;
    assert_eq!(none, Err(Error::NoModel));
}

#[tokio::test]
async fn reasoning_never_goes_to_another_provider() {
    for from in APIS {
        let model = ScriptedModel::start([
            ScriptStep::reply([
                ReplyItem::Reasoning("secret thought".to_owned()),
                ReplyItem::Text("one".to_owned()),
            ]),
            ScriptStep::text("two"),
        ])
        .unwrap();
        let client = client();
        let first = ask(&client, &[endpoint(&model, from)], &[user("hi")]).await.0.unwrap();
        let messages = [user("hi"), first.message(), user("go on")];
        for to in APIS {
            let other = ScriptedModel::start([ScriptStep::text("ok")]).unwrap();
            let mut endpoint = endpoint(&other, to);
            endpoint.provider = "another".to_owned();
            ask(&client, &[endpoint], &messages).await.0.unwrap();
            let body = String::from_utf8(other.received()[0].body.clone()).unwrap();
            assert!(
                !body.contains("thought") && !body.contains("signed") && !body.contains("sealed"),
                "{body}"
            );
            assert_eq!(other.failures(), [""; 0]);
        }
    }
}

/// A stream that breaks after this many bytes.
fn cut(says: Vec<ReplyItem>, bytes: usize) -> ScriptStep {
    let delivery = BodyDelivery { cut: Some(bytes), ..BodyDelivery::default() };
    ScriptStep::Reply(ScriptedReply { items: says, finish: None, delivery })
}

#[tokio::test]
async fn a_stream_that_breaks_before_any_text_is_requested_again() {
    let says = || vec![ReplyItem::Text("hello".to_owned())];
    for api in APIS {
        let model =
            ScriptedModel::start([cut(says(), 0), cut(says(), 40), ScriptStep::text("hello")]).unwrap();
        let (reply, events) = ask(&client(), &[endpoint(&model, api)], &[user("hi")]).await;
        assert_eq!(reply.unwrap().finish, Finish::Stop);
        assert_eq!(shown_text(&events), "hello");
        assert_eq!(retries(&events), [0_u32; 0]);
    }
}

#[tokio::test]
async fn shown_text_is_kept_and_never_shown_twice() {
    let long = "word ".repeat(400);
    for api in APIS {
        let model = ScriptedModel::start([
            cut(vec![ReplyItem::Text(long.clone())], 9000),
            ScriptStep::text("never asked"),
        ])
        .unwrap();
        let (reply, events) = ask(&client(), &[endpoint(&model, api)], &[user("hi")]).await;
        let reply = reply.unwrap();
        assert!(matches!(reply.finish, Finish::Dropped(_)), "{reply:?}");
        let [Part::Text { text }] = reply.parts.as_slice() else { panic!("{reply:?}") };
        assert_eq!(*text, shown_text(&events));
        assert!(!text.is_empty() && long.starts_with(text.as_str()));
        assert_eq!(model.steps_left(), 1);
    }
}

#[tokio::test]
async fn a_call_that_was_lost_with_its_stream_is_requested_again_without_repeating_the_text() {
    let says = || {
        let arguments = Value::from(format!("{{\"command\":\"{}\"}}", "x".repeat(4000)));
        let call = ReplyItem::Call { id: "c1".to_owned(), name: "terminal".to_owned(), arguments };
        vec![ReplyItem::Text("I look".to_owned()), call]
    };
    for api in APIS {
        let model = ScriptedModel::start([cut(says(), 9000), ScriptStep::reply(says())]).unwrap();
        let (reply, events) = ask(&client(), &[endpoint(&model, api)], &[user("hi")]).await;
        let reply = reply.unwrap();
        assert_eq!((&reply.finish, reply.parts.len()), (&Finish::Calls, 2), "{api:?}");
        assert_eq!(shown_text(&events), "I look");

        // If it is lost each time, the text stays and the call is broken.
        let model = ScriptedModel::start([cut(says(), 9000), cut(says(), 9000), cut(says(), 9000)]).unwrap();
        let (reply, events) = ask(&client(), &[endpoint(&model, api)], &[user("hi")]).await;
        let reply = reply.unwrap();
        assert!(matches!(reply.finish, Finish::Dropped(_)));
        let [Part::Text { .. }, Part::Call(call)] = reply.parts.as_slice() else { panic!("{reply:?}") };
        assert!(matches!(call.arguments, CallArguments::Broken { .. }));
        assert_eq!(shown_text(&events), "I look");
    }
}

#[tokio::test]
async fn an_idle_connection_times_out() {
    let silent = BodyDelivery { silent: Some(60), ..BodyDelivery::default() };
    let answer =
        ScriptedReply { items: vec![ReplyItem::Text("hello".to_owned())], finish: None, delivery: silent };
    for step in [ScriptStep::Silence, ScriptStep::Reply(answer)] {
        for api in APIS {
            let model = ScriptedModel::start([step.clone()]).unwrap();
            let mut endpoint = endpoint(&model, api);
            endpoint.timeouts.idle = Some(Duration::from_millis(50));
            endpoint.retries.max_attempts = 1;
            let (reply, _) = ask(&client(), &[endpoint], &[user("hi")]).await;
            assert_eq!(class(reply), FailureClass::Timeout);
        }
    }
}

#[tokio::test]
async fn an_unreachable_server_is_not_a_dropped_connection() {
    let gone = {
        let model = ScriptedModel::start([]).unwrap();
        endpoint(&model, Api::ChatCompletions)
    };
    let (reply, events) = ask(&client(), &[gone], &[user("hi")]).await;
    assert_eq!(retries(&events), [1, 2]);
    let error = reply.unwrap_err();
    assert_eq!(error.class(), Some(FailureClass::Unreachable));
    assert!(error.to_string().contains("cannot connect to 127.0.0.1: connection refused"), "{error}");
}

#[tokio::test]
async fn a_rejected_field_is_omitted_from_then_on() {
    let refuse = |body: Value| ScriptStep::error(400, body);
    let grammar =
        json!({"error": {"code": 500, "message": "failed to parse grammar", "type": "server_error"}});
    let field = json!({"error": {"message": "Unrecognized request argument supplied: stream_options", "type": "invalid_request_error", "param": null, "code": null}});
    let model = ScriptedModel::start([
        refuse(field),
        ScriptStep::error(500, grammar),
        ScriptStep::text("one"),
        ScriptStep::text("two"),
    ])
    .unwrap();
    let client = client();
    let chain = [endpoint(&model, Api::ChatCompletions)];
    for text in ["one", "two"] {
        let (reply, events) = ask(&client, &chain, &[user("hi")]).await;
        assert_eq!(reply.unwrap().message().text(), text);
        assert_eq!(retries(&events), [0_u32; 0]);
    }
    let received = model.received();
    let has = |at: usize, text: &str| received[at].json.to_string().contains(text);
    assert!(has(0, "stream_options") && has(0, "\"pattern\""));
    assert!(!has(1, "stream_options") && has(1, "\"pattern\""));
    for at in [2, 3] {
        assert!(!has(at, "stream_options") && !has(at, "\"pattern\"") && !has(at, "\"format\""));
    }
    assert_eq!(tools()[0].parameters["properties"]["command"]["pattern"], "^l");
}

#[tokio::test]
async fn rejected_reasoning_is_not_sent_again_in_the_session() {
    let refusal = json!({"type": "error", "error": {"type": "invalid_request_error", "message": "messages.1.content.0: Invalid `signature` in `thinking` block"}});
    let model = ScriptedModel::start([
        ScriptStep::reply([ReplyItem::Reasoning("hm".to_owned()), ReplyItem::Text("one".to_owned())]),
        ScriptStep::error(400, refusal),
        ScriptStep::text("two"),
        ScriptStep::text("three"),
    ])
    .unwrap();
    let client = client();
    let chain = [endpoint(&model, Api::AnthropicMessages)];
    let first = ask(&client, &chain, &[user("hi")]).await.0.unwrap();
    let messages = [user("hi"), first.message(), user("more")];
    for text in ["two", "three"] {
        assert_eq!(ask(&client, &chain, &messages).await.0.unwrap().message().text(), text);
    }
    let thinking: Vec<bool> =
        model.received().iter().map(|request| request.json.to_string().contains("signed")).collect();
    assert_eq!(thinking, [false, true, false, false]);
}

#[tokio::test]
async fn an_output_limit_is_lowered_to_the_available_tokens() {
    let message =
        "max_tokens: 32000 > 8192, which is the maximum allowed number of output tokens for scripted";
    let refusal = json!({"type": "error", "error": {"type": "invalid_request_error", "message": message}});
    let model = ScriptedModel::start([ScriptStep::error(400, refusal), ScriptStep::text("ok")]).unwrap();
    ask(&client(), &[endpoint(&model, Api::AnthropicMessages)], &[user("hi")]).await.0.unwrap();
    let caps: Vec<Value> =
        model.received().iter().map(|request| request.json["max_tokens"].clone()).collect();
    assert_eq!(caps, [json!(32000), json!(8192)]);
}

#[tokio::test]
async fn redirects_are_not_followed_and_the_key_is_not_sent() {
    let thief = ScriptedModel::start([ScriptStep::text("thanks")]).unwrap();
    let headers = vec![("location".to_owned(), format!("{}/chat/completions", thief.url()))];
    let moved =
        ScriptStep::Raw { status: 307, headers, body: String::new(), delivery: BodyDelivery::default() };
    let model = ScriptedModel::start([moved]).unwrap();
    let (reply, _) = ask(&client(), &[endpoint(&model, Api::ChatCompletions)], &[user("hi")]).await;
    assert_eq!(class(reply), FailureClass::Format);
    assert_eq!(thief.received(), []);
}

#[tokio::test]
async fn dropping_the_future_closes_the_connection() {
    let model = ScriptedModel::start([ScriptStep::Silence]).unwrap();
    let chain = [endpoint(&model, Api::ChatCompletions)];
    let client = client();
    let messages = [user("hi")];
    let asked = tokio::time::timeout(Duration::from_millis(200), ask(&client, &chain, &messages)).await;
    assert!(asked.is_err());
    // The next request uses a new connection and gets the end of the script as its response.
    let (reply, _) = ask(&client, &chain, &messages).await;
    assert_eq!(class(reply), FailureClass::Server);
}

/// A conversation in which another provider made calls, and their results wait for a reply.
fn open_turn(ids: &[&str]) -> Vec<Message> {
    let mut messages = vec![user("hi")];
    for id in ids {
        let (id, name) = (CallId::new(*id), "terminal".to_owned());
        let arguments = CallArguments::Object(serde_json::Map::new());
        let call = Call { id: id.clone(), name: name.clone(), arguments, replay: None };
        messages.push(Message::Assistant { parts: vec![Part::Call(call)] });
        messages.push(Message::Tool { call: id, name, text: "done".to_owned() });
    }
    messages
}

#[tokio::test]
async fn claude_is_not_asked_to_reason_in_a_turn_that_began_without() {
    let messages = open_turn(&["call_1"]);
    let tools = tools();
    for name in ["claude-sonnet-4-5", "claude-opus-4-6"] {
        let model = ScriptedModel::start([ScriptStep::text("ok")]).unwrap();
        let mut endpoint = endpoint(&model, Api::AnthropicMessages);
        endpoint.model = name.to_owned();
        let mut prompt = prompt(&tools, &messages);
        prompt.effort = Some(Effort::High);
        client().complete(&[endpoint], &prompt, &mut |_| {}).await.unwrap();
        assert_eq!(model.failures(), [""; 0]);
        assert_eq!(model.received()[0].json["thinking"], Value::Null, "{name}");
    }
}

#[tokio::test]
async fn a_turn_that_began_with_own_reasoning_goes_on_with_it() {
    let call =
        ReplyItem::Call { id: "toolu_1".to_owned(), name: "terminal".to_owned(), arguments: json!({}) };
    let model = ScriptedModel::start([
        ScriptStep::reply([ReplyItem::Reasoning("hm".to_owned()), call]),
        ScriptStep::text("ok"),
    ])
    .unwrap();
    let mut endpoint = endpoint(&model, Api::AnthropicMessages);
    endpoint.model = "claude-sonnet-4-5".to_owned();
    let (client, tools, chain) = (client(), tools(), [endpoint]);
    let mut messages = vec![user("hi")];
    for _ in 0..2 {
        let mut prompt = prompt(&tools, &messages);
        prompt.effort = Some(Effort::High);
        let reply = client.complete(&chain, &prompt, &mut |_| {}).await.unwrap();
        messages.push(reply.message());
        let (call, name) = (CallId::new("toolu_1"), "terminal".to_owned());
        messages.push(Message::Tool { call, name, text: "done".to_owned() });
    }
    assert_eq!(model.failures(), [""; 0]);
    assert_eq!(model.received()[1].json["thinking"]["type"], "enabled");
}

#[tokio::test]
async fn reasoning_fits_the_output_limit_of_the_server() {
    let (tools, messages) = (tools(), [user("hi")]);
    let script =
        ModelScript { max_output: Some(8192), steps: vec![ScriptStep::text("ok")], ..ModelScript::default() };
    let model = ScriptedModel::start_script(script).unwrap();
    let mut endpoint = endpoint(&model, Api::AnthropicMessages);
    endpoint.model = "claude-sonnet-4-5".to_owned();
    let mut prompt = prompt(&tools, &messages);
    prompt.effort = Some(Effort::High);
    client().complete(&[endpoint], &prompt, &mut |_| {}).await.unwrap();
    let received = model.received();
    assert_eq!(received.len(), 2);
    let body = &received[1].json;
    assert_eq!((&body["max_tokens"], &body["thinking"]["budget_tokens"]), (&json!(8192), &json!(7168)));
}

#[tokio::test]
async fn ids_of_calls_fit_every_provider() {
    let long = format!("fc_{}", "a".repeat(60));
    let other = format!("fc_{}b", "a".repeat(60));
    // Some servers count from 0 in every reply.
    let messages = open_turn(&[&long, &other, "functions.terminal:0", "0", "0"]);
    for api in APIS {
        let client = client();
        let model = ScriptedModel::start([ScriptStep::text("ok"), ScriptStep::text("ok")]).unwrap();
        let chain = [endpoint(&model, api)];
        ask(&client, &chain, &messages).await.0.unwrap();
        let mut more = messages.clone();
        more.extend([user("more")]);
        ask(&client, &chain, &more).await.0.unwrap();
        assert_eq!(model.failures(), [""; 0], "{api:?}");
        let ids = |at: usize| {
            let body = model.received()[at].json.to_string().replace("cache_control", "");
            let mut all: Vec<String> = body
                .split("_id\":\"")
                .skip(1)
                .map(|rest| rest.split('"').next().unwrap().to_owned())
                .collect();
            all.truncate(5);
            all
        };
        assert_eq!(ids(0), ids(1), "{api:?}");
    }
}

#[tokio::test]
async fn the_signatures_of_calls_go_back_to_the_model_that_issued_them() {
    let steps = vec![ScriptStep::call("c1", "terminal", json!({"command": "ls"})), ScriptStep::text("two")];
    let script = ModelScript { signs_calls: true, steps, ..ModelScript::default() };
    let model = ScriptedModel::start_script(script).unwrap();
    let (client, chain) = (client(), [endpoint(&model, Api::ChatCompletions)]);
    let first = ask(&client, &chain, &[user("hi")]).await.0.unwrap();
    let result = Message::Tool { call: CallId::new("c1"), name: "terminal".to_owned(), text: "a".to_owned() };
    let stored = serde_json::to_string(&[user("hi"), first.message(), result]).unwrap();
    let messages: Vec<Message> = serde_json::from_str(&stored).unwrap();
    assert_eq!(ask(&client, &chain, &messages).await.0.unwrap().message().text(), "two");
    assert_eq!(model.failures(), [""; 0]);
    // No other model gets them: strict servers reject the field.
    for (api, name) in [(Api::ChatCompletions, "another"), (Api::AnthropicMessages, "scripted")] {
        let other = ScriptedModel::start([ScriptStep::text("ok")]).unwrap();
        let mut endpoint = endpoint(&other, api);
        endpoint.model = name.to_owned();
        ask(&client, &[endpoint], &messages).await.0.unwrap();
        assert!(!other.received()[0].json.to_string().contains("signed"));
        assert_eq!(other.failures(), [""; 0]);
    }
}

#[tokio::test]
async fn a_gemini_that_wants_signatures_accepts_the_calls_of_other_models() {
    let steps = vec![ScriptStep::text("ok")];
    let script = ModelScript { signs_calls: true, steps, ..ModelScript::default() };
    let model = ScriptedModel::start_script(script).unwrap();
    let mut endpoint = endpoint(&model, Api::ChatCompletions);
    endpoint.model = "gemini-3-pro".to_owned();
    ask(&client(), &[endpoint], &open_turn(&["call_1"])).await.0.unwrap();
    assert_eq!(model.received().len(), 2);
}

#[tokio::test]
async fn a_rejected_token_of_claude_code_is_replaced_by_the_key() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("credentials.json");
    std::fs::write(&path, r#"{"claudeAiOauth":{"accessToken":"sk-ant-oat01-x"}}"#).unwrap();
    let message = "This credential is only authorized for use with Claude Code and cannot be used for other API requests.";
    let refusal = || {
        let error = json!({"type": "invalid_request_error", "message": message});
        ScriptStep::error(400, json!({"type": "error", "error": error}))
    };
    let model =
        ScriptedModel::start([refusal(), ScriptStep::text("one"), ScriptStep::text("two"), refusal()])
            .unwrap();
    let mut with_key = endpoint(&model, Api::AnthropicMessages);
    let key = Some(Secret::new("sk-key"));
    with_key.credentials = Some(ApiCredentials::ClaudeCode { path: path.clone(), key });
    let client = client();
    for text in ["one", "two"] {
        let reply = ask(&client, &[with_key.clone()], &[user("hi")]).await.0.unwrap();
        assert_eq!(reply.message().text(), text);
    }
    let keys: Vec<_> =
        model.received().iter().map(|request| request.header("x-api-key").map(str::to_owned)).collect();
    assert_eq!(keys, [None, Some("sk-key".to_owned()), Some("sk-key".to_owned())]);
    let mut without_key = with_key;
    without_key.model = "another".to_owned();
    without_key.credentials = Some(ApiCredentials::ClaudeCode { path, key: None });
    let error = ask(&client, &[without_key], &[user("hi")]).await.0.unwrap_err();
    assert_eq!(error.class(), Some(FailureClass::Auth));
    assert!(error.hints()[0].contains("ANTHROPIC_API_KEY"), "{:?}", error.hints());
}
