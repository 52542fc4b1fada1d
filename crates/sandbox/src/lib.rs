//! The built-in jail of Linux.
//!
//! A [`Jail`] says what shall be confined and how; a [`Launcher`] makes it and starts one program in it, as process 1
//! of its own world. That program sees the host's file tree read-only, with what is masked empty and with private
//! `/tmp`, `/dev` and `/proc`; it reaches no process, no socket and no network of the host; it has no capability and
//! gets none; and it is limited in what it uses. Namespaces, mounts, Landlock, a filter of system calls, cgroups and
//! process limits do this, each for itself.
//!
//! *Invariant.* A jail is whole or there is none. A step that fails ends everything made so far and comes back as an
//! [`Error`] that names it; nothing runs with less. The one thing that is reported instead of refused is a limit on
//! resources that this machine cannot enforce, in [`Held`].
//!
//! *How.* Namespaces cannot be entered safely by a process with threads. So the launcher starts its own program anew
//! under another name, where [`helper_main`] takes over: a keeper with one thread, which makes the jail, tells how
//! the program ended, removes what was made, and kills the jail if it shall not outlive its launcher.
//!
//! *Where to start reading.* [`jail`] for what can be asked. [`launcher`] and `keeper` are the two ends of the road in,
//! `inside` the order of the steps on it; `plan`, `sockets` and `files` make the file tree, `access` (Landlock), `syscalls`
//! (seccomp), `privilege` and `cgroup` the rest. [`probe`] tries it all on this machine. `sys` has the unsafe code.

mod access;
mod cgroup;
mod error;
mod files;
mod held;
mod inside;
pub mod jail;
mod keeper;
pub mod launcher;
mod mask;
mod plan;
mod privilege;
pub mod probe;
mod room;
mod sockets;
mod sys;
mod syscalls;
mod wire;

pub use cgroup::sweep;
pub use error::{Error, Fault, Missing, Step};
pub use held::{Held, Hold};
pub use jail::{Access, Bind, Jail, Lifetime, Limits, Network};
pub use keeper::helper_main;
pub use launcher::{JailId, Launcher, Prepared, Running, Streams};
pub use wire::Exit;
