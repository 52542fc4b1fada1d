//! Mounts of host files or engine volumes: `source:target[:options]`.

use std::fmt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// A mount as configured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Volume {
    pub source: VolumeSource,
    /// The absolute path inside the environment, without `.`, `..`, doubled or trailing slashes.
    pub target: String,
    pub access: MountAccess,
    /// The other options in the order written (`z`, `rshared`, …).
    pub options: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum VolumeSource {
    /// A path on the host, as written: absolute, relative, or below `~`.
    Path(String),
    /// A volume managed by the container engine.
    Named(String),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MountAccess {
    ReadOnly,
    ReadWrite,
}

/// Why an entry is not a valid mount.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum VolumeError {
    #[error("no `:` between source and target")]
    NoTarget,
    #[error("more than three parts separated by `:`")]
    TooManyParts,
    #[error("`{0}` is neither a path nor a volume name")]
    Source(String),
    #[error("the target `{0}` is not an absolute path below `/`")]
    Target(String),
    #[error("unknown option `{0}`")]
    Option(String),
    #[error("both `ro` and `rw`")]
    Conflict,
}

const OPTIONS: [&str; 13] = [
    "z", "Z", "U", "shared", "rshared", "slave", "rslave", "private", "rprivate", "nocopy", "cached",
    "delegated", "consistent",
];

impl Volume {
    /// Parses `source:target[:options]`. Spaces around the entry are ignored; spaces inside a path
    /// are kept.
    pub fn parse(entry: &str) -> Result<Self, VolumeError> {
        let mut parts = entry.trim().split(':');
        let source = parts.next().unwrap_or_default();
        let target = parts.next().ok_or(VolumeError::NoTarget)?;
        let options = parts.next().unwrap_or_default();
        if parts.next().is_some() {
            return Err(VolumeError::TooManyParts);
        }
        let mut access = None;
        let mut other = Vec::new();
        for option in options.split(',').map(str::trim).filter(|option| !option.is_empty()) {
            let requested = match option {
                "ro" => MountAccess::ReadOnly,
                "rw" => MountAccess::ReadWrite,
                known if OPTIONS.contains(&known) => {
                    other.push(known.to_owned());
                    continue;
                }
                unknown => return Err(VolumeError::Option(unknown.to_owned())),
            };
            if access.is_some_and(|before| before != requested) {
                return Err(VolumeError::Conflict);
            }
            access = Some(requested);
        }
        Ok(Self {
            source: VolumeSource::parse(source)?,
            target: normalize_target(target)?,
            access: access.unwrap_or(MountAccess::ReadWrite),
            options: other,
        })
    }
}

impl fmt::Display for Volume {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (VolumeSource::Path(source) | VolumeSource::Named(source)) = &self.source;
        write!(f, "{source}:{}", self.target)?;
        let read_only = (self.access == MountAccess::ReadOnly).then_some("ro");
        let options: Vec<&str> =
            read_only.into_iter().chain(self.options.iter().map(String::as_str)).collect();
        if options.is_empty() { Ok(()) } else { write!(f, ":{}", options.join(",")) }
    }
}

impl VolumeSource {
    fn parse(text: &str) -> Result<Self, VolumeError> {
        let is_path = text.starts_with(['/', '.']) || text == "~" || text.contains('/');
        let is_name = text.bytes().next().is_some_and(|b| b.is_ascii_alphanumeric())
            && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'-'));
        if is_path && !text.contains('\0') {
            Ok(Self::Path(text.to_owned()))
        } else if is_name {
            Ok(Self::Named(text.to_owned()))
        } else {
            Err(VolumeError::Source(text.to_owned()))
        }
    }

    /// The path on the host, with `~` as `home` and relative paths below `base`. `None` for a named
    /// volume.
    pub fn resolve(&self, home: &Path, base: &Path) -> Option<PathBuf> {
        match self {
            Self::Named(_) => None,
            Self::Path(text) => Some(match text.strip_prefix('~') {
                Some("") => home.to_path_buf(),
                Some(rest) if rest.starts_with('/') => home.join(rest.trim_start_matches('/')),
                _ => base.join(text),
            }),
        }
    }
}

