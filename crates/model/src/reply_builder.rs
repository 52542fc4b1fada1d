//! Assembles a reply from what a protocol's decoder reports. The builder keeps the order of the
//! parts, separates reasoning from text, and detects tool calls that a model wrote as text.

use std::collections::HashSet;

use hermes_types::{Call, CallId, CallReplay, Part, Reasoning, Usage};
use serde_json::{Map, Value};

use crate::arguments::ArgumentsBuilder;
use crate::endpoint::{Api, Endpoint};
use crate::error::RequestFailure;
use crate::reasoning_tags::{self, ReasoningSplitter, TextSegment};
use crate::reply::{Finish, Prompt, Reply, ReplyEvent};
use crate::text_tool_calls::CallDetector;
use crate::wire::DecodeResult;

const MAX_CALLS: usize = 256;
const MAX_PARTS: usize = 4096;

pub(crate) type EventSink<'a> = &'a mut (dyn FnMut(ReplyEvent) + Send);

/// Whether text is reported as it arrives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TextEvents {
    Emit,
    /// An earlier attempt has already shown the text.
    Mute,
}

pub(crate) struct ReplyBuilder<'a> {
    endpoint: &'a Endpoint,
    prompt: &'a Prompt<'a>,
    parts: Vec<PendingPart>,
    events: EventSink<'a>,
    text_events: TextEvents,
    pub(crate) has_shown_text: bool,
    splitter: ReasoningSplitter,
    detector: CallDetector,
    /// The text with which the model refuses.
    pub(crate) refusal: String,
    /// The finish reason, once it was read.
    pub(crate) finish: Option<Finish>,
    /// Nothing follows what was read. A reply that is not streamed has ended from the start.
    pub(crate) has_ended: bool,
    pub(crate) usage: Usage,
    pub(crate) cost: Option<f64>,
}

enum PendingPart {
    Text(String),
    Reasoning(Reasoning),
    Call(PendingCall),
}

#[derive(Default)]
struct PendingCall {
    /// The protocol's index of the call while it streams.
    index: Option<u64>,
    id: String,
    name: String,
    arguments: ArgumentsBuilder,
    /// Fields that the provider expects back.
    replay: Map<String, Value>,
    /// The protocol said that the call is complete.
    is_closed: bool,
}

/// A piece of a tool call, as a decoder reads it.
#[derive(Debug, Default, Clone)]
pub(crate) struct CallDelta<'a> {
    pub(crate) index: Option<u64>,
    pub(crate) id: &'a str,
    pub(crate) name: &'a str,
    pub(crate) arguments: Option<&'a Value>,
    /// The name and value of a field that the provider expects back.
    pub(crate) replay: Option<(&'a str, &'a Value)>,
}

