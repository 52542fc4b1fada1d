//! Which host paths a container may see.
//!
//! A container sees the volumes that the owner listed, the working directory if that is configured,
//! and the parts of the Hermes home that commands are meant to use. The files that Hermes itself
//! depends on are never mounted, by whatever path. A jail sees the listed volumes, by the same rules.

use std::fs;
use std::io;
use std::path::{Component, Path, PathBuf};

use hermes_sandbox::SourceError;
use hermes_types::{MountAccess, Volume, VolumeSource};
use thiserror::Error;

use super::request::HERMES_DIR;
use super::{EngineVolume, HOME_DIR, WORKSPACE_DIR};
use crate::backend::BindMount;

/// The directory inside the container's home that shows parts of the Hermes home.
const SHOWN_DIR: &str = ".hermes";
/// The skills of the Hermes home, and those from elsewhere.
const SKILLS: [&str; 2] = ["skills", "external_skills"];
/// The parts of the Hermes home that commands may use.
const SHOWN_PARTS: [&str; 6] =
    [SKILLS[0], "cache/documents", "cache/images", "cache/audio", "cache/videos", "cache/screenshots"];
/// The directory in the Hermes home for files that skills may ask for.
const CREDENTIALS: &str = "credentials";
/// Entries of the Hermes home that are never mounted, with everything whose name starts like this.
const PROTECTED_NAMES: [&str; 23] = [
    ".env", "auth", "config", "hermes.db", "state.db", "sessions", ".install-id", "logs", "pairing",
    "profiles", "cron", "mcp-tokens", "approvals", "audit", "backup", "channel_", "gateway", "processes",
    "hooks", "plugins", "memories", "SOUL", "quarantine",
];
/// Databases, keys, locks and copies in the Hermes home, including those of other versions.
const PROTECTED_ENDINGS: [&str; 6] = [".db", "-wal", "-shm", ".key", ".lock", ".bak"];
/// The longest search of a tree for symbolic links.
const MAX_ENTRIES: usize = 100_000;
/// Volume options without a meaning for a directory on Linux.
const IGNORED_OPTIONS: [&str; 4] = ["nocopy", "cached", "delegated", "consistent"];

/// The mounts that the owner configured.
#[derive(Debug)]
pub struct MountSettings<'a> {
    pub volumes: &'a [Volume],
    /// The directory to mount as the workspace.
    pub workspace: Option<PathBuf>,
    /// Parts of the Hermes home; `None` mounts none.
    pub home_files: Option<HomeFiles<'a>>,
    /// The base of paths that start with `~`.
    pub owner_home: &'a Path,
    /// The base of relative paths.
    pub cwd: &'a Path,
}

/// Files of the Hermes home, and skills from elsewhere, that commands may use.
#[derive(Debug)]
pub struct HomeFiles<'a> {
    /// Directories with skills, each with the text from the configuration.
    pub external_skills: Vec<(&'a str, PathBuf)>,
    pub credential_files: &'a [String],
    /// Finds the credential files that the skills in these directories declare.
    pub declared: fn(&[PathBuf]) -> Vec<DeclaredFile>,
}

/// A credential file that a skill needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeclaredFile {
    /// The file that declares it.
    pub skill: PathBuf,
    /// A path below the Hermes home.
    pub name: String,
}

/// The mounts of a container.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct ResolvedMounts {
    pub binds: Vec<BindMount>,
    pub volumes: Vec<EngineVolume>,
    pub warnings: Vec<String>,
}

/// A mount that is refused.
#[derive(Debug, Error)]
pub enum MountError {
    #[error("{key}: {HERMES_DIR} is reserved inside the container")]
    Reserved { key: String },
    #[error("{key}: cannot mount {}: {error}", path.display())]
    Unavailable { key: String, path: PathBuf, error: io::Error },
    #[error("{key}: cannot mount {}: it would expose {}, which Hermes itself depends on", path.display(), protected.display())]
    Exposes { key: String, path: PathBuf, protected: PathBuf },
    #[error("{key}: cannot mount {}: {} is a link in a directory that commands can write", path.display(), link.display())]
    Link { key: String, path: PathBuf, link: PathBuf },
    #[error("{key}: cannot mount {} with options", path.display())]
    Options { key: String, path: PathBuf },
    #[error("{key} {problem}")]
    CredentialFile { key: String, problem: CredentialFileProblem },
}

