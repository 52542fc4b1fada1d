//! Gateway and API payloads, as far as they are used.
//!
//! A message must not be lost because one of its many fields is missing or has a new shape. So only
//! essential fields are required, and of the others an unreadable value counts as absent. The
//! server id is an exception: nothing may be taken for a direct message by mistake.

use hermes_types::Timestamp;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use twilight_model::channel::message::MessageType;
use twilight_model::id::Id;
use twilight_model::id::marker::{
    ApplicationMarker, ChannelMarker, GenericMarker, GuildMarker, InteractionMarker, MessageMarker,
    UserMarker,
};

use super::channels::ChannelInfo;
use super::outbound::created_at;
use crate::message::{Attachment, Sender};

#[derive(Debug, Deserialize)]
pub(super) struct ReadyPayload {
    pub(super) user: WithId<UserMarker>,
    #[serde(default, deserialize_with = "lenient")]
    pub(super) application: Option<WithId<ApplicationMarker>>,
    #[serde(default, deserialize_with = "lenient_list")]
    pub(super) guilds: Vec<WithId<GuildMarker>>,
    pub(super) session_id: String,
    pub(super) resume_gateway_url: Option<String>,
}

/// An object of which only the id is needed.
#[derive(Debug, Clone, Deserialize)]
#[serde(bound = "")]
pub(super) struct WithId<T> {
    pub(super) id: Id<T>,
}

#[derive(Debug, Clone, Deserialize)]
pub(super) struct MessagePayload {
    pub(super) id: Id<MessageMarker>,
    pub(super) channel_id: Id<ChannelMarker>,
    pub(super) guild_id: Option<Id<GuildMarker>>,
    pub(super) author: UserPayload,
    #[serde(default, deserialize_with = "lenient")]
    pub(super) member: Option<MemberPayload>,
    webhook_id: Option<IgnoredAny>,
    #[serde(default = "regular_type", rename = "type")]
    pub(super) kind: MessageType,
    #[serde(default, deserialize_with = "lenient")]
    pub(super) content: String,
    #[serde(default, deserialize_with = "lenient")]
    timestamp: Option<twilight_model::util::Timestamp>,
    #[serde(default, deserialize_with = "lenient")]
    pub(super) nonce: Option<String>,
    #[serde(default, deserialize_with = "lenient_list")]
    pub(super) mentions: Vec<UserPayload>,
    #[serde(default, deserialize_with = "lenient_list")]
    pub(super) attachments: Vec<AttachmentPayload>,
    #[serde(default, deserialize_with = "lenient")]
    pub(super) referenced_message: Option<Box<MessagePayload>>,
    #[serde(default, deserialize_with = "lenient_list")]
    message_snapshots: Vec<Snapshot>,
}

#[derive(Debug, Clone, Deserialize)]
struct Snapshot {
    message: ForwardedMessage,
}

#[derive(Debug, Clone, Deserialize)]
pub(super) struct ForwardedMessage {
    #[serde(default, deserialize_with = "lenient")]
    pub(super) content: String,
    #[serde(default, deserialize_with = "lenient_list")]
    pub(super) attachments: Vec<AttachmentPayload>,
}

#[derive(Debug, Clone, Deserialize)]
pub(super) struct UserPayload {
    pub(super) id: Id<UserMarker>,
    #[serde(default, deserialize_with = "lenient")]
    username: String,
    #[serde(default, deserialize_with = "lenient")]
    global_name: Option<String>,
    #[serde(default, deserialize_with = "lenient")]
    pub(super) bot: bool,
}

#[derive(Debug, Clone, Default, Deserialize)]
pub(super) struct MemberPayload {
    #[serde(default, deserialize_with = "lenient")]
    nick: Option<String>,
    #[serde(default, deserialize_with = "lenient_list")]
    pub(super) roles: Vec<String>,
    #[serde(default, deserialize_with = "lenient")]
    user: Option<UserPayload>,
}

