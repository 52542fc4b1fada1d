//! `process`: what runs in the background of the session's place.

use std::time::{Duration, SystemTime};

use hermes_exec::{Cause, Error, ProcessHandle, ProcessView, Processes, Tree};
use hermes_types::{Job, Work};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{CallContext, CallError, ToolResult, ansi, parse_arguments, truncate_chars};
use crate::ToolContext;

/// Characters of output that each action shows.
const LIST_PREVIEW_CHARS: usize = 200;
const POLL_PREVIEW_CHARS: usize = 1_000;
const WAIT_OUTPUT_CHARS: usize = 2_000;
/// Lines that `log` gives, and the most it gives.
const DEFAULT_LOG_LINES: u64 = 200;
const MAX_LOG_LINES: u64 = 5_000;
/// Bytes of output that are fetched at once, and the most that are looked at to count lines.
const OUTPUT_PAGE_BYTES: u32 = 256 * 1024;
const MAX_LOG_BYTES: u64 = 64 << 20;
/// How long one question to the guest may wait; a longer wait is several.
const MAX_GUEST_WAIT: Duration = Duration::from_secs(60);

#[derive(Deserialize)]
struct ProcessArguments {
    action: ProcessAction,
    #[serde(default)]
    session_id: Value,
    data: Option<String>,
    timeout: Option<u64>,
    offset: Option<u64>,
    limit: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum ProcessAction {
    List,
    Poll,
    Log,
    Wait,
    Kill,
    Write,
    Submit,
    Close,
}

pub(super) fn spec() -> (&'static str, Value) {
    let description = "Look after background commands that `terminal` started: list them; poll for what is new; log \
        gives their output by lines; wait until one ends; kill one with all it started; write or submit (with Enter) \
        to its input; close its input.";
    let parameters = json!({
        "type": "object",
        "properties": {
            "action": {
                "type": "string",
                "enum": ["list", "poll", "log", "wait", "kill", "write", "submit", "close"],
            },
            "session_id": {"type": "string", "description": "The id that `terminal` gave; not for list."},
            "data": {"type": "string", "description": "What to type, for write and submit."},
            "timeout": {"type": "integer", "description": "Seconds that wait waits.", "minimum": 1},
            "offset": {"type": "integer", "description": "The first line for log; 0 gives the last ones.", "default": 0},
            "limit": {"type": "integer", "description": "Lines for log.", "default": DEFAULT_LOG_LINES, "minimum": 1},
        },
        "required": ["action"],
    });
    (description, parameters)
}

/// Whether a call only looks.
pub(super) fn is_read_only(arguments: &Map<String, Value>) -> bool {
    let action = arguments.get("action").and_then(Value::as_str).unwrap_or_default();
    matches!(action, "list" | "poll" | "log" | "wait")
}

pub(super) async fn call(
    hands: &ToolContext,
    given: Map<String, Value>,
    scene: CallContext<'_>,
) -> ToolResult {
    match run_action(hands, given, scene).await {
        Ok(done) | Err(done) => done,
    }
}

async fn run_action(
    hands: &ToolContext,
    given: Map<String, Value>,
    scene: CallContext<'_>,
) -> Result<ToolResult, ToolResult> {
    let given: ProcessArguments = parse_arguments(given)?;
    let sandbox = hands.open_place(scene.observer).await.map_err(ToolResult::error)?;
    let processes = sandbox.processes().await.map_err(ToolResult::error)?;
    let views = processes.list().await.map_err(ToolResult::error)?;
    if given.action == ProcessAction::List {
        let listed: Vec<Value> =
            views.iter().map(|view| process_json(hands, view, LIST_PREVIEW_CHARS)).collect();
        return Ok(ToolResult::success(json!({"processes": listed})));
    }
    let view = find_process(hands, &views, &given.session_id)?;
    let one = TargetProcess { context: hands, processes, view };
    match given.action {
        ProcessAction::List | ProcessAction::Poll => {
            one.mark_end_seen(&one.view);
            Ok(ToolResult::success(process_json(hands, &one.view, POLL_PREVIEW_CHARS)))
        }
        ProcessAction::Log => one.log(given.offset.unwrap_or(0), given.limit).await,
        ProcessAction::Wait => one.wait(given.timeout, scene).await,
        ProcessAction::Kill => one.kill().await,
        ProcessAction::Write => one.write(given.data.unwrap_or_default(), scene).await,
        ProcessAction::Submit => one.write(format!("{}\n", given.data.unwrap_or_default()), scene).await,
        ProcessAction::Close => one.close().await,
    }
}

/// The process that is meant: by its id, a beginning of it that only one has, or its number.
fn find_process(hands: &ToolContext, views: &[ProcessView], id: &Value) -> Result<ProcessView, ToolResult> {
    let wanted = match id {
        Value::String(text) => text.trim().to_owned(),
        Value::Number(number) => number.to_string(),
        _ => String::new(),
    };
    if wanted.is_empty() {
        return Err(ToolResult::error("`session_id` is missing; action=list shows the ids"));
    }
    let found: Vec<&ProcessView> = match wanted.parse::<u32>() {
        Ok(pid) => views.iter().filter(|view| view.process.pid == pid).collect(),
        Err(_no_number) => {
            views.iter().filter(|view| process_handle(hands, view).starts_with(&wanted)).collect()
        }
    };
    // A whole id may be the beginning of another.
    let exact = found.iter().find(|view| process_handle(hands, view) == wanted);
    match (exact, found.as_slice()) {
        (Some(view), _) | (None, [view]) => Ok((*view).clone()),
        (None, []) => Err(ToolResult::failure(json!({
            "status": "not_found",
            "session_id": wanted,
            "error": "no such process in this place; it may have been forgotten half an hour after its end. action=list \
                      shows what there is",
        }))),
        (None, several) => Err(ToolResult::error(format!("{} processes begin with {wanted}", several.len()))),
    }
}

fn process_handle(hands: &ToolContext, view: &ProcessView) -> String {
    ProcessHandle::new(hands.config().place.id(), view.process).to_string()
}

fn is_running(view: &ProcessView) -> bool {
    view.ended.is_none() || view.tree == Tree::Alive
}

fn process_json(hands: &ToolContext, view: &ProcessView, most: usize) -> Value {
    let started = SystemTime::now().checked_sub(view.age);
    let started = started.and_then(|at| at.duration_since(SystemTime::UNIX_EPOCH).ok());
    let mut facts = json!({
        "session_id": process_handle(hands, view),
        "command": truncate_chars(&String::from_utf8_lossy(&view.command), LIST_PREVIEW_CHARS),
        "cwd": String::from_utf8_lossy(&view.cwd),
        "pid": view.process.pid,
        "started_at": started.map(|at| at.as_secs()),
        "uptime_seconds": view.age.as_secs(),
        "status": if is_running(view) { "running" } else { "exited" },
        "output_preview": tail_text(hands, &view.last, view.total, most),
        "output_bytes": view.total,
    });
    if let Some(ended) = &view.ended {
        let (reason, source) = match ended.cause {
            Cause::Exited | Cause::Signaled(_) => ("exited", None),
            Cause::Killed | Cause::Interrupted => ("killed", Some("process.kill")),
            Cause::Deadline => ("killed", Some("deadline")),
            Cause::BadDirectory => ("failed_start", Some("failed_start")),
        };
        facts["exit_code"] = json!(ended.code);
        facts["completion_reason"] = json!(reason);
        if let Some(source) = source {
            facts["termination_source"] = json!(source);
        }
    }
    facts
}

/// The end of an output of so many bytes. Secrets are taken out before it is cut, since half of one would not be recognized.
pub(crate) fn tail_text(hands: &ToolContext, last: &[u8], total: u64, most: usize) -> String {
    let is_cut = total > last.len() as u64;
    let text = String::from_utf8_lossy(last);
    let whole = text.split_once('\n').filter(|_| is_cut).map_or(&*text, |(_half, whole)| whole);
    let text = clean_output(hands, whole);
    text.chars().skip(text.chars().count().saturating_sub(most)).collect()
}

/// Output as a model sees it.
pub(crate) fn clean_output(hands: &ToolContext, output: &str) -> String {
    hands.config().redactor.text(&ansi::strip_ansi(output)).into_owned()
}

/// One process that was asked for.
struct TargetProcess<'a> {
    context: &'a ToolContext,
    processes: Processes,
    view: ProcessView,
}

