//! Notices about background processes of a session, each delivered once.
//!
//! An environment keeps notices of all its processes; a session subscribes to those that it started
//! itself. During a turn they come with the next tool result; otherwise the front end waits for
//! them, see [`ToolContext::next_process_event`].

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use hermes_exec::process::{NoticeStream as Stream, ProcessEvent, ProcessHandle, ProcessNotice};
use hermes_exec::{Error, ProcessId};
use hermes_types::{CallArguments, Message};
use serde_json::Value;

use crate::tool::process::{clean_output, tail_text};
use crate::tool_support::text::truncate_chars;
use crate::{Tool, ToolContext, lock};

/// After a reported line, other lines of the same process are suppressed for this long.
const LINE_INTERVAL: Duration = Duration::from_secs(15);
/// After this many intervals in a row with suppressed lines, no more lines are reported.
const MAX_STRIKES: u32 = 3;
const MAX_OUTPUT_CHARS: usize = 2_000;
const MAX_COMMAND_CHARS: usize = 200;
/// More notices wait for the next delivery.
const MAX_EVENTS_AT_ONCE: usize = 8;

/// The field of a tool result that contains notices.
pub(crate) const NOTICE_FIELD: &str = "notice";
const NOTICE_PREFIX: &str = "[IMPORTANT: Background process ";

/// The events of a process that a session subscribes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum NotifyOn {
    #[default]
    Exit,
    /// Lines of output that match a pattern.
    Output,
}

/// The subscriptions of a session and the stream of notices.
#[derive(Debug, Default)]
pub(crate) struct ProcessEvents {
    subscriptions: Mutex<Subscriptions>,
    /// None until the environment is open.
    stream: tokio::sync::Mutex<Option<Stream>>,
}

#[derive(Debug, Default)]
struct Subscriptions {
    processes: BTreeMap<ProcessId, Subscription>,
    /// Whether the stream may already have passed notices of a new subscription.
    is_stale: bool,
    /// Notices that the history already contains.
    reported_before: Vec<String>,
}

#[derive(Debug, Default)]
struct Subscription {
    command: String,
    notify_on: NotifyOn,
    /// Number of the first notice that was not handled.
    next_number: u64,
    last_reported: Option<Instant>,
    /// Lines suppressed since then.
    suppressed: u64,
    strikes: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LineAction {
    /// Report it, and how many lines before it were suppressed.
    Report(u64),
    Suppress,
    /// Report no more lines of this process.
    Mute,
}

impl Subscription {
    fn new(command: &str, notify_on: NotifyOn) -> Self {
        Self { command: command.to_owned(), notify_on, ..Self::default() }
    }

