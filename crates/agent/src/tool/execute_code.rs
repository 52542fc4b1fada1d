//! `execute_code`: a Python program in the session's place, which can call the session's tools.
//!
//! The program is judged as a whole before it runs, and each call it makes is judged as if the model had made it. Its
//! calls come through the guest, so there is nothing to reach on a network and nothing to share on a disk. When the
//! answer is given, everything the program started is gone, and so is the way by which it called.

mod python_module;
mod rpc;
mod sequencer;

use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use hermes_exec::place::script::PRIVATE_DIR;
use hermes_exec::{
    Calls, EndReason, Error, OpenPlace, RunningScript, ScriptDirectory, ScriptOptions, ScriptOutcome,
    StateLoss,
};
use hermes_types::{Job, Work};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{CallContext, CallError, ToolResult, ansi, parse_arguments};
use crate::{Denied, ToolContext};
use rpc::RpcServer;

/// The longest program, in bytes.
const MAX_CODE_BYTES: usize = 1 << 20;
/// Bytes of output that the model sees.
const MAX_OUTPUT_BYTES: u32 = 50_000;
/// Bytes of standard error that the model sees.
const MAX_STDERR_BYTES: u32 = 10_000;
/// How often a session may move away under a program that waits for its permit.
const MAX_START_ATTEMPTS: u32 = 5;
/// How long calls may take to stop once the program has ended.
const CALL_STOP_GRACE: Duration = Duration::from_secs(5);

/// What scripts are allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CodeExecutionConfig {
    /// How long one may run.
    pub timeout: Duration,
    /// How many tools one may call. A call that was refused counts too.
    pub max_tool_calls: u32,
    /// Where they run.
    pub mode: CodeMode,
}

/// Where a script runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CodeMode {
    /// In the session's directory, by the Python that is active there.
    Project,
    /// In an empty directory of its own, by the Python of the place.
    Strict,
}

#[derive(Deserialize)]
struct ExecuteCodeArguments {
    code: String,
}

pub(super) fn spec() -> (&'static str, Value) {
    let description = "Run a Python program that can call tools as functions. Worth it when several calls depend on each \
        other, when a lot is to be filtered or counted before you see it, or for loops over many files or pages: only \
        what the program prints comes back. Not for a single call. Import what you need: `from hermes_tools import \
        terminal, read_file`. Each function answers with a dictionary, the same that the tool gives you; what went \
        wrong is in its `error`. Of these, a session has those that it has as tools: terminal(command, timeout=None, \
        workdir=None), foreground only; read_file(path, offset=None, limit=None); write_file(path, content); \
        patch(path, old_string, new_string, replace_all=None, mode=None, patch=None); search_files(pattern, \
        target=None, path=None, file_glob=None, limit=None, offset=None, output_mode=None, context=None); \
        web_fetch(url, offset=None, max_length=None). Always there: json_parse(text), shell_quote(text), retry(fn, max_attempts=3, delay=2). \
        Functions may be called from threads. By default a program may run for 5 minutes and call 50 tools; its \
        output is cut in the middle beyond 50,000 bytes. Nothing it starts outlives it, and variables are not kept \
        for the next one.";
    let parameters = json!({
        "type": "object",
        "properties": {
            "code": {"type": "string", "description": "The program. Print what you want to see."},
        },
        "required": ["code"],
    });
    (description, parameters)
}

pub(super) async fn call(
    hands: &ToolContext,
    given: Map<String, Value>,
    scene: CallContext<'_>,
) -> ToolResult {
    let ExecuteCodeArguments { code } = match parse_arguments(given) {
        Ok(given) => given,
        Err(wrong) => return wrong,
    };
    if code.trim().is_empty() {
        return ToolResult::error("there is no code to run");
    }
    if code.len() > MAX_CODE_BYTES {
        return ToolResult::error(format!(
            "the code has {} bytes; a program may have {MAX_CODE_BYTES}",
            code.len()
        ));
    }
    let functions = python_module::script_functions(&hands.config().tools);
    let module = python_module::module_source(&functions);
    let token = match random_token() {
        Ok(token) => token,
        Err(error) => return ToolResult::denied(&Denied::NoRandomness(error)),
    };
    let desk = RpcServer::new(hands, scene, functions, token);
    let sandbox = match hands.open_place(scene.observer).await {
        Ok(sandbox) => sandbox,
        Err(error) => return ToolResult::error(error),
    };
    let outcome = match start_script(hands, sandbox, &code, &module, &desk, scene).await {
        Ok((script, calls)) => serve_script(script, calls, &desk, scene).await,
        Err(stopped) => return stopped.into(),
    };
    match outcome {
        Ok(outcome) => script_result(hands, &desk, &outcome),
        Err(error) => ToolResult { ends_turn: desk.ends_turn(), ..ToolResult::error(error) },
    }
}

