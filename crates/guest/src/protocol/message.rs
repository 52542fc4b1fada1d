//! The vocabulary: what the host asks, and what the guest answers.
//!
//! Text that comes from people or programs travels as bytes, because neither paths nor outputs nor variables
//! are UTF-8 by nature.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;
use thiserror::Error;

use super::file::{self, FileRequest};

/// Names a shell session; any bytes will do.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct SessionKey(pub ByteBuf);

impl<T: AsRef<[u8]> + ?Sized> From<&T> for SessionKey {
    fn from(key: &T) -> Self {
        Self(ByteBuf::from(key.as_ref()))
    }
}

/// Names a process. The start time, in clock ticks since boot, makes a pid that is used again another process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ProcessId {
    /// The pid inside the place.
    pub pid: u32,
    /// When it started.
    pub started: u64,
}

impl fmt::Display for ProcessId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.pid, self.started)
    }
}

/// The first message on a stream that the host opens.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Request {
    /// What place is this?
    About,
    /// How is the guest doing?
    Stats,
    /// Opens a session, or finds the one that is there.
    OpenSession(OpenSession),
    /// What a session looks like now.
    ShowSession(SessionKey),
    /// Forgets a session. Its processes live on.
    CloseSession(SessionKey),
    /// Runs a program.
    Run(Box<Run>),
    /// Lists background processes and whatever commands left running.
    Processes,
    /// Acts on one process.
    Process(ProcessId, Act),
    /// Reports notices from this number on, as they come.
    Notices(u64),
    /// Works on files.
    File(FileRequest),
    /// Makes a socket in the place; its connections arrive as streams at the host, with this number on them. The
    /// host chooses the number, so that it knows it before the first connection arrives.
    Listen(u64, Address),
    /// Connects to a socket in the place; the stream then carries its bytes.
    Dial(Address),
}

/// How to open a session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenSession {
    /// Its name.
    pub key: SessionKey,
    /// Where its first command runs.
    pub cwd: ByteBuf,
    /// What the environment of its first command has besides [`About::base_env`], or instead of a part of it, but for
    /// what the files below change. In a session that is there already, a variable that the host gave gets its new
    /// value, or goes if it has none any more, unless the session has changed it.
    pub env: Vec<(ByteBuf, ByteBuf)>,
    /// Files that bash sources when the session is created, in this order. What is not there is passed over, and
    /// what goes wrong in them goes wrong in silence.
    pub init: Vec<ByteBuf>,
    /// Variables that the files cannot set, each a name, or the beginning of names with a `*` behind it. The case
    /// of letters makes no difference.
    pub withheld: Vec<ByteBuf>,
}

/// One program to run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Run {
    /// The session whose directory, environment, functions and aliases it gets.
    pub session: SessionKey,
    /// What to run.
    pub program: Program,
    /// Where it runs.
    pub workdir: Workdir,
    /// Variables for this program only; they win over those of the session.
    pub env: Vec<(ByteBuf, ByteBuf)>,
    /// Where its input comes from.
    pub stdin: Stdin,
    /// A terminal of this size instead of pipes.
    pub terminal: Option<Size>,
    /// When to stop waiting for it. What runs in the background already can only be killed.
    pub deadline: Option<Deadline>,
    /// Whether somebody waits for it.
    pub mode: Mode,
    /// Bytes of output kept in memory: two fifths from the beginning, the rest from the end.
    pub keep: u32,
    /// Bytes of output kept on disk; the newest win. What is delivered live is not kept there.
    pub spool: u64,
}

/// Where a program runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Workdir {
    /// Wherever the session is.
    Session,
    /// Where the session is, which must still be here; it does not run elsewhere.
    SessionAt(ByteBuf),
    /// Another directory, for this program only.
    Other(ByteBuf),
    /// An empty directory that is gone when the program is. Only for [`Program::Python`].
    Private,
}

/// What to run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Program {
    /// Shell text, run by bash or, where there is none, by sh.
    Shell(ByteBuf),
    /// A program and its arguments, run without a shell.
    Argv(Vec<ByteBuf>),
    /// A Python program, only in the foreground.
    Python(Python),
}

