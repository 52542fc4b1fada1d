//! `terminal`: runs a shell command.

use std::time::Duration;

use hermes_exec::files::resolve_lexically;
use hermes_exec::{
    EndReason, ExitNotice, Outcome, OutputMode, ProcessHandle, RunOptions, StateLoss, Stdin, TerminalSize,
    WorkingDirectory,
};
use hermes_policy::shell::{Surroundings, understand};
use hermes_types::Work;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{CallContext, CallResult, ToolArguments, ToolResult};
use crate::ToolContext;
use crate::approvals::ApprovedBy;
use crate::process_events::NotifyOn;
use crate::tool_support::ansi;

const PTY_SIZE: TerminalSize = TerminalSize { rows: 30, columns: 120 };
/// Longest partial line that is dropped where the middle of an output is missing.
const MAX_PARTIAL_LINE_BYTES: usize = 2_000;

/// Run a shell command. The working directory, exported variables, functions and files stay for the
/// next command. Read, write and search files with the file tools instead of cat, sed, echo or
/// grep. Commands that end belong in the foreground, with a larger `timeout` if they take long;
/// servers and watchers belong in the background, where `process` reads, waits for and ends them.
/// Do not use programs that need a person at the keyboard.
#[derive(Deserialize, JsonSchema)]
pub(super) struct TerminalArguments {
    /// The command.
    command: String,
    /// Run it in the background and return at once with a session_id for `process`.
    #[serde(default)]
    background: bool,
    /// Seconds it may run in the foreground.
    #[schemars(extend("minimum" = 1))]
    timeout: Option<u64>,
    /// Another directory, for this command only.
    workdir: Option<String>,
    /// Give it a terminal, for programs that need one. Only in the background.
    #[serde(default)]
    pty: bool,
    /// Tell me when a background command has ended.
    #[serde(default)]
    notify_on_complete: bool,
    /// Tell me of lines with one of these words in the output of a background command.
    #[serde(default)]
    watch_patterns: Vec<String>,
}

impl ToolArguments for TerminalArguments {
    async fn run(self, context: &ToolContext, call: CallContext<'_>) -> CallResult {
        if self.command.trim().is_empty() {
            return Err(ToolResult::error("`command` is empty"));
        }
        let limits = &context.config().limits;
        let max_timeout = limits.max_foreground;
        let timeout = match self.timeout.filter(|seconds| *seconds > 0).map(Duration::from_secs) {
            Some(requested) if requested > max_timeout && !self.background => {
                return Err(ToolResult::error(format!(
                    "a foreground command may run for {} seconds; use background=true for longer ones",
                    max_timeout.as_secs()
                )));
            }
            requested => requested.unwrap_or(limits.timeout),
        };
        let (stdin, output) = if self.background {
            let at_end = if notification(&self).is_some() { ExitNotice::Notify } else { ExitNotice::Quiet };
            let watch = if self.notify_on_complete { Vec::new() } else { self.watch_patterns.clone() };
            let label = call.call_id.as_str().to_owned();
            (Stdin::Stream, OutputMode::Background { label, watch, at_end })
        } else {
            (Stdin::Null, OutputMode::AtEnd)
        };
        let options = RunOptions {
            timeout: (!self.background).then_some(timeout),
            keep_bytes: limits.output_bytes,
            stdin,
            env: Vec::new(),
            output,
            directory: match self.workdir {
                Some(_) => WorkingDirectory::Override,
                None => WorkingDirectory::Session,
            },
            terminal_size: (self.pty && self.background).then_some(PTY_SIZE),
        };
        let place = context.open_place(call.observer).await?;
        let given = &self;
        let job = || async move {
            let mut job = place.job(Work::Shell(given.command.clone())).await?;
            if let Some(directory) = &given.workdir {
                job.cwd = resolve_lexically(directory, &job.cwd, &context.config().place.place().home);
            }
            Ok(job)
        };
        let start = |permit| place.start_command(permit, options.clone());
        let (mut command, approved_by) = context.start_with_permit(job, start, call).await?;
        let outcome = tokio::select! {
            outcome = command.wait() => outcome,
            () = call.stop.cancelled() => match command.interrupt().await {
                Ok(()) => command.wait().await,
                Err(error) => Err(error),
            },
        };
        Ok(command_result(context, &self, &outcome?, approved_by, timeout))
    }
}

