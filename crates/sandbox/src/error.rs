//! What can go wrong, by the step it went wrong at.

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Why there is no jail. Whatever it is, nothing was run.
#[derive(Debug, Error)]
pub enum Error {
    /// The kernel, or whoever configured it, does not allow what a jail is made of.
    #[error("{0}")]
    Missing(Missing),
    /// A step of the set-up failed.
    #[error("{0}")]
    Setup(Fault),
    /// The process that makes jails could not be started.
    #[error("cannot start the jail's launcher {program}: {source}")]
    Spawn {
        /// What was to be started.
        program: PathBuf,
        /// Why it was not.
        source: io::Error,
    },
    /// The process that makes jails ended, or said something that is not in its vocabulary.
    #[error("the jail's launcher broke off: {0}")]
    Broken(String),
    /// A system call of ours failed.
    #[error("{doing}: {source}")]
    Io {
        /// What we were doing.
        doing: &'static str,
        /// What the system said.
        source: io::Error,
    },
}

impl Error {
    pub(crate) fn io(doing: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { doing, source }
    }

    /// The error for a failed step: if the step failed because something of the machine is missing, that.
    pub(crate) fn from_fault(fault: Fault) -> Self {
        match Missing::behind(&fault, &Machine::look()) {
            Some(missing) => Self::Missing(missing),
            None => Self::Setup(fault),
        }
    }
}

/// A step of the set-up that failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Error)]
pub struct Fault {
    /// The step.
    pub step: Step,
    /// What it was about, mostly a path.
    pub about: Option<String>,
    /// What the system said, as a number. Zero where it was not the system.
    pub errno: i32,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot {}", self.step)?;
        if let Some(about) = &self.about {
            write!(f, " {about}")?;
        }
        if self.errno != 0 {
            write!(f, ": {}", io::Error::from_raw_os_error(self.errno))?;
        }
        Ok(())
    }
}

impl Fault {
    pub(crate) fn new(step: Step, error: impl Into<io::Error>) -> Self {
        Self { step, about: None, errno: error.into().raw_os_error().unwrap_or(0) }
    }

    pub(crate) fn at(step: Step, path: &Path, error: impl Into<io::Error>) -> Self {
        Self { about: Some(path.display().to_string()), ..Self::new(step, error) }
    }
}

/// Gives a failed call the step it belongs to.
pub(crate) trait During<T> {
    fn during(self, step: Step) -> Result<T, Fault>;
}

impl<T, E: Into<io::Error>> During<T> for Result<T, E> {
    fn during(self, step: Step) -> Result<T, Fault> {
        self.map_err(|error| Fault::new(step, error))
    }
}

/// The steps of the set-up, in their order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Step {
    /// Read what is to be made.
    Spec,
    /// Leave the groups of the caller.
    Groups,
    /// Make the namespaces.
    Namespaces,
    /// Say who the jail's user is outside.
    IdMap,
    /// Enter the cgroup.
    Cgroup,
    /// Name the machine.
    Hostname,
    /// Bring up loopback.
    Loopback,
    /// Open what is shown in the jail.
    Source,
    /// Make the private tree.
    Scratch,
    /// Make the read-only root.
    Root,
    /// Make a place for a mount.
    MountPoint,
    /// Mount.
    Mount,
    /// Mount a new /proc.
    Proc,
    /// Mount a new /dev/pts.
    Terminals,
    /// Change the root.
    Pivot,
    /// Set limits of each process.
    Rlimits,
    /// Drop capabilities.
    Capabilities,
    /// Die with the keeper.
    DeathSignal,
    /// Put the descriptors in their places.
    Descriptors,
    /// Restrict file access once more.
    Landlock,
    /// Enter the working directory.
    Directory,
    /// Restrict system calls.
    Seccomp,
    /// Start the program.
    Exec,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Spec => "read what the jail shall be",
            Self::Groups => "leave the groups of the caller",
            Self::Namespaces => "make namespaces",
            Self::IdMap => "map the user into the jail",
            Self::Cgroup => "enter the cgroup",
            Self::Hostname => "set the host name",
            Self::Loopback => "bring up loopback",
            Self::Source => "open for the jail",
            Self::Scratch => "make the private files",
            Self::Root => "make the read-only root",
            Self::MountPoint => "make the mount point (it must exist in the read-only tree)",
            Self::Mount => "mount",
            Self::Proc => "mount /proc",
            Self::Terminals => "mount /dev/pts",
            Self::Pivot => "change the root",
            Self::Rlimits => "set resource limits",
            Self::Capabilities => "drop capabilities",
            Self::DeathSignal => "bind the jail's life to its keeper",
            Self::Descriptors => "arrange descriptors",
            Self::Landlock => "apply Landlock",
            Self::Directory => "enter the working directory",
            Self::Seccomp => "apply the system call filter",
            Self::Exec => "start the program",
        })
    }
}

