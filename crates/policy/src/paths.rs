//! Paths as text, made absolute and normal without looking at any file system, and classified by
//! their purpose.
//!
//! A path may contain patterns and placeholders for unknown parts. A pattern counts as the worst
//! path it may match: `/e?c` may be `/etc`. A placeholder matches only itself: each rule decides
//! about unknown paths.

use std::collections::HashMap;
use std::sync::LazyLock;

use crate::protected::{ProtectedKind, protected_files, protected_paths};
use crate::shell::{UNKNOWN_CHAR, pattern_matches};

mod tables;

pub(crate) use tables::is_regenerable;
use tables::{
    CREDENTIAL_NAMES, CREDENTIAL_TREES, HOME_PARENTS, PLAIN_DEVICES, SECRET_SUFFIXES, STARTUP_NAMES,
    STARTUP_TREES, SYSTEM_DIRECTORIES, WORK_TREES, WRITABLE_SYSTEM,
};

/// An absolute path without `.`, `..` and doubled slashes.
pub(crate) fn normalize(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => match parts.last() {
                Some(last) if last.contains(UNKNOWN_CHAR) => parts.push(".."),
                _ => {
                    parts.pop();
                }
            },
            other => parts.push(other),
        }
    }
    // Other names of the same tree.
    loop {
        let is_process = |name: &str| {
            matches!(name, "self" | "thread-self")
                || name.contains(UNKNOWN_CHAR)
                || name.bytes().all(|byte| byte.is_ascii_digit())
        };
        let skipped = match parts.as_slice() {
            ["proc", process, "root", ..] if is_process(process) => 3,
            ["System", "Volumes", "Data", ..] => 3,
            ["private", "etc" | "var" | "tmp" | "home", ..] => 1,
            _ => break,
        };
        parts.drain(..skipped);
    }
    let root = if path.starts_with(UNKNOWN_CHAR) { "" } else { "/" };
    format!("{root}{}", parts.join("/"))
}

/// The path a word names in a directory. Without a known directory a relative path starts with a
/// placeholder.
pub(crate) fn resolve(word: &str, cwd: Option<&str>) -> String {
    let word = word.strip_prefix("file://").unwrap_or(word);
    if word.starts_with('/') || word.starts_with(UNKNOWN_CHAR) {
        return normalize(word);
    }
    match cwd {
        Some(cwd) => normalize(&format!("{cwd}/{word}")),
        // Wherever that is, it is the directory the command runs in, and not just anything.
        None if matches!(word, "." | "./" | "") => format!("{UNKNOWN_CHAR}/here"),
        None => normalize(&format!("{UNKNOWN_CHAR}/{word}")),
    }
}

fn starts_with_any(path: &str, starts: &[&str]) -> bool {
    starts.iter().any(|start| path.starts_with(start))
}

/// Terminals, pipes and the null device: writing there changes nothing.
pub(crate) fn is_stream(path: &str) -> bool {
    let descriptor = path.strip_prefix("/dev/fd/").or_else(|| path.strip_prefix("/proc/self/fd/"));
    PLAIN_DEVICES.contains(&path)
        // Below the number of an open directory lie its files.
        || descriptor.is_some_and(|number| !number.contains('/'))
        || starts_with_any(path, &["/dev/pts/", "/dev/tcp/", "/dev/udp/"])
}

/// Directories that every user may write to, so another user may have put a program there.
pub(crate) fn is_shared_temporary(path: &str) -> bool {
    starts_with_any(path, &["/tmp/", "/var/tmp/", "/dev/shm/", "/run/user/"])
}

/// Whether a directory is, or lies in, a tree that holds keys.
pub(crate) fn is_secret_tree(path: &str) -> bool {
    path.split('/')
        .any(|part| part.starts_with('.') || matches!(part, "Keychains" | "etc" | "proc" | "secrets"))
}

/// Whether a bare name is that of a file that holds keys.
pub(crate) fn is_secret_name(name: &str) -> bool {
    CREDENTIAL_NAMES.contains(&name)
}

