//! Types shared by all crates.
//!
//! A type belongs here when two crates must agree on its meaning. Each type holds only valid
//! values, so its users need no further checks: a [`BackendName`] is an existing backend, an
//! [`EnvName`] is a name that every shell accepts, a [`Volume`] has an absolute target, and a
//! [`Secret`] cannot be printed by accident.
//!
//! Start with [`backend`] for execution environments, [`volume`] for mounts, and [`origin`] for who
//! requests a [`Job`], through which entry point, and who can approve it.

pub mod approval;
pub mod backend;
pub mod chat;
pub mod entry_point;
pub mod env_name;
pub mod file;
pub mod guard;
pub mod image;
pub mod job;
mod lock;
pub mod origin;
pub mod person;
pub mod place;
pub mod process;
pub mod reach;
pub mod removal;
pub mod run_dir;
pub mod secret;
pub mod session;
pub mod shell_context;
pub mod text;
mod text_id;
pub mod timestamp;
pub mod volume;

pub use approval::{Answer, Choice, GrantScope};
pub use backend::{BackendName, Network};
pub use chat::{Call, CallArguments, CallId, CallReplay, Message, Part, Reasoning, ToolSpec, Usage};
pub use entry_point::EntryPoint;
pub use env_name::EnvName;
pub use file::{LockFile, create_private_dir, remove_if_exists, replace_file};
pub use guard::{Allowance, Guard, ProtectedClass};
pub use image::{Digest, Image, ImageKind};
pub use job::{FileAccess, FileUse, Job, TypedInput, Work};
pub use lock::lock;
pub use origin::{Attendance, Origin};
pub use person::Person;
pub use place::{Place, PlaceId};
pub use process::{parse_start_time, process_start_time};
pub use reach::{Egress, Reach};
pub use run_dir::RunDir;
pub use secret::Secret;
pub use session::SessionKey;
pub use shell_context::{MEANING_VARIABLES, ShellContext, ShellKind};
pub use text::{hex, shell_quote};
pub use timestamp::Timestamp;
pub use volume::{MountAccess, Volume, VolumeSource};
