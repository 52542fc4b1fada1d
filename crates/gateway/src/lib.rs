//! Chats: from a message of a person to its answer, whatever happens in between.
//!
//! A [`Channel`] is one account on one platform. What people write there becomes a [`Letter`]; it is kept in the store before
//! the platform is told that it arrived, and is done when what is written back is kept as well. Delivery goes on from there
//! until it is known to have succeeded or to be impossible.
//!
//! *Invariants.* Nothing is done for somebody who was not let in, but to tell them how to ask for it. Every letter belongs
//! to the one who wrote it; words of two people are never put together, but as quotes that say so. Each session has one task
//! that works on it, and one key, which one function makes.
//!
//! *Where to start reading.* [`letter`] for what comes, [`channel`] for what a platform does, [`people`] for who is let in,
//! `session` for how a letter is worked on, and `live` below it for what is seen of that before it is done.

pub mod audit;
mod beside;
pub mod channel;
pub mod command;
mod depot;
pub mod discord;
pub mod gateway;
pub mod house;
pub mod key;
pub mod letter;
pub mod limit;
pub mod media;
mod office;
pub mod people;
pub mod reset;
mod session;
pub mod silence;
pub mod split;
pub mod target;

pub use audit::Audit;
pub use channel::{Arrival, Channel, Desk, Health, Incoming, Manners, Post, Undelivered};
pub use command::Command;
pub use gateway::{Gateway, Rules};
pub use house::{House, Visit};
pub use key::{Sharing, session_key};
pub use letter::{Letter, Platform, Press, Remark, Room, RoomKind, Sender};
pub use limit::Limiter;
pub use media::Media;
pub use people::{Admission, People, Tier};
pub use reset::Reset;
pub use session::{Busy, Progress, Showing};
pub use silence::is_silence;
pub use split::split;
pub use target::{Address, NoWay, Target};