    /// Handles a matching line; the environment itself dropped `left_out` lines before it.
    fn on_line(&mut self, left_out: u64, now: Instant) -> LineAction {
        let is_early = self.last_reported.is_some_and(|last| now.duration_since(last) < LINE_INTERVAL);
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
    /// Waits for the next notices about background processes. The caller must deliver the text.
    /// Never returns without subscriptions. Cancelling loses nothing.
    pub async fn next_process_event(&self) -> String {
        let mut stream = self.process_events.stream.lock().await;
        while let Some(open) = stream.as_mut() {
            let text = match open.next_notice().await {
                Ok(notice) => self.format_event(&notice),
                Err(error) => {
                    tracing::debug!(%error, "process notice stream ended");
                    *stream = None;
                    None
                }
            };
            if let Some(first) = text {
                let more = self.drain_stream(&mut stream, MAX_EVENTS_AT_ONCE - 1);
                return [vec![first], more].concat().join("\n\n");
            }
        }
        drop(stream);
        std::future::pending().await
    }

    /// Whether [`ToolContext::next_process_event`] may return.
    pub fn has_subscriptions(&self) -> bool {
        self.has_open_place() && !lock(&self.process_events.subscriptions).processes.is_empty()
    }

    /// Notices that have arrived. Cancelling loses nothing.
    pub(crate) async fn take_process_events(&self) -> Option<String> {
        if !self.has_subscriptions() {
            return None;
        }
        // A caller of `next_process_event` that waits for the stream delivers the notices.
        let mut stream = self.process_events.stream.try_lock().ok()?;
        if std::mem::take(&mut lock(&self.process_events.subscriptions).is_stale) {
            *stream = None;
        }
        if stream.is_none() {
            *stream = self.open_stream().await.unwrap_or_else(|error| {
                tracing::debug!(%error, "cannot open the process notice stream");
                None
            });
        }
        let notices = self.drain_stream(&mut stream, MAX_EVENTS_AT_ONCE);
        (!notices.is_empty()).then(|| notices.join("\n\n"))
    }

    pub(crate) fn subscribe(&self, process: ProcessId, command: &str, notify_on: NotifyOn) {
        let mut subscriptions = lock(&self.process_events.subscriptions);
        subscriptions.processes.insert(process, Subscription::new(command, notify_on));
        subscriptions.is_stale = true;
    }

    /// Ends a subscription, because the model has seen the end of the process.
    pub(crate) fn unsubscribe(&self, process: ProcessId) {
        lock(&self.process_events.subscriptions).processes.remove(&process);
    }

    /// Restores the subscriptions of a stored conversation, without notices that it contains.
    pub(crate) fn restore_subscriptions(&self, history: &[Message]) {
        let calls: BTreeMap<_, _> =
            history.iter().flat_map(Message::calls).map(|call| (call.id.as_str(), call)).collect();
        for message in history {
            if let Message::User { text, .. } = message {
                self.restore_reported(text);
            }
            let Message::Tool { call, name, text } = message else { continue };
            let Ok(result) = serde_json::from_str::<Value>(text) else { continue };
            if let Some(text) = result.get(NOTICE_FIELD).and_then(Value::as_str) {
                self.restore_reported(text);
            }
            let Some(process) = self.process_in_place(&result) else { continue };
            if name == Tool::Process.name() && result.get("exit_code").is_some_and(Value::is_number) {
                self.unsubscribe(process);
            } else if name == Tool::Terminal.name()
                && let Some(notify_on) = requested_notification(&result)
            {
                let command = calls.get(call.as_str()).and_then(|call| match &call.arguments {
                    CallArguments::Object(given) => given.get("command")?.as_str(),
                    CallArguments::Broken { .. } => None,
                });
                self.subscribe(process, command.unwrap_or_default(), notify_on);
            }
        }
    }

    fn restore_reported(&self, text: &str) {
        if text.starts_with(NOTICE_PREFIX) {
            lock(&self.process_events.subscriptions).reported_before.push(text.to_owned());
        }
    }

    /// The process that a result names, if it runs in this environment.
    fn process_in_place(&self, result: &Value) -> Option<ProcessId> {
        let handle: ProcessHandle = result.get("session_id")?.as_str()?.parse().ok()?;
        let place_id = self.config().place.id();
        (ProcessHandle::new(place_id, handle.process) == handle).then_some(handle.process)
    }

    async fn open_stream(&self) -> Result<Option<Stream>, Error> {
        let Some(place) = self.place.get() else { return Ok(None) };
        Ok(Some(place.processes().await?.notices(0).await?))
    }

    fn drain_stream(&self, stream: &mut Option<Stream>, max: usize) -> Vec<String> {
        let mut notices = Vec::new();
        while notices.len() < max
            && let Some(open) = stream
        {
            match open.next_notice().now_or_never() {
                None => break,
                Some(Ok(notice)) => notices.extend(self.format_event(&notice)),
                Some(Err(_gone)) => *stream = None,
            }
        }
        notices
    }

    /// The text of a notice for the model; none if there is nothing to report.
    fn format_event(&self, notice: &ProcessNotice) -> Option<String> {
        let mut subscriptions = lock(&self.process_events.subscriptions);
        let process = subscriptions.processes.get_mut(&notice.process)?;
        if notice.number < process.next_number {
            return None;
        }
        process.next_number = notice.number.saturating_add(1);
        let handle = ProcessHandle::new(self.config().place.id(), notice.process);
        let command = clean_output(self, &process.command);
        let command = truncate_chars(&command, MAX_COMMAND_CHARS);
        let text = match &notice.event {
            ProcessEvent::Exited(ended) => {
                let notify_on = process.notify_on;
                subscriptions.processes.remove(&notice.process);
                if notify_on != NotifyOn::Exit {
                    return None;
                }
                let output = tail_text(self, &ended.tail, ended.output_bytes, MAX_OUTPUT_CHARS);
                let (code, output) = (ended.code, output.trim_end());
                format!(
                    "{NOTICE_PREFIX}{handle} has ended with exit code {code}.\nCommand: {command}\nOutput:\n{output}]"
                )
            }
            ProcessEvent::LineMatched { .. } if process.notify_on != NotifyOn::Output => return None,
            ProcessEvent::LineMatched { line, unreported } => {
                match process.on_line(*unreported, Instant::now()) {
                    LineAction::Suppress => return None,
                    LineAction::Mute => format!(
                        "{NOTICE_PREFIX}{handle} has too many lines with a watched word; no more lines are reported, only its \
                     end.\nCommand: {command}]"
                    ),
                    LineAction::Report(suppressed) => {
                        let line = clean_output(self, &String::from_utf8_lossy(line));
                        let line = truncate_chars(&line, MAX_OUTPUT_CHARS);
                        let more = if suppressed == 0 {
                            String::new()
                        } else {
                            format!("\n({suppressed} lines before it were not reported)")
                        };
                        format!(
                            "{NOTICE_PREFIX}{handle} has a line with a watched word.\nCommand: {command}\nLine:\n{line}{more}]"
                        )
                    }
                }
            }
        };
        let is_reported = subscriptions.reported_before.iter().any(|reported| reported.contains(&text));
        (!is_reported).then_some(text)
    }
}

/// The notification that a call of `terminal` requested, by its result.
fn requested_notification(result: &Value) -> Option<NotifyOn> {
    if result.get("notify_on_complete").is_some_and(|requested| requested == true) {
        return Some(NotifyOn::Exit);
    }
    result.get("watch_patterns").is_some_and(Value::is_array).then_some(NotifyOn::Output)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_reported_one_per_interval_and_a_flood_mutes_them() {
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
            // A quiet interval resets the strikes.
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
