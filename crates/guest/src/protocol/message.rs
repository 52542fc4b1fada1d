//! Requests of the host and replies of the guest.
//!
//! Text from users and programs travels as bytes, because paths, output and variables need not be
//! UTF-8.

use std::fmt;
use std::time::Duration;

use hermes_types::ShellContext;
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;
use thiserror::Error;

use super::file::{self, FileRequest, JudgedPath, WriteOptions};
use super::guard::{GuardSpec, GuardState, RunConfinement};
use super::limit;

/// Identifies a shell session; any bytes are valid.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ShellSessionKey(pub ByteBuf);

impl<T: AsRef<[u8]> + ?Sized> From<&T> for ShellSessionKey {
    fn from(key: &T) -> Self {
        Self(ByteBuf::from(key.as_ref()))
    }
}

/// Identifies a process. The start time, in clock ticks since boot, distinguishes processes that
/// reuse a pid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ProcessId {
    /// The pid inside the environment.
    pub pid: u32,
    pub started: u64,
}

impl fmt::Display for ProcessId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.pid, self.started)
    }
}

/// The first message on a stream opened by the host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum GuestRequest {
    Stats,
    /// Opens a shell session, or returns the existing one.
    OpenSession(OpenSession),
    /// Shows a session. The digest is that of the shell state that the caller knows.
    ShowSession(ShellSessionKey, String),
    Run(Box<RunRequest>),
    /// Lists background processes, and foreground commands that left processes running.
    Processes,
    Process(ProcessId, ProcessRequest),
    /// Follows notices from this number on.
    Notices(u64),
    File(JudgedPath, FileRequest),
    /// Writes a file. [`file::WriteChunk`] messages follow until the last one, or until the guest
    /// replies with an error.
    WriteFile(JudgedPath, WriteOptions),
    /// Listens on a TCP port of the loopback interface; 0 selects a free one. Its connections
    /// arrive at the host as streams with this number. The host chooses the number, so that it is
    /// known before the first connection arrives.
    Listen(u64, u16),
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenSession {
    pub key: ShellSessionKey,
    /// Directory of the first command.
    pub cwd: ByteBuf,
    /// Variables in addition to those of the guest itself, which they override. In an existing
    /// session, a changed or removed variable is updated unless the session itself changed it.
    pub env: Vec<(ByteBuf, ByteBuf)>,
    /// Files that bash sources when the session is created, in this order. Missing files are
    /// skipped, and errors in them are ignored.
    pub init_files: Vec<ByteBuf>,
    /// Variables that the init files cannot set. A trailing `*` matches any suffix; case is
    /// ignored.
    pub protected_env: Vec<ByteBuf>,
    /// The protected paths, on the owner's machine.
    pub guard: Option<GuardSpec>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunRequest {
    /// Provides directory, environment, functions and aliases.
    pub session: ShellSessionKey,
    pub program: Program,
    pub workdir: WorkingDir,
    /// The digest of the [`ShellContext`] by which the program was judged. If the session has another
    /// one now, nothing runs.
    pub judged_shell: Option<String>,
    /// Variables for this program only; they override those of the session.
    pub env: Vec<(ByteBuf, ByteBuf)>,
    pub stdin: Stdin,
    /// Runs the program on a terminal of this size instead of pipes.
    pub terminal: Option<TerminalSize>,
    /// The process tree is killed after this time.
    pub deadline: Option<Duration>,
    pub mode: RunMode,
    /// Output kept in memory: two fifths from the beginning, the rest from the end.
    pub memory_bytes: u32,
    /// Output kept on disk; the newest bytes win. Live output is not spooled.
    pub spool_bytes: u64,
    pub confinement: RunConfinement,
}

/// The working directory of a program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum WorkingDir {
    Session,
    /// The session's directory, which must still be this one.
    SessionAt(ByteBuf),
    /// A directory for this program only.
    Other(ByteBuf),
    /// An empty temporary directory. Only for [`Program::Python`].
    Private,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Program {
    /// A command line for bash or, if there is none, sh.
    Shell(ByteBuf),
    /// A Python program; only in the foreground.
    Python(PythonProgram),
}

/// A Python program. It does not change its session, and its descendants are killed when it exits.
/// Its files are in a private directory of the guest, which is removed before the exit is reported.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PythonProgram {
    pub script: ByteBuf,
    /// Name and source of a module that the program can import.
    pub module: (ByteBuf, ByteBuf),
    /// Connections to the socket in [`SOCKET_VARIABLE`] arrive at the host as streams with this
    /// number.
    pub listener: u64,
    pub interpreter: PythonInterpreter,
    /// Captured standard error, from the beginning. It is not part of the output.
    pub stderr_bytes: u32,
}