impl TargetProcess<'_> {
    /// What the model sees of its end here is not told again.
    fn mark_end_seen(&self, view: &ProcessView) {
        if view.ended.is_some() {
            self.context.unsubscribe(view.process);
        }
    }

    /// A window of lines. The output is read page by page, so that its size does not matter.
    async fn log(&self, offset: u64, limit: Option<u64>) -> Result<ToolResult, ToolResult> {
        let limit = limit.unwrap_or(DEFAULT_LOG_LINES).clamp(1, MAX_LOG_LINES);
        let mut window = LineWindow::new(offset, limit);
        let mut at = self.view.total.saturating_sub(MAX_LOG_BYTES);
        let skipped = at;
        loop {
            let page = self
                .processes
                .output(self.view.process, at, OUTPUT_PAGE_BYTES)
                .await
                .map_err(ToolResult::error)?;
            at = page.offset + page.data.len() as u64;
            window.push(&page.data);
            if page.data.is_empty() || at >= page.total {
                break;
            }
        }
        let (lines, first, total) = window.finish();
        let mut answer = json!({
            "session_id": process_handle(self.context, &self.view),
            "status": if is_running(&self.view) { "running" } else { "exited" },
            "output": clean_output(self.context, &lines),
            "total_lines": total,
            "first_line": first,
        });
        if skipped > 0 {
            answer["note"] = json!(format!("lines are counted from byte {skipped} on"));
        }
        if let Some(ended) = &self.view.ended {
            answer["exit_code"] = json!(ended.code);
        }
        self.mark_end_seen(&self.view);
        Ok(ToolResult::success(answer))
    }

    async fn wait(&self, timeout: Option<u64>, scene: CallContext<'_>) -> Result<ToolResult, ToolResult> {
        let longest = self.context.config().limits.timeout;
        let wanted = timeout.filter(|seconds| *seconds > 0).map_or(longest, Duration::from_secs);
        let until = tokio::time::Instant::now() + wanted.min(longest);
        let (status, view) = loop {
            let left = until.saturating_duration_since(tokio::time::Instant::now());
            let waited = tokio::select! {
                waited = self.processes.wait(self.view.process, left.min(MAX_GUEST_WAIT)) => waited,
                () = scene.stop.cancelled() => break ("interrupted", self.view.clone()),
            };
            let view = waited.map_err(ToolResult::error)?;
            if view.ended.is_some() {
                break ("exited", view);
            }
            if left.is_zero() {
                break ("timeout", view);
            }
        };
        self.mark_end_seen(&view);
        let most = if status == "exited" { WAIT_OUTPUT_CHARS } else { POLL_PREVIEW_CHARS };
        let mut answer = json!({"status": status});
        if let (Value::Object(answer), Value::Object(facts)) =
            (&mut answer, process_json(self.context, &view, most))
        {
            let output = facts.get("output_preview").cloned();
            answer.extend(facts.into_iter().filter(|(name, _)| name != "status" && name != "output_preview"));
            answer.extend(output.map(|output| ("output".to_owned(), output)));
        }
        if wanted > longest {
            let told = format!("waited {} seconds, which is the most; wait again or poll", longest.as_secs());
            answer["timeout_note"] = json!(told);
        }
        Ok(ToolResult::success(answer))
    }

    async fn kill(&self) -> Result<ToolResult, ToolResult> {
        let id = process_handle(self.context, &self.view);
        if !is_running(&self.view) {
            self.mark_end_seen(&self.view);
            let code = self.view.ended.as_ref().map(|ended| ended.code);
            return Ok(ToolResult::success(
                json!({"status": "already_exited", "session_id": id, "exit_code": code}),
            ));
        }
        let view = self.processes.kill(self.view.process).await.map_err(ToolResult::error)?;
        self.mark_end_seen(&view);
        let code = view.ended.as_ref().map(|ended| ended.code);
        Ok(ToolResult::success(json!({"status": "killed", "session_id": id, "exit_code": code})))
    }

    /// What is typed may go to a shell, so the gate judges it like a command.
    async fn write(&self, text: String, scene: CallContext<'_>) -> Result<ToolResult, ToolResult> {
        if self.view.ended.is_some() {
            return Err(ToolResult::failure(
                json!({"status": "already_exited", "error": "it has ended and takes no input"}),
            ));
        }
        if text.is_empty() {
            return Err(ToolResult::error("`data` is empty"));
        }
        let count = text.len();
        let job = Job { work: Work::Input(text), cwd: String::from_utf8_lossy(&self.view.cwd).into_owned() };
        let permit = self
            .context
            .request_permit(job, scene)
            .await
            .map_err(|no| ToolResult::from(CallError::Denied(no)))?;
        self.processes.write(self.view.process, permit).await.map_err(|error| input_error(&error))?;
        Ok(ToolResult::success(json!({"status": "ok", "bytes_written": count})))
    }

    async fn close(&self) -> Result<ToolResult, ToolResult> {
        self.processes.close_input(self.view.process).await.map_err(|error| input_error(&error))?;
        Ok(ToolResult::success(json!({"status": "ok"})))
    }
}

