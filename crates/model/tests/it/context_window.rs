//! Context windows, as each kind of server reports them.

use hermes_model::Api;
use hermes_testkit::model::ModelScript;
use hermes_testkit::{ScriptStep, ScriptedModel};
use serde_json::{Value, json};

use crate::support::{client, endpoint};

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
        (
            "Ollama with less loaded",
            vec![
                ("POST /api/show", show("")),
                ("GET /api/ps", json!({"models": [{"name": "scripted", "context_length": 4096}]})),
            ],
            Some(4096),
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
