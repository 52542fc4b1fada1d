//! The fakes, tested with the vendors' own clients.
#![expect(clippy::disallowed_methods, reason = "the client is a process of its own")]
#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on should stop")]

mod discord;

use std::process::Command;

use hermes_testkit::model::{ModelScript, SentImage};
use hermes_testkit::{ReplyItem, ScriptStep, ScriptedModel, peers};
use serde_json::{Value, json};

#[test]
fn the_vendors_clients_understand_the_scripted_model() {
    let Some(models) = peers::models() else { return };
    let step = || {
        let call = |id: &str, command: &str| ReplyItem::Call {
            id: id.to_owned(),
            name: "terminal".to_owned(),
            arguments: json!({"command": command}).to_string().into(),
        };
        ScriptStep::reply([
            ReplyItem::Reasoning("let me see".to_owned()),
            ReplyItem::Text("I look 看 😀".to_owned()),
            call("c1", "ls"),
            call("c2", "pwd"),
        ])
    };
    let script = ModelScript {
        key: Some("sk-test".to_owned()),
        steps: (0..6).map(|_| step()).collect(),
        ..ModelScript::default()
    };
    let model = ScriptedModel::start_script(script).unwrap();
    let client = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/clients.py");
    let output = Command::new(models.python).arg(client).arg(model.anthropic_url()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let output: Value = serde_json::from_slice(&output.stdout).unwrap();
    let calls = json!([["c1", "terminal", {"command": "ls"}], ["c2", "terminal", {"command": "pwd"}]]);
    let text = "I look 看 😀";
    let expected = json!({
        "chat stream": [text, calls, "tool_calls", 120],
        "chat": [text, calls, "tool_calls", 120],
        "responses stream": [text, calls, "completed", 120],
        "responses": [text, calls, "completed", 120],
        "messages stream": [text, calls, "tool_use", 20, ["signed 10"]],
        "messages": [text, calls, "tool_use", 20, ["signed 10"]],
        "chat refused": 400,
        "responses refused": 400,
        "messages refused": 400,
    });
    assert_eq!(output, expected);
    assert_eq!(model.steps_left(), 0);
    let images: Vec<_> = model.received().iter().flat_map(|request| request.images()).collect();
    let image = SentImage { media_type: "image/gif".to_owned(), bytes: b"GIF89a".to_vec() };
    assert_eq!(images, [image.clone(), image.clone(), image]);
    // The three requests that are invalid on purpose.
    assert_eq!(model.failures().len(), 3, "{:?}", model.failures());
}
