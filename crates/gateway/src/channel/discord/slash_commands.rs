//! Registers the slash commands.

use reqwest::Method;
use serde_json::{Value, json};

use super::DiscordAccount;
use super::rest::{ApiError, ApiRequest};
use super::settings::{CommandSync, CommandVisibility};

/// A command to register.
struct SlashCommand {
    name: &'static str,
    description: &'static str,
    option: Option<CommandOption>,
}

struct CommandOption {
    name: &'static str,
    description: &'static str,
    required: bool,
}

/// Discord's type of a string option.
const STRING_OPTION: u8 = 3;

const fn command(name: &'static str, description: &'static str) -> SlashCommand {
    SlashCommand { name, description, option: None }
}

const COMMANDS: [SlashCommand; 18] = [
    command("new", "Start a new conversation").optional("name", "What to call it"),
    command("stop", "Stop the current reply").optional("what", "all: also stop background tasks"),
    command("status", "Show the conversation, its model and environment"),
    command("approve", "Approve an open question").optional("scope", "once, session or always"),
    command("deny", "Deny an open question").optional("scope", "Question id or reason"),
    command("queue", "Send a message after the current reply").required("text", "What to say"),
    command("steer", "Pass a message to the running turn").required("text", "What to say"),
    command("retry", "Answer the last message again"),
    command("undo", "Undo the last messages").optional("turns", "How many turns"),
    command("model", "Show or change the model").optional("name", "The model"),
    command("usage", "Show token usage"),
    command("help", "List the commands"),
    command("sethome", "Make this chat the home channel"),
    command("resume", "Resume one of your conversations").optional("name", "Which one"),
    command("whoami", "Show your user id and role"),
    command("background", "Run a background task").required("text", "What to do"),
    command("yolo", "Turn approvals off or on in this conversation"),
    command("restart", "Restart the gateway"),
];

/// Registers the slash commands according to the settings.
pub(super) async fn register(account: &DiscordAccount) -> Result<(), ApiError> {
    let Some(identity) = account.identity() else { return Ok(()) };
    let path = format!("applications/{}/commands", identity.application);
    let visibility = account.settings.command_visibility;
    match account.settings.command_sync {
        CommandSync::Off => return Ok(()),
        CommandSync::Safe => {
            let registered: Vec<Value> = account.rest.fetch_with_retry(&ApiRequest::get(&path)).await?;
            if is_registered(&registered, visibility) {
                return Ok(());
            }
        }
        CommandSync::Bulk => {}
    }
    let all: Vec<Value> = COMMANDS.iter().map(|command| command.to_json(visibility)).collect();
    account.rest.execute_with_retry(&ApiRequest::new(Method::PUT, path).with_body(Value::Array(all))).await
}

impl SlashCommand {
    const fn optional(self, name: &'static str, description: &'static str) -> Self {
        Self { option: Some(CommandOption { name, description, required: false }), ..self }
    }

    const fn required(self, name: &'static str, description: &'static str) -> Self {
        Self { option: Some(CommandOption { name, description, required: true }), ..self }
    }

    fn to_json(&self, visibility: CommandVisibility) -> Value {
        let options = self.option.iter().map(|CommandOption { name, description, required }| {
            json!({"type": STRING_OPTION, "name": name, "description": description, "required": required})
        });
        let options: Vec<Value> = options.collect();
        let mut json =
            json!({"type": 1, "name": self.name, "description": self.description, "options": options});
        if visibility == CommandVisibility::Admins {
            json["default_member_permissions"] = "0".into();
        }
        json
    }
}

/// The part of a command that Discord returns as it was registered.
fn comparable(command: &Value) -> Value {
    let options = command["options"].as_array().into_iter().flatten().map(|option| {
        let required = option["required"].as_bool().unwrap_or_default();
        json!([option["type"], option["name"], option["description"], required])
    });
    let options: Vec<Value> = options.collect();
    let is_hidden = command["default_member_permissions"] == "0";
    json!([command["name"], command["description"], options, is_hidden])
}

/// Whether exactly the expected commands are registered.
fn is_registered(registered: &[Value], visibility: CommandVisibility) -> bool {
    let registered: Vec<Value> = registered.iter().map(comparable).collect();
    registered.len() == COMMANDS.len()
        && COMMANDS.iter().all(|command| registered.contains(&comparable(&command.to_json(visibility))))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As Discord returns them.
    fn registered() -> Vec<Value> {
        let complete = |(number, wanted): (usize, &SlashCommand)| {
            let mut command = wanted.to_json(CommandVisibility::Everyone);
            command["id"] = (1000 + number).to_string().into();
            command["version"] = "1".into();
            command["default_member_permissions"] = Value::Null;
            command
        };
        COMMANDS.iter().enumerate().map(complete).collect()
    }

    #[test]
    fn commands_are_compared_completely() {
        let there = registered();
        assert!(is_registered(&there, CommandVisibility::Everyone));
        assert!(!is_registered(&there[1..], CommandVisibility::Everyone));
        assert!(!is_registered(&there, CommandVisibility::Admins));
        let hide = |command: &Value| {
            let mut command = command.clone();
            command["default_member_permissions"] = "0".into();
            command
        };
        let hidden: Vec<Value> = there.iter().map(hide).collect();
        assert!(is_registered(&hidden, CommandVisibility::Admins));
        let mut other = there.clone();
        other[0]["description"] = "something else".into();
        assert!(!is_registered(&other, CommandVisibility::Everyone));
        let mut looser = there.clone();
        looser[5]["options"][0]["required"] = false.into();
        assert!(!is_registered(&looser, CommandVisibility::Everyone));
        let mut more = there;
        more.push(json!({
            "type": 1, "name": "old", "description": "old", "id": "1", "version": "1", "default_member_permissions": null
        }));
        assert!(!is_registered(&more, CommandVisibility::Everyone));
    }
}