/// Directories of installed programs.
pub(crate) fn is_program_directory(path: &str) -> bool {
    starts_with_any(path, &["/bin/", "/sbin/", "/usr/bin/", "/usr/sbin/", "/usr/local/bin/"])
}

/// A file that decides which users exist and what they may do.
pub(crate) fn is_account_file(path: &str) -> bool {
    let files = [
        "/etc/passwd", "/etc/shadow", "/etc/group", "/etc/gshadow", "/etc/sudoers", "/etc/ssh", "/etc/pam.d",
    ];
    starts_with_any(path, &files)
}

/// The directories of the owner, and the questions that rules ask about paths.
#[derive(Debug, Clone, Copy)]
pub(crate) struct KnownPaths<'a> {
    pub(crate) home: &'a str,
    pub(crate) hermes_home: &'a str,
    pub(crate) cwd: &'a str,
    /// Directories of the owner that are mounted into the environment.
    pub(crate) owned: &'a [String],
    /// The working directory is a project: its files are no keys, settings or system files of the
    /// owner.
    works_here: bool,
}

impl<'a> KnownPaths<'a> {
    /// The model chooses the working directory, so it counts as a project only if it looks like
    /// one.
    pub(crate) fn new(home: &'a str, hermes_home: &'a str, cwd: &'a str, owned: &'a [String]) -> Self {
        let mut marks = Self { home, hermes_home, cwd, owned, works_here: false };
        let here = normalize(cwd);
        let file = format!("{here}/file");
        let too_high = here == "/"
            || here == normalize(home)
            || is_below(home, &here)
            || marks.is_system_directory(&here);
        let system = marks.is_system(&file) && !WORK_TREES.iter().any(|tree| is_below(&here, tree));
        marks.works_here = !(too_high || system || marks.is_credential(&file) || marks.is_startup(&file));
        marks
    }

    /// The root itself, or everything in it.
    pub(crate) fn is_root(&self, path: &str) -> bool {
        let path = strip_wildcard_tail(path);
        path == "/" || path.is_empty()
    }

    /// A directory the system needs, or everything in it.
    pub(crate) fn is_system_directory(&self, path: &str) -> bool {
        let path = strip_wildcard_tail(path);
        SYSTEM_DIRECTORIES.iter().any(|directory| matches_path(path, directory))
    }

    /// The home directory of any user, or everything in it.
    pub(crate) fn is_home(&self, path: &str) -> bool {
        let path = strip_wildcard_tail(path);
        if matches_path(path, self.home) || path == "/root" || matches_path(path, "/var/root") {
            return true;
        }
        let mut parts = path.split('/').skip(1);
        let (Some(top), Some(_user), None) = (parts.next(), parts.next(), parts.next()) else { return false };
        HOME_PARENTS.iter().any(|parent| pattern_matches(top, parent))
    }

    /// A directory of the owner that was mounted, or everything in it, or a directory above it.
    pub(crate) fn is_owned_root(&self, path: &str) -> bool {
        let path = strip_wildcard_tail(path);
        self.owned.iter().any(|owned| matches_path(path, owned) || is_below(owned, path))
    }

    /// Anything in a directory of the owner, the directory itself, or one above it.
    pub(crate) fn touches_owned(&self, path: &str) -> bool {
        let unknown = path.strip_prefix('/').unwrap_or(path).starts_with(UNKNOWN_CHAR);
        unknown || self.is_owned_root(path) || self.is_in_owned(path)
    }

    /// Anything in a directory of the owner that was mounted.
    pub(crate) fn is_in_owned(&self, path: &str) -> bool {
        self.owned.iter().any(|owned| matches_below(path, owned))
    }

    /// A directory that holds the home, the working directory or the root of the tree.
    pub(crate) fn is_above_work(&self, path: &str) -> bool {
        let path = strip_wildcard_tail(path);
        is_below(self.cwd, path) || is_below(self.home, path)
    }

    /// The working directory itself, or everything in it.
    pub(crate) fn is_cwd(&self, path: &str) -> bool {
        strip_wildcard_tail(path) == normalize(self.cwd)
    }

