//! Persistent storage: sessions and their messages, turns, questions and answers, grants, spending,
//! the inbox and outbox of chats, paired users, and image files.
//!
//! [`Store`] is a cheap handle to one SQLite file, `hermes.db` in the Hermes home. One thread
//! writes; reads use a few connections of their own and never wait for the writer. Several
//! processes may use the file at once.
//!
//! *Invariants.* All SQL of the project is here, and nothing else: no rule about what may run, and
//! no clock, because callers pass timestamps. A write is one transaction and is durable against the
//! death of any process once its future completes. Messages are ordered by sequence number, never
//! by time. The text of a message is stored once. Every list, search and lookup of sessions names
//! its [`Viewer`]. A failure is an [`Error`] with a hint; the store never replaces, empties or
//! repairs a file it cannot use.
//!
//! *A turn* is [`Store::open_turn`] with the user's message, [`Store::append_step`] for each step
//! before its side effects, and [`Store::close_turn`]. After a crash,
//! [`Store::take_over_turn`] assigns the turn of a dead worker to this process, and
//! [`Store::open_calls`] lists the tool calls without a result.
//!
//! *Approvals.* A grant, a question or an answer counts only with a code that only Hermes can make
//! (`approval_key.rs`), because commands of the owner can write the database.
//!
//! *Where to start reading.* `schema/` for the tables, `store.rs` for the connections, `file.rs`
//! for opening and migrating, then one file per noun.

mod approval_key;
mod changes;
mod error;
mod export;
mod file;
mod grant;
mod history;
mod images;
mod inbox;
mod lock_owner;
mod message;
mod outbox;
mod pairing;
mod question;
mod remove;
mod search;
mod session;
mod spending;
mod sql;
mod store;
mod threads_joined;
mod turn;
mod worker_lock;

pub use approval_key::{InvalidApprovals, KEY_FILE_NAME};
pub use changes::ChangeStream;
pub use error::Error;
pub use file::FILE_NAME;
pub use grant::GrantRow;
pub use history::MessageFilter;
pub use images::{ImageError, ImageStore};
pub use inbox::{InboxId, InboxRow, NewInboxRow};
pub use lock_owner::LockOwner;
pub use message::{MessageRow, NewMessage, Seq};
pub use outbox::{DeliveryOutcome, DeliveryState, NewOutboxRow, OutboxId, OutboxRow};
pub use pairing::{ApprovalResult, CodeResponse, PairedUser, PendingUser};
pub use question::{AnswerResult, NewQuestion, QuestionRow, QuestionState, WaitingCall};
pub use remove::PruneResult;
pub use search::{MessageHit, SearchQuery, Snippet};
pub use session::{NewSession, SessionId, SessionPrompt, SessionQuery, SessionRow, Viewer};
pub use spending::{CostStatus, ModelCall};
pub use store::Store;
pub use turn::{OpenTurn, TurnId, TurnStep};
pub use worker_lock::TurnOwner;
