//! Context windows, as each kind of server reports them, and as requests use them.

use hermes_model::{Api, Effort, FailureClass, Finish};
use hermes_testkit::model::{ModelScript, OllamaServer};
use hermes_testkit::{ReplyItem, ScriptStep, ScriptedModel};
use hermes_types::{CallArguments, Message, Part};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::support::{ask, client, endpoint, prompt, tools, user};

fn server(routes: &[(&str, Value)]) -> ScriptedModel {
    let routes = routes.iter().map(|(line, answer)| ((*line).to_owned(), answer.clone())).collect();
    ScriptedModel::start_script(ModelScript {
        routes,
        always: Some(ScriptStep::text("ok")),
        ..ModelScript::default()
    })
    .unwrap()
}

#[tokio::test]
async fn each_kind_of_server_is_probed() {
    let list = |fields: Value| json!({"object": "list", "data": [fields]});
    let show = |parameters: &str| json!({"parameters": parameters, "model_info": {"general.architecture": "qwen3", "qwen3.context_length": 40960}});
    let cases = [
        (
            "vLLM",
            vec![("GET /v1/models", list(json!({"id": "scripted", "max_model_len": 16384})))],
            Some(16384),
        ),
        (
            "llama.cpp",
            vec![
                ("GET /props", json!({"default_generation_settings": {"n_ctx": 4096}, "total_slots": 1})),
                ("GET /v1/models", list(json!({"id": "scripted", "meta": {"n_ctx_train": 131072}}))),
            ],
            Some(4096),
        ),
        (
            "LM Studio",
            vec![(
                "GET /api/v1/models",
                json!({"models": [{"key": "scripted", "max_context_length": 131072, "loaded_instances": [{"config": {"context_length": 8192}}]}]}),
            )],
            Some(8192),
        ),
        ("Ollama", vec![("POST /api/show", show("")), ("GET /api/ps", json!({"models": []}))], Some(40960)),
        (
            "Ollama with a Modelfile",
            vec![("POST /api/show", show("temperature 0.6\nnum_ctx                        16384"))],
            Some(16384),
        ),
        ("no server", Vec::new(), None),
        ("nonsense", vec![("GET /v1/models", json!([7])), ("GET /props", json!("x"))], None),
    ];
    for (name, routes, tokens) in cases {
        let model = server(&routes);
        let window = client().context_window(&endpoint(&model, Api::ChatCompletions)).await;
        assert_eq!(window, tokens, "{name}");
    }
}

#[tokio::test]
async fn anthropic_reports_the_window_of_each_model() {
    let model = server(&[(
        "GET /v1/models/scripted",
        json!({"id": "scripted", "type": "model", "max_input_tokens": 200_000}),
    )]);
    let window = client().context_window(&endpoint(&model, Api::AnthropicMessages)).await;
    assert_eq!(window, Some(200_000));
    // A local server may speak this protocol too.
    let model = server(&[("GET /props", json!({"default_generation_settings": {"n_ctx": 4096}}))]);
    let window = client().context_window(&endpoint(&model, Api::AnthropicMessages)).await;
    assert_eq!(window, Some(4096));
}

#[tokio::test]
async fn the_configured_window_counts_first() {
    let model = server(&[("GET /v1/models", json!({"data": [{"id": "scripted", "max_model_len": 16384}]}))]);
    let mut endpoint = endpoint(&model, Api::ChatCompletions);
    assert_eq!(client().context_window(&endpoint).await, Some(16384));
    endpoint.context_window = Some(1000);
    assert_eq!(client().context_window(&endpoint).await, Some(1000));
}

fn ollama(server: OllamaServer, steps: Vec<ScriptStep>) -> ScriptedModel {
    let script = ModelScript { ollama: Some(server), steps, ..ModelScript::default() };
    ScriptedModel::start_script(script).unwrap()
}

