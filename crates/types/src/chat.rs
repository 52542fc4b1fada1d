//! Conversation messages, in the form shared by the provider protocols and the store.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::Image;

/// One message of a conversation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "role", rename_all = "lowercase")]
pub enum Message {
    User {
        text: String,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        images: Vec<Image>,
    },
    /// A reply of the model, with its tool calls.
    Assistant {
        /// The parts in the order received: some providers reject a reordered history.
        parts: Vec<Part>,
    },
    /// The result of a tool call.
    Tool { call: CallId, name: String, text: String },
}

/// One part of an assistant message.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "lowercase")]
pub enum Part {
    Text { text: String },
    Reasoning(Reasoning),
    Call(Call),
}

/// Model reasoning, with the data its provider expects back in the next request.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Reasoning {
    /// The readable part; empty if the provider does not disclose it.
    pub text: String,
    /// The provider and model that issued `replay`; no other one can read it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub issuer: Option<String>,
    /// Signatures or encrypted items, sent back unchanged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replay: Option<Value>,
}

crate::text_id! {
    /// The id a provider assigned to a tool call.
    CallId
}

/// A tool call requested by the model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Call {
    pub id: CallId,
    /// The name of the tool.
    pub name: String,
    pub arguments: CallArguments,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replay: Option<Box<CallReplay>>,
}

/// Fields of a call that its issuer expects back unchanged, such as a signature.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CallReplay {
    /// The provider and model that issued the call; no other one gets the fields.
    pub issuer: String,
    pub fields: Map<String, Value>,
}

/// The decoded arguments of a tool call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CallArguments {
    Object(Map<String, Value>),
    /// Arguments that could not be decoded. The call is not run; the model receives the reason.
    Broken {
        text: String,
        why: String,
    },
}

/// A tool definition as sent to the model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToolSpec {
    pub name: String,
    pub description: String,
    /// The JSON Schema of the arguments object.
    pub parameters: Value,
}

/// Token counts by price class. The first three fields add up to the prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Usage {
    /// Prompt tokens not served from a cache.
    pub input: u64,
    /// Prompt tokens read from a cache.
    pub cache_read: u64,
    /// Prompt tokens written to a cache.
    pub cache_write: u64,
    /// Output tokens, including reasoning.
    pub output: u64,
    /// The reasoning share of `output`.
    pub reasoning: u64,
}

impl Usage {
    pub const fn prompt(self) -> u64 {
        self.input.saturating_add(self.cache_read).saturating_add(self.cache_write)
    }

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
    /// A user message without images.
    pub fn user(text: impl Into<String>) -> Self {
        Self::User { text: text.into(), images: Vec::new() }
    }

    pub fn images(&self) -> &[Image] {
        match self {
            Self::User { images, .. } => images,
            Self::Assistant { .. } | Self::Tool { .. } => &[],
        }
    }

    /// The human-readable text: message text without reasoning and calls.
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

    /// The tool calls, in order.
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
    fn messages_survive_serialization() {
        let arguments = json!({"command": "ls", "timeout": 5}).as_object().unwrap().clone();
        let call = Call {
            id: CallId::new("c1"),
            name: "terminal".to_owned(),
            arguments: CallArguments::Object(arguments),
            replay: None,
        };
        let signature = json!({"extra_content": {"google": {"thought_signature": "s"}}});
        let replay =
            CallReplay { issuer: "gemini/m".to_owned(), fields: signature.as_object().unwrap().clone() };
        let broken = CallArguments::Broken { text: "{\"a".to_owned(), why: "truncated".to_owned() };
        let reasoning = Reasoning {
            text: String::new(),
            issuer: Some("anthropic".to_owned()),
            replay: Some(json!({"signature": "s"})),
        };
        let parts = vec![
            Part::Reasoning(reasoning),
            Part::Text { text: "looking".to_owned() },
            Part::Call(call.clone()),
            Part::Call(Call { arguments: broken, replay: Some(Box::new(replay)), ..call.clone() }),
        ];
        let all = [
            Message::user("hi"),
            Message::Assistant { parts },
            Message::Tool { call: call.id.clone(), name: call.name.clone(), text: "a".to_owned() },
        ];
        let text = serde_json::to_string(&all).unwrap();
        assert_eq!(serde_json::from_str::<Vec<Message>>(&text).unwrap(), all);
        assert_eq!(all.iter().map(Message::text).collect::<Vec<_>>(), ["hi", "looking", "a"]);
        assert_eq!(all[1].calls().count(), 2);
        assert_eq!(serde_json::to_value(&all[0]).unwrap(), json!({"role": "user", "text": "hi"}));
    }
}