/// A Python program. It has an environment of its own, changes nothing in its session, and whatever it started ends
/// when it does. Its files are in a private directory of the guest, which is gone when its end is told.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Python {
    /// Its text.
    pub script: ByteBuf,
    /// A module that it can import: name and text.
    pub module: (ByteBuf, ByteBuf),
    /// Connections to the socket that [`SOCKET_VARIABLE`] names arrive as streams at the host, with this number on
    /// them.
    pub number: u64,
    /// What runs it.
    pub interpreter: Interpreter,
    /// Bytes of its standard error that are kept, from the beginning. It is no part of the output.
    pub keep_errors: u32,
}

/// The variable by which a Python program finds the socket that leads to its host.
pub const SOCKET_VARIABLE: &str = "HERMES_RPC_SOCKET";

/// What runs a Python program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Interpreter {
    /// That of the virtual environment that is active in the session, or the first one in the session's `PATH`. One
    /// that is too old is passed over.
    Session,
    /// The first one in the `PATH` of the place.
    Place,
}

/// Where input comes from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Stdin {
    /// There is none.
    Null,
    /// These bytes, then the end.
    Data(ByteBuf),
    /// What is written later.
    Stream,
}

/// A terminal's size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Size {
    /// Lines.
    pub rows: u16,
    /// Columns.
    pub columns: u16,
}

/// When to stop waiting, and what to do then.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Deadline {
    /// Counted from the start.
    pub after: Duration,
    /// What happens at that moment.
    pub then: AtDeadline,
}

/// What happens at the deadline.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum AtDeadline {
    /// The whole tree is killed.
    Kill,
    /// It goes on in the background.
    Background,
}

/// Whether somebody waits for the program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Mode {
    /// The stream lives as long as the program. If it breaks, the whole tree is killed.
    Foreground {
        /// How the output is wanted.
        output: Delivery,
        /// Whether the session changes when the program ends.
        state: StateRule,
    },
    /// The stream only carries the answer that it started. The session does not change.
    Background {
        /// Lets a later client recognize it.
        label: ByteBuf,
        /// A notice for each line that contains one of these.
        watch: Vec<ByteBuf>,
        /// Whether its end is worth a notice.
        at_end: AtEnd,
    },
}

/// How output is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Delivery {
    /// All of it, as it comes. A reader that is slow makes the program wait.
    Live,
    /// Its beginning and its end, when the program has ended.
    Summary,
}

/// Whether a program changes its session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum StateRule {
    /// What it changed is applied when it ends.
    Keep,
    /// The session stays as it is.
    Leave,
}

/// Whether the end of a background process is worth a notice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum AtEnd {
    /// A notice is sent.
    Notify,
    /// It can be asked for.
    Quiet,
}

/// What can be done to a process by its id.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Act {
    /// Describe it.
    Show,
    /// Wait for its end, at most this long.
    Wait(Duration),
    /// A page of its output, from this offset.
    Page {
        /// Where to begin.
        offset: u64,
        /// How many bytes at most.
        limit: u32,
    },
    /// Its output from this offset on, as it comes, until it ends.
    Follow(u64),
    /// Bytes for its input.
    Write(ByteBuf),
    /// The end of its input.
    CloseStdin,
    /// Another size for its terminal.
    Resize(Size),
    /// A signal to its process group.
    Signal(Signal),
    /// Kill the whole tree, and answer when it is gone.
    Kill,
    /// Drop its record and its output. Refused while anything of it runs.
    Forget,
}

/// A signal by its number on Linux.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Signal(pub i32);

/// What the host may say on the stream of a foreground program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Input {
    /// Bytes for its input.
    Stdin(ByteBuf),
    /// The end of its input.
    CloseStdin,
    /// Another size for its terminal.
    Resize(Size),
    /// A signal to its process group.
    Signal(Signal),
    /// What Ctrl-C means: interrupt it, and kill what does not stop. The exit code is 130.
    Interrupt,
    /// Let it go on in the background.
    Background,
}

/// Where a tunnel begins or ends inside the place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Address {
    /// A Unix socket.
    Unix(ByteBuf),
    /// A TCP port on loopback; 0 lets the guest choose one to listen on.
    Loopback(u16),
}