#[tokio::test]
async fn ollama_is_asked_once_and_gets_the_window_with_every_request() {
    let steps = vec![ScriptStep::text("one"), ScriptStep::text("two")];
    let model = ollama(OllamaServer::default(), steps);
    let (client, chain) = (client(), [endpoint(&model, Api::ChatCompletions)]);
    // 20,000 tokens do not fit in the 4,096 with which the server loads a model by default.
    let messages = [user(&"word ".repeat(16_000))];
    for text in ["one", "two"] {
        let (reply, _) = ask(&client, &chain, &messages).await;
        assert_eq!(reply.unwrap().parts, [Part::Text { text: text.to_owned() }]);
    }
    assert_eq!(model.cut_prompts(), 0);
    assert_eq!(model.failures(), [""; 0]);
    for request in model.received() {
        assert_eq!(request.line, "POST /api/chat");
        assert_eq!(request.json["options"]["num_ctx"], 40_960);
    }
    assert_eq!(model.probes().iter().filter(|line| *line == "POST /api/show").count(), 1);
}

#[tokio::test]
async fn the_configured_window_is_requested_from_ollama() {
    let server = || OllamaServer { modelfile_window: Some(8192), ..OllamaServer::default() };
    // model.ollama_num_ctx, model.context_length, and the window that is requested.
    let cases = [
        (None, None, 8192),
        (Some(16_384), None, 16_384),
        (Some(16_384), Some(12_000), 16_384),
        (None, Some(12_000), 12_000),
        (Some(1_000_000), None, 40_960),
    ];
    for (num_ctx, context_length, expected) in cases {
        let model = ollama(server(), vec![ScriptStep::text("ok")]);
        let mut endpoint = endpoint(&model, Api::ChatCompletions);
        (endpoint.ollama_num_ctx, endpoint.context_window) = (num_ctx, context_length);
        let client = client();
        ask(&client, &[endpoint.clone()], &[user("hi")]).await.0.unwrap();
        assert_eq!(model.received()[0].json["options"]["num_ctx"], expected);
        assert_eq!(client.context_window(&endpoint).await, Some(expected));
    }
}

#[tokio::test]
async fn a_prompt_larger_than_the_window_of_ollama_is_refused_and_never_cut() {
    for version in ["0.13.5", "0.11.4"] {
        let server = OllamaServer { version: version.to_owned(), ..OllamaServer::default() };
        let model = ollama(server, vec![ScriptStep::text("never asked")]);
        let mut endpoint = endpoint(&model, Api::ChatCompletions);
        endpoint.ollama_num_ctx = Some(2048);
        let (reply, _) = ask(&client(), &[endpoint], &[user(&"word ".repeat(3000))]).await;
        let error = reply.unwrap_err();
        assert_eq!(error.class(), Some(FailureClass::ContextOverflow), "{version}: {error}");
        assert!(error.to_string().contains("2048"), "{error}");
        assert!(error.hints()[0].contains("model.ollama_num_ctx"));
        assert_eq!(model.cut_prompts(), 0, "{version}");
    }
}

#[tokio::test]
async fn the_compatible_protocol_of_ollama_cuts_prompts() {
    // The reason for the other protocol: a vendor's client gets no error here.
    let model = ollama(OllamaServer::default(), vec![ScriptStep::text("ok")]);
    let body = json!({
        "model": "scripted", "options": {"num_ctx": 32_768},
        "messages": [{"role": "user", "content": "word ".repeat(8000)}],
    });
    let body = body.to_string();
    let head = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    let mut stream = tokio::net::TcpStream::connect(model.address()).await.unwrap();
    stream.write_all(format!("{head}{body}").as_bytes()).await.unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).await.unwrap();
    assert!(response.starts_with("HTTP/1.1 200"), "{response}");
    assert_eq!(model.cut_prompts(), 1);
}

