//! Questions of the gate, in a chat.

use hermes_testkit::Step;
use hermes_testkit::model::Script;

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
            world
                .said_by_bot(thread)
                .iter()
                .find(|said| said.components != serde_json::json!([]))
                .map(|said| said.id)
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
