//! Questions of the gate, in a chat.

use hermes_testkit::model::Script;
use hermes_testkit::{Said, Step};
use serde_json::json;

use crate::hall::{Hall, runs, until};

/// What nobody runs unasked on their own machine.
const DANGER: &str = "chmod -R 777 ~/private && echo done";

async fn asked(steps: Vec<Step>) -> Hall {
    let script = Script { steps, ..Script::default() };
    let config = "discord:\n  allow_all_users: true\ngateway:\n  terminal_backend: local\n";
    let hall = Hall::with(script, config).await.open().await;
    std::fs::create_dir(hall.path("owner/private")).unwrap();
    hall
}

fn is_open(hall: &Hall) -> bool {
    use std::os::unix::fs::PermissionsExt;
    let mode = std::fs::metadata(hall.path("owner/private")).unwrap().permissions().mode();
    mode & 0o777 == 0o777
}

/// A call of a tool.
fn calls(name: &str, arguments: serde_json::Value) -> Step {
    Step::says([Said::Call { id: "c1".to_owned(), name: name.to_owned(), arguments }])
}

/// The ways by which something dangerous can be asked for from a chat.
fn doors() -> [(&'static str, Step); 3] {
    let script = format!("from hermes_tools import terminal\nprint(terminal({DANGER:?}))");
    [
        ("a command", runs("c1", DANGER)),
        ("in the background", calls("terminal", json!({ "command": DANGER, "background": true }))),
        ("in a script", calls("execute_code", json!({ "code": script }))),
    ]
}

#[tokio::test]
async fn by_every_door_of_a_chat_nothing_dangerous_runs_unasked() {
    for (door, step) in doors() {
        let hall = asked(vec![step.clone(), Step::text("no then"), step, Step::text("yes then")]).await;
        let dm = hall.server.dm(hall.ann);
        for (number, (word, is_done)) in [("/deny", false), ("/approve", true)].into_iter().enumerate() {
            if number == 0 {
                hall.server.say(hall.ann, dm, "open it");
            } else {
                // A command of Discord's own, not a message.
                let text = json!([{ "name": "text", "type": 3, "value": "open it after all" }]);
                hall.server.invoke(hall.ann, dm, "queue", text).await.unwrap();
            }
            let questions = |said: &[String]| said.iter().filter(|one| one.contains("May this run?")).count();
            until(door, || questions(&hall.heard(dm)) == number + 1);
            assert!(!is_open(&hall), "{door}");
            hall.server.say(hall.ann, dm, word);
            let answer = if is_done { "yes then" } else { "no then" };
            until(door, || hall.heard(dm).iter().any(|said| said == answer));
            until(door, || is_open(&hall) == is_done);
        }
        hall.close().await;
    }
}
