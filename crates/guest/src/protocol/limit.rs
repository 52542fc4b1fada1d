//! Hard limits. Exceeding one is a protocol violation or is rejected with a typed error.

use std::time::Duration;

/// Maximum size of a message.
pub const MAX_FRAME_BYTES: usize = 2 * 1024 * 1024;
/// Output, file content or input in one message.
pub const CHUNK_BYTES: usize = 128 * 1024;
/// Open streams per connection.
pub const MAX_STREAMS: usize = 256;
/// Unread data that a peer may make us buffer.
pub const RECEIVE_WINDOW_BYTES: usize = MAX_STREAMS * 256 * 1024 + 8 * 1024 * 1024;
/// Time limit for the handshake and for requests that need no waiting.
pub const REPLY_TIMEOUT: Duration = Duration::from_secs(30);
/// Connected clients per guest.
pub const MAX_CLIENTS: usize = 256;
/// Shell sessions per guest.
pub const MAX_SESSIONS: usize = 256;
/// Time limit for all init files of a session together.
pub const INIT_TIMEOUT: Duration = Duration::from_secs(10);
pub const MAX_SESSION_KEY_BYTES: usize = 1024;
/// Running processes per guest.
pub const MAX_RUNNING: usize = 256;
/// Finished background processes that are kept.
pub const MAX_FINISHED: usize = 64;
/// How long a finished process is kept, counted from its exit.
pub const FINISHED_RETENTION: Duration = Duration::from_secs(30 * 60);
/// Finished foreground commands with long output that are kept.
pub const MAX_FINISHED_FOREGROUND: usize = 16;
/// Output of one process in memory.
pub const MAX_MEMORY_OUTPUT_BYTES: usize = 1024 * 1024;
/// Output of one process on disk.
pub const MAX_SPOOL_BYTES: u64 = 1024 * 1024 * 1024;
/// Command and input of a process that are kept to judge further input.
pub const MAX_INPUT_HISTORY_BYTES: usize = 64 * 1024;
/// Session state read back from a shell.
pub const MAX_STATE_BYTES: usize = 8 * 1024 * 1024;
/// Reported aliases and functions of a session.
pub const MAX_CONTEXT_BYTES: usize = 512 * 1024;
/// A variable that changes what commands mean; a longer value is not kept.
pub const MAX_MEANING_VARIABLE_BYTES: usize = 16 * 1024;
/// Watched patterns per process.
pub const MAX_WATCH_PATTERNS: usize = 32;
/// Reported length of a matching line.
pub const MAX_LINE_BYTES: usize = 2000;
/// Notices kept for a client that connects later.
pub const MAX_NOTICES: usize = 256;
/// Listening tunnels per guest: two for every client.
pub const MAX_LISTENERS: usize = 2 * MAX_CLIENTS;
/// Concurrent connections per listening tunnel; further ones wait in the backlog.
pub const MAX_LISTENER_CONNECTIONS: usize = 128;
/// Concurrent connections of one Python program to the host; further ones wait in the backlog.
/// Together with those of a proxy they leave streams for commands.
pub const MAX_PYTHON_CONNECTIONS: usize = 64;
/// Entries in a directory listing, or hits of a search.
pub const MAX_PAGE_ENTRIES: usize = 10_000;
/// Names, paths and lines in a directory listing or in the hits of a search.
pub const MAX_PAGE_BYTES: usize = 64 * 1024 * 1024;
/// Time limit of a search. A guest that makes its client wait longer is broken.
pub const SEARCH_TIMEOUT: Duration = Duration::from_secs(10 * 60);
/// The first message on a stream that a guest opens.
pub const MAX_ARRIVAL_BYTES: usize = 64;
/// Maximum size of a patched file.
pub const MAX_PATCH_FILE_BYTES: u64 = 64 * 1024 * 1024;
