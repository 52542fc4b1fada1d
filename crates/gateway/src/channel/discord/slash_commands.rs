//! Registers the slash commands.

use serde::Deserialize;
use serde_json::{Value, json};

use super::DiscordAccount;
use super::payload::{lenient, lenient_list};
use super::rest::{ApiError, ApiRequest};
use super::settings::{CommandSync, CommandVisibility};

struct SlashCommand {
    name: &'static str,
    description: &'static str,
    option: Option<CommandOption>,
}

/// A command as Discord reports it. Unreadable parts count as different.
#[derive(Debug, Deserialize)]
struct RegisteredCommand {
    #[serde(default, deserialize_with = "lenient")]
    name: String,
    #[serde(default, deserialize_with = "lenient")]
    description: String,
    #[serde(default, deserialize_with = "lenient_list")]
    options: Vec<RegisteredOption>,
    #[serde(default, deserialize_with = "lenient")]
    default_member_permissions: Option<String>,
}

#[derive(Debug, PartialEq, Eq, Deserialize)]
struct RegisteredOption {
    #[serde(rename = "type")]
    kind: u8,
    name: String,
    description: String,
    #[serde(default)]
    required: bool,
}

/// Discord's type of a string option.
const STRING_OPTION: u8 = 3;

struct CommandOption {
    name: &'static str,
    description: &'static str,
    is_required: bool,
}

const fn without_option(name: &'static str, about: &'static str) -> SlashCommand {
    SlashCommand { name, description: about, option: None }
}

const fn with_optional(
    name: &'static str,
    about: &'static str,
    what: &'static str,
    which: &'static str,
) -> SlashCommand {
    SlashCommand {
        name,
        description: about,
        option: Some(CommandOption { name: what, description: which, is_required: false }),
    }
}

const fn with_required(
    name: &'static str,
    about: &'static str,
    what: &'static str,
    which: &'static str,
) -> SlashCommand {
    SlashCommand {
        name,
        description: about,
        option: Some(CommandOption { name: what, description: which, is_required: true }),
    }
}

const COMMANDS: [SlashCommand; 18] = [
    with_optional("new", "Start a new conversation", "name", "What to call it"),
    with_optional("stop", "Stop the current reply", "what", "all: also stop background tasks"),
    without_option("status", "Show the conversation, its model and environment"),
    with_optional("approve", "Approve an open question", "scope", "once, session or always"),
    with_optional("deny", "Deny an open question", "scope", "Question id or reason"),
    with_required("queue", "Send a message after the current reply", "text", "What to say"),
    with_required("steer", "Pass a message to the running turn", "text", "What to say"),
    without_option("retry", "Answer the last message again"),
    with_optional("undo", "Undo the last messages", "turns", "How many turns"),
    with_optional("model", "Show or change the model", "name", "The model"),
    without_option("usage", "Show token usage"),
    without_option("help", "List the commands"),
    without_option("sethome", "Make this chat the home channel"),
    with_optional("resume", "Resume one of your conversations", "name", "Which one"),
    without_option("whoami", "Show your user id and role"),
    with_required("background", "Run a background task", "text", "What to do"),
    without_option("yolo", "Turn approvals off or on in this conversation"),
    without_option("restart", "Restart the gateway"),
];

/// Registers the slash commands according to the settings.
pub(super) async fn register(account: &DiscordAccount) -> Result<(), ApiError> {
    let Some(me) = account.identity() else { return Ok(()) };
    let path = format!("applications/{}/commands", me.application);
    let sight = account.settings.command_visibility;
    match account.settings.command_sync {
        CommandSync::Off => return Ok(()),
        CommandSync::Safe => {
            let there: Vec<RegisteredCommand> =
                account.rest.fetch_with_retry(&ApiRequest::get(&path)).await?;
            if is_registered(&there, sight) {
                return Ok(());
            }
        }
        CommandSync::Bulk => {}
    }
    let all: Vec<Value> = COMMANDS.iter().map(|wanted| wanted.to_json(sight)).collect();
    account
        .rest
        .execute_with_retry(&ApiRequest::new(reqwest::Method::PUT, path).with_body(Value::Array(all)))
        .await
}

impl SlashCommand {
    fn to_json(&self, sight: CommandVisibility) -> Value {
        let options: Vec<Value> = self
            .option
            .iter()
            .map(|takes| {
                json!({"type": STRING_OPTION, "name": takes.name, "description": takes.description, "required": takes.is_required})
            })
            .collect();
        let mut json =
            json!({"type": 1, "name": self.name, "description": self.description, "options": options});
        if sight == CommandVisibility::Admins {
            json["default_member_permissions"] = "0".into();
        }
        json
    }

    fn is_same(&self, there: &RegisteredCommand, sight: CommandVisibility) -> bool {
        let wanted = self.option.iter().map(|takes| RegisteredOption {
            kind: STRING_OPTION,
            name: takes.name.to_owned(),
            description: takes.description.to_owned(),
            required: takes.is_required,
        });
        let seen = match there.default_member_permissions.as_deref() {
            Some("0") => CommandVisibility::Admins,
            _ => CommandVisibility::Everyone,
        };
        there.name == self.name
            && there.description == self.description
            && wanted.collect::<Vec<_>>() == there.options
            && seen == sight
    }
}

/// Whether exactly the expected commands are registered.
fn is_registered(there: &[RegisteredCommand], sight: CommandVisibility) -> bool {
    there.len() == COMMANDS.len()
        && COMMANDS.iter().all(|wanted| there.iter().any(|command| wanted.is_same(command, sight)))
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

    fn parsed(there: &[Value]) -> Vec<RegisteredCommand> {
        there.iter().map(|command| serde_json::from_value(command.clone()).unwrap()).collect()
    }

    #[test]
    fn commands_are_compared_completely() {
        let there = registered();
        assert!(is_registered(&parsed(&there), CommandVisibility::Everyone));
        assert!(!is_registered(&parsed(&there[1..]), CommandVisibility::Everyone));
        assert!(!is_registered(&parsed(&there), CommandVisibility::Admins));
        let hide = |command: &Value| {
            let mut command = command.clone();
            command["default_member_permissions"] = "0".into();
            command
        };
        let hidden: Vec<Value> = there.iter().map(hide).collect();
        assert!(is_registered(&parsed(&hidden), CommandVisibility::Admins));
        let mut other = there.clone();
        other[0]["description"] = "something else".into();
        assert!(!is_registered(&parsed(&other), CommandVisibility::Everyone));
        let mut looser = there.clone();
        looser[5]["options"][0]["required"] = false.into();
        assert!(!is_registered(&parsed(&looser), CommandVisibility::Everyone));
        let mut more = there;
        more.push(json!({
            "type": 1, "name": "old", "description": "old", "id": "1", "version": "1", "default_member_permissions": null
        }));
        assert!(!is_registered(&parsed(&more), CommandVisibility::Everyone));
    }
}
