//! What the guard protects on this machine: the list of `policy` with real paths.
//!
//! The guest turns it into mount namespaces (`guest/src/view.rs`).

mod note;
mod repositories;

use std::collections::{BTreeSet, HashMap};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use hermes_guest::protocol::guard::{GuardEntry, GuardKind, GuardSpec, RunConfinement, ShownDir};
use hermes_policy::{ProtectedKind, pattern_matches, protected_paths};
use hermes_types::{Allowance, Guard, ProtectedClass};
use serde_bytes::ByteBuf;

use crate::ResolvedPlace;
use crate::registry::PlaceDir;

pub(crate) use note::GuardedRun;
pub(crate) use repositories::Repositories;

/// Further matches of one pattern are not protected.
const MAX_PATTERN_MATCHES: usize = 64;

/// Directories outside the project that `project` leaves writable. `~` is the home.
const WRITABLE_DIRS: &[&str] = &[
    "/tmp", "/var/tmp", "/dev", "/proc", "/run", "~/.cache", "~/.npm", "~/.cargo/registry", "~/.cargo/git",
    "~/.rustup", "~/.local/share/uv", "~/.local/share/pnpm", "~/.m2/repository", "~/.gradle/caches",
    "~/go/pkg", "~/.bun/install/cache", "~/.nuget/packages", "~/.ivy2",
];

/// What root could change in order to start programs outside the view: settings of the kernel and
/// files of the system.
const ROOT_FILES: &[&str] = &[
    "/proc/sys", "/proc/sysrq-trigger", "/sys", "/boot", "/etc", "/bin", "/sbin", "/lib", "/lib32", "/lib64",
    "/libx32", "/usr/bin", "/usr/sbin", "/usr/lib", "/usr/lib32", "/usr/lib64", "/usr/libx32",
    "/usr/libexec", "/usr/share", "/var/lib/dpkg", "/var/lib/rpm", "/var/lib/apk", "/var/lib/pacman",
];

/// Directories that come before those of the system in `PATH`.
const COMMAND_DIRS: &[&str] =
    &["~/.local/bin", "~/bin", "~/.cargo/bin", "~/go/bin", "/usr/local/bin", "/usr/local/sbin"];
/// Commands that people type. A program with such a name in one of these directories would run
/// instead of the real one. Package managers write there under other names.
const COMMANDS: &[&str] = &[
    "apt", "apt-get", "awk", "bash", "cargo", "cat", "cd", "claude", "code", "codex", "chmod", "chown",
    "clear", "cp", "crontab", "curl", "date", "dd", "df", "diff", "dir", "docker", "du", "echo", "ed",
    "emacs", "env", "find", "fish", "git", "go", "gpg", "grep", "gzip", "head", "hermes", "hostname", "htop",
    "id", "ip", "journalctl", "kill", "less", "ln", "ls", "make", "man", "mkdir", "more", "mount", "mv",
    "nano", "node", "passwd", "ping", "pkexec", "podman", "ps", "pwd", "python", "python3", "rm", "rmdir",
    "rsync", "rustc", "scp", "screen", "sed", "service", "sftp", "sh", "sleep", "sort", "ssh", "ssh-add",
    "su", "sudo", "systemctl", "tail", "tar", "tee", "test", "tmux", "top", "touch", "tree", "true", "uname",
    "unzip", "vi", "vim", "w", "wc", "wget", "which", "who", "whoami", "xargs", "zip", "zsh",
];