/// What the machine lacks, and how to get it.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Missing {
    /// `user.max_user_namespaces` is zero, or all are in use.
    #[error(
        "user namespaces are used up or switched off (user.max_user_namespaces); \
         as root: sysctl -w user.max_user_namespaces=15000"
    )]
    UserNamespaceCount,
    /// Debian's switch is off.
    #[error(
        "ordinary users may not make user namespaces (kernel.unprivileged_userns_clone=0); \
         as root: sysctl -w kernel.unprivileged_userns_clone=1"
    )]
    UserNamespaceSwitch,
    /// Ubuntu's AppArmor restriction is on.
    #[error(
        "AppArmor restricts user namespaces (kernel.apparmor_restrict_unprivileged_userns=1); as root: allow this \
         program with a profile that has `userns,`, or sysctl -w kernel.apparmor_restrict_unprivileged_userns=0"
    )]
    AppArmor,
    /// A filter of system calls around us forbids it: we are in a container.
    #[error(
        "a system call filter around this process forbids new namespaces, as in a container; \
         run outside of it, or start the container with a seccomp profile that allows clone, unshare and mount"
    )]
    Filtered,
    /// Something else forbids it.
    #[error("this process may not make user namespaces ({0}); run where they are allowed")]
    UserNamespaces(String),
    /// /proc is partly covered, as in containers, so that the kernel allows no new one.
    #[error(
        "/proc is partly covered here, as in a container, so the kernel allows no new one; \
         run outside of it, or start the container with an uncovered /proc (docker: --security-opt systempaths=unconfined)"
    )]
    WholeProc,
    /// The kernel has no Landlock, or it is not switched on.
    #[error(
        "the kernel does not enforce Landlock; add `landlock` to the kernel's `lsm=` parameter (Linux 5.13 or newer)"
    )]
    Landlock,
    /// The kernel is too old.
    #[error("the kernel lacks {0}; Linux 5.13 or newer is needed")]
    Kernel(String),
}

/// What of the machine explains a refusal.
#[derive(Debug, Default)]
struct Machine {
    max_user_namespaces: Option<String>,
    unprivileged_userns_clone: Option<String>,
    apparmor_restrict: Option<String>,
    filtered: bool,
}

impl Machine {
    fn look() -> Self {
        let sysctl = |name: &str| {
            fs::read_to_string(format!("/proc/sys/{name}")).ok().map(|text| text.trim().to_owned())
        };
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let mode = status.lines().find_map(|line| line.strip_prefix("Seccomp:"));
        Self {
            max_user_namespaces: sysctl("user/max_user_namespaces"),
            unprivileged_userns_clone: sysctl("kernel/unprivileged_userns_clone"),
            apparmor_restrict: sysctl("kernel/apparmor_restrict_unprivileged_userns"),
            filtered: mode.is_some_and(|mode| mode.trim() == "2"),
        }
    }
}

impl Missing {
    fn behind(fault: &Fault, machine: &Machine) -> Option<Self> {
        let forbidden = matches!(fault.errno, libc::EPERM | libc::EACCES);
        match fault.step {
            Step::Namespaces if matches!(fault.errno, libc::ENOSPC | libc::EUSERS) => {
                Some(Self::UserNamespaceCount)
            }
            Step::Namespaces if fault.errno == libc::ENOSYS && machine.filtered => Some(Self::Filtered),
            // Where user namespaces are restricted they can be made, but their owner may do nothing in them.
            Step::Namespaces | Step::IdMap | Step::Hostname | Step::Root if forbidden => {
                Some(Self::user_namespaces(fault, machine))
            }
            Step::Proc if forbidden => Some(Self::WholeProc),
            Step::Landlock if matches!(fault.errno, libc::ENOSYS | libc::EOPNOTSUPP) => Some(Self::Landlock),
            step if fault.errno == libc::ENOSYS => Some(Self::Kernel(format!("what it takes to {step}"))),
            _ => None,
        }
    }

    fn user_namespaces(fault: &Fault, machine: &Machine) -> Self {
        let is = |setting: &Option<String>, value: &str| setting.as_deref() == Some(value);
        if is(&machine.max_user_namespaces, "0") {
            Self::UserNamespaceCount
        } else if is(&machine.unprivileged_userns_clone, "0") {
            Self::UserNamespaceSwitch
        } else if is(&machine.apparmor_restrict, "1") {
            Self::AppArmor
        } else if machine.filtered {
            Self::Filtered
        } else {
            Self::UserNamespaces(fault.to_string())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_told_from_the_step_and_the_machine() {
        let fault = |step, errno| Fault { step, about: None, errno };
        let off = |value: &str| Some(value.to_owned());
        let plain = Machine::default;
        let cases = [
            (fault(Step::Namespaces, libc::ENOSPC), plain(), Some(Missing::UserNamespaceCount)),
            (
                fault(Step::Namespaces, libc::EPERM),
                Machine { unprivileged_userns_clone: off("0"), ..plain() },
                Some(Missing::UserNamespaceSwitch),
            ),
            (
                fault(Step::Hostname, libc::EPERM),
                Machine { apparmor_restrict: off("1"), ..plain() },
                Some(Missing::AppArmor),
            ),
            (
                fault(Step::Namespaces, libc::ENOSYS),
                Machine { filtered: true, ..plain() },
                Some(Missing::Filtered),
            ),
            (
                fault(Step::IdMap, libc::EPERM),
                Machine { max_user_namespaces: off("15000"), ..plain() },
                Some(Missing::UserNamespaces(
                    "cannot map the user into the jail: Operation not permitted (os error 1)".to_owned(),
                )),
            ),
            (fault(Step::Proc, libc::EPERM), plain(), Some(Missing::WholeProc)),
            (fault(Step::Landlock, libc::EOPNOTSUPP), plain(), Some(Missing::Landlock)),
            (
                fault(Step::Mount, libc::ENOSYS),
                plain(),
                Some(Missing::Kernel("what it takes to mount".to_owned())),
            ),
            (fault(Step::Exec, libc::ENOENT), plain(), None),
        ];
        for (fault, machine, expected) in cases {
            assert_eq!(Missing::behind(&fault, &machine), expected, "{fault:?} {machine:?}");
        }
    }
}
