//! A full or read-only disk.

use std::fs::{self, File};
use std::io::Write;

use hermes_testkit::model::{BodyDelivery, ScriptedReply};
use hermes_testkit::{ReplyItem, ScriptStep};

use crate::gateway::env::{GatewayEnv, eventually};

const LOCAL: &str = "discord:\n  allow_all_users: true\ngateway:\n  terminal_backend: local\n";
const STORE_FAILURE: &str = "cannot store ";

fn fill_disk(env: &GatewayEnv) {
    let mut file = File::create(env.gateway_path("filler")).unwrap();
    while file.write_all(&[0; 4096]).is_ok() {}
}

fn free_disk(env: &GatewayEnv) {
    fs::remove_file(env.gateway_path("filler")).unwrap();
}

#[tokio::test]
async fn messages_sent_while_the_disk_is_full_are_answered_later() {
    let env = GatewayEnv::with(GatewayEnv::echo_script([]), LOCAL)
        .await
        .on_disk("8m")
        .set_env("HERMES_LOG", "info")
        .open()
        .await;
    let (ann, bob) = (env.server.dm_channel(env.ann), env.server.dm_channel(env.bob));
    env.send(env.ann, ann, "one");
    assert_eq!(env.wait_for_replies(ann, 1).await, ["echo: one"]);
    fill_disk(&env);
    env.send(env.ann, ann, "two");
    env.send(env.bob, bob, "three");
    // This takes longer than any timeout.
    eventually("storing is retried", || env.log().matches(STORE_FAILURE).count() > 8);
    assert_eq!((env.replies(ann).len(), env.replies(bob).len()), (1, 0));
    free_disk(&env);
    assert_eq!(env.wait_for_replies(ann, 2).await, ["echo: one", "echo: two"]);
    assert_eq!(env.wait_for_replies(bob, 1).await, ["echo: three"]);
    env.close().await;
}

#[tokio::test]
async fn a_full_disk_failure_is_reported_later() {
    let slow = ScriptStep::Reply(ScriptedReply {
        items: vec![ReplyItem::Text("first".to_owned())],
        delivery: BodyDelivery { pause_ms: 1_000, ..Default::default() },
        ..Default::default()
    });
    let env = GatewayEnv::with(GatewayEnv::echo_script([slow]), LOCAL)
        .await
        .on_disk("8m")
        .set_env("HERMES_LOG", "info")
        .open()
        .await;
    let ann = env.server.dm_channel(env.ann);
    env.send(env.ann, ann, "one");
    eventually("the model is asked", || env.model_requests().len() == 1);
    fill_disk(&env);
    eventually("storing fails", || env.log().contains(STORE_FAILURE));
    assert_eq!(env.replies(ann), Vec::<String>::new());
    free_disk(&env);
    let prompt = env.wait_for_replies(ann, 1).await;
    assert!(prompt[0].contains("no space left on device"), "{prompt:?}");
    // The interrupted turn is resumed first.
    env.send(env.ann, ann, "two");
    env.wait_for_message(ann, "the next answer", |seen| seen.text == "echo: two").await;
    env.close().await;
}

#[tokio::test]
async fn an_unwritable_state_file_stops_nothing() {
    let mut env = GatewayEnv::echo().await;
    // A non-empty directory cannot be replaced.
    fs::create_dir_all(env.path("home/gateway_state.json/full")).unwrap();
    env.start().await;
    let ann = env.server.dm_channel(env.ann);
    env.send(env.ann, ann, "one");
    assert_eq!(env.wait_for_replies(ann, 1).await, ["echo: one"]);
    fs::remove_dir_all(env.path("home/gateway_state.json")).unwrap();
    eventually("the state is written later", || env.state() == "up");
    env.close().await;
}
