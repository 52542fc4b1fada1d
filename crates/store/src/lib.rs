//! What survives a restart: sessions and their messages, turns, questions and answers, grants, spending, the mail of chats, and
//! who was let in there.
//!
//! [`Store`] is a cheap handle on one SQLite file, `hermes.db` in the home. One thread writes; reads go through a few connections
//! of their own and never wait for it. Several processes may use the file at once.
//!
//! *Invariants.* Here is all SQL of the project, and nothing else is here: no rule about what may run, no clock. Moments are
//! handed in. A write is whole or did not happen, and has happened when its future ends: killing any process
//! undoes nothing. Messages are in the order of their own numbers, never of a clock. The text of a message is in the file once.
//! Whoever lists, searches or looks up sessions says for whom ([`Reader`]). What goes wrong is an [`Error`] with a
//! remedy; a file that cannot be used is never replaced, emptied or repaired behind its owner's back.
//!
//! *A turn* goes like this: [`Store::open_turn`] with what a person said, [`Store::append`] for each step before anything
//! happens because of it, [`Store::close_turn`]. After a crash [`Store::unfinished`] names the turns nobody works on,
//! [`Store::take_over`] gives one to this process, and [`Store::open_calls`] says which calls have no result.
//!
//! *Where to start reading.* `schema/` for what is in the file, `store.rs` for the connections, `file.rs` for opening and migrating,
//! then one file per noun.

mod error;
mod export;
mod file;
mod grant;
mod history;
mod inbox;
mod lock;
mod message;
mod outbox;
mod pairing;
mod presence;
mod question;
mod remove;
mod search;
mod session;
mod spending;
mod store;
mod thread;
mod turn;
mod watch;

pub use error::Error;
pub use export::Export;
pub use file::FILE_NAME;
pub use grant::{Grant, GrantScope, NewGrant};
pub use history::{Undone, Which};
pub use inbox::{Letter, LetterId, NewLetter};
pub use lock::Holder;
pub use message::{Entry, Kept, Seq};
pub use outbox::{Delivery, Fate, NewPart, Outgoing, PartId};
pub use pairing::{Approving, Asked, Paired, Pending};
pub use presence::Held;
pub use question::{Answer, Answering, AskedBy, Choice, NewQuestion, Question, QuestionState};
pub use remove::Pruned;
pub use search::{Hit, Search, Snippet};
pub use session::{
    Clash, HIDDEN_SOURCES, Lineage, Listing, NewSession, Parent, Prompt, Reader, Session, SessionId, Shelf,
};
pub use spending::{Cost, CostStatus, Day, Spent};
pub use store::Store;
pub use turn::{OpenTurn, Step, TurnId};
pub use watch::News;
