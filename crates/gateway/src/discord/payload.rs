//! What Discord says, as far as it matters here.
//!
//! Somebody wrote a message even where one of its many parts is missing or of a shape that nobody heard of yet. So only what
//! nothing can be done without has to be there, and of the rest what cannot be read counts as not said. It is different with
//! the server: whatever is not surely a direct message must not be taken for one.

use hermes_types::Timestamp;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use twilight_model::channel::message::MessageType;
use twilight_model::id::Id;
use twilight_model::id::marker::{
    ApplicationMarker, ChannelMarker, GenericMarker, GuildMarker, InteractionMarker, MessageMarker,
    RoleMarker, UserMarker,
};

use super::places::Known;
use super::post::made_at;

/// A new session.
#[derive(Debug, Deserialize)]
pub(super) struct Ready {
    pub(super) user: Named<UserMarker>,
    #[serde(default, deserialize_with = "lenient")]
    pub(super) application: Option<Named<ApplicationMarker>>,
    #[serde(default, deserialize_with = "each")]
    pub(super) guilds: Vec<Named<GuildMarker>>,
    pub(super) session_id: String,
    #[serde(default)]
    pub(super) resume_gateway_url: Option<String>,
}

/// Something of which only the name matters.
#[derive(Debug, Clone, Deserialize)]
#[serde(bound = "")]
pub(super) struct Named<T> {
    pub(super) id: Id<T>,
}

/// What somebody wrote.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Message {
    pub(super) id: Id<MessageMarker>,
    pub(super) channel_id: Id<ChannelMarker>,
    #[serde(default)]
    pub(super) guild_id: Option<Id<GuildMarker>>,
    pub(super) author: User,
    #[serde(default, deserialize_with = "lenient")]
    pub(super) member: Option<Member>,
    #[serde(default)]
    webhook_id: Option<IgnoredAny>,
    #[serde(default = "regular", rename = "type")]
    pub(super) kind: MessageType,
    #[serde(default, deserialize_with = "lenient")]
    pub(super) content: String,
    #[serde(default, deserialize_with = "lenient")]
    timestamp: Option<String>,
    #[serde(default, deserialize_with = "lenient")]
    pub(super) nonce: Option<String>,
    #[serde(default, deserialize_with = "each")]
    pub(super) mentions: Vec<User>,
    #[serde(default, deserialize_with = "each")]
    pub(super) attachments: Vec<File>,
    #[serde(default, deserialize_with = "lenient")]
    pub(super) referenced_message: Option<Box<Message>>,
    #[serde(default, deserialize_with = "each")]
    message_snapshots: Vec<Snapshot>,
}

/// A message that was forwarded with another one.
#[derive(Debug, Clone, Deserialize)]
struct Snapshot {
    message: Forwarded,
}

#[derive(Debug, Clone, Deserialize)]
pub(super) struct Forwarded {
    #[serde(default, deserialize_with = "lenient")]
    pub(super) content: String,
    #[serde(default, deserialize_with = "each")]
    pub(super) attachments: Vec<File>,
}

/// Somebody.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct User {
    pub(super) id: Id<UserMarker>,
    #[serde(default, deserialize_with = "lenient")]
    username: String,
    #[serde(default, deserialize_with = "lenient")]
    global_name: Option<String>,
    #[serde(default, deserialize_with = "lenient")]
    pub(super) bot: bool,
}

/// Somebody in a server.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Member {
    #[serde(default, deserialize_with = "lenient")]
    nick: Option<String>,
    #[serde(default, deserialize_with = "each")]
    roles: Vec<Id<RoleMarker>>,
    /// Only where nobody else says who it is.
    #[serde(default, deserialize_with = "lenient")]
    user: Option<User>,
}

/// A file that came with a message.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct File {
    pub(super) url: String,
    #[serde(default, deserialize_with = "lenient")]
    pub(super) filename: Option<String>,
    #[serde(default, deserialize_with = "lenient")]
    pub(super) size: u64,
    #[serde(default, deserialize_with = "lenient")]
    pub(super) content_type: Option<String>,
}