/// What the guest answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reply {
    /// It did not work.
    Failed(Fault),
    /// It is done.
    Done,
    /// To [`Request::About`].
    About(About),
    /// To [`Request::Stats`].
    Stats(Stats),
    /// To the requests about sessions.
    Session(SessionView),
    /// A program runs.
    Started(ProcessId),
    /// Output from this offset on. A gap to the bytes before was too old to be kept.
    Output {
        /// Offset of the first byte.
        offset: u64,
        /// The bytes.
        data: ByteBuf,
    },
    /// A program ended.
    Ended(Ended),
    /// A foreground program goes on in the background.
    Moved,
    /// To [`Request::Processes`].
    Processes(Vec<ProcessView>),
    /// To [`Act::Show`] and [`Act::Wait`].
    Process(Box<ProcessView>),
    /// To [`Act::Page`].
    Page(Page),
    /// To [`Request::Notices`].
    Notice(Notice),
    /// To [`Request::File`].
    File(file::FileReply),
    /// To [`Request::Listen`]: connections will arrive. The port that was bound; 0 for a Unix socket.
    Listening(u16),
    /// The first and only message on a stream the guest opens: a connection to this listener.
    Arrived(u64),
}

/// The place, as its guest finds it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct About {
    /// Tells this guest from one that ran here before.
    pub instance: u64,
    /// The guest's pid.
    pub pid: u32,
    /// Who runs commands here.
    pub uid: u32,
    /// And in which group.
    pub gid: u32,
    /// Which shell runs commands.
    pub shell: Option<Shell>,
    /// `PATH`, `HOME`, `LANG`, `TERM`, `TZ`, `USER` and `SHELL` as the place gave them to the guest.
    pub base_env: Vec<(ByteBuf, ByteBuf)>,
}

/// A shell, by what it can keep.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Shell {
    /// Directory, exports, functions and aliases.
    Bash(ByteBuf),
    /// Directory and exports.
    Sh(ByteBuf),
}

/// How the guest is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stats {
    /// Since it started.
    pub uptime: Duration,
    /// Clients connected now.
    pub clients: u32,
    /// Sessions open.
    pub sessions: u32,
    /// Processes of which something runs.
    pub running: u32,
    /// Processes whose output can still be read.
    pub finished: u32,
    /// How long nothing has run and nobody has used the place.
    pub idle: Duration,
    /// Resident memory of the guest itself, in bytes.
    pub memory: u64,
}

/// What a session looks like.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionView {
    /// Where its next command runs.
    pub cwd: ByteBuf,
    /// What its next command finds in its environment.
    pub env: Vec<(ByteBuf, ByteBuf)>,
    /// Names of its functions.
    pub functions: Vec<ByteBuf>,
    /// Names of its aliases.
    pub aliases: Vec<ByteBuf>,
    /// Whether it was there before it was opened.
    pub origin: Origin,
}

/// Whether a session was there before it was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Origin {
    /// It is new.
    Created,
    /// It was there, with its state.
    Found,
}

/// How a program ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ended {
    /// Which one; its output can be paged as long as it is listed.
    pub process: ProcessId,
    /// What a shell would report: 124 deadline, 126 bad directory, 130 interrupt, 128+n signal.
    pub code: i32,
    /// Why it ended.
    pub cause: Cause,
    /// Bytes of output in all.
    pub total: u64,
    /// The beginning of the output, if a summary was asked for.
    pub head: ByteBuf,
    /// The end of it. Between the two lie `total - head - tail` bytes.
    pub tail: ByteBuf,
    /// The path in the place of a file with the whole output, if there is more of it than is kept in memory and it was
    /// neither taken live nor longer than what is kept on disk. The file goes with the record of the program.
    pub spool: Option<ByteBuf>,
    /// The beginning of its standard error, where that was kept apart.
    pub errors: ByteBuf,
    /// Where the session is now.
    pub cwd: ByteBuf,
    /// What became of the session's state.
    pub state: StateFate,
    /// Whether something it started still runs.
    pub tree: Tree,
}

/// Why a program ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Cause {
    /// By itself.
    Exited,
    /// By a signal that was not ours.
    Signaled(Signal),
    /// We killed it at its deadline.
    Deadline,
    /// We interrupted it.
    Interrupted,
    /// We killed it when asked.
    Killed,
    /// It never ran: its directory is not there.
    BadDirectory,
}

/// What became of a session's state when a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum StateFate {
    /// What changed was applied.
    Applied,
    /// It was not to be changed.
    Left,
    /// The shell ended without handing its state back; the session is as before.
    Lost,
}

/// Whether anything of a program still runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Tree {
    /// Nothing does.
    Gone,
    /// Something does; it stays listed under the program's id.
    Alive,
}

