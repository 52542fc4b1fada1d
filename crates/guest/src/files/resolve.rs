//! Path resolution that cannot be redirected: a resolved path holds its parent directory open, so
//! later changes to directories above it have no effect.

use std::ffi::{OsStr, OsString};
use std::fs::{File, Metadata};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use hermes_guest::protocol::file::{FileError, ParentDirs};
use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;
use serde_bytes::ByteBuf;

use super::read;
use crate::shell::state::ShellState;

/// The kernel's own limit on symbolic links in one path.
const MAX_LINKS: usize = 40;

/// `O_PATH` needs only search permission on a directory.
const PATH_FLAGS: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// A name in an open directory. No symbolic link is followed after resolution.
#[derive(Debug)]
pub(crate) struct ResolvedPath {
    pub(super) dir: OwnedFd,
    pub(super) name: OsString,
    /// The absolute path without symbolic links.
    pub(super) real_path: PathBuf,
}

/// How to treat a symbolic link in the last component of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FinalLink {
    /// Follow it, as in every other component.
    Follow,
    /// Operate on the link itself.
    NoFollow,
}

impl ResolvedPath {
    /// Resolves a path and checks that it leads to the path that the gate judged.
    pub(crate) fn resolve(
        path: &[u8],
        expected: &[u8],
        final_link: FinalLink,
        parents: ParentDirs,
    ) -> Result<Self, FileError> {
        let real = follow_links(path, final_link)?;
        if real.as_os_str().as_bytes() != expected {
            return Err(resolves_elsewhere(real));
        }
        let mut dir = open_dir_path(CWD, OsStr::new("/"))?;
        for part in real.parent().unwrap_or(Path::new("/")).iter().skip(1) {
            dir = enter_or_create(&dir, part, parents).map_err(|errno| path_error(errno, &real))?;
        }
        let name = real.file_name().unwrap_or(OsStr::new(".")).to_owned();
        Ok(Self { dir, name, real_path: real })
    }

    /// Opens the file. Fails if a symbolic link appeared there after resolution.
    pub(super) fn open(&self, flags: OFlags) -> Result<OwnedFd, FileError> {
        open(&self.dir, &self.name, flags | OFlags::NOFOLLOW | OFlags::CLOEXEC)
            .map_err(|errno| path_error(errno, &self.real_path))
    }

    /// Opens the file with `O_PATH`, for metadata only.
    pub(super) fn open_path(&self) -> Result<File, FileError> {
        self.open(PATH_FLAGS).map(File::from)
    }

    /// The metadata of the file, or `None` if it does not exist. A symbolic link here appeared
    /// after resolution and is an error.
    pub(super) fn metadata(&self) -> Result<Option<Metadata>, FileError> {
        let found = match self.open_path() {
            Err(FileError::Os { errno: libc::ENOENT }) => return Ok(None),
            held => held?.metadata()?,
        };
        if found.is_symlink() { Err(path_error(Errno::LOOP, &self.real_path)) } else { Ok(Some(found)) }
    }
}

/// A directory tree in which files are opened without following any symbolic link.
#[derive(Debug)]
pub(super) struct DirTree {
    root: OwnedFd,
    /// The directory of the last file: usually the next file is in the same one.
    last_dir: Option<(PathBuf, OwnedFd, ShortRead)>,
}

/// The meaning of a short read of a regular file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ShortRead {
    /// The end of the file.
    EndOfFile,
    /// More data may follow.
    Inconclusive,
}

impl ShortRead {
    /// Common local file systems only return short reads at the end of a file.
    fn on_filesystem_of(dir: &OwnedFd) -> Self {
        const EXT: u32 = 0xef53;
        const XFS: u32 = 0x5846_5342;
        const BTRFS: u32 = 0x9123_683e;
        const TMPFS: u32 = 0x0102_1994;
        const OVERLAY: u32 = 0x794c_7630;
        match rustix::fs::fstatfs(dir).map(|found| found.f_type as u32) {
            Ok(EXT | XFS | BTRFS | TMPFS | OVERLAY) => Self::EndOfFile,
            _ => Self::Inconclusive,
        }
    }
}

impl DirTree {
    pub(super) fn new(root: OwnedFd) -> Self {
        Self { root, last_dir: None }
    }

    /// A handle to the same tree for another thread.
    pub(super) fn try_clone(&self) -> io::Result<Self> {
        Ok(Self::new(self.root.try_clone()?))
    }

    /// Opens a file below the root for reading.
    pub(super) fn open(&mut self, below: &Path) -> Result<(OwnedFd, ShortRead), Errno> {
        let name = below.file_name().unwrap_or(OsStr::new("."));
        let (_, dir, short_read) = self.enter(below.parent().unwrap_or(Path::new("")))?;
        Ok((open(dir, name, read::READ_FLAGS | OFlags::NOFOLLOW | OFlags::CLOEXEC)?, *short_read))
    }

