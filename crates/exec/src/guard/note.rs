//! Notes that explain why a command failed under the guard.

use std::collections::BTreeSet;

use hermes_guest::protocol::guard::RunConfinement;
use hermes_guest::protocol::message::{ExitCause, ExitReport};
use hermes_policy::protected_class;
use hermes_types::{Guard, ProtectedClass};

use crate::{Backend, LocalBackend, ResolvedPlace};

/// The part of an output in which errors are looked for.
const MAX_RECENT_BYTES: usize = 8 << 10;

const READ_ONLY: &str = "Read-only file system";
/// What programs print where a path is hidden, read-only or fixed in its place.
const ERRORS: &[&str] = &[
    READ_ONLY, "Permission denied", "No such file or directory", "Device or resource busy",
    "Connection refused",
];

/// Errors that name no protected path.
const SIGNS: &[(&str, ProtectedClass)] = &[
    ("Cannot connect to the Docker daemon", ProtectedClass::ContainerEngine),
    ("Permission denied (publickey", ProtectedClass::SshKeys),
    ("Could not open a connection to your authentication agent", ProtectedClass::SshAgent),
    ("Error connecting to agent", ProtectedClass::SshAgent),
    ("no default secret key", ProtectedClass::GpgKeys),
    ("No secret key", ProtectedClass::GpgKeys),
    ("could not read Username for", ProtectedClass::GitCredentials),
    ("Failed to connect to bus", ProtectedClass::DesktopSession),
    ("cannot open display", ProtectedClass::DesktopSession),
];

/// A command that runs under the guard, and the end of its output.
#[derive(Debug)]
pub(crate) struct GuardedRun {
    home: String,
    guard: Guard,
    quarantine: String,
    allowed: Vec<ProtectedClass>,
    recent: Vec<u8>,
}

impl GuardedRun {
    pub(crate) fn new(place: &ResolvedPlace, confinement: &RunConfinement) -> Option<Self> {
        let RunConfinement::Guard(allowed) = confinement else { return None };
        let Backend::Local(LocalBackend { guard, .. }) = place.spec.backend else { return None };
        Some(Self {
            guard,
            home: place.spec.home.clone(),
            quarantine: super::quarantine_dir(place).display().to_string(),
            allowed: allowed.clone(),
            recent: Vec::new(),
        })
    }

    /// Remembers the end of an output that is delivered while the command runs.
    pub(crate) fn record_output(&mut self, output: &[u8]) {
        self.recent.extend_from_slice(output);
        let excess = self.recent.len().saturating_sub(MAX_RECENT_BYTES);
        self.recent.drain(..excess);
    }

    /// What the guard did to a command that has ended, and how to have the owner asked.
    pub(crate) fn note(&mut self, ended: &ExitReport) -> Option<String> {
        let moved: Vec<_> =
            ended.quarantined.iter().map(|path| String::from_utf8_lossy(path).into_owned()).collect();
        if !moved.is_empty() {
            let ended = match ended.cause {
                ExitCause::Guard => " and ended the command, which kept creating it",
                _ => "",
            };
            return Some(format!(
                "the guard (terminal.guard) moved {} to {}{ended}: commands without approval must not create \
                 it; name it in the command itself, so that the owner is asked",
                moved.join(", "),
                self.quarantine
            ));
        }
        if ended.code == 0 {
            return None;
        }
        for part in [&ended.head, &ended.tail, &ended.stderr] {
            self.record_output(part);
        }
        let mut names: Vec<_> = self.kept_classes().iter().map(|class| class.describe()).collect();
        if names.is_empty() {
            let is_read_only = String::from_utf8_lossy(&self.recent).contains(READ_ONLY);
            names.extend(is_read_only.then_some(match self.guard {
                Guard::Off | Guard::Protect => "files of the system",
                Guard::Project => "everything outside the project",
            }));
        }
        if names.is_empty() {
            return None;
        }
        let way = if names == [ProtectedClass::OtherPrograms.describe()] {
            "use `pkill -KILL`"
        } else {
            "name what the command needs in the command itself"
        };
        Some(format!(
            "the guard (terminal.guard) protects {} from commands without approval; {way}, so that the \
             owner is asked",
            names.join(", ")
        ))
    }

    /// The classes that the errors of the output are about.
    fn kept_classes(&self) -> BTreeSet<ProtectedClass> {
        let text = String::from_utf8_lossy(&self.recent);
        let mut kept = BTreeSet::new();
        for line in text.lines() {
            let signs = SIGNS.iter().filter(|(sign, _)| line.contains(sign));
            kept.extend(signs.map(|(_, class)| *class));
            if line.contains("kill") && line.contains("Operation not permitted") {
                kept.insert(ProtectedClass::OtherPrograms);
            }
            if ERRORS.iter().any(|error| line.contains(error)) {
                let words = line.split(|c: char| c.is_whitespace() || "'\"`‘’:,;()[]<>=".contains(c));
                kept.extend(words.filter_map(|word| self.class_of(word)));
            }
        }
        kept.retain(|class| !self.allowed.contains(class));
        kept
    }

    fn class_of(&self, word: &str) -> Option<ProtectedClass> {
        if word.contains(".git/hooks") || word.ends_with(".git/config") {
            return Some(ProtectedClass::GitConfig);
        }
        let path = match word.strip_prefix("~/") {
            Some(rest) => format!("{}/{rest}", self.home),
            None if word.starts_with('/') => word.to_owned(),
            None => return None,
        };
        protected_class(&path, &self.home)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(output: &str, allowed: &[ProtectedClass]) -> Vec<ProtectedClass> {
        let mut run = GuardedRun {
            home: "/home/ada".to_owned(),
            guard: Guard::Protect,
            quarantine: "/home/ada/.hermes/quarantine".to_owned(),
            allowed: allowed.to_vec(),
            recent: Vec::new(),
        };
        run.record_output(&[b' '; 2 * MAX_RECENT_BYTES]);
        run.record_output(b"\n");
        run.record_output(output.as_bytes());
        assert_eq!(run.recent.len(), MAX_RECENT_BYTES);
        run.kept_classes().into_iter().collect()
    }

    #[test]
    fn errors_about_protected_paths_are_explained() {
        use ProtectedClass::{ContainerEngine, GitConfig, OtherPrograms, SshKeys, StartupFiles};
        let cases = [
            ("sh: 1: cannot create /home/ada/.bashrc: Read-only file system", StartupFiles),
            ("cat: /home/ada/.ssh/id_ed25519: No such file or directory", SshKeys),
            ("x.sh: line 1: sub/.git/hooks/pre-commit: Read-only file system", GitConfig),
            ("open('~/.profile'): Permission denied", StartupFiles),
            (
                "error: could not lock config file /home/ada/work/.git/config: Read-only file system",
                GitConfig,
            ),
            ("bash: line 1: kill: (812) - Operation not permitted", OtherPrograms),
            ("ERROR: Cannot connect to the Docker daemon at unix:///var/run/docker.sock.", ContainerEngine),
        ];
        for (output, class) in cases {
            assert_eq!(kept(output, &[]), [class], "{output}");
            assert_eq!(kept(output, &[class]), [], "{output}");
        }
        for output in [
            "error: /home/ada/work/main.rs: No such file or directory",
            "cat: /home/ada: Permission denied",
            "see ~/.bashrc for details",
            "hooks: No such file or directory",
        ] {
            assert_eq!(kept(output, &[]), [], "{output}");
        }
    }
}
