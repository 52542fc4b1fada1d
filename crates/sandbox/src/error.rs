//! Errors, by the step of the setup that failed.

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Why a jail was not created. No program was run.
#[derive(Debug, Error)]
pub enum Error {
    /// The kernel or its configuration lacks something that a jail needs.
    #[error("{0}")]
    Unsupported(MissingSupport),
    #[error("{0}")]
    Setup(SetupError),
    /// The supervisor could not be started.
    #[error("cannot start the jail supervisor {program}: {source}")]
    Spawn { program: PathBuf, source: io::Error },
    /// The supervisor exited or sent an unexpected message.
    #[error("the jail supervisor failed: {0}")]
    Launcher(String),
    /// A system call of the launcher failed.
    #[error("cannot {action}: {source}")]
    Io { action: &'static str, source: io::Error },
}

impl Error {
    pub(crate) fn io<E: Into<io::Error>>(action: &'static str) -> impl FnOnce(E) -> Self {
        move |error| Self::Io { action, source: error.into() }
    }

    /// Maps a failed step to missing support of the machine, if that is the cause.
    pub(crate) fn from_setup(fault: SetupError) -> Self {
        match MissingSupport::diagnose(&fault, &KernelSettings::read()) {
            Some(missing) => Self::Unsupported(missing),
            None => Self::Setup(fault),
        }
    }
}

/// A failed step of the setup.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Error)]
pub struct SetupError {
    pub step: SetupStep,
    /// The object of the step, usually a path.
    pub subject: Option<String>,
    /// The errno; 0 if no system call failed.
    pub errno: i32,
}

impl fmt::Display for SetupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot {}", self.step)?;
        if let Some(about) = &self.subject {
            write!(f, " {about}")?;
        }
        if self.errno != 0 {
            write!(f, ": {}", io::Error::from_raw_os_error(self.errno))?;
        }
        Ok(())
    }
}

impl SetupError {
    pub(crate) fn new(step: SetupStep, error: impl Into<io::Error>) -> Self {
        Self { step, subject: None, errno: error.into().raw_os_error().unwrap_or(0) }
    }

    /// No system call failed.
    pub(crate) fn about(step: SetupStep, path: &Path) -> Self {
        Self { step, subject: Some(path.display().to_string()), errno: 0 }
    }

    pub(crate) fn at<E: Into<io::Error>>(
        step: SetupStep,
        path: &(impl AsRef<Path> + ?Sized),
    ) -> impl Fn(E) -> Self + Copy {
        move |error| Self { subject: Some(path.as_ref().display().to_string()), ..Self::new(step, error) }
    }
}

/// Adds the step to the error of a call.
pub(crate) trait WithStep<T> {
    fn with_step(self, step: SetupStep) -> Result<T, SetupError>;
}

impl<T, E: Into<io::Error>> WithStep<T> for Result<T, E> {
    fn with_step(self, step: SetupStep) -> Result<T, SetupError> {
        self.map_err(|error| SetupError::new(step, error))
    }
}

/// The steps of the setup, in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Error)]
pub enum SetupStep {
    #[error("read the jail request")]
    Request,
    #[error("drop supplementary groups")]
    Groups,
    #[error("create namespaces")]
    Namespaces,
    #[error("write the uid and gid maps")]
    IdMap,
    #[error("enter the cgroup")]
    Cgroup,
    #[error("set the host name")]
    Hostname,
    #[error("bring up the loopback interface")]
    Loopback,
    #[error("open the mount source")]
    OpenSource,
    #[error("use a link in a directory that commands can write as the mount source")]
    SourceLink,
    #[error("create the private file system")]
    Scratch,
    #[error("create the read-only root")]
    Root,
    #[error("create the mount point (it must exist in the read-only tree)")]
    MountPoint,
    #[error("mount")]
    Mount,
    #[error("mount /proc")]
    Proc,
    #[error("mount /dev/pts")]
    Terminals,
    #[error("pivot to the new root")]
    PivotRoot,
    #[error("set resource limits")]
    Rlimits,
    #[error("drop capabilities")]
    Capabilities,
    #[error("bind the jail to its supervisor")]
    DeathSignal,
    #[error("install descriptors")]
    Descriptors,
    #[error("apply Landlock rules")]
    Landlock,
    #[error("enter the working directory")]
    WorkingDir,
    #[error("apply the seccomp filter")]
    Seccomp,
    #[error("start the program")]
    Exec,
}

/// Features that the machine lacks, and how to provide them.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum MissingSupport {
    /// `user.max_user_namespaces` is zero or exhausted.
    #[error(
        "user namespaces are disabled or exhausted (user.max_user_namespaces); \
         as root: sysctl -w user.max_user_namespaces=15000"
    )]
    UserNamespaceLimit,
    /// Debian's sysctl is off.
    #[error(
        "unprivileged user namespaces are disabled (kernel.unprivileged_userns_clone=0); \
         as root: sysctl -w kernel.unprivileged_userns_clone=1"
    )]
    UnprivilegedUserNamespaces,
    /// Ubuntu's AppArmor restriction is on.
    #[error(
        "AppArmor restricts unprivileged user namespaces (kernel.apparmor_restrict_unprivileged_userns=1); as root: \
         allow this program with an AppArmor profile that contains `userns,`, or sysctl -w kernel.apparmor_restrict_unprivileged_userns=0"
    )]
    AppArmor,
    /// A seccomp filter of the caller forbids it, as in a container.
    #[error(
        "a seccomp filter forbids new namespaces, as in a container; \
         run outside the container, or start it with a seccomp profile that allows clone, unshare and mount"
    )]
    SeccompFilter,
    /// Forbidden for another reason.
    #[error("permission denied to create user namespaces ({0}); run where user namespaces are allowed")]
    UserNamespaces(String),
    /// Parts of /proc are masked, as in containers, so the kernel refuses a new mount.
    #[error(
        "parts of /proc are masked, as in a container, so the kernel refuses to mount a new one; \
         run outside the container, or start it with an unmasked /proc (docker: --security-opt systempaths=unconfined)"
    )]
    UnmaskedProc,
    /// The kernel lacks Landlock, or it is disabled.
    #[error(
        "the kernel does not enforce Landlock; add `landlock` to the `lsm=` kernel parameter (Linux 5.13 or newer)"
    )]
    Landlock,
    #[error("the kernel cannot {0}; Linux 5.13 or newer is required")]
    Kernel(String),
}

