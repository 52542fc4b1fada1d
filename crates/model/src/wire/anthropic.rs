//! Anthropic's Messages.
//!
//! Roles must alternate, so answers of tools and what a person said after them are one entry. Thoughts are signed: each block goes back
//! as it came, in its place. Four places are marked to be cached: the system prompt, and the last three entries.

use hermes_types::{Arguments, CallId, Part, Usage};
use serde_json::{Map, Value, json};

use super::{Flow, Request, count, text};
use crate::draft::{CallPiece, Draft};
use crate::endpoint::Effort;
use crate::error::{self, Fault};
use crate::history::{self, Turn};
use crate::json;
use crate::reply::Finish;

/// What stands for words that are missing: an empty text is refused.
const EMPTY: &str = "(empty)";

pub(crate) fn encode(request: &Request<'_>) -> Map<String, Value> {
    let (endpoint, prompt) = (request.endpoint, request.prompt);
    let version = version(&endpoint.model);
    let mut cap = request.cap().unwrap_or(match version {
        Some((0..=3, 0..=4)) => 4096,
        Some((0..=3, _)) => 8192,
        _ => 32_000,
    });
    let mut body = Map::new();
    body.insert("model".to_owned(), endpoint.model.as_str().into());
    if !request.manner.whole {
        body.insert("stream".to_owned(), true.into());
    }
    // Thoughts that are not sent back must not be asked for either: a call without its thoughts would be refused.
    let effort = prompt.effort.filter(|effort| *effort != Effort::None && !request.manner.forget_thoughts);
    if let Some(effort) = effort {
        if version.is_some_and(|version| version >= (4, 6)) {
            body.insert("thinking".to_owned(), json!({"type": "adaptive"}));
            body.insert("output_config".to_owned(), json!({"effort": word(effort)}));
        } else if version.is_some_and(|version| version >= (3, 7)) && !endpoint.model.contains("haiku") {
            let budget = budget(effort);
            cap = cap.max(budget + 4096);
            body.insert("thinking".to_owned(), json!({"type": "enabled", "budget_tokens": budget}));
        }
    }
    body.insert("max_tokens".to_owned(), cap.into());
    request.extend(&mut body);
    if !prompt.tools.is_empty() {
        let tools = prompt.tools.iter().map(|tool| {
            let schema = request.schema(&tool.parameters);
            json!({"name": tool.name, "description": tool.description, "input_schema": schema})
        });
        body.insert("tools".to_owned(), tools.collect());
    }
    let marker = json!({"type": "ephemeral"});
    if !prompt.system.trim().is_empty() {
        let system = json!([{"type": "text", "text": prompt.system, "cache_control": marker}]);
        body.insert("system".to_owned(), system);
    }
    let mut messages = messages(request);
    for message in messages.iter_mut().rev().take(3) {
        let blocks = message["content"].as_array_mut().into_iter().flatten();
        let last = blocks.rev().find(|block| !is_thought(block));
        if let Some(block) = last {
            block["cache_control"] = marker.clone();
        }
    }
    body.insert("messages".to_owned(), messages.into());
    body
}

fn word(effort: Effort) -> &'static str {
    match effort {
        Effort::None | Effort::Minimal | Effort::Low => "low",
        Effort::Medium => "medium",
        Effort::High => "high",
        Effort::Xhigh => "max",
    }
}

fn budget(effort: Effort) -> u64 {
    match effort {
        Effort::None | Effort::Minimal | Effort::Low => 4096,
        Effort::Medium => 8192,
        Effort::High => 16_384,
        Effort::Xhigh => 32_768,
    }
}

/// The version in a model's name: `claude-opus-4-6` and `claude-4.6-opus` alike. A date is no version.
fn version(model: &str) -> Option<(u32, u32)> {
    let numbers = model.split(['-', '.', '/', '@', ':']).filter(|word| word.len() < 3);
    let mut numbers = numbers.filter_map(|word| word.parse::<u32>().ok());
    Some((numbers.next()?, numbers.next().unwrap_or(0)))
}

fn is_thought(block: &Value) -> bool {
    matches!(text(block, "type"), "thinking" | "redacted_thinking")
}

fn messages(request: &Request<'_>) -> Vec<Value> {
    let issuer = request.endpoint.issuer();
    let mut messages: Vec<(&str, Vec<Value>)> = Vec::new();
    let mut add = |role: &'static str, blocks: Vec<Value>| match messages.last_mut() {
        Some((last, known)) if *last == role => known.extend(blocks),
        _ => messages.push((role, blocks)),
    };
    for (at, turn) in history::turns(request.prompt.messages).into_iter().enumerate() {
        match turn {
            // Pictures work best before the words about them.
            Turn::User(words, images) => {
                let pictures = request.pictures.of(&images).into_iter().map(|(kind, data)| {
                    json!({"type": "image", "source": {"type": "base64", "media_type": kind, "data": data}})
                });
                add("user", pictures.chain([words_out(&words)]).collect());
            }
            Turn::Assistant(parts) => {
                if at == 0 {
                    add("user", vec![words_out(EMPTY)]);
                }
                let own =
                    parts.iter().filter_map(|part| part_out(part, &issuer, request.manner.forget_thoughts));
                add("assistant", own.collect());
            }
            Turn::Results(results) => {
                let blocks = results.iter().map(
                    |(call, words)| json!({"type": "tool_result", "tool_use_id": id(&call.id), "content": words}),
                );
                add("user", blocks.collect());
            }
        }
    }
    // An entry of the model must not end with blanks.
    messages.into_iter().map(|(role, content)| json!({"role": role, "content": content})).collect()
}

