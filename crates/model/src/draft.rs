//! An answer as it comes together, whoever sends it. Each protocol's decoder says what came; this keeps the order, tells
//! thoughts from words, finds calls that were written as text, and gives the finished reply.

use std::collections::HashSet;

use hermes_types::{Call, CallId, Part, Reasoning, Usage};
use serde_json::Value;

use crate::arguments::{Ending, Pieces};
use crate::endpoint::Endpoint;
use crate::error::Fault;
use crate::reply::{Event, Finish, Prompt, Reply};
use crate::spoken;
use crate::think::{self, Piece, Splitter};

/// The most calls in one answer.
const MOST_CALLS: usize = 256;
/// The most parts in one answer.
const MOST_PARTS: usize = 4096;

/// Where events go.
pub(crate) type Listener<'a> = &'a mut (dyn FnMut(Event) + Send);

pub(crate) struct Draft<'a> {
    parts: Vec<Slot>,
    listener: Listener<'a>,
    /// Words were shown before, by an attempt that failed; they are not shown again.
    muted: bool,
    shown: bool,
    splitter: Splitter,
    spoken: spoken::Gate,
    issuer: String,
    refusal: String,
    call_seed: usize,
    cap: Option<u32>,
    pub(crate) finish: Option<Finish>,
    pub(crate) usage: Usage,
    pub(crate) cost: Option<f64>,
}

enum Slot {
    Text(String),
    Reasoning(Reasoning),
    Call(CallSlot),
}

/// A call that is arriving.
#[derive(Default)]
struct CallSlot {
    /// What the protocol calls it while it streams.
    index: Option<u64>,
    id: String,
    name: String,
    pieces: Pieces,
    /// The protocol said that it is whole.
    closed: bool,
    announced: bool,
}

/// What came of a call.
#[derive(Debug, Default, Clone)]
pub(crate) struct CallPiece<'a> {
    pub(crate) index: Option<u64>,
    pub(crate) id: &'a str,
    pub(crate) name: &'a str,
    pub(crate) arguments: Option<&'a Value>,
}

/// Whether calls may be written as text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Spoken {
    Recognized,
    Ignored,
}

impl<'a> Draft<'a> {
    pub(crate) fn new(
        endpoint: &Endpoint,
        prompt: &Prompt<'_>,
        spoken: Spoken,
        muted: bool,
        listener: Listener<'a>,
    ) -> Self {
        let tools = match spoken {
            Spoken::Recognized => prompt.tools.iter().map(|tool| tool.name.clone()).collect(),
            Spoken::Ignored => Vec::new(),
        };
        Self {
            parts: Vec::new(),
            listener,
            muted,
            shown: false,
            splitter: Splitter::default(),
            spoken: spoken::Gate::new(tools),
            issuer: endpoint.issuer(),
            refusal: String::new(),
            call_seed: prompt.messages.len(),
            cap: prompt.max_output,
            finish: None,
            usage: Usage::default(),
            cost: None,
        }
    }

    /// Whether a person saw words of it.
    pub(crate) fn has_shown(&self) -> bool {
        self.shown
    }

    /// Whether it has any part.
    pub(crate) fn is_empty(&self) -> bool {
        self.parts.is_empty() && self.refusal.is_empty()
    }

    pub(crate) fn has_calls(&self) -> bool {
        self.parts.iter().any(|slot| matches!(slot, Slot::Call(_)))
    }

    /// Whether a call has begun that is not known to be whole.
    pub(crate) fn has_open_call(&self) -> bool {
        self.parts.iter().any(|slot| matches!(slot, Slot::Call(call) if !call.closed))
    }

    /// Words, which may hold thoughts and calls.
    pub(crate) fn text(&mut self, text: &str) {
        let pieces = self.splitter.push(text);
        self.pieces(pieces);
    }

    /// Words that are surely words.
    pub(crate) fn plain(&mut self, text: &str) {
        if text.is_empty() {
            return;
        }
        let silent = self.muted || self.has_calls();
        match self.parts.last_mut() {
            Some(Slot::Text(last)) => last.push_str(text),
            _ if text.trim().is_empty() => return,
            _ => self.parts.push(Slot::Text(text.to_owned())),
        }
        if !silent {
            self.shown = true;
            (self.listener)(Event::Text(text.to_owned()));
        }
    }

