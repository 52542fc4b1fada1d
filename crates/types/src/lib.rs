//! The nouns every other crate shares.
//!
//! Nothing here does I/O, reads a clock or waits: a type lives in this crate when two crates must agree on
//! what a word means. Each one can only hold a valid value, so the code that receives it has nothing left
//! to check: a [`BackendName`] is a backend that exists, an [`EnvName`] is a name a shell accepts, a
//! [`Volume`] has an absolute target, and a [`Secret`] cannot be printed by accident.
//!
//! Start with [`backend`] for where commands run, [`volume`] for what such a place may see of the host.

pub mod backend;
pub mod env_name;
pub mod secret;
pub mod volume;

pub use backend::{BackendName, Network};
pub use env_name::EnvName;
pub use secret::Secret;
pub use volume::{Access, Volume, VolumeSource};
