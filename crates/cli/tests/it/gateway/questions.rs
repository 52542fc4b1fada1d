//! Approval questions in a chat.

use hermes_testkit::model::ModelScript;
use hermes_testkit::{ReplyItem, ScriptStep};
use serde_json::json;

use crate::gateway::env::{GatewayEnv, eventually, terminal_call};

/// A command that needs approval on the local backend.
const DANGER: &str = "chmod -R 777 ~/private && echo done";

async fn env_with(steps: Vec<ScriptStep>) -> GatewayEnv {
    let script = ModelScript { steps, ..ModelScript::default() };
    let config = "discord:\n  allow_all_users: true\ngateway:\n  terminal_backend: local\n";
    let env = GatewayEnv::with(script, config).await.open().await;
    std::fs::create_dir(env.path("owner/private")).unwrap();
    env
}

fn has_run(env: &GatewayEnv) -> bool {
    use std::os::unix::fs::PermissionsExt;
    let mode = std::fs::metadata(env.path("owner/private")).unwrap().permissions().mode();
    mode & 0o777 == 0o777
}

fn tool_call(name: &str, arguments: serde_json::Value) -> ScriptStep {
    ScriptStep::reply([ReplyItem::Call { id: "c1".to_owned(), name: name.to_owned(), arguments }])
}

/// Tool calls that run something dangerous.
fn dangerous_calls() -> [(&'static str, ScriptStep); 3] {
    let script = format!("from hermes_tools import terminal\nprint(terminal({DANGER:?}))");
    [
        ("a command", terminal_call("c1", DANGER)),
        ("in the background", tool_call("terminal", json!({ "command": DANGER, "background": true }))),
        ("in a script", tool_call("execute_code", json!({ "code": script }))),
    ]
}

#[tokio::test]
async fn every_tool_asks_before_something_dangerous_runs() {
    for (tool, step) in dangerous_calls() {
        let env =
            env_with(vec![step.clone(), ScriptStep::text("no then"), step, ScriptStep::text("yes then")])
                .await;
        let dm = env.server.dm_channel(env.ann);
        for (number, (command, is_approved)) in [("/deny", false), ("/approve", true)].into_iter().enumerate()
        {
            if number == 0 {
                env.server.send_text(env.ann, dm, "open it");
            } else {
                // A slash command, not a message.
                let text = json!([{ "name": "text", "type": 3, "value": "open it after all" }]);
                env.server.invoke_command(env.ann, dm, "queue", text).await.unwrap();
            }
            let questions = |said: &[String]| said.iter().filter(|one| one.contains("Allow this?")).count();
            eventually(tool, || questions(&env.replies(dm)) == number + 1);
            assert!(!has_run(&env), "{tool}");
            env.server.send_text(env.ann, dm, command);
            let answer = if is_approved { "yes then" } else { "no then" };
            eventually(tool, || env.replies(dm).iter().any(|said| said == answer));
            eventually(tool, || has_run(&env) == is_approved);
        }
        env.close().await;
    }
}
