//! Where something is sent that answers nobody: targets in the words of people, and the chats that are meant.

use std::str::FromStr;

use hermes_store::NewPart;
use hermes_types::SessionKey;
use serde_json::json;
use thiserror::Error;

use crate::channel::Post;
use crate::letter::Platform;
use crate::split::split;

/// A target, as people write it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// `origin`: the chat that it was asked for in.
    Origin,
    /// `local`: no chat; it stays where it is made.
    Local,
    /// `discord`: the home channel of a platform.
    Home(Platform),
    /// `discord:123` or `discord:123:456`: this chat, or this thread of it.
    Chat(Address),
    /// `all`: every home channel.
    All,
}

/// A chat of a platform.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Address {
    /// The platform.
    pub platform: Platform,
    /// What it is called there.
    pub chat: String,
}

/// Why nothing can be sent to a target.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum NoWay {
    /// Nobody knows what is meant.
    #[error("`{0}` is no target; there are origin, local, all, {known}, and `PLATFORM:CHAT[:THREAD]`", known = platforms())]
    Unknown(String),
    /// No chat of the platform can be called so.
    #[error("`{chat}` is no chat of {}: a chat is named by its number", platform.word())]
    NoChat {
        /// The platform.
        platform: Platform,
        /// What it was called.
        chat: String,
    },
    /// The platform has no home channel.
    #[error("{} has no home channel; {}", platform.word(), homes(known))]
    NoHome {
        /// The platform.
        platform: Platform,
        /// Those that have one.
        known: Vec<Platform>,
    },
    /// No platform has a home channel.
    #[error("no platform has a home channel")]
    NoHomes,
    /// Nobody asked for it in a chat.
    #[error("this was not asked for in a chat")]
    NoOrigin,
}

impl FromStr for Target {
    type Err = NoWay;

    fn from_str(word: &str) -> Result<Self, NoWay> {
        let unknown = || NoWay::Unknown(word.to_owned());
        let (name, rest) = word.split_once(':').map_or((word, None), |(name, rest)| (name, Some(rest)));
        let name = name.trim().to_lowercase();
        match (name.as_str(), rest) {
            ("origin", None) => return Ok(Self::Origin),
            ("local", None) => return Ok(Self::Local),
            ("all", None) => return Ok(Self::All),
            _ => {}
        }
        let platform = Platform::from_word(&name).ok_or_else(unknown)?;
        let Some(rest) = rest else { return Ok(Self::Home(platform)) };
        let (chat, thread) = rest.split_once(':').map_or((rest, None), |(chat, thread)| (chat, Some(thread)));
        if let Some(chat) = [Some(chat), thread].into_iter().flatten().find(|chat| !platform.has(chat)) {
            return Err(NoWay::NoChat { platform, chat: chat.to_owned() });
        }
        Ok(Self::Chat(Address::new(platform, chat, thread)))
    }
}

impl Target {
    /// The chats that are meant, where this was asked for in a chat or not, and these are the home channels. None for what
    /// stays where it is made.
    pub fn chats(&self, origin: Option<&Address>, homes: &[Address]) -> Result<Vec<Address>, NoWay> {
        Ok(match self {
            Self::Local => Vec::new(),
            Self::Origin => vec![origin.cloned().ok_or(NoWay::NoOrigin)?],
            Self::Chat(address) => vec![address.clone()],
            Self::Home(platform) => {
                let home = homes.iter().find(|home| home.platform == *platform).cloned();
                let known = || homes.iter().map(|home| home.platform).collect();
                vec![home.ok_or_else(|| NoWay::NoHome { platform: *platform, known: known() })?]
            }
            Self::All if homes.is_empty() => return Err(NoWay::NoHomes),
            Self::All => homes.to_vec(),
        })
    }
}

impl Address {
    /// A chat, or a thread of it. A thread is a chat of its own to those who send there.
    pub fn new(platform: Platform, chat: &str, thread: Option<&str>) -> Self {
        let thread = thread.filter(|thread| !thread.is_empty());
        Self { platform, chat: thread.unwrap_or(chat).to_owned() }
    }

    /// Something to be sent there, in parts as the platform takes them. What has the same mark is sent once.
    pub fn parts(&self, text: &str, mark: &str) -> Vec<NewPart> {
        let texts = split(text, &self.platform.manners());
        let part = |(number, text): (usize, String)| NewPart {
            platform: self.platform.word().to_owned(),
            chat: self.chat.clone(),
            // It belongs to no session.
            key: SessionKey::new(String::new()),
            mark: Some(format!("{mark}:{number}")),
            body: json!(Post { text, after: (number > 0).then(|| format!("{mark}:0")), ..Post::default() }),
        };
        texts.into_iter().enumerate().map(part).collect()
    }
}

fn platforms() -> String {
    Platform::ALL.map(Platform::word).join(", ")
}

fn homes(known: &[Platform]) -> String {
    match known {
        [] => "neither has any other platform".to_owned(),
        known => {
            let words: Vec<&str> = known.iter().map(|platform| platform.word()).collect();
            format!("these have one: {}", words.join(", "))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn discord(chat: &str) -> Address {
        Address { platform: Platform::Discord, chat: chat.to_owned() }
    }

    #[test]
    fn targets_are_read_or_refused() {
        let unknown = |word: &str| Err(NoWay::Unknown(word.to_owned()));
        let no_chat = |chat: &str| Err(NoWay::NoChat { platform: Platform::Discord, chat: chat.to_owned() });
        let cases = [
            ("origin", Ok(Target::Origin)),
            ("local", Ok(Target::Local)),
            ("all", Ok(Target::All)),
            ("discord", Ok(Target::Home(Platform::Discord))),
            ("Discord", Ok(Target::Home(Platform::Discord))),
            ("discord:42", Ok(Target::Chat(discord("42")))),
            ("discord:42:7", Ok(Target::Chat(discord("7")))),
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
            assert_eq!(word.parse::<Target>(), expected, "{word}");
        }
        let said = "pigeon".parse::<Target>().unwrap_err().to_string();
        assert!(said.contains("`pigeon` is no target") && said.contains("discord"), "{said}");
    }

    #[test]
    fn what_has_no_home_is_an_error_and_not_silence() {
        let homes = [discord("42")];
        let home = Target::Home(Platform::Discord);
        assert_eq!(home.chats(None, &homes), Ok(vec![discord("42")]));
        let none = home.chats(None, &[]).unwrap_err();
        assert_eq!(none.to_string(), "discord has no home channel; neither has any other platform");
        assert_eq!(Target::All.chats(None, &homes), Ok(vec![discord("42")]));
        assert_eq!(Target::All.chats(None, &[]), Err(NoWay::NoHomes));
        assert_eq!(Target::Origin.chats(None, &homes), Err(NoWay::NoOrigin));
        assert_eq!(Target::Origin.chats(Some(&discord("9")), &homes), Ok(vec![discord("9")]));
        assert_eq!(Target::Local.chats(None, &homes), Ok(Vec::new()));
    }

    #[test]
    fn long_words_are_sent_in_parts_each_once() {
        let parts = discord("42").parts(&"word ".repeat(900), "m");
        let marks: Vec<_> = parts.iter().map(|part| part.mark.clone().unwrap()).collect();
        assert_eq!(marks, ["m:0", "m:1", "m:2"]);
        assert!(parts.iter().all(|part| part.chat == "42" && part.platform == "discord"));
        let after: Vec<_> = parts.iter().map(|part| part.body["after"].clone()).collect();
        assert_eq!(after, [json!(null), json!("m:0"), json!("m:0")]);
    }
}
