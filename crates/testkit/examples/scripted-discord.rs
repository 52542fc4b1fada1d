//! A fake Discord server as a process, to try a gateway by hand. It prints its addresses and ids as
//! one line of JSON and then runs commands from standard input, one line of JSON each.
//!
//! | command | effect |
//! |---|---|
//! | `{"do": "say", "text": "hi", "channel": ID, "user": ID, "mention": true, "reply_to": ID}` | sends a message; only `text` is required |
//! | `{"do": "press", "message": ID, "button": "custom id"}` | presses a button and prints the response |
//! | `{"do": "invoke", "command": "help", "options": []}` | invokes a command and prints the response |
//! | `{"do": "react", "message": ID, "emoji": "🎉"}` | reacts to a message |
//! | `{"do": "cut"}` | drops the connection |
//! | `{"do": "dump"}` | prints all messages and violations |
//!
//! Ids may be strings or numbers. The process fails if there was a violation.

use std::io::{BufRead, Write};
use std::process::ExitCode;

use hermes_testkit::discord::{DiscordServer, ServerOptions, Snowflake, UserPost};
use serde_json::{Value, json};

type DynError = Box<dyn std::error::Error>;

struct Playground {
    server: DiscordServer,
    user: Snowflake,
    channel: Snowflake,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<ExitCode, DynError> {
    let server = DiscordServer::start(ServerOptions::default()).await?;
    let user = server.add_user("ann");
    let guild = server.add_guild("guild", &[user]);
    let channel = server.add_channel(guild, "general");
    let (forum, private) = (server.add_forum(guild, "ideas"), server.dm_channel(user));
    let start = json!({
        "api": server.api_base(), "gateway": server.gateway_url(), "token": server.token(), "bot": server.bot(),
        "user": user, "guild": guild, "channel": channel, "forum": forum, "dm": private,
    });
    let playground = Playground { server, user, channel };
    let mut out = std::io::stdout();
    writeln!(out, "{start}")?;
    for line in std::io::stdin().lock().lines() {
        let output = match serde_json::from_str(&line?) {
            Ok(command) => {
                playground.run(&command).await.unwrap_or_else(|error| json!({"error": error.to_string()}))
            }
            Err(error) => json!({"error": error.to_string()}),
        };
        writeln!(out, "{output}")?;
    }
    let violations = playground.server.violations();
    violations.iter().try_for_each(|error| writeln!(out, "{error}"))?;
    Ok(if violations.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

impl Playground {
    async fn run(&self, command: &Value) -> Result<Value, DynError> {
        let id = |key: &str| -> Option<Snowflake> {
            command[key].as_u64().or_else(|| command[key].as_str()?.parse().ok())
        };
        let text = |key: &str| command[key].as_str().ok_or(format!("`{key}` is missing"));
        let message = || id("message").ok_or("`message` is missing");
        let (user, channel) = (id("user").unwrap_or(self.user), id("channel").unwrap_or(self.channel));
        Ok(match command["do"].as_str() {
            Some("say") => {
                let mention = if command["mention"] == true {
                    format!("<@{}> ", self.server.bot())
                } else {
                    String::new()
                };
                let text = format!("{mention}{}", text("text")?);
                let post = UserPost { text, reply_to: id("reply_to"), ..UserPost::default() };
                json!({"message": self.server.send_post(user, channel, post)})
            }
            Some("press") => {
                let reply = self.server.press_button(user, message()?, text("button")?).await?;
                json!({"kind": reply.kind, "data": reply.data})
            }
            Some("invoke") => {
                let options = command.get("options").cloned().unwrap_or_else(|| json!([]));
                let reply = self.server.invoke_command(user, channel, text("command")?, options).await?;
                json!({"kind": reply.kind, "data": reply.data})
            }
            Some("react") => {
                self.server.react(user, message()?, text("emoji")?);
                json!({})
            }
            Some("cut") => {
                self.server.drop_connections();
                json!({})
            }
            Some("dump") => self.dump(),
            _ => return Err("`do` is say, press, invoke, react, cut or dump".into()),
        })
    }

    fn dump(&self) -> Value {
        let violations = self.server.violations();
        self.server.read(|world| {
            let messages = world.messages.values().filter(|message| !message.deleted).map(|message| {
                json!({
                    "id": message.id, "channel": message.channel, "reply_to": message.reference,
                    "author": world.users.get(&message.author).map(|user| user.name.as_str()),
                    "text": message.content, "edits": message.edits, "reactions": message.reactions,
                    "components": message.components, "files": message.attachments.iter().map(|file| &file.name).collect::<Vec<_>>(),
                })
            });
            let commands = world.commands.values().map(|(_, command)| command["name"].clone());
            json!({
                "messages": messages.collect::<Vec<_>>(), "commands": commands.collect::<Vec<_>>(), "violations": violations,
                "connected": world.is_connected(), "requests": world.requests.len(),
            })
        })
    }
}
