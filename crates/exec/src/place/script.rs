//! Python programs in a place, and the connections they make to the host.

use std::time::Duration;

use hermes_guest::client;
use hermes_guest::protocol::message::{
    OutputDelivery, Program, PythonInterpreter, PythonProgram, Rejection, RunMode, RunRequest, StatePolicy,
    WorkingDir,
};
use hermes_policy::Permit;
use hermes_types::Work;
use serde_bytes::ByteBuf;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::{OpenPlace, to_byte_pairs};
use crate::command::RunningCommand;
use crate::guard::GuardedRun;
use crate::{Backend, Error};

pub use hermes_guest::client::Tunnel;

/// The connections that a Python program opens. The channel ends when the connection to the guest
/// is closed.
pub type PythonConnections = mpsc::Receiver<Tunnel>;

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

impl OpenPlace {
    /// Starts the Python program of a permit, which must be for this place and this session. It
    /// ends with its whole process tree. The second value yields the connections that the program
    /// makes to the socket in its environment.
    pub async fn start_python(
        &self,
        permit: Permit,
        options: ScriptOptions,
    ) -> Result<(RunningCommand, PythonConnections), Error> {
        let (job, mut confinement) = self.redeem_job(permit)?;
        let Work::Python(text) = job.work else { return Err(Error::NotPython) };
        let mut judged_shell = None;
        let (workdir, interpreter) = match options.directory {
            ScriptDirectory::Session => {
                judged_shell = Some(job.shell.digest);
                (WorkingDir::SessionAt(ByteBuf::from(job.cwd.as_bytes())), PythonInterpreter::Session)
            }
            ScriptDirectory::Private if job.cwd == PRIVATE_DIR => {
                (WorkingDir::Private, PythonInterpreter::System)
            }
            ScriptDirectory::Private => return Err(Error::SessionMoved),
        };
        let output = OutputDelivery::Summary;
        let mode = RunMode::Foreground { output, state: StatePolicy::Discard };
        let (client, state_loss) = self.client_for_command(&mut confinement).await?;
        let guarded = GuardedRun::new(&self.place, &confinement);
        let run = |listener| {
            let program = Program::Python(PythonProgram {
                script: ByteBuf::from(text),
                module: (ByteBuf::from(options.module_name), ByteBuf::from(options.module_text)),
                listener,
                interpreter,
                stderr_bytes: options.keep_stderr_bytes,
            });
            RunRequest {
                env: to_byte_pairs(&options.env),
                deadline: Some(options.timeout),
                memory_bytes: options.keep_bytes,
                confinement,
                judged_shell,
                ..self.default_request(program, workdir, mode)
            }
        };
        let (running, calls) = client.run_python(run).await.map_err(|error| match error {
            client::Error::Rejected(Rejection::NoPython) => Error::NoPython { place: self.python_location() },
            other => other.into(),
        })?;
        let started = Instant::now();
        let delivery = Some(output);
        let dir = crate::registry::PlaceDir::for_place(&self.place);
        Ok((RunningCommand { running, started, cwd: job.cwd, state_loss, delivery, dir, guarded }, calls))
    }

    fn python_location(&self) -> String {
        match &self.place.spec.backend {
            Backend::Local(_) => "the PATH of this machine".to_owned(),
            Backend::Sandbox(_) => "the PATH of the sandbox, which has this machine's programs".to_owned(),
            Backend::Docker(docker) => format!("the image {}", docker.image),
        }
    }
}
