//! Replies by every protocol, streamed and not, in chunks of every size.

use hermes_model::{Api, Effort, Finish};
use hermes_testkit::model::BodyDelivery;
use hermes_testkit::{ReplyItem, ScriptStep, ScriptedModel, ScriptedReply};
use hermes_types::{Call, CallArguments, CallId, Message, Part, Usage};
use serde_json::{Value, json};

use crate::support::{APIS, ask, client, endpoint, prompt, shown_text, tools, user};

fn call(id: &str, arguments: Value) -> ReplyItem {
    ReplyItem::Call { id: id.to_owned(), name: "terminal".to_owned(), arguments }
}

fn called(id: &str, arguments: Value) -> Part {
    let arguments = CallArguments::Object(arguments.as_object().unwrap().clone());
    Part::Call(Call { id: CallId::new(id), name: "terminal".to_owned(), arguments, replay: None })
}

fn says(text: &str) -> Part {
    Part::Text { text: text.to_owned() }
}

#[tokio::test]
async fn replies_are_complete_whatever_the_chunk_size() {
    let answer = ScriptedReply {
        items: vec![
            ReplyItem::Reasoning("I should look — 看".to_owned()),
            ReplyItem::Text("Let me look. 😀".to_owned()),
            call("c1", json!("{\"command\":\"ls -l\"}")),
            call("c2", json!({"command": "pwd"})),
        ],
        ..ScriptedReply::default()
    };
    let client = client();
    for api in APIS {
        for chunk in [1, 3, 7, 4096] {
            let delivery = BodyDelivery { chunk: Some(chunk), ..BodyDelivery::default() };
            let model =
                ScriptedModel::start([ScriptStep::Reply(ScriptedReply { delivery, ..answer.clone() })])
                    .unwrap();
            let (reply, events) = ask(&client, &[endpoint(&model, api)], &[user("hi")]).await;
            let reply = reply.unwrap();
            assert_eq!(model.failures(), [""; 0]);
            assert_eq!(reply.finish, Finish::Calls);
            let (thought, rest) = reply.parts.split_first().unwrap();
            let Part::Reasoning(thought) = thought else { panic!("{thought:?}") };
            assert_eq!(thought.text, "I should look — 看");
            let expected = [
                says("Let me look. 😀"),
                called("c1", json!({"command": "ls -l"})),
                called("c2", json!({"command": "pwd"})),
            ];
            assert_eq!(rest, expected, "{api:?} by {chunk}");
            let reasoning = if api == Api::AnthropicMessages { 0 } else { 5 };
            assert_eq!(
                reply.usage,
                Usage { input: 40, cache_read: 60, cache_write: 0, output: 20, reasoning }
            );
            assert_eq!(shown_text(&events), "Let me look. 😀");
        }
    }
}

#[tokio::test]
async fn a_server_that_cannot_stream_gets_no_stream_requests_from_then_on() {
    let refusal = json!({"error": {"message": "Streaming is not supported by this model", "type": "invalid_request_error"}});
    for api in APIS {
        let client = client();
        let model = ScriptedModel::start([
            ScriptStep::error(400, refusal.clone()),
            ScriptStep::reply([ReplyItem::Text("one".to_owned()), call("c1", json!({"command": "ls"}))]),
            ScriptStep::text("two"),
        ])
        .unwrap();
        let chain = [endpoint(&model, api)];
        let (first, _) = ask(&client, &chain, &[user("hi")]).await;
        assert_eq!(first.unwrap().parts, [says("one"), called("c1", json!({"command": "ls"}))]);
        let (second, events) = ask(&client, &chain, &[user("hi")]).await;
        assert_eq!(second.unwrap().parts, [says("two")]);
        assert_eq!(shown_text(&events), "two");
        let streamed: Vec<bool> =
            model.received().iter().map(|request| request.json["stream"] == true).collect();
        assert_eq!(streamed, [true, false, false]);
        assert_eq!(model.failures(), [""; 0]);
    }
}

