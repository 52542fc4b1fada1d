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

use super::module::Function;
use super::order::Order;
use crate::people::Asking;
use crate::tool::{Done, Scene};
use crate::{Hands, Tool};

/// Connections served at once.
pub(super) const CONNECTIONS: usize = 64;
const PATIENCE: Duration = Duration::from_secs(10);
const HELLO: usize = 4 << 10;
const REQUEST: usize = 1 << 20;
const ANSWER: usize = 8 << 20;
const READING: usize = 8 << 20;

/// What the calls of one run have in common.
#[derive(Debug)]
pub(super) struct Desk<'a> {
    hands: &'a Hands,
    /// The call that the run is.
    scene: Scene<'a>,
    functions: Vec<Function>,
    pub(super) token: String,
    /// Ends every call.
    pub(super) stop: CancellationToken,
    most_calls: u32,
    order: Order,
    /// Room for requests.
    room: Semaphore,
    asked: AtomicU32,
    ends_turn: AtomicBool,
    /// Told when the turn is over.
    pub(super) over: Notify,
}

#[derive(Deserialize)]
struct Hello {
    token: String,
}

#[derive(Deserialize)]
struct Request {
    id: u64,
    tool: String,
    #[serde(default)]
    arguments: Map<String, Value>,
}

/// The connection is of no use any more.
struct Broken;

impl<'a> Desk<'a> {
    pub(super) fn new(hands: &'a Hands, scene: Scene<'a>, functions: Vec<Function>, token: String) -> Self {
        Self {
            hands,
            scene,
            functions,
            token,
            stop: scene.stop.child_token(),
            most_calls: hands.setup().limits.code_execution.max_tool_calls,
            order: Order::default(),
            room: Semaphore::new(READING),
            asked: AtomicU32::new(0),
            ends_turn: AtomicBool::new(false),
            over: Notify::new(),
        }
    }

    /// How many calls were made, of those that were allowed for.
    pub(super) fn calls_made(&self) -> u32 {
        self.asked.load(Ordering::Relaxed).min(self.most_calls)
    }

    /// Whether a call was the one too many of what was denied.
    pub(super) fn ends_turn(&self) -> bool {
        self.ends_turn.load(Ordering::Relaxed)
    }

    /// Serves one connection to its end, or to that of the run: then no more is read, and a call that is under way is
    /// told to stop and waited for.
    pub(super) async fn serve(&self, mut connection: Tunnel) {
        // How it ended makes no difference.
        drop(self.converse(&mut connection).await);
    }

    async fn converse(
        &self,
        connection: &mut (impl AsyncRead + AsyncWrite + Unpin),
    ) -> Result<Infallible, Broken> {
        let hello = tokio::time::timeout(PATIENCE, self.receive(connection, HELLO)).await;
        let hello: Hello = understood(&hello.map_err(|_elapsed| Broken)??)?;
        if !is_same(hello.token.as_bytes(), self.token.as_bytes()) {
            send(connection, &json!({"error": "the token is not that of this run"})).await?;
            return Err(Broken);
        }
        loop {
            let request: Request = understood(&self.receive(connection, REQUEST).await?)?;
            let answer = self.answer(&request.tool, request.arguments).await;
            send(connection, &json!({"id": request.id, "answer": answer})).await?;
        }
    }

    async fn answer(&self, name: &str, arguments: Map<String, Value>) -> Value {
        let number = self.asked.fetch_add(1, Ordering::Relaxed);
        if number >= self.most_calls {
            return json!({"error": format!(
                "a script may call {} tools, and this one has; do the rest in another", self.most_calls
            )});
        }
        let Some(function) = self.functions.iter().find(|function| function.tool.name() == name) else {
            let known: Vec<&str> = self.functions.iter().map(|function| function.tool.name()).collect();
            return json!({"error": format!("a script of this session cannot call {name}, only: {}", known.join(", "))});
        };
        if let Some(unknown) = arguments.keys().find(|given| !function.takes(given)) {
            return json!({"error": format!("{name} takes no {unknown} in a script")});
        }
        let tool = function.tool;
        let arguments = hermes_model::coerce(arguments, &tool.spec().parameters);
        // Not the id of the run: should hermes be killed while somebody is asked, the run has begun all the same.
        let call = CallId::new(format!("{}.{number}", self.scene.call.as_str()));
        let done = tokio::select! {
            biased;
            () = self.stop.cancelled() => return json!({"error": "the run is over"}),
            _turn = self.order.turn(tool.effects(&arguments)) => self.dispatch(tool, arguments, &call).await,
        };
        if done.ends_turn {
            self.ends_turn.store(true, Ordering::Relaxed);
            self.over.notify_one();
        }
        done.answer
    }

    /// In a box, because this is itself a part of such a call.
    fn dispatch<'b>(
        &'b self,
        tool: Tool,
        arguments: Map<String, Value>,
        call: &'b CallId,
    ) -> Asking<'b, Done> {
        Box::pin(self.hands.call(tool, arguments, Scene { call, stop: &self.stop, ..self.scene }))
    }

    async fn receive(&self, from: &mut (impl AsyncRead + Unpin), most: usize) -> Result<Vec<u8>, Broken> {
        tokio::select! {
            biased;
            () = self.stop.cancelled() => Err(Broken),
            message = self.read(from, most) => message,
        }
    }

    async fn read(&self, from: &mut (impl AsyncRead + Unpin), most: usize) -> Result<Vec<u8>, Broken> {
        let length = from.read_u32().await.map_err(|_gone| Broken)?;
        let length = usize::try_from(length).ok().filter(|length| *length <= most).ok_or(Broken)?;
        // It is far below what a semaphore can hold, and that is never closed.
        let _room = self.room.acquire_many(u32::try_from(length).unwrap_or(u32::MAX)).await;
        let mut message = vec![0; length];
        from.read_exact(&mut message).await.map_err(|_gone| Broken)?;
        Ok(message)
    }
}

fn understood<'a, T: Deserialize<'a>>(message: &'a [u8]) -> Result<T, Broken> {
    serde_json::from_slice(message).map_err(|_malformed| Broken)
}

async fn send(to: &mut (impl AsyncWrite + Unpin), message: &Value) -> Result<(), Broken> {
    let mut text = message.to_string();
    if text.len() > ANSWER {
        let error = format!("the answer has {} bytes, more than a script can get", text.len());
        text = json!({"id": message.get("id"), "answer": {"error": error}}).to_string();
    }
    let mut frame = u32::try_from(text.len()).unwrap_or(0).to_be_bytes().to_vec();
    frame.extend_from_slice(text.as_bytes());
    to.write_all(&frame).await.map_err(|_gone| Broken)?;
    to.flush().await.map_err(|_gone| Broken)
}

/// Compares in a time that does not tell where the two differ.
fn is_same(one: &[u8], other: &[u8]) -> bool {
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
            assert_eq!(is_same(one.as_bytes(), other.as_bytes()), same, "{one} {other}");
        }
    }
}