impl MountError {
    /// Remedies for the user.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Reserved { .. } | Self::Options { .. } => None,
            Self::Unavailable { .. } => {
                Some("Create the path first; an engine would create a directory owned by root.")
            }
            Self::Exposes { .. } => Some("Nothing ran. Mount a directory that does not contain it."),
            Self::Link { .. } => {
                Some("Nothing ran. Check who made the link, or name the path that it leads to.")
            }
            Self::CredentialFile { .. } => Some("Use `terminal.docker_volumes` to mount other files."),
        }
    }
}

/// Why a file of the Hermes home is not mounted.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum CredentialFileProblem {
    #[error("does not exist: {}", .0.display())]
    Missing(PathBuf),
    #[error("is not a path below the Hermes home")]
    Outside,
    #[error("leads out of the Hermes home, to {}", .0.display())]
    LeadsOut(PathBuf),
    #[error("would expose {}, which Hermes itself depends on", .0.display())]
    Protected(PathBuf),
    #[error("is neither in `credentials` in the Hermes home nor in `terminal.credential_files`")]
    NotListed,
}

/// The files that Hermes depends on.
#[derive(Debug)]
pub struct MountPolicy {
    /// The Hermes home without symbolic links.
    home: PathBuf,
    /// Protected paths elsewhere, or below a part that is shown.
    protected: Vec<PathBuf>,
}

impl MountPolicy {
    /// Protects the Hermes home and these paths.
    pub fn new(home: &Path, protected: &[PathBuf]) -> Self {
        let real = |path: &Path| fs::canonicalize(path).unwrap_or_else(|_missing| path.to_owned());
        let home = real(home);
        // A command that could replace the guest would run on the host as the owner.
        let guest = home.join("cache").join("guest");
        let protected = [&guest].into_iter().chain(protected).map(|path| real(path)).collect();
        Self { home, protected }
    }

    /// Resolves the configured mounts or refuses them.
    pub fn resolve(&self, settings: &MountSettings<'_>) -> Result<ResolvedMounts, MountError> {
        let writable = self.writable_directories(settings);
        let mut mounts = self.listed(settings, &writable)?;
        if let Some(source) = &settings.workspace
            && !mounts.is_taken(Path::new(WORKSPACE_DIR))
        {
            let source = self.check(source, "terminal.docker_mount_cwd_to_workspace", &writable)?;
            let target = PathBuf::from(WORKSPACE_DIR);
            mounts.binds.push(BindMount { source, target, access: MountAccess::ReadWrite });
        }
        if let Some(files) = &settings.home_files {
            let shown = self.shown(files, &writable, &mut mounts.warnings)?;
            for bind in shown {
                if !mounts.is_taken(&bind.target) {
                    mounts.binds.push(bind);
                }
            }
        }
        Ok(mounts)
    }

    /// The directories in which commands may have replaced something by a link.
    fn writable_directories(&self, settings: &MountSettings<'_>) -> Vec<PathBuf> {
        let writable = settings.volumes.iter().filter(|volume| volume.access == MountAccess::ReadWrite);
        let sources = writable.filter_map(|volume| source_path(volume, settings));
        sources
            .chain(settings.workspace.clone())
            .chain([self.home.join("sandboxes")])
            .filter_map(|path| fs::canonicalize(path).ok())
            .collect()
    }

    /// The volumes that the owner listed.
    fn listed(
        &self,
        settings: &MountSettings<'_>,
        writable: &[PathBuf],
    ) -> Result<ResolvedMounts, MountError> {
        let mut mounts = ResolvedMounts::default();
        for volume in settings.volumes {
            let key = format!("terminal.docker_volumes: `{volume}`");
            let target = PathBuf::from(&volume.target);
            if target.starts_with(HERMES_DIR) {
                return Err(MountError::Reserved { key });
            }
            let access = volume.access;
            let mut options = volume.options.clone();
            let source = match &volume.source {
                VolumeSource::Named(name) => PathBuf::from(name),
                VolumeSource::Path(_) => {
                    let path = source_path(volume, settings).unwrap_or_default();
                    let source = self.check(&path, &key, writable)?;
                    options.retain(|option| !IGNORED_OPTIONS.contains(&option.as_str()));
                    if options.is_empty() {
                        mounts.binds.push(BindMount { source, target, access });
                        continue;
                    }
                    if source.to_str().is_none_or(|text| text.contains(':')) {
                        return Err(MountError::Options { key, path: source });
                    }
                    source
                }
            };
            mounts.volumes.push(EngineVolume { mount: BindMount { source, target, access }, options });
        }
        Ok(mounts)
    }