/// The protected paths of a place on this machine.
pub(crate) fn guard_spec(place: &ResolvedPlace, guard: Guard, work_dir: &Path) -> Option<GuardSpec> {
    if guard == Guard::Off {
        return None;
    }
    let home = Path::new(&place.spec.home);
    let cwd = Path::new(&place.spec.cwd);
    let hermes_home = &place.installation.home;
    let uid = rustix::process::getuid();
    let mut entries = BTreeSet::new();
    for protected in protected_paths() {
        let kind = match protected.kind {
            ProtectedKind::Hidden => GuardKind::Hidden,
            ProtectedKind::ReadOnly => GuardKind::ReadOnly,
        };
        let path = protected.path.replace("UID", &uid.as_raw().to_string());
        let paths = expand(&path, home);
        entries.extend(paths.into_iter().map(|path| (path, Some(protected.class), kind)));
    }
    let repositories = Repositories::recent(home, cwd, PlaceDir::for_place(place).path());
    let git_files = repositories
        .git_dirs
        .iter()
        .flat_map(|dir| repositories::PROTECTED_NAMES.map(|name| dir.join(name)))
        .chain(repositories.links.iter().cloned());
    entries.extend(git_files.map(|path| (path, Some(ProtectedClass::GitConfig), GuardKind::ReadOnly)));
    entries
        .extend(runtime_sockets(uid).into_iter().map(|(path, class)| (path, Some(class), GuardKind::Hidden)));
    for version in children(Path::new("/usr/lib")).filter_map(|path| path.file_name().map(ToOwned::to_owned))
    {
        if version.to_string_lossy().starts_with("python3.") {
            let packages = home.join(".local/lib").join(version).join("site-packages");
            let files = ["usercustomize.py", "sitecustomize.py"].map(|name| packages.join(name));
            let class = Some(ProtectedClass::StartupFiles);
            entries.extend(files.map(|path| (path, class, GuardKind::ReadOnly)));
        }
    }
    for dir in COMMAND_DIRS.iter().flat_map(|dir| expand(dir, home)) {
        let paths = COMMANDS.iter().map(|name| dir.join(name));
        entries.extend(paths.map(|path| (path, Some(ProtectedClass::StartupFiles), GuardKind::ReadOnly)));
    }
    if uid.is_root() {
        entries.extend(ROOT_FILES.iter().map(|path| (PathBuf::from(path), None, GuardKind::ReadOnly)));
    }
    let hidden = [hermes_home.clone(), home.join(".hermes"), place.installation.run_dir.clone()];
    let other_run_dirs = expand(&format!("/tmp/hermes-{}-*", uid.as_raw()), home);
    let hidden: BTreeSet<PathBuf> = hidden.into_iter().chain(other_run_dirs).collect();
    entries.extend(hidden.iter().map(|path| (path.clone(), None, GuardKind::Hidden)));
    // A link cannot be covered, but the file it leads to can.
    let mut real_dirs = HashMap::new();
    let existing: Vec<_> = entries
        .iter()
        .filter_map(|(path, class, kind)| Some((path, real_path(path, &mut real_dirs)?, *class, *kind)))
        .collect();
    let pinned: BTreeSet<PathBuf> = existing
        .iter()
        .flat_map(|(path, real, ..)| [*path, real])
        .flat_map(|path| parents_below(path, home, &repositories))
        .collect();
    let links = existing.into_iter().filter(|(path, real, ..)| *path != real);
    let targets: Vec<_> = links.map(|(_, real, class, kind)| (real, class, kind)).collect();
    entries.extend(targets);

    let is_hidden = |path: &Path| hidden.iter().any(|hidden| path.starts_with(hidden));
    let own = [(work_dir, true), (home, true), (cwd, true)];
    let tools = [(hermes_home.join("skills"), false), (hermes_home.join("cache/images"), false)];
    let tools = tools.iter().map(|(path, is_writable)| (path.as_path(), *is_writable));
    let shown = own
        .into_iter()
        .chain(tools)
        .filter(|(path, _)| is_hidden(path) && !hidden.contains(*path))
        .map(|(path, is_writable)| ShownDir { path: to_bytes(path), is_writable })
        .collect();
    let project = (guard == Guard::Project).then(|| writable_dirs(home, cwd));
    Some(GuardSpec {
        cover: to_bytes(&place.installation.run_dir),
        entries: entries
            .iter()
            .map(|(path, class, kind)| GuardEntry { path: to_bytes(path), class: *class, kind: *kind })
            .collect(),
        pinned: pinned.iter().map(|path| to_bytes(path)).collect(),
        shown,
        writable: project,
        quarantine: to_bytes(&quarantine_dir(place)),
    })
}

/// The directory for protected files that commands created.
fn quarantine_dir(place: &ResolvedPlace) -> PathBuf {
    place.installation.home.join("quarantine")
}

