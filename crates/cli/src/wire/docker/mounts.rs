//! What of the host a container sees: what the owner listed, the directory hermes was started in if that is wanted, and
//! of the hermes home what commands are meant to use. What hermes itself lives on is never shown, by whatever path.

use std::fs;
use std::path::{Path, PathBuf};

use hermes_exec::backend::docker::{HOME, Volume, WORKSPACE};
use hermes_exec::{Bind, Writable};
use hermes_types::{Access, VolumeSource};

use crate::Context;
use crate::config::keys::Config;
use crate::failure::{Failure, Kind};
use crate::wire::{here, install_path, kept, known_install, local, run_directory};

/// Where hermes puts its own things inside.
const RESERVED: &str = "/.hermes";
/// The directory below the home inside that holds what is shown of the hermes home.
const SHOWN: &str = ".hermes";
/// What commands may use of the hermes home.
const KINDS: [&str; 6] =
    ["skills", "cache/documents", "cache/images", "cache/audio", "cache/videos", "cache/screenshots"];
/// What in the hermes home is never shown: everything whose name begins so.
const OWN: [&str; 10] = [
    ".env",
    "auth.json",
    "config.yaml",
    "state.db",
    "sessions",
    ".install-id",
    "logs",
    "pairing",
    "profiles",
    "cron",
];
/// How much of a tree is looked through for links.
const MOST_ENTRIES: usize = 100_000;
/// Options that mean nothing for a directory of a machine with Linux.
const MEANINGLESS: [&str; 4] = ["nocopy", "cached", "delegated", "consistent"];

/// Whether what is in the hermes home for commands is shown to them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OfHome {
    /// It is.
    Shown,
    /// An engine on another machine cannot.
    OutOfSight,
}

/// All of them: those that are plain paths, and those in the words of the engine.
pub(super) fn mounts(
    context: &Context,
    config: &Config,
    owner_home: &str,
    of_home: OfHome,
) -> Result<(Vec<Bind>, Vec<Volume>), Failure> {
    let own = Own::new(context, config);
    let (mut binds, volumes) = listed(config, owner_home, &own)?;
    let is_taken = |binds: &[Bind], target: &Path| {
        binds
            .iter()
            .map(|bind| &bind.target)
            .chain(volumes.iter().map(|volume| &volume.target))
            .any(|it| it == target)
    };
    if config.terminal.docker_mount_cwd_to_workspace && !is_taken(&binds, Path::new(WORKSPACE)) {
        let source = start_directory(config, owner_home)?;
        let source = own.checked(&source, "terminal.docker_mount_cwd_to_workspace")?;
        binds.push(Bind { source, target: PathBuf::from(WORKSPACE), writable: Writable::Yes });
    }
    if of_home == OfHome::Shown && !config.terminal.strict_mounts {
        for bind in system(context, config, &own)? {
            if !is_taken(&binds, &bind.target) {
                binds.push(bind);
            }
        }
    }
    Ok((binds, volumes))
}

/// What the owner listed.
fn listed(config: &Config, owner_home: &str, own: &Own) -> Result<(Vec<Bind>, Vec<Volume>), Failure> {
    let (mut binds, mut volumes) = (Vec::new(), Vec::new());
    for volume in &super::volumes(config)? {
        let key = format!("terminal.docker_volumes: `{volume}`");
        let refused = |why: String| Failure::new(Kind::Configuration, format!("{key}: {why}"));
        let target = PathBuf::from(&volume.target);
        if target.starts_with(RESERVED) {
            return Err(refused(format!("{RESERVED} is where hermes puts its own things inside")));
        }
        let writable = if volume.access == Access::ReadWrite { Writable::Yes } else { Writable::No };
        let mut options = volume.options.clone();
        let source = match &volume.source {
            VolumeSource::Named(name) => name.clone(),
            VolumeSource::Path(_) => {
                let path = volume.source.resolve(Path::new(owner_home), &here()?);
                let path: PathBuf = path.unwrap_or_default().components().collect();
                let source = own.checked(&path, &key)?;
                options.retain(|option| !MEANINGLESS.contains(&option.as_str()));
                if options.is_empty() {
                    binds.push(Bind { source, target, writable });
                    continue;
                }
                match source.to_str() {
                    Some(text) if !text.contains(':') => text.to_owned(),
                    _ => return Err(refused(format!("{} cannot be mounted with options", source.display()))),
                }
            }
        };
        volumes.push(Volume { source, target, writable, options });
    }
    Ok((binds, volumes))
}

/// The directory of the host that sessions work in. One that is only there inside is not meant.
fn start_directory(config: &Config, owner_home: &str) -> Result<PathBuf, Failure> {
    let chosen = PathBuf::from(local::directory(&config.terminal.cwd, owner_home)?);
    let is_inside = chosen.starts_with(WORKSPACE) || !chosen.is_dir();
    if is_inside { here() } else { Ok(chosen) }
}