    /// The parts of the Hermes home and the skills that exist.
    fn shown(
        &self,
        files: &HomeFiles<'_>,
        writable: &[PathBuf],
        warnings: &mut Vec<String>,
    ) -> Result<Vec<BindMount>, MountError> {
        let mut binds = Vec::new();
        for part in SHOWN_PARTS {
            let path = self.home.join(part);
            if !path.is_dir() {
                continue;
            }
            match self.way_out(&path, &self.home) {
                None => binds.push(shown(path, part)),
                Some(link) => warnings.push(hidden(&path, &link)),
            }
        }
        for (number, path) in self.external_skills(files, writable, warnings)?.into_iter().enumerate() {
            match self.way_out(&path, &path) {
                None => binds.push(shown(path, &format!("{}/{number}", SKILLS[1]))),
                Some(link) => warnings.push(hidden(&path, &link)),
            }
        }
        for name in files.credential_files {
            let key = format!("terminal.credential_files: `{name}`");
            match self.credential_file(name) {
                Ok(real) => binds.push(shown(real, name)),
                Err(CredentialFileProblem::Missing(path)) => {
                    warnings.push(format!("{key}: there is no file {}", path.display()));
                }
                Err(problem) => return Err(MountError::CredentialFile { key, problem }),
            }
        }
        // A skill may come from anyone, so it gets only what the owner listed or put aside for
        // skills. Another file is left out with a warning.
        let is_skills = |bind: &&BindMount| SKILLS.iter().any(|name| bind.target.starts_with(inside(name)));
        let trees: Vec<PathBuf> = binds.iter().filter(is_skills).map(|bind| bind.source.clone()).collect();
        for DeclaredFile { skill, name } in (files.declared)(&trees) {
            if binds.iter().any(|known| known.target == inside(&name)) {
                continue;
            }
            let offered = self.credential_file(&name).and_then(|real| {
                let is_offered = real.starts_with(self.home.join(CREDENTIALS));
                if is_offered { Ok(real) } else { Err(CredentialFileProblem::NotListed) }
            });
            match offered {
                Ok(real) => binds.push(shown(real, &name)),
                // It is not set up yet.
                Err(CredentialFileProblem::Missing(_)) => {}
                Err(problem) => {
                    let skill = skill.display();
                    warnings.push(format!(
                        "{skill} wants the file `{name}`, which it does not get: it {problem}"
                    ));
                }
            }
        }
        Ok(binds)
    }

    /// The skill directories outside the Hermes home, each once.
    fn external_skills(
        &self,
        files: &HomeFiles<'_>,
        writable: &[PathBuf],
        warnings: &mut Vec<String>,
    ) -> Result<Vec<PathBuf>, MountError> {
        let mut found = Vec::new();
        for (text, path) in &files.external_skills {
            let key = format!("skills.external_dirs: `{text}`");
            let path = self.home.join(path);
            if !path.is_dir() {
                warnings.push(format!("{key}: there is no directory {}", path.display()));
                continue;
            }
            let real = self.check(&path, &key, writable)?;
            if real != self.home.join(SKILLS[0]) && !found.contains(&real) {
                found.push(real);
            }
        }
        Ok(found)
    }

    /// The path without symbolic links, if it exists and exposes nothing protected.
    fn check(&self, path: &Path, key: &str, writable: &[PathBuf]) -> Result<PathBuf, MountError> {
        let (key, path) = (key.to_owned(), path.to_owned());
        let real = match hermes_sandbox::resolve_source(&path, writable) {
            Ok(real) => real,
            Err(SourceError::Link(link)) => return Err(MountError::Link { key, path, link }),
            Err(SourceError::Io(error)) => return Err(MountError::Unavailable { key, path, error }),
        };
        match self.exposed_by(&real) {
            None => Ok(real),
            Some(protected) => Err(MountError::Exposes { key, path, protected }),
        }
    }

