//! `process`: background commands of the session.

use std::collections::VecDeque;
use std::time::{Duration, SystemTime};

use hermes_exec::{Error, ExitCause, ProcessHandle, ProcessView, Processes, TreeStatus};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{CallContext, CallResult, ToolArguments, ToolResult};
use crate::ToolContext;
use crate::tool_support::ansi;
use crate::tool_support::text::truncate_chars;

const LIST_PREVIEW_CHARS: usize = 200;
const POLL_PREVIEW_CHARS: usize = 1_000;
const WAIT_OUTPUT_CHARS: usize = 2_000;
const DEFAULT_LOG_LINES: u64 = 200;
const MAX_LOG_LINES: u64 = 5_000;
const OUTPUT_PAGE_BYTES: u32 = 256 * 1024;
/// `log` counts lines within the last bytes of an output.
const MAX_LOG_BYTES: u64 = 64 << 20;
/// One request to the guest; a longer wait is several requests.
const MAX_GUEST_WAIT: Duration = Duration::from_secs(60);

/// Look after background commands that `terminal` started: list them; poll for new output; log
/// returns their output by lines; wait until one ends; kill one with everything it started; write
/// or submit (with Enter) to its input; close its input.
#[derive(Deserialize, JsonSchema)]
pub(super) struct ProcessArguments {
    action: ProcessToolAction,
    /// The id that `terminal` returned; not for list.
    #[serde(default)]
    #[schemars(with = "Option<String>")]
    session_id: Value,
    /// The input, for write and submit.
    data: Option<String>,
    /// Seconds that wait waits.
    #[schemars(extend("minimum" = 1))]
    timeout: Option<u64>,
    /// The first line for log; 0 gives the last ones.
    #[schemars(with = "Option<i64>", extend("default" = 0))]
    offset: Option<u64>,
    /// Lines for log.
    #[schemars(extend("default" = DEFAULT_LOG_LINES, "minimum" = 1))]
    limit: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum ProcessToolAction {
    List,
    Poll,
    Log,
    Wait,
    Kill,
    Write,
    Submit,
    Close,
}

impl ToolArguments for ProcessArguments {
    async fn run(self, context: &ToolContext, call: CallContext<'_>) -> CallResult {
        let processes = context.open_place(call.observer).await?.processes().await?;
        let views = processes.list().await?;
        if self.action == ProcessToolAction::List {
            let processes: Vec<Value> =
                views.iter().map(|view| process_json(context, view, LIST_PREVIEW_CHARS)).collect();
            return Ok(ToolResult::success(json!({"processes": processes})));
        }
        let view = find_process(context, &views, &self.session_id)?;
        let target = TargetProcess { context, processes, view };
        match self.action {
            ProcessToolAction::List | ProcessToolAction::Poll => {
                target.mark_end_seen(&target.view);
                Ok(ToolResult::success(process_json(context, &target.view, POLL_PREVIEW_CHARS)))
            }
            ProcessToolAction::Log => target.log(self.offset.unwrap_or(0), self.limit).await,
            ProcessToolAction::Wait => target.wait(self.timeout, call).await,
            ProcessToolAction::Kill => target.kill().await,
            ProcessToolAction::Write => target.write(self.data.unwrap_or_default(), call).await,
            ProcessToolAction::Submit => {
                target.write(format!("{}\n", self.data.unwrap_or_default()), call).await
            }
            ProcessToolAction::Close => target.close().await,
        }
    }
}

/// Finds a process by its id, a unique prefix of it, or its pid.
fn find_process(context: &ToolContext, views: &[ProcessView], id: &Value) -> Result<ProcessView, ToolResult> {
    let id = match id {
        Value::String(text) => text.trim().to_owned(),
        Value::Number(number) => number.to_string(),
        _ => String::new(),
    };
    if id.is_empty() {
        return Err(ToolResult::error("`session_id` is missing; action=list shows the ids"));
    }
    let found: Vec<&ProcessView> = match id.parse::<u32>() {
        Ok(pid) => views.iter().filter(|view| view.process.pid == pid).collect(),
        Err(_no_number) => {
            views.iter().filter(|view| process_handle(context, view).starts_with(&id)).collect()
        }
    };
    // A whole id may be the prefix of another.
    let exact = found.iter().find(|view| process_handle(context, view) == id);
    match (exact, found.as_slice()) {
        (Some(view), _) | (None, [view]) => Ok((*view).clone()),
        (None, []) => Err(ToolResult::failure(json!({
            "status": "not_found",
            "session_id": id,
            "error": "no such process in this environment; an ended one is removed after half an hour. action=list \
                      shows the others",
        }))),
        (None, several) => Err(ToolResult::error(format!("{} processes begin with {id}", several.len()))),
    }
}

fn process_handle(context: &ToolContext, view: &ProcessView) -> String {
    ProcessHandle::new(context.config().place.id(), view.process).to_string()
}

fn is_running(view: &ProcessView) -> bool {
    view.exit.is_none() || view.tree == TreeStatus::Alive
}

fn process_json(context: &ToolContext, view: &ProcessView, max_chars: usize) -> Value {
    let started = SystemTime::now().checked_sub(view.age);
    let started = started.and_then(|at| at.duration_since(SystemTime::UNIX_EPOCH).ok());
    let mut json = json!({
        "session_id": process_handle(context, view),
        "command": truncate_chars(&String::from_utf8_lossy(&view.command), LIST_PREVIEW_CHARS),
        "cwd": String::from_utf8_lossy(&view.cwd),
        "pid": view.process.pid,
        "started_at": started.map(|at| at.as_secs()),
        "uptime_seconds": view.age.as_secs(),
        "status": if is_running(view) { "running" } else { "exited" },
        "output_preview": tail_text(context, &view.output_tail, view.output_bytes, max_chars),
        "output_bytes": view.output_bytes,
    });
    if let Some(ended) = &view.exit {
        let (reason, source) = match ended.cause {
            ExitCause::Exited | ExitCause::Signaled(_) => ("exited", None),
            ExitCause::Killed | ExitCause::Interrupted => ("killed", Some("process.kill")),
            ExitCause::Deadline => ("killed", Some("deadline")),
            ExitCause::Guard => ("killed", Some("guard")),
            ExitCause::NoWorkingDir => ("failed_start", Some("failed_start")),
        };
        json["exit_code"] = json!(ended.code);
        json["completion_reason"] = json!(reason);
        if let Some(source) = source {
            json["termination_source"] = json!(source);
        }
    }
    json
}

/// The last characters of an output of `total` bytes. Secrets are removed before the cut: half a
/// secret would not be recognized.
pub(crate) fn tail_text(context: &ToolContext, last: &[u8], total: u64, max_chars: usize) -> String {
    let is_cut = total > last.len() as u64;
    let text = String::from_utf8_lossy(last);
    let whole = text.split_once('\n').filter(|_| is_cut).map_or(&*text, |(_half, whole)| whole);
    let text = clean_output(context, whole);
    text.chars().skip(text.chars().count().saturating_sub(max_chars)).collect()
}

/// Output for the model, without escape sequences and secrets.
pub(crate) fn clean_output(context: &ToolContext, output: &str) -> String {
    context.config().redactor.redact(&ansi::strip_ansi(output)).into_owned()
}

/// The process that a call names.
struct TargetProcess<'a> {
    context: &'a ToolContext,
    processes: Processes,
    view: ProcessView,
}

