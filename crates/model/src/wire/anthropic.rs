//! Anthropic's Messages.
//!
//! Roles must alternate, so tool results and the user's text after them are one message. Reasoning
//! is signed: each block goes back unchanged, at its position. Four cache markers are set: on the
//! system prompt and on the last three messages.

use std::collections::{HashMap, HashSet};
use std::ptr;

use hermes_types::{Call, Part, Usage};
use serde_json::{Value, json};

use super::{DecodeResult, Decoder, ModelRequest, count, encode_arguments, reply_items, text};
use crate::endpoint::Effort;
use crate::error;
use crate::history::HistoryEntry;
use crate::reply::Finish;
use crate::reply_builder::{CallDelta, ReplyBuilder};

/// Stands for missing text: the API rejects an empty one.
const EMPTY_TEXT: &str = "(empty)";
const MAX_ID_CHARS: usize = 64;
/// The prefix of the ids that Claude gives to its calls.
const CLAUDE_CALL_PREFIX: &str = "toolu_";
/// The smallest budget for reasoning that the API accepts.
const MIN_REASONING_TOKENS: u64 = 1024;
/// The tokens that a budget for reasoning leaves for the answer.
const ANSWER_TOKENS: u64 = 4096;

pub(super) fn encode(request: &ModelRequest<'_>, body: &mut Value) {
    let (endpoint, prompt) = (request.endpoint, request.prompt);
    let version = model_version(&endpoint.model);
    let mut max_tokens = request.max_output().unwrap_or(match version {
        Some((0..=3, 0..=4)) => 4096,
        Some((0..=3, _)) => 8192,
        _ => 32_000,
    });
    let entries = request.history();
    // Reasoning that is not sent back must not be requested: the API rejects a call without it.
    let effort = prompt.effort.filter(|effort| *effort != Effort::None && !request.quirks.drop_reasoning);
    if let Some(effort) = effort {
        if version.is_some_and(|version| version >= (4, 6)) {
            if open_turn(&entries).is_none_or(|turn| turn.has_own_reasoning || turn.is_by_claude) {
                body["thinking"] = json!({"type": "adaptive"});
            }
            body["output_config"] = json!({"effort": effort_level(effort, version)});
        } else if version.is_some_and(|version| version >= (3, 7))
            && !endpoint.model.contains("haiku")
            && open_turn(&entries).is_none_or(|turn| turn.has_own_reasoning)
        {
            let budget = reasoning_budget(effort);
            // The limit that the server told is never exceeded.
            let limit = request.quirks.max_output.unwrap_or(u64::MAX);
            max_tokens = max_tokens.max(budget + ANSWER_TOKENS).min(limit);
            let budget = budget.min(max_tokens.saturating_sub(MIN_REASONING_TOKENS));
            if budget >= MIN_REASONING_TOKENS {
                body["thinking"] = json!({"type": "enabled", "budget_tokens": budget});
            }
        }
    }
    body["max_tokens"] = max_tokens.into();
    request.add_fields_and_tools(
        body,
        |tool, schema| json!({"name": tool.name, "description": tool.description, "input_schema": schema}),
    );
    let marker = json!({"type": "ephemeral"});
    if !prompt.system.trim().is_empty() {
        body["system"] = json!([{"type": "text", "text": prompt.system, "cache_control": marker}]);
    }
    let mut messages = messages(request, entries);
    for message in messages.iter_mut().rev().take(3) {
        let blocks = message["content"].as_array_mut().into_iter().flatten();
        if let Some(block) = blocks.rev().find(|block| !is_reasoning(block)) {
            block["cache_control"] = marker.clone();
        }
    }
    body["messages"] = messages.into();
}

fn effort_level(effort: Effort, version: Option<(u32, u32)>) -> &'static str {
    match effort {
        Effort::None | Effort::Minimal | Effort::Low => "low",
        Effort::Medium => "medium",
        Effort::High => "high",
        Effort::Xhigh if version.is_some_and(|version| version >= (4, 7)) => "xhigh",
        Effort::Xhigh | Effort::Max | Effort::Ultra => "max",
    }
}