    /// A file of the Hermes home, without symbolic links.
    fn credential_file(&self, name: &str) -> Result<PathBuf, CredentialFileProblem> {
        let mut parts = Path::new(name).components().peekable();
        let is_plain = parts.peek().is_some() && parts.all(|part| matches!(part, Component::Normal(_)));
        if !is_plain {
            return Err(CredentialFileProblem::Outside);
        }
        let path = self.home.join(name);
        let real = fs::canonicalize(&path)
            .ok()
            .filter(|real| real.is_file())
            .ok_or(CredentialFileProblem::Missing(path))?;
        if !real.starts_with(&self.home) {
            return Err(CredentialFileProblem::LeadsOut(real));
        }
        match self.exposed_by(&real) {
            None => Ok(real),
            Some(protected) => Err(CredentialFileProblem::Protected(protected)),
        }
    }

    /// A protected path that could be reached through a path without symbolic links.
    fn exposed_by(&self, real: &Path) -> Option<PathBuf> {
        let covers = |protected: &&PathBuf| real.starts_with(protected) || protected.starts_with(real);
        if self.home.starts_with(real) {
            let files = PROTECTED_NAMES.iter().map(|name| self.home.join(name));
            return Some(files.into_iter().find(|file| file.exists()).unwrap_or_else(|| self.home.clone()));
        }
        if let Some(first) = real.strip_prefix(&self.home).ok().and_then(|below| below.iter().next()) {
            let name = first.to_string_lossy();
            let is_protected = PROTECTED_NAMES.iter().any(|start| name.starts_with(start))
                || PROTECTED_ENDINGS.iter().any(|end| name.ends_with(end));
            if is_protected {
                return Some(self.home.join(first));
            }
        }
        self.protected.iter().find(covers).cloned()
    }

    /// A link in a tree that leads out of `around` or to a protected path, or the tree itself if it
    /// is too large to check.
    fn way_out(&self, tree: &Path, around: &Path) -> Option<PathBuf> {
        let leads_out = |path: &Path| {
            // A dangling link exposes nothing.
            fs::canonicalize(path)
                .is_ok_and(|real| !real.starts_with(around) || self.exposed_by(&real).is_some())
        };
        if leads_out(tree) {
            return Some(tree.to_owned());
        }
        let mut directories = vec![tree.to_owned()];
        let mut count = 0;
        while let Some(directory) = directories.pop() {
            // A container may read what this user cannot, so an unreadable tree is not mounted.
            let Ok(entries) = fs::read_dir(&directory) else { return Some(directory) };
            for entry in entries.flatten() {
                count += 1;
                let Ok(kind) = entry.file_type() else { continue };
                if count > MAX_ENTRIES || (kind.is_symlink() && leads_out(&entry.path())) {
                    return Some(entry.path());
                }
                if kind.is_dir() {
                    directories.push(entry.path());
                }
            }
        }
        None
    }
}

impl ResolvedMounts {
    fn is_taken(&self, target: &Path) -> bool {
        let volumes = self.volumes.iter().map(|volume| &volume.mount);
        self.binds.iter().chain(volumes).any(|known| known.target == target)
    }
}

/// The path on this machine that a volume shows, if it is one.
fn source_path(volume: &Volume, settings: &MountSettings<'_>) -> Option<PathBuf> {
    let path = volume.source.resolve(settings.owner_home, settings.cwd)?;
    Some(path.components().collect())
}

fn shown(source: PathBuf, name: &str) -> BindMount {
    BindMount { source, target: inside(name), access: MountAccess::ReadOnly }
}

fn hidden(tree: &Path, link: &Path) -> String {
    format!("{} is not mounted: {} leads out of it", tree.display(), link.display())
}

/// The path inside the container of a part of the Hermes home.
fn inside(name: &str) -> PathBuf {
    Path::new(HOME_DIR).join(SHOWN_DIR).join(name)
}