    pub(super) fn dir(&mut self, below: &Path) -> Result<&OwnedFd, Errno> {
        Ok(&self.enter(below)?.1)
    }

    fn enter(&mut self, below: &Path) -> Result<&(PathBuf, OwnedFd, ShortRead), Errno> {
        let dir = match self.last_dir.take() {
            Some(final_link) if final_link.0.as_os_str() == below.as_os_str() => final_link,
            _ => {
                let mut dir = self.root.try_clone().map_err(|_full| Errno::MFILE)?;
                for part in below {
                    dir = open_dir_path(&dir, part)?;
                }
                let short_read = ShortRead::on_filesystem_of(&dir);
                (below.to_owned(), dir, short_read)
            }
        };
        Ok(self.last_dir.insert(dir))
    }
}

/// Makes a path absolute: `~` is the session's home, relative paths start at the session's
/// directory.
pub(crate) fn absolute_path(path: &[u8], session: Option<&ShellState>) -> Result<Vec<u8>, FileError> {
    if path.contains(&0) {
        return Err(Errno::INVAL.into());
    }
    if path.starts_with(b"/") {
        return Ok(path.to_vec());
    }
    let state = session.ok_or(FileError::NotAbsolute)?;
    if let Some(rest) = path.strip_prefix(b"~").filter(|rest| rest.is_empty() || rest.starts_with(b"/")) {
        let home = state.env.get(b"HOME".as_slice()).filter(|home| home.starts_with(b"/"));
        return Ok([home.ok_or(FileError::NotAbsolute)?.as_slice(), rest].concat());
    }
    Ok([state.cwd.as_slice(), b"/", path].concat())
}

