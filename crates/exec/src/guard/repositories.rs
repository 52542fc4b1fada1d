//! The git repositories whose hooks and settings the guard protects.
//!
//! Git runs them whenever the owner uses the repository, so a command could plant a program in a
//! repository that it never works in. A walk looks through the project, what is next to it, and the
//! home, nearest directories first, within limits of number and time. The result is kept in the
//! directory of the place for some minutes.

use std::collections::{BTreeSet, VecDeque};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const MAX_REPOSITORIES: usize = 128;
const MAX_DIRECTORIES: usize = 20_000;
const MAX_WALK_TIME: Duration = Duration::from_millis(150);
/// A repository that the owner creates is protected after at most this time.
const MAX_AGE: Duration = Duration::from_secs(300);
const FILE_NAME: &str = "repositories";

/// Directories of build results and packages, whose repositories the owner does not work in.
const SKIPPED: &[&str] =
    &["node_modules", "target", "__pycache__", "venv", "site-packages", "vendor", "build", "dist", "snap"];

/// What git reads of its directory when the owner uses a repository.
pub(super) const PROTECTED_NAMES: [&str; 4] = ["hooks", "config", "config.worktree", "commondir"];

/// The git directories that a walk found.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Repositories {
    pub(crate) git_dirs: BTreeSet<PathBuf>,
    /// The files `.git` of linked work trees and submodules.
    pub(crate) links: BTreeSet<PathBuf>,
    /// Whether the walk ended before a limit.
    pub(crate) is_complete: bool,
}

impl Repositories {
    /// The repositories as of a short time ago.
    pub(super) fn recent(home: &Path, cwd: &Path, place_dir: &Path) -> Self {
        let file = place_dir.join(FILE_NAME);
        let key = [home.as_os_str().as_bytes(), cwd.as_os_str().as_bytes()];
        if let Some(known) = Self::read(&file, key) {
            return known;
        }
        let found = Self::find(home, cwd);
        // Without the file, the next command walks again.
        drop(fs::write(file, found.to_bytes(key)));
        found
    }

    /// Walks the project and the home.
    pub(crate) fn find(home: &Path, cwd: &Path) -> Self {
        let deadline = Instant::now() + MAX_WALK_TIME;
        let mut walk =
            Walk { found: Self::default(), seen: BTreeSet::new(), left: MAX_DIRECTORIES, deadline };
        let project = cwd.ancestors().find(|dir| dir.join(".git").exists());
        for dir in project.into_iter().flat_map(Path::ancestors) {
            walk.add_git_entry(&dir.join(".git"));
        }
        let siblings = project.and_then(Path::parent).filter(|dir| dir.parent().is_some());
        let roots = [project.unwrap_or(cwd), siblings.unwrap_or(home), home];
        let is_complete = roots.into_iter().all(|root| walk.search(root));
        Self { is_complete, ..walk.found }
    }

    fn read(file: &Path, key: [&[u8]; 2]) -> Option<Self> {
        let age = fs::metadata(file).ok()?.modified().ok()?.elapsed().ok()?;
        let bytes = fs::read(file).ok().filter(|_| age < MAX_AGE)?;
        let mut parts = bytes.strip_suffix(b"\0")?.split(|byte| *byte == 0);
        if key.iter().any(|key| parts.next() != Some(key)) {
            return None;
        }
        let mut found = Self { is_complete: parts.next()? == b"complete", ..Self::default() };
        for part in parts {
            let path = PathBuf::from(OsString::from_vec(part.get(1..)?.to_vec()));
            match part.first()? {
                b'd' => found.git_dirs.insert(path),
                _ => found.links.insert(path),
            };
        }
        Some(found)
    }

    fn to_bytes(&self, key: [&[u8]; 2]) -> Vec<u8> {
        let state = if self.is_complete { "complete" } else { "partial" };
        let dirs = self.git_dirs.iter().map(|path| [b"d", path.as_os_str().as_bytes()].concat());
        let links = self.links.iter().map(|path| [b"l", path.as_os_str().as_bytes()].concat());
        let parts = key.iter().map(|key| key.to_vec()).chain([state.into()]).chain(dirs).chain(links);
        parts.flat_map(|part| [part, vec![0]].concat()).collect()
    }
}

struct Walk {
    found: Repositories,
    seen: BTreeSet<PathBuf>,
    left: usize,
    deadline: Instant,
}