/// One process in the list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessView {
    /// Its id.
    pub process: ProcessId,
    /// The session it was started in.
    pub session: SessionKey,
    /// The label it was started with.
    pub label: ByteBuf,
    /// The beginning of what was run.
    pub command: ByteBuf,
    /// Where it was started.
    pub cwd: ByteBuf,
    /// How long it has run, or ran.
    pub age: Duration,
    /// How it ended, without output.
    pub ended: Option<Ended>,
    /// Whether anything of it runs.
    pub tree: Tree,
    /// The last bytes of its output.
    pub last: ByteBuf,
    /// Bytes of output so far.
    pub total: u64,
    /// As in [`Ended::spool`], so far.
    pub spool: Option<ByteBuf>,
}

/// A page of output.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Page {
    /// Offset of the first byte: later than asked if what was asked for is no longer kept.
    pub offset: u64,
    /// The bytes.
    pub data: ByteBuf,
    /// Bytes of output so far.
    pub total: u64,
}

/// Something worth telling about a background process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Notice {
    /// Counts up by one; a gap means that notices were dropped.
    pub number: u64,
    /// About which process.
    pub process: ProcessId,
    /// What happened.
    pub what: Happening,
}

/// What happened to a background process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Happening {
    /// A line contained a watched pattern.
    Matched {
        /// The line, cut at a limit.
        line: ByteBuf,
        /// Lines that matched since the last notice and were not reported, so as not to flood.
        unreported: u64,
    },
    /// It ended. The tail of its output comes with it.
    Ended(Ended),
}

/// Why a request was not carried out. Nothing was changed unless the variant says so.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Error)]
pub enum Fault {
    /// No session has that key.
    #[error("no such session")]
    NoSession,
    /// The session is no longer in the directory that the program was meant for.
    #[error("the session has moved to another directory meanwhile; nothing was run")]
    Moved,
    /// No process has that id: it never was, or its record is gone.
    #[error("no such process")]
    NoProcess,
    /// There is neither bash nor sh here.
    #[error("there is no shell in this place; only a program with its arguments can be run")]
    NoShell,
    /// There is no Python here.
    #[error("there is no python3 in this place")]
    NoPython,
    /// The process has no input, or its input was closed.
    #[error("the process takes no input")]
    NoStdin,
    /// The process has no terminal.
    #[error("the process has no terminal")]
    NoTerminal,
    /// Something of the process runs.
    #[error("the process is still running")]
    Running,
    /// A limit on counts was reached.
    #[error("too many {what} (at most {limit})")]
    TooMany {
        /// Of what.
        what: Counted,
        /// How many there may be.
        limit: u64,
    },
    /// A limit on sizes was reached.
    #[error("{what} is too large (at most {limit} bytes)")]
    TooLarge {
        /// What is too large.
        what: Measured,
        /// How large it may be.
        limit: u64,
    },
    /// The request does not make sense.
    #[error("not a request this guest understands")]
    Malformed,
    /// The system said no.
    #[error("cannot {doing}: {}", std::io::Error::from_raw_os_error(*errno))]
    Os {
        /// What was tried.
        doing: Doing,
        /// The error number of Linux.
        errno: i32,
    },
    /// Something about a file.
    #[error(transparent)]
    File(#[from] file::FileFault),
}

/// What there can be too many of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Counted {
    /// Sessions.
    Sessions,
    /// Running processes.
    Processes,
    /// Watched patterns.
    Patterns,
    /// Listening tunnels.
    Listeners,
}

impl fmt::Display for Counted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Sessions => "sessions",
            Self::Processes => "running processes",
            Self::Patterns => "watched patterns",
            Self::Listeners => "listening tunnels",
        })
    }
}

/// What can be too large.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Measured {
    /// A session's name.
    SessionKey,
    /// A session's state.
    State,
    /// A file to patch.
    File,
}

impl fmt::Display for Measured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::SessionKey => "the session key",
            Self::State => "the state of the session",
            Self::File => "the file",
        })
    }
}

/// What was tried when the system said no.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Doing {
    /// Starting a program.
    Start,
    /// Making a pipe, a terminal or a memory file.
    Prepare,
    /// Sending a signal.
    Signal,
    /// Writing to its input.
    Write,
    /// Reading its output.
    Read,
    /// Making a tunnel.
    Tunnel,
}

impl fmt::Display for Doing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Start => "start the program",
            Self::Prepare => "prepare for the program",
            Self::Signal => "send the signal",
            Self::Write => "write to the program",
            Self::Read => "read the output",
            Self::Tunnel => "make the tunnel",
        })
    }
}
