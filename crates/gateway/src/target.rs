//! Targets of unsolicited messages: parsing and resolving.

use std::str::FromStr;

use hermes_store::NewOutboxRow;
use hermes_types::SessionKey;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::channel::OutboundMessage;
use crate::frontend::outbox_part;
use crate::message::Platform;
use crate::split::split_message;

/// Where to send an unsolicited message, as users write it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DeliveryTarget {
    /// `origin`: the chat in which the request was made.
    Origin,
    /// `local`: no chat.
    Local,
    /// `discord`: the platform's home channel.
    Home(Platform),
    /// `discord:123` or `discord:123:456`: a chat, or a thread.
    Chat(ChatAddress),
    /// `all`: every home channel.
    All,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ChatAddress {
    pub platform: Platform,
    pub chat: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum TargetError {
    #[error("unknown target `{0}`: use origin, local, all, {known} or PLATFORM:CHAT[:THREAD]", known = Platform::ALL.map(Platform::as_str).join(", "))]
    Unknown(String),
    #[error("invalid {} chat `{chat}`: expected a numeric id", platform.as_str())]
    InvalidChat { platform: Platform, chat: String },
    #[error("{} has no home channel; {}", platform.as_str(), known_homes(known))]
    NoHome { platform: Platform, known: Vec<Platform> },
    #[error("no platform has a home channel")]
    NoHomes,
    #[error("`origin` is only known in a chat")]
    NoOrigin,
}

impl FromStr for DeliveryTarget {
    type Err = TargetError;

    fn from_str(word: &str) -> Result<Self, TargetError> {
        let unknown = || TargetError::Unknown(word.to_owned());
        let (name, rest) = word.split_once(':').map_or((word, None), |(name, rest)| (name, Some(rest)));
        let name = name.trim().to_lowercase();
        match (name.as_str(), rest) {
            ("origin", None) => return Ok(Self::Origin),
            ("local", None) => return Ok(Self::Local),
            ("all", None) => return Ok(Self::All),
            _ => {}
        }
        let platform = Platform::from_name(&name).ok_or_else(unknown)?;
        let Some(rest) = rest else { return Ok(Self::Home(platform)) };
        let (chat, thread) = rest.split_once(':').map_or((rest, None), |(chat, thread)| (chat, Some(thread)));
        if let Some(chat) = [Some(chat), thread].into_iter().flatten().find(|chat| !platform.is_chat_id(chat))
        {
            return Err(TargetError::InvalidChat { platform, chat: chat.to_owned() });
        }
        Ok(Self::Chat(ChatAddress::new(platform, chat, thread)))
    }
}

impl DeliveryTarget {
    /// Resolves to chats. Empty for `local`.
    pub fn resolve(
        &self,
        origin: Option<&ChatAddress>,
        homes: &[ChatAddress],
    ) -> Result<Vec<ChatAddress>, TargetError> {
        Ok(match self {
            Self::Local => Vec::new(),
            Self::Origin => vec![origin.cloned().ok_or(TargetError::NoOrigin)?],
            Self::Chat(address) => vec![address.clone()],
            Self::Home(platform) => {
                let home = homes.iter().find(|home| home.platform == *platform).cloned();
                let known = || homes.iter().map(|home| home.platform).collect();
                vec![home.ok_or_else(|| TargetError::NoHome { platform: *platform, known: known() })?]
            }
            Self::All if homes.is_empty() => return Err(TargetError::NoHomes),
            Self::All => homes.to_vec(),
        })
    }
}

impl ChatAddress {
    /// A chat or thread; a thread is sent to like a chat.
    pub fn new(platform: Platform, chat: &str, thread: Option<&str>) -> Self {
        let thread = thread.filter(|thread| !thread.is_empty());
        Self { platform, chat: thread.unwrap_or(chat).to_owned() }
    }

    /// Splits a text into outbox parts. Parts with the same `key` are sent once.
    pub fn outbox_parts(&self, text: &str, key: &str) -> Vec<NewOutboxRow> {
        let texts = split_message(text, &self.platform.capabilities());
        // Belongs to no session.
        let session = SessionKey::new(String::new());
        let part = |(number, text): (usize, String)| {
            let continues = (number > 0).then(|| format!("{key}:0"));
            let outbound = OutboundMessage { continues, ..OutboundMessage::text(text) };
            outbox_part(self.platform, &session, &self.chat, Some(format!("{key}:{number}")), &outbound)
        };
        texts.into_iter().enumerate().map(part).collect()
    }
}

fn known_homes(known: &[Platform]) -> String {
    match known {
        [] => "no other platform has one either".to_owned(),
        known => {
            let words: Vec<&str> = known.iter().map(|platform| platform.as_str()).collect();
            format!("platforms with one: {}", words.join(", "))
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn discord(chat: &str) -> ChatAddress {
        ChatAddress { platform: Platform::Discord, chat: chat.to_owned() }
    }

    #[test]
    fn targets_are_parsed() {
        let unknown = |word: &str| Err(TargetError::Unknown(word.to_owned()));
        let no_chat =
            |chat: &str| Err(TargetError::InvalidChat { platform: Platform::Discord, chat: chat.to_owned() });
        let cases = [
            ("origin", Ok(DeliveryTarget::Origin)),
            ("local", Ok(DeliveryTarget::Local)),
            ("all", Ok(DeliveryTarget::All)),
            ("discord", Ok(DeliveryTarget::Home(Platform::Discord))),
            ("Discord", Ok(DeliveryTarget::Home(Platform::Discord))),
            ("discord:42", Ok(DeliveryTarget::Chat(discord("42")))),
            ("discord:42:7", Ok(DeliveryTarget::Chat(discord("7")))),
            ("discord:", no_chat("")),
            ("discord:#ops", no_chat("#ops")),
            ("discord:42:x", no_chat("x")),
            ("discord:42:7:9", no_chat("7:9")),
            ("", unknown("")),
            ("pigeon", unknown("pigeon")),
            ("pigeon:42", unknown("pigeon:42")),
            ("local:42", unknown("local:42")),
        ];
        for (word, expected) in cases {
            assert_eq!(word.parse::<DeliveryTarget>(), expected, "{word}");
        }
        let error = "pigeon".parse::<DeliveryTarget>().unwrap_err().to_string();
        assert!(error.contains("unknown target `pigeon`") && error.contains("discord"), "{error}");
    }

    #[test]
    fn a_missing_home_channel_is_an_error() {
        let homes = [discord("42")];
        let home = DeliveryTarget::Home(Platform::Discord);
        assert_eq!(home.resolve(None, &homes), Ok(vec![discord("42")]));
        let none = home.resolve(None, &[]).unwrap_err();
        assert_eq!(none.to_string(), "discord has no home channel; no other platform has one either");
        assert_eq!(DeliveryTarget::All.resolve(None, &homes), Ok(vec![discord("42")]));
        assert_eq!(DeliveryTarget::All.resolve(None, &[]), Err(TargetError::NoHomes));
        assert_eq!(DeliveryTarget::Origin.resolve(None, &homes), Err(TargetError::NoOrigin));
        assert_eq!(DeliveryTarget::Origin.resolve(Some(&discord("9")), &homes), Ok(vec![discord("9")]));
        assert_eq!(DeliveryTarget::Local.resolve(None, &homes), Ok(Vec::new()));
    }

    #[test]
    fn a_long_text_is_split_into_unique_parts() {
        let parts = discord("42").outbox_parts(&"word ".repeat(900), "m");
        let keys: Vec<_> = parts.iter().map(|part| part.dedup_key.clone().unwrap()).collect();
        assert_eq!(keys, ["m:0", "m:1", "m:2"]);
        assert!(parts.iter().all(|part| part.chat == "42" && part.platform == "discord"));
        let after: Vec<_> = parts.iter().map(|part| part.body["after"].clone()).collect();
        assert_eq!(after, [json!(null), json!("m:0"), json!("m:0")]);
    }
}