    /// Hermes' own home, or anything in it.
    pub(crate) fn is_hermes(&self, path: &str) -> bool {
        let home = normalize(self.hermes_home);
        let usual = format!("{}/.hermes", self.home);
        let another = |path: &str| {
            let mut parts = path.split('/').skip(1);
            let (first, second, third) = (parts.next(), parts.next(), parts.next());
            (first.is_some_and(|first| HOME_PARENTS.contains(&first)) && third == Some(".hermes"))
                || (first == Some("root") && second == Some(".hermes"))
        };
        is_at_or_below(path, &home) || is_at_or_below(path, &usual) || another(path)
    }

    /// Inside a directory that belongs to the system, below its top.
    pub(crate) fn is_system(&self, path: &str) -> bool {
        if is_stream(path) || WRITABLE_SYSTEM.iter().any(|start| matches_below(path, start)) {
            return false;
        }
        let inside_work = is_below(path, self.home) || (is_below(path, self.cwd) && self.works_here);
        !inside_work && SYSTEM_DIRECTORIES.iter().any(|directory| is_at_or_below(path, directory))
    }

    /// A temporary directory or the user's cache. A home directory below `/tmp` is not temporary.
    pub(crate) fn is_temporary(&self, path: &str) -> bool {
        let below_home = path.strip_prefix(self.home).filter(|rest| rest.starts_with('/'));
        let rest = below_home.unwrap_or(path);
        (below_home.is_none() && is_shared_temporary(path))
            || (below_home.is_some() && is_below(rest, "/.cache"))
            || rest.split('/').any(|part| matches!(part, "tmp" | ".tmp" | "temp"))
    }

    /// Below `/tmp`, and not in a home directory there.
    pub(crate) fn is_in_tmp(&self, path: &str) -> bool {
        path.starts_with("/tmp/") && !is_below(path, self.home)
    }

    /// Inside the working directory.
    pub(crate) fn is_project(&self, path: &str) -> bool {
        self.works_here && is_below(path, &normalize(self.cwd))
    }

    /// A file that holds keys, tokens or passwords.
    pub(crate) fn is_credential(&self, path: &str) -> bool {
        let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
        let Some(name) = parts.last() else { return false };
        if name.ends_with(".pub") || is_template(name) || matches!(*name, "known_hosts" | "allowed_signers") {
            return false;
        }
        fits_name(name, CREDENTIAL_NAMES)
            || (name.starts_with(".env.") && !name.contains('*'))
            || SECRET_SUFFIXES.iter().any(|suffix| name.ends_with(suffix))
            || CREDENTIALS.contain(&parts)
            || (parts.first() == Some(&"proc") && matches!(*name, "environ" | "mem"))
    }

    /// A directory in whose tree the owner keeps keys, or a pattern that fits files with keys.
    pub(crate) fn is_above_credentials(&self, path: &str, tree: bool) -> bool {
        let (top, tree) = path.split_once("/**").map_or((path, tree), |(top, _)| (top, true));
        if tree && (self.is_root(top) || self.is_home(top) || top == "/home") {
            return true;
        }
        let parts: Vec<&str> = top.split('/').filter(|part| !part.is_empty()).collect();
        let home: Vec<&str> = self.home.split('/').filter(|part| !part.is_empty()).collect();
        let fits = |parts: &[&str], wanted: &[&str]| {
            (tree || parts.len() >= wanted.len())
                && parts.iter().zip(wanted).all(|(part, wanted)| may_be(part, wanted))
        };
        fits(&parts, &home)
            && HIDDEN_AT_HOME.iter().any(|wanted| fits(parts.get(home.len()..).unwrap_or_default(), wanted))
    }

    /// A project file that holds settings and secrets.
    pub(crate) fn is_project_secret(&self, path: &str) -> bool {
        let name = path.rsplit('/').next().unwrap_or_default();
        !is_template(name)
            && (name == ".env" || name.starts_with(".env.") || name == "config.yaml" || name == ".envrc")
    }

