//! Goes through the files below a directory in the order of their names, and leaves out what git ignores.
//!
//! The rules of git are those of ripgrep. Its walk is not used: that goes by paths, which may lead elsewhere by the time
//! they are opened, and takes as long as looking into the files does.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use hermes_guest::protocol::file::Scope;
use ignore::Match;
use ignore::gitignore::{Gitignore, GitignoreBuilder};
use rustix::fs::{AtFlags, CWD, Dir, FileType, OFlags};

use super::place::{Short, Tree, hold, open};
use super::read;

/// The longest file of rules that is read.
const LONGEST_RULES: u64 = 1024 * 1024;

/// Where a directory has its rules; the last one makes it a repository.
const RULES: [&str; 3] = [".ignore", ".gitignore", ".git"];

/// What is yet to come.
pub(super) struct Walk {
    tree: Tree,
    /// Where the tree is, for the rules.
    root: PathBuf,
    rules: Option<Rules>,
    /// The next one is at the end.
    pending: Vec<Pending>,
}

#[derive(Debug)]
struct Pending {
    /// Below the root; the root itself is empty.
    path: PathBuf,
    kind: Kind,
    /// How many directories are above it, the root included.
    depth: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    File,
    Directory,
}

impl Walk {
    /// Everything below a directory.
    pub(super) fn below(dir: OwnedFd, root: &Path, scope: Scope) -> Self {
        let top = Pending { path: PathBuf::new(), kind: Kind::Directory, depth: 0 };
        let rules = (scope == Scope::Tracked).then(|| Rules::above(root));
        Self { tree: Tree::new(dir), root: root.to_owned(), rules, pending: vec![top] }
    }

    /// A single file, whatever it is.
    pub(super) fn single(dir: OwnedFd, name: &OsStr) -> Self {
        let only = Pending { path: name.into(), kind: Kind::File, depth: 0 };
        Self { tree: Tree::new(dir), root: PathBuf::new(), rules: None, pending: vec![only] }
    }

    /// The next file, by its path below the root. An error is about one directory; the walk goes on.
    pub(super) fn next(&mut self) -> Option<io::Result<PathBuf>> {
        loop {
            let next = self.pending.pop()?;
            match next.kind {
                Kind::File => return Some(Ok(next.path)),
                Kind::Directory => {
                    if let Err(error) = self.enter(&next) {
                        return Some(Err(error));
                    }
                }
            }
        }
    }

    /// The tree that is walked through.
    pub(super) fn tree(&self) -> &Tree {
        &self.tree
    }

    /// Opens a file below the root without following a link.
    pub(super) fn open(&mut self, below: &Path) -> io::Result<(OwnedFd, Short)> {
        Ok(self.tree.open(below)?)
    }

    fn enter(&mut self, dir: &Pending) -> io::Result<()> {
        let held = self.tree.dir(&dir.path)?;
        let mut entries = Vec::new();
        let listed = open(held, OsStr::new("."), OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC)?;
        for entry in Dir::new(listed)? {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if name == b"." || name == b".." {
                continue;
            }
            let kind = match entry.file_type() {
                // Not every file system tells.
                FileType::Unknown => rustix::fs::statat(held, entry.file_name(), AtFlags::SYMLINK_NOFOLLOW)
                    .map_or(FileType::Unknown, |stat| FileType::from_raw_mode(stat.st_mode)),
                known => known,
            };
            entries.push((OsString::from_vec(name.to_vec()), kind));
        }
        entries.sort_unstable_by(|one, other| other.0.cmp(&one.0));
        if let Some(rules) = &mut self.rules {
            let has = RULES.map(|name| entries.iter().any(|entry| entry.0 == name));
            rules.enter(dir.depth, held, &self.root.join(&dir.path), has);
        }
        for (name, kind) in entries {
            let kind = match kind {
                FileType::RegularFile => Kind::File,
                FileType::Directory => Kind::Directory,
                _ => continue,
            };
            let path = dir.path.join(&name);
            if self.rules.as_ref().is_some_and(|rules| rules.leave_out(&self.root, &path, &name, kind)) {
                continue;
            }
            self.pending.push(Pending { path, kind, depth: dir.depth + 1 });
        }
        Ok(())
    }
}

