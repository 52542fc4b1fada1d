//! `execute_code`: runs a Python program that can call the session's tools.
//!
//! The gate judges the program as a whole before it runs, and each call that it makes as if the
//! model had made it. Calls come through the guest: there is no port on a network and no file on a
//! shared disk. When the tool returns, everything that the program started has ended.

mod python_module;
mod rpc;
mod sequencer;

use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use hermes_exec::place::script::PRIVATE_DIR;
use hermes_exec::{
    EndReason, Error as ExecError, Outcome, PythonConnections, RunningCommand, ScriptDirectory, ScriptOptions,
};
use hermes_types::{Job, Work};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use super::terminal::{add_notes, visible_output};
use super::{CallContext, CallResult, ToolArguments, ToolResult};
use crate::tool_support::ansi;
use crate::{Denied, Error, ToolContext};
use rpc::RpcServer;

const MAX_CODE_BYTES: usize = 1 << 20;
const MAX_OUTPUT_BYTES: u32 = 50_000;
const MAX_STDERR_BYTES: u32 = 10_000;
/// How long calls may take to stop after the program has ended.
const CALL_STOP_GRACE: Duration = Duration::from_secs(5);

/// Limits of scripts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CodeExecutionConfig {
    pub timeout: Duration,
    /// Refused calls count too.
    pub max_tool_calls: u32,
    pub mode: CodeMode,
}

/// The directory and interpreter of a script.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CodeMode {
    /// The directory of the session, and the Python that is active there.
    Project,
    /// An empty directory of its own, and the Python of the environment.
    Strict,
}

/// Run a Python program that can call tools as functions. Worth it when several calls depend on
/// each other, when a lot is to be filtered or counted before you see it, or for loops over many
/// files or pages: only what the program prints comes back. Not for a single call. Import what you
/// need: `from hermes_tools import terminal, read_file`. Each function returns a dictionary, the
/// same that the tool gives you; a failure is in its `error`. A session has those of these
/// functions that it has as tools: terminal(command, timeout=None, workdir=None), foreground only;
/// read_file(path, offset=None, limit=None); write_file(path, content); patch(path, old_string,
/// new_string, replace_all=None, mode=None, patch=None); search_files(pattern, target=None,
/// path=None, file_glob=None, limit=None, offset=None, output_mode=None, context=None);
/// web_fetch(url, offset=None, max_length=None). Always there: json_parse(text), shell_quote(text),
/// retry(fn, max_attempts=3, delay=2). Functions may be called from threads. By default a program
/// may run for 5 minutes and call 50 tools; its output is cut in the middle beyond 50,000 bytes.
/// Nothing it starts outlives it, and variables are not kept for the next one.
#[derive(Deserialize, JsonSchema)]
pub(super) struct ExecuteCodeArguments {
    /// The program. Print what you want to see.
    code: String,
}

impl ToolArguments for ExecuteCodeArguments {
    async fn run(self, context: &ToolContext, call: CallContext<'_>) -> CallResult {
        let Self { code } = self;
        if code.trim().is_empty() {
            return Err(ToolResult::error("`code` is empty"));
        }
        if code.len() > MAX_CODE_BYTES {
            return Err(ToolResult::error(format!(
                "the code has {} bytes; the limit is {MAX_CODE_BYTES}",
                code.len()
            )));
        }
        let functions = python_module::script_functions(&context.config().tools);
        let module = python_module::module_source(&functions);
        let mut token = [0_u8; 24];
        getrandom::fill(&mut token).map_err(Denied::NoRandomness)?;
        let server = RpcServer::new(context, call, functions, hermes_types::hex(&token));
        let (script, calls) = start_script(context, &code, &module, &server, call).await?;
        match serve_script(script, calls, &server, call).await {
            Ok(outcome) => Ok(script_result(context, &server, &outcome)),
            Err(error) => {
                Err(ToolResult { ends_turn: server.turn_ended.is_cancelled(), ..ToolResult::error(error) })
            }
        }
    }
}

