//! OpenAI's Responses. Nothing is stored there: the whole conversation goes along each time, with the thoughts in their encrypted form.

use hermes_types::{Arguments, Part, Usage};
use serde_json::{Map, Value, json};

use super::{Flow, Request, count, text};
use crate::draft::{CallPiece, Draft};
use crate::endpoint::Effort;
use crate::error::{self, Class, Fault};
use crate::history::{self, Turn};
use crate::json;
use crate::reply::Finish;

/// The longest id of a call.
const LONGEST_ID: usize = 64;

pub(crate) fn encode(request: &Request<'_>) -> Map<String, Value> {
    let (endpoint, prompt) = (request.endpoint, request.prompt);
    let mut body = Map::new();
    body.insert("model".to_owned(), endpoint.model.as_str().into());
    if !request.manner.whole {
        body.insert("stream".to_owned(), true.into());
    }
    body.insert("store".to_owned(), false.into());
    body.insert("include".to_owned(), json!(["reasoning.encrypted_content"]));
    body.insert("parallel_tool_calls".to_owned(), true.into());
    if !prompt.session.is_empty() {
        let key: String = prompt.session.chars().take(LONGEST_ID).collect();
        body.insert("prompt_cache_key".to_owned(), key.into());
    }
    if let Some(cap) = request.cap() {
        // The least that is accepted.
        body.insert("max_output_tokens".to_owned(), cap.max(16).into());
    }
    if let Some(effort) = prompt.effort {
        let word = match effort {
            Effort::Minimal => "low",
            other => other.word(),
        };
        body.insert("reasoning".to_owned(), json!({"effort": word, "summary": "auto"}));
    }
    request.extend(&mut body);
    if !prompt.system.is_empty() {
        body.insert("instructions".to_owned(), prompt.system.into());
    }
    if !prompt.tools.is_empty() {
        let tools = prompt.tools.iter().map(|tool| {
            let parameters = request.schema(&tool.parameters);
            json!({
                "type": "function", "name": tool.name, "description": tool.description,
                "parameters": parameters, "strict": false,
            })
        });
        body.insert("tools".to_owned(), tools.collect());
    }
    body.insert("input".to_owned(), input(request).into());
    body
}

fn input(request: &Request<'_>) -> Vec<Value> {
    let issuer = request.endpoint.issuer();
    let mut items = Vec::new();
    for turn in history::turns(request.prompt.messages) {
        match turn {
            Turn::User(words, images) => {
                let content = user(&words, request.pictures.of(&images));
                items.push(json!({"role": "user", "content": content}));
            }
            Turn::Assistant(parts) => {
                items.extend(parts.iter().filter_map(|part| item(part, &issuer, request.manner.forget_thoughts)));
            }
            Turn::Results(results) => items.extend(results.iter().map(|(call, words)| {
                json!({"type": "function_call_output", "call_id": id(call.id.as_str()), "output": words})
            })),
        }
    }
    items
}

fn user(words: &str, pictures: Vec<(&str, &str)>) -> Value {
    if pictures.is_empty() {
        return words.into();
    }
    let words = json!({"type": "input_text", "text": words});
    let pictures = pictures.into_iter().map(|(kind, data)| {
        json!({"type": "input_image", "image_url": format!("data:{kind};base64,{data}"), "detail": "auto"})
    });
    [words].into_iter().chain(pictures).collect()
}

fn item(part: &Part, issuer: &str, forget: bool) -> Option<Value> {
    Some(match part {
        Part::Text { text } => json!({"role": "assistant", "content": text}),
        Part::Reasoning(_) if forget => return None,
        Part::Reasoning(reasoning) => history::own(reasoning, issuer)?.replay.clone()?,
        Part::Call(call) => {
            let arguments = match &call.arguments {
                Arguments::Object(object) => json::stable(object),
                Arguments::Broken { .. } => "{}".to_owned(),
            };
            json!({"type": "function_call", "call_id": id(call.id.as_str()), "name": call.name, "arguments": arguments})
        }
    })
}

fn id(id: &str) -> String {
    id.chars().take(LONGEST_ID).collect()
}

/// Reads the events of a response.
#[derive(Debug, Default)]
pub(crate) struct Decoder {
    /// The messages of which words came in pieces, by their place.
    told: Vec<u64>,
}

