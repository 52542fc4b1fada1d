//! The built-in Linux jail.
//!
//! A [`Jail`] describes the confinement; a [`Launcher`] creates it and starts one program in it, as
//! process 1 of its own pid namespace. The program sees the host's file tree read-only, with masked
//! paths empty and with a private `/tmp`, `/dev` and `/proc`; it cannot reach processes, sockets or
//! the network of the host; it has no capabilities and cannot gain any; its resources are limited.
//! Namespaces, mounts, Landlock, seccomp, cgroups and rlimits enforce this independently of each
//! other.
//!
//! *Invariant.* A jail is complete or does not exist. If a step of the setup fails, everything
//! created so far is removed and the [`Error`] names the step. The only exception is a resource
//! limit that this machine cannot enforce: it is reported in [`LimitReport`].
//!
//! *Processes.* A process with threads cannot enter namespaces safely. So the launcher starts its
//! own program again under another name, where [`helper_main`] takes over: a supervisor with one
//! thread creates the jail, reports how the program exited, cleans up, and kills the jail if it
//! must not outlive its launcher.
//!
//! *Where to start reading.* [`jail`] for the options. [`launcher`] and `supervisor` are the two
//! ends of the launch, `init` has the order of the setup steps; `mount_plan`, `mount_source`,
//! `sockets` and `rootfs` build the file tree; `file_access` (Landlock), `seccomp`, `privilege` and `cgroup` add
//! the other layers. [`probe`] tests a jail on this machine. `sys` has the unsafe code.

mod cgroup;
mod error;
mod file_access;
mod init;
mod ipc;
pub mod jail;
pub mod launcher;
mod limit_report;
mod mask;
mod mount_plan;
mod mount_source;
mod privilege;
pub mod probe;
mod rootfs;
mod seccomp;
mod sockets;
mod supervisor;
mod sys;

pub use cgroup::remove_stale_cgroups;
pub use error::{Error, MissingSupport, SetupError, SetupStep};
pub use ipc::JailExit;
pub use jail::{Jail, JailLimits, JailMount, JailNetwork, Lifetime};
pub use launcher::{JailStreams, Launcher, PreparedLauncher, RunningJail};
pub use limit_report::{LimitReport, LimitStatus};
pub use mount_source::{SourceError, resolve_source};
pub use supervisor::helper_main;