#[derive(Debug, Clone, Deserialize)]
pub(super) struct AttachmentPayload {
    url: String,
    #[serde(default, deserialize_with = "lenient")]
    filename: Option<String>,
    #[serde(default, deserialize_with = "lenient")]
    pub(super) size: u64,
    #[serde(default, deserialize_with = "lenient")]
    content_type: Option<String>,
}

/// A slash command or button press.
#[derive(Debug, Deserialize)]
pub(super) struct InteractionPayload {
    pub(super) id: Id<InteractionMarker>,
    pub(super) token: String,
    #[serde(rename = "type")]
    kind: u8,
    /// 0: a server, 1: the bot's direct messages, 2: elsewhere.
    #[serde(default, deserialize_with = "lenient")]
    context: Option<u8>,
    #[serde(default, deserialize_with = "lenient")]
    pub(super) channel: Option<ChannelInfo>,
    channel_id: Option<Id<ChannelMarker>>,
    pub(super) guild_id: Option<Id<GuildMarker>>,
    #[serde(default, deserialize_with = "lenient")]
    member: Option<MemberPayload>,
    #[serde(default, deserialize_with = "lenient")]
    user: Option<UserPayload>,
    #[serde(default, deserialize_with = "lenient")]
    data: InteractionData,
}

#[derive(Debug, Default, Deserialize)]
struct InteractionData {
    #[serde(default, deserialize_with = "lenient")]
    name: Option<String>,
    #[serde(default, deserialize_with = "lenient_list")]
    options: Vec<OptionValue>,
    #[serde(default, deserialize_with = "lenient")]
    custom_id: Option<String>,
}

#[derive(Debug, Deserialize)]
struct OptionValue {
    value: Value,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum InteractionAction {
    /// A command, as the user would have typed it.
    Command(String),
    /// A press of the button with this value.
    Button(String),
}

impl MessagePayload {
    pub(super) fn sent_at(&self) -> Timestamp {
        let seconds = self.timestamp.and_then(|time| u64::try_from(time.as_secs()).ok());
        seconds.map_or_else(|| created_at(self.id.get()), Timestamp::from_seconds)
    }

    pub(super) fn is_by(&self, user: &str) -> bool {
        self.author.id.to_string() == user
    }

    pub(super) fn is_bot(&self) -> bool {
        self.author.bot || self.webhook_id.is_some()
    }

    pub(super) fn with_roles(self, roles: Vec<String>) -> Self {
        Self { member: Some(MemberPayload { roles, ..self.member.unwrap_or_default() }), ..self }
    }

    pub(super) fn sender(&self) -> Sender {
        Sender { is_bot: self.is_bot(), ..self.author.to_sender(self.member.as_ref()) }
    }

    pub(super) fn forwarded(&self) -> impl Iterator<Item = &ForwardedMessage> + Clone {
        self.message_snapshots.iter().map(|snapshot| &snapshot.message)
    }
}

impl UserPayload {
    fn to_sender(&self, member: Option<&MemberPayload>) -> Sender {
        let nick = member.and_then(|member| member.nick.clone());
        Sender {
            id: self.id.to_string(),
            name: nick.or_else(|| self.global_name.clone()).unwrap_or_else(|| self.username.clone()),
            is_bot: self.bot,
            roles: member.map(|member| member.roles.clone()).unwrap_or_default(),
        }
    }
}

impl AttachmentPayload {
    pub(super) fn to_attachment(&self) -> Attachment {
        Attachment {
            name: self.filename.clone().unwrap_or_else(|| "file".to_owned()),
            size: self.size,
            media_type: self.content_type.clone(),
            source: self.url.clone(),
        }
    }
}

impl InteractionPayload {
    pub(super) fn sender(&self) -> Option<Sender> {
        let member = self.member.as_ref();
        let author = member.and_then(|member| member.user.as_ref()).or(self.user.as_ref())?;
        Some(author.to_sender(member))
    }

