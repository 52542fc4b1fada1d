//! What of the host a container sees: what the owner listed, the directory hermes was started in if that is wanted, and
//! of the hermes home what commands are meant to use. What hermes itself lives on is never shown, by whatever path.

mod skills;

use std::fmt;
use std::fs;
use std::path::{Component, Path, PathBuf};

use hermes_exec::backend::docker::{EngineVolume, HOME_DIR, WORKSPACE_DIR};
use hermes_exec::{BindMount, Writable};
use hermes_types::{MountAccess, VolumeSource};

use crate::ConfigContext;
use crate::failure::{Failure, Kind};
use crate::keys::Config;
use crate::resolve::{here, install_path, kept, known_install, local, run_directory};
use skills::Declared;

/// Where hermes puts its own things inside.
const RESERVED: &str = "/.hermes";
/// The directory below the home inside that holds what is shown of the hermes home.
const SHOWN: &str = ".hermes";
/// The skills of the hermes home, and those that are elsewhere.
const SKILLS: [&str; 2] = ["skills", "external_skills"];
/// What commands may use of the hermes home.
const KINDS: [&str; 6] =
    [SKILLS[0], "cache/documents", "cache/images", "cache/audio", "cache/videos", "cache/screenshots"];
/// What in the hermes home is never shown: everything whose name begins so.
const OWN: [&str; 11] = [
    ".env", "auth.json", "config.yaml", "state.db", "sessions", ".install-id", "logs", "pairing", "profiles",
    "cron", "mcp-tokens",
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
    context: &ConfigContext,
    config: &Config,
    owner_home: &str,
    of_home: OfHome,
) -> Result<(Vec<BindMount>, Vec<EngineVolume>), Failure> {
    let own = Own::new(context, config);
    let (mut binds, volumes) = listed(config, owner_home, &own)?;
    let is_taken = |binds: &[BindMount], target: &Path| {
        binds
            .iter()
            .map(|bind| &bind.target)
            .chain(volumes.iter().map(|volume| &volume.target))
            .any(|it| it == target)
    };
    if config.terminal.docker_mount_cwd_to_workspace && !is_taken(&binds, Path::new(WORKSPACE_DIR)) {
        let source = start_directory(config, owner_home)?;
        let source = own.checked(&source, "terminal.docker_mount_cwd_to_workspace")?;
        binds.push(BindMount { source, target: PathBuf::from(WORKSPACE_DIR), writable: Writable::Yes });
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
fn listed(
    config: &Config,
    owner_home: &str,
    own: &Own,
) -> Result<(Vec<BindMount>, Vec<EngineVolume>), Failure> {
    let (mut binds, mut volumes) = (Vec::new(), Vec::new());
    for volume in &super::volumes(config)? {
        let key = format!("terminal.docker_volumes: `{volume}`");
        let refused = |why: String| Failure::new(Kind::Configuration, format!("{key}: {why}"));
        let target = PathBuf::from(&volume.target);
        if target.starts_with(RESERVED) {
            return Err(refused(format!("{RESERVED} is where hermes puts its own things inside")));
        }
        let writable = if volume.access == MountAccess::ReadWrite { Writable::Yes } else { Writable::No };
        let mut options = volume.options.clone();
        let source = match &volume.source {
            VolumeSource::Named(name) => name.clone(),
            VolumeSource::Path(_) => {
                let path = volume.source.resolve(Path::new(owner_home), &here()?);
                let path: PathBuf = path.unwrap_or_default().components().collect();
                let source = own.checked(&path, &key)?;
                options.retain(|option| !MEANINGLESS.contains(&option.as_str()));
                if options.is_empty() {
                    binds.push(BindMount { source, target, writable });
                    continue;
                }
                match source.to_str() {
                    Some(text) if !text.contains(':') => text.to_owned(),
                    _ => return Err(refused(format!("{} cannot be mounted with options", source.display()))),
                }
            }
        };
        volumes.push(EngineVolume { source, target, writable, options });
    }
    Ok((binds, volumes))
}

/// The directory of the host that sessions work in. One that is only there inside is not meant.
fn start_directory(config: &Config, owner_home: &str) -> Result<PathBuf, Failure> {
    let chosen = PathBuf::from(local::directory(&config.terminal.cwd, owner_home)?);
    let is_inside = chosen.starts_with(WORKSPACE_DIR) || !chosen.is_dir();
    if is_inside { here() } else { Ok(chosen) }
}

/// What commands may use of the hermes home and of the skills elsewhere, as far as it is there.
fn system(context: &ConfigContext, config: &Config, own: &Own) -> Result<Vec<BindMount>, Failure> {
    let mut binds = Vec::new();
    for kind in KINDS {
        let path = own.home.join(kind);
        if !path.is_dir() {
            continue;
        }
        match own.way_out(&path, &own.home) {
            None => binds.push(shown(path, kind)),
            Some(link) => hide(context, &path, &link),
        }
    }
    for (number, path) in external_skills(context, config, own)?.into_iter().enumerate() {
        match own.way_out(&path, &path) {
            None => binds.push(shown(path, &format!("{}/{number}", SKILLS[1]))),
            Some(link) => hide(context, &path, &link),
        }
    }
    for name in &config.terminal.credential_files {
        let key = format!("terminal.credential_files: `{name}`");
        match own.credential(name) {
            Ok(real) => binds.push(shown(real, name)),
            Err(Unfit::Absent(path)) => {
                context.warn(&format!("{key}: there is no file {}", path.display()));
            }
            Err(unfit) => {
                return Err(Failure::new(Kind::Configuration, format!("{key} {unfit}"))
                    .hint("`terminal.docker_volumes` mounts other files"));
            }
        }
    }
    // Whoever wrote a skill is not the owner: what it may not have it does without.
    let is_skills = |bind: &&BindMount| SKILLS.iter().any(|name| bind.target.starts_with(inside(name)));
    let trees: Vec<PathBuf> = binds.iter().filter(is_skills).map(|bind| bind.source.clone()).collect();
    for Declared { skill, name } in skills::declared(&trees) {
        let wanted = match own.credential(&name) {
            Ok(real) => shown(real, &name),
            // It is not set up yet.
            Err(Unfit::Absent(_)) => continue,
            Err(unfit) => {
                let skill = skill.display();
                context.warn(&format!("{skill} wants the file `{name}`, which it does not get: it {unfit}"));
                continue;
            }
        };
        if !binds.iter().any(|bind| bind.target == wanted.target) {
            binds.push(wanted);
        }
    }
    Ok(binds)
}

fn hide(context: &ConfigContext, tree: &Path, link: &Path) {
    let (tree, link) = (tree.display(), link.display());
    context.warn(&format!("{tree} is not shown to commands: {link} leads out of it"));
}

/// The directories with skills that are not in the hermes home, each once.
fn external_skills(context: &ConfigContext, config: &Config, own: &Own) -> Result<Vec<PathBuf>, Failure> {
    let mut found = Vec::new();
    for chosen in &config.skills.external_dirs {
        let key = format!("skills.external_dirs: `{chosen}`");
        let path = own.home.join(local::expanded(chosen, &local::owner_home(context)));
        if !path.is_dir() {
            context.warn(&format!("{key}: there is no directory {}", path.display()));
            continue;
        }
        let real = own.checked(&path, &key)?;
        if real != own.home.join(SKILLS[0]) && !found.contains(&real) {
            found.push(real);
        }
    }
    Ok(found)
}

fn shown(source: PathBuf, name: &str) -> BindMount {
    BindMount { source, target: inside(name), writable: Writable::No }
}

/// Where something of the hermes home is inside.
fn inside(name: &str) -> PathBuf {
    Path::new(HOME_DIR).join(SHOWN).join(name)
}

/// Why a file of the hermes home is not shown.
enum Unfit {
    /// It is not there.
    Absent(PathBuf),
    /// It is not named by a path below the hermes home.
    Elsewhere,
    /// It leads out of the hermes home, to this.
    LeadsOut(PathBuf),
    /// It would show this.
    Own(PathBuf),
}

impl fmt::Display for Unfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Absent(path) => write!(f, "is not there: {}", path.display()),
            Self::Elsewhere => f.write_str("is not a path below the hermes home"),
            Self::LeadsOut(path) => write!(f, "leads out of the hermes home, to {}", path.display()),
            Self::Own(path) => write!(f, "would show {}, which hermes lives on", path.display()),
        }
    }
}

