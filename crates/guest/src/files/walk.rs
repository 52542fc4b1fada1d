//! Walks the files below a directory in the order of their names and skips the files that git
//! ignores.
//!
//! Ignore rules come from ripgrep's `ignore` crate. Its walker is not used: it opens files by path,
//! which another process may redirect, and takes as long as searching the files.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use ignore::Match;
use ignore::gitignore::{Gitignore, GitignoreBuilder};
use rustix::fs::{AtFlags, CWD, Dir, FileType, OFlags};

use super::read;
use super::resolve::{DirTree, open, open_dir_path};

const MAX_RULE_FILE_BYTES: u64 = 1024 * 1024;

/// Ignore files of a directory; `.git` marks a repository.
const RULE_FILES: [&str; 3] = [".ignore", ".gitignore", ".git"];

/// An ongoing walk.
pub(super) struct FileWalk {
    pub(super) tree: DirTree,
    /// The absolute path of the root, for ignore rules.
    root: PathBuf,
    rules: Option<IgnoreRules>,
    /// The next entry is the last element.
    pending: Vec<WalkEntry>,
}

#[derive(Debug)]
struct WalkEntry {
    /// Relative to the root; empty for the root itself.
    path: PathBuf,
    kind: FileType,
    /// Number of directories above it, including the root.
    depth: usize,
}

impl FileWalk {
    pub(super) fn below(dir: OwnedFd, root: &Path) -> Self {
        let top = WalkEntry { path: PathBuf::new(), kind: FileType::Directory, depth: 0 };
        let rules = Some(IgnoreRules::above_root(root));
        Self { tree: DirTree::new(dir), root: root.to_owned(), rules, pending: vec![top] }
    }

    /// A walk with a single file of any type.
    pub(super) fn single_file(dir: OwnedFd, name: &OsStr) -> Self {
        let only = WalkEntry { path: name.into(), kind: FileType::RegularFile, depth: 0 };
        Self { tree: DirTree::new(dir), root: PathBuf::new(), rules: None, pending: vec![only] }
    }

    /// The next file, relative to the root. An error concerns one directory; the walk continues.
    pub(super) fn next_file(&mut self) -> Option<io::Result<PathBuf>> {
        loop {
            let next = self.pending.pop()?;
            if !next.kind.is_dir() {
                return Some(Ok(next.path));
            }
            if let Err(error) = self.enter_dir(&next) {
                return Some(Err(error));
            }
        }
    }

    fn enter_dir(&mut self, dir: &WalkEntry) -> io::Result<()> {
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
                // Some file systems do not report the type.
                FileType::Unknown => rustix::fs::statat(held, entry.file_name(), AtFlags::SYMLINK_NOFOLLOW)
                    .map_or(FileType::Unknown, |stat| FileType::from_raw_mode(stat.st_mode)),
                known => known,
            };
            entries.push((OsString::from_vec(name.to_vec()), kind));
        }
        entries.sort_unstable_by(|one, other| other.0.cmp(&one.0));
        if let Some(rules) = &mut self.rules {
            let has = RULE_FILES.map(|name| entries.iter().any(|entry| entry.0 == name));
            rules.enter_dir(dir.depth, held, &self.root.join(&dir.path), has);
        }
        for (name, kind) in entries {
            if !kind.is_file() && !kind.is_dir() {
                continue;
            }
            let path = dir.path.join(&name);
            if self.rules.as_ref().is_none_or(|rules| !rules.is_excluded(&self.root, &path, &name, kind)) {
                self.pending.push(WalkEntry { path, kind, depth: dir.depth + 1 });
            }
        }
        Ok(())
    }
}

/// The ignore rules that apply in a directory.
struct IgnoreRules {
    /// Rules of the directories on the path, top first.
    levels: Vec<DirRules>,
    /// Number of levels above the root.
    levels_above_root: usize,
    /// The user's global gitignore.
    global: Gitignore,
    /// True if there are no rules at all, the usual case.
    is_empty: bool,
}

/// The rules of one directory.
#[derive(Default)]
struct DirRules {
    /// Rules of `.ignore`, `.gitignore` and `.git/info/exclude`. `.ignore` overrides the others on
    /// all levels.
    files: [Option<Gitignore>; 3],
    /// Git rules of directories above a repository do not apply in it.
    is_repository: bool,
}

impl IgnoreRules {
    fn above_root(root: &Path) -> Self {
        let global = GitignoreBuilder::new(root).build_global().0;
        let mut rules = Self { levels: Vec::new(), levels_above_root: 0, global, is_empty: false };
        let parents: Vec<&Path> = root.ancestors().skip(1).collect();
        for dir in parents.into_iter().rev() {
            // An inaccessible directory contributes no rules.
            let has = RULE_FILES
                .map(|name| rustix::fs::statat(CWD, dir.join(name), AtFlags::SYMLINK_NOFOLLOW).is_ok());
            let level = match has.contains(&true).then(|| open_dir_path(CWD, dir.as_os_str())) {
                Some(Ok(held)) => DirRules::read(&held, dir, has),
                _ => DirRules::default(),
            };
            rules.levels.push(level);
        }
        rules.levels_above_root = rules.levels.len();
        rules
    }

    /// Replaces the rules from this depth on by those of the entered directory.
    fn enter_dir(&mut self, depth: usize, held: &OwnedFd, path: &Path, has: [bool; 3]) {
        self.levels.truncate(self.levels_above_root + depth);
        self.levels.push(DirRules::read(held, path, has));
        let is_silent = |level: &DirRules| level.files.iter().all(Option::is_none);
        self.is_empty = self.global.is_empty() && self.levels.iter().all(is_silent);
    }

    fn is_excluded(&self, root: &Path, below: &Path, name: &OsStr, kind: FileType) -> bool {
        let is_hidden = name.as_bytes().starts_with(b".");
        if self.is_empty {
            return is_hidden;
        }
        match self.match_path(&root.join(below), kind.is_dir()) {
            Match::Ignore(()) => true,
            Match::Whitelist(()) => false,
            Match::None => is_hidden,
        }
    }

    /// The result of the first rule that matches.
    fn match_path(&self, path: &Path, is_dir: bool) -> Match<()> {
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

impl DirRules {
    /// Reads the ignore files that exist in the directory.
    fn read(held: &OwnedFd, path: &Path, has: [bool; 3]) -> Self {
        let [ignore, gitignore, is_repository] = has;
        let from = |name: &str, is_there: bool| is_there.then(|| load_rules(held, name, path)).flatten();
        let files = [
            from(".ignore", ignore),
            from(".gitignore", gitignore),
            from(".git/info/exclude", is_repository),
        ];
        Self { files, is_repository }
    }
}

/// Reads the rules of a file, or `None` if there are none. Invalid lines are skipped, as git does.
fn load_rules(dir: &OwnedFd, name: &str, root: &Path) -> Option<Gitignore> {
    let opened = open(dir, OsStr::new(name), read::READ_FLAGS | OFlags::NOFOLLOW | OFlags::CLOEXEC);
    let file = File::from(opened.ok()?);
    read::regular_metadata(&file).ok()?;
    let mut text = Vec::new();
    file.take(MAX_RULE_FILE_BYTES).read_to_end(&mut text).ok()?;
    let mut builder = GitignoreBuilder::new(root);
    for line in String::from_utf8_lossy(&text).trim_start_matches('\u{feff}').lines() {
        let _senseless = builder.add_line(None, line);
    }
    builder.build().ok().filter(|rules| !rules.is_empty())
}
