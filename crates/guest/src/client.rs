//! The host's end of the protocol.
//!
//! [`Client::connect`] takes a byte stream that leads to a guest and greets it. Each call after that uses a stream
//! of its own, so calls do not wait for each other. Whatever the guest does wrong becomes an [`Error`]; a breach of
//! the protocol also ends the connection, because a guest that broke it once cannot be believed again.

mod error;
mod file;
mod link;
mod process;
mod tunnel;

use serde_bytes::ByteBuf;
use tokio::io::{AsyncRead, AsyncWrite};

use crate::protocol::greeting;
use crate::protocol::limit;
use crate::protocol::message::{
    About, Act, Fault, OpenSession, Page, ProcessId, ProcessView, Program, Python, Reply, Request, Run,
    SessionKey, SessionView, Signal, Size, Stats,
};
use crate::protocol::mux::{self, End};

pub use error::{Breach, Error};
pub use file::{FileReader, FileWriter, Listing, Piece};
use link::Link;
pub use process::{Event, Followed, Notices, Running};
pub use tunnel::{Calls, Listener, Tunnel};

/// A connection to a guest. Clones share it.
#[derive(Debug, Clone)]
pub struct Client {
    link: Link,
}

impl Client {
    /// Greets the guest at the other end of the stream. Needs a tokio runtime, on which the connection is kept going
    /// until the last clone is dropped or the stream ends.
    pub async fn connect<S>(mut stream: S) -> Result<Self, Error>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        tokio::time::timeout(limit::ANSWER, greeting::exchange(&mut stream))
            .await
            .map_err(|_elapsed| Error::Silent)??;
        let (mux, driver, arrivals) = mux::multiplex(stream, End::Host);
        Ok(Self { link: Link::start(mux, driver, arrivals) })
    }

    /// What place this is.
    pub async fn about(&self) -> Result<About, Error> {
        match self.link.ask(&Request::About).await? {
            Reply::About(about) => Ok(about),
            other => Err(self.link.unexpected(other)),
        }
    }

    /// How the guest is doing.
    pub async fn stats(&self) -> Result<Stats, Error> {
        match self.link.ask(&Request::Stats).await? {
            Reply::Stats(stats) => Ok(stats),
            other => Err(self.link.unexpected(other)),
        }
    }

    /// Opens a session, or finds the one that is there with all its state.
    pub async fn open_session(&self, open: OpenSession) -> Result<SessionView, Error> {
        self.session(Request::OpenSession(open)).await
    }

    /// What a session looks like now.
    pub async fn show_session(&self, key: &SessionKey) -> Result<SessionView, Error> {
        self.session(Request::ShowSession(key.clone())).await
    }

    /// Forgets a session. What its commands left running lives on.
    pub async fn close_session(&self, key: &SessionKey) -> Result<(), Error> {
        self.link.ask_done(&Request::CloseSession(key.clone())).await
    }

    async fn session(&self, request: Request) -> Result<SessionView, Error> {
        match self.link.ask(&request).await? {
            Reply::Session(view) => Ok(view),
            other => Err(self.link.unexpected(other)),
        }
    }

    /// Starts a program and, if its mode is foreground, gives the handle that keeps it alive: dropping that kills
    /// the whole tree. For a background program the handle only tells its id.
    pub async fn run(&self, run: Run) -> Result<Running, Error> {
        Running::start(self.link.clone(), run).await
    }

    /// Starts a Python program in the foreground, like [`Client::run`], and gives the connections it makes to us. The
    /// number in `python` and the program in `run` are set here.
    pub async fn run_python(&self, run: Run, python: Python) -> Result<(Running, Calls), Error> {
        let (number, calls) = Calls::register(&self.link);
        let program = Program::Python(Python { number, ..python });
        Ok((self.run(Run { program, ..run }).await?, calls))
    }

    /// Background processes, running and finished, and what foreground commands left running.
    pub async fn processes(&self) -> Result<Vec<ProcessView>, Error> {
        match self.link.ask(&Request::Processes).await? {
            Reply::Processes(views) if views.len() <= limit::RUNNING + limit::FINISHED => Ok(views),
            other => Err(self.link.unexpected(other)),
        }
    }

    /// One process.
    pub async fn process(&self, id: ProcessId) -> Result<ProcessView, Error> {
        self.act_view(id, Act::Show).await
    }

    /// Waits for the end of a process, but not longer than this; the view says whether it has ended.
    pub async fn wait(&self, id: ProcessId, patience: std::time::Duration) -> Result<ProcessView, Error> {
        let patience = patience.min(limit::FINISHED_FOR);
        let request = Request::Process(id, Act::Wait(patience));
        self.link.within(patience + limit::ANSWER, self.view(request)).await
    }

    /// A page of a process's output.
    pub async fn output(&self, id: ProcessId, offset: u64, limit: u32) -> Result<Page, Error> {
        let fits = |page: &Page| {
            let length = page.data.len() as u64;
            let end = page.offset.checked_add(length);
            length <= u64::from(limit) && end.is_some_and(|end| end <= page.total)
        };
        match self.link.ask(&Request::Process(id, Act::Page { offset, limit })).await? {
            Reply::Page(page) if fits(&page) => Ok(page),
            other => Err(self.link.unexpected(other)),
        }
    }

    /// A process's output from an offset on, as it comes, until all of the tree has ended.
    pub async fn follow(&self, id: ProcessId, offset: u64) -> Result<Followed, Error> {
        Followed::start(self.link.clone(), id, offset).await
    }

    /// Writes to the input of a process, at the pace at which it reads.
    pub async fn write_stdin(&self, id: ProcessId, data: &[u8]) -> Result<(), Error> {
        for chunk in data.chunks(limit::CHUNK) {
            let act = Act::Write(ByteBuf::from(chunk));
            self.link.expect_done(self.link.call(&Request::Process(id, act)).await?)?;
        }
        Ok(())
    }

    /// Ends the input of a process.
    pub async fn close_stdin(&self, id: ProcessId) -> Result<(), Error> {
        self.act_done(id, Act::CloseStdin).await
    }

    /// Gives a process's terminal another size.
    pub async fn resize(&self, id: ProcessId, size: Size) -> Result<(), Error> {
        self.act_done(id, Act::Resize(size)).await
    }

    /// Sends a signal to a process and the group it leads.
    pub async fn signal(&self, id: ProcessId, signal: Signal) -> Result<(), Error> {
        self.act_done(id, Act::Signal(signal)).await
    }

    /// Kills a process with everything it started. When this returns, nothing of it is left.
    pub async fn kill(&self, id: ProcessId) -> Result<ProcessView, Error> {
        self.act_view(id, Act::Kill).await
    }

    /// Drops the record of a process that has ended, and its output.
    pub async fn forget(&self, id: ProcessId) -> Result<(), Error> {
        self.act_done(id, Act::Forget).await
    }

    /// Notices about background processes, from a number on: those that are kept, then each as it comes.
    pub async fn notices(&self, from: u64) -> Result<Notices, Error> {
        Notices::start(self.link.clone(), from).await
    }

    async fn act_done(&self, id: ProcessId, act: Act) -> Result<(), Error> {
        self.link.ask_done(&Request::Process(id, act)).await
    }

    async fn act_view(&self, id: ProcessId, act: Act) -> Result<ProcessView, Error> {
        self.link.within(limit::ANSWER, self.view(Request::Process(id, act))).await
    }

    async fn view(&self, request: Request) -> Result<ProcessView, Error> {
        match self.link.call(&request).await? {
            Reply::Process(view) => Ok(*view),
            other => Err(self.link.unexpected(other)),
        }
    }

    /// Whether the connection is gone.
    pub fn is_closed(&self) -> bool {
        self.link.is_closed()
    }

    /// Waits until the connection is gone, for whatever reason.
    pub async fn closed(&self) {
        self.link.closed().await;
    }
}

impl From<Fault> for Error {
    fn from(fault: Fault) -> Self {
        Self::Refused(fault)
    }
}
