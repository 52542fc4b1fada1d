//! The host's side of the protocol.
//!
//! [`Client::connect`] takes a byte stream that leads to a guest and performs the handshake. Each
//! call after that uses its own stream, so calls do not block each other. Every failure is an
//! [`Error`]; a protocol violation also closes the connection, because nothing that such a guest
//! says afterwards can be trusted.

mod connection;
mod error;
mod file;
mod process;
mod tunnel;

use std::sync::Arc;
use std::time::Duration;

use serde_bytes::ByteBuf;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::protocol::handshake;
use crate::protocol::limit;
use crate::protocol::message::{
    GuestReply, GuestRequest, InputHistory, OpenSession, OutputPage, ProcessId, ProcessRequest, ProcessView,
    RunRequest, SessionView, ShellSessionKey, Stats,
};
use crate::protocol::mux::{self, Mux, MuxMode};

pub use crate::protocol::tunnel::Tunnel;

use connection::ListenerTable;
pub use error::{Error, ProtocolViolation};
pub use file::{FileChunk, FileReader, FileWriter, ResultPage};
pub use process::{NoticeStream, OutputFollower, RunEvent, RunHandle};
pub use tunnel::TunnelListener;

/// A connection to a guest. Clones share it; dropping the last one closes it.
#[derive(Debug, Clone)]
pub struct Client {
    mux: Mux,
    /// Cancelled when the connection is closed.
    closed: CancellationToken,
    _close_on_drop: Arc<DropGuard>,
    listeners: ListenerTable,
}

