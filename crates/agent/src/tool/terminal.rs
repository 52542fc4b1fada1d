//! `terminal`: a command in the session's place.

use std::time::Duration;

use hermes_exec::{
    AtDeadline, AtEnd, CommandInput, EndReason, Error, OpenPlace, Outcome, OutputMode, ProcessHandle,
    RunOptions, RunningCommand, Size, StateLoss, WorkingDirectory,
};
use hermes_policy::shell::{Surroundings, understand};
use hermes_types::{Job, Person};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{CallContext, CallError, ToolResult, ansi, parse_arguments};
use crate::ToolContext;
use crate::process_events::NotifyOn;
use crate::tool_context::Approval;

/// How often a session may move away under a command that waits for its permit.
const MAX_START_ATTEMPTS: u32 = 5;
/// The terminal of a program that insists on one.
const PTY_SIZE: Size = Size { rows: 30, columns: 120 };
/// How much of a line is given up so that what is shown begins and ends with whole ones.
const MAX_PARTIAL_LINE_BYTES: usize = 2_000;

#[derive(Deserialize)]
struct TerminalArguments {
    command: String,
    #[serde(default)]
    background: bool,
    timeout: Option<u64>,
    workdir: Option<String>,
    #[serde(default)]
    pty: bool,
    #[serde(default)]
    notify_on_complete: bool,
    #[serde(default)]
    watch_patterns: Vec<String>,
}

pub(super) fn spec() -> (&'static str, Value) {
    let description = "Run a shell command. The working directory, exported variables, functions and files stay for the \
        next command. Read, write and search files with the file tools instead of cat, sed, echo or grep. Commands \
        that end belong in the foreground, with a larger `timeout` if they take long; servers and watchers belong in \
        the background, where `process` reads, waits for and ends them. Do not use programs that want a person at the \
        keyboard.";
    let parameters = json!({
        "type": "object",
        "properties": {
            "command": {"type": "string", "description": "The command."},
            "background": {
                "type": "boolean",
                "description": "Let it go on and answer at once with a session_id for `process`.",
                "default": false,
            },
            "timeout": {"type": "integer", "description": "Seconds it may run in the foreground.", "minimum": 1},
            "workdir": {"type": "string", "description": "Another directory, for this command only."},
            "pty": {
                "type": "boolean",
                "description": "Give it a terminal, for programs that insist on one. Only in the background.",
                "default": false,
            },
            "notify_on_complete": {
                "type": "boolean",
                "description": "Tell me when a background command has ended.",
                "default": false,
            },
            "watch_patterns": {
                "type": "array",
                "items": {"type": "string"},
                "description": "Tell me of lines with one of these words in the output of a background command.",
            },
        },
        "required": ["command"],
    });
    (description, parameters)
}

pub(super) async fn call(
    hands: &ToolContext,
    given: Map<String, Value>,
    scene: CallContext<'_>,
) -> ToolResult {
    let given: TerminalArguments = match parse_arguments(given) {
        Ok(given) => given,
        Err(wrong) => return wrong,
    };
    if given.command.trim().is_empty() {
        return ToolResult::error("`command` is empty");
    }
    let limits = &hands.config().limits;
    let longest = limits.max_foreground;
    let timeout = match given.timeout.filter(|seconds| *seconds > 0).map(Duration::from_secs) {
        Some(wanted) if wanted > longest && !given.background => {
            return ToolResult::error(format!(
                "a command in the foreground may take {} seconds; use background=true for longer ones",
                longest.as_secs()
            ));
        }
        wanted => wanted.unwrap_or(limits.timeout),
    };
    let wish = RunOptions {
        timeout: (!given.background).then_some(timeout),
        at_deadline: AtDeadline::Kill,
        keep_bytes: limits.output_bytes,
        input: if given.background { CommandInput::Stream } else { CommandInput::None },
        env: Vec::new(),
        output: if given.background {
            let at_end = if notification(&given).is_some() { AtEnd::Notify } else { AtEnd::Quiet };
            let watch = if given.notify_on_complete { Vec::new() } else { given.watch_patterns.clone() };
            OutputMode::Background { label: scene.call_id.as_str().to_owned(), watch, at_end }
        } else {
            OutputMode::AtEnd
        },
        directory: if given.workdir.is_some() {
            WorkingDirectory::Override
        } else {
            WorkingDirectory::Session
        },
        terminal_size: (given.pty && given.background).then_some(PTY_SIZE),
    };
    let sandbox = match hands.open_place(scene.observer).await {
        Ok(sandbox) => sandbox,
        Err(error) => return ToolResult::error(error),
    };
    let (mut command, by) = match start_command(hands, sandbox, &given, &wish, scene).await {
        Ok(started) => started,
        Err(stopped) => return stopped.into(),
    };
    let outcome = tokio::select! {
        outcome = command.wait() => outcome,
        () = scene.stop.cancelled() => match command.interrupt().await {
            Ok(()) => command.wait().await,
            Err(error) => Err(error),
        },
    };
    match outcome {
        Ok(outcome) => command_result(hands, &given, &outcome, by, timeout),
        Err(error) => ToolResult::error(error),
    }
}

