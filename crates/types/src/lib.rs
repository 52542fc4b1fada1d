//! The nouns every other crate shares.
//!
//! Nothing here does I/O, reads a clock or waits: a type lives in this crate when two crates must agree on
//! what a word means. Each one can only hold a valid value, so the code that receives it has nothing left
//! to check: a [`BackendName`] is a backend that exists, an [`EnvName`] is a name a shell accepts, a
//! [`Volume`] has an absolute target, and a [`Secret`] cannot be printed by accident.
//!
//! Start with [`backend`] for where commands run, [`volume`] for what such a place may see of the host, and
//! [`origin`] for who asks for a [`Job`], from where, and what it could hurt.

pub mod backend;
pub mod chat;
pub mod door;
pub mod env_name;
pub mod job;
pub mod origin;
pub mod person;
pub mod place;
pub mod reach;
pub mod secret;
pub mod session;
pub mod text;
pub mod timestamp;
pub mod volume;

pub use backend::{BackendName, Network};
pub use chat::{Arguments, Call, CallId, Message, Part, Reasoning, ToolSpec, Usage};
pub use door::Door;
pub use env_name::EnvName;
pub use job::{FileAccess, FileUse, Job, Work};
pub use origin::{Attendance, Origin};
pub use person::Person;
pub use place::{Place, PlaceId};
pub use reach::Reach;
pub use secret::Secret;
pub use session::SessionKey;
pub use timestamp::Timestamp;
pub use volume::{Access, Volume, VolumeSource};
