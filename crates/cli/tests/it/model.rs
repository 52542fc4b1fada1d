//! Selection of the model, its provider and the API key.

use std::fs;

use hermes_testkit::model::ModelScript;
use hermes_testkit::{ScriptStep, ScriptedModel};
use serde_json::{Value, json};

use crate::{Home, Run};

/// Names and values of environment variables.
type Variables<'a> = &'a [(&'a str, &'a str)];

/// The model section of `status` with these settings and variables.
fn model_status(config: &str, variables: Variables<'_>) -> Value {
    let home = Home::with_config(config);
    status(&home, variables)
}

fn status(home: &Home, variables: Variables<'_>) -> Value {
    let mut command = home.command(&["status", "--json"]);
    command.env("HOME", home.path()).envs(variables.iter().copied());
    Run::of(command.output().unwrap()).json()["model"].clone()
}

#[test]
fn the_provider_is_chosen_by_setting_then_variable_then_available_key() {
    let named = "model:\n  default: m\n";
    let lab = "model:\n  default: m\n  provider: lab\nproviders:\n  lab:\n    api: http://10.0.0.7:8000/v1\n    key_env: LAB_KEY\n";
    let listed = "custom_providers:\n  - {name: Lab, base_url: 'http://10.0.0.7:8000/v1', api_key: x}\n";
    let listed = format!("model:\n  default: m\n  provider: custom:lab\n{listed}");
    // Zero means that a limit is not set.
    let zeros = "model:\n  default: m\n  provider: Custom:LAB\n  max_tokens: 0\n  context_length: 0\n  ollama_num_ctx: 0\n\
                 providers:\n  lab: {url: 'http://10.0.0.7:8000/v1', api_mode: codex_responses, context_length: 0}\n";
    let cases: [(&str, Variables<'_>, [&str; 4]); 15] = [
        (&listed, &[], ["Lab", "http://10.0.0.7:8000/v1", "chat_completions", "config.yaml"]),
        (zeros, &[], ["lab", "http://10.0.0.7:8000/v1", "codex_responses", ""]),
        (
            "model:\n  default: m\n  provider: Ollama\n  base_url: http://10.0.0.7:11434/v1\n",
            &[("OPENAI_API_KEY", "o")],
            ["ollama", "http://10.0.0.7:11434/v1", "ollama_chat", ""],
        ),
        (
            named,
            &[("OPENROUTER_API_KEY", "k")],
            ["openrouter", "https://openrouter.ai/api/v1", "chat_completions", "OPENROUTER_API_KEY"],
        ),
        (
            named,
            &[("ANTHROPIC_API_KEY", "k")],
            ["anthropic", "https://api.anthropic.com/", "anthropic_messages", "ANTHROPIC_API_KEY"],
        ),
        (
            named,
            &[("OPENAI_API_KEY", "k")],
            ["openai-api", "https://api.openai.com/v1", "codex_responses", "OPENAI_API_KEY"],
        ),
        (
            named,
            &[("OPENAI_API_KEY", "k"), ("OPENAI_BASE_URL", "http://localhost:1/v1")],
            ["custom", "http://localhost:1/v1", "chat_completions", "OPENAI_API_KEY"],
        ),
        // A configured provider takes precedence over an available key.
        (
            "model:\n  default: m\n  provider: deepseek\n",
            &[("OPENROUTER_API_KEY", "k"), ("DEEPSEEK_API_KEY", "d")],
            ["deepseek", "https://api.deepseek.com/v1", "chat_completions", "DEEPSEEK_API_KEY"],
        ),
        // An environment variable takes precedence over the configuration file.
        (
            "model:\n  default: m\n  provider: deepseek\n",
            &[("HERMES_INFERENCE_PROVIDER", "xai"), ("XAI_API_KEY", "x")],
            ["xai", "https://api.x.ai/v1", "codex_responses", "XAI_API_KEY"],
        ),
        // A key is sent only to its own host.
        (
            "model:\n  default: m\n  base_url: http://localhost:9/v1\n",
            &[("OPENROUTER_API_KEY", "k"), ("ANTHROPIC_API_KEY", "k")],
            ["custom", "http://localhost:9/v1", "chat_completions", ""],
        ),
        // The base_url names the host of this key.
        (
            "model:\n  default: m\n  provider: custom\n  base_url: https://openrouter.ai/api/v1\n",
            &[("OPENROUTER_API_KEY", "k"), ("OPENAI_API_KEY", "o")],
            ["custom", "https://openrouter.ai/api/v1", "chat_completions", "OPENROUTER_API_KEY"],
        ),
        (
            lab,
            &[("LAB_KEY", "l"), ("OPENAI_API_KEY", "o")],
            ["lab", "http://10.0.0.7:8000/v1", "chat_completions", "LAB_KEY"],
        ),
        (lab, &[("OPENAI_API_KEY", "o")], ["lab", "http://10.0.0.7:8000/v1", "chat_completions", ""]),
        (
            "model:\n  default: m\n  provider: lab\nproviders:\n  lab: {api: 'https://g.example/anthropic', api_key: x}\n",
            &[],
            ["lab", "https://g.example/anthropic", "anthropic_messages", "config.yaml"],
        ),
        (
            "model: m\n",
            &[("GEMINI_API_KEY", "g")],
            [
                "gemini",
                "https://generativelanguage.googleapis.com/v1beta/openai",
                "chat_completions",
                "GEMINI_API_KEY",
            ],
        ),
    ];
    for (config, variables, [provider, address, protocol, key]) in cases {
        let status = model_status(config, variables);
        let key = if key.is_empty() { Value::Null } else { json!(key) };
        let expected = json!([provider, address, protocol, key]);
        assert_eq!(
            json!([status["provider"], status["address"], status["protocol"], status["key"]]),
            expected,
            "{config} {variables:?}: {status}"
        );
        assert_eq!(status["name"], "m");
    }
}

#[test]
fn a_missing_model_setting_is_reported_with_a_remedy() {
    let cases: [(&str, Variables<'_>, &str); 6] = [
        ("", &[], "no model is configured"),
        ("model: m\n", &[], "no provider for m: no API key and no base_url are configured"),
        (
            "model:\n  default: m\n  provider: anthropic\n",
            &[("OPENAI_API_KEY", "o")],
            "no API key for anthropic",
        ),
        ("model:\n  default: m\n  provider: nosuch\n", &[], "unknown provider `nosuch`"),
        (
            "model:\n  default: m\n  base_url: localhost:8000\n",
            &[],
            "invalid base_url for custom: `localhost:8000`",
        ),
        (
            "model:\n  default: m\n  provider: custom\n",
            &[],
            "model.provider is custom, but model.base_url is not set",
        ),
    ];
    for (config, variables, expected) in cases {
        let status = model_status(config, variables);
        assert_eq!(status["problem"], expected, "{status}");
        assert!(status["remedy"].is_string(), "{status}");
    }
}

#[test]
fn the_token_of_claude_code_is_used_by_name_until_it_expires() {
    let home = Home::with_config("model:\n  default: claude-opus-4-6\n  provider: claude-code\n");
    fs::create_dir(home.path().join(".claude")).unwrap();
    let token = |end: u64| {
        home.write(
            ".claude/.credentials.json",
            json!({"claudeAiOauth": {"accessToken": "sk-ant-oat01-x", "expiresAt": end}}).to_string(),
        )
    };
    let key = [("ANTHROPIC_API_KEY", "k")];
    token(99_999_999_999_999);
    assert_eq!(
        status(&home, &key)["key"],
        home.path().join(".claude/.credentials.json").display().to_string()
    );
    token(1);
    assert_eq!(status(&home, &key)["key"], "ANTHROPIC_API_KEY");
}

#[test]
fn fallbacks_without_a_key_are_left_out() {
    let config = "model:\n  default: m\n  base_url: http://localhost:9/v1\nfallback_providers:\n  - {provider: anthropic, model: a}\n  - {provider: openrouter, model: b}\n";
    let status = model_status(config, &[("OPENROUTER_API_KEY", "k")]);
    assert_eq!(status["fallbacks"], json!([{"name": "b", "provider": "openrouter"}]));
}

#[test]
fn invalid_providers_prevent_the_start_and_keys_are_never_shown() {
    let cases = [
        ("providers: [a]\n", "providers: expected a map from names to servers"),
        (
            "providers:\n  lab:\n    request_timeout_seconds: soon\n",
            "a whole number from 0 up for `request_timeout_seconds`",
        ),
        ("agent:\n  reasoning_effort: much\n", "agent.reasoning_effort: expected one of auto, none"),
    ];
    for (config, expected) in cases {
        let run = Home::with_config(config).run(&["status"]);
        assert_eq!(run.code, Some(3), "{run:?}");
        assert!(run.err.contains(expected), "{run:?}");
    }
    let shown = Home::with_config(
        "providers:\n  lab: {api: 'http://a/v1', api_key: hunter2}\nfallback_providers:\n  - {provider: a, model: m, api_key: hunter2}\n",
    );
    for args in [
        &["config", "show"][..],
        &["config", "get", "providers"],
        &["status", "--json"],
        &["config", "explain", "fallback_providers"],
    ] {
        let run = shown.run(args);
        assert!(!format!("{}{}", run.out, run.err).contains("hunter2"), "{args:?}: {run:?}");
    }
}

#[test]
fn doctor_live_sends_one_request_to_the_model() {
    let script = ModelScript {
        key: Some("sk-test".to_owned()),
        steps: vec![ScriptStep::text("ok")],
        ..ModelScript::default()
    };
    let server = ScriptedModel::start_script(ModelScript {
        routes: [("GET /v1/models".to_owned(), json!({"data": [{"id": "m", "max_model_len": 32768}]}))]
            .into(),
        ..script
    })
    .unwrap();
    let model = "model:\n  default: m\n  key_env: OPENAI_API_KEY\n";
    let home = Home::with_config(&format!("{model}  base_url: {}\n", server.url()));
    let doctor = |key: &str| {
        let mut command = home.command(&["doctor", "--live", "--json"]);
        command.env("HOME", home.path()).env("OPENAI_API_KEY", key);
        let run = Run::of(command.output().unwrap()).json();
        let findings = run["findings"].as_array().unwrap().clone();
        findings.into_iter().find(|finding| finding["check"] == "model").unwrap()
    };
    let good = doctor("sk-test");
    assert_eq!(good["state"], "ok", "{good}");
    assert!(good["detail"].as_str().unwrap().ends_with("context window: 32768 tokens"), "{good}");
    assert_eq!(server.failures(), [""; 0]);
    let bad = doctor("sk-other");
    assert_eq!(bad["state"], "broken", "{bad}");
    assert!(bad["remedy"].as_str().unwrap().contains("Check the API key"), "{bad}");
    assert!(!bad.to_string().contains("sk-other"), "{bad}");
}