fn words_out(words: &str) -> Value {
    let words = if words.trim().is_empty() { EMPTY } else { words };
    json!({"type": "text", "text": words})
}

fn part_out(part: &Part, issuer: &str, forget: bool) -> Option<Value> {
    Some(match part {
        Part::Text { text } => json!({"type": "text", "text": text.trim_end()}),
        Part::Reasoning(_) if forget => return None,
        Part::Reasoning(reasoning) => history::own(reasoning, issuer)?.replay.clone()?,
        Part::Call(call) => {
            let input = match &call.arguments {
                Arguments::Object(object) => json::sorted(object),
                Arguments::Broken { .. } => Map::new(),
            };
            json!({"type": "tool_use", "id": id(&call.id), "name": call.name, "input": input})
        }
    })
}

/// An id in the letters that are allowed.
fn id(id: &CallId) -> String {
    let allowed = |c: char| if c.is_ascii_alphanumeric() || c == '_' || c == '-' { c } else { '_' };
    id.as_str().chars().map(allowed).collect()
}

/// Reads the events of a message.
#[derive(Debug, Default)]
pub(crate) struct Decoder {
    /// The block of thoughts that is arriving, and its place.
    thought: Option<(u64, Value)>,
}

impl Decoder {
    pub(crate) fn event(&mut self, draft: &mut Draft<'_>, data: &str) -> Result<Flow, Fault> {
        let Ok(event) = json::parse(data) else { return Ok(Flow::More) };
        let index = count(&event, "/index");
        match text(&event, "type") {
            "message_start" => take_usage(draft, &event["message"]["usage"]),
            "content_block_start" => self.start(draft, index, &event["content_block"])?,
            "content_block_delta" => self.delta(draft, index, &event["delta"])?,
            "content_block_stop" => self.stop(draft, index),
            "message_delta" => {
                take_usage(draft, &event["usage"]);
                let delta = &event["delta"];
                draft.finish = finish(delta).or(draft.finish.take());
            }
            "message_stop" => {
                // Who says that all is done has said all.
                draft.finish.get_or_insert(Finish::Stop);
                return Ok(Flow::Done);
            }
            "error" => return Err(error::in_stream(&event)),
            _ => {}
        }
        Ok(Flow::More)
    }

    pub(crate) fn whole(&mut self, draft: &mut Draft<'_>, body: &Value) -> Result<(), Fault> {
        if text(body, "type") == "error" || body.get("error").is_some() {
            return Err(error::in_stream(body));
        }
        let Some(blocks) = body["content"].as_array() else {
            return Err(Fault::malformed("the answer has no content"));
        };
        for (index, block) in (0..).zip(blocks) {
            self.start(draft, index, block)?;
            self.stop(draft, index);
        }
        take_usage(draft, &body["usage"]);
        draft.finish = Some(finish(body).unwrap_or(Finish::Stop));
        Ok(())
    }

    fn start(&mut self, draft: &mut Draft<'_>, index: u64, block: &Value) -> Result<(), Fault> {
        // Only what another block follows is surely whole.
        draft.close_calls();
        match text(block, "type") {
            "text" => draft.plain(text(block, "text")),
            "tool_use" => draft.call(&CallPiece {
                index: Some(index),
                id: text(block, "id"),
                name: text(block, "name"),
                arguments: block.get("input"),
            })?,
            "thinking" | "redacted_thinking" => {
                draft.reasoning(text(block, "thinking"));
                self.thought = Some((index, block.clone()));
            }
            _ => {}
        }
        Ok(())
    }

    fn delta(&mut self, draft: &mut Draft<'_>, index: u64, delta: &Value) -> Result<(), Fault> {
        match text(delta, "type") {
            "text_delta" => draft.plain(text(delta, "text")),
            "input_json_delta" => {
                let arguments = delta.get("partial_json");
                draft.call(&CallPiece { index: Some(index), arguments, ..CallPiece::default() })?;
            }
            "thinking_delta" => {
                let more = text(delta, "thinking");
                draft.reasoning(more);
                self.grow(index, "thinking", more);
            }
            "signature_delta" => self.grow(index, "signature", text(delta, "signature")),
            _ => {}
        }
        Ok(())
    }

    /// A block has ended, which does not mean that it is whole: the token limit ends blocks too.
    fn stop(&mut self, draft: &mut Draft<'_>, index: u64) {
        if let Some((_, block)) = self.thought.take_if(|(at, _)| *at == index) {
            draft.replay(block);
        }
    }

    fn grow(&mut self, index: u64, key: &str, more: &str) {
        let Some((at, Value::Object(block))) = &mut self.thought else { return };
        if *at != index {
            return;
        }
        match block.get_mut(key) {
            Some(Value::String(known)) => known.push_str(more),
            _ => {
                block.insert(key.to_owned(), more.into());
            }
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

/// Counts come in parts, each of which is the whole of what it counts.
fn take_usage(draft: &mut Draft<'_>, usage: &Value) {
    let newest = |path: &str, known: u64| match usage.pointer(path) {
        Some(Value::Number(_)) => count(usage, path),
        _ => known,
    };
    let known = draft.usage;
    draft.usage = Usage {
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
    fn versions_are_found_wherever_they_stand() {
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
            assert_eq!(version(model), expected, "{model}");
        }
    }
}