async fn start_command(
    hands: &ToolContext,
    sandbox: &OpenPlace,
    given: &TerminalArguments,
    wish: &RunOptions,
    scene: CallContext<'_>,
) -> Result<(RunningCommand, Option<Person>), CallError> {
    let mut attempts = 0;
    loop {
        let cwd = match &given.workdir {
            Some(directory) => {
                let home = hands.config().place.place().home;
                let here = sandbox.cwd().await.map_err(CallError::Exec)?;
                hermes_exec::files::resolve_lexically(directory, &here, &home)
            }
            None => sandbox.cwd().await.map_err(CallError::Exec)?,
        };
        let job = Job::shell(given.command.as_str(), cwd);
        let Approval { permit, approved_by: by } =
            hands.request_approval(job, scene).await.map_err(CallError::Denied)?;
        attempts += 1;
        match sandbox.start_command(permit, wish.clone()).await {
            // Another command of the session was faster; the gate must hear of the new directory.
            Err(Error::SessionMoved) if attempts < MAX_START_ATTEMPTS => {}
            started => return Ok((started.map_err(CallError::Exec)?, by)),
        }
    }
}

fn command_result(
    hands: &ToolContext,
    given: &TerminalArguments,
    outcome: &Outcome,
    by: Option<Person>,
    timeout: Duration,
) -> ToolResult {
    let mut answer = Map::new();
    let mut tell = |name: &str, value: Value| drop(answer.insert(name.to_owned(), value));
    if let Some(by) = by {
        tell("approval", json!(format!("approved by {}", by.as_str())));
    }
    if given.pty && !given.background {
        tell("pty_note", json!("only a background command gets a terminal; this one had none"));
    }
    if let EndReason::Background(id) = outcome.end_reason {
        tell("session_id", json!(ProcessHandle::new(hands.config().place.id(), id).to_string()));
        tell("pid", json!(id.pid));
        tell("output", json!("started in the background"));
        tell("exit_code", json!(0));
        tell("error", Value::Null);
        if let Some(tells) = notification(given) {
            hands.subscribe(id, &given.command, tells);
        }
        if given.notify_on_complete {
            tell("notify_on_complete", json!(true));
            if !given.watch_patterns.is_empty() {
                tell("watch_patterns_ignored", json!("its end is told; lines are not watched besides"));
            }
        } else if !given.watch_patterns.is_empty() {
            tell("watch_patterns", json!(given.watch_patterns));
        } else {
            tell("hint", json!("nothing tells you when it ends; use `process` with poll, log or wait"));
        }
        add_reset_note(outcome, &mut tell);
        return ToolResult::success(Value::Object(answer));
    }
    tell("exit_code", json!(outcome.code));
    if outcome.code != 0
        && let Some(meaning) = exit_code_meaning(&given.command, outcome.code)
    {
        tell("exit_code_meaning", json!(meaning));
    }
    if outcome.omitted_bytes > 0 {
        tell("total_bytes", json!(outcome.total_bytes));
        tell("full_output", json!(outcome.spool_path));
    }
    tell("output", json!(visible_output(outcome)));
    let error = match outcome.end_reason {
        EndReason::TimedOut => {
            Some(format!("stopped after {} seconds; all it started is gone", timeout.as_secs()))
        }
        EndReason::Interrupted => Some("interrupted; all it started is gone".to_owned()),
        EndReason::BadDirectory => {
            let next = &outcome.cwd;
            Some(format!("its directory is not there, so nothing was run; the next command runs in {next}"))
        }
        EndReason::Exited | EndReason::Background(_) => None,
    };
    tell("error", json!(error));
    add_reset_note(outcome, &mut tell);
    if let Some(left) = outcome.leftover {
        let id = ProcessHandle::new(hands.config().place.id(), left).to_string();
        tell("session_id", json!(id));
        tell("hint", json!("it left something running, which `process` can show and end"));
    } else if outcome.end_reason == EndReason::TimedOut && is_server(&given.command) {
        tell("hint", json!("what serves or watches does not end; run it with background=true"));
    } else if is_detaching(&given.command) {
        tell(
            "hint",
            json!("with background=true instead of nohup, setsid or disown, `process` can follow it"),
        );
    }
    let answer = Value::Object(answer);
    if outcome.code == 0 { ToolResult::success(answer) } else { ToolResult::failure(answer) }
}