/// The tokens for reasoning of models without levels.
fn reasoning_budget(effort: Effort) -> u64 {
    match effort {
        Effort::None | Effort::Minimal | Effort::Low => 4096,
        Effort::Medium => 8192,
        Effort::High => 16_384,
        Effort::Xhigh | Effort::Max | Effort::Ultra => 32_768,
    }
}

/// A turn whose last calls have results and no reply yet.
#[derive(Debug, Clone, Copy)]
struct OpenTurn {
    /// It starts with reasoning that goes back to its issuer. The API rejects a request for
    /// reasoning in the middle of a turn that began without.
    has_own_reasoning: bool,
    /// Claude made all its calls. A model that decides itself whether to reason may begin a turn
    /// without.
    is_by_claude: bool,
}

fn open_turn(entries: &[HistoryEntry<'_>]) -> Option<OpenTurn> {
    let is_user = |entry: &HistoryEntry<'_>| matches!(entry, HistoryEntry::User(..));
    // Text after the results belongs to the same message of the user.
    let answered = match entries.split_last() {
        Some((last, before)) if is_user(last) => before,
        _ => entries,
    };
    if !matches!(answered.last(), Some(HistoryEntry::Results(_))) {
        return None;
    }
    let start = answered.iter().rposition(is_user).map_or(0, |at| at + 1);
    let turn = answered.get(start..).unwrap_or_default();
    let first = turn.first().and_then(|entry| match entry {
        HistoryEntry::Assistant(parts) => parts.first(),
        HistoryEntry::User(..) | HistoryEntry::Results(_) => None,
    });
    let mut calls = turn.iter().flat_map(|entry| match entry {
        HistoryEntry::Results(results) => results.as_slice(),
        HistoryEntry::User(..) | HistoryEntry::Assistant(_) => &[],
    });
    Some(OpenTurn {
        has_own_reasoning: matches!(first, Some(Part::Reasoning(own)) if own.replay.is_some()),
        is_by_claude: calls.all(|(call, _)| call.id.as_str().starts_with(CLAUDE_CALL_PREFIX)),
    })
}

/// The version in a model's name, as in `claude-opus-4-6` or `claude-4.6-opus`. A date is no
/// version.
pub(super) fn model_version(model: &str) -> Option<(u32, u32)> {
    let numbers = model.split(['-', '.', '/', '@', ':']).filter(|word| word.len() < 3);
    let mut numbers = numbers.filter_map(|word| word.parse::<u32>().ok());
    Some((numbers.next()?, numbers.next().unwrap_or(0)))
}

fn is_reasoning(block: &Value) -> bool {
    matches!(text(block, "type"), "thinking" | "redacted_thinking")
}

fn messages(request: &ModelRequest<'_>, entries: Vec<HistoryEntry<'_>>) -> Vec<Value> {
    let ids = CallIds::new(&entries);
    let mut messages: Vec<(&str, Vec<Value>)> = Vec::new();
    let mut add = |role: &'static str, blocks: Vec<Value>| match messages.last_mut() {
        Some((last, known)) if *last == role => known.extend(blocks),
        _ => messages.push((role, blocks)),
    };
    for (at, entry) in entries.into_iter().enumerate() {
        match entry {
            // Images work best before the text about them.
            HistoryEntry::User(text, images) => {
                let images = request.images.select(&images).into_iter().map(|(kind, data)| {
                    json!({"type": "image", "source": {"type": "base64", "media_type": kind, "data": data}})
                });
                add("user", images.chain([text_block(&text)]).collect());
            }
            HistoryEntry::Assistant(parts) => {
                if at == 0 {
                    add("user", vec![text_block(EMPTY_TEXT)]);
                }
                let drop_reasoning = request.quirks.drop_reasoning;
                let blocks = parts.iter().filter_map(|part| encode_part(part, &ids, drop_reasoning));
                add("assistant", blocks.collect());
            }
            HistoryEntry::Results(results) => {
                let blocks = results.iter().map(
                    |(call, text)| json!({"type": "tool_result", "tool_use_id": ids.get(call), "content": text}),
                );
                add("user", blocks.collect());
            }
        }
    }
    messages.into_iter().map(|(role, content)| json!({"role": role, "content": content})).collect()
}