/// Follows all symbolic links of an absolute path. Trailing components need not exist.
fn follow_links(path: &[u8], final_link: FinalLink) -> Result<PathBuf, FileError> {
    let mut real = PathBuf::from("/");
    // The next component is the last element.
    let mut rest = reversed_components(path);
    let (mut links, mut is_there) = (0, true);
    while let Some(part) = rest.pop() {
        match part.as_slice() {
            b"" | b"." => continue,
            b".." if !is_there => return Err(Errno::NOENT.into()),
            b".." => {
                real.pop();
                continue;
            }
            name => real.push(OsStr::from_bytes(name)),
        }
        if !is_there || (rest.is_empty() && final_link == FinalLink::NoFollow) {
            continue;
        }
        match rustix::fs::readlinkat(CWD, &real, Vec::new()) {
            Ok(target) => {
                links += 1;
                if links > MAX_LINKS {
                    return Err(Errno::LOOP.into());
                }
                real.pop();
                if target.as_bytes().starts_with(b"/") {
                    real = PathBuf::from("/");
                }
                rest.extend(reversed_components(target.as_bytes()));
            }
            Err(Errno::INVAL) => {}
            Err(Errno::NOENT) => is_there = false,
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(real)
}

/// The components of a path, in reverse order.
fn reversed_components(path: &[u8]) -> Vec<Vec<u8>> {
    path.split(|byte| *byte == b'/').rev().map(<[u8]>::to_vec).collect()
}

pub(super) fn open(dir: impl AsFd, name: &OsStr, flags: OFlags) -> Result<OwnedFd, Errno> {
    rustix::fs::openat(dir, name, flags, Mode::empty())
}

/// Opens a directory with `O_PATH`.
pub(super) fn open_dir_path(dir: impl AsFd, name: &OsStr) -> Result<OwnedFd, Errno> {
    open(dir, name, PATH_FLAGS | OFlags::DIRECTORY)
}

/// Opens a subdirectory; creates it if it is missing and `parents` says so.
fn enter_or_create(dir: &OwnedFd, part: &OsStr, parents: ParentDirs) -> Result<OwnedFd, Errno> {
    match open_dir_path(dir, part) {
        Err(Errno::NOENT) if parents == ParentDirs::Create => {
            match rustix::fs::mkdirat(dir, part, Mode::from_raw_mode(0o777)) {
                // Another process created it at the same time.
                Ok(()) | Err(Errno::EXIST) => open_dir_path(dir, part),
                Err(errno) => Err(errno),
            }
        }
        opened => opened,
    }
}

/// The error for a failed open of a resolved path. If a symbolic link appeared in it, reports where
/// the path leads now.
fn path_error(errno: Errno, real: &Path) -> FileError {
    if matches!(errno, Errno::LOOP | Errno::NOTDIR)
        && let Ok(now) = follow_links(real.as_os_str().as_bytes(), FinalLink::Follow)
        && now != real
    {
        return resolves_elsewhere(now);
    }
    errno.into()
}

fn resolves_elsewhere(real: PathBuf) -> FileError {
    FileError::ResolvesElsewhere { real: ByteBuf::from(real.into_os_string().into_vec()) }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_relative_path_starts_at_the_session_directory() {
        let mut state = ShellState { cwd: b"/work".to_vec(), ..ShellState::default() };
        state.env.insert(b"HOME".to_vec(), b"/home/u".to_vec());
        let cases: [(&[u8], &[u8]); 5] = [
            (b"/a", b"/a"),
            (b"a/b", b"/work/a/b"),
            (b"~", b"/home/u"),
            (b"~/a", b"/home/u/a"),
            (b"~a", b"/work/~a"),
        ];
        for (path, expected) in cases {
            assert_eq!(absolute_path(path, Some(&state)).unwrap(), expected);
        }
        assert_eq!(absolute_path(b"a", None), Err(FileError::NotAbsolute));
        assert_eq!(absolute_path(b"~", Some(&ShellState::default())), Err(FileError::NotAbsolute));
    }

    #[test]
    fn a_path_resolves_as_in_the_kernel() {
        let folder = tempfile::tempdir().unwrap();
        let top = folder.path().canonicalize().unwrap();
        std::fs::create_dir_all(top.join("dir/sub")).unwrap();
        std::fs::write(top.join("dir/file"), "").unwrap();
        symlink("dir/sub", top.join("into")).unwrap();
        symlink("into", top.join("chain")).unwrap();
        symlink("../gone/new", top.join("dir/dangling")).unwrap();
        symlink("round", top.join("round")).unwrap();
        symlink("/", top.join("root")).unwrap();
        let os = |errno| Err(FileError::Os { errno });
        let cases = [
            ("dir/file", FinalLink::Follow, Ok("dir/file")),
            ("./dir//sub/.././file", FinalLink::Follow, Ok("dir/file")),
            ("chain", FinalLink::Follow, Ok("dir/sub")),
            ("chain", FinalLink::NoFollow, Ok("chain")),
            ("chain/", FinalLink::NoFollow, Ok("dir/sub")),
            ("chain/../file", FinalLink::Follow, Ok("dir/file")),
            ("dir/dangling", FinalLink::Follow, Ok("gone/new")),
            ("none/of/this", FinalLink::Follow, Ok("none/of/this")),
            ("none/../dir", FinalLink::Follow, os(libc::ENOENT)),
            ("dir/file/x", FinalLink::Follow, os(libc::ENOTDIR)),
            ("round", FinalLink::Follow, os(libc::ELOOP)),
        ];
        for (path, final_link, expected) in cases {
            let found = follow_links(top.join(path).as_os_str().as_bytes(), final_link);
            assert_eq!(found, expected.map(|path| top.join(path)), "{path}");
        }
        let outside =
            follow_links(top.join("root/../../etc").as_os_str().as_bytes(), FinalLink::Follow).unwrap();
        assert_eq!(outside, Path::new("/etc"));
    }

    #[test]
    fn a_directory_that_becomes_a_link_is_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let top = folder.path().canonicalize().unwrap();
        for dir in ["dir", "other"] {
            std::fs::create_dir(top.join(dir)).unwrap();
            std::fs::write(top.join(dir).join("file"), dir).unwrap();
        }
        let path = top.join("dir/file");
        let path = path.as_os_str().as_bytes();
        let resolved = ResolvedPath::resolve(path, path, FinalLink::Follow, ParentDirs::Require).unwrap();
        let mut tree = DirTree::new(OwnedFd::from(File::open(&top).unwrap()));
        std::fs::rename(top.join("dir"), top.join("moved")).unwrap();
        symlink("other", top.join("dir")).unwrap();
        let held = std::io::read_to_string(File::from(resolved.open(OFlags::RDONLY).unwrap())).unwrap();
        assert_eq!(held, "dir");
        assert_eq!(tree.open(Path::new("dir/file")).unwrap_err(), Errno::NOTDIR);
        assert!(tree.open(Path::new("other/file")).is_ok());
        let real = ByteBuf::from(top.join("other/file").as_os_str().as_bytes());
        let found = ResolvedPath::resolve(path, path, FinalLink::Follow, ParentDirs::Require)
            .map(|resolved| resolved.real_path);
        assert_eq!(found, Err(FileError::ResolvesElsewhere { real }));
    }

    #[test]
    fn a_file_that_becomes_a_link_is_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let top = folder.path().canonicalize().unwrap();
        std::fs::write(top.join("file"), "file").unwrap();
        std::fs::write(top.join("other"), "other").unwrap();
        let path = top.join("file");
        let path = path.as_os_str().as_bytes();
        let resolved = ResolvedPath::resolve(path, path, FinalLink::Follow, ParentDirs::Require).unwrap();
        assert_eq!(resolved.metadata().unwrap().unwrap().len(), 4);
        std::fs::remove_file(top.join("file")).unwrap();
        assert!(resolved.metadata().unwrap().is_none());
        symlink("other", top.join("file")).unwrap();
        let elsewhere = resolves_elsewhere(top.join("other"));
        assert_eq!(resolved.open(OFlags::RDONLY).unwrap_err(), elsewhere);
        assert_eq!(resolved.metadata().unwrap_err(), elsewhere);
    }
}