/// The rules that hold in a directory.
struct Rules {
    /// Those of the directories that lead to it, the highest first.
    levels: Vec<Level>,
    /// How many of them are above the root.
    above: usize,
    /// Those of the user.
    global: Gitignore,
    /// Whether none of them says anything, which is mostly so.
    are_none: bool,
}

/// What one directory says.
#[derive(Default)]
struct Level {
    /// `.ignore`, `.gitignore` and `.git/info/exclude`, the first of which beats the others on all levels.
    files: [Option<Gitignore>; 3],
    /// What is above it says nothing about what git ignores.
    is_repository: bool,
}

impl Rules {
    fn above(root: &Path) -> Self {
        let global = GitignoreBuilder::new(root).build_global().0;
        let mut rules = Self { levels: Vec::new(), above: 0, global, are_none: false };
        let parents: Vec<&Path> = root.ancestors().skip(1).collect();
        for dir in parents.into_iter().rev() {
            let mut path = dir.to_owned();
            let mut is_there = |name: &str| {
                path.push(name);
                let found = rustix::fs::statat(CWD, &path, AtFlags::SYMLINK_NOFOLLOW).is_ok();
                path.pop();
                found
            };
            // One that we may not enter says nothing.
            let has = RULES.map(&mut is_there);
            let level = match has.contains(&true).then(|| hold(CWD, dir.as_os_str())) {
                Some(Ok(held)) => Level::read(&held, dir, has),
                _ => Level::default(),
            };
            rules.levels.push(level);
        }
        rules.above = rules.levels.len();
        rules
    }

    /// Adds the rules of a directory below those that are above it.
    fn enter(&mut self, depth: usize, held: &OwnedFd, path: &Path, has: [bool; 3]) {
        self.levels.truncate(self.above + depth);
        self.levels.push(Level::read(held, path, has));
        let is_silent = |level: &Level| level.files.iter().all(Option::is_none);
        self.are_none = self.global.is_empty() && self.levels.iter().all(is_silent);
    }

    fn leave_out(&self, root: &Path, below: &Path, name: &OsStr, kind: Kind) -> bool {
        let is_hidden = name.as_bytes().starts_with(b".");
        if self.are_none {
            return is_hidden;
        }
        match self.judge(&root.join(below), kind == Kind::Directory) {
            Match::Ignore(()) => true,
            Match::Whitelist(()) => false,
            Match::None => is_hidden,
        }
    }

    /// What the first rule says that says anything.
    fn judge(&self, path: &Path, is_dir: bool) -> Match<()> {
        for file in 0..3 {
            for level in self.levels.iter().rev() {
                let rules = level.files.get(file).and_then(Option::as_ref);
                match rules.map_or(Match::None, |rules| rules.matched(path, is_dir)) {
                    Match::None => {}
                    said => return said.map(|_| ()),
                }
                if file > 0 && level.is_repository {
                    break;
                }
            }
        }
        self.global.matched(path, is_dir).map(|_| ())
    }
}

impl Level {
    /// Reads those of the rules that the directory has.
    fn read(held: &OwnedFd, path: &Path, has: [bool; 3]) -> Self {
        let [ignore, gitignore, is_repository] = has;
        let from = |name: &str, is_there: bool| is_there.then(|| load(held, name, path)).flatten();
        let files = [
            from(".ignore", ignore),
            from(".gitignore", gitignore),
            from(".git/info/exclude", is_repository),
        ];
        Self { files, is_repository }
    }
}

/// The rules in a file, if it can be read and has any. Those that make no sense are left out, as git does.
fn load(dir: &OwnedFd, name: &str, root: &Path) -> Option<Gitignore> {
    let opened = open(dir, OsStr::new(name), read::READ | OFlags::NOFOLLOW | OFlags::CLOEXEC);
    let file = File::from(opened.ok()?);
    read::regular(&file).ok()?;
    let mut text = Vec::new();
    file.take(LONGEST_RULES).read_to_end(&mut text).ok()?;
    let mut builder = GitignoreBuilder::new(root);
    for line in String::from_utf8_lossy(&text).trim_start_matches('\u{feff}').lines() {
        let _senseless = builder.add_line(None, line);
    }
    builder.build().ok().filter(|rules| !rules.is_empty())
}