fn command_result(
    context: &ToolContext,
    given: &TerminalArguments,
    outcome: &Outcome,
    approved_by: Option<ApprovedBy>,
    timeout: Duration,
) -> ToolResult {
    let mut result = json!({});
    if let Some(approver) = approved_by {
        result["approval"] = json!(approver.to_string());
    }
    if given.pty && !given.background {
        result["pty_note"] = json!("only a background command gets a terminal; this one had none");
    }
    if let EndReason::Background(id) = outcome.end_reason {
        result["session_id"] = json!(ProcessHandle::new(context.config().place.id(), id).to_string());
        result["pid"] = json!(id.pid);
        result["output"] = json!("started in the background");
        result["exit_code"] = json!(0);
        result["error"] = Value::Null;
        if let Some(notify_on) = notification(given) {
            context.subscribe(id, &given.command, notify_on);
        }
        if given.notify_on_complete {
            result["notify_on_complete"] = json!(true);
            if !given.watch_patterns.is_empty() {
                result["watch_patterns_ignored"] =
                    json!("notify_on_complete is set, so lines are not watched");
            }
        } else if !given.watch_patterns.is_empty() {
            result["watch_patterns"] = json!(given.watch_patterns);
        } else {
            result["hint"] = json!("you get no notice when it ends; use `process` with poll, log or wait");
        }
        add_notes(outcome, &mut result);
        return ToolResult::success(result);
    }
    result["exit_code"] = json!(outcome.code);
    if outcome.code != 0
        && let Some(meaning) = exit_code_meaning(&given.command, outcome.code)
    {
        result["exit_code_meaning"] = json!(meaning);
    }
    if outcome.omitted_bytes > 0 {
        result["total_bytes"] = json!(outcome.total_bytes);
        result["full_output"] = json!(outcome.spool_path);
    }
    result["output"] = json!(visible_output(outcome).trim_end());
    let error = match outcome.end_reason {
        EndReason::TimedOut => {
            Some(format!("stopped after {} seconds; everything it started was ended", timeout.as_secs()))
        }
        EndReason::Interrupted => Some("interrupted; everything it started was ended".to_owned()),
        EndReason::BadDirectory => {
            let next = &outcome.cwd;
            Some(format!("the directory does not exist, so nothing was run; the next command runs in {next}"))
        }
        EndReason::Exited | EndReason::Background(_) => None,
    };
    result["error"] = json!(error);
    add_notes(outcome, &mut result);
    if let Some(left) = outcome.leftover {
        let id = ProcessHandle::new(context.config().place.id(), left).to_string();
        result["session_id"] = json!(id);
        result["hint"] = json!("it left a process running; use `process` to follow or end it");
    } else if outcome.end_reason == EndReason::TimedOut && is_server(&given.command) {
        result["hint"] = json!("servers and watchers do not end; run them with background=true");
    } else if is_detaching(&given.command) {
        result["hint"] =
            json!("use background=true instead of nohup, setsid or disown, so that `process` can follow it");
    }
    if outcome.code == 0 { ToolResult::success(result) } else { ToolResult::failure(result) }
}

/// The notification that a call requests.
fn notification(given: &TerminalArguments) -> Option<NotifyOn> {
    match (given.notify_on_complete, given.watch_patterns.is_empty()) {
        (true, _) => Some(NotifyOn::Exit),
        (false, false) => Some(NotifyOn::Output),
        (false, true) => None,
    }
}

pub(super) fn add_notes(outcome: &Outcome, result: &mut Value) {
    if outcome.state_loss == StateLoss::Yes {
        result["note"] =
            json!("the environment was recreated: working directory, variables and processes are reset");
    }
    if let Some(note) = &outcome.guard_note {
        result["guard_note"] = json!(note);
    }
}