/// Kernel settings that explain a refusal.
#[derive(Debug, Default)]
struct KernelSettings {
    max_user_namespaces: Option<String>,
    unprivileged_userns_clone: Option<String>,
    apparmor_restrict: Option<String>,
    has_seccomp_filter: bool,
}

impl KernelSettings {
    fn read() -> Self {
        let sysctl = |name: &str| {
            fs::read_to_string(format!("/proc/sys/{name}")).ok().map(|text| text.trim().to_owned())
        };
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let mode = status.lines().find_map(|line| line.strip_prefix("Seccomp:"));
        Self {
            max_user_namespaces: sysctl("user/max_user_namespaces"),
            unprivileged_userns_clone: sysctl("kernel/unprivileged_userns_clone"),
            apparmor_restrict: sysctl("kernel/apparmor_restrict_unprivileged_userns"),
            has_seccomp_filter: mode.is_some_and(|mode| mode.trim() == "2"),
        }
    }
}

impl MissingSupport {
    fn diagnose(fault: &SetupError, machine: &KernelSettings) -> Option<Self> {
        let forbidden = matches!(fault.errno, libc::EPERM | libc::EACCES);
        match fault.step {
            SetupStep::Namespaces if matches!(fault.errno, libc::ENOSPC | libc::EUSERS) => {
                Some(Self::UserNamespaceLimit)
            }
            SetupStep::Namespaces if fault.errno == libc::ENOSYS && machine.has_seccomp_filter => {
                Some(Self::SeccompFilter)
            }
            // A restricted user namespace can be created, but its owner has no rights in it.
            SetupStep::Namespaces | SetupStep::IdMap | SetupStep::Hostname | SetupStep::Root if forbidden => {
                Some(Self::user_namespaces(fault, machine))
            }
            SetupStep::Proc if forbidden => Some(Self::UnmaskedProc),
            SetupStep::Landlock if matches!(fault.errno, libc::ENOSYS | libc::EOPNOTSUPP) => {
                Some(Self::Landlock)
            }
            step if fault.errno == libc::ENOSYS => Some(Self::Kernel(step.to_string())),
            _ => None,
        }
    }

    fn user_namespaces(fault: &SetupError, machine: &KernelSettings) -> Self {
        let is = |setting: &Option<String>, value: &str| setting.as_deref() == Some(value);
        if is(&machine.max_user_namespaces, "0") {
            Self::UserNamespaceLimit
        } else if is(&machine.unprivileged_userns_clone, "0") {
            Self::UnprivilegedUserNamespaces
        } else if is(&machine.apparmor_restrict, "1") {
            Self::AppArmor
        } else if machine.has_seccomp_filter {
            Self::SeccompFilter
        } else {
            Self::UserNamespaces(fault.to_string())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_support_follows_from_the_step_and_the_kernel_settings() {
        let fault = |step, errno| SetupError { step, subject: None, errno };
        let off = |value: &str| Some(value.to_owned());
        let plain = KernelSettings::default;
        let cases = [
            (fault(SetupStep::Namespaces, libc::ENOSPC), plain(), Some(MissingSupport::UserNamespaceLimit)),
            (
                fault(SetupStep::Namespaces, libc::EPERM),
                KernelSettings { unprivileged_userns_clone: off("0"), ..plain() },
                Some(MissingSupport::UnprivilegedUserNamespaces),
            ),
            (
                fault(SetupStep::Hostname, libc::EPERM),
                KernelSettings { apparmor_restrict: off("1"), ..plain() },
                Some(MissingSupport::AppArmor),
            ),
            (
                fault(SetupStep::Namespaces, libc::ENOSYS),
                KernelSettings { has_seccomp_filter: true, ..plain() },
                Some(MissingSupport::SeccompFilter),
            ),
            (
                fault(SetupStep::IdMap, libc::EPERM),
                KernelSettings { max_user_namespaces: off("15000"), ..plain() },
                Some(MissingSupport::UserNamespaces(
                    "cannot write the uid and gid maps: Operation not permitted (os error 1)".to_owned(),
                )),
            ),
            (fault(SetupStep::Proc, libc::EPERM), plain(), Some(MissingSupport::UnmaskedProc)),
            (fault(SetupStep::Landlock, libc::EOPNOTSUPP), plain(), Some(MissingSupport::Landlock)),
            (
                fault(SetupStep::Mount, libc::ENOSYS),
                plain(),
                Some(MissingSupport::Kernel("mount".to_owned())),
            ),
            (fault(SetupStep::Exec, libc::ENOENT), plain(), None),
        ];
        for (fault, machine, expected) in cases {
            assert_eq!(MissingSupport::diagnose(&fault, &machine), expected, "{fault:?} {machine:?}");
        }
    }
}