impl<'a> ReplyBuilder<'a> {
    pub(crate) fn new(
        endpoint: &'a Endpoint,
        prompt: &'a Prompt<'a>,
        text_events: TextEvents,
        events: EventSink<'a>,
    ) -> Self {
        // Only servers of this protocol may not know the template of their model.
        let offered =
            prompt.tools.iter().filter(|_| matches!(endpoint.api, Api::ChatCompletions | Api::OllamaChat));
        Self {
            endpoint,
            prompt,
            parts: Vec::new(),
            events,
            text_events,
            has_shown_text: false,
            splitter: ReasoningSplitter::default(),
            detector: CallDetector::new(offered.map(|tool| tool.name.clone()).collect()),
            refusal: String::new(),
            finish: None,
            has_ended: false,
            usage: Usage::default(),
            cost: None,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.parts.is_empty() && self.refusal.is_empty()
    }

    fn has_calls(&self) -> bool {
        self.parts.iter().any(|part| matches!(part, PendingPart::Call(_)))
    }

    /// Whether a call has started that may be incomplete.
    pub(crate) fn has_open_call(&self) -> bool {
        self.parts.iter().any(|part| matches!(part, PendingPart::Call(call) if !call.is_closed))
    }

    /// Adds text that may contain reasoning tags and tool calls.
    pub(crate) fn push_text(&mut self, text: &str) {
        let segments = self.splitter.push(text);
        self.push_segments(segments);
    }

    /// Adds text that contains nothing else.
    pub(crate) fn push_plain_text(&mut self, text: &str) {
        if text.is_empty() {
            return;
        }
        let is_silent = self.text_events == TextEvents::Mute || self.has_calls();
        match self.parts.last_mut() {
            Some(PendingPart::Text(last)) => last.push_str(text),
            _ if text.trim().is_empty() => return,
            _ => self.parts.push(PendingPart::Text(text.to_owned())),
        }
        if !is_silent {
            self.has_shown_text = true;
            (self.events)(ReplyEvent::Text(text.to_owned()));
        }
    }

    pub(crate) fn push_reasoning(&mut self, text: &str) {
        if text.is_empty() {
            return;
        }
        match self.parts.last_mut() {
            Some(PendingPart::Reasoning(last)) if last.replay.is_none() => last.text.push_str(text),
            _ => self.insert_reasoning(self.parts.len(), text, None),
        }
        if self.text_events == TextEvents::Emit {
            (self.events)(ReplyEvent::Reasoning(text.to_owned()));
        }
    }

    fn insert_reasoning(&mut self, at: usize, text: &str, replay: Option<Value>) {
        let reasoning = Reasoning { text: text.to_owned(), issuer: Some(self.endpoint.issuer()), replay };
        self.parts.insert(at, PendingPart::Reasoning(reasoning));
    }

    /// Ends the last reasoning with the value that its issuer expects back. Without reasoning
    /// before it, the value becomes a part of its own.
    pub(crate) fn set_replay(&mut self, replay: Value) {
        match self.parts.last_mut() {
            Some(PendingPart::Reasoning(last)) if last.replay.is_none() => last.replay = Some(replay),
            _ => self.insert_reasoning(self.parts.len(), "", Some(replay)),
        }
    }

    /// Sets the replay value of all reasoning of this reply; the first reasoning part gets it.
    pub(crate) fn set_first_replay(&mut self, replay: Value) {
        let first = self.parts.iter_mut().find_map(|part| match part {
            PendingPart::Reasoning(reasoning) => Some(reasoning),
            _ => None,
        });
        match first {
            Some(first) => first.replay = Some(replay),
            None => self.insert_reasoning(0, "", Some(replay)),
        }
    }

    /// Adds a piece of a call. A name replaces the name before it: some servers send it with each
    /// piece.
    pub(crate) fn push_call(&mut self, delta: &CallDelta<'_>) -> DecodeResult {
        let at = match self.find_call(delta) {
            Some(at) => at,
            None => {
                if self.parts.len() >= MAX_PARTS || self.pending_calls().count() >= MAX_CALLS {
                    let message = format!("the reply has more than {MAX_CALLS} tool calls");
                    return Err(RequestFailure::malformed(message));
                }
                // A server that sends calls knows its model's template, so text is only text.
                self.flush_held_text(true);
                // A new call means that the ones before it are complete.
                self.close_calls();
                self.parts
                    .push(PendingPart::Call(PendingCall { index: delta.index, ..PendingCall::default() }));
                self.parts.len() - 1
            }
        };
        let Some(PendingPart::Call(call)) = self.parts.get_mut(at) else { return Ok(()) };
        if !delta.id.is_empty() {
            delta.id.clone_into(&mut call.id);
        }
        if let Some(arguments) = delta.arguments {
            call.arguments.push(arguments);
        }
        if !delta.name.is_empty() {
            delta.name.clone_into(&mut call.name);
        }
        if let Some((name, value)) = delta.replay {
            call.replay.insert(name.to_owned(), value.clone());
        }
        Ok(())
    }

    /// Replaces the pieces of a call's arguments by the complete arguments.
    pub(crate) fn set_call_arguments(&mut self, index: u64, arguments: Option<&Value>) {
        let call = self.pending_calls().find(|call| call.index == Some(index));
        if let (Some(call), Some(arguments)) = (call, arguments) {
            call.arguments.replace(arguments);
        }
    }

    /// Marks all calls so far as complete.
    pub(crate) fn close_calls(&mut self) {
        self.pending_calls().for_each(|call| call.is_closed = true);
    }

    fn pending_calls(&mut self) -> impl Iterator<Item = &mut PendingCall> {
        self.parts.iter_mut().filter_map(|part| match part {
            PendingPart::Call(call) => Some(call),
            _ => None,
        })
    }

    /// The call that a piece belongs to, unless it starts a new one. Another id at a known index is
    /// a new call, and so is another name after arguments: Ollama gives all calls the same index.
    fn find_call(&self, delta: &CallDelta<'_>) -> Option<usize> {
        let belongs = |call: &PendingCall| {
            let has_same_key = match (delta.index, call.index) {
                (Some(index), Some(known)) => index == known,
                _ if !delta.id.is_empty() => delta.id == call.id,
                _ => true,
            };
            let differ = |new: &str, known: &str| !new.is_empty() && !known.is_empty() && new != known;
            let has_other_name = differ(delta.name, &call.name) && !call.arguments.is_empty();
            has_same_key && !differ(delta.id, &call.id) && !has_other_name
        };
        self.parts.iter().rposition(|part| matches!(part, PendingPart::Call(call) if belongs(call)))
    }

    fn push_segments(&mut self, segments: Vec<TextSegment>) {
        for segment in segments {
            match segment {
                TextSegment::Reasoning(text) => self.push_reasoning(&text),
                TextSegment::Text(text) => {
                    let released = self.detector.push(&text);
                    self.push_plain_text(&released);
                }
            }
        }
    }

    /// Completes the reply. Text that was held back is shown now, unless it was a call.
    pub(crate) fn finish(mut self, finish: Finish) -> Reply {
        let is_truncated = matches!(finish, Finish::Length | Finish::Dropped(_));
        self.flush_held_text(is_truncated);
        self.split_unopened_reasoning();
        let issuer = self.endpoint.issuer();
        let mut seen = HashSet::new();
        let mut ids = HashSet::new();
        let mut parts = Vec::with_capacity(self.parts.len());
        for part in self.parts {
            match part {
                PendingPart::Text(text) if text.trim().is_empty() => {}
                PendingPart::Text(text) => parts.push(Part::Text { text }),
                PendingPart::Reasoning(reasoning) => parts.push(Part::Reasoning(reasoning)),
                PendingPart::Call(call) => {
                    let arguments = call.arguments.finish(is_truncated && !call.is_closed);
                    // The same call twice in one reply is one call.
                    if !seen.insert(format!("{} {arguments:?}", call.name)) {
                        continue;
                    }
                    let mut id = call.id;
                    let mut number = 0;
                    while id.is_empty() || ids.contains(&id) {
                        // The number of messages makes the id unique in the conversation.
                        id = format!("call_{}_{number}", self.prompt.messages.len());
                        number += 1;
                    }
                    ids.insert(id.clone());
                    let (issuer, fields) = (issuer.clone(), call.replay);
                    let replay = (!fields.is_empty()).then(|| Box::new(CallReplay { issuer, fields }));
                    parts.push(Part::Call(Call { id: CallId::new(id), name: call.name, arguments, replay }));
                }
            }
        }
        let has_calls = !seen.is_empty();
        let is_full = self.prompt.max_output.is_some_and(|max| self.usage.output >= u64::from(max));
        let finish = match finish {
            Finish::Stop if has_calls => Finish::Calls,
            // Some servers report a normal end when the output limit was reached.
            Finish::Stop | Finish::Calls if is_full && !has_calls => Finish::Length,
            Finish::Calls if !has_calls => Finish::Stop,
            Finish::Stop if parts.is_empty() && !self.refusal.is_empty() => Finish::Filtered(self.refusal),
            Finish::Filtered(reason) if reason.is_empty() => Finish::Filtered(self.refusal),
            other => other,
        };
        Reply {
            parts,
            finish,
            usage: self.usage,
            cost: self.cost,
            provider: self.endpoint.provider.clone(),
            model: self.endpoint.model.clone(),
        }
    }

    /// Adds the text that was held back, unless it is a call and not truncated.
    fn flush_held_text(&mut self, is_text: bool) {
        let rest = self.splitter.finish();
        self.push_segments(rest);
        let held = self.detector.disable();
        let detected = if is_text || self.has_calls() { None } else { self.detector.parse_calls(&held) };
        let Some((before, calls)) = detected else { return self.push_plain_text(&held) };
        self.push_plain_text(before.trim_end());
        for (name, value) in calls {
            let mut arguments = ArgumentsBuilder::default();
            arguments.push(&value);
            let call = PendingCall { name, arguments, is_closed: true, ..PendingCall::default() };
            self.parts.push(PendingPart::Call(call));
        }
    }

    /// Moves text before a closing tag into reasoning: the template of the model opened the tag.
    fn split_unopened_reasoning(&mut self) {
        let Some(PendingPart::Text(text)) = self.parts.first_mut() else { return };
        let Some((reasoning, rest)) = reasoning_tags::split_at_unopened_tag(text) else { return };
        let (reasoning, rest) = (reasoning.trim().to_owned(), rest.to_owned());
        *text = rest;
        self.insert_reasoning(0, &reasoning, None);
    }
}
