//! Registers the slash commands.

use hermes_session::command::{self, CommandSpec};
use hermes_session::{Surface, UserRole};
use reqwest::Method;
use serde_json::{Value, json};

use super::DiscordAccount;
use super::rest::{ApiError, ApiRequest};
use super::settings::{CommandSync, CommandVisibility};

/// A command to register.
struct SlashCommand {
    spec: &'static CommandSpec,
    option: Option<CommandOption>,
}

struct CommandOption {
    name: &'static str,
    description: &'static str,
    required: bool,
}

/// Discord's type of a string option.
const STRING_OPTION: u8 = 3;

/// All commands of chats.
fn commands() -> impl Iterator<Item = SlashCommand> {
    let with_option = |spec: &'static CommandSpec| {
        let option = command_option(spec.name);
        let required = spec.args == "TEXT";
        let option = option.map(|(name, description)| CommandOption { name, description, required });
        SlashCommand { spec, option }
    };
    command::offered(Surface::Chat, UserRole::Admin).map(with_option)
}

/// Name and description of the argument of a command.
fn command_option(name: &str) -> Option<(&'static str, &'static str)> {
    Some(match name {
        "stop" => ("what", "all: also stop background tasks"),
        "approve" => ("scope", "once, session or always"),
        "deny" => ("scope", "Question id or reason"),
        "queue" | "steer" => ("text", "What to say"),
        "undo" => ("turns", "How many turns"),
        "model" => ("name", "The model"),
        "title" => ("text", "The new title"),
        "resume" => ("name", "Which one"),
        "background" => ("text", "What to do"),
        _ => return None,
    })
}

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
    let all: Vec<Value> = commands().map(|command| command.to_json(visibility)).collect();
    account.rest.execute_with_retry(&ApiRequest::new(Method::PUT, path).with_body(Value::Array(all))).await
}

impl SlashCommand {
    fn to_json(&self, visibility: CommandVisibility) -> Value {
        let options = self.option.iter().map(|CommandOption { name, description, required }| {
            json!({"type": STRING_OPTION, "name": name, "description": description, "required": required})
        });
        let options: Vec<Value> = options.collect();
        let mut summary = self.spec.summary.chars();
        let first = summary.next().map(|first| first.to_ascii_uppercase());
        let description: String = first.into_iter().chain(summary).filter(|c| *c != '`').collect();
        let mut json =
            json!({"type": 1, "name": self.spec.name, "description": description, "options": options});
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
    registered.len() == commands().count()
        && commands().all(|command| registered.contains(&comparable(&command.to_json(visibility))))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As Discord returns them.
    fn registered() -> Vec<Value> {
        let complete = |(number, registered): (usize, SlashCommand)| {
            let mut command = registered.to_json(CommandVisibility::Everyone);
            command["id"] = (1000 + number).to_string().into();
            command["version"] = "1".into();
            command["default_member_permissions"] = Value::Null;
            command
        };
        commands().enumerate().map(complete).collect()
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
