//! Where commands run.
//!
//! A [`Spec`] says what kind of place a session wants. [`Plan::new`] gives it an identity, the hash of everything that
//! makes it this place and no other, without making anything, so that the gate can judge what would happen
//! there. [`Plan::open`] finds the place or makes it, and [`Sandbox::start`] runs a job in it, for a
//! [`Permit`](hermes_policy::Permit) and for nothing else. [`Sandbox::files`] touches files the same way.
//!
//! *Invariants.* Only a permit starts a command or touches a file, and it is used up. If the backend cannot be used the call fails with
//! an error that names it; nothing runs anywhere else instead. Making a place is a transaction under a lock: two
//! callers get the same place, and a failure leaves nothing.
//!
//! *Where to start reading.* [`sandbox`] for the life of a command, `registry` for how places are found again,
//! [`places`] for the list of them, `backend/` for one file per kind of place, [`proxy`] for the way out of those that
//! have no network.

pub mod backend;
mod capacity;
pub mod command;
mod embed;
mod error;
pub mod files;
mod pidfd;
pub mod place;
pub mod places;
pub mod process;
pub mod proxy;
mod registry;
mod resolved_place;
mod warm_pool;

pub use backend::{
    Audience, Backend, BindMount, CreateRequest, DockerBackend, LocalBackend, SandboxBackend, Writable,
};
pub use command::{CommandEvent, EndReason, Outcome, RunningCommand, Terminal, TerminalEvent};
pub use error::Error;
pub use files::GuestFiles;
pub use hermes_guest::protocol::message::{
    AtDeadline, AtEnd, Cause, ProcessId, ProcessView, Size, Stats, Tree,
};
pub use place::script::{Calls, RunningScript, ScriptDirectory, ScriptOptions, ScriptOutcome, Tunnel};
pub use place::{CommandInput, OpenPlace, OutputMode, RunOptions, StateLoss, WorkingDirectory};
pub use places::{ListedPlace, PlaceState, Places, Reaper};
pub use process::{ProcessHandle, Processes};
pub use registry::{EngineAccess, PlaceRecord};
pub use resolved_place::{Installation, ResolvedPlace, Spec};
