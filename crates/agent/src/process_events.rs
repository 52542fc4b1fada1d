//! What background processes of a session have to tell, each thing once.
//!
//! A place keeps notices of all its processes; a session hears of those that it started itself and asked to be told
//! about. While a turn is under way they come with the next result of a tool, otherwise whoever sits at the door waits
//! for them, see [`Hands::notice`].

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use hermes_exec::process::{Happening, Notice, Notices as Stream, ProcessHandle};
use hermes_exec::{Error, ProcessId};
use hermes_types::{Arguments, Message};
use serde_json::Value;

use crate::tool::process::{clean_output, tail_text};
use crate::tool::truncate_chars;
use crate::tool_context::lock;
use crate::{Tool, ToolContext};

/// How long no other line of a process is told after one.
const LINE_INTERVAL: Duration = Duration::from_secs(15);
/// After so many such times in a row with more lines, its lines are told no more.
const MAX_STRIKES: u32 = 3;
/// Characters of output in one notice.
const MAX_OUTPUT_CHARS: usize = 2_000;
/// Characters of the command in one notice.
const MAX_COMMAND_CHARS: usize = 200;
/// Notices that are told at once. The others are told next.
const MAX_EVENTS_AT_ONCE: usize = 8;

/// The field of a tool's answer that notices come with.
pub(crate) const NOTICE_FIELD: &str = "notice";
/// How every notice begins.
const NOTICE_PREFIX: &str = "[IMPORTANT: Background process ";

/// What is told of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NotifyOn {
    /// Its end.
    Exit,
    /// Lines of its output.
    Output,
}

/// What a session waits for.
#[derive(Debug, Default)]
pub(crate) struct ProcessEvents {
    subscriptions: Mutex<Subscriptions>,
    /// They come through this once a place is there.
    stream: tokio::sync::Mutex<Option<Stream>>,
}

#[derive(Debug, Default)]
struct Subscriptions {
    processes: BTreeMap<ProcessId, Subscription>,
    /// Whether something is awaited that the stream may have told already.
    is_new: bool,
    /// What was told before hermes was restarted.
    reported_before: Vec<String>,
}

/// A process that something is told of.
#[derive(Debug)]
struct Subscription {
    command: String,
    notify_on: NotifyOn,
    /// The first notice that was not looked at.
    next_number: u64,
    /// When a line was last told.
    last_reported: Option<Instant>,
    /// Lines that were not told since.
    suppressed: u64,
    strikes: u32,
}

/// What becomes of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LineAction {
    /// It is told, and that so many before it were not.
    Report(u64),
    Suppress,
    /// No more lines are told.
    Mute,
}

impl Subscription {
    fn new(command: &str, tells: NotifyOn) -> Self {
        Self {
            command: command.to_owned(),
            notify_on: tells,
            next_number: 0,
            last_reported: None,
            suppressed: 0,
            strikes: 0,
        }
    }

    /// A line came, and so many besides that the place left out.
    fn on_line(&mut self, left_out: u64, now: Instant) -> LineAction {
        let is_early = self.last_reported.is_some_and(|told| now.duration_since(told) < LINE_INTERVAL);
        let dropped = left_out.saturating_add(u64::from(is_early));
        if self.suppressed == 0 && dropped > 0 {
            self.strikes += 1;
        }
        self.suppressed = self.suppressed.saturating_add(dropped);
        if is_early {
            if self.strikes < MAX_STRIKES {
                return LineAction::Suppress;
            }
            self.notify_on = NotifyOn::Exit;
            return LineAction::Mute;
        }
        if self.suppressed == 0 {
            self.strikes = 0;
        }
        self.last_reported = Some(now);
        LineAction::Report(std::mem::take(&mut self.suppressed))
    }
}