    /// Thoughts.
    pub(crate) fn reasoning(&mut self, text: &str) {
        if text.is_empty() {
            return;
        }
        match self.parts.last_mut() {
            Some(Slot::Reasoning(last)) if last.replay.is_none() => last.text.push_str(text),
            _ => self.parts.push(Slot::Reasoning(Reasoning {
                text: text.to_owned(),
                issuer: Some(self.issuer.clone()),
                replay: None,
            })),
        }
        if !self.muted {
            (self.listener)(Event::Reasoning(text.to_owned()));
        }
    }

    /// Closes the thoughts that came last with what their issuer wants to see again. Without thoughts before it, it stands
    /// alone.
    pub(crate) fn replay(&mut self, replay: Value) {
        match self.parts.last_mut() {
            Some(Slot::Reasoning(last)) if last.replay.is_none() => last.replay = Some(replay),
            _ => self.parts.push(Slot::Reasoning(Reasoning {
                text: String::new(),
                issuer: Some(self.issuer.clone()),
                replay: Some(replay),
            })),
        }
    }

    /// The same for all thoughts of the answer: where words came in between, the first thoughts have it.
    pub(crate) fn replay_first(&mut self, replay: Value) {
        let first = self.parts.iter_mut().find_map(|slot| match slot {
            Slot::Reasoning(reasoning) => Some(reasoning),
            Slot::Text(_) | Slot::Call(_) => None,
        });
        match first {
            Some(first) => first.replay = Some(replay),
            None => self.parts.insert(
                0,
                Slot::Reasoning(Reasoning {
                    text: String::new(),
                    issuer: Some(self.issuer.clone()),
                    replay: Some(replay),
                }),
            ),
        }
    }

    /// The model's own words of refusal.
    pub(crate) fn refusal(&mut self, text: &str) {
        self.refusal.push_str(text);
    }

    /// A piece of a call. A name is what came last, not what all pieces add up to: some servers send it with each one.
    pub(crate) fn call(&mut self, piece: &CallPiece<'_>) -> Result<(), Fault> {
        let at = match self.find(piece) {
            Some(at) => at,
            None => {
                if self.parts.len() >= MOST_PARTS || self.calls().count() >= MOST_CALLS {
                    return Err(Fault::malformed(format!("an answer with more than {MOST_CALLS} calls")));
                }
                self.release();
                // A new call means that the ones before it are whole.
                self.close_calls();
                self.parts.push(Slot::Call(CallSlot { index: piece.index, ..CallSlot::default() }));
                self.parts.len() - 1
            }
        };
        let Some(Slot::Call(call)) = self.parts.get_mut(at) else { return Ok(()) };
        if !piece.id.is_empty() {
            piece.id.clone_into(&mut call.id);
        }
        if !piece.name.is_empty() {
            piece.name.clone_into(&mut call.name);
        }
        if let Some(arguments) = piece.arguments {
            call.pieces.push(arguments);
        }
        if !call.announced && !call.name.is_empty() {
            call.announced = true;
            (self.listener)(Event::Call { name: call.name.clone() });
        }
        Ok(())
    }

    /// The whole arguments of a call, instead of its pieces.
    pub(crate) fn call_text(&mut self, index: u64, arguments: Option<&Value>) {
        let call = self.calls().find(|call| call.index == Some(index));
        if let (Some(call), Some(arguments)) = (call, arguments) {
            call.pieces.replace(arguments);
        }
    }

    /// All calls so far are whole.
    pub(crate) fn close_calls(&mut self) {
        self.calls().for_each(|call| call.closed = true);
    }

    /// Gives up what was held back: a server that sends calls knows its model's template.
    fn release(&mut self) {
        let rest = self.splitter.finish();
        self.pieces(rest);
        let held = self.spoken.open();
        self.plain(&held);
    }

    fn calls(&mut self) -> impl Iterator<Item = &mut CallSlot> {
        self.parts.iter_mut().filter_map(|slot| match slot {
            Slot::Call(call) => Some(call),
            Slot::Text(_) | Slot::Reasoning(_) => None,
        })
    }

    /// The call that a piece belongs to, if it is not a new one. Another id at a known index is a new call, and so is another
    /// name behind arguments: Ollama gives all calls the same index.
    fn find(&self, piece: &CallPiece<'_>) -> Option<usize> {
        let mut found = None;
        for (at, slot) in self.parts.iter().enumerate() {
            let Slot::Call(call) = slot else { continue };
            let is_it = match (piece.index, call.index) {
                (Some(index), Some(known)) => index == known,
                _ if !piece.id.is_empty() => piece.id == call.id,
                _ => true,
            };
            let other_id = !piece.id.is_empty() && !call.id.is_empty() && piece.id != call.id;
            let other_name = !piece.name.is_empty()
                && !call.name.is_empty()
                && piece.name != call.name
                && !call.pieces.is_empty();
            if is_it && !other_id && !other_name {
                found = Some(at);
            }
        }
        found
    }