fn text_block(text: &str) -> Value {
    let text = if text.trim().is_empty() { EMPTY_TEXT } else { text };
    json!({"type": "text", "text": text})
}

fn encode_part(part: &Part, ids: &CallIds, drop_reasoning: bool) -> Option<Value> {
    Some(match part {
        // Text of the assistant must not end with whitespace.
        Part::Text { text } => json!({"type": "text", "text": text.trim_end()}),
        Part::Reasoning(_) if drop_reasoning => return None,
        Part::Reasoning(reasoning) => reasoning.replay.clone()?,
        Part::Call(call) => json!({
            "type": "tool_use", "id": ids.get(call), "name": call.name,
            "input": encode_arguments(&call.arguments),
        }),
    })
}

/// The ids of calls in a request. The API allows only some characters and every id only once;
/// other servers count their calls from 0 in every reply.
struct CallIds(HashMap<*const Call, String>);

impl CallIds {
    /// An id depends only on what precedes it, so it stays the same as the conversation grows.
    fn new(entries: &[HistoryEntry<'_>]) -> Self {
        let mut used = HashSet::new();
        let results = entries.iter().filter_map(|entry| match entry {
            HistoryEntry::Results(results) => Some(results),
            HistoryEntry::User(..) | HistoryEntry::Assistant(_) => None,
        });
        let calls = results.flatten().map(|(call, _)| *call);
        let allowed = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        Self(
            calls
                .enumerate()
                .map(|(number, call)| {
                    let mut id = super::limit_call_id(&call.id, MAX_ID_CHARS);
                    if id.is_empty() || !id.chars().all(allowed) || used.contains(&id) {
                        let salt = if used.contains(&id) { number.to_string() } else { String::new() };
                        id = super::hash_id(&call.id, &salt, MAX_ID_CHARS);
                    }
                    used.insert(id.clone());
                    (ptr::from_ref(call), id)
                })
                .collect(),
        )
    }

    fn get<'c>(&'c self, call: &'c Call) -> &'c str {
        self.0.get(&ptr::from_ref(call)).map_or(call.id.as_str(), String::as_str)
    }
}

/// Decodes the events of a message.
#[derive(Debug, Default)]
pub(super) struct AnthropicDecoder {
    /// The reasoning block that is arriving, with its index.
    reasoning: Option<(u64, Value)>,
}

impl Decoder for AnthropicDecoder {
    fn decode_event(&mut self, builder: &mut ReplyBuilder<'_>, event: &Value) -> DecodeResult {
        let index = count(event, "/index");
        let delta = &event["delta"];
        match text(event, "type") {
            "message_start" => record_usage(builder, &event["message"]["usage"]),
            "content_block_start" => self.start_block(builder, index, &event["content_block"])?,
            "content_block_delta" => self.decode_delta(builder, index, delta)?,
            "content_block_stop" => self.end_block(builder, index),
            "message_delta" => {
                record_usage(builder, &event["usage"]);
                builder.finish = finish(delta).or(builder.finish.take());
            }
            "message_stop" => {
                // Some servers send only the end marker.
                builder.finish.get_or_insert(Finish::Stop);
                builder.has_ended = true;
            }
            "error" => return Err(error::from_stream(event)),
            _ => {}
        }
        Ok(())
    }

