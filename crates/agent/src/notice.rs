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

use crate::hands::lock;
use crate::tool::cut;
use crate::tool::process::{last_words, shown};
use crate::{Hands, Tool};

/// How long no other line of a process is told after one.
const WINDOW: Duration = Duration::from_secs(15);
/// After so many such times in a row with more lines, its lines are told no more.
const STRIKES: u32 = 3;
/// Characters of output in one notice.
const OUTPUT: usize = 2_000;
/// Characters of the command in one notice.
const COMMAND: usize = 200;
/// Notices that are told at once. The others are told next.
const AT_ONCE: usize = 8;

/// The field of a tool's answer that notices come with.
pub(crate) const FIELD: &str = "notice";
/// How every notice begins.
const BEGINNING: &str = "[IMPORTANT: Background process ";

/// What is told of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tells {
    /// Its end.
    End,
    /// Lines of its output.
    Lines,
}

/// What a session waits for.
#[derive(Debug, Default)]
pub(crate) struct Notices {
    awaited: Mutex<Awaited>,
    /// They come through this once a place is there.
    stream: tokio::sync::Mutex<Option<Stream>>,
}

#[derive(Debug, Default)]
struct Awaited {
    processes: BTreeMap<ProcessId, Process>,
    /// Whether something is awaited that the stream may have told already.
    is_new: bool,
    /// What was told before hermes was restarted.
    before: Vec<String>,
}

/// A process that something is told of.
#[derive(Debug)]
struct Process {
    command: String,
    tells: Tells,
    /// The first notice that was not looked at.
    next: u64,
    /// When a line was last told.
    told: Option<Instant>,
    /// Lines that were not told since.
    untold: u64,
    strikes: u32,
}

/// What becomes of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Line {
    /// It is told, and that so many before it were not.
    Told(u64),
    Dropped,
    /// No more lines are told.
    Last,
}

impl Process {
    fn new(command: &str, tells: Tells) -> Self {
        Self { command: command.to_owned(), tells, next: 0, told: None, untold: 0, strikes: 0 }
    }

    /// A line came, and so many besides that the place left out.
    fn line(&mut self, left_out: u64, now: Instant) -> Line {
        let is_early = self.told.is_some_and(|told| now.duration_since(told) < WINDOW);
        let dropped = left_out.saturating_add(u64::from(is_early));
        if self.untold == 0 && dropped > 0 {
            self.strikes += 1;
        }
        self.untold = self.untold.saturating_add(dropped);
        if is_early {
            if self.strikes < STRIKES {
                return Line::Dropped;
            }
            self.tells = Tells::End;
            return Line::Last;
        }
        if self.untold == 0 {
            self.strikes = 0;
        }
        self.told = Some(now);
        Line::Told(std::mem::take(&mut self.untold))
    }
}

impl Hands {
    /// Waits until a background process has something to tell, and gives it in the words for the model: whoever gets
    /// them must say them. Nothing ever comes when nothing is awaited. Can be cancelled without losing anything.
    pub async fn notice(&self) -> String {
        let mut stream = self.notices.stream.lock().await;
        while let Some(open) = stream.as_mut() {
            let told = match open.next().await {
                Ok(notice) => self.words(&notice),
                Err(error) => {
                    tracing::debug!(%error, "notices of background processes come no more");
                    *stream = None;
                    None
                }
            };
            if let Some(first) = told {
                let more = self.drain(&mut stream, AT_ONCE - 1);
                return [vec![first], more].concat().join("\n\n");
            }
        }
        drop(stream);
        std::future::pending().await
    }

    /// Whether [`Hands::notice`] may give something.
    pub fn awaits_notice(&self) -> bool {
        self.has_opened() && !lock(&self.notices.awaited).processes.is_empty()
    }

    /// What background processes have told so far. Can be cancelled without losing anything.
    pub(crate) async fn noticed(&self) -> Option<String> {
        if !self.awaits_notice() {
            return None;
        }
        // Whoever waits for it tells it.
        let mut stream = self.notices.stream.try_lock().ok()?;
        if std::mem::take(&mut lock(&self.notices.awaited).is_new) {
            *stream = None;
        }
        if stream.is_none() {
            *stream = match self.listen().await {
                Ok(stream) => stream,
                Err(error) => {
                    tracing::debug!(%error, "notices of background processes cannot be heard");
                    None
                }
            };
        }
        let told = self.drain(&mut stream, AT_ONCE);
        (!told.is_empty()).then(|| told.join("\n\n"))
    }

    /// What is told of a process from now on.
    pub(crate) fn await_notice(&self, process: ProcessId, command: &str, tells: Tells) {
        let mut awaited = lock(&self.notices.awaited);
        awaited.processes.insert(process, Process::new(command, tells));
        awaited.is_new = true;
    }

    /// The model has seen the end of a process, so nobody has to tell it.
    pub(crate) fn has_seen_end(&self, process: ProcessId) {
        lock(&self.notices.awaited).processes.remove(&process);
    }

