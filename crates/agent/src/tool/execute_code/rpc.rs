//! Answers the calls of one script, each as if the model had made it.
//!
//! A connection begins with the token of the run. After that come requests, each answered before the next is read.
//! Both are JSON with their length before them, four bytes, highest first.
//!
//! | limit | value |
//! |---|---|
//! | connections at once | 64 |
//! | time until the token is there | 10 s |
//! | bytes of a token's message, of a request, of an answer | 4 KiB, 1 MiB, 8 MiB |
//! | bytes of requests that are being read, together | 8 MiB |
//!
//! Whatever is not understood ends its connection and nothing else.

use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use hermes_exec::Tunnel;
use hermes_types::CallId;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::{Notify, Semaphore};
use tokio_util::sync::CancellationToken;

use super::python_module::ScriptFunction;
use super::sequencer::Sequencer;
use crate::approver::BoxFuture;
use crate::tool::{CallContext, ToolResult};
use crate::{Tool, ToolContext};

/// Connections served at once.
pub(super) const MAX_CONNECTIONS: usize = 64;
const HELLO_TIMEOUT: Duration = Duration::from_secs(10);
const MAX_HELLO_BYTES: usize = 4 << 10;
const MAX_REQUEST_BYTES: usize = 1 << 20;
const MAX_RESPONSE_BYTES: usize = 8 << 20;
const MAX_BUFFERED_BYTES: usize = 8 << 20;

/// What the calls of one run have in common.
#[derive(Debug)]
pub(super) struct RpcServer<'a> {
    context: &'a ToolContext,
    /// The call that the run is.
    run: CallContext<'a>,
    functions: Vec<ScriptFunction>,
    pub(super) token: String,
    /// Ends every call.
    pub(super) stop: CancellationToken,
    max_calls: u32,
    sequencer: Sequencer,
    /// Room for requests.
    read_budget: Semaphore,
    requested_calls: AtomicU32,
    ends_turn: AtomicBool,
    /// Told when the turn is over.
    pub(super) turn_ended: Notify,
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

/// The connection is of no use any more.
struct BrokenConnection;

impl<'a> RpcServer<'a> {
    pub(super) fn new(
        hands: &'a ToolContext,
        scene: CallContext<'a>,
        functions: Vec<ScriptFunction>,
        token: String,
    ) -> Self {
        Self {
            context: hands,
            run: scene,
            functions,
            token,
            stop: scene.stop.child_token(),
            max_calls: hands.config().limits.code_execution.max_tool_calls,
            sequencer: Sequencer::default(),
            read_budget: Semaphore::new(MAX_BUFFERED_BYTES),
            requested_calls: AtomicU32::new(0),
            ends_turn: AtomicBool::new(false),
            turn_ended: Notify::new(),
        }
    }

    /// How many calls were made, of those that were allowed for.
    pub(super) fn calls_made(&self) -> u32 {
        self.requested_calls.load(Ordering::Relaxed).min(self.max_calls)
    }

    /// Whether a call was the one too many of what was denied.
    pub(super) fn ends_turn(&self) -> bool {
        self.ends_turn.load(Ordering::Relaxed)
    }

    /// Serves one connection to its end, or to that of the run: then no more is read, and a call that is under way is
    /// told to stop and waited for.
    pub(super) async fn serve_connection(&self, mut connection: Tunnel) {
        // How it ended makes no difference.
        drop(self.handle_connection(&mut connection).await);
    }

    async fn handle_connection(
        &self,
        connection: &mut (impl AsyncRead + AsyncWrite + Unpin),
    ) -> Result<Infallible, BrokenConnection> {
        let hello =
            tokio::time::timeout(HELLO_TIMEOUT, self.receive_message(connection, MAX_HELLO_BYTES)).await;
        let hello: RpcHello = parse_message(&hello.map_err(|_elapsed| BrokenConnection)??)?;
        if !constant_time_eq(hello.token.as_bytes(), self.token.as_bytes()) {
            send_message(connection, &json!({"error": "the token is not that of this run"})).await?;
            return Err(BrokenConnection);
        }
        loop {
            let request: RpcRequest =
                parse_message(&self.receive_message(connection, MAX_REQUEST_BYTES).await?)?;
            let answer = self.handle_request(&request.tool, request.arguments).await;
            send_message(connection, &json!({"id": request.id, "answer": answer})).await?;
        }
    }