    /// Whether it comes from a chat where the bot is not a member.
    pub(super) fn is_foreign_context(&self) -> bool {
        self.context.is_some_and(|context| context > 1)
    }

    pub(super) fn channel_id(&self) -> Option<Id<ChannelMarker>> {
        self.channel.as_ref().map(|channel| channel.id).or(self.channel_id)
    }

    /// The action, if it is of a kind that the bot offers.
    pub(super) fn action(&self) -> Option<InteractionAction> {
        match self.kind {
            2 => Some(InteractionAction::Command(self.as_typed()?)),
            3 => Some(InteractionAction::Button(self.data.custom_id.clone()?)),
            _ => None,
        }
    }

    fn as_typed(&self) -> Option<String> {
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

fn regular_type() -> MessageType {
    MessageType::Regular
}

/// Uses the default for a value that cannot be parsed.
pub(super) fn lenient<'de, D: Deserializer<'de>, T: DeserializeOwned + Default>(
    from: D,
) -> Result<T, D::Error> {
    Ok(serde_json::from_value(Value::deserialize(from)?).unwrap_or_default())
}

/// Skips list items that cannot be parsed.
pub(super) fn lenient_list<'de, D: Deserializer<'de>, T: DeserializeOwned>(
    from: D,
) -> Result<Vec<T>, D::Error> {
    let Value::Array(all) = Value::deserialize(from)? else { return Ok(Vec::new()) };
    Ok(all.into_iter().filter_map(|one| serde_json::from_value(one).ok()).collect())
}

pub(super) type CreatedObject = WithId<GenericMarker>;

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn called(data: &Value) -> Option<InteractionAction> {
        let call = json!({"id": "7", "token": "t", "type": 2, "data": data});
        serde_json::from_value::<InteractionPayload>(call).unwrap().action()
    }

    #[test]
    fn a_command_reads_as_if_it_had_been_typed() {
        let undo =
            |options: Value| called(&json!({"id": "1", "name": "undo", "type": 1, "options": options}));
        let typed = |text: &str| Some(InteractionAction::Command(text.to_owned()));
        assert_eq!(undo(json!([])), typed("/undo"));
        assert_eq!(undo(Value::Null), typed("/undo"));
        assert_eq!(undo(json!([{"name": "turns", "type": 3, "value": " 2 "}])), typed("/undo 2"));
        assert_eq!(undo(json!([{"name": "turns", "type": 4, "value": 3}])), typed("/undo 3"));
        assert_eq!(called(&Value::Null), None);
    }

    #[test]
    fn direct_messages_of_others_are_a_foreign_context() {
        let is_elsewhere = |context: Value| {
            let call = json!({"id": "7", "token": "t", "type": 2, "context": context});
            serde_json::from_value::<InteractionPayload>(call).unwrap().is_foreign_context()
        };
        let cases = [json!(null), json!(0), json!(1), json!(2), json!(3)];
        assert_eq!(cases.map(is_elsewhere), [false, false, false, true, true]);
    }

    #[test]
    fn a_message_with_missing_or_unknown_fields_is_parsed() {
        let least = json!({"id": "7", "channel_id": "8", "author": {"id": "9"}});
        let read = |change: Value| {
            let mut message = least.clone();
            for (name, value) in change.as_object().unwrap() {
                message[name] = value.clone();
            }
            serde_json::from_value::<MessagePayload>(message)
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
        assert_eq!(message.sent_at(), Timestamp::from_seconds(1_700_000_000));
        assert_eq!(
            (message.content.as_str(), message.mentions.len(), message.attachments.len()),
            ("hello", 1, 1)
        );
        assert_eq!(message.member.unwrap().roles, ["3"]);
        assert!(
            message.referenced_message.is_none() && message.webhook_id.is_none() && message.nonce.is_none()
        );
        // An unreadable server id must not make it a direct message.
        assert!(read(json!({"guild_id": {"id": "5"}})).is_err());
        assert!(read(json!({"author": null})).is_err());
    }
}