fn normalize_target(text: &str) -> Result<String, VolumeError> {
    let bad = || VolumeError::Target(text.to_owned());
    let rest = text.strip_prefix('/').ok_or_else(bad)?;
    let mut normal = String::new();
    for part in rest.split('/') {
        match part {
            "" | "." => {}
            ".." => return Err(bad()),
            part if part.contains('\0') => return Err(bad()),
            part => {
                normal.push('/');
                normal.push_str(part);
            }
        }
    }
    if normal.is_empty() { Err(bad()) } else { Ok(normal) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn volume(source: VolumeSource, target: &str, access: MountAccess, options: &[&str]) -> Volume {
        Volume { source, target: target.into(), access, options: options.iter().map(|&o| o.into()).collect() }
    }

    #[test]
    fn entries_are_parsed() {
        let path = |text: &str| VolumeSource::Path(text.into());
        let cases = [
            ("/data:/data", volume(path("/data"), "/data", MountAccess::ReadWrite, &[])),
            (
                "~/my projects:/workspace/projects:ro",
                volume(path("~/my projects"), "/workspace/projects", MountAccess::ReadOnly, &[]),
            ),
            (" ./src:/src//app/:rw,z ", volume(path("./src"), "/src/app", MountAccess::ReadWrite, &["z"])),
            ("a/b:/x", volume(path("a/b"), "/x", MountAccess::ReadWrite, &[])),
            (
                "cache-1:/root/.cache:nocopy",
                volume(
                    VolumeSource::Named("cache-1".into()),
                    "/root/.cache",
                    MountAccess::ReadWrite,
                    &["nocopy"],
                ),
            ),
        ];
        for (entry, expected) in cases {
            assert_eq!(Volume::parse(entry), Ok(expected), "{entry}");
        }
    }

    #[test]
    fn a_displayed_entry_parses_back() {
        for entry in ["/data:/data", "~/a b:/w:ro", "cache:/c:ro,z,nocopy", "./x:/y:rshared"] {
            let volume = Volume::parse(entry).unwrap();
            assert_eq!(volume.to_string(), entry);
            assert_eq!(Volume::parse(&volume.to_string()), Ok(volume));
        }
    }

    #[test]
    fn invalid_entries_report_the_reason() {
        let cases = [
            ("/data", VolumeError::NoTarget),
            ("/a:/b:ro:extra", VolumeError::TooManyParts),
            (":/b", VolumeError::Source(String::new())),
            ("my volume:/b", VolumeError::Source("my volume".into())),
            ("/a:b", VolumeError::Target("b".into())),
            ("/a:/", VolumeError::Target("/".into())),
            ("/a:/b/../etc", VolumeError::Target("/b/../etc".into())),
            ("/a:/b:readonly", VolumeError::Option("readonly".into())),
            ("/a:/b:ro,rw", VolumeError::Conflict),
        ];
        for (entry, expected) in cases {
            assert_eq!(Volume::parse(entry), Err(expected), "{entry}");
        }
    }

    #[test]
    fn sources_are_resolved_against_home_and_base() {
        let resolve = |text: &str| {
            VolumeSource::parse(text).unwrap().resolve(Path::new("/home/ann"), Path::new("/srv/job"))
        };
        assert_eq!(resolve("~"), Some("/home/ann".into()));
        assert_eq!(resolve("~/a b"), Some("/home/ann/a b".into()));
        assert_eq!(resolve("/etc/x"), Some("/etc/x".into()));
        assert_eq!(resolve("./x"), Some("/srv/job/./x".into()));
        assert_eq!(resolve("~other/x"), Some("/srv/job/~other/x".into()));
        assert_eq!(resolve("named"), None);
    }
}