impl Decoder {
    pub(crate) fn event(&mut self, draft: &mut Draft<'_>, data: &str) -> Result<Flow, Fault> {
        if data.trim() == "[DONE]" {
            return Ok(Flow::Done);
        }
        let Ok(event) = json::parse(data) else { return Ok(Flow::More) };
        let index = count(&event, "/output_index");
        match text(&event, "type") {
            "response.output_text.delta" => {
                self.told.push(index);
                self.told.dedup();
                draft.plain(text(&event, "delta"));
            }
            "response.refusal.delta" => draft.refusal(text(&event, "delta")),
            "response.reasoning_summary_text.delta" | "response.reasoning_text.delta" => {
                draft.reasoning(text(&event, "delta"));
            }
            "response.reasoning_summary_part.added" if count(&event, "/summary_index") > 0 => {
                draft.reasoning("\n\n")
            }
            "response.output_item.added" => {
                let item = &event["item"];
                if text(item, "type") == "function_call" {
                    call(draft, index, item, None)?;
                }
            }
            "response.function_call_arguments.delta" => {
                let arguments = event.get("delta");
                draft.call(&CallPiece { index: Some(index), arguments, ..CallPiece::default() })?;
            }
            "response.function_call_arguments.done" => draft.call_text(index, event.get("arguments")),
            "response.output_item.done" => self.item(draft, index, &event["item"])?,
            "response.completed" | "response.incomplete" => {
                self.response(draft, &event["response"])?;
                return Ok(Flow::Done);
            }
            "response.failed" | "response.cancelled" => return Err(failed(&event["response"])),
            "error" => return Err(error::in_stream(&event)),
            _ => {}
        }
        Ok(Flow::More)
    }

    pub(crate) fn whole(&mut self, draft: &mut Draft<'_>, body: &Value) -> Result<(), Fault> {
        if body.get("output").is_none() {
            return Err(match body.get("error").is_some_and(|error| !error.is_null()) {
                true => error::in_stream(body),
                false => Fault::malformed("the answer has no output"),
            });
        }
        self.response(draft, body)
    }

    /// The whole response. Its items are taken only if they did not come one by one.
    fn response(&mut self, draft: &mut Draft<'_>, response: &Value) -> Result<(), Fault> {
        if matches!(text(response, "status"), "failed" | "cancelled") {
            return Err(failed(response));
        }
        if draft.is_empty() {
            let items = response["output"].as_array().into_iter().flatten();
            for (index, item) in (0..).zip(items) {
                self.item(draft, index, item)?;
            }
        }
        let usage = &response["usage"];
        let cache_read = count(usage, "/input_tokens_details/cached_tokens");
        let cache_write = count(usage, "/input_tokens_details/cache_write_tokens");
        draft.usage = Usage {
            input: count(usage, "/input_tokens").saturating_sub(cache_read).saturating_sub(cache_write),
            cache_read,
            cache_write,
            output: count(usage, "/output_tokens"),
            reasoning: count(usage, "/output_tokens_details/reasoning_tokens"),
        };
        draft.finish = Some(match response.pointer("/incomplete_details/reason").and_then(Value::as_str) {
            Some("content_filter") => Finish::Filtered(String::new()),
            Some(_) => Finish::Length,
            None if text(response, "status") == "incomplete" => Finish::Length,
            None => Finish::Stop,
        });
        Ok(())
    }

    /// An item that is finished.
    fn item(&mut self, draft: &mut Draft<'_>, index: u64, item: &Value) -> Result<(), Fault> {
        match text(item, "type") {
            "function_call" => {
                call(draft, index, item, None)?;
                draft.call_text(index, item.get("arguments"));
                if text(item, "status") != "incomplete" {
                    draft.close_calls();
                }
            }
            "reasoning" => {
                let mut replay = item.clone();
                if let Some(object) = replay.as_object_mut() {
                    object.remove("status");
                }
                draft.replay(replay);
            }
            "message" if !self.told.contains(&index) => {
                for block in item["content"].as_array().into_iter().flatten() {
                    draft.plain(text(block, "text"));
                    draft.refusal(text(block, "refusal"));
                }
            }
            _ => {}
        }
        Ok(())
    }
}

fn call(draft: &mut Draft<'_>, index: u64, item: &Value, arguments: Option<&Value>) -> Result<(), Fault> {
    let id = match text(item, "call_id") {
        "" => text(item, "id"),
        id => id,
    };
    draft.call(&CallPiece { index: Some(index), id, name: text(item, "name"), arguments })
}

fn failed(response: &Value) -> Fault {
    let mut fault = error::in_stream(response);
    if fault.class == Class::Unknown {
        fault.class = Class::Server;
    }
    fault
}