/// What is told of a command in the background. The end of one whose lines are watched comes when they are too many.
fn notification(given: &TerminalArguments) -> Option<NotifyOn> {
    match (given.notify_on_complete, given.watch_patterns.is_empty()) {
        (true, _) => Some(NotifyOn::Exit),
        (false, false) => Some(NotifyOn::Output),
        (false, true) => None,
    }
}

fn add_reset_note(outcome: &Outcome, tell: &mut impl FnMut(&str, Value)) {
    if outcome.state_loss == StateLoss::Yes {
        tell("note", json!("the place was made anew: its directory, variables and processes begin again"));
    }
}

/// The output with a mark where the middle is missing, and without what only a screen understands.
fn visible_output(outcome: &Outcome) -> String {
    let text = |bytes: &[u8]| ansi::strip_ansi(&String::from_utf8_lossy(bytes)).into_owned();
    if outcome.omitted_bytes == 0 {
        return text(&outcome.output).trim_end().to_owned();
    }
    let (head, tail) = outcome.output.split_at(outcome.head_len.min(outcome.output.len()));
    let (head, tail) = whole_lines(head, tail);
    let left_out = outcome.total_bytes.saturating_sub((head.len() + tail.len()) as u64);
    format!(
        "{}\n[… {left_out} of {} bytes left out …]\n{}",
        text(head).trim_end_matches('\n'),
        outcome.total_bytes,
        text(tail).trim_end()
    )
}

/// The two ends of an output without the lines that are cut: half a secret would not be recognized as one.
fn whole_lines<'a>(head: &'a [u8], tail: &'a [u8]) -> (&'a [u8], &'a [u8]) {
    let last = head.iter().rev().take(MAX_PARTIAL_LINE_BYTES).position(|byte| *byte == b'\n');
    let first = tail.iter().take(MAX_PARTIAL_LINE_BYTES).position(|byte| *byte == b'\n');
    let head = last.and_then(|back| head.get(..head.len() - back)).unwrap_or(head);
    let tail = first.and_then(|at| tail.get(at + 1..)).unwrap_or(tail);
    (head, tail)
}

/// Whether a command lets go of what it starts.
fn is_detaching(command: &str) -> bool {
    let script = understand(command, &Surroundings { cwd: "/", home: "/", hermes_home: "/" });
    script.segments.iter().any(|segment| matches!(segment.name.as_str(), "nohup" | "setsid" | "disown"))
}

/// What a code says that is no failure, by the command that gave it: the last one of the line.
fn exit_code_meaning(command: &str, code: i32) -> Option<&'static str> {
    let script = understand(command, &Surroundings { cwd: "/", home: "/", hermes_home: "/" });
    Some(match (script.segments.last()?.name.as_str(), code) {
        ("grep" | "egrep" | "fgrep" | "rg" | "ag" | "ack", 1) => "nothing matched (no error)",
        ("diff", 1) => "the files differ (no error)",
        ("find", 1) => "some directories could not be read; the rest is there",
        ("test" | "[", 1) => "the condition is false (no error)",
        ("curl", 6) => "the host name could not be resolved",
        ("curl", 7) => "the host did not accept the connection",
        ("curl", 22) => "the server answered with an error",
        ("curl", 28) => "it took too long",
        ("git", 1) => "often no error, for example when there are differences",
        _ => return None,
    })
}

/// Whether a command is one of those that serve until somebody ends them.
fn is_server(command: &str) -> bool {
    const WORDS: [&[&str]; 9] = [
        &["npm", "run", "dev"],
        &["npm", "start"],
        &["vite"],
        &["next", "dev"],
        &["nodemon"],
        &["uvicorn"],
        &["gunicorn"],
        &["http.server"],
        &["compose", "up"],
    ];
    let words: Vec<&str> = command.split_whitespace().collect();
    WORDS.iter().any(|server| words.windows(server.len()).any(|window| window == *server))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_that_are_no_failure_have_a_meaning_by_the_last_command() {
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
    fn only_what_serves_or_detaches_is_advised_about() {
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
    fn what_is_shown_of_a_long_output_has_no_half_lines() {
        assert_eq!(whole_lines(b"a\nb\nSEC", b"RET\nc\nd"), (&b"a\nb\n"[..], &b"c\nd"[..]));
        assert_eq!(whole_lines(b"abc", b"def"), (&b"abc"[..], &b"def"[..]));
    }
}