/// Names the socket on which a Python program reaches the host.
pub const SOCKET_VARIABLE: &str = "HERMES_RPC_SOCKET";

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum PythonInterpreter {
    /// The active virtual environment of the session, or the first one in the session's `PATH`.
    /// Versions that are too old are skipped.
    Session,
    /// The first one in the `PATH` of the guest.
    System,
}

/// Source of standard input.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Stdin {
    Null,
    /// These bytes, then end of file.
    Data(ByteBuf),
    /// Bytes that the client writes later.
    Stream,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TerminalSize {
    pub rows: u16,
    pub columns: u16,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum RunMode {
    /// The stream lasts as long as the program. If it breaks, the process tree is killed.
    Foreground { output: OutputDelivery, state: StatePolicy },
    /// The stream only confirms the start. The session does not change.
    Background {
        /// Lets a later client recognize the process.
        label: ByteBuf,
        /// Sends a notice for lines that contain one of these.
        watch_patterns: Vec<ByteBuf>,
        exit_notice: ExitNotice,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum OutputDelivery {
    /// All output as it is written. A slow reader blocks the program.
    Live,
    /// Beginning and end, after the exit.
    Summary,
}

/// Whether a program updates its session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum StatePolicy {
    /// Changes are applied when the program exits.
    Apply,
    Discard,
}

/// Whether the exit of a background process sends a notice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ExitNotice {
    Notify,
    Quiet,
}

/// Requests about one process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ProcessRequest {
    /// Waits for the exit, at most this long.
    Wait(Duration),
    /// Reads a page of output.
    Page { offset: u64, limit: u32 },
    /// Follows the output from this offset until the process exits.
    Follow(u64),
    /// Shows what the input of the process means.
    InputHistory,
    /// Bytes for standard input. With a text, they are written only if that is the whole earlier
    /// input.
    Write(ByteBuf, Option<String>),
    /// Closes standard input.
    CloseStdin,
    /// Kills the process tree and replies when it is gone.
    Kill,
}

/// Messages of the host on the stream of a foreground program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum RunInput {
    /// Bytes for standard input.
    Stdin(ByteBuf),
    Resize(TerminalSize),
    /// Sends SIGINT and kills processes that do not stop. The exit code is 130.
    Interrupt,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum GuestReply {
    Failed(Rejection),
    Done,
    Stats(Stats),
    Session(SessionView),
    Started(ProcessId),
    /// Output; a gap to the previous page was discarded.
    Output(OutputPage),
    Exited(ExitReport),
    Processes(Vec<ProcessView>),
    Process(Box<ProcessView>),
    InputHistory(InputHistory),
    Notice(ProcessNotice),
    File(file::FileReply),
    /// The bound port.
    Listening(u16),
    /// The only message on a stream that the guest opens: a connection to this listener.
    Connected(u64),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stats {
    pub clients: u32,
    pub sessions: u32,
    /// Processes with a living process tree.
    pub running: u32,
    /// Time since the last activity.
    pub idle: Duration,
    /// Resident memory of the guest, in bytes.
    pub memory: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionView {
    /// Directory of the next command.
    pub cwd: ByteBuf,
    /// The state that changes what a command means, unless the caller knows it.
    pub shell: Option<ShellContext>,
    pub origin: SessionOrigin,
    pub guard: GuardState,
}

/// Whether opening a session created it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum SessionOrigin {
    Created,
    Found,
}

/// How a program exited.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExitReport {
    /// Its output can be read as long as the process is listed.
    pub process: ProcessId,
    /// As a shell reports it: 124 deadline, 126 no working directory, 130 interrupt, 128+n signal.
    pub code: i32,
    pub cause: ExitCause,
    pub output_bytes: u64,
    /// Beginning of the output, if a summary was requested.
    pub head: ByteBuf,
    /// End of the output; `output_bytes - head - tail` bytes lie in between.
    pub tail: ByteBuf,
    /// Path of a file with the whole output, if it does not fit into memory, was not delivered live
    /// and fits on disk. The file is deleted with the record.
    pub spool_path: Option<ByteBuf>,
    /// Beginning of standard error, if it was captured.
    pub stderr: ByteBuf,
    /// Directory of the session now.
    pub cwd: ByteBuf,
    /// Whether descendants still run.
    pub tree: TreeStatus,
    /// Protected files that were created while it ran, and that the guest moved away.
    pub quarantined: Vec<ByteBuf>,
}