    /// A file that is run at login, at boot, on a schedule, or by a tool that trusts it.
    pub(crate) fn is_startup(&self, path: &str) -> bool {
        let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
        let Some(name) = parts.last() else { return false };
        fits_name(name, STARTUP_NAMES) || name.ends_with(".pth") || STARTUP.contain(&parts)
    }

    /// A whole disk, a partition or the memory of the machine.
    pub(crate) fn is_disk(&self, path: &str) -> bool {
        let Some(name) = path.strip_prefix("/dev/") else { return false };
        if is_stream(path) || name.starts_with("shm/") {
            return false;
        }
        let first = name.split('/').next().unwrap_or_default();
        let starts = [
            "sd", "hd", "vd", "xvd", "nvme", "mmcblk", "dm-", "md", "loop", "zd", "nbd", "rbd", "disk",
            "rdisk", "sr", "bcache", "pmem", "ram", "ada", "da", "mtd", "ubi",
        ];
        let exact = ["mapper", "block", "disk", "mem", "kmem", "port", "zvol", "cdrom", "root"];
        starts.iter().any(|start| first.starts_with(start))
            || exact.contains(&first)
            || (first.contains(['*', '?', '[', UNKNOWN_CHAR])
                && ["sda", "nvme0n1", "vda", "hda", "mmcblk0"]
                    .iter()
                    .any(|disk| pattern_matches(first, disk)))
    }

    /// A setting of the running kernel.
    pub(crate) fn is_kernel_setting(&self, path: &str) -> bool {
        path == "/proc/sysrq-trigger"
            || path.starts_with("/proc/sys/")
            || (path.starts_with("/sys/") && !path.starts_with("/sys/fs/cgroup/user"))
    }
}

/// The names of the hidden paths below the home directory.
static HIDDEN_AT_HOME: LazyLock<Vec<Vec<&str>>> = LazyLock::new(|| {
    protected_paths()
        .filter(|known| known.kind == ProtectedKind::Hidden)
        .filter_map(|known| Some(known.path.strip_prefix("~/")?.split('/').collect()))
        .collect()
});

/// Whether a file shows how another one looks, without its secrets.
fn is_template(name: &str) -> bool {
    [".example", ".sample", ".template", ".dist"].iter().any(|end| name.ends_with(end))
}

/// Trees by their first part, wherever they lie.
struct Trees(HashMap<&'static str, Vec<&'static str>>);

static CREDENTIALS: LazyLock<Trees> = LazyLock::new(|| Trees::new(ProtectedKind::Hidden, CREDENTIAL_TREES));
static STARTUP: LazyLock<Trees> = LazyLock::new(|| Trees::new(ProtectedKind::ReadOnly, STARTUP_TREES));