/// What hermes itself lives on.
struct Own {
    /// The hermes home, without links.
    home: PathBuf,
    /// What is elsewhere, or below something that may be shown.
    paths: Vec<PathBuf>,
}

impl Own {
    fn new(context: &ConfigContext, config: &Config) -> Self {
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

    /// The file of the hermes home with this name, without links.
    fn credential(&self, name: &str) -> Result<PathBuf, Unfit> {
        let mut parts = Path::new(name).components().peekable();
        let is_plain = parts.peek().is_some() && parts.all(|part| matches!(part, Component::Normal(_)));
        if !is_plain {
            return Err(Unfit::Elsewhere);
        }
        let path = self.home.join(name);
        let real = fs::canonicalize(&path).ok().filter(|real| real.is_file()).ok_or(Unfit::Absent(path))?;
        if !real.starts_with(&self.home) {
            return Err(Unfit::LeadsOut(real));
        }
        match self.revealed_by(&real) {
            None => Ok(real),
            Some(own) => Err(Unfit::Own(own)),
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

    /// A link in a tree that leads out of a directory around it or to what is never shown, or the tree itself, should it
    /// be too large to know.
    fn way_out(&self, tree: &Path, around: &Path) -> Option<PathBuf> {
        let leads_out = |path: &Path| {
            // What leads nowhere shows nothing.
            fs::canonicalize(path)
                .is_ok_and(|real| !real.starts_with(around) || self.revealed_by(&real).is_some())
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
