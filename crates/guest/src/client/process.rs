//! Programs that run, and what they say.

use serde_bytes::ByteBuf;
use tokio::time::Instant;

use super::error::{self, Breach, Error};
use super::link::Link;
use crate::protocol::frame::Frames;
use crate::protocol::limit;
use crate::protocol::message::{
    Act, Ended, Input, Mode, Notice, Page, ProcessId, Reply, Request, Run, Signal, Size,
};
use crate::protocol::mux::Stream;

/// A program that was started. In the foreground it lives only as long as this does.
#[derive(Debug)]
pub struct Running {
    link: Link,
    frames: Frames<Stream>,
    id: Option<ProcessId>,
    /// An answer that came instead of a start.
    early: Option<Event>,
    keep: usize,
    /// When the guest must have said how it ended, if there is a deadline.
    latest: Option<Instant>,
}

/// What comes from a foreground program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// Some of its output.
    Output(Page),
    /// It ended.
    Ended(Box<Ended>),
    /// It goes on in the background, under its id.
    Moved(ProcessId),
}

impl Running {
    pub(super) async fn start(link: Link, run: Run) -> Result<Self, Error> {
        let keep = usize::try_from(run.keep).unwrap_or(limit::KEEP).clamp(4096, limit::KEEP);
        let latest = run.deadline.and_then(|deadline| {
            let after = deadline.after.checked_add(limit::ANSWER)?;
            Instant::now().checked_add(after)
        });
        let foreground = matches!(run.mode, Mode::Foreground { .. });
        let request = Request::Run(Box::new(run));
        let begin = async {
            let mut frames = link.open(&request).await?;
            let reply = link.next(&mut frames).await?;
            Ok((frames, reply))
        };
        let (frames, reply) = link.within(limit::ANSWER, begin).await?;
        let (id, early) = match reply {
            Reply::Started(id) => (Some(id), None),
            // Its directory is not there, so it never ran.
            Reply::Ended(ended) if foreground || ended.code == 126 => {
                (None, Some(Event::Ended(Box::new(ended))))
            }
            other => return Err(link.unexpected(other)),
        };
        Ok(Self { link, frames, id, early, keep, latest })
    }

    /// The id of the program, unless it never ran.
    pub fn id(&self) -> Option<ProcessId> {
        self.id
    }

    /// The next thing that comes from a foreground program. Can be cancelled without losing anything.
    pub async fn next(&mut self) -> Result<Event, Error> {
        if let Some(event) = self.early.take() {
            return Ok(event);
        }
        let next = self.link.next(&mut self.frames);
        let reply = match self.latest {
            // What has arrived is taken however late it is looked at.
            Some(latest) => match tokio::time::timeout_at(latest, next).await {
                Ok(reply) => reply?,
                Err(_elapsed) => return Err(self.link.cut(Error::Silent)),
            },
            None => next.await?,
        };
        match reply {
            Reply::Output { offset, data } if data.len() <= limit::CHUNK => {
                let total = offset.saturating_add(data.len() as u64);
                Ok(Event::Output(Page { offset, data, total }))
            }
            Reply::Ended(ended)
                if ended.head.len() + ended.tail.len() <= self.keep && ended.errors.len() <= limit::KEEP =>
            {
                Ok(Event::Ended(Box::new(ended)))
            }
            Reply::Moved => match self.id {
                Some(id) => Ok(Event::Moved(id)),
                None => Err(self.link.cut(Error::Breach(Breach::Unexpected))),
            },
            other => Err(self.link.unexpected(other)),
        }
    }

    /// Waits for the end and leaves out the output on the way. What goes on in the background has no end yet.
    pub async fn end(&mut self) -> Result<Event, Error> {
        loop {
            match self.next().await? {
                Event::Output(_) => {}
                event @ (Event::Ended(_) | Event::Moved(_)) => return Ok(event),
            }
        }
    }

    /// Writes to its input. Waits while the program does not read.
    pub async fn write(&mut self, data: &[u8]) -> Result<(), Error> {
        for chunk in data.chunks(limit::CHUNK) {
            self.say(&Input::Stdin(ByteBuf::from(chunk))).await?;
        }
        Ok(())
    }

    /// Ends its input.
    pub async fn close_stdin(&mut self) -> Result<(), Error> {
        self.say(&Input::CloseStdin).await
    }

    /// Gives its terminal another size.
    pub async fn resize(&mut self, size: Size) -> Result<(), Error> {
        self.say(&Input::Resize(size)).await
    }

    /// Sends a signal to it and the group it leads.
    pub async fn signal(&mut self, signal: Signal) -> Result<(), Error> {
        self.say(&Input::Signal(signal)).await
    }

    /// Does what Ctrl-C does, and kills what does not stop. It then ends with 130.
    pub async fn interrupt(&mut self) -> Result<(), Error> {
        self.say(&Input::Interrupt).await
    }

    /// Lets it go on in the background; [`Event::Moved`] says that it does.
    pub async fn background(&mut self) -> Result<(), Error> {
        self.say(&Input::Background).await
    }

    async fn say(&mut self, input: &Input) -> Result<(), Error> {
        self.frames.writer.send(input).await.map_err(|error| error::on_send(&error))
    }
}

/// The output of a process, as it comes.
#[derive(Debug)]
pub struct Followed {
    link: Link,
    frames: Frames<Stream>,
}

impl Followed {
    pub(super) async fn start(link: Link, id: ProcessId, offset: u64) -> Result<Self, Error> {
        let frames = link.open(&Request::Process(id, Act::Follow(offset))).await?;
        Ok(Self { link, frames })
    }

    /// The next piece, or none when all of the tree has ended. An offset beyond the end of the piece before means
    /// that something in between was too old to be kept.
    pub async fn next(&mut self) -> Result<Option<Page>, Error> {
        match self.link.next(&mut self.frames).await? {
            Reply::Output { offset, data } if data.len() <= limit::CHUNK => {
                let total = offset.saturating_add(data.len() as u64);
                Ok(Some(Page { offset, data, total }))
            }
            Reply::Process(_) => Ok(None),
            other => Err(self.link.unexpected(other)),
        }
    }
}

/// Notices about background processes, as they come.
#[derive(Debug)]
pub struct Notices {
    link: Link,
    frames: Frames<Stream>,
    from: u64,
}

impl Notices {
    pub(super) async fn start(link: Link, from: u64) -> Result<Self, Error> {
        let frames = link.open(&Request::Notices(from)).await?;
        Ok(Self { link, frames, from })
    }

    /// The next one. Their numbers only go up.
    pub async fn next(&mut self) -> Result<Notice, Error> {
        match self.link.next(&mut self.frames).await? {
            Reply::Notice(notice) if notice.number >= self.from => {
                self.from = notice.number.saturating_add(1);
                Ok(notice)
            }
            other => Err(self.link.unexpected(other)),
        }
    }
}
