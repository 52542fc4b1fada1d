//! Python programs in a place, and the connections they make to whoever started them.

use std::time::Duration;

use hermes_guest::client::{self, Event, Running};
use hermes_guest::protocol::limit;
use hermes_guest::protocol::message::{
    AtDeadline, Cause, Deadline, Delivery, Ended, Fault, Interpreter, Mode, Program, Python, Run, StateRule,
    Stdin, Workdir,
};
use hermes_policy::Permit;
use hermes_types::Work;
use serde_bytes::ByteBuf;
use tokio::time::Instant;

use super::{Reset, Sandbox, moved, pairs};
use crate::{Backend, Ending, Error};

pub use hermes_guest::client::{Calls, Tunnel};

/// The directory by which a program is judged that runs in a private one. That is empty, so no relative path leads
/// anywhere before the program has made something.
pub const PRIVATE: &str = "/tmp/hermes-private";

/// What a caller wants of a Python program besides its text.
#[derive(Debug, Clone)]
pub struct ScriptWish {
    /// How long it may run.
    pub timeout: Duration,
    /// Bytes of output that are kept: two fifths from the beginning, the rest from the end.
    pub keep: u32,
    /// Bytes of standard error that are kept, from the beginning.
    pub keep_errors: u32,
    /// Variables for it alone.
    pub env: Vec<(String, String)>,
    /// The name of a module that it can import.
    pub module: String,
    /// What is in the module.
    pub module_text: String,
    /// Where it runs.
    pub directory: ScriptDirectory,
}

/// Where a Python program runs, and what runs it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScriptDirectory {
    /// Where the session is, by the Python that is active there. If the session has moved since the gate was asked,
    /// nothing runs.
    Session,
    /// In an empty directory that is gone when the program is, by the Python of the place. The gate must judge it by
    /// [`PRIVATE`].
    Private,
}

/// A Python program that runs. When its end is told nothing of it is left, and dropping it kills all of it too.
#[derive(Debug)]
pub struct Script {
    running: Running,
    started: Instant,
    reset: Reset,
}

/// The end of a Python program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScriptOutcome {
    /// What a shell would report: 124 deadline, 126 bad directory, 130 interrupt, 128+n signal.
    pub code: i32,
    /// How it ended.
    pub ending: Ending,
    /// The output, or its beginning.
    pub head: Vec<u8>,
    /// The end of an output that is longer than was wanted.
    pub tail: Vec<u8>,
    /// Bytes of output in all.
    pub total: u64,
    /// Where all of it is, if some was left out: a path inside the place.
    pub spool: Option<String>,
    /// The beginning of its standard error.
    pub errors: Vec<u8>,
    /// From start to end.
    pub duration: Duration,
    /// Whether the state of an earlier place was lost before this ran.
    pub reset: Reset,
}

impl Sandbox {
    /// Starts the Python program of a permit, which must be for this place and this session. The connections that it
    /// makes to the socket in its environment come out of the second value.
    pub async fn python(&self, permit: Permit, wish: ScriptWish) -> Result<(Script, Calls), Error> {
        let job = permit.redeem(self.plan.id(), &self.plan.session)?;
        let Work::Python(text) = job.work else { return Err(Error::NotPython) };
        let (workdir, interpreter) = match wish.directory {
            ScriptDirectory::Session => (Workdir::SessionAt(ByteBuf::from(job.cwd)), Interpreter::Session),
            ScriptDirectory::Private if job.cwd == PRIVATE => (Workdir::Private, Interpreter::Place),
            ScriptDirectory::Private => return Err(Error::Moved),
        };
        let python = Python {
            script: ByteBuf::from(text),
            module: (ByteBuf::from(wish.module), ByteBuf::from(wish.module_text)),
            number: 0,
            interpreter,
            keep_errors: wish.keep_errors,
        };
        let run = Run {
            session: self.plan.guest_session(),
            program: Program::Argv(Vec::new()),
            workdir,
            env: pairs(&wish.env),
            stdin: Stdin::Null,
            terminal: None,
            deadline: Some(Deadline { after: wish.timeout, then: AtDeadline::Kill }),
            mode: Mode::Foreground { output: Delivery::Summary, state: StateRule::Leave },
            keep: wish.keep,
            spool: limit::SPOOL,
        };
        let (client, reset) = self.client_and_news().await?;
        let (running, calls) = client.run_python(run, python).await.map_err(|error| match error {
            client::Error::Refused(Fault::NoPython) => Error::NoPython { place: self.whose_path() },
            other => moved(other),
        })?;
        Ok((Script { running, started: Instant::now(), reset }, calls))
    }

    fn whose_path(&self) -> String {
        match &self.plan.spec.backend {
            Backend::Local(_) => "the PATH of this machine".to_owned(),
            Backend::Sandbox(_) => {
                "the PATH of the sandbox, which has the programs of this machine".to_owned()
            }
            Backend::Docker(docker) => format!("the image {}", docker.image),
        }
    }
}

impl Script {
    /// Waits for its end. Can be cancelled without losing anything.
    pub async fn end(&mut self) -> Result<ScriptOutcome, Error> {
        match self.running.end().await? {
            Event::Ended(ended) => Ok(self.ended(*ended)),
            // Nobody asked for that.
            Event::Moved(_) | Event::Output(_) => Err(client::Error::Gone.into()),
        }
    }

    /// Does what Ctrl-C does, and kills what does not stop. The end still comes.
    pub async fn interrupt(&mut self) -> Result<(), Error> {
        Ok(self.running.interrupt().await?)
    }

    fn ended(&self, ended: Ended) -> ScriptOutcome {
        ScriptOutcome {
            code: ended.code,
            ending: match ended.cause {
                Cause::Exited | Cause::Signaled(_) | Cause::Killed => Ending::Exited,
                Cause::Deadline => Ending::TimedOut,
                Cause::Interrupted => Ending::Interrupted,
                Cause::BadDirectory => Ending::BadDirectory,
            },
            head: ended.head.into_vec(),
            tail: ended.tail.into_vec(),
            total: ended.total,
            spool: ended.spool.map(|path| String::from_utf8_lossy(&path).into_owned()),
            errors: ended.errors.into_vec(),
            duration: self.started.elapsed(),
            reset: self.reset,
        }
    }
}