fn input_error(error: &Error) -> ToolResult {
    ToolResult::failure(json!({"status": "error", "error": error.to_string()}))
}

/// Some lines of a long text that comes in pieces.
struct LineWindow {
    /// The first line wanted, from 1; none for the last ones.
    first: Option<u64>,
    limit: u64,
    lines: std::collections::VecDeque<Vec<u8>>,
    open: Vec<u8>,
    total: u64,
}

/// Bytes of a line that are kept.
const MAX_LINE_BYTES: usize = 4_000;

impl LineWindow {
    fn new(offset: u64, limit: u64) -> Self {
        let first = (offset > 0).then_some(offset);
        Self { first, limit, lines: std::collections::VecDeque::new(), open: Vec::new(), total: 0 }
    }

    fn push(&mut self, data: &[u8]) {
        for piece in data.split_inclusive(|byte| *byte == b'\n') {
            let (text, ends) = match piece.strip_suffix(b"\n") {
                Some(text) => (text, true),
                None => (piece, false),
            };
            let room = MAX_LINE_BYTES.saturating_sub(self.open.len());
            self.open.extend(text.iter().take(room));
            if ends {
                self.end_line();
            }
        }
    }

    fn end_line(&mut self) {
        self.total += 1;
        let line = std::mem::take(&mut self.open);
        match self.first {
            Some(first) if self.total < first || self.total - first >= self.limit => {}
            Some(_) => self.lines.push_back(line),
            None => {
                self.lines.push_back(line);
                if self.lines.len() as u64 > self.limit {
                    self.lines.pop_front();
                }
            }
        }
    }

