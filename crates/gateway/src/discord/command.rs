//! The commands people find when they type a slash.

use serde::Deserialize;
use serde_json::{Value, json};

use super::Account;
use super::payload::{each, lenient};
use super::rest::{Call, Fault};
use super::settings::{CommandSync, Sight};

/// A command as it should be registered.
struct Wanted {
    name: &'static str,
    about: &'static str,
    takes: Option<Takes>,
}

/// A command as it is registered. What cannot be read of it is not as it should be.
#[derive(Debug, Deserialize)]
struct There {
    #[serde(default, deserialize_with = "lenient")]
    name: String,
    #[serde(default, deserialize_with = "lenient")]
    description: String,
    #[serde(default, deserialize_with = "each")]
    options: Vec<Taken>,
    #[serde(default, deserialize_with = "lenient")]
    default_member_permissions: Option<String>,
}

#[derive(Debug, PartialEq, Eq, Deserialize)]
struct Taken {
    #[serde(rename = "type")]
    kind: u8,
    name: String,
    description: String,
    #[serde(default)]
    required: bool,
}

/// The platform's number for an option that is a text.
const TEXT: u8 = 3;

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
            let there: Vec<There> = account.rest.ask_patiently(&Call::get(&path)).await?;
            if is_registered(&there, sight) {
                return Ok(());
            }
        }
        CommandSync::Bulk => {}
    }
    let all: Vec<Value> = COMMANDS.iter().map(|wanted| wanted.json(sight)).collect();
    account.rest.insist(&Call::new(reqwest::Method::PUT, path).with_body(Value::Array(all))).await
}

impl Wanted {
    fn json(&self, sight: Sight) -> Value {
        let options: Vec<Value> = self
            .takes
            .iter()
            .map(|takes| {
                json!({"type": TEXT, "name": takes.name, "description": takes.about, "required": takes.needed})
            })
            .collect();
        let mut json = json!({"type": 1, "name": self.name, "description": self.about, "options": options});
        if sight == Sight::Admins {
            json["default_member_permissions"] = "0".into();
        }
        json
    }

    fn is(&self, there: &There, sight: Sight) -> bool {
        let wanted = self.takes.iter().map(|takes| Taken {
            kind: TEXT,
            name: takes.name.to_owned(),
            description: takes.about.to_owned(),
            required: takes.needed,
        });
        let seen = match there.default_member_permissions.as_deref() {
            Some("0") => Sight::Admins,
            _ => Sight::Everybody,
        };
        there.name == self.name
            && there.description == self.about
            && wanted.collect::<Vec<_>>() == there.options
            && seen == sight
    }
}

/// Whether these are all the commands there should be, and no others.
fn is_registered(there: &[There], sight: Sight) -> bool {
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

    fn parsed(there: &[Value]) -> Vec<There> {
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
}