impl ToolContext {
    /// Waits until a background process has something to tell, and gives it in the words for the model: whoever gets
    /// them must say them. Nothing ever comes when nothing is awaited. Can be cancelled without losing anything.
    pub async fn next_process_event(&self) -> String {
        let mut stream = self.process_events.stream.lock().await;
        while let Some(open) = stream.as_mut() {
            let told = match open.next().await {
                Ok(notice) => self.format_event(&notice),
                Err(error) => {
                    tracing::debug!(%error, "notices of background processes come no more");
                    *stream = None;
                    None
                }
            };
            if let Some(first) = told {
                let more = self.drain_stream(&mut stream, MAX_EVENTS_AT_ONCE - 1);
                return [vec![first], more].concat().join("\n\n");
            }
        }
        drop(stream);
        std::future::pending().await
    }

    /// Whether [`Hands::notice`] may give something.
    pub fn has_subscriptions(&self) -> bool {
        self.has_open_place() && !lock(&self.process_events.subscriptions).processes.is_empty()
    }

    /// What background processes have told so far. Can be cancelled without losing anything.
    pub(crate) async fn take_process_events(&self) -> Option<String> {
        if !self.has_subscriptions() {
            return None;
        }
        // Whoever waits for it tells it.
        let mut stream = self.process_events.stream.try_lock().ok()?;
        if std::mem::take(&mut lock(&self.process_events.subscriptions).is_new) {
            *stream = None;
        }
        if stream.is_none() {
            *stream = match self.open_stream().await {
                Ok(stream) => stream,
                Err(error) => {
                    tracing::debug!(%error, "notices of background processes cannot be heard");
                    None
                }
            };
        }
        let told = self.drain_stream(&mut stream, MAX_EVENTS_AT_ONCE);
        (!told.is_empty()).then(|| told.join("\n\n"))
    }

    /// What is told of a process from now on.
    pub(crate) fn subscribe(&self, process: ProcessId, command: &str, tells: NotifyOn) {
        let mut awaited = lock(&self.process_events.subscriptions);
        awaited.processes.insert(process, Subscription::new(command, tells));
        awaited.is_new = true;
    }

    /// The model has seen the end of a process, so nobody has to tell it.
    pub(crate) fn unsubscribe(&self, process: ProcessId) {
        lock(&self.process_events.subscriptions).processes.remove(&process);
    }

    /// Awaits what a conversation waited for when it was left, and tells nothing that was told in it.
    pub(crate) fn restore_subscriptions(&self, history: &[Message]) {
        let calls: BTreeMap<_, _> =
            history.iter().flat_map(Message::calls).map(|call| (call.id.as_str(), call)).collect();
        for message in history {
            if let Message::User { text, .. } = message {
                self.restore_reported(text);
            }
            let Message::Tool { call, name, text } = message else { continue };
            let Ok(answer) = serde_json::from_str::<Value>(text) else { continue };
            if let Some(told) = answer.get(NOTICE_FIELD).and_then(Value::as_str) {
                self.restore_reported(told);
            }
            let Some(process) = self.process_in_place(&answer) else { continue };
            if name == Tool::Process.name() && answer.get("exit_code").is_some_and(Value::is_number) {
                self.unsubscribe(process);
            } else if name == Tool::Terminal.name()
                && let Some(tells) = requested_notification(&answer)
            {
                let command = calls.get(call.as_str()).and_then(|call| match &call.arguments {
                    Arguments::Object(given) => given.get("command")?.as_str(),
                    Arguments::Broken { .. } => None,
                });
                self.subscribe(process, command.unwrap_or_default(), tells);
            }
        }
    }

    fn restore_reported(&self, text: &str) {
        if text.starts_with(NOTICE_PREFIX) {
            lock(&self.process_events.subscriptions).reported_before.push(text.to_owned());
        }
    }

    /// The process that an answer names, if it is one of this place.
    fn process_in_place(&self, answer: &Value) -> Option<ProcessId> {
        let handle: ProcessHandle = answer.get("session_id")?.as_str()?.parse().ok()?;
        let place = self.config().place.id();
        (ProcessHandle::new(place, handle.process) == handle).then_some(handle.process)
    }

    async fn open_stream(&self) -> Result<Option<Stream>, Error> {
        let Some(sandbox) = self.opened_place() else { return Ok(None) };
        Ok(Some(sandbox.processes().await?.notices(0).await?))
    }