    /// The lines, the number of the first one, and how many there are in all.
    fn finish(mut self) -> (String, u64, u64) {
        if !self.open.is_empty() {
            self.end_line();
        }
        let first = self.first.unwrap_or_else(|| self.total.saturating_sub(self.lines.len() as u64) + 1);
        let lines: Vec<String> = self.lines.iter().map(|line| lossy(line)).collect();
        (lines.join("\n"), first, self.total)
    }
}

fn lossy(line: &[u8]) -> String {
    String::from_utf8_lossy(line.strip_suffix(b"\r").unwrap_or(line)).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_has_the_lines_that_were_asked_for_however_they_come() {
        let text = b"one\ntwo\r\nthree\nfour";
        let cases = [
            (0, 2, ("three\nfour", 3, 4)),
            (0, 9, ("one\ntwo\nthree\nfour", 1, 4)),
            (2, 2, ("two\nthree", 2, 4)),
            (4, 5, ("four", 4, 4)),
            (9, 5, ("", 9, 4)),
        ];
        for (offset, limit, (lines, first, total)) in cases {
            for size in [1, 3, 100] {
                let mut window = LineWindow::new(offset, limit);
                text.chunks(size).for_each(|piece| window.push(piece));
                assert_eq!(window.finish(), (lines.to_owned(), first, total), "{offset} {limit} {size}");
            }
        }
    }
}
