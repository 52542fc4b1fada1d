//! The protection of the owner's files on this machine.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use strum::{EnumIter, EnumString, IntoStaticStr};

/// What the kernel keeps from commands without approval on this machine.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, EnumString, EnumIter, IntoStaticStr,
)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum Guard {
    /// Nothing; only the gate decides.
    Off,
    /// Credentials, control sockets, start-up files and Hermes' own files.
    #[default]
    Protect,
    /// The same, and everything outside the project, temporary and cache directories is read-only.
    Project,
}

impl Guard {
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// A kind of thing that the guard protects.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, EnumIter, IntoStaticStr,
)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
pub enum ProtectedClass {
    /// Private keys and settings of SSH.
    SshKeys,
    /// The agent that holds unlocked SSH keys.
    SshAgent,
    /// Keys of GnuPG and its agent.
    GpgKeys,
    /// Stored passwords and tokens of git and its hosting services.
    GitCredentials,
    /// Settings and hooks of git, for the user and for the project.
    GitConfig,
    /// Tokens for publishing packages.
    PackageTokens,
    /// Credentials of cloud providers and clusters.
    CloudCredentials,
    /// Registry credentials and sockets of container engines.
    ContainerEngine,
    /// Other passwords, tokens, browser profiles and histories.
    OtherCredentials,
    /// Files that run at login, by a tool or on a schedule.
    StartupFiles,
    /// The session bus, the user's service manager and the display.
    DesktopSession,
    /// Terminals of tmux and screen.
    TerminalSessions,
    /// Signals to programs that no command of the session started.
    OtherPrograms,
}

impl ProtectedClass {
    pub fn as_str(self) -> &'static str {
        self.into()
    }

    /// For people who are asked about it.
    pub fn describe(self) -> &'static str {
        match self {
            Self::SshKeys => "SSH keys",
            Self::SshAgent => "SSH agent",
            Self::GpgKeys => "GPG keys",
            Self::GitCredentials => "git credentials",
            Self::GitConfig => "git settings and hooks",
            Self::PackageTokens => "package registry tokens",
            Self::CloudCredentials => "cloud credentials",
            Self::ContainerEngine => "container engine",
            Self::OtherCredentials => "passwords, browser profiles and histories",
            Self::StartupFiles => "start-up files",
            Self::DesktopSession => "desktop session",
            Self::TerminalSessions => "tmux and screen sessions",
            Self::OtherPrograms => "programs that this session did not start",
        }
    }
}

/// What a job may use although the guard protects it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Allowance {
    Classes(BTreeSet<ProtectedClass>),
    /// The job runs without the guard.
    Everything,
}

impl Default for Allowance {
    fn default() -> Self {
        Self::Classes(BTreeSet::new())
    }
}

impl Allowance {
    /// The keywords of the classes, or `everything`.
    pub fn keywords(&self) -> Vec<&'static str> {
        match self {
            Self::Classes(classes) => classes.iter().map(|class| class.as_str()).collect(),
            Self::Everything => vec!["everything"],
        }
    }

    /// For people who are asked about it; none if it opens nothing.
    pub fn describe(&self) -> Option<String> {
        match self {
            Self::Classes(classes) if classes.is_empty() => None,
            Self::Classes(classes) => {
                Some(classes.iter().map(|class| class.describe()).collect::<Vec<_>>().join(", "))
            }
            Self::Everything => Some("everything, as it runs without the guard".to_owned()),
        }
    }
}