    /// Awaits what a conversation waited for when it was left, and tells nothing that was told in it.
    pub(crate) fn recall_notices(&self, history: &[Message]) {
        let calls: BTreeMap<_, _> =
            history.iter().flat_map(Message::calls).map(|call| (call.id.as_str(), call)).collect();
        for message in history {
            if let Message::User { text, .. } = message {
                self.recall_told(text);
            }
            let Message::Tool { call, name, text } = message else { continue };
            let Ok(answer) = serde_json::from_str::<Value>(text) else { continue };
            if let Some(told) = answer.get(FIELD).and_then(Value::as_str) {
                self.recall_told(told);
            }
            let Some(process) = self.here(&answer) else { continue };
            if name == Tool::Process.name() && answer.get("exit_code").is_some_and(Value::is_number) {
                self.has_seen_end(process);
            } else if name == Tool::Terminal.name()
                && let Some(tells) = asked_for(&answer)
            {
                let command = calls.get(call.as_str()).and_then(|call| match &call.arguments {
                    Arguments::Object(given) => given.get("command")?.as_str(),
                    Arguments::Broken { .. } => None,
                });
                self.await_notice(process, command.unwrap_or_default(), tells);
            }
        }
    }

    fn recall_told(&self, text: &str) {
        if text.starts_with(BEGINNING) {
            lock(&self.notices.awaited).before.push(text.to_owned());
        }
    }

    /// The process that an answer names, if it is one of this place.
    fn here(&self, answer: &Value) -> Option<ProcessId> {
        let handle: ProcessHandle = answer.get("session_id")?.as_str()?.parse().ok()?;
        let place = self.setup().plan.id();
        (ProcessHandle::new(place, handle.process) == handle).then_some(handle.process)
    }

    async fn listen(&self) -> Result<Option<Stream>, Error> {
        let Some(sandbox) = self.opened() else { return Ok(None) };
        Ok(Some(sandbox.processes().await?.notices(0).await?))
    }

    /// What has come and is worth telling.
    fn drain(&self, stream: &mut Option<Stream>, most: usize) -> Vec<String> {
        let mut told = Vec::new();
        while told.len() < most
            && let Some(open) = stream
        {
            match open.next().now_or_never() {
                None => break,
                Some(Ok(notice)) => told.extend(self.words(&notice)),
                Some(Err(_gone)) => *stream = None,
            }
        }
        told
    }

    /// A notice in the words for the model; none if it is nothing to tell.
    fn words(&self, notice: &Notice) -> Option<String> {
        let mut awaited = lock(&self.notices.awaited);
        let process = awaited.processes.get_mut(&notice.process)?;
        if notice.number < process.next {
            return None;
        }
        process.next = notice.number.saturating_add(1);
        let handle = ProcessHandle::new(self.setup().plan.id(), notice.process);
        let command = shown(self, &process.command);
        let command = cut(&command, COMMAND);
        let text = match &notice.what {
            Happening::Ended(ended) => {
                let tells = process.tells;
                awaited.processes.remove(&notice.process);
                if tells != Tells::End {
                    return None;
                }
                let output = last_words(self, &ended.tail, ended.total, OUTPUT);
                let (code, output) = (ended.code, output.trim_end());
                format!(
                    "{BEGINNING}{handle} has ended with exit code {code}.\nCommand: {command}\nOutput:\n{output}]"
                )
            }
            Happening::Matched { .. } if process.tells != Tells::Lines => return None,
            Happening::Matched { line, unreported } => match process.line(*unreported, Instant::now()) {
                Line::Dropped => return None,
                Line::Last => format!(
                    "{BEGINNING}{handle} has too many lines with a watched word, so no more of them are told; its end \
                     is.\nCommand: {command}]"
                ),
                Line::Told(untold) => {
                    let line = shown(self, &String::from_utf8_lossy(line));
                    let line = cut(&line, OUTPUT);
                    let more = if untold == 0 {
                        String::new()
                    } else {
                        format!("\n({untold} lines before it were not told)")
                    };
                    format!(
                        "{BEGINNING}{handle} has a line with a watched word.\nCommand: {command}\nLine:\n{line}{more}]"
                    )
                }
            },
        };
        let is_old = awaited.before.iter().any(|told| told.contains(&text));
        (!is_old).then_some(text)
    }
}

/// What a call of `terminal` asked to be told, by its answer.
fn asked_for(answer: &Value) -> Option<Tells> {
    if answer.get("notify_on_complete").is_some_and(|asked| asked == true) {
        return Some(Tells::End);
    }
    answer.get("watch_patterns").is_some_and(Value::is_array).then_some(Tells::Lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_is_told_at_a_time_and_a_flood_ends_it() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut process = Process::new("serve", Tells::Lines);
        let lines = [
            (0, 0, Line::Told(0)),
            (1, 0, Line::Dropped),
            (2, 3, Line::Dropped),
            (15, 0, Line::Told(5)),
            (16, 0, Line::Dropped),
            (30, 2, Line::Told(3)),
            // A quiet time makes up for the noise before it.
            (60, 0, Line::Told(0)),
            (61, 0, Line::Dropped),
            (75, 0, Line::Told(1)),
            (76, 0, Line::Dropped),
            (90, 0, Line::Told(1)),
            (91, 0, Line::Last),
        ];
        for (seconds, left_out, expected) in lines {
            assert_eq!(process.line(left_out, at(seconds)), expected, "at {seconds}");
        }
        assert_eq!(process.tells, Tells::End);
    }
}
