//! What is said in chats that nobody asked for there.

use std::io::Write;
use std::process::Stdio;

use hermes_testkit::discord::Trouble;
use serde_json::{Value, json};

use crate::hall::{Hall, until};

fn sent(hall: &Hall, args: &[&str]) -> (Option<i32>, String) {
    let run = hall.run(&[&["send"], args].concat());
    let text = [run.stdout, run.stderr].concat();
    (run.status.code(), String::from_utf8(text).unwrap())
}

#[tokio::test]
async fn a_message_goes_to_the_home_channel_at_once_or_when_the_gateway_starts() {
    let mut hall = Hall::echo().await.with_admin().open().await;
    let (ann, bob) = (hall.server.dm(hall.ann), hall.server.dm(hall.bob));
    let (code, said) = sent(&hall, &["--to", "discord", "too early"]);
    assert_eq!(code, Some(3), "{said}");
    assert!(said.contains("discord has no home channel") && said.contains("/sethome"), "{said}");
    hall.server.say(hall.bob, bob, "/sethome");
    assert!(hall.said(bob, 1).await[0].contains("for those who look after me"), "{:?}", hall.heard(bob));
    hall.server.say(hall.ann, ann, "/sethome");
    hall.said(ann, 1).await;

    let (code, said) = sent(&hall, &["--to", "discord", "now"]);
    assert_eq!((code, said.as_str()), (Some(0), "queued; the gateway delivers it now\n"));
    assert_eq!(hall.said(ann, 2).await[1], "now");
    assert_eq!(hall.stop(), Some(0), "{}", hall.log());
    let (code, said) = sent(&hall, &["--subject", "Report", "later"]);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("no gateway is running"), "{said}");
    let run = hall.run(&["send", "--json", "--to", &format!("discord:{bob}"), "for bob"]);
    let facts: Value = serde_json::from_slice(&run.stdout).unwrap();
    let to = json!([{"platform": "discord", "chat": bob.to_string()}]);
    assert_eq!(facts, json!({"to": to, "queued": 1, "running": false}));
    assert_eq!(hall.heard(ann).len(), 2);
    hall.start().await;
    assert_eq!(hall.said(ann, 3).await[2], "Report\n\nlater");
    assert_eq!(hall.said(bob, 2).await[1], "for bob");
    hall.close().await;
}

#[tokio::test]
async fn a_long_message_to_a_forum_is_one_post() {
    let hall = Hall::echo().await;
    let guild = hall.server.look(|world| world.channels[&hall.channel].guild.unwrap());
    let forum = hall.server.forum(guild, "reports");
    let mut hall = hall.tell("DISCORD_HOME_CHANNEL", forum).open().await;
    let long = "word ".repeat(900);
    let (code, told) = sent(&hall, &[&format!("# Report\n{long}")]);
    assert_eq!(code, Some(0), "{told}");
    let posts = |hall: &Hall| -> Vec<_> {
        hall.server.look(|world| world.threads_of(forum).iter().map(|post| post.id).collect())
    };
    until("there is a post", || !posts(&hall).is_empty());
    let post = posts(&hall)[0];
    assert_eq!(hall.said(post, 3).await.len(), 3);

    // What is left of it after a restart goes there, too.
    hall.server.trouble("POST /channels/*/messages", 100, Trouble::Fail(503));
    sent(&hall, &[&format!("# Another\n{long}")]);
    until("there is a second post", || posts(&hall).len() == 2);
    hall.kill();
    hall.server.clear_troubles();
    hall.start().await;
    let second = posts(&hall).into_iter().find(|id| *id != post).unwrap();
    assert_eq!(hall.said(second, 3).await.len(), 3);
    assert_eq!(posts(&hall).len(), 2);
    hall.close().await;
}

#[tokio::test]
async fn what_is_piped_in_is_said_whole_and_in_its_order() {
    let hall = Hall::echo().await;
    let home = hall.server.dm(hall.ann);
    let hall = hall.tell("DISCORD_HOME_CHANNEL", home).open().await;
    let words: Vec<String> = (0..900).map(|number| format!("word{number:04}")).collect();
    let mut child = hall.command(&["send", "-"]).stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(words.join(" ").as_bytes()).unwrap();
    assert!(child.wait().unwrap().success());
    let said = hall.said(home, 5).await;
    let whole = said.join(" ");
    let heard: Vec<&str> = whole.split_whitespace().filter(|word| word.starts_with("word")).collect();
    assert_eq!(heard, words);
    let listed = hall.run(&["--json", "send", "--list"]);
    let facts: Value = serde_json::from_slice(&listed.stdout).unwrap();
    assert_eq!(facts["homes"], json!([{"platform": "discord", "chat": home.to_string(), "name": "Home"}]));
    hall.close().await;
}

#[tokio::test]
async fn what_cannot_be_sent_is_refused_and_nothing_is_queued() {
    let hall = Hall::echo().await;
    let cases = [
        (vec!["--to", "pigeon", "x"], 2, "`pigeon` is no target"),
        (vec!["--to", "pigeon:42", "x"], 2, "discord"),
        (vec!["--to", "discord:#ops", "x"], 2, "is no chat of discord"),
        (vec!["--to", "origin", "x"], 2, "not asked for in a chat"),
        (vec!["--to", "all", "x"], 3, "no platform has a home channel"),
        (vec!["x"], 3, "no platform has a home channel"),
        (vec!["--to", "discord:42", "  "], 2, "nothing to say"),
        (vec!["--to", "discord:42", "--file", "/nowhere"], 2, "/nowhere cannot be read"),
        (vec!["--list", "--to", "discord"], 2, "cannot be used with"),
    ];
    for (args, expected, words) in cases {
        let (code, said) = sent(&hall, &args);
        assert_eq!(code, Some(expected), "{args:?}: {said}");
        assert!(said.contains(words), "{args:?}: {said}");
    }
    assert_eq!(sent(&hall, &["--to", "local", "stays here"]), (Some(0), "stays here\n".to_owned()));
    let mut hall = hall;
    hall.start().await;
    let dm = hall.server.dm(hall.ann);
    hall.server.say(hall.ann, dm, "hello");
    assert_eq!(hall.said(dm, 1).await, ["echo: hello"]);
    assert_eq!(hall.stop(), Some(0), "{}", hall.log());
    let sent = hall.server.look(|world| {
        let is_message = |line: &str| line.starts_with("POST ") && line.ends_with("/messages");
        world.requests.iter().filter(|request| is_message(&request.line)).count()
    });
    assert_eq!(sent, 1);
    hall.close().await;
}

#[tokio::test]
async fn what_nobody_would_deliver_is_not_kept() {
    let hall = Hall::echo().await.tell("DISCORD_BOT_TOKEN", "");
    let sent = hall.run(&["send", "--to", "discord:123", "hello"]);
    assert_eq!(sent.status.code(), Some(3));
    let said = String::from_utf8_lossy(&sent.stderr).into_owned();
    assert!(said.contains("discord is not set up"), "{said}");
}