/// What commands may use of the hermes home, as far as it is there.
fn system(context: &Context, config: &Config, own: &Own) -> Result<Vec<Bind>, Failure> {
    let mut binds = Vec::new();
    for kind in KINDS {
        let path = own.home.join(kind);
        if !path.is_dir() {
            continue;
        }
        match own.way_out(&path) {
            None => binds.push(shown(path, kind)),
            Some(link) => context.screen.warn(&format!(
                "{} is not shown to commands: {} leads out of it",
                path.display(),
                link.display()
            )),
        }
    }
    for name in &config.terminal.credential_files {
        let key = format!("terminal.credential_files: `{name}`");
        let is_plain =
            Path::new(name).components().all(|part| matches!(part, std::path::Component::Normal(_)));
        if !is_plain {
            return Err(Failure::new(
                Kind::Configuration,
                format!("{key} is not a path below the hermes home"),
            )
            .hint("`terminal.docker_volumes` mounts other files"));
        }
        let path = own.home.join(name);
        let real = match fs::canonicalize(&path) {
            Ok(real) if real.is_file() => real,
            _ => {
                context.screen.warn(&format!("{key}: there is no file {}", path.display()));
                continue;
            }
        };
        if !real.starts_with(&own.home) {
            let what = format!("{key} leads out of the hermes home, to {}", real.display());
            return Err(
                Failure::new(Kind::Configuration, what).hint("`terminal.docker_volumes` mounts other files")
            );
        }
        binds.push(shown(own.checked(&real, &key)?, name));
    }
    Ok(binds)
}

fn shown(source: PathBuf, name: &str) -> Bind {
    Bind { source, target: Path::new(HOME).join(SHOWN).join(name), writable: Writable::No }
}

/// What hermes itself lives on.
struct Own {
    /// The hermes home, without links.
    home: PathBuf,
    /// What is elsewhere, or below something that may be shown.
    paths: Vec<PathBuf>,
}

impl Own {
    fn new(context: &Context, config: &Config) -> Self {
        let real = |path: &Path| fs::canonicalize(path).unwrap_or_else(|_missing| path.to_owned());
        let home = real(context.home.path());
        let layers = &context.loaded.layers;
        let install = known_install(context);
        let paths = [
            // Whoever could change it would run here, as the owner.
            home.join("cache").join("guest"),
            kept(context, config),
            install.map_or_else(|| install_path(context), |install| run_directory(context, &install)),
            layers.file_path.clone(),
            layers.dotenv_path.clone(),
        ];
        Self { paths: paths.iter().map(|path| real(path)).collect(), home }
    }

    /// The path without links, if it is there and shows nothing of this.
    fn checked(&self, path: &Path, key: &str) -> Result<PathBuf, Failure> {
        let real = fs::canonicalize(path).map_err(|error| {
            Failure::new(Kind::Configuration, format!("{key}: {} cannot be mounted: {error}", path.display()))
                .hint("what is mounted must be there before; engines would make a directory that root owns")
        })?;
        match self.revealed_by(&real) {
            None => Ok(real),
            Some(own) => {
                let what =
                    format!("{key}: {} would show {}, which hermes lives on", path.display(), own.display());
                Err(Failure::new(Kind::Configuration, what)
                    .hint("nothing was run; mount a directory that it is not in"))
            }
        }
    }

    /// What of this could be reached through a path without links.
    fn revealed_by(&self, real: &Path) -> Option<PathBuf> {
        let covers = |own: &&PathBuf| real.starts_with(own) || own.starts_with(real);
        if self.home.starts_with(real) {
            let files = OWN.iter().map(|name| self.home.join(name));
            return Some(files.into_iter().find(|file| file.exists()).unwrap_or_else(|| self.home.clone()));
        }
        if let Some(first) = real.strip_prefix(&self.home).ok().and_then(|below| below.iter().next())
            && OWN.iter().any(|name| first.to_string_lossy().starts_with(name))
        {
            return Some(self.home.join(first));
        }
        self.paths.iter().find(covers).cloned()
    }

    /// A link in a tree that leads out of the hermes home or to what is never shown, or the tree itself, should it be
    /// too large to know.
    fn way_out(&self, tree: &Path) -> Option<PathBuf> {
        let leads_out = |path: &Path| {
            // What leads nowhere shows nothing.
            fs::canonicalize(path)
                .is_ok_and(|real| !real.starts_with(&self.home) || self.revealed_by(&real).is_some())
        };
        if leads_out(tree) {
            return Some(tree.to_owned());
        }
        let mut directories = vec![tree.to_owned()];
        let mut seen = 0;
        while let Some(directory) = directories.pop() {
            // What cannot be read here is not hidden from a container, so it is not shown.
            let Ok(entries) = fs::read_dir(&directory) else { return Some(directory) };
            for entry in entries.flatten() {
                seen += 1;
                let Ok(kind) = entry.file_type() else { continue };
                if seen > MOST_ENTRIES || (kind.is_symlink() && leads_out(&entry.path())) {
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
