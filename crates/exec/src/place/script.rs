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

use super::{OpenPlace, StateLoss, map_moved_error, to_byte_pairs};
use crate::{Backend, EndReason, Error};

pub use hermes_guest::client::{Calls, Tunnel};

/// The directory by which a program is judged that runs in a private one. That is empty, so no relative path leads
/// anywhere before the program has made something.
pub const PRIVATE_DIR: &str = "/tmp/hermes-private";

/// What a caller wants of a Python program besides its text.
#[derive(Debug, Clone)]
pub struct ScriptOptions {
    /// How long it may run.
    pub timeout: Duration,
    /// Bytes of output that are kept: two fifths from the beginning, the rest from the end.
    pub keep_bytes: u32,
    /// Bytes of standard error that are kept, from the beginning.
    pub keep_stderr_bytes: u32,
    /// Variables for it alone.
    pub env: Vec<(String, String)>,
    /// The name of a module that it can import.
    pub module_name: String,
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
pub struct RunningScript {
    running: Running,
    started: Instant,
    state_loss: StateLoss,
}

/// The end of a Python program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScriptOutcome {
    /// What a shell would report: 124 deadline, 126 bad directory, 130 interrupt, 128+n signal.
    pub code: i32,
    /// How it ended.
    pub end_reason: EndReason,
    /// The output, or its beginning.
    pub head: Vec<u8>,
    /// The end of an output that is longer than was wanted.
    pub tail: Vec<u8>,
    /// Bytes of output in all.
    pub total_bytes: u64,
    /// Where all of it is, if some was left out: a path inside the place.
    pub spool_path: Option<String>,
    /// The beginning of its standard error.
    pub stderr: Vec<u8>,
    /// From start to end.
    pub duration: Duration,
    /// Whether the state of an earlier place was lost before this ran.
    pub state_loss: StateLoss,
}

impl OpenPlace {
    /// Starts the Python program of a permit, which must be for this place and this session. The connections that it
    /// makes to the socket in its environment come out of the second value.
    pub async fn start_python(
        &self,
        permit: Permit,
        wish: ScriptOptions,
    ) -> Result<(RunningScript, Calls), Error> {
        let job = permit.redeem(self.place.id(), &self.place.session)?;
        let Work::Python(text) = job.work else { return Err(Error::NotPython) };
        let (workdir, interpreter) = match wish.directory {
            ScriptDirectory::Session => (Workdir::SessionAt(ByteBuf::from(job.cwd)), Interpreter::Session),
            ScriptDirectory::Private if job.cwd == PRIVATE_DIR => (Workdir::Private, Interpreter::Place),
            ScriptDirectory::Private => return Err(Error::SessionMoved),
        };
        let python = Python {
            script: ByteBuf::from(text),
            module: (ByteBuf::from(wish.module_name), ByteBuf::from(wish.module_text)),
            number: 0,
            interpreter,
            keep_errors: wish.keep_stderr_bytes,
        };
        let run = Run {
            session: self.place.guest_session_key(),
            program: Program::Argv(Vec::new()),
            workdir,
            env: to_byte_pairs(&wish.env),
            stdin: Stdin::Null,
            terminal: None,
            deadline: Some(Deadline { after: wish.timeout, then: AtDeadline::Kill }),
            mode: Mode::Foreground { output: Delivery::Summary, state: StateRule::Leave },
            keep: wish.keep_bytes,
            spool: limit::SPOOL,
        };
        let (client, reset) = self.client_for_command().await?;
        let (running, calls) = client.run_python(run, python).await.map_err(|error| match error {
            client::Error::Refused(Fault::NoPython) => Error::NoPython { place: self.python_location() },
            other => map_moved_error(other),
        })?;
        Ok((RunningScript { running, started: Instant::now(), state_loss: reset }, calls))
    }

    fn python_location(&self) -> String {
        match &self.place.spec.backend {
            Backend::Local(_) => "the PATH of this machine".to_owned(),
            Backend::Sandbox(_) => {
                "the PATH of the sandbox, which has the programs of this machine".to_owned()
            }
            Backend::Docker(docker) => format!("the image {}", docker.image),
        }
    }
}

impl RunningScript {
    /// Waits for its end. Can be cancelled without losing anything.
    pub async fn wait(&mut self) -> Result<ScriptOutcome, Error> {
        match self.running.end().await? {
            Event::Ended(ended) => Ok(self.outcome(*ended)),
            // Nobody asked for that.
            Event::Moved(_) | Event::Output(_) => Err(client::Error::Gone.into()),
        }
    }

    /// Does what Ctrl-C does, and kills what does not stop. The end still comes.
    pub async fn interrupt(&mut self) -> Result<(), Error> {
        Ok(self.running.interrupt().await?)
    }

    fn outcome(&self, ended: Ended) -> ScriptOutcome {
        ScriptOutcome {
            code: ended.code,
            end_reason: match ended.cause {
                Cause::Exited | Cause::Signaled(_) | Cause::Killed => EndReason::Exited,
                Cause::Deadline => EndReason::TimedOut,
                Cause::Interrupted => EndReason::Interrupted,
                Cause::BadDirectory => EndReason::BadDirectory,
            },
            head: ended.head.into_vec(),
            tail: ended.tail.into_vec(),
            total_bytes: ended.total,
            spool_path: ended.spool.map(|path| String::from_utf8_lossy(&path).into_owned()),
            stderr: ended.errors.into_vec(),
            duration: self.started.elapsed(),
            state_loss: self.state_loss,
        }
    }
}