    async fn handle_request(&self, name: &str, arguments: Map<String, Value>) -> Value {
        let number = self.requested_calls.fetch_add(1, Ordering::Relaxed);
        if number >= self.max_calls {
            return json!({"error": format!(
                "a script may call {} tools, and this one has; do the rest in another", self.max_calls
            )});
        }
        let Some(function) = self.functions.iter().find(|function| function.tool.name() == name) else {
            let known: Vec<&str> = self.functions.iter().map(|function| function.tool.name()).collect();
            return json!({"error": format!("a script of this session cannot call {name}, only: {}", known.join(", "))});
        };
        if let Some(unknown) = arguments.keys().find(|given| !function.has_parameter(given)) {
            return json!({"error": format!("{name} takes no {unknown} in a script")});
        }
        let tool = function.tool;
        let arguments = hermes_model::coerce(arguments, &tool.spec().parameters);
        // Not the id of the run: should hermes be killed while somebody is asked, the run has begun all the same.
        let call = CallId::new(format!("{}.{number}", self.run.call_id.as_str()));
        let done = tokio::select! {
            biased;
            () = self.stop.cancelled() => return json!({"error": "the run is over"}),
            _turn = self.sequencer.acquire_slot(tool.effects(&arguments)) => self.call_tool(tool, arguments, &call).await,
        };
        if done.ends_turn {
            self.ends_turn.store(true, Ordering::Relaxed);
            self.turn_ended.notify_one();
        }
        done.content
    }

    /// In a box, because this is itself a part of such a call.
    fn call_tool<'b>(
        &'b self,
        tool: Tool,
        arguments: Map<String, Value>,
        call: &'b CallId,
    ) -> BoxFuture<'b, ToolResult> {
        Box::pin(self.context.call_tool(
            tool,
            arguments,
            CallContext { call_id: call, stop: &self.stop, ..self.run },
        ))
    }

    async fn receive_message(
        &self,
        from: &mut (impl AsyncRead + Unpin),
        most: usize,
    ) -> Result<Vec<u8>, BrokenConnection> {
        tokio::select! {
            biased;
            () = self.stop.cancelled() => Err(BrokenConnection),
            message = self.read_message(from, most) => message,
        }
    }

    async fn read_message(
        &self,
        from: &mut (impl AsyncRead + Unpin),
        most: usize,
    ) -> Result<Vec<u8>, BrokenConnection> {
        let length = from.read_u32().await.map_err(|_gone| BrokenConnection)?;
        let length = usize::try_from(length).ok().filter(|length| *length <= most).ok_or(BrokenConnection)?;
        // It is far below what a semaphore can hold, and that is never closed.
        let _room = self.read_budget.acquire_many(u32::try_from(length).unwrap_or(u32::MAX)).await;
        let mut message = vec![0; length];
        from.read_exact(&mut message).await.map_err(|_gone| BrokenConnection)?;
        Ok(message)
    }
}

fn parse_message<'a, T: Deserialize<'a>>(message: &'a [u8]) -> Result<T, BrokenConnection> {
    serde_json::from_slice(message).map_err(|_malformed| BrokenConnection)
}

async fn send_message(to: &mut (impl AsyncWrite + Unpin), message: &Value) -> Result<(), BrokenConnection> {
    let mut text = message.to_string();
    if text.len() > MAX_RESPONSE_BYTES {
        let error = format!("the answer has {} bytes, more than a script can get", text.len());
        text = json!({"id": message.get("id"), "answer": {"error": error}}).to_string();
    }
    let mut frame = u32::try_from(text.len()).unwrap_or(0).to_be_bytes().to_vec();
    frame.extend_from_slice(text.as_bytes());
    to.write_all(&frame).await.map_err(|_gone| BrokenConnection)?;
    to.flush().await.map_err(|_gone| BrokenConnection)
}

/// Compares in a time that does not tell where the two differ.
fn constant_time_eq(one: &[u8], other: &[u8]) -> bool {
    one.len() == other.len() && one.iter().zip(other).fold(0, |differs, (a, b)| differs | (a ^ b)) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_the_same_or_they_are_not() {
        for (one, other, same) in
            [("", "", true), ("ab", "ab", true), ("ab", "ac", false), ("ab", "abc", false)]
        {
            assert_eq!(constant_time_eq(one.as_bytes(), other.as_bytes()), same, "{one} {other}");
        }
    }
}