    /// What has come and is worth telling.
    fn drain_stream(&self, stream: &mut Option<Stream>, most: usize) -> Vec<String> {
        let mut told = Vec::new();
        while told.len() < most
            && let Some(open) = stream
        {
            match open.next().now_or_never() {
                None => break,
                Some(Ok(notice)) => told.extend(self.format_event(&notice)),
                Some(Err(_gone)) => *stream = None,
            }
        }
        told
    }

    /// A notice in the words for the model; none if it is nothing to tell.
    fn format_event(&self, notice: &Notice) -> Option<String> {
        let mut awaited = lock(&self.process_events.subscriptions);
        let process = awaited.processes.get_mut(&notice.process)?;
        if notice.number < process.next_number {
            return None;
        }
        process.next_number = notice.number.saturating_add(1);
        let handle = ProcessHandle::new(self.config().place.id(), notice.process);
        let command = clean_output(self, &process.command);
        let command = truncate_chars(&command, MAX_COMMAND_CHARS);
        let text = match &notice.what {
            Happening::Ended(ended) => {
                let tells = process.notify_on;
                awaited.processes.remove(&notice.process);
                if tells != NotifyOn::Exit {
                    return None;
                }
                let output = tail_text(self, &ended.tail, ended.total, MAX_OUTPUT_CHARS);
                let (code, output) = (ended.code, output.trim_end());
                format!(
                    "{NOTICE_PREFIX}{handle} has ended with exit code {code}.\nCommand: {command}\nOutput:\n{output}]"
                )
            }
            Happening::Matched { .. } if process.notify_on != NotifyOn::Output => return None,
            Happening::Matched { line, unreported } => match process.on_line(*unreported, Instant::now()) {
                LineAction::Suppress => return None,
                LineAction::Mute => format!(
                    "{NOTICE_PREFIX}{handle} has too many lines with a watched word, so no more of them are told; its end \
                     is.\nCommand: {command}]"
                ),
                LineAction::Report(untold) => {
                    let line = clean_output(self, &String::from_utf8_lossy(line));
                    let line = truncate_chars(&line, MAX_OUTPUT_CHARS);
                    let more = if untold == 0 {
                        String::new()
                    } else {
                        format!("\n({untold} lines before it were not told)")
                    };
                    format!(
                        "{NOTICE_PREFIX}{handle} has a line with a watched word.\nCommand: {command}\nLine:\n{line}{more}]"
                    )
                }
            },
        };
        let is_old = awaited.reported_before.iter().any(|told| told.contains(&text));
        (!is_old).then_some(text)
    }
}

/// What a call of `terminal` asked to be told, by its answer.
fn requested_notification(answer: &Value) -> Option<NotifyOn> {
    if answer.get("notify_on_complete").is_some_and(|asked| asked == true) {
        return Some(NotifyOn::Exit);
    }
    answer.get("watch_patterns").is_some_and(Value::is_array).then_some(NotifyOn::Output)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_is_told_at_a_time_and_a_flood_ends_it() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut process = Subscription::new("serve", NotifyOn::Output);
        let lines = [
            (0, 0, LineAction::Report(0)),
            (1, 0, LineAction::Suppress),
            (2, 3, LineAction::Suppress),
            (15, 0, LineAction::Report(5)),
            (16, 0, LineAction::Suppress),
            (30, 2, LineAction::Report(3)),
            // A quiet time makes up for the noise before it.
            (60, 0, LineAction::Report(0)),
            (61, 0, LineAction::Suppress),
            (75, 0, LineAction::Report(1)),
            (76, 0, LineAction::Suppress),
            (90, 0, LineAction::Report(1)),
            (91, 0, LineAction::Mute),
        ];
        for (seconds, left_out, expected) in lines {
            assert_eq!(process.on_line(left_out, at(seconds)), expected, "at {seconds}");
        }
        assert_eq!(process.notify_on, NotifyOn::Exit);
    }
}
