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

#[tokio::test]
async fn only_whoever_asked_may_press_and_the_message_says_who_did() {
    let hall = asked(vec![runs("c1", DANGER), Step::text("it is open")]).await;
    let message = hall.call(hall.ann, hall.channel, "open it");
    let thread = hall.thread(message).await;
    let question = hall
        .server
        .wait_for(|world| {
            world.said_by_bot(thread).iter().find(|said| said.components != json!([])).map(|said| said.id)
        })
        .await
        .unwrap();
    let rows = hall.server.look(|world| world.messages[&question].components.clone());
    let once = rows[0]["components"][0]["custom_id"].as_str().unwrap().to_owned();
    hall.server.press(hall.bob, question, &once).await.unwrap();
    until("bob is told no", || {
        hall.server.look(|world| world.messages.values().any(|said| said.content.contains("may answer")))
    });
    assert!(!is_open(&hall));
    hall.server.press(hall.ann, question, &once).await.unwrap();
    hall.server
        .wait_for(|world| {
            world.said_by_bot(thread).iter().any(|said| said.content == "it is open").then_some(())
        })
        .await
        .unwrap();
    assert!(is_open(&hall));
    hall.server
        .wait_for(|world| {
            world.messages[&question]
                .content
                .contains(&format!("allowed once by discord:{}", hall.ann))
                .then_some(())
        })
        .await
        .unwrap();
    hall.close().await;
}

#[tokio::test]
async fn a_question_outlives_a_crash_and_is_answered_in_words() {
    let mut hall = asked(vec![runs("c1", DANGER), Step::text("as you wish")]).await;
    let dm = hall.server.dm(hall.ann);
    hall.server.say(hall.ann, dm, "open it");
    let said = hall.said(dm, 1).await;
    assert!(said[0].contains("chmod"), "{said:?}");
    hall.kill();
    hall.start().await;
    hall.server.say(hall.ann, dm, "/deny");
    hall.server
        .wait_for(|world| {
            world.said_by_bot(dm).iter().any(|said| said.content == "as you wish").then_some(())
        })
        .await
        .unwrap();
    assert!(!is_open(&hall));
    let questions = hall.heard(dm).iter().filter(|said| said.contains("May this run?")).count();
    assert_eq!(questions, 1, "{:?}", hall.heard(dm));
    hall.close().await;
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