    fn decode_body(&mut self, builder: &mut ReplyBuilder<'_>, body: &Value) -> DecodeResult {
        for (index, block) in (0..).zip(reply_items(body, "content")?) {
            self.start_block(builder, index, block)?;
            self.end_block(builder, index);
        }
        record_usage(builder, &body["usage"]);
        builder.finish = Some(finish(body).unwrap_or(Finish::Stop));
        Ok(())
    }
}

impl AnthropicDecoder {
    fn start_block(&mut self, builder: &mut ReplyBuilder<'_>, index: u64, block: &Value) -> DecodeResult {
        // Only a block that is followed by another one is certainly complete.
        builder.close_calls();
        match text(block, "type") {
            "text" => builder.push_plain_text(text(block, "text")),
            "tool_use" => builder.push_call(&CallDelta {
                index: Some(index),
                id: text(block, "id"),
                name: text(block, "name"),
                arguments: block.get("input"),
                ..CallDelta::default()
            })?,
            "thinking" | "redacted_thinking" => {
                builder.push_reasoning(text(block, "thinking"));
                self.reasoning = Some((index, block.clone()));
            }
            _ => {}
        }
        Ok(())
    }

    fn decode_delta(&mut self, builder: &mut ReplyBuilder<'_>, index: u64, delta: &Value) -> DecodeResult {
        match text(delta, "type") {
            "text_delta" => builder.push_plain_text(text(delta, "text")),
            "input_json_delta" => {
                let arguments = delta.get("partial_json");
                builder.push_call(&CallDelta { index: Some(index), arguments, ..CallDelta::default() })?;
            }
            "thinking_delta" => {
                let more = text(delta, "thinking");
                builder.push_reasoning(more);
                self.append_reasoning(index, "thinking", more);
            }
            "signature_delta" => self.append_reasoning(index, "signature", text(delta, "signature")),
            _ => {}
        }
        Ok(())
    }

    /// A block that has ended may be incomplete: the token limit ends blocks too.
    fn end_block(&mut self, builder: &mut ReplyBuilder<'_>, index: u64) {
        if let Some((_, block)) = self.reasoning.take_if(|(at, _)| *at == index) {
            builder.set_replay(block);
        }
    }

    fn append_reasoning(&mut self, index: u64, key: &str, more: &str) {
        let Some((_, block)) = self.reasoning.as_mut().filter(|(at, _)| *at == index) else { return };
        match &mut block[key] {
            Value::String(known) => known.push_str(more),
            other => *other = more.into(),
        }
    }
}

fn finish(delta: &Value) -> Option<Finish> {
    Some(match text(delta, "stop_reason") {
        "" => return None,
        "max_tokens" | "model_context_window_exceeded" => Finish::Length,
        "refusal" => {
            let why = delta.pointer("/stop_details/explanation").and_then(Value::as_str);
            Finish::Filtered(why.unwrap_or_default().to_owned())
        }
        "tool_use" => Finish::Calls,
        _ => Finish::Stop,
    })
}

/// Counts come in several events, each with the current total.
fn record_usage(builder: &mut ReplyBuilder<'_>, usage: &Value) {
    let newest = |path: &str, known: u64| match usage.pointer(path) {
        Some(Value::Number(_)) => count(usage, path),
        _ => known,
    };
    let known = builder.usage;
    builder.usage = Usage {
        input: newest("/input_tokens", known.input),
        cache_read: newest("/cache_read_input_tokens", known.cache_read),
        cache_write: newest("/cache_creation_input_tokens", known.cache_write),
        output: newest("/output_tokens", known.output),
        reasoning: newest("/output_tokens_details/thinking_tokens", known.reasoning),
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_found_anywhere_in_the_name() {
        let cases = [
            ("claude-opus-4-6", Some((4, 6))),
            ("claude-sonnet-4-5-20250929", Some((4, 5))),
            ("claude-3-7-sonnet-20250219", Some((3, 7))),
            ("anthropic/claude-4.6-opus", Some((4, 6))),
            ("claude-sonnet-5", Some((5, 0))),
            ("claude-opus-4-20250514", Some((4, 0))),
            ("MiniMax-M2", None),
        ];
        for (model, expected) in cases {
            assert_eq!(model_version(model), expected, "{model}");
        }
    }
}