    fn pieces(&mut self, pieces: Vec<Piece>) {
        for piece in pieces {
            match piece {
                Piece::Thought(text) => self.reasoning(&text),
                Piece::Text(text) => {
                    let free = self.spoken.push(&text);
                    self.plain(&free);
                }
            }
        }
    }

    /// The reply. What was held back is shown now, unless it was a call.
    pub(crate) fn seal(mut self, endpoint: &Endpoint, finish: Finish) -> Reply {
        let cut = matches!(finish, Finish::Length | Finish::Dropped(_));
        let rest = self.splitter.finish();
        self.pieces(rest);
        let held = self.spoken.finish();
        let spoken = match cut || self.has_calls() {
            true => None,
            false => self.spoken.calls(&held),
        };
        match spoken {
            Some((before, calls)) => {
                self.plain(before.trim_end());
                for (name, arguments) in calls {
                    let piece =
                        CallPiece { name: &name, arguments: Some(&arguments), ..CallPiece::default() };
                    // Without an index or an id it would be taken for the last one.
                    self.parts.push(Slot::Call(CallSlot { closed: true, ..CallSlot::default() }));
                    if let Some(Slot::Call(call)) = self.parts.last_mut() {
                        piece.name.clone_into(&mut call.name);
                        call.pieces.push(&arguments);
                    }
                    (self.listener)(Event::Call { name });
                }
            }
            None => self.plain(&held),
        }
        self.split_unopened();
        let ending = |closed: bool| if cut && !closed { Ending::Cut } else { Ending::Whole };
        let mut seen = HashSet::new();
        let mut ids = HashSet::new();
        let mut parts = Vec::with_capacity(self.parts.len());
        for slot in self.parts {
            let part = match slot {
                Slot::Text(text) if text.trim().is_empty() => continue,
                Slot::Text(text) => Part::Text { text },
                Slot::Reasoning(reasoning) => Part::Reasoning(reasoning),
                Slot::Call(call) => {
                    let arguments = call.pieces.finish(ending(call.closed));
                    // The same call twice in one answer is one call.
                    if !seen.insert(format!("{} {arguments:?}", call.name)) {
                        continue;
                    }
                    let mut id = call.id;
                    let mut number = 0;
                    while id.is_empty() || ids.contains(&id) {
                        id = format!("call_{}_{number}", self.call_seed);
                        number += 1;
                    }
                    ids.insert(id.clone());
                    Part::Call(Call { id: CallId::new(id), name: call.name, arguments })
                }
            };
            parts.push(part);
        }
        let has_calls = parts.iter().any(|part| matches!(part, Part::Call(_)));
        let is_full = self.cap.is_some_and(|cap| self.usage.output >= u64::from(cap));
        let finish = match finish {
            Finish::Stop if has_calls => Finish::Calls,
            // Some servers call it finished when the output cap was reached.
            Finish::Stop | Finish::Calls if is_full && !has_calls => Finish::Length,
            Finish::Calls if !has_calls => Finish::Stop,
            Finish::Stop if parts.is_empty() && !self.refusal.is_empty() => Finish::Filtered(self.refusal),
            Finish::Filtered(why) if why.is_empty() => Finish::Filtered(self.refusal),
            other => other,
        };
        Reply {
            parts,
            finish,
            usage: self.usage,
            cost: self.cost,
            provider: endpoint.provider.clone(),
            model: endpoint.model.clone(),
        }
    }

    /// Takes thoughts out of an answer whose template had opened the tag.
    fn split_unopened(&mut self) {
        let Some(Slot::Text(text)) = self.parts.first() else { return };
        let Some((thought, words)) = think::unopened(text) else { return };
        let (thought, words) = (thought.trim().to_owned(), words.to_owned());
        if let Some(first) = self.parts.first_mut() {
            *first = Slot::Text(words);
        }
        let reasoning = Reasoning { text: thought, issuer: Some(self.issuer.clone()), replay: None };
        self.parts.insert(0, Slot::Reasoning(reasoning));
    }
}
