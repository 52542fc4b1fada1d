//! Python programs in a place, and the connections they make to the host.

use std::time::Duration;

use hermes_guest::client::{self, RunHandle};
use hermes_guest::protocol::limit;
use hermes_guest::protocol::message::{
    ExitCause, ExitReport, OutputDelivery, Program, PythonInterpreter, PythonProgram, Rejection, RunMode,
    RunRequest, StatePolicy, Stdin, WorkingDir,
};
use hermes_policy::Permit;
use hermes_types::Work;
use serde_bytes::ByteBuf;
use tokio::time::Instant;

use super::{OpenPlace, StateLoss, map_moved_error, to_byte_pairs};
use crate::{Backend, EndReason, Error};

pub use hermes_guest::client::{PythonConnections, Tunnel};

/// The directory by which the gate judges a program that runs in a private directory. That one
/// starts empty, so a relative path leads nowhere before the program creates something.
pub const PRIVATE_DIR: &str = "/tmp/hermes-private";

#[derive(Debug, Clone)]
pub struct ScriptOptions {
    pub timeout: Duration,
    /// Bytes of output to return: two fifths from the start, the rest from the end.
    pub keep_bytes: u32,
    /// Bytes of standard error to return, from the start.
    pub keep_stderr_bytes: u32,
    /// Variables for this program only.
    pub env: Vec<(String, String)>,
    /// The name of a module that the program can import.
    pub module_name: String,
    pub module_text: String,
    pub directory: ScriptDirectory,
}

/// The directory and the interpreter of a Python program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScriptDirectory {
    /// The session's directory and its active Python. If the session has moved since the gate was
    /// asked, nothing runs.
    Session,
    /// An empty directory that is removed afterwards, and the place's Python. The gate must judge
    /// the job by [`PRIVATE_DIR`].
    Private,
}

/// A running Python program. It ends with its whole process tree, as does dropping it.
#[derive(Debug)]
pub struct RunningScript {
    running: RunHandle,
    started: Instant,
    state_loss: StateLoss,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScriptOutcome {
    /// The exit code as a shell reports it: 124 timeout, 126 bad directory, 130 interrupt, 128+n
    /// signal.
    pub code: i32,
    pub end_reason: EndReason,
    /// The output, or its head.
    pub head: Vec<u8>,
    /// The tail of output that exceeds the limit.
    pub tail: Vec<u8>,
    pub total_bytes: u64,
    /// The file with the full output, if some was omitted: a path inside the place.
    pub spool_path: Option<String>,
    /// The start of its standard error.
    pub stderr: Vec<u8>,
    pub duration: Duration,
    /// Whether the state of an earlier place was lost before this ran.
    pub state_loss: StateLoss,
}

impl OpenPlace {
    /// Starts the Python program of a permit, which must be for this place and this session. The
    /// second value yields the connections that the program makes to the socket in its environment.
    pub async fn start_python(
        &self,
        permit: Permit,
        options: ScriptOptions,
    ) -> Result<(RunningScript, PythonConnections), Error> {
        let job = permit.redeem(self.place.id(), &self.place.session)?;
        let Work::Python(text) = job.work else { return Err(Error::NotPython) };
        let (workdir, interpreter) = match options.directory {
            ScriptDirectory::Session => {
                (WorkingDir::SessionAt(ByteBuf::from(job.cwd)), PythonInterpreter::Session)
            }
            ScriptDirectory::Private if job.cwd == PRIVATE_DIR => {
                (WorkingDir::Private, PythonInterpreter::System)
            }
            ScriptDirectory::Private => return Err(Error::SessionMoved),
        };
        let run = |listener| RunRequest {
            session: self.place.guest_session_key(),
            program: Program::Python(PythonProgram {
                script: ByteBuf::from(text),
                module: (ByteBuf::from(options.module_name), ByteBuf::from(options.module_text)),
                listener,
                interpreter,
                stderr_bytes: options.keep_stderr_bytes,
            }),
            workdir,
            env: to_byte_pairs(&options.env),
            stdin: Stdin::Null,
            terminal: None,
            deadline: Some(options.timeout),
            mode: RunMode::Foreground { output: OutputDelivery::Summary, state: StatePolicy::Discard },
            memory_bytes: options.keep_bytes,
            spool_bytes: limit::MAX_SPOOL_BYTES,
        };
        let (client, state_loss) = self.client_for_command().await?;
        let (running, calls) = client.run_python(run).await.map_err(|error| match error {
            client::Error::Rejected(Rejection::NoPython) => Error::NoPython { place: self.python_location() },
            other => map_moved_error(other),
        })?;
        Ok((RunningScript { running, started: Instant::now(), state_loss }, calls))
    }

    fn python_location(&self) -> String {
        match &self.place.spec.backend {
            Backend::Local(_) => "the PATH of this machine".to_owned(),
            Backend::Sandbox(_) => "the PATH of the sandbox, which has this machine's programs".to_owned(),
            Backend::Docker(docker) => format!("the image {}", docker.image),
        }
    }
}

impl RunningScript {
    /// Waits for the end. Cancel safe.
    pub async fn wait(&mut self) -> Result<ScriptOutcome, Error> {
        let ended = self.running.wait().await?;
        Ok(self.outcome(ended))
    }

    /// Sends an interrupt, as Ctrl-C does, and kills processes that do not stop. The end still has
    /// to be awaited.
    pub async fn interrupt(&mut self) -> Result<(), Error> {
        Ok(self.running.interrupt().await?)
    }

    fn outcome(&self, ended: ExitReport) -> ScriptOutcome {
        ScriptOutcome {
            code: ended.code,
            end_reason: match ended.cause {
                ExitCause::Exited | ExitCause::Signaled(_) | ExitCause::Killed => EndReason::Exited,
                ExitCause::Deadline => EndReason::TimedOut,
                ExitCause::Interrupted => EndReason::Interrupted,
                ExitCause::NoWorkingDir => EndReason::BadDirectory,
            },
            head: ended.head.into_vec(),
            tail: ended.tail.into_vec(),
            total_bytes: ended.output_bytes,
            spool_path: ended.spool_path.map(|path| String::from_utf8_lossy(&path).into_owned()),
            stderr: ended.stderr.into_vec(),
            duration: self.started.elapsed(),
            state_loss: self.state_loss,
        }
    }
}