impl Client {
    /// Performs the handshake with the guest at the other end of the stream. Must be called in a
    /// tokio runtime, which drives the connection until the last clone is dropped or the stream
    /// ends.
    pub async fn connect<S>(mut stream: S) -> Result<Self, Error>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        tokio::time::timeout(limit::REPLY_TIMEOUT, handshake::exchange_hello(&mut stream))
            .await
            .map_err(|_elapsed| Error::Timeout)??;
        let (mux, driver, arrivals) = mux::multiplex(stream, MuxMode::Client);
        Ok(Self::start(mux, driver, arrivals))
    }

    pub async fn stats(&self) -> Result<Stats, Error> {
        match self.call_with_timeout(&GuestRequest::Stats).await? {
            GuestReply::Stats(stats) => Ok(stats),
            other => Err(self.unexpected_reply(other)),
        }
    }

    /// Opens a shell session, or returns the existing one with its state.
    pub async fn open_session(&self, open: OpenSession) -> Result<SessionView, Error> {
        self.call_for_session(GuestRequest::OpenSession(open)).await
    }

    /// Shows a session, with its shell state unless that has the digest `known`.
    pub async fn show_session(&self, key: &ShellSessionKey, known: &str) -> Result<SessionView, Error> {
        self.call_for_session(GuestRequest::ShowSession(key.clone(), known.to_owned())).await
    }

    async fn call_for_session(&self, request: GuestRequest) -> Result<SessionView, Error> {
        match self.call_with_timeout(&request).await? {
            GuestReply::Session(view) => Ok(view),
            other => Err(self.unexpected_reply(other)),
        }
    }

    /// Starts a program. For a foreground program, dropping the handle kills the whole process
    /// tree. For a background program, the handle only carries the id.
    pub async fn run(&self, run: RunRequest) -> Result<RunHandle, Error> {
        RunHandle::start(self, run).await
    }

    /// Starts a Python program in the foreground, like [`Client::run`], and returns the connections
    /// that the program opens to the host. The program refers to them by the number that `request`
    /// gets.
    pub async fn run_python(
        &self,
        request: impl FnOnce(u64) -> RunRequest,
    ) -> Result<(RunHandle, mpsc::Receiver<Tunnel>), Error> {
        let (number, inbound) = self.register_listener();
        Ok((self.run(request(number)).await?, inbound))
    }

    /// Lists background processes, running and finished, and foreground commands that left
    /// processes running.
    pub async fn processes(&self) -> Result<Vec<ProcessView>, Error> {
        match self.call_with_timeout(&GuestRequest::Processes).await? {
            GuestReply::Processes(views) if views.len() <= limit::MAX_RUNNING + limit::MAX_FINISHED => {
                Ok(views)
            }
            other => Err(self.unexpected_reply(other)),
        }
    }

    pub async fn process(&self, id: ProcessId) -> Result<ProcessView, Error> {
        self.wait(id, Duration::ZERO).await
    }

    /// Waits until a process exits or the timeout elapses; the view says which.
    pub async fn wait(&self, id: ProcessId, timeout: Duration) -> Result<ProcessView, Error> {
        let timeout = timeout.min(limit::FINISHED_RETENTION);
        self.process_view(id, ProcessRequest::Wait(timeout), timeout + limit::REPLY_TIMEOUT).await
    }

    /// Reads one page of a process's output.
    pub async fn read_output(&self, id: ProcessId, offset: u64, limit: u32) -> Result<OutputPage, Error> {
        let fits = |page: &OutputPage| {
            let length = page.data.len() as u64;
            let end = page.offset.checked_add(length);
            length <= u64::from(limit) && end.is_some_and(|end| end <= page.total)
        };
        let request = GuestRequest::Process(id, ProcessRequest::Page { offset, limit });
        match self.call_with_timeout(&request).await? {
            GuestReply::Output(page) if fits(&page) => Ok(page),
            other => Err(self.unexpected_reply(other)),
        }
    }

    /// Follows a process's output from an offset until the whole process tree has exited.
    pub async fn follow_output(&self, id: ProcessId, offset: u64) -> Result<OutputFollower, Error> {
        let request = GuestRequest::Process(id, ProcessRequest::Follow(offset));
        Ok(OutputFollower { stream: self.send_request(&request).await? })
    }

    /// The program that gets the input of a process, and its earlier input.
    pub async fn input_history(&self, id: ProcessId) -> Result<InputHistory, Error> {
        match self.call_with_timeout(&GuestRequest::Process(id, ProcessRequest::InputHistory)).await? {
            GuestReply::InputHistory(history) => Ok(history),
            other => Err(self.unexpected_reply(other)),
        }
    }

    /// Writes to the standard input of a process; waits while the process does not read. With a text
    /// `after`, nothing is written unless that is the whole earlier input.
    pub async fn write_stdin(&self, id: ProcessId, after: Option<&str>, data: &[u8]) -> Result<(), Error> {
        let mut after = after.map(str::to_owned);
        for chunk in data.chunks(limit::CHUNK_BYTES) {
            let action = ProcessRequest::Write(ByteBuf::from(chunk), after.take());
            self.expect_done(self.call(&GuestRequest::Process(id, action)).await?)?;
        }
        Ok(())
    }

    pub async fn close_stdin(&self, id: ProcessId) -> Result<(), Error> {
        let request = GuestRequest::Process(id, ProcessRequest::CloseStdin);
        self.expect_done(self.call_with_timeout(&request).await?)
    }

    /// Kills a process with all its descendants; returns when all of them are gone.
    pub async fn kill(&self, id: ProcessId) -> Result<ProcessView, Error> {
        self.process_view(id, ProcessRequest::Kill, limit::REPLY_TIMEOUT).await
    }

    /// Follows notices about background processes: first the stored ones from `from` on, then each
    /// new one.
    pub async fn follow_notices(&self, from: u64) -> Result<NoticeStream, Error> {
        let stream = self.send_request(&GuestRequest::Notices(from)).await?;
        Ok(NoticeStream { stream, next_number: from })
    }

    async fn process_view(
        &self,
        id: ProcessId,
        action: ProcessRequest,
        timeout: Duration,
    ) -> Result<ProcessView, Error> {
        let request = GuestRequest::Process(id, action);
        match self.with_timeout(timeout, self.call(&request)).await? {
            GuestReply::Process(view) => Ok(*view),
            other => Err(self.unexpected_reply(other)),
        }
    }

    pub fn is_closed(&self) -> bool {
        self.closed.is_cancelled()
    }

    /// Waits until the connection is closed, for any reason.
    pub async fn wait_closed(&self) {
        self.closed.cancelled().await;
    }
}