impl Trees {
    fn new(kind: ProtectedKind, more: &[&'static str]) -> Self {
        let mut trees: HashMap<&str, Vec<&str>> = HashMap::new();
        for tree in protected_files(kind).chain(more.iter().copied()) {
            let first = tree.split('/').next().unwrap_or_default();
            trees.entry(if first.contains('*') { "*" } else { first }).or_default().push(tree);
        }
        Self(trees)
    }

    /// Whether the parts of a path contain those of a tree in a row.
    fn contain(&self, parts: &[&str]) -> bool {
        let starts = |at: usize, tree: &str| {
            let mut rest = parts.get(at..).unwrap_or_default().iter();
            // At the root, one letter says enough: `/e*/shadow`.
            let same = |depth: usize, part: &str, name: &str| {
                may_name(part, name) || (at + depth == 0 && tree.contains('/') && pattern_matches(part, name))
            };
            tree.split('/')
                .enumerate()
                .all(|(depth, name)| rest.next().is_some_and(|part| same(depth, part, name)))
        };
        parts.iter().enumerate().any(|(at, part)| {
            if is_specific(part) || (at == 0 && part.contains(['*', '?', '['])) {
                return self.0.values().flatten().any(|tree| starts(at, tree));
            }
            [*part, "*"].iter().filter_map(|first| self.0.get(first)).flatten().any(|tree| starts(at, tree))
        })
    }
}

/// Whether a part of a path, which may be a pattern, may be the part of a known path, which may be one too.
fn may_name(part: &str, wanted: &str) -> bool {
    part == wanted
        || (is_specific(part) && pattern_matches(part, wanted.trim_end_matches('*')))
        || (wanted.contains('*') && pattern_matches(wanted, part))
}

/// Whether the last part of a path may be one of these names.
fn fits_name(name: &str, names: &[&str]) -> bool {
    names.contains(&name) || (is_specific(name) && names.iter().any(|wanted| pattern_matches(name, wanted)))
}

/// Whether a part of a path, which may be a pattern, fits a known name. A star fits no hidden name.
fn may_be(part: &str, wanted: &str) -> bool {
    part == wanted
        || (wanted.contains('*') && pattern_matches(wanted, part))
        || (part.contains(['*', '?', '['])
            && (!wanted.starts_with('.') || part.starts_with(['.', '[']))
            && pattern_matches(part, wanted))
}

/// Whether a pattern says enough to be meant for one name: `id_*` does, `*.json` does not.
fn is_specific(part: &str) -> bool {
    if !part.contains(['*', '?', '[']) {
        return false;
    }
    let stem = match part.rsplit_once('.') {
        Some((stem, _)) if part.starts_with('*') => stem,
        _ => part,
    };
    let characters = stem.chars().filter(|char| char.is_ascii_alphanumeric()).count();
    characters >= 2 || (characters == 1 && part.starts_with('.'))
}

/// A path without a last part that stands for everything: `/etc/*` is `/etc` as far as deleting
/// goes.
fn strip_wildcard_tail(path: &str) -> &str {
    let everything = ["*", ".*", "**", ".[!.]*", ".??*", "?*", ".[^.]*", "[!.]*", "{*,.*}"];
    let mut path = path;
    while let Some((head, tail)) = path.rsplit_once('/')
        && everything.contains(&tail)
    {
        path = if head.is_empty() { return "/" } else { head };
    }
    path
}

/// Whether a path, which may hold patterns, is this one.
fn matches_path(path: &str, wanted: &str) -> bool {
    if path == wanted {
        return true;
    }
    if !path.contains(['*', '?', '[']) {
        return false;
    }
    let is_match = |(part, other): (&str, &str)| !part.contains(UNKNOWN_CHAR) && pattern_matches(part, other);
    path.split('/').count() == wanted.split('/').count()
        && path.split('/').zip(wanted.split('/')).all(is_match)
}

/// Whether a path, which may hold patterns, is this one or lies below it.
fn is_at_or_below(path: &str, start: &str) -> bool {
    matches_path(path, start) || matches_below(path, start)
}

/// Whether a path, which may hold patterns, lies below this one.
fn matches_below(path: &str, start: &str) -> bool {
    if is_below(path, start) {
        return true;
    }
    let depth = start.split('/').count();
    let parts: Vec<&str> = path.split('/').collect();
    parts.len() > depth && parts.get(..depth).is_some_and(|head| matches_path(&head.join("/"), start))
}

/// Whether a path lies strictly below another.
pub(crate) fn is_below(path: &str, top: &str) -> bool {
    if top == "/" {
        return path.len() > 1 && path.starts_with('/');
    }
    path.strip_prefix(top).is_some_and(|rest| rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_become_absolute_and_normal() {
        for (word, expected) in [
            ("//", "/"),
            ("/./", "/"),
            ("/usr/../etc//passwd", "/etc/passwd"),
            ("x/../../y", "/home/ada/y"),
            ("/proc/self/root/etc/passwd", "/etc/passwd"),
            ("/private/etc/hosts", "/etc/hosts"),
            ("../../../../..", "/"),
            ("build", "/home/ada/work/build"),
        ] {
            assert_eq!(resolve(word, Some("/home/ada/work")), expected, "{word}");
        }
        assert_eq!(resolve("build", None), "\u{0}/build");
    }
}