#[tokio::test]
async fn a_conversation_is_replayed_with_an_unchanged_prefix() {
    for api in APIS {
        let client = client();
        let model = ScriptedModel::start([
            ScriptStep::reply([
                ReplyItem::Reasoning("hm".to_owned()),
                ReplyItem::Text("I look".to_owned()),
                call("c1", json!({"b": 1, "a": 2})),
            ]),
            ScriptStep::text("done"),
            ScriptStep::text("bye"),
        ])
        .unwrap();
        let chain = [endpoint(&model, api)];
        let tools = tools();
        let mut messages = vec![user("hi")];
        for next in [Some("a file"), None] {
            let mut prompt = prompt(&tools, &messages);
            prompt.effort = Some(Effort::High);
            let reply = client.complete(&chain, &prompt, &mut |_| {}).await.unwrap();
            messages.push(reply.message());
            match next {
                Some(text) => {
                    messages.push(Message::Tool {
                        call: CallId::new("c1"),
                        name: "terminal".to_owned(),
                        text: text.to_owned(),
                    });
                }
                None => messages.push(user("thanks")),
            }
        }
        ask(&client, &chain, &messages).await.0.unwrap();
        assert_eq!(model.failures(), [""; 0], "{api:?}");
        let requests = model.received();
        let key = if api == Api::Responses { "input" } else { "messages" };
        let list = |at: usize| {
            // Cache markers move on; everything else stays.
            let text =
                requests[at].json[key].to_string().replace(",\"cache_control\":{\"type\":\"ephemeral\"}", "");
            text.strip_suffix(']').unwrap().to_owned()
        };
        assert!(list(1).starts_with(&list(0)), "{api:?}: {} then {}", list(0), list(1));
        assert!(list(2).starts_with(&list(1)), "{api:?}");
        let tools: Vec<&Value> = requests.iter().map(|request| &request.json["tools"]).collect();
        assert_eq!(tools[0], tools[2]);
        // Arguments are always the same text, and reasoning is sent if the protocol wants it.
        let second = requests[1].json.to_string();
        match api {
            Api::ChatCompletions => {
                assert!(second.contains(r#"{\"a\":2,\"b\":1}"#) && !second.contains("hm"), "{second}")
            }
            Api::AnthropicMessages => {
                assert!(second.contains(r#"{"a":2,"b":1}"#), "{second}");
                assert!(
                    second.contains(r#"{"type":"thinking","thinking":"hm","signature":"signed 2"}"#),
                    "{second}"
                );
            }
            Api::Responses => assert!(second.contains(r#""encrypted_content":"sealed 2""#), "{second}"),
            Api::OllamaChat => assert!(second.contains(r#"{"a":2,"b":1}"#), "{second}"),
        }
    }
}

#[tokio::test]
async fn an_inconsistent_history_is_normalized_before_it_is_sent() {
    let broken = CallArguments::Broken { text: "{\"a".to_owned(), why: "cut".to_owned() };
    let cut = Part::Call(Call {
        id: CallId::new("c 3"),
        name: "terminal".to_owned(),
        arguments: broken,
        replay: None,
    });
    let result =
        |id: &str| Message::Tool { call: CallId::new(id), name: "terminal".to_owned(), text: "r".to_owned() };
    let messages = [
        result("unknown"),
        Message::Assistant { parts: vec![says("before anything")] },
        user("one"),
        user("two"),
        Message::Assistant { parts: vec![called("c1", json!({})), called("c2", json!({})), cut] },
        user("and then"),
        result("c2"),
        Message::Assistant { parts: vec![] },
        user(""),
    ];
    for api in APIS {
        let model = ScriptedModel::start([ScriptStep::text("ok")]).unwrap();
        let (reply, _) = ask(&client(), &[endpoint(&model, api)], &messages).await;
        assert_eq!(model.failures(), [""; 0], "{api:?}");
        assert_eq!(reply.unwrap().parts, [says("ok")]);
    }
}

#[tokio::test]
async fn a_truncated_call_is_broken_in_every_protocol() {
    for api in APIS {
        for text in ["{\"command\":\"rm -r", "{\"command\":\"rm\"", ""] {
            let cut = ScriptedReply {
                items: vec![call("c1", json!("{\"command\":\"ls\"}")), call("c2", json!(text))],
                finish: Some("length".to_owned()),
                ..ScriptedReply::default()
            };
            let model = ScriptedModel::start([ScriptStep::Reply(cut)]).unwrap();
            let chain = [endpoint(&model, api)];
            let (reply, _) = ask(&client(), &chain, &[user("hi")]).await;
            let reply = reply.unwrap();
            assert_eq!(reply.finish, Finish::Length);
            assert_eq!(reply.parts[0], called("c1", json!({"command": "ls"})));
            let Part::Call(second) = &reply.parts[1] else { panic!("{reply:?}") };
            assert!(matches!(second.arguments, CallArguments::Broken { .. }), "{api:?} {text}");
        }
    }
}

#[tokio::test]
async fn calls_and_reasoning_written_as_text_are_detected() {
    let answer = "<think>I need a list.</think>\n\nI look. <tool_call>{\"name\": \"terminal\", \"arguments\": {\"command\": \"ls\"}}</tool_call>";
    for chunk in [1, 7, 4096] {
        let delivery = BodyDelivery { chunk: Some(chunk), ..BodyDelivery::default() };
        let words = vec![ReplyItem::Text(answer.to_owned())];
        let model =
            ScriptedModel::start([ScriptStep::Reply(ScriptedReply { items: words, finish: None, delivery })])
                .unwrap();
        let (reply, events) = ask(&client(), &[endpoint(&model, Api::ChatCompletions)], &[user("hi")]).await;
        let reply = reply.unwrap();
        assert_eq!(reply.finish, Finish::Calls);
        assert_eq!(reply.parts[1..], [says("I look. "), called("call_1_0", json!({"command": "ls"}))]);
        assert_eq!(shown_text(&events).trim_end(), "I look.");
    }
}

#[tokio::test]
async fn the_same_call_twice_is_one_call() {
    for api in APIS {
        let twice = [
            call("c1", json!({"command": "ls"})),
            call("c2", json!({"command": "ls"})),
            call("c2", json!({"command": "pwd"})),
        ];
        let model = ScriptedModel::start([ScriptStep::reply(twice)]).unwrap();
        let reply = ask(&client(), &[endpoint(&model, api)], &[user("hi")]).await.0.unwrap();
        let calls: Vec<&Part> = reply.parts.iter().collect();
        assert_eq!(calls.len(), 2, "{api:?}: {calls:?}");
        // No two have the same id, so that each gets its own result.
        let ids: Vec<&str> = reply
            .parts
            .iter()
            .filter_map(|part| match part {
                Part::Call(call) => Some(call.id.as_str()),
                _ => None,
            })
            .collect();
        assert_ne!(ids[0], ids[1]);
    }
}

#[tokio::test]
async fn every_form_of_arguments_decodes_to_the_same_object() {
    let text = "{\"command\":\"ls\"}";
    let forms = [
        json!(text),
        json!({"command": "ls"}),
        json!([{"command": "ls"}]),
        json!(json!(text).to_string()),
        json!(format!("{{}}{text}")),
        json!(format!("{text}{text}")),
        json!("{\"command\":\"ls\",}"),
        json!("{\"command\":\"ls\""),
    ];
    let refusal =
        json!({"error": {"message": "streaming is not supported", "type": "invalid_request_error"}});
    for form in forms {
        let answer = || ScriptStep::reply([call("c1", form.clone())]);
        let model =
            ScriptedModel::start([answer(), ScriptStep::error(400, refusal.clone()), answer()]).unwrap();
        let client = client();
        for _ in 0..2 {
            let (reply, _) = ask(&client, &[endpoint(&model, Api::ChatCompletions)], &[user("hi")]).await;
            assert_eq!(reply.unwrap().parts, [called("c1", json!({"command": "ls"}))], "{form}");
        }
    }
}

#[tokio::test]
async fn a_reply_that_fills_the_output_limit_is_not_finished() {
    let tools = tools();
    let messages = [user("hi")];
    for api in APIS {
        // The scripted model always counts twenty tokens.
        for (cap, expected) in [(20, Finish::Length), (21, Finish::Stop)] {
            let model = ScriptedModel::start([ScriptStep::text("and so")]).unwrap();
            let mut prompt = prompt(&tools, &messages);
            prompt.max_output = Some(cap);
            let reply = client().complete(&[endpoint(&model, api)], &prompt, &mut |_| {}).await.unwrap();
            assert_eq!(reply.finish, expected, "{api:?} {cap}");
        }
    }
}

#[tokio::test]
async fn a_call_without_an_id_gets_a_unique_one() {
    let named = |id: &str, command: &str| json!({"index": command, "id": id, "function": {"name": "terminal", "arguments": {"command": command}}});
    let calls = json!([
        named("call_1_0", "a"),
        named("call_1_1", "b"),
        named("call_1_3", "c"),
        named("", "d"),
        named("", "e")
    ]);
    let body = json!({"choices": [{"index": 0, "message": {"role": "assistant", "tool_calls": calls}, "finish_reason": "tool_calls"}]});
    let headers = vec![("content-type".to_owned(), "application/json".to_owned())];
    let model = ScriptedModel::start([ScriptStep::Raw {
        status: 200,
        headers,
        body: body.to_string(),
        delivery: BodyDelivery::default(),
    }])
    .unwrap();
    let reply = ask(&client(), &[endpoint(&model, Api::ChatCompletions)], &[user("hi")]).await.0.unwrap();
    let ids: std::collections::HashSet<_> = reply.message().calls().map(|call| call.id.clone()).collect();
    assert_eq!((ids.len(), reply.parts.len()), (5, 5), "{reply:?}");
}
