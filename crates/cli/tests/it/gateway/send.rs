//! `hermes send`.

use std::io::Write;
use std::process::Stdio;

use hermes_testkit::discord::InjectedFault;
use serde_json::{Value, json};

use crate::gateway::env::{GatewayEnv, eventually};

/// Runs `hermes send` and returns its exit code and output.
fn run_send(env: &GatewayEnv, args: &[&str]) -> (Option<i32>, String) {
    let run = env.run(&[&["send"], args].concat());
    let text = [run.stdout, run.stderr].concat();
    (run.status.code(), String::from_utf8(text).unwrap())
}

#[tokio::test]
async fn a_message_goes_to_the_home_channel_at_once_or_when_the_gateway_starts() {
    let mut env = GatewayEnv::echo().await.with_admin().open().await;
    let (ann, bob) = (env.server.dm_channel(env.ann), env.server.dm_channel(env.bob));
    let (code, output) = run_send(&env, &["--to", "discord", "too early"]);
    assert_eq!(code, Some(3), "{output}");
    assert!(output.contains("discord has no home channel") && output.contains("/sethome"), "{output}");
    env.server.send_text(env.bob, bob, "/sethome");
    assert!(env.wait_for_replies(bob, 1).await[0].contains("is for admins"), "{:?}", env.replies(bob));
    env.server.send_text(env.ann, ann, "/sethome");
    env.wait_for_replies(ann, 1).await;

    let (code, output) = run_send(&env, &["--to", "discord", "now"]);
    assert_eq!((code, output.as_str()), (Some(0), "queued; the gateway delivers it now\n"));
    assert_eq!(env.wait_for_replies(ann, 2).await[1], "now");
    assert_eq!(env.stop(), Some(0), "{}", env.log());
    let (code, output) = run_send(&env, &["--subject", "Report", "later"]);
    assert_eq!(code, Some(0), "{output}");
    assert!(output.contains("no gateway is running"), "{output}");
    let run = env.run(&["send", "--json", "--to", &format!("discord:{bob}"), "for bob"]);
    let facts: Value = serde_json::from_slice(&run.stdout).unwrap();
    let to = json!([{"platform": "discord", "chat": bob.to_string()}]);
    assert_eq!(facts, json!({"to": to, "queued": 1, "running": false}));
    assert_eq!(env.replies(ann).len(), 2);
    env.start().await;
    assert_eq!(env.wait_for_replies(ann, 3).await[2], "Report\n\nlater");
    assert_eq!(env.wait_for_replies(bob, 2).await[1], "for bob");
    env.close().await;
}

#[tokio::test]
async fn a_long_message_to_a_forum_is_one_post() {
    let env = GatewayEnv::echo().await;
    let guild = env.server.read(|world| world.channels[&env.channel].guild.unwrap());
    let forum = env.server.add_forum(guild, "reports");
    let mut env = env.set_env("DISCORD_HOME_CHANNEL", forum).open().await;
    let long = "word ".repeat(900);
    let (code, output) = run_send(&env, &[&format!("# Report\n{long}")]);
    assert_eq!(code, Some(0), "{output}");
    let posts = |env: &GatewayEnv| -> Vec<_> {
        env.server.read(|world| world.threads_of(forum).iter().map(|post| post.id).collect())
    };
    eventually("there is a post", || !posts(&env).is_empty());
    let post = posts(&env)[0];
    assert_eq!(env.wait_for_replies(post, 3).await.len(), 3);

    // After a restart, the rest of a message goes to the same post.
    env.server.inject("POST /channels/*/messages", 100, InjectedFault::Fail(503));
    run_send(&env, &[&format!("# Another\n{long}")]);
    eventually("there is a second post", || posts(&env).len() == 2);
    env.kill();
    env.server.clear_injected();
    env.start().await;
    let second = posts(&env).into_iter().find(|id| *id != post).unwrap();
    assert_eq!(env.wait_for_replies(second, 3).await.len(), 3);
    assert_eq!(posts(&env).len(), 2);
    env.close().await;
}

#[tokio::test]
async fn piped_input_is_sent_completely_and_in_order() {
    let env = GatewayEnv::echo().await;
    let home = env.server.dm_channel(env.ann);
    let env = env.set_env("DISCORD_HOME_CHANNEL", home).open().await;
    let words: Vec<String> = (0..900).map(|number| format!("word{number:04}")).collect();
    let mut child = env.command(&["send", "-"]).stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(words.join(" ").as_bytes()).unwrap();
    assert!(child.wait().unwrap().success());
    let output = env.wait_for_replies(home, 5).await;
    let whole = output.join(" ");
    let received: Vec<&str> = whole.split_whitespace().filter(|word| word.starts_with("word")).collect();
    assert_eq!(received, words);
    let listed = env.run(&["--json", "send", "--list"]);
    let facts: Value = serde_json::from_slice(&listed.stdout).unwrap();
    assert_eq!(facts["homes"], json!([{"platform": "discord", "chat": home.to_string(), "name": "Home"}]));
    env.close().await;
}

#[tokio::test]
async fn an_invalid_send_is_refused_and_not_queued() {
    let env = GatewayEnv::echo().await;
    let cases = [
        (vec!["--to", "pigeon", "x"], 2, "unknown target `pigeon`"),
        (vec!["--to", "pigeon:42", "x"], 2, "discord"),
        (vec!["--to", "discord:#ops", "x"], 2, "invalid discord chat"),
        (vec!["--to", "origin", "x"], 2, "only known in a chat"),
        (vec!["--to", "all", "x"], 3, "no platform has a home channel"),
        (vec!["x"], 3, "no platform has a home channel"),
        (vec!["--to", "discord:42", "  "], 2, "message is empty"),
        (vec!["--to", "discord:42", "--file", "/nowhere"], 2, "cannot read /nowhere"),
        (vec!["--list", "--to", "discord"], 2, "cannot be used with"),
    ];
    for (args, expected, message) in cases {
        let (code, output) = run_send(&env, &args);
        assert_eq!(code, Some(expected), "{args:?}: {output}");
        assert!(output.contains(message), "{args:?}: {output}");
    }
    assert_eq!(run_send(&env, &["--to", "local", "stays here"]), (Some(0), "stays here\n".to_owned()));
    let mut env = env;
    env.start().await;
    let dm = env.server.dm_channel(env.ann);
    env.server.send_text(env.ann, dm, "hello");
    assert_eq!(env.wait_for_replies(dm, 1).await, ["echo: hello"]);
    assert_eq!(env.stop(), Some(0), "{}", env.log());
    let sent = env.server.read(|world| {
        let is_message = |line: &str| line.starts_with("POST ") && line.ends_with("/messages");
        world.requests.iter().filter(|request| is_message(&request.line)).count()
    });
    assert_eq!(sent, 1);
    env.close().await;
}

#[tokio::test]
async fn a_send_that_no_gateway_would_deliver_is_not_queued() {
    let env = GatewayEnv::echo().await.set_env("DISCORD_BOT_TOKEN", "");
    let sent = env.run(&["send", "--to", "discord:123", "hello"]);
    assert_eq!(sent.status.code(), Some(3));
    let output = String::from_utf8_lossy(&sent.stderr).into_owned();
    assert!(output.contains("discord is not set up"), "{output}");
}