/// The output for the model, with a mark where the middle is missing.
pub(super) fn visible_output(outcome: &Outcome) -> String {
    let text = |bytes: &[u8]| ansi::strip_ansi(&String::from_utf8_lossy(bytes)).into_owned();
    if outcome.omitted_bytes == 0 {
        return text(&outcome.output);
    }
    let (head, tail) = outcome.output.split_at(outcome.head_len.min(outcome.output.len()));
    let (head, tail) = whole_lines(head, tail);
    let left_out = outcome.total_bytes.saturating_sub((head.len() + tail.len()) as u64);
    let (head, tail) = (text(head), text(tail));
    let (head, total) = (head.trim_end_matches('\n'), outcome.total_bytes);
    format!("{head}\n[… {left_out} of {total} bytes left out …]\n{tail}")
}

/// The two ends of an output without partial lines: half a secret would not be recognized.
fn whole_lines<'a>(head: &'a [u8], tail: &'a [u8]) -> (&'a [u8], &'a [u8]) {
    let last = head.iter().rev().take(MAX_PARTIAL_LINE_BYTES).position(|byte| *byte == b'\n');
    let first = tail.iter().take(MAX_PARTIAL_LINE_BYTES).position(|byte| *byte == b'\n');
    let head = last.and_then(|back| head.get(..head.len() - back)).unwrap_or(head);
    let tail = first.and_then(|at| tail.get(at + 1..)).unwrap_or(tail);
    (head, tail)
}

/// Whether a command detaches the processes that it starts.
fn is_detaching(command: &str) -> bool {
    let script = understand(command, &Surroundings::new("/", "/", "/"));
    script.segments.iter().any(|segment| matches!(segment.name.as_str(), "nohup" | "setsid" | "disown"))
}

/// The meaning of an exit code that is no failure, by the last command of the line.
fn exit_code_meaning(command: &str, code: i32) -> Option<&'static str> {
    let script = understand(command, &Surroundings::new("/", "/", "/"));
    Some(match (script.segments.last()?.name.as_str(), code) {
        ("grep" | "egrep" | "fgrep" | "rg" | "ag" | "ack", 1) => "nothing matched (no error)",
        ("diff", 1) => "the files differ (no error)",
        ("find", 1) => "some directories could not be read; the other results are complete",
        ("test" | "[", 1) => "the condition is false (no error)",
        ("curl", 6) => "the host name could not be resolved",
        ("curl", 7) => "the host did not accept the connection",
        ("curl", 22) => "the server answered with an error",
        ("curl", 28) => "the request timed out",
        ("git", 1) => "often no error, for example when there are differences",
        _ => return None,
    })
}

/// Whether a command runs a server or watcher that does not end by itself.
fn is_server(command: &str) -> bool {
    const SERVERS: [&str; 9] = [
        "npm run dev", "npm start", "vite", "next dev", "nodemon", "uvicorn", "gunicorn", "http.server",
        "compose up",
    ];
    let words: Vec<&str> = command.split_whitespace().collect();
    let line = format!(" {} ", words.join(" "));
    SERVERS.iter().any(|server| line.contains(&format!(" {server} ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_codes_that_are_no_failure_are_explained() {
        let cases = [
            ("grep x f", 1, true),
            ("grep x f", 2, false),
            ("cat f | rg x", 1, true),
            ("make && diff a b", 1, true),
            ("grep x f; make", 1, false),
            ("curl -f http://x", 22, true),
            ("[ -f x ]", 1, true),
        ];
        for (command, code, known) in cases {
            assert_eq!(exit_code_meaning(command, code).is_some(), known, "{command} {code}");
        }
    }

    #[test]
    fn only_servers_and_detached_commands_get_advice() {
        for command in ["pip install uvicorn && uvicorn app:app", "npm run dev", "python3 -m http.server 80"]
        {
            assert!(is_server(command), "{command}");
        }
        for command in ["cat nodemon.json", "echo http", "a & b & wait"] {
            assert!(!is_server(command) && !is_detaching(command), "{command}");
        }
        assert!(is_detaching("nohup ./run > log &") && is_detaching("(setsid x)"));
        assert!(!is_detaching("echo nohup"));
    }

    #[test]
    fn a_shortened_output_has_no_partial_lines() {
        assert_eq!(whole_lines(b"a\nb\nSEC", b"RET\nc\nd"), (&b"a\nb\n"[..], &b"c\nd"[..]));
        assert_eq!(whole_lines(b"abc", b"def"), (&b"abc"[..], &b"def"[..]));
    }
}