impl Walk {
    /// Looks through a tree. Returns whether it came to its end.
    fn search(&mut self, root: &Path) -> bool {
        let mut next = VecDeque::from([root.to_owned()]);
        while let Some(dir) = next.pop_front() {
            if !self.seen.insert(dir.clone()) {
                continue;
            }
            if self.left == 0
                || self.found.git_dirs.len() >= MAX_REPOSITORIES
                || Instant::now() > self.deadline
            {
                return false;
            }
            self.left -= 1;
            let entries: Vec<_> = fs::read_dir(&dir).into_iter().flatten().flatten().collect();
            let has = |name: &str| entries.iter().any(|entry| entry.file_name() == name);
            if has("HEAD") && has("objects") && has("refs") {
                self.add_git_dir(dir);
                continue;
            }
            for entry in &entries {
                let name = entry.file_name();
                if name == ".git" {
                    self.add_git_entry(&entry.path());
                } else if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                    if !name.as_bytes().starts_with(b".") && !SKIPPED.iter().any(|skipped| name == *skipped) {
                        next.push_back(entry.path());
                    } else if dir == root {
                        self.add_git_entry(&entry.path().join(".git"));
                    }
                }
            }
        }
        true
    }

    /// A directory, or a file that names one.
    fn add_git_entry(&mut self, path: &Path) {
        if path.is_dir() {
            self.add_git_dir(path.to_owned());
        } else if let Ok(text) = fs::read(path)
            && let Some(named) = text.trim_ascii().strip_prefix(b"gitdir: ")
        {
            self.found.links.insert(path.to_owned());
            let git_dir = path.with_file_name(OsStr::from_bytes(named));
            let common = fs::read(git_dir.join("commondir")).ok();
            let common = common.map(|text| git_dir.join(OsStr::from_bytes(text.trim_ascii())));
            for dir in common.into_iter().chain([git_dir]).filter_map(|dir| dir.canonicalize().ok()) {
                self.add_git_dir(dir);
            }
        }
    }

    fn add_git_dir(&mut self, dir: PathBuf) {
        for below in ["modules", "worktrees"] {
            let dirs = fs::read_dir(dir.join(below)).into_iter().flatten().flatten();
            self.found.git_dirs.extend(dirs.map(|entry| entry.path()).take(MAX_REPOSITORIES));
        }
        self.found.git_dirs.insert(dir);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn home() -> tempfile::TempDir {
        let home = tempfile::tempdir().unwrap();
        for dir in [
            "src/a/b/repo/.git/hooks", "src/a/b/repo/.git/modules/sub", "src/a/b/repo/.git/worktrees/tree",
            "src/a/b/repo/sub", "tree/deep", ".dotfiles/.git", "srv/bare/objects", "srv/bare/refs",
            "plain/x", "app/node_modules/pkg/.git",
        ] {
            fs::create_dir_all(home.path().join(dir)).unwrap();
        }
        let files = [
            ("src/a/b/repo/sub/.git", "gitdir: ../.git/modules/sub\n"),
            ("tree/.git", "gitdir: ../src/a/b/repo/.git/worktrees/tree\n"),
            ("src/a/b/repo/.git/worktrees/tree/commondir", "../..\n"),
            ("srv/bare/HEAD", "ref: refs/heads/main\n"),
        ];
        for (file, text) in files {
            fs::write(home.path().join(file), text).unwrap();
        }
        home
    }

    #[test]
    fn repositories_at_any_depth_are_found() {
        let home = home();
        let home = home.path().canonicalize().unwrap();
        let found = Repositories::find(&home, &home.join("tree/deep"));
        let paths = |names: &[&str]| names.iter().map(|name| home.join(name)).collect::<BTreeSet<_>>();
        let expected = Repositories {
            git_dirs: paths(&[
                ".dotfiles/.git", "src/a/b/repo/.git", "src/a/b/repo/.git/modules/sub",
                "src/a/b/repo/.git/worktrees/tree", "srv/bare",
            ]),
            links: paths(&["src/a/b/repo/sub/.git", "tree/.git"]),
            is_complete: true,
        };
        assert_eq!(found, expected);
        // A linked work tree leads to its repository, wherever that is.
        let elsewhere = tempfile::tempdir().unwrap();
        let found = Repositories::find(elsewhere.path(), &home.join("tree/deep"));
        assert!(found.git_dirs.contains(&home.join("src/a/b/repo/.git")), "{found:?}");
    }

    #[test]
    fn a_walk_is_remembered_for_its_directories_only() {
        let home = home();
        let place = tempfile::tempdir().unwrap();
        let found = Repositories::recent(home.path(), home.path(), place.path());
        fs::create_dir_all(home.path().join("later/.git")).unwrap();
        assert_eq!(Repositories::recent(home.path(), home.path(), place.path()), found);
        let other = Repositories::recent(home.path(), &home.path().join("plain"), place.path());
        assert_eq!(other.git_dirs.len(), found.git_dirs.len() + 1);
    }

    #[test]
    fn a_walk_that_reaches_a_limit_says_so() {
        let home = tempfile::tempdir().unwrap();
        for number in 0..=MAX_REPOSITORIES {
            fs::create_dir_all(home.path().join(format!("{number}/.git"))).unwrap();
        }
        let found = Repositories::find(home.path(), home.path());
        assert_eq!((found.git_dirs.len(), found.is_complete), (MAX_REPOSITORIES, false));
    }
}
