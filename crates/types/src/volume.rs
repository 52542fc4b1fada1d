//! Directories and files of the host that a place may see: `source:target[:options]`.

use std::fmt;
use std::path::{Path, PathBuf};

use thiserror::Error;

/// One mount, as the owner listed it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Volume {
    /// What is mounted.
    pub source: VolumeSource,
    /// The absolute path inside the place, without `.`, `..`, doubled or trailing slashes.
    pub target: String,
    /// Whether the place may write there.
    pub access: Access,
    /// The other options, in the order they were written (`z`, `rshared`, …).
    pub options: Vec<String>,
}

/// What a mount brings in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum VolumeSource {
    /// A path on the host, as written: absolute, relative, or below `~`.
    Path(String),
    /// A volume kept by the engine under this name.
    Named(String),
}

/// Whether a mount can be written from inside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// The place can only read.
    ReadOnly,
    /// The place can read and write.
    ReadWrite,
}

/// Why an entry is not a mount.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum BadVolume {
    /// There is no `:` in it.
    #[error("no `:` between what is mounted and where")]
    NoTarget,
    /// There are more than three parts.
    #[error("more than three parts between `:`")]
    TooManyParts,
    /// The source is empty or cannot be a name.
    #[error("`{0}` is neither a path nor a volume name")]
    Source(String),
    /// The target is not an absolute path below the root.
    #[error("the target `{0}` is not an absolute path below `/`")]
    Target(String),
    /// The option is not known.
    #[error("unknown option `{0}`")]
    Option(String),
    /// Both `ro` and `rw` are there.
    #[error("both `ro` and `rw`")]
    Conflict,
}

const OPTIONS: [&str; 13] = [
    "z", "Z", "U", "shared", "rshared", "slave", "rslave", "private", "rprivate", "nocopy", "cached",
    "delegated", "consistent",
];

impl Volume {
    /// Reads `source:target[:options]`. Spaces inside a path belong to it; spaces around the entry do not.
    pub fn parse(entry: &str) -> Result<Self, BadVolume> {
        let mut parts = entry.trim().split(':');
        let source = parts.next().unwrap_or_default();
        let target = parts.next().ok_or(BadVolume::NoTarget)?;
        let options = parts.next().unwrap_or_default();
        if parts.next().is_some() {
            return Err(BadVolume::TooManyParts);
        }
        let mut access = None;
        let mut kept = Vec::new();
        for option in options.split(',').map(str::trim).filter(|option| !option.is_empty()) {
            let asked = match option {
                "ro" => Access::ReadOnly,
                "rw" => Access::ReadWrite,
                known if OPTIONS.contains(&known) => {
                    kept.push(known.to_owned());
                    continue;
                }
                unknown => return Err(BadVolume::Option(unknown.to_owned())),
            };
            if access.is_some_and(|before| before != asked) {
                return Err(BadVolume::Conflict);
            }
            access = Some(asked);
        }
        Ok(Self {
            source: VolumeSource::parse(source)?,
            target: normal_target(target)?,
            access: access.unwrap_or(Access::ReadWrite),
            options: kept,
        })
    }
}

impl fmt::Display for Volume {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (VolumeSource::Path(source) | VolumeSource::Named(source)) = &self.source;
        write!(f, "{source}:{}", self.target)?;
        let read_only = (self.access == Access::ReadOnly).then_some("ro");
        let options: Vec<&str> =
            read_only.into_iter().chain(self.options.iter().map(String::as_str)).collect();
        if options.is_empty() { Ok(()) } else { write!(f, ":{}", options.join(",")) }
    }
}

impl VolumeSource {
    fn parse(text: &str) -> Result<Self, BadVolume> {
        let is_path = text.starts_with(['/', '.']) || text == "~" || text.contains('/');
        let is_name = text.bytes().next().is_some_and(|b| b.is_ascii_alphanumeric())
            && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'-'));
        if text.trim().is_empty() || text.contains('\0') {
            Err(BadVolume::Source(text.to_owned()))
        } else if is_path {
            Ok(Self::Path(text.to_owned()))
        } else if is_name {
            Ok(Self::Named(text.to_owned()))
        } else {
            Err(BadVolume::Source(text.to_owned()))
        }
    }

    /// The path on the host: `~` is `home`, a relative path starts at `base`. `None` for a named volume.
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

fn normal_target(text: &str) -> Result<String, BadVolume> {
    let bad = || BadVolume::Target(text.to_owned());
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

    fn volume(source: VolumeSource, target: &str, access: Access, options: &[&str]) -> Volume {
        Volume { source, target: target.into(), access, options: options.iter().map(|&o| o.into()).collect() }
    }

    #[test]
    fn entries_become_structures() {
        let path = |text: &str| VolumeSource::Path(text.into());
        let cases = [
            ("/data:/data", volume(path("/data"), "/data", Access::ReadWrite, &[])),
            (
                "~/my projects:/workspace/projects:ro",
                volume(path("~/my projects"), "/workspace/projects", Access::ReadOnly, &[]),
            ),
            (" ./src:/src//app/:rw,z ", volume(path("./src"), "/src/app", Access::ReadWrite, &["z"])),
            ("a/b:/x", volume(path("a/b"), "/x", Access::ReadWrite, &[])),
            (
                "cache-1:/root/.cache:nocopy",
                volume(VolumeSource::Named("cache-1".into()), "/root/.cache", Access::ReadWrite, &["nocopy"]),
            ),
        ];
        for (entry, expected) in cases {
            assert_eq!(Volume::parse(entry), Ok(expected), "{entry}");
        }
    }

    #[test]
    fn a_shown_entry_reads_back_as_itself() {
        for entry in ["/data:/data", "~/a b:/w:ro", "cache:/c:ro,z,nocopy", "./x:/y:rshared"] {
            let volume = Volume::parse(entry).unwrap();
            assert_eq!(volume.to_string(), entry);
            assert_eq!(Volume::parse(&volume.to_string()), Ok(volume));
        }
    }

    #[test]
    fn bad_entries_say_why() {
        let cases = [
            ("/data", BadVolume::NoTarget),
            ("/a:/b:ro:extra", BadVolume::TooManyParts),
            (":/b", BadVolume::Source(String::new())),
            ("my volume:/b", BadVolume::Source("my volume".into())),
            ("/a:b", BadVolume::Target("b".into())),
            ("/a:/", BadVolume::Target("/".into())),
            ("/a:/b/../etc", BadVolume::Target("/b/../etc".into())),
            ("/a:/b:readonly", BadVolume::Option("readonly".into())),
            ("/a:/b:ro,rw", BadVolume::Conflict),
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
