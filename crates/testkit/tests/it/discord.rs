//! The fake Discord server, tested with discord.py.

mod strict;

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use hermes_testkit::discord::{DiscordServer, ServerOptions, UserFile, UserPost};
use hermes_testkit::peers;
use serde_json::{Value, json};
use tokio::sync::mpsc::{self, UnboundedReceiver};

/// A small bot in Python, which ends with the test.
struct PythonBot {
    process: Child,
    lines: UnboundedReceiver<Value>,
}

impl PythonBot {
    fn start(python: &std::path::Path, server: &DiscordServer) -> Self {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/discord_bot.py");
        let mut command = Command::new(python);
        command.arg(script).args([&server.api_base(), &server.gateway_url(), server.token()]);
        let mut process = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
        let out = BufReader::new(process.stdout.take().unwrap());
        let (sender, lines) = mpsc::unbounded_channel();
        std::thread::spawn(move || {
            for line in out.lines().map_while(Result::ok) {
                sender.send(serde_json::from_str(&line).unwrap()).unwrap();
            }
        });
        Self { process, lines }
    }

    /// The next event that the bot printed.
    async fn next_event(&mut self) -> Value {
        let next = tokio::time::timeout(Duration::from_secs(60), self.lines.recv());
        next.await.expect("the bot printed nothing").expect("the bot has ended")
    }
}

impl Drop for PythonBot {
    fn drop(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

#[tokio::test]
async fn discord_py_works_with_the_fake_server() {
    let Some(models) = peers::models() else { return };
    let server = DiscordServer::start(ServerOptions::default()).await.unwrap();
    let ann = server.add_user("ann");
    let guild = server.add_guild("guild", &[ann]);
    let channel = server.add_channel(guild, "general");
    let ideas = server.add_forum(guild, "ideas");
    let mut bot = PythonBot::start(&models.python, &server);
    assert_eq!(bot.next_event().await, json!(["ready", "hermes", ["guild"], ["ask"], "ann"]));

    let asked = server.send_text(ann, channel, &format!("<@{}> hello", server.bot()));
    let text = format!("<@{}> hello", server.bot());
    assert_eq!(bot.next_event().await, json!(["message", text, "TextChannel", "ann", true]));
    assert_eq!(bot.next_event().await, json!(["answered", ["done", text], text, ["✅"]]));
    server.read(|world| {
        let answer = world.bot_messages_in(channel)[0];
        assert_eq!((answer.content.as_str(), answer.edits.as_slice()), ("done", &["working".to_owned()][..]));
        assert_eq!(answer.reference, Some(asked));
        let thread = world.threads_of(channel)[0];
        assert_eq!((thread.id, thread.name.as_str()), (asked, "a talk"));
        assert_eq!(world.bot_messages_in(thread.id).last().unwrap().content, "in the thread");
        assert_eq!(world.typing, [channel]);
        assert_eq!(world.messages[&asked].reactions, [("✅".to_owned(), server.bot())]);
    });

    server.send_text(ann, asked, "in here");
    assert_eq!(bot.next_event().await, json!(["message", "in here", "Thread", "ann", false]));
    let private = server.dm_channel(ann);
    server.send_text(ann, private, "psst");
    assert_eq!(bot.next_event().await, json!(["message", "psst", "DMChannel", "ann", false]));
    let answer = server.wait_for(|world| Some(world.bot_messages_in(private).first()?.content.clone())).await;
    assert_eq!(answer.unwrap(), "in private");

    server.send_text(ann, channel, "buttons");
    assert_eq!(bot.next_event().await[1], "buttons");
    let with_button = |world: &hermes_testkit::discord::World| {
        Some(world.bot_messages_in(channel).into_iter().find(|message| message.content == "choose")?.id)
    };
    let choice = server.wait_for(with_button).await.unwrap();
    let reply = server.press_button(ann, choice, "yes").await.unwrap();
    assert_eq!((reply.kind, reply.message), (7, Some(choice)));
    assert_eq!(bot.next_event().await, json!(["pressed", "ann", "choose"]));
    assert!(server.press_button(ann, choice, "yes").await.is_err(), "the button is disabled");

    let options = json!([{"name": "question", "type": 3, "value": "why"}]);
    let reply = server.invoke_command(ann, channel, "ask", options).await.unwrap();
    assert_eq!(reply.kind, 5);
    assert_eq!(bot.next_event().await, json!(["command", "why"]));
    let followed = |content: &'static str| {
        server.read(|world| {
            world.bot_messages_in(channel).into_iter().any(|message| message.content == content)
        })
    };
    assert!(followed("you asked: why") && followed("only for you"));

    let file =
        UserFile { name: "a.bin".to_owned(), bytes: b"abc\r\n--\r\n".repeat(1000), ..UserFile::default() };
    server.send_post(
        ann,
        channel,
        UserPost { text: "file".to_owned(), files: vec![file], ..UserPost::default() },
    );
    assert_eq!(bot.next_event().await[1], "file");
    assert_eq!(bot.next_event().await, json!(["file", 9000, "\n\r-"]));
    server.send_text(ann, channel, "forum");
    assert_eq!(bot.next_event().await[1], "forum");
    assert_eq!(bot.next_event().await, json!(["post", "a post", "its first message"]));
    let same = server.read(|world| world.messages[&world.threads_of(ideas)[0].id].content.clone());
    assert_eq!(same, "its first message");

    let slip = server.send_text(ann, channel, "slip");
    assert_eq!(bot.next_event().await[1], "slip");
    server.edit_message(slip, "slap");
    assert_eq!(bot.next_event().await, json!(["edited", "slip", "slap"]));
    server.react(ann, slip, "🎉");
    assert_eq!(bot.next_event().await, json!(["reaction", "🎉"]));
    server.delete_message(slip);
    assert_eq!(bot.next_event().await, json!(["deleted", "slap"]));

    server.drop_connections();
    server.send_text(ann, channel, "missed");
    let mut after = vec![bot.next_event().await, bot.next_event().await];
    after.sort_by_key(|line| line[0].to_string());
    assert_eq!(after, [json!(["message", "missed", "TextChannel", "ann", false]), json!(["resumed"])]);
    assert_eq!(server.read(|world| (world.identified, world.resumed)), (1, 1));
    assert_eq!(server.violations(), Vec::<String>::new());

    // The client recognizes the errors of the server.
    [50_035, 50_006, 10_003, 50_005].iter().for_each(|code| server.expect_violation(*code));
    server.send_text(ann, channel, "wrong");
    assert_eq!(bot.next_event().await[1], "wrong");
    let refused = json!([[400, 50_035], [400, 50_006], [404, 10_003], [403, 50_005]]);
    assert_eq!(bot.next_event().await, json!(["refused", refused]));

    server.send_text(ann, channel, "many");
    assert_eq!(bot.next_event().await[1], "many");
    assert_eq!(bot.next_event().await, json!(["many"]));
    assert!(server.read(|world| world.requests.iter().all(|request| request.status != 429)));
    assert_eq!(server.violations(), Vec::<String>::new());
}