async fn start_script(
    hands: &ToolContext,
    sandbox: &OpenPlace,
    code: &str,
    module: &str,
    desk: &RpcServer<'_>,
    scene: CallContext<'_>,
) -> Result<(RunningScript, Calls), CallError> {
    let limits = hands.config().limits.code_execution;
    let mut attempts = 0;
    loop {
        let (directory, cwd) = match limits.mode {
            CodeMode::Project => (ScriptDirectory::Session, sandbox.cwd().await.map_err(CallError::Exec)?),
            CodeMode::Strict => (ScriptDirectory::Private, PRIVATE_DIR.to_owned()),
        };
        let job = Job { work: Work::Python(code.to_owned()), cwd };
        let permit = hands.request_permit(job, scene).await.map_err(CallError::Denied)?;
        let wish = ScriptOptions {
            timeout: limits.timeout,
            keep_bytes: MAX_OUTPUT_BYTES,
            keep_stderr_bytes: MAX_STDERR_BYTES,
            env: vec![("HERMES_RPC_TOKEN".to_owned(), desk.token.clone())],
            module_name: python_module::MODULE_NAME.to_owned(),
            module_text: module.to_owned(),
            directory,
        };
        attempts += 1;
        match sandbox.start_python(permit, wish).await {
            // A command of the session was faster; the gate must hear of the new directory.
            Err(Error::SessionMoved) if attempts < MAX_START_ATTEMPTS => {}
            started => return started.map_err(CallError::Exec),
        }
    }
}

/// Serves the calls of a program until it has ended. When this returns, no call is under way.
async fn serve_script(
    mut script: RunningScript,
    mut calls: Calls,
    desk: &RpcServer<'_>,
    scene: CallContext<'_>,
) -> Result<ScriptOutcome, Error> {
    let mut connections = FuturesUnordered::new();
    let mut goes_on = true;
    let outcome = loop {
        tokio::select! {
            biased;
            outcome = script.wait() => break outcome,
            () = async { tokio::select! { () = scene.stop.cancelled() => {}, () = desk.turn_ended.notified() => {} } },
                if goes_on =>
            {
                goes_on = false;
                if let Err(error) = script.interrupt().await {
                    break Err(error);
                }
            }
            Some(()) = connections.next() => {}
            Some(connection) = calls.accept(), if connections.len() < rpc::MAX_CONNECTIONS => {
                connections.push(desk.serve_connection(connection));
            }
        }
    };
    desk.stop.cancel();
    drop(calls);
    // A call that does not stop is given up; what it runs in the place dies with it.
    drop(tokio::time::timeout(CALL_STOP_GRACE, async { while connections.next().await.is_some() {} }).await);
    outcome
}

fn script_result(hands: &ToolContext, desk: &RpcServer<'_>, outcome: &ScriptOutcome) -> ToolResult {
    let errors = String::from_utf8_lossy(&outcome.stderr);
    let errors = ansi::strip_ansi(&errors);
    let limit = hands.config().limits.code_execution.timeout.as_secs();
    let (status, error) = match outcome.end_reason {
        EndReason::Exited | EndReason::Background(_) if outcome.code == 0 => ("success", None),
        EndReason::Exited | EndReason::Background(_) if errors.trim().is_empty() => {
            ("error", Some(format!("the script ended with code {}", outcome.code)))
        }
        // The last line says what it was; all of it is in the output.
        EndReason::Exited | EndReason::Background(_) => {
            ("error", errors.trim().lines().last().map(str::to_owned))
        }
        EndReason::BadDirectory => ("error", Some("its directory is not there; nothing was run".to_owned())),
        EndReason::TimedOut => {
            ("timeout", Some(format!("stopped after {limit} seconds; all it started is gone")))
        }
        EndReason::Interrupted if desk.ends_turn() => {
            ("error", Some("stopped, because what it tried was denied before".to_owned()))
        }
        EndReason::Interrupted => ("interrupted", Some("interrupted; all it started is gone".to_owned())),
    };
    let mut output = ansi::strip_ansi(&visible_output(outcome)).into_owned();
    if outcome.code != 0 && !errors.trim().is_empty() {
        if !output.is_empty() && !output.ends_with('\n') {
            output.push('\n');
        }
        output.push_str("--- stderr ---\n");
        output.push_str(&errors);
    }
    let mut answer = Map::new();
    let mut tell = |name: &str, value: Value| drop(answer.insert(name.to_owned(), value));
    tell("status", json!(status));
    tell("output", json!(output));
    tell("tool_calls_made", json!(desk.calls_made()));
    tell("duration_seconds", json!((outcome.duration.as_secs_f64() * 100.0).round() / 100.0));
    if let Some(error) = error {
        tell("error", json!(error));
    }
    if !outcome.tail.is_empty() && omitted_bytes(outcome) > 0 {
        tell("full_output", json!(outcome.spool_path));
    }
    if outcome.state_loss == StateLoss::Yes {
        tell("note", json!("the place was made anew: its directory, variables and processes begin again"));
    }
    ToolResult { content: Value::Object(answer), succeeded: status == "success", ends_turn: desk.ends_turn() }
}

/// Bytes of the output that are not there.
fn omitted_bytes(outcome: &ScriptOutcome) -> u64 {
    outcome.total_bytes.saturating_sub((outcome.head.len() + outcome.tail.len()) as u64)
}

/// The output with a mark where the middle is missing.
fn visible_output(outcome: &ScriptOutcome) -> String {
    if omitted_bytes(outcome) == 0 {
        let whole = [outcome.head.as_slice(), outcome.tail.as_slice()].concat();
        return String::from_utf8_lossy(&whole).into_owned();
    }
    format!(
        "{}\n[… {} of {} bytes left out …]\n{}",
        String::from_utf8_lossy(&outcome.head),
        omitted_bytes(outcome),
        outcome.total_bytes,
        String::from_utf8_lossy(&outcome.tail)
    )
}

/// What nobody can guess, for one run.
fn random_token() -> Result<String, getrandom::Error> {
    let mut bytes = [0_u8; 24];
    getrandom::fill(&mut bytes)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}