async fn start_script(
    context: &ToolContext,
    code: &str,
    module: &str,
    server: &RpcServer<'_>,
    call: CallContext<'_>,
) -> Result<(RunningCommand, PythonConnections), Error> {
    let place = context.open_place(call.observer).await?;
    let limits = context.config().limits.code_execution;
    let options = ScriptOptions {
        timeout: limits.timeout,
        keep_bytes: MAX_OUTPUT_BYTES,
        keep_stderr_bytes: MAX_STDERR_BYTES,
        env: vec![("HERMES_RPC_TOKEN".to_owned(), server.token.clone())],
        module_name: python_module::MODULE_NAME.to_owned(),
        module_text: module.to_owned(),
        directory: match limits.mode {
            CodeMode::Project => ScriptDirectory::Session,
            CodeMode::Strict => ScriptDirectory::Private,
        },
    };
    let job = || async move {
        let work = Work::Python(code.to_owned());
        Ok(match limits.mode {
            CodeMode::Project => place.job(work).await?,
            CodeMode::Strict => Job::new(work, PRIVATE_DIR),
        })
    };
    let start = |permit| place.start_python(permit, options.clone());
    let (started, _approver) = context.start_with_permit(job, start, call).await?;
    Ok(started)
}

/// Serves the calls of a program until it has ended. When this returns, no call is running.
async fn serve_script(
    mut script: RunningCommand,
    mut calls: PythonConnections,
    server: &RpcServer<'_>,
    call: CallContext<'_>,
) -> Result<Outcome, ExecError> {
    let mut connections = FuturesUnordered::new();
    let mut is_interrupted = false;
    let outcome = loop {
        tokio::select! {
            biased;
            outcome = script.wait() => break outcome,
            () = async {
                tokio::select! { () = call.stop.cancelled() => {}, () = server.turn_ended.cancelled() => {} }
            }, if !is_interrupted => {
                is_interrupted = true;
                if let Err(error) = script.interrupt().await {
                    break Err(error);
                }
            }
            // The reason for the end of a connection makes no difference.
            Some(_ended) = connections.next() => {}
            Some(connection) = calls.recv(), if connections.len() < rpc::MAX_CONNECTIONS => {
                connections.push(server.serve_connection(connection));
            }
        }
    };
    server.stop.cancel();
    drop(calls);
    // A call that does not stop in time is dropped, which ends the processes that it runs.
    drop(tokio::time::timeout(CALL_STOP_GRACE, async { while connections.next().await.is_some() {} }).await);
    outcome
}

fn script_result(context: &ToolContext, server: &RpcServer<'_>, outcome: &Outcome) -> ToolResult {
    let stderr = String::from_utf8_lossy(&outcome.stderr);
    let stderr = ansi::strip_ansi(&stderr);
    let timeout = context.config().limits.code_execution.timeout.as_secs();
    let (status, error) = match outcome.end_reason {
        EndReason::Exited | EndReason::Background(_) if outcome.code == 0 => ("success", None),
        EndReason::Exited | EndReason::Background(_) if stderr.trim().is_empty() => {
            ("error", Some(format!("the script ended with code {}", outcome.code)))
        }
        // The last line is the error message; the output contains all of them.
        EndReason::Exited | EndReason::Background(_) => {
            ("error", stderr.trim().lines().last().map(str::to_owned))
        }
        EndReason::BadDirectory => {
            ("error", Some("the directory does not exist; nothing was run".to_owned()))
        }
        EndReason::TimedOut => {
            ("timeout", Some(format!("stopped after {timeout} seconds; everything it started was ended")))
        }
        EndReason::Interrupted if server.turn_ended.is_cancelled() => {
            ("error", Some("stopped, because it kept trying a denied action".to_owned()))
        }
        EndReason::Interrupted => {
            ("interrupted", Some("interrupted; everything it started was ended".to_owned()))
        }
    };
    let mut output = visible_output(outcome);
    if outcome.code != 0 && !stderr.trim().is_empty() {
        if !output.is_empty() && !output.ends_with('\n') {
            output.push('\n');
        }
        output.push_str("--- stderr ---\n");
        output.push_str(&stderr);
    }
    let mut content = json!({
        "status": status,
        "output": output,
        "tool_calls_made": server.calls_made(),
        "duration_seconds": (outcome.duration.as_secs_f64() * 100.0).round() / 100.0,
    });
    if let Some(error) = error {
        content["error"] = json!(error);
    }
    if outcome.omitted_bytes > 0 {
        content["full_output"] = json!(outcome.spool_path);
    }
    add_notes(outcome, &mut content);
    ToolResult { content, succeeded: status == "success", ends_turn: server.turn_ended.is_cancelled() }
}
