//! Conversations between people, a model and its tools, as every provider's protocol and the store agree on them.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::Image;

/// One entry of a conversation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "role", rename_all = "lowercase")]
pub enum Message {
    /// What a person said.
    User {
        /// Their words.
        text: String,
        /// The pictures they showed.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        images: Vec<Image>,
    },
    /// What the model said and asked for.
    Assistant {
        /// Its parts, in the order in which they came: some providers refuse a history in another order.
        parts: Vec<Part>,
    },
    /// What a tool answered.
    Tool {
        /// The call that is answered.
        call: CallId,
        /// The tool.
        name: String,
        /// What the model is told.
        text: String,
    },
}

/// One part of what a model said.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "lowercase")]
pub enum Part {
    /// Words for the person.
    Text {
        /// The words.
        text: String,
    },
    /// What it thought before.
    Reasoning(Reasoning),
    /// A tool to be called.
    Call(Call),
}

/// Thoughts of a model, and what its provider wants to see again with the next request.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Reasoning {
    /// The readable part; empty where the provider keeps it to itself.
    pub text: String,
    /// The provider that issued `replay`, which no other one can read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub issuer: Option<String>,
    /// What is sent back as it came: signatures, encrypted items.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replay: Option<Value>,
}

/// The name a provider gave to a call.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct CallId(String);

impl CallId {
    /// The call with this name.
    pub fn new(id: impl Into<String>) -> Self {
        Self(id.into())
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// A tool call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Call {
    /// What its answer refers to.
    pub id: CallId,
    /// The tool.
    pub name: String,
    /// With what.
    pub arguments: Arguments,
}

/// The arguments of a call, whatever shape they came in.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Arguments {
    /// They could be read.
    Object(Map<String, Value>),
    /// They could not. Such a call is never run; the model hears why.
    Broken {
        /// What came.
        text: String,
        /// What is wrong with it.
        why: String,
    },
}

/// A tool as a model sees it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToolSpec {
    /// What it is called.
    pub name: String,
    /// What it is for.
    pub description: String,
    /// The JSON Schema of its arguments, an object.
    pub parameters: Value,
}

/// Tokens, by what they cost. The first three together are the prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Usage {
    /// Read and not found in a cache.
    pub input: u64,
    /// Found in a cache.
    pub cache_read: u64,
    /// Written into a cache.
    pub cache_write: u64,
    /// Written by the model, reasoning included.
    pub output: u64,
    /// The part of `output` that was reasoning.
    pub reasoning: u64,
}

impl Usage {
    /// The tokens of the prompt.
    pub const fn prompt(self) -> u64 {
        self.input.saturating_add(self.cache_read).saturating_add(self.cache_write)
    }

    /// Both together.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self {
            input: self.input.saturating_add(other.input),
            cache_read: self.cache_read.saturating_add(other.cache_read),
            cache_write: self.cache_write.saturating_add(other.cache_write),
            output: self.output.saturating_add(other.output),
            reasoning: self.reasoning.saturating_add(other.reasoning),
        }
    }
}

impl Message {
    /// Words of a person, without pictures.
    pub fn user(text: impl Into<String>) -> Self {
        Self::User { text: text.into(), images: Vec::new() }
    }

    /// The pictures in it.
    pub fn images(&self) -> &[Image] {
        match self {
            Self::User { images, .. } => images,
            Self::Assistant { .. } | Self::Tool { .. } => &[],
        }
    }

    /// The words in it that a person would read or search for.
    pub fn text(&self) -> String {
        match self {
            Self::User { text, .. } | Self::Tool { text, .. } => text.clone(),
            Self::Assistant { parts } => {
                let words = parts.iter().filter_map(|part| match part {
                    Part::Text { text } => Some(text.as_str()),
                    Part::Reasoning(_) | Part::Call(_) => None,
                });
                words.collect()
            }
        }
    }

    /// The calls in it, in their order.
    pub fn calls(&self) -> impl Iterator<Item = &Call> {
        let parts = match self {
            Self::Assistant { parts } => parts.as_slice(),
            Self::User { .. } | Self::Tool { .. } => &[],
        };
        parts.iter().filter_map(|part| match part {
            Part::Call(call) => Some(call),
            Part::Text { .. } | Part::Reasoning(_) => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn messages_are_kept_whole() {
        let arguments = json!({"command": "ls", "timeout": 5}).as_object().unwrap().clone();
        let call = Call {
            id: CallId::new("c1"),
            name: "terminal".to_owned(),
            arguments: Arguments::Object(arguments),
        };
        let broken = Arguments::Broken { text: "{\"a".to_owned(), why: "it is cut off".to_owned() };
        let reasoning = Reasoning {
            text: String::new(),
            issuer: Some("anthropic".to_owned()),
            replay: Some(json!({"signature": "s"})),
        };
        let parts = vec![
            Part::Reasoning(reasoning),
            Part::Text { text: "I look".to_owned() },
            Part::Call(call.clone()),
            Part::Call(Call { arguments: broken, ..call.clone() }),
        ];
        let all = [
            Message::user("hi"),
            Message::Assistant { parts },
            Message::Tool { call: call.id.clone(), name: call.name.clone(), text: "a".to_owned() },
        ];
        let text = serde_json::to_string(&all).unwrap();
        assert_eq!(serde_json::from_str::<Vec<Message>>(&text).unwrap(), all);
        assert_eq!(all.iter().map(Message::text).collect::<Vec<_>>(), ["hi", "I look", "a"]);
        assert_eq!(all[1].calls().count(), 2);
        assert_eq!(serde_json::to_value(&all[0]).unwrap(), json!({"role": "user", "text": "hi"}));
    }
}
