//! Many users write while the gateway is killed repeatedly.

use std::collections::BTreeMap;
use std::time::Duration;

use hermes_testkit::discord::Snowflake;
use hermes_testkit::fake_platform::FakePlatform;
use rustix::process::{Signal, kill_process};
use serde_json::json;

use crate::gateway::env::{GatewayEnv, eventually};

/// Number of kills.
const KILLS: u32 = 200;
const USERS: usize = 50;
const CHATS: usize = 20;

/// A deterministic pseudo-random generator.
struct TestRng(u64);

impl TestRng {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % bound as u64).unwrap()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_message_is_answered_once_however_often_the_gateway_is_killed() {
    let mut env = GatewayEnv::echo().await;
    let mut rng = TestRng(0x9e37_79b9_7f4a_7c15);
    let users: Vec<Snowflake> = (0..USERS).map(|number| env.server.add_user(&format!("p{number}"))).collect();
    let guild = env.server.add_guild("crowd", &users);
    // Half of the chats are direct messages, half are channels with mentions and threads.
    let dms: Vec<(Snowflake, Snowflake)> =
        users.iter().take(CHATS / 2).map(|person| (*person, env.server.dm_channel(*person))).collect();
    let channels: Vec<Snowflake> =
        (0..CHATS / 2).map(|number| env.server.add_channel(guild, &format!("c{number}"))).collect();
    let mut sent: BTreeMap<Snowflake, (Snowflake, String)> = BTreeMap::new();
    for _ in 0..KILLS {
        // A gateway killed between opening a thread and recording it opens it again and gets
        // "already exists".
        env.server.expect_violation(160_004);
    }
    env.start().await;
    // A first start does not fetch missed messages, so the bot gets a message before the kills.
    let dm = env.server.dm_channel(env.ann);
    env.server.send_text(env.ann, dm, "hello");
    env.wait_for_replies(dm, 1).await;
    for kill in 0..KILLS {
        for word in 0..1 + rng.below(3) {
            let text = format!("word {kill}.{word}");
            if rng.below(2) == 0 {
                let (person, dm) = dms[rng.below(dms.len())];
                sent.insert(env.server.send_text(person, dm, &text), (dm, text));
            } else {
                let (person, channel) = (users[rng.below(USERS)], channels[rng.below(channels.len())]);
                sent.insert(env.mention(person, channel, &text), (channel, text));
            }
        }
        tokio::time::sleep(Duration::from_millis(rng.below(250) as u64)).await;
        env.kill();
        // Half of the gateways are killed after connecting, however slow the machine is.
        match rng.below(2) {
            0 => env.launch(),
            _ => env.start().await,
        }
    }
    // The last gateway is not killed.
    let (mentions, direct): (Vec<_>, Vec<_>) =
        sent.iter().partition(|(_, (chat, _))| channels.contains(chat));
    for (message, (_, text)) in mentions {
        let thread = env.reply_chat(*message).await;
        let answers = env.wait_for_replies(thread, 1).await;
        assert_eq!(answers.len(), 1, "{answers:?}");
        assert!(answers[0].ends_with(&format!("] {text}")), "{answers:?} to {text}");
    }
    let all_answered =
        || direct.iter().all(|(_, (chat, text))| env.replies(*chat).contains(&format!("echo: {text}")));
    eventually("everything is answered", all_answered);
    assert_eq!(env.stop(), Some(0), "{}", env.log());
    for (_, (chat, text)) in direct {
        let answers = env.replies(*chat).iter().filter(|answer| **answer == format!("echo: {text}")).count();
        assert_eq!(answers, 1, "{:?}", env.replies(*chat));
    }
    let listed = env.run(&["sandbox", "ls", "--json"]);
    let listed: serde_json::Value = serde_json::from_slice(&listed.stdout).unwrap();
    assert_eq!(listed["places"], serde_json::json!([]));
    env.close().await;
}

/// Open inbox rows.
fn unanswered(env: &GatewayEnv) -> usize {
    let database = rusqlite::Connection::open(env.path("home").join(hermes_store::FILE_NAME)).unwrap();
    database.query_row("SELECT count(*) FROM inbox WHERE done IS NULL", [], |row| row.get(0)).unwrap()
}

#[tokio::test]
async fn a_command_is_stored_before_it_is_acknowledged_and_dropped_if_the_user_saw_a_failure() {
    let mut env = GatewayEnv::echo().await.open().await;
    env.wait("the commands are there", |server| {
        server.read(|world| (world.commands.len() == 20).then_some(()))
    })
    .await;
    let dm = env.server.dm_channel(env.ann);
    env.server.stall();
    env.server.expect_violation(10_062);
    let text = json!([{"name": "text", "type": 3, "value": "hello"}]);
    let killed = async {
        env.wait("the acknowledgment hangs", |server| (server.pending_requests() > 0).then_some(())).await;
        assert_eq!(unanswered(&env), 1);
        kill_process(env.pid(), Signal::KILL).unwrap();
    };
    let (called, ()) = tokio::join!(env.server.invoke_command(env.ann, dm, "queue", text.clone()), killed);
    called.unwrap_err();
    env.kill();
    env.server.recover();
    env.server.expect_violation(10_062);
    env.start().await;
    eventually("the command is dropped", || unanswered(&env) == 0);
    assert!(env.model_requests().is_empty() && env.replies(dm).is_empty());

    env.server.invoke_command(env.ann, dm, "queue", text).await.unwrap();
    env.wait_for_message(dm, "the answer", |seen| seen.text == "echo: hello").await;
    env.close().await;
}
