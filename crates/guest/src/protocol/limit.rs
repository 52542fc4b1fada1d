//! Hard limits. A peer that goes past one of them is in breach, or is refused with a typed fault.

use std::time::Duration;

/// The longest message, in bytes.
pub const FRAME: usize = 2 * 1024 * 1024;
/// How much of an output, a file or an input travels in one message.
pub const CHUNK: usize = 128 * 1024;
/// Streams open at once on one connection.
pub const STREAMS: usize = 256;
/// What a peer may make us hold for streams that we have not read yet.
pub const RECEIVE_WINDOW: usize = STREAMS * 256 * 1024 + 8 * 1024 * 1024;
/// How long a peer may take to greet, or to answer a question that needs no waiting.
pub const ANSWER: Duration = Duration::from_secs(30);
/// Clients connected to one guest at once.
pub const CLIENTS: usize = 256;
/// Shell sessions in one guest.
pub const SESSIONS: usize = 256;
/// How long the files that set a session up may take, all together.
pub const INIT: Duration = Duration::from_secs(10);
/// Bytes in a session key.
pub const SESSION_KEY: usize = 1024;
/// Processes running at once in one guest.
pub const RUNNING: usize = 256;
/// Finished background processes whose output can still be read.
pub const FINISHED: usize = 64;
/// How long a finished background process can still be asked about, counted from its end.
pub const FINISHED_FOR: Duration = Duration::from_secs(30 * 60);
/// Finished foreground commands whose long output can still be paged.
pub const FINISHED_FOREGROUND: usize = 16;
/// Bytes of one output kept in memory, at most.
pub const KEEP: usize = 1024 * 1024;
/// Bytes of one output kept on disk, at most.
pub const SPOOL: u64 = 1024 * 1024 * 1024;
/// Bytes of session state read back from a shell.
pub const STATE: usize = 8 * 1024 * 1024;
/// Patterns watched for in one output.
pub const PATTERNS: usize = 32;
/// Bytes of a matching line that are reported.
pub const LINE: usize = 2000;
/// Notices kept for a client that is not there.
pub const NOTICES: usize = 256;
/// Listening tunnels in one guest: two for every client.
pub const LISTENERS: usize = 2 * CLIENTS;
/// Connections of one listening tunnel that are carried at once; further ones wait.
pub const CARRIED: usize = 128;
/// Connections of one Python program to its host that are carried at once; further ones wait. With those of a proxy
/// they leave room for commands among the streams of a connection.
pub const CALLS: usize = 64;
/// Entries in one page of a listing or of search results.
pub const PAGE: usize = 10_000;
/// The largest file that can be patched.
pub const PATCH: u64 = 64 * 1024 * 1024;