/// A command that was called or a button that was pressed.
#[derive(Debug, Deserialize)]
pub(super) struct Interaction {
    pub(super) id: Id<InteractionMarker>,
    pub(super) token: String,
    #[serde(rename = "type")]
    kind: u8,
    /// Where: 0 is a server, 1 the bot's own direct message, 2 somewhere else.
    #[serde(default, deserialize_with = "lenient")]
    context: Option<u8>,
    #[serde(default, deserialize_with = "lenient")]
    channel: Option<Known>,
    #[serde(default)]
    channel_id: Option<Id<ChannelMarker>>,
    #[serde(default)]
    pub(super) guild_id: Option<Id<GuildMarker>>,
    #[serde(default, deserialize_with = "lenient")]
    pub(super) member: Option<Member>,
    #[serde(default, deserialize_with = "lenient")]
    user: Option<User>,
    #[serde(default, deserialize_with = "lenient")]
    message: Option<Named<MessageMarker>>,
    #[serde(default, deserialize_with = "lenient")]
    data: Data,
}

#[derive(Debug, Default, Deserialize)]
struct Data {
    #[serde(default, deserialize_with = "lenient")]
    name: Option<String>,
    #[serde(default, deserialize_with = "each")]
    options: Vec<Chosen>,
    #[serde(default, deserialize_with = "lenient")]
    custom_id: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Chosen {
    value: Value,
}

/// What somebody did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Deed {
    /// They called a command; as they would have typed it.
    Called(String),
    /// They pressed a button of a message.
    Pressed { message: Id<MessageMarker>, value: String },
}

impl Message {
    /// When it was written.
    pub(super) fn sent(&self) -> Timestamp {
        let told = self.timestamp.as_deref().and_then(|text| chrono::DateTime::parse_from_rfc3339(text).ok());
        let told = told.and_then(|time| u64::try_from(time.timestamp()).ok()).map(Timestamp::from_seconds);
        told.unwrap_or_else(|| made_at(self.id.get()))
    }

    /// Whether a program wrote it that is nobody's account.
    pub(super) fn is_hook(&self) -> bool {
        self.webhook_id.is_some()
    }

    /// What was forwarded with it.
    pub(super) fn forwarded(&self) -> impl Iterator<Item = &Forwarded> + Clone {
        self.message_snapshots.iter().map(|snapshot| &snapshot.message)
    }
}

impl User {
    /// How they are called.
    pub(super) fn name(&self, member: Option<&Member>) -> String {
        let nick = member.and_then(|member| member.nick.clone());
        nick.or_else(|| self.global_name.clone()).unwrap_or_else(|| self.username.clone())
    }
}

impl Member {
    pub(super) fn roles(&self) -> Vec<String> {
        self.roles.iter().map(Id::to_string).collect()
    }
}

impl Interaction {
    /// Who did it.
    pub(super) fn author(&self) -> Option<&User> {
        self.member.as_ref().and_then(|member| member.user.as_ref()).or(self.user.as_ref())
    }

    /// Whether it was done among others where the bot itself is not.
    pub(super) fn is_elsewhere(&self) -> bool {
        self.context.is_some_and(|context| context > 1)
    }

    /// The channel, as far as it was told of.
    pub(super) fn channel(&self) -> Option<&Known> {
        self.channel.as_ref()
    }

    /// The name of the channel.
    pub(super) fn channel_id(&self) -> Option<Id<ChannelMarker>> {
        self.channel.as_ref().map(Known::id).or(self.channel_id)
    }

    /// What they did, if it is of a kind that the bot offers.
    pub(super) fn deed(&self) -> Option<Deed> {
        match self.kind {
            2 => Some(Deed::Called(self.typed()?)),
            3 => Some(Deed::Pressed {
                message: self.message.as_ref()?.id,
                value: self.data.custom_id.clone()?,
            }),
            _ => None,
        }
    }

    /// What they would have typed.
    fn typed(&self) -> Option<String> {
        let words = self.data.options.iter().filter_map(|option| match &option.value {
            Value::String(text) => Some(text.trim().to_owned()),
            Value::Number(number) => Some(number.to_string()),
            Value::Bool(is_so) => Some(is_so.to_string()),
            _ => None,
        });
        let words: Vec<String> = words.filter(|word| !word.is_empty()).collect();
        Some(format!("/{} {}", self.data.name.as_ref()?, words.join(" ")).trim_end().to_owned())
    }
}

