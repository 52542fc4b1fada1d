//! Handles for running programs and their output.

use serde_bytes::ByteBuf;
use tokio::time::Instant;

use super::Client;
use super::connection::RequestStream;
use super::error::Error;
use crate::protocol::limit;
use crate::protocol::message::{
    ExitReport, GuestReply, GuestRequest, OutputPage, ProcessId, ProcessNotice, RunInput, RunMode,
    RunRequest, TerminalSize,
};

/// A started program. Dropping the handle kills a foreground program.
#[derive(Debug)]
pub struct RunHandle {
    stream: RequestStream,
    id: Option<ProcessId>,
    /// Set if the program exited without starting.
    early_event: Option<RunEvent>,
    max_summary_bytes: usize,
    /// The guest must report the exit before this time, if the program has a deadline.
    reply_deadline: Option<Instant>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RunEvent {
    Output(OutputPage),
    Exited(Box<ExitReport>),
}

impl RunHandle {
    pub(super) async fn start(client: &Client, run: RunRequest) -> Result<Self, Error> {
        let max_summary_bytes = usize::try_from(run.memory_bytes)
            .unwrap_or(limit::MAX_MEMORY_OUTPUT_BYTES)
            .clamp(4096, limit::MAX_MEMORY_OUTPUT_BYTES);
        let reply_deadline = run
            .deadline
            .and_then(|deadline| Instant::now().checked_add(deadline.checked_add(limit::REPLY_TIMEOUT)?));
        let is_foreground = matches!(run.mode, RunMode::Foreground { .. });
        let request = GuestRequest::Run(Box::new(run));
        let (stream, reply) = client.start_request(&request).await?;
        let (id, early_event) = match reply {
            GuestReply::Started(id) => (Some(id), None),
            // The working directory does not exist, so the program never ran.
            GuestReply::Exited(ended) if is_foreground || ended.code == 126 => {
                (None, Some(RunEvent::Exited(Box::new(ended))))
            }
            other => return Err(client.unexpected_reply(other)),
        };
        Ok(Self { stream, id, early_event, max_summary_bytes, reply_deadline })
    }

    /// The process id, unless the program never ran.
    pub fn id(&self) -> Option<ProcessId> {
        self.id
    }

    /// Waits for the next event of a foreground program. Cancel safe.
    pub async fn next_event(&mut self) -> Result<RunEvent, Error> {
        if let Some(event) = self.early_event.take() {
            return Ok(event);
        }
        let client = self.stream.client.clone();
        let next = self.stream.next_reply();
        let reply = match self.reply_deadline {
            // `timeout_at` polls first, so a reply that already arrived is never lost.
            Some(reply_deadline) => match tokio::time::timeout_at(reply_deadline, next).await {
                Ok(reply) => reply?,
                Err(_elapsed) => return Err(client.abort_on_violation(Error::Timeout)),
            },
            None => next.await?,
        };
        match reply {
            GuestReply::Output(page) if page.data.len() <= limit::CHUNK_BYTES => Ok(RunEvent::Output(page)),
            GuestReply::Exited(ended)
                if ended.head.len() + ended.tail.len() <= self.max_summary_bytes
                    && ended.stderr.len() <= limit::MAX_MEMORY_OUTPUT_BYTES =>
            {
                Ok(RunEvent::Exited(Box::new(ended)))
            }
            other => Err(client.unexpected_reply(other)),
        }
    }

    /// Writes to standard input; waits while the program does not read.
    pub async fn write_stdin(&mut self, data: &[u8]) -> Result<(), Error> {
        for chunk in data.chunks(limit::CHUNK_BYTES) {
            self.stream.send(&RunInput::Stdin(ByteBuf::from(chunk))).await?;
        }
        Ok(())
    }

    pub async fn resize(&mut self, size: TerminalSize) -> Result<(), Error> {
        self.stream.send(&RunInput::Resize(size)).await
    }

    /// Sends SIGINT, then kills the processes that do not stop. The exit code is 130.
    pub async fn interrupt(&mut self) -> Result<(), Error> {
        self.stream.send(&RunInput::Interrupt).await
    }
}

/// Follows the output of a process.
#[derive(Debug)]
pub struct OutputFollower {
    pub(super) stream: RequestStream,
}

impl OutputFollower {
    /// The next page, or `None` when the whole process tree has exited. An offset beyond the end of
    /// the previous page means that the output in between was discarded.
    pub async fn next_page(&mut self) -> Result<Option<OutputPage>, Error> {
        match self.stream.next_reply().await? {
            GuestReply::Output(page) if page.data.len() <= limit::CHUNK_BYTES => Ok(Some(page)),
            GuestReply::Process(_) => Ok(None),
            other => Err(self.stream.client.unexpected_reply(other)),
        }
    }
}

/// Follows notices about background processes.
#[derive(Debug)]
pub struct NoticeStream {
    pub(super) stream: RequestStream,
    pub(super) next_number: u64,
}

impl NoticeStream {
    /// Waits for the next notice. Numbers only increase.
    pub async fn next_notice(&mut self) -> Result<ProcessNotice, Error> {
        match self.stream.next_reply().await? {
            GuestReply::Notice(notice) if notice.number >= self.next_number => {
                self.next_number = notice.number.saturating_add(1);
                Ok(notice)
            }
            other => Err(self.stream.client.unexpected_reply(other)),
        }
    }
}
