//! The commands people find when they type a slash.

use serde_json::{Value, json};
use twilight_model::application::command::{Command, CommandOptionType};
use twilight_model::application::interaction::application_command::{CommandData, CommandOptionValue};

use super::Account;
use super::rest::{Call, Fault};
use super::settings::{CommandSync, Sight};

/// A command as it should be registered.
struct Wanted {
    name: &'static str,
    about: &'static str,
    takes: Option<Takes>,
}

/// What comes after a command.
struct Takes {
    name: &'static str,
    about: &'static str,
    needed: bool,
}

const fn plain(name: &'static str, about: &'static str) -> Wanted {
    Wanted { name, about, takes: None }
}

const fn with(name: &'static str, about: &'static str, what: &'static str, which: &'static str) -> Wanted {
    Wanted { name, about, takes: Some(Takes { name: what, about: which, needed: false }) }
}

const fn needs(name: &'static str, about: &'static str, what: &'static str, which: &'static str) -> Wanted {
    Wanted { name, about, takes: Some(Takes { name: what, about: which, needed: true }) }
}

const COMMANDS: [Wanted; 18] = [
    with("new", "Start a new conversation", "name", "What to call it"),
    with("stop", "Stop what is being done", "what", "all for what is done in the background too"),
    plain("status", "Show what is going on here"),
    with("approve", "Allow what was asked about", "scope", "once, session, always or all"),
    with("deny", "Refuse what was asked about", "scope", "all, or nothing for the oldest question"),
    needs("queue", "Say something for after the current turn", "text", "What to say"),
    needs("steer", "Say something into the current turn", "text", "What to say"),
    plain("retry", "Ask the last question again"),
    with("undo", "Take back what was said last", "turns", "How many turns"),
    with("model", "Show or change the model", "name", "The model"),
    plain("usage", "Show what this conversation used"),
    plain("help", "Show what can be done"),
    plain("sethome", "Make this the place for messages that belong nowhere else"),
    with("resume", "Go on with an earlier conversation", "name", "Which one"),
    plain("whoami", "Show who you are to the bot"),
    needs("background", "Have something done beside the conversation", "text", "What to do"),
    plain("yolo", "Ask no questions in this conversation, or ask again"),
    plain("restart", "Start the bot anew"),
];

/// Registers the commands as the owner wants them registered.
pub(super) async fn register(account: &Account) -> Result<(), Fault> {
    let Some(me) = account.me() else { return Ok(()) };
    let path = format!("applications/{}/commands", me.application);
    let sight = account.settings.commands_seen_by;
    match account.settings.command_sync {
        CommandSync::Off => return Ok(()),
        CommandSync::Safe => {
            let there: Vec<Command> = account.rest.ask(&Call::get(&path)).await?;
            if is_registered(&there, sight) {
                return Ok(());
            }
        }
        CommandSync::Bulk => {}
    }
    let all: Vec<Value> = COMMANDS.iter().map(|wanted| wanted.json(sight)).collect();
    account.rest.insist(&Call::new(reqwest::Method::PUT, path).with_body(Value::Array(all))).await
}

/// What somebody would have typed.
pub(super) fn typed(data: &CommandData) -> String {
    let words = data.options.iter().filter_map(|option| match &option.value {
        CommandOptionValue::String(text) => Some(text.trim().to_owned()),
        CommandOptionValue::Integer(number) => Some(number.to_string()),
        CommandOptionValue::Number(number) => Some(number.to_string()),
        CommandOptionValue::Boolean(is_so) => Some(is_so.to_string()),
        _ => None,
    });
    let words: Vec<String> = words.filter(|word| !word.is_empty()).collect();
    format!("/{} {}", data.name, words.join(" ")).trim_end().to_owned()
}

impl Wanted {
    fn json(&self, sight: Sight) -> Value {
        let options: Vec<Value> = self
            .takes
            .iter()
            .map(|takes| {
                json!({"type": CommandOptionType::String, "name": takes.name, "description": takes.about, "required": takes.needed})
            })
            .collect();
        let mut json = json!({"type": 1, "name": self.name, "description": self.about, "options": options});
        if sight == Sight::Admins {
            json["default_member_permissions"] = "0".into();
        }
        json
    }

    fn is(&self, there: &Command, sight: Sight) -> bool {
        let options: Vec<_> = there
            .options
            .iter()
            .map(|option| {
                let needed = option.required.unwrap_or_default();
                (option.name.as_str(), option.description.as_str(), needed, option.kind)
            })
            .collect();
        let wanted: Vec<_> = self
            .takes
            .iter()
            .map(|takes| (takes.name, takes.about, takes.needed, CommandOptionType::String))
            .collect();
        let seen = match there.default_member_permissions {
            Some(permissions) if permissions.is_empty() => Sight::Admins,
            _ => Sight::Everybody,
        };
        there.name == self.name && there.description == self.about && options == wanted && seen == sight
    }
}

/// Whether these are all the commands there should be, and no others.
fn is_registered(there: &[Command], sight: Sight) -> bool {
    there.len() == COMMANDS.len()
        && COMMANDS.iter().all(|wanted| there.iter().any(|command| wanted.is(command, sight)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As the platform gives them back.
    fn registered() -> Vec<Value> {
        let complete = |(number, wanted): (usize, &Wanted)| {
            let mut command = wanted.json(Sight::Everybody);
            command["id"] = (1000 + number).to_string().into();
            command["version"] = "1".into();
            command["default_member_permissions"] = Value::Null;
            command
        };
        COMMANDS.iter().enumerate().map(complete).collect()
    }

    fn parsed(there: &[Value]) -> Vec<Command> {
        there.iter().map(|command| serde_json::from_value(command.clone()).unwrap()).collect()
    }

    #[test]
    fn commands_are_compared_whole() {
        let there = registered();
        assert!(is_registered(&parsed(&there), Sight::Everybody));
        assert!(!is_registered(&parsed(&there[1..]), Sight::Everybody));
        assert!(!is_registered(&parsed(&there), Sight::Admins));
        let hide = |command: &Value| {
            let mut command = command.clone();
            command["default_member_permissions"] = "0".into();
            command
        };
        let hidden: Vec<Value> = there.iter().map(hide).collect();
        assert!(is_registered(&parsed(&hidden), Sight::Admins));
        let mut other = there.clone();
        other[0]["description"] = "something else".into();
        assert!(!is_registered(&parsed(&other), Sight::Everybody));
        let mut looser = there.clone();
        looser[5]["options"][0]["required"] = false.into();
        assert!(!is_registered(&parsed(&looser), Sight::Everybody));
        let mut more = there;
        more.push(json!({
            "type": 1, "name": "old", "description": "old", "id": "1", "version": "1", "default_member_permissions": null
        }));
        assert!(!is_registered(&parsed(&more), Sight::Everybody));
    }

    #[test]
    fn a_command_reads_as_if_it_had_been_typed() {
        let data = |options: Value| -> CommandData {
            serde_json::from_value(json!({"id": "1", "name": "undo", "type": 1, "options": options})).unwrap()
        };
        assert_eq!(typed(&data(json!([]))), "/undo");
        assert_eq!(typed(&data(json!([{"name": "turns", "type": 3, "value": " 2 "}]))), "/undo 2");
        assert_eq!(typed(&data(json!([{"name": "turns", "type": 4, "value": 3}]))), "/undo 3");
    }
}