fn regular() -> MessageType {
    MessageType::Regular
}

/// What cannot be read was not said.
pub(super) fn lenient<'de, D: Deserializer<'de>, T: DeserializeOwned + Default>(
    from: D,
) -> Result<T, D::Error> {
    Ok(serde_json::from_value(Value::deserialize(from)?).unwrap_or_default())
}

/// Those of a list that can be read.
pub(super) fn each<'de, D: Deserializer<'de>, T: DeserializeOwned>(from: D) -> Result<Vec<T>, D::Error> {
    let Value::Array(all) = Value::deserialize(from)? else { return Ok(Vec::new()) };
    Ok(all.into_iter().filter_map(|one| serde_json::from_value(one).ok()).collect())
}

/// The name of something that was made.
pub(super) type Made = Named<GenericMarker>;

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn called(data: &Value) -> Option<Deed> {
        let call = json!({"id": "7", "token": "t", "type": 2, "data": data});
        serde_json::from_value::<Interaction>(call).unwrap().deed()
    }

    #[test]
    fn a_command_reads_as_if_it_had_been_typed() {
        let undo =
            |options: Value| called(&json!({"id": "1", "name": "undo", "type": 1, "options": options}));
        let typed = |text: &str| Some(Deed::Called(text.to_owned()));
        assert_eq!(undo(json!([])), typed("/undo"));
        assert_eq!(undo(Value::Null), typed("/undo"));
        assert_eq!(undo(json!([{"name": "turns", "type": 3, "value": " 2 "}])), typed("/undo 2"));
        assert_eq!(undo(json!([{"name": "turns", "type": 4, "value": 3}])), typed("/undo 3"));
        assert_eq!(called(&Value::Null), None);
    }

    #[test]
    fn the_bot_is_not_at_home_in_direct_messages_of_others() {
        let is_elsewhere = |context: Value| {
            let call = json!({"id": "7", "token": "t", "type": 2, "context": context});
            serde_json::from_value::<Interaction>(call).unwrap().is_elsewhere()
        };
        let cases = [json!(null), json!(0), json!(1), json!(2), json!(3)];
        assert_eq!(cases.map(is_elsewhere), [false, false, false, true, true]);
    }

    #[test]
    fn a_message_is_read_whatever_is_missing_or_new() {
        let least = json!({"id": "7", "channel_id": "8", "author": {"id": "9"}});
        let read = |change: Value| {
            let mut message = least.clone();
            for (name, value) in change.as_object().unwrap() {
                message[name] = value.clone();
            }
            serde_json::from_value::<Message>(message)
        };
        let message = read(json!({})).unwrap();
        assert_eq!(
            (message.kind, message.content.as_str(), message.guild_id),
            (MessageType::Regular, "", None)
        );
        let message = read(json!({
            "id": 7, "type": 0, "timestamp": "2023-11-14T22:13:20.000000+00:00", "content": "hello", "nonce": 5,
            "mentions": [{"id": "1", "username": "a"}, {"what": "is this"}], "member": {"roles": ["3"], "nick": null},
            "attachments": [{"url": "http://x/y"}, {"id": "4"}], "referenced_message": {"id": "6"},
            "components": [{"type": 99}], "message_snapshots": null, "poll": {"answers": 5}, "webhook_id": null,
        }));
        let message = message.unwrap();
        assert_eq!(message.sent(), Timestamp::from_seconds(1_700_000_000));
        assert_eq!(
            (message.content.as_str(), message.mentions.len(), message.attachments.len()),
            ("hello", 1, 1)
        );
        assert_eq!(message.member.unwrap().roles(), ["3"]);
        assert!(
            message.referenced_message.is_none() && message.webhook_id.is_none() && message.nonce.is_none()
        );
        // What is not surely a direct message is none.
        assert!(read(json!({"guild_id": {"id": "5"}})).is_err());
        assert!(read(json!({"author": null})).is_err());
    }
}
