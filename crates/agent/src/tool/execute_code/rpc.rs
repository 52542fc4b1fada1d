//! Serves the calls of one script, each as if the model had made it.
//!
//! A connection begins with the token of the run. Then come requests, each answered before the next
//! is read. Messages are JSON with a length prefix of four bytes, big-endian.
//!
//! | limit | value |
//! |---|---|
//! | connections at once | 64 |
//! | time until the token has arrived | 10 s |
//! | bytes of a token message, of a request, of a response | 4 KiB, 1 MiB, 8 MiB |
//! | bytes of requests that are being read, together | 8 MiB |
//!
//! An invalid message ends its connection and nothing else.

use std::convert::Infallible;
use std::io;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use hermes_exec::Tunnel;
use hermes_types::CallId;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use super::python_module::ScriptFunction;
use super::sequencer::Sequencer;
use crate::ToolContext;
use crate::tool::CallContext;

pub(super) const MAX_CONNECTIONS: usize = 64;
const HELLO_TIMEOUT: Duration = Duration::from_secs(10);
const MAX_HELLO_BYTES: u32 = 4 << 10;
const MAX_REQUEST_BYTES: u32 = 1 << 20;
const MAX_RESPONSE_BYTES: usize = 8 << 20;
const MAX_BUFFERED_BYTES: usize = 8 << 20;

/// The calls of one run.
pub(super) struct RpcServer<'a> {
    context: &'a ToolContext,
    /// The `execute_code` call itself.
    run: CallContext<'a>,
    functions: Vec<ScriptFunction>,
    pub(super) token: String,
    /// Stops every call.
    pub(super) stop: CancellationToken,
    max_calls: u32,
    sequencer: Sequencer,
    /// Bytes that requests may still use.
    read_budget: Semaphore,
    requested_calls: AtomicU32,
    /// Cancelled when a call ends the turn, because a denied action was tried too often.
    pub(super) turn_ended: CancellationToken,
}

#[derive(Deserialize)]
struct RpcHello {
    token: String,
}

#[derive(Deserialize)]
struct RpcRequest {
    id: u64,
    tool: String,
    #[serde(default)]
    arguments: Map<String, Value>,
}

impl<'a> RpcServer<'a> {
    pub(super) fn new(
        context: &'a ToolContext,
        run: CallContext<'a>,
        functions: Vec<ScriptFunction>,
        token: String,
    ) -> Self {
        Self {
            context,
            run,
            functions,
            token,
            stop: run.stop.child_token(),
            max_calls: context.config().limits.code_execution.max_tool_calls,
            sequencer: Sequencer::default(),
            read_budget: Semaphore::new(MAX_BUFFERED_BYTES),
            requested_calls: AtomicU32::new(0),
            turn_ended: CancellationToken::new(),
        }
    }

    /// Calls made within the limit.
    pub(super) fn calls_made(&self) -> u32 {
        self.requested_calls.load(Ordering::Relaxed).min(self.max_calls)
    }

    /// Serves one connection until it or the run ends. At the end of the run a running call is
    /// stopped and awaited.
    pub(super) async fn serve_connection(&self, mut connection: Tunnel) -> io::Result<Infallible> {
        let connection = &mut connection;
        let hello = self.receive_message(connection, MAX_HELLO_BYTES);
        let hello: RpcHello = serde_json::from_slice(&tokio::time::timeout(HELLO_TIMEOUT, hello).await??)?;
        if !constant_time_eq(hello.token.as_bytes(), self.token.as_bytes()) {
            send_message(connection, &json!({"error": "the token does not belong to this run"})).await?;
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        loop {
            let request = self.receive_message(connection, MAX_REQUEST_BYTES).await?;
            let request: RpcRequest = serde_json::from_slice(&request)?;
            let response = self.handle_request(&request.tool, request.arguments).await;
            send_message(connection, &json!({"id": request.id, "answer": response})).await?;
        }
    }

    async fn handle_request(&self, name: &str, arguments: Map<String, Value>) -> Value {
        let number = self.requested_calls.fetch_add(1, Ordering::Relaxed);
        if number >= self.max_calls {
            return json!({"error": format!(
                "a script may make {} tool calls; do the rest in another script", self.max_calls
            )});
        }
        let Some(function) = self.functions.iter().find(|function| function.tool.name() == name) else {
            let known: Vec<&str> = self.functions.iter().map(|function| function.tool.name()).collect();
            return json!({"error": format!("a script of this session cannot call {name}; available: {}", known.join(", "))});
        };
        if let Some(unknown) = arguments.keys().find(|given| !function.has_parameter(given)) {
            return json!({"error": format!("{name} takes no {unknown} in a script")});
        }
        let tool = function.tool;
        let arguments = hermes_model::coerce(arguments, &function.schema);
        // Not the id of the run: after a restart, an open question of this call must not make the
        // run look as if it had not begun.
        let call = CallId::new(format!("{}.{number}", self.run.call_id.as_str()));
        let call = CallContext { call_id: &call, stop: &self.stop, ..self.run };
        let result = tokio::select! {
            biased;
            () = self.stop.cancelled() => return json!({"error": "the run has ended"}),
            _slot = self.sequencer.acquire_slot(tool.effects(&arguments)) => {
                self.context.call_tool(tool, arguments, call).await
            }
        };
        if result.ends_turn {
            self.turn_ended.cancel();
        }
        result.content
    }

    async fn receive_message(
        &self,
        from: &mut (impl AsyncRead + Unpin),
        max_bytes: u32,
    ) -> io::Result<Vec<u8>> {
        let message = async {
            let length = from.read_u32().await?;
            if length > max_bytes {
                return Err(io::ErrorKind::InvalidData.into());
            }
            // Cannot fail: the semaphore is never closed and its limit is far higher.
            let _permit = self.read_budget.acquire_many(length).await;
            let mut message = vec![0; length as usize];
            from.read_exact(&mut message).await?;
            Ok(message)
        };
        tokio::select! {
            biased;
            () = self.stop.cancelled() => Err(io::ErrorKind::Interrupted.into()),
            message = message => message,
        }
    }
}

async fn send_message(to: &mut (impl AsyncWrite + Unpin), message: &Value) -> io::Result<()> {
    let mut text = message.to_string();
    if text.len() > MAX_RESPONSE_BYTES {
        let error = format!("the result has {} bytes, more than a script can receive", text.len());
        text = json!({"id": message.get("id"), "answer": {"error": error}}).to_string();
    }
    let mut frame = u32::try_from(text.len()).unwrap_or(0).to_be_bytes().to_vec();
    frame.extend_from_slice(text.as_bytes());
    to.write_all(&frame).await?;
    to.flush().await
}

/// Takes the same time wherever the two differ.
fn constant_time_eq(one: &[u8], other: &[u8]) -> bool {
    one.len() == other.len() && one.iter().zip(other).fold(0, |differs, (a, b)| differs | (a ^ b)) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_compared_whole() {
        for (one, other, same) in
            [("", "", true), ("ab", "ab", true), ("ab", "ac", false), ("ab", "abc", false)]
        {
            assert_eq!(constant_time_eq(one.as_bytes(), other.as_bytes()), same, "{one} {other}");
        }
    }
}