#[tokio::test]
async fn ollama_replies_are_complete_and_calls_get_ids() {
    let call = |path: &str| ReplyItem::Call {
        id: String::new(),
        name: "read_file".to_owned(),
        arguments: json!({"path": path}),
    };
    let items = [
        ReplyItem::Reasoning("hm, two files".to_owned()),
        ReplyItem::Text("I look at both.".to_owned()),
        call("a"),
        call("b"),
    ];
    let steps = vec![ScriptStep::reply(items), ScriptStep::text("done")];
    let model = ollama(OllamaServer::default(), steps);
    let (client, chain) = (client(), [endpoint(&model, Api::ChatCompletions)]);
    let reply = ask(&client, &chain, &[user("hi")]).await.0.unwrap();
    assert_eq!(reply.finish, Finish::Calls);
    assert_eq!(reply.usage.input, 100);
    let message = reply.message();
    let calls: Vec<_> = message.calls().cloned().collect();
    assert_eq!(calls.len(), 2);
    assert!(calls[0].id != calls[1].id && !calls[0].id.as_str().is_empty());
    let expected = json!({"path": "b"});
    assert_eq!(calls[1].arguments, CallArguments::Object(expected.as_object().unwrap().clone()));
    let result = |at: usize| Message::Tool {
        call: calls[at].id.clone(),
        name: "read_file".to_owned(),
        text: format!("content {at}"),
    };
    let messages = [user("hi"), message, result(0), result(1)];
    ask(&client, &chain, &messages).await.0.unwrap();
    assert_eq!(model.failures(), [""; 0]);
    let body = &model.received()[1].json;
    assert_eq!(body["messages"][2]["thinking"], "hm, two files");
    assert_eq!(body["messages"][2]["tool_calls"][0]["function"]["arguments"], json!({"path": "a"}));
    assert_eq!(body["messages"][4]["content"], "content 1");
}

#[tokio::test]
async fn an_ollama_model_that_cannot_reason_is_asked_without_reasoning() {
    let server = OllamaServer { can_think: false, ..OllamaServer::default() };
    let model = ollama(server, vec![ScriptStep::text("ok")]);
    let (tools, messages) = (tools(), [user("hi")]);
    let mut prompt = prompt(&tools, &messages);
    prompt.effort = Some(Effort::High);
    let chain = [endpoint(&model, Api::ChatCompletions)];
    client().complete(&chain, &prompt, &mut |_| {}).await.unwrap();
    let received = model.received();
    assert_eq!((&received[0].json["think"], &received[1].json["think"]), (&json!(true), &Value::Null));
}

#[tokio::test]
async fn a_server_that_answers_later_is_asked_again() {
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let base = format!("http://{port}/v1").parse().unwrap();
    let mut endpoint = hermes_model::Endpoint::new("test", Api::ChatCompletions, base, "scripted");
    endpoint.retries.max_attempts = 1;
    let client = client();
    assert!(ask(&client, &[endpoint.clone()], &[user("hi")]).await.0.is_err());
    let script = ModelScript {
        listen: Some(port.to_string()),
        ollama: Some(OllamaServer::default()),
        steps: vec![ScriptStep::text("ok")],
        ..ModelScript::default()
    };
    let model = ScriptedModel::start_script(script).unwrap();
    ask(&client, &[endpoint], &[user("hi")]).await.0.unwrap();
    assert_eq!(model.received()[0].line, "POST /api/chat");
}

#[tokio::test]
async fn a_prompt_that_lm_studio_would_cut_is_refused() {
    let studio =
        json!({"models": [{"key": "scripted", "loaded_instances": [{"config": {"context_length": 4096}}]}]});
    let model = server(&[("GET /api/v1/models", studio)]);
    let chain = [endpoint(&model, Api::ChatCompletions)];
    let client = client();
    let (reply, _) = ask(&client, &chain, &[user(&"word ".repeat(8000))]).await;
    assert_eq!(reply.unwrap_err().class(), Some(FailureClass::ContextOverflow));
    assert!(model.received().is_empty());
    assert!(ask(&client, &chain, &[user("hi")]).await.0.is_ok());
}
