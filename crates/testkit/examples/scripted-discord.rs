//! A Discord server as a process, to try a gateway by hand: `scripted-discord` prints where it is and who is there as one line
//! of JSON, and does what it reads, one line of JSON each, until its standard input ends.
//!
//! | line | does |
//! |---|---|
//! | `{"do": "say", "text": "hi", "channel": ID, "user": ID, "mention": true, "reply_to": ID}` | only `text` is needed |
//! | `{"do": "press", "message": ID, "button": "custom id"}` | presses a button and prints the answer |
//! | `{"do": "invoke", "command": "help", "options": []}` | calls a command and prints the answer |
//! | `{"do": "react", "message": ID, "emoji": "🎉"}` | reacts |
//! | `{"do": "cut"}` | breaks the connection |
//! | `{"do": "dump"}` | prints all messages and faults |
//!
//! Ids may be texts or numbers. It fails if there was a fault.

use std::io::{BufRead, Write};
use std::process::ExitCode;

use hermes_testkit::discord::{DiscordServer, ServerOptions, Snowflake, UserPost};
use serde_json::{Value, json};

type Fault = Box<dyn std::error::Error>;

struct Stage {
    server: DiscordServer,
    user: Snowflake,
    channel: Snowflake,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<ExitCode, Fault> {
    let server = DiscordServer::start(ServerOptions::default()).await?;
    let user = server.add_user("ann");
    let guild = server.add_guild("house", &[user]);
    let channel = server.add_channel(guild, "general");
    let (forum, private) = (server.add_forum(guild, "ideas"), server.dm_channel(user));
    let begin = json!({
        "api": server.api_base(), "gateway": server.gateway_url(), "token": server.token(), "bot": server.bot(),
        "user": user, "guild": guild, "channel": channel, "forum": forum, "dm": private,
    });
    let stage = Stage { server, user, channel };
    let mut out = std::io::stdout();
    writeln!(out, "{begin}")?;
    for line in std::io::stdin().lock().lines() {
        let told = match serde_json::from_str(&line?) {
            Ok(order) => stage.does(&order).await.unwrap_or_else(|fault| json!({"error": fault.to_string()})),
            Err(fault) => json!({"error": fault.to_string()}),
        };
        writeln!(out, "{told}")?;
    }
    let faults = stage.server.violations();
    faults.iter().try_for_each(|fault| writeln!(out, "{fault}"))?;
    Ok(if faults.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

impl Stage {
    async fn does(&self, order: &Value) -> Result<Value, Fault> {
        let id = |key: &str| -> Option<Snowflake> {
            order[key].as_u64().or_else(|| order[key].as_str()?.parse().ok())
        };
        let text = |key: &str| order[key].as_str().ok_or(format!("`{key}` is missing"));
        let message = || id("message").ok_or("`message` is missing");
        let (user, channel) = (id("user").unwrap_or(self.user), id("channel").unwrap_or(self.channel));
        Ok(match order["do"].as_str() {
            Some("say") => {
                let mention = if order["mention"] == true {
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
                let options = order.get("options").cloned().unwrap_or_else(|| json!([]));
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
        let faults = self.server.violations();
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
                "messages": messages.collect::<Vec<_>>(), "commands": commands.collect::<Vec<_>>(), "faults": faults,
                "connected": world.is_connected(), "requests": world.requests.len(),
            })
        })
    }
}
