//! Registers the slash commands.

use hermes_session::command::{self, CommandSpec};
use hermes_session::{Surface, UserRole};
use reqwest::Method;
use serde_json::{Value, json};

use super::Discord;
use super::rest::{ApiError, ApiRequest};
use super::settings::{CommandSync, CommandVisibility};

/// Discord's type of a string option.
const STRING_OPTION: u8 = 3;

/// All commands of chats.
fn commands(visibility: CommandVisibility) -> Vec<Value> {
    let offered = command::offered(Surface::Chat, UserRole::Admin);
    offered.map(|spec| command_json(spec, visibility)).collect()
}

fn command_json(spec: &CommandSpec, visibility: CommandVisibility) -> Value {
    let option = command_option(spec.name).map(|(name, description)| {
        let required = spec.args == "TEXT";
        json!({"type": STRING_OPTION, "name": name, "description": description, "required": required})
    });
    let options: Vec<Value> = option.into_iter().collect();
    let mut summary = spec.summary.chars();
    let first = summary.next().map(|first| first.to_ascii_uppercase());
    let description: String = first.into_iter().chain(summary).filter(|c| *c != '`').collect();
    let mut json = json!({"type": 1, "name": spec.name, "description": description, "options": options});
    if visibility == CommandVisibility::Admins {
        json["default_member_permissions"] = "0".into();
    }
    json
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
pub(super) async fn register(account: &Discord) -> Result<(), ApiError> {
    let Some(identity) = account.identity() else { return Ok(()) };
    let path = format!("applications/{}/commands", identity.application);
    let all = commands(account.settings.command_visibility);
    match account.settings.command_sync {
        CommandSync::Off => return Ok(()),
        CommandSync::Safe => {
            let registered: Vec<Value> = account.rest.fetch_with_retry(&ApiRequest::get(&path)).await?;
            if are_registered(&all, &registered) {
                return Ok(());
            }
        }
        CommandSync::Bulk => {}
    }
    account.rest.execute_with_retry(&ApiRequest::new(Method::PUT, path).with_body(Value::Array(all))).await
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

/// Whether exactly these commands are registered.
fn are_registered(commands: &[Value], registered: &[Value]) -> bool {
    let registered: Vec<Value> = registered.iter().map(comparable).collect();
    registered.len() == commands.len()
        && commands.iter().all(|command| registered.contains(&comparable(command)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As Discord returns them.
    fn registered() -> Vec<Value> {
        let complete = |(number, mut command): (usize, Value)| {
            command["id"] = (1000 + number).to_string().into();
            command["version"] = "1".into();
            command["default_member_permissions"] = Value::Null;
            command
        };
        commands(CommandVisibility::Everyone).into_iter().enumerate().map(complete).collect()
    }

    #[test]
    fn commands_are_compared_completely() {
        let there = registered();
        let (everyone, admins) = (commands(CommandVisibility::Everyone), commands(CommandVisibility::Admins));
        assert!(are_registered(&everyone, &there));
        assert!(!are_registered(&everyone, &there[1..]));
        assert!(!are_registered(&admins, &there));
        let hide = |command: &Value| {
            let mut command = command.clone();
            command["default_member_permissions"] = "0".into();
            command
        };
        let hidden: Vec<Value> = there.iter().map(hide).collect();
        assert!(are_registered(&admins, &hidden));
        let mut other = there.clone();
        other[0]["description"] = "something else".into();
        assert!(!are_registered(&everyone, &other));
        let mut looser = there.clone();
        looser[5]["options"][0]["required"] = false.into();
        assert!(!are_registered(&everyone, &looser));
        let mut more = there;
        more.push(json!({
            "type": 1, "name": "old", "description": "old", "id": "1", "version": "1", "default_member_permissions": null
        }));
        assert!(!are_registered(&everyone, &more));
    }
}