impl TargetProcess<'_> {
    /// Sends no notice about an end that the model sees here.
    fn mark_end_seen(&self, view: &ProcessView) {
        if view.exit.is_some() {
            self.context.unsubscribe(view.process);
        }
    }

    /// Returns a window of lines. Reads the output page by page, to limit memory.
    async fn log(&self, offset: u64, limit: Option<u64>) -> Result<ToolResult, ToolResult> {
        let limit = limit.unwrap_or(DEFAULT_LOG_LINES).clamp(1, MAX_LOG_LINES);
        let mut window = LineWindow::new(offset, limit);
        let mut at = self.view.output_bytes.saturating_sub(MAX_LOG_BYTES);
        let skipped = at;
        loop {
            let page = self.processes.output(self.view.process, at, OUTPUT_PAGE_BYTES).await?;
            at = page.offset + page.data.len() as u64;
            window.push(&page.data);
            if page.data.is_empty() || at >= page.total {
                break;
            }
        }
        let (lines, first, total) = window.finish();
        let mut result = json!({
            "session_id": process_handle(self.context, &self.view),
            "status": if is_running(&self.view) { "running" } else { "exited" },
            "output": clean_output(self.context, &lines),
            "total_lines": total,
            "first_line": first,
        });
        if skipped > 0 {
            result["note"] = json!(format!("lines are counted from byte {skipped} on"));
        }
        if let Some(ended) = &self.view.exit {
            result["exit_code"] = json!(ended.code);
        }
        self.mark_end_seen(&self.view);
        Ok(ToolResult::success(result))
    }

    async fn wait(&self, timeout: Option<u64>, call: CallContext<'_>) -> Result<ToolResult, ToolResult> {
        let max_wait = self.context.config().limits.timeout;
        let requested = timeout.filter(|seconds| *seconds > 0).map_or(max_wait, Duration::from_secs);
        let until = tokio::time::Instant::now() + requested.min(max_wait);
        let (status, view) = loop {
            let left = until.saturating_duration_since(tokio::time::Instant::now());
            let waited = tokio::select! {
                waited = self.processes.wait(self.view.process, left.min(MAX_GUEST_WAIT)) => waited,
                () = call.stop.cancelled() => break ("interrupted", self.view.clone()),
            };
            let view = waited?;
            if view.exit.is_some() {
                break ("exited", view);
            }
            if left.is_zero() {
                break ("timeout", view);
            }
        };
        self.mark_end_seen(&view);
        let max_chars = if status == "exited" { WAIT_OUTPUT_CHARS } else { POLL_PREVIEW_CHARS };
        let mut result = process_json(self.context, &view, max_chars);
        result["status"] = json!(status);
        if let Some(fields) = result.as_object_mut() {
            let output = fields.shift_remove("output_preview");
            fields.extend(output.map(|output| ("output".to_owned(), output)));
        }
        if requested > max_wait {
            let note = format!("waited {} seconds, the maximum; wait again or poll", max_wait.as_secs());
            result["timeout_note"] = json!(note);
        }
        Ok(ToolResult::success(result))
    }

    async fn kill(&self) -> Result<ToolResult, ToolResult> {
        let (status, view) = if is_running(&self.view) {
            ("killed", &self.processes.kill(self.view.process).await?)
        } else {
            ("already_exited", &self.view)
        };
        self.mark_end_seen(view);
        let id = process_handle(self.context, view);
        let code = view.exit.as_ref().map(|ended| ended.code);
        Ok(ToolResult::success(json!({"status": status, "session_id": id, "exit_code": code})))
    }

    /// The process may be a shell, so the gate judges the input like a command.
    async fn write(&self, text: String, call: CallContext<'_>) -> Result<ToolResult, ToolResult> {
        if self.view.exit.is_some() {
            return Err(ToolResult::failure(
                json!({"status": "already_exited", "error": "the process has ended and accepts no input"}),
            ));
        }
        if text.is_empty() {
            return Err(ToolResult::error("`data` is empty"));
        }
        let count = text.len();
        let id = self.view.process;
        let job = || self.processes.input_job(id, text.clone());
        let write = |permit| self.processes.write(id, permit);
        match self.context.start_with_permit(job, write, call).await {
            Err(crate::Error::Exec(error)) => return Err(input_error(&error)),
            done => done?,
        };
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

/// Selects lines of a long text that arrives in pieces.
struct LineWindow {
    /// The first line to return, from 1; none for the last lines.
    first: Option<u64>,
    limit: u64,
    lines: VecDeque<String>,
    open: Vec<u8>,
    total: u64,
}

const MAX_LINE_BYTES: usize = 4_000;

impl LineWindow {
    fn new(offset: u64, limit: u64) -> Self {
        let first = (offset > 0).then_some(offset);
        Self { first, limit, lines: VecDeque::new(), open: Vec::new(), total: 0 }
    }

    fn push(&mut self, data: &[u8]) {
        for piece in data.split_inclusive(|byte| *byte == b'\n') {
            let ended = piece.strip_suffix(b"\n");
            let free = MAX_LINE_BYTES.saturating_sub(self.open.len());
            self.open.extend(ended.unwrap_or(piece).iter().take(free));
            if ended.is_some() {
                self.end_line();
            }
        }
    }

    fn end_line(&mut self) {
        self.total += 1;
        let line = std::mem::take(&mut self.open);
        if self.first.is_none_or(|first| (first..first.saturating_add(self.limit)).contains(&self.total)) {
            let line = String::from_utf8_lossy(line.strip_suffix(b"\r").unwrap_or(&line));
            self.lines.push_back(line.into_owned());
        }
        if self.lines.len() as u64 > self.limit {
            self.lines.pop_front();
        }
    }

    /// The lines, the number of the first one, and the total count.
    fn finish(mut self) -> (String, u64, u64) {
        if !self.open.is_empty() {
            self.end_line();
        }
        let first = self.first.unwrap_or_else(|| self.total.saturating_sub(self.lines.len() as u64) + 1);
        (Vec::from(self.lines).join("\n"), first, self.total)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_returns_the_requested_lines_for_any_piece_size() {
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
