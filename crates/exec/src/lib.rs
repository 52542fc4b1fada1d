//! Execution environments.
//!
//! A [`Spec`] describes the environment a session wants. [`ResolvedPlace::new`] gives it an
//! identity, a hash of everything that distinguishes it, without creating anything, so the gate can
//! judge commands by its reach. [`ResolvedPlace::open`] finds or creates it, and
//! [`OpenPlace::start_command`] runs the job of a [`Permit`](hermes_policy::Permit).
//! [`OpenPlace::files`] accesses files in the same way.
//!
//! *Invariants.* Only a permit starts a command or touches a file, and a permit is used once. If
//! the backend cannot be used, the call fails with an error that names it; nothing runs elsewhere
//! instead. Creation is a transaction under a lock: concurrent callers get the same place, and a
//! failure leaves nothing behind.
//!
//! *Where to start reading.* [`place`] for running commands, `registry` for the place directories,
//! [`places`] for the list of places, `backend/` for one file per backend, [`proxy`] for the
//! network access of places that have no network.

pub mod backend;
mod capacity;
pub mod command;
mod embed;
mod error;
pub mod exposure;
pub mod files;
mod guard;
pub mod health;
mod pidfd;
pub mod place;
pub mod places;
pub mod process;
pub mod proxy;
mod registry;
mod resolved_place;
mod warm_pool;

pub use backend::{Audience, Backend, BindMount, CreateRequest, DockerBackend, LocalBackend, SandboxBackend};
pub use command::{CommandEvent, EndReason, Outcome, RunningCommand};
pub use error::Error;
pub use exposure::Exposure;
pub use files::GuestFiles;
/// An interactive terminal in a place. Dropping it kills its processes.
pub use hermes_guest::client::{RunEvent as TerminalEvent, RunHandle as Terminal};
pub use hermes_guest::protocol::message::{
    ExitCause, ExitNotice, ProcessId, ProcessView, Stats, Stdin, TerminalSize, TreeStatus,
};
pub use place::script::{PythonConnections, ScriptDirectory, ScriptOptions, Tunnel};
pub use place::{OpenPlace, OutputMode, RunOptions, StateLoss, WorkingDirectory};
pub use places::{ListedPlace, PlaceState, Places, Reaper};
pub use process::{ProcessHandle, Processes};
pub use registry::{EngineAccess, PlaceRecord};
pub use resolved_place::{Installation, PlaceLimits, ResolvedPlace, Spec};