/// The confinement of a job with this allowance. A container engine gives access to the whole
/// machine, so a view would only hinder it.
pub(crate) fn confinement(allowance: &Allowance) -> RunConfinement {
    match allowance {
        Allowance::Classes(classes) if !classes.contains(&ProtectedClass::ContainerEngine) => {
            RunConfinement::Guard(classes.iter().copied().collect())
        }
        Allowance::Classes(_) | Allowance::Everything => RunConfinement::None,
    }
}

/// The paths that a pattern names. One without wildcards need not exist.
fn expand(pattern: &str, home: &Path) -> Vec<PathBuf> {
    let (mut found, rest) = match pattern.strip_prefix("~/") {
        Some(rest) => (vec![home.to_owned()], rest),
        None => (vec![PathBuf::from("/")], pattern.trim_start_matches('/')),
    };
    for component in rest.split('/') {
        if !component.contains(['*', '?']) {
            found.iter_mut().for_each(|path| path.push(component));
            continue;
        }
        found = found
            .iter()
            .flat_map(|dir| children(dir))
            .filter(|path| {
                path.file_name().is_some_and(|name| pattern_matches(component, &name.to_string_lossy()))
            })
            .take(MAX_PATTERN_MATCHES)
            .collect();
    }
    found
}

fn children(dir: &Path) -> impl Iterator<Item = PathBuf> {
    std::fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path())
}

/// The path without symbolic links, if it exists. The real directories are remembered, because
/// there are many entries and few directories.
fn real_path<'a>(path: &'a Path, real_dirs: &mut HashMap<&'a Path, Option<PathBuf>>) -> Option<PathBuf> {
    let (dir, name) = (path.parent()?, path.file_name()?);
    let real_dir = real_dirs.entry(dir).or_insert_with(|| dir.canonicalize().ok()).as_ref()?;
    let real = real_dir.join(name);
    let found = real.symlink_metadata().ok()?;
    if found.is_symlink() { real.canonicalize().ok() } else { Some(real) }
}

/// The sockets directly in the user's runtime directory, whatever their names are.
fn runtime_sockets(uid: rustix::process::Uid) -> Vec<(PathBuf, ProtectedClass)> {
    let dir = PathBuf::from(format!("/run/user/{}", uid.as_raw()));
    let is_socket = |path: &PathBuf| path.metadata().is_ok_and(|meta| meta.file_type().is_socket());
    let with_class = |path: PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let is_agent = name.contains("agent") || name.contains("ssh");
        let class = if is_agent { ProtectedClass::SshAgent } else { ProtectedClass::DesktopSession };
        (path, class)
    };
    children(&dir).filter(is_socket).map(with_class).collect()
}

/// The directories between the home and an existing path, which commands must not rename. Renaming a
/// repository is harmless for what is outside of it.
fn parents_below<'a>(
    path: &'a Path,
    home: &'a Path,
    repositories: &'a Repositories,
) -> Box<dyn Iterator<Item = PathBuf> + 'a> {
    if repositories.links.contains(path) {
        return Box::new(std::iter::empty());
    }
    let git_dir = path.parent().filter(|parent| repositories.git_dirs.contains(*parent));
    if let Some(git_dir) = git_dir {
        return Box::new(std::iter::once(git_dir.to_owned()));
    }
    let above = path.ancestors().skip(1).take_while(move |dir| *dir != home && dir.starts_with(home));
    Box::new(above.map(Path::to_owned))
}

fn writable_dirs(home: &Path, cwd: &Path) -> Vec<ByteBuf> {
    let project = cwd.ancestors().find(|dir| dir.join(".git").exists()).unwrap_or(cwd);
    // A project that contains the home would make everything writable.
    let project = if home.starts_with(project) { cwd } else { project };
    let project = (!home.starts_with(project)).then(|| project.to_owned());
    let dirs = WRITABLE_DIRS.iter().flat_map(|dir| expand(dir, home));
    project.into_iter().chain(dirs).map(|path| to_bytes(&path)).collect()
}

fn to_bytes(path: &Path) -> ByteBuf {
    ByteBuf::from(path.as_os_str().as_bytes())
}