/// Why a program exited.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ExitCause {
    /// The program exited by itself.
    Exited,
    /// The number of a signal that the guest did not send.
    Signaled(i32),
    /// The guest killed it at its deadline.
    Deadline,
    /// The guest interrupted it.
    Interrupted,
    /// A client killed it.
    Killed,
    /// It never ran, because its working directory does not exist.
    NoWorkingDir,
    /// The guest killed it, because it kept creating a protected path.
    Guard,
}

/// Whether any process of a tree still runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum TreeStatus {
    Gone,
    /// The process stays listed.
    Alive,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessView {
    pub process: ProcessId,
    pub session: ShellSessionKey,
    pub label: ByteBuf,
    /// Beginning of the command.
    pub command: ByteBuf,
    /// Directory at the start.
    pub cwd: ByteBuf,
    /// Run time, until now or until the exit.
    pub age: Duration,
    /// Without output.
    pub exit: Option<ExitReport>,
    pub tree: TreeStatus,
    /// Last bytes of the output.
    pub output_tail: ByteBuf,
    pub output_bytes: u64,
    /// As in [`ExitReport::spool_path`].
    pub spool_path: Option<ByteBuf>,
}

/// The program that gets the input of a process, and its earlier input.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InputHistory {
    pub command: ByteBuf,
    /// Directory at the start.
    pub cwd: ByteBuf,
    /// `None` if the command or the input is longer than [`limit::MAX_INPUT_HISTORY_BYTES`].
    pub typed: Option<ByteBuf>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutputPage {
    /// Offset of the first byte: later than requested if older output was discarded.
    pub offset: u64,
    pub data: ByteBuf,
    pub total: u64,
}

/// A notice about a background process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessNotice {
    /// Consecutive; a gap means that notices were dropped.
    pub number: u64,
    pub process: ProcessId,
    pub event: ProcessEvent,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ProcessEvent {
    /// A line contains a watched pattern.
    LineMatched {
        /// Truncated.
        line: ByteBuf,
        /// Matching lines since the last notice that were not reported.
        unreported: u64,
    },
    /// The report includes the end of the output.
    Exited(ExitReport),
}

/// Why a request was rejected. Nothing was changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Error)]
pub enum Rejection {
    #[error("no such session")]
    NoSession,
    /// The session has another directory or shell state, or the process another input, than the
    /// request expects.
    #[error("another command changed the session or typed into the process; nothing was done")]
    SessionMoved,
    /// No process has this id, or its record was deleted.
    #[error("no such process")]
    NoProcess,
    #[error("there is no shell in this environment")]
    NoShell,
    #[error("there is no python3 in this environment")]
    NoPython,
    #[error("the process has no standard input")]
    NoStdin,
    #[error("the process has no terminal")]
    NoTerminal,
    #[error("too many sessions (at most {})", limit::MAX_SESSIONS)]
    TooManySessions,
    #[error("too many running processes (at most {})", limit::MAX_RUNNING)]
    TooManyProcesses,
    #[error("too many watched patterns (at most {})", limit::MAX_WATCH_PATTERNS)]
    TooManyPatterns,
    #[error("too many listening tunnels (at most {})", limit::MAX_LISTENERS)]
    TooManyListeners,
    #[error("the session key is too large (at most {} bytes)", limit::MAX_SESSION_KEY_BYTES)]
    SessionKeyTooLarge,
    #[error("invalid request")]
    Malformed,
    #[error("cannot {operation}: {}", std::io::Error::from_raw_os_error(*errno))]
    Os { operation: FailedOperation, errno: i32 },
    #[error(transparent)]
    File(#[from] file::FileError),
}

/// The operation that a system call failed in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Error)]
pub enum FailedOperation {
    #[error("start the program")]
    Start,
    #[error("prepare the program")]
    Prepare,
    #[error("write to the standard input")]
    Write,
    #[error("read the output")]
    Read,
    #[error("hide protected files")]
    Guard,
    #[error("open the tunnel")]
    Tunnel,
}
