//! What a path means, and how to stay with that meaning while something is done there.

use std::ffi::{OsStr, OsString};
use std::fs::{File, Metadata};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use hermes_guest::protocol::file::{FileFault, Parents};
use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use rustix::io::Errno;
use serde_bytes::ByteBuf;

use super::{fault_of, read};
use crate::shell::state::State;

/// How many links lead on before we think that they lead nowhere.
const LINKS: usize = 40;

/// Opens nothing for reading, so a directory needs no more rights than to pass through it.
const HOLD: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// A name in a directory that is held open. Whatever happens to the directories above it, nothing is followed any
/// more.
#[derive(Debug)]
pub(crate) struct Spot {
    dir: OwnedFd,
    name: OsString,
    real: PathBuf,
}

/// What becomes of a symbolic link at the end of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Last {
    /// It is followed like those before it.
    Follow,
    /// It is itself what is meant.
    Keep,
}

impl Spot {
    /// The place a path leads to, if that is the one that was judged.
    pub(crate) fn find(path: &[u8], judged: &[u8], last: Last, parents: Parents) -> Result<Self, FileFault> {
        let real = follow(path, last)?;
        if real.as_os_str().as_bytes() != judged {
            return Err(elsewhere(real));
        }
        let mut dir = hold(CWD, OsStr::new("/")).map_err(fault)?;
        for part in real.parent().unwrap_or(Path::new("/")).iter().skip(1) {
            dir = step(&dir, part, parents).map_err(|errno| replaced(errno, &real))?;
        }
        let name = real.file_name().unwrap_or(OsStr::new(".")).to_owned();
        Ok(Self { dir, name, real })
    }

    /// The absolute path without links.
    pub(crate) fn real(&self) -> &Path {
        &self.real
    }

    /// The directory in which the name is.
    pub(super) fn dir(&self) -> &OwnedFd {
        &self.dir
    }

    /// The name in its directory.
    pub(super) fn name(&self) -> &OsStr {
        &self.name
    }

    /// Opens what is there. A link that was put there meanwhile is not followed.
    pub(super) fn open(&self, flags: OFlags) -> Result<OwnedFd, FileFault> {
        open(&self.dir, &self.name, flags | OFlags::NOFOLLOW | OFlags::CLOEXEC)
            .map_err(|errno| replaced(errno, &self.real))
    }

    /// What is there, not opened for anything.
    pub(super) fn hold(&self) -> Result<File, FileFault> {
        self.open(HOLD).map(File::from)
    }

    /// What is there, if anything is. If that is a link now, it was put there meanwhile.
    pub(super) fn look(&self) -> Result<Option<Metadata>, FileFault> {
        let found = match self.hold() {
            Err(FileFault::Os { errno: libc::ENOENT }) => return Ok(None),
            held => held?.metadata().map_err(|error| fault_of(&error))?,
        };
        match found.is_symlink() {
            true => Err(replaced(Errno::LOOP, &self.real)),
            false => Ok(Some(found)),
        }
    }

    pub(super) fn remove(&self, flags: AtFlags) -> Result<(), FileFault> {
        rustix::fs::unlinkat(&self.dir, &self.name, flags).map_err(fault)
    }
}

/// A directory whose files are opened without following a link anywhere below it.
#[derive(Debug)]
pub(super) struct Tree {
    root: OwnedFd,
    /// The directory of the last file, since the next one is mostly in the same.
    last: Option<(PathBuf, OwnedFd, Short)>,
}

/// What it means that a read of a regular file gives less than there is room for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Short {
    /// The file ends there.
    End,
    /// Nothing: there may be more.
    Unclear,
}

impl Short {
    /// Ordinary file systems of this machine give all there is.
    fn below(dir: &OwnedFd) -> Self {
        const EXT: u32 = 0xef53;
        const XFS: u32 = 0x5846_5342;
        const BTRFS: u32 = 0x9123_683e;
        const TMPFS: u32 = 0x0102_1994;
        const OVERLAY: u32 = 0x794c_7630;
        match rustix::fs::fstatfs(dir).map(|found| found.f_type as u32) {
            Ok(EXT | XFS | BTRFS | TMPFS | OVERLAY) => Self::End,
            _ => Self::Unclear,
        }
    }
}

impl Tree {
    pub(super) fn new(root: OwnedFd) -> Self {
        Self { root, last: None }
    }

    /// The same tree, for another thread.
    pub(super) fn try_clone(&self) -> io::Result<Self> {
        Ok(Self::new(self.root.try_clone()?))
    }

    /// Opens a file below the root to read it.
    pub(super) fn open(&mut self, below: &Path) -> Result<(OwnedFd, Short), Errno> {
        let name = below.file_name().unwrap_or(OsStr::new("."));
        let (_, dir, short) = self.enter(below.parent().unwrap_or(Path::new("")))?;
        Ok((open(dir, name, read::READ | OFlags::NOFOLLOW | OFlags::CLOEXEC)?, *short))
    }

    /// A directory below the root, or the root itself.
    pub(super) fn dir(&mut self, below: &Path) -> Result<&OwnedFd, Errno> {
        Ok(&self.enter(below)?.1)
    }

    fn enter(&mut self, below: &Path) -> Result<&(PathBuf, OwnedFd, Short), Errno> {
        let dir = match self.last.take() {
            Some(last) if last.0.as_os_str() == below.as_os_str() => last,
            _ => {
                let mut dir = self.root.try_clone().map_err(|_full| Errno::MFILE)?;
                for part in below {
                    dir = hold(&dir, part)?;
                }
                let short = Short::below(&dir);
                (below.to_owned(), dir, short)
            }
        };
        Ok(self.last.insert(dir))
    }
}

/// An absolute path: `~` is the session's home, and what is relative starts where the session is.
pub(crate) fn resolve(path: &[u8], session: Option<&State>) -> Result<Vec<u8>, FileFault> {
    if path.contains(&0) {
        return Err(FileFault::Os { errno: libc::EINVAL });
    }
    if path.starts_with(b"/") {
        return Ok(path.to_vec());
    }
    let state = session.ok_or(FileFault::NotAbsolute)?;
    if let Some(rest) = path.strip_prefix(b"~").filter(|rest| rest.is_empty() || rest.starts_with(b"/")) {
        let home = state.env.get(b"HOME".as_slice()).filter(|home| home.starts_with(b"/"));
        return Ok([home.ok_or(FileFault::NotAbsolute)?.as_slice(), rest].concat());
    }
    Ok([state.cwd.as_slice(), b"/", path].concat())
}

/// Where an absolute path leads when links are followed, whether or not something is there.
fn follow(path: &[u8], last: Last) -> Result<PathBuf, FileFault> {
    let mut real = PathBuf::from("/");
    // The next part is at the end.
    let mut rest = parts(path);
    let (mut links, mut is_there) = (0, true);
    while let Some(part) = rest.pop() {
        match part.as_slice() {
            b"" | b"." => continue,
            b".." if !is_there => return Err(fault(Errno::NOENT)),
            b".." => {
                real.pop();
                continue;
            }
            name => real.push(OsStr::from_bytes(name)),
        }
        if !is_there || (rest.is_empty() && last == Last::Keep) {
            continue;
        }
        match rustix::fs::readlinkat(CWD, &real, Vec::new()) {
            Ok(target) => {
                links += 1;
                if links > LINKS {
                    return Err(fault(Errno::LOOP));
                }
                real.pop();
                if target.as_bytes().starts_with(b"/") {
                    real = PathBuf::from("/");
                }
                rest.extend(parts(target.as_bytes()));
            }
            Err(Errno::INVAL) => {}
            Err(Errno::NOENT) => is_there = false,
            Err(errno) => return Err(fault(errno)),
        }
    }
    Ok(real)
}

/// The parts of a path, the first one last.
fn parts(path: &[u8]) -> Vec<Vec<u8>> {
    path.split(|byte| *byte == b'/').rev().map(<[u8]>::to_vec).collect()
}

pub(super) fn open(dir: impl AsFd, name: &OsStr, flags: OFlags) -> Result<OwnedFd, Errno> {
    rustix::fs::openat(dir, name, flags, Mode::empty())
}

/// A directory to pass through.
pub(super) fn hold(dir: impl AsFd, name: &OsStr) -> Result<OwnedFd, Errno> {
    open(dir, name, HOLD | OFlags::DIRECTORY)
}

/// Goes one directory down, and makes it first if it is missing and wanted.
fn step(dir: &OwnedFd, part: &OsStr, parents: Parents) -> Result<OwnedFd, Errno> {
    match hold(dir, part) {
        Err(Errno::NOENT) if parents == Parents::Create => {
            match rustix::fs::mkdirat(dir, part, Mode::from_raw_mode(0o777)) {
                // Somebody else made it meanwhile.
                Ok(()) | Err(Errno::EXIST) => hold(dir, part),
                Err(errno) => Err(errno),
            }
        }
        opened => opened,
    }
}

/// What an error on the way to a resolved path means. Where a link appeared in it, it leads somewhere else now.
fn replaced(errno: Errno, real: &Path) -> FileFault {
    if matches!(errno, Errno::LOOP | Errno::NOTDIR)
        && let Ok(now) = follow(real.as_os_str().as_bytes(), Last::Follow)
        && now != real
    {
        return elsewhere(now);
    }
    fault(errno)
}

/// What an error number says about a file.
pub(super) fn fault(errno: Errno) -> FileFault {
    FileFault::Os { errno: errno.raw_os_error() }
}

fn elsewhere(real: PathBuf) -> FileFault {
    FileFault::Elsewhere { real: ByteBuf::from(real.into_os_string().into_vec()) }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_path_begins_where_the_session_says() {
        let mut state = State { cwd: b"/work".to_vec(), ..State::default() };
        state.env.insert(b"HOME".to_vec(), b"/home/u".to_vec());
        let cases: [(&[u8], &[u8]); 5] = [
            (b"/a", b"/a"),
            (b"a/b", b"/work/a/b"),
            (b"~", b"/home/u"),
            (b"~/a", b"/home/u/a"),
            (b"~a", b"/work/~a"),
        ];
        for (path, expected) in cases {
            assert_eq!(resolve(path, Some(&state)).unwrap(), expected);
        }
        assert_eq!(resolve(b"a", None), Err(FileFault::NotAbsolute));
        assert_eq!(resolve(b"~", Some(&State::default())), Err(FileFault::NotAbsolute));
    }

    #[test]
    fn a_path_leads_where_the_system_would_go() {
        let folder = tempfile::tempdir().unwrap();
        let top = folder.path().canonicalize().unwrap();
        std::fs::create_dir_all(top.join("dir/sub")).unwrap();
        std::fs::write(top.join("dir/file"), "").unwrap();
        symlink("dir/sub", top.join("into")).unwrap();
        symlink("into", top.join("chain")).unwrap();
        symlink("../gone/new", top.join("dir/dangling")).unwrap();
        symlink("round", top.join("round")).unwrap();
        symlink("/", top.join("root")).unwrap();
        let os = |errno| Err(FileFault::Os { errno });
        let cases = [
            ("dir/file", Last::Follow, Ok("dir/file")),
            ("./dir//sub/.././file", Last::Follow, Ok("dir/file")),
            ("chain", Last::Follow, Ok("dir/sub")),
            ("chain", Last::Keep, Ok("chain")),
            ("chain/", Last::Keep, Ok("dir/sub")),
            ("chain/../file", Last::Follow, Ok("dir/file")),
            ("dir/dangling", Last::Follow, Ok("gone/new")),
            ("none/of/this", Last::Follow, Ok("none/of/this")),
            ("none/../dir", Last::Follow, os(libc::ENOENT)),
            ("dir/file/x", Last::Follow, os(libc::ENOTDIR)),
            ("round", Last::Follow, os(libc::ELOOP)),
        ];
        for (path, last, expected) in cases {
            let found = follow(top.join(path).as_os_str().as_bytes(), last);
            assert_eq!(found, expected.map(|path| top.join(path)), "{path}");
        }
        let outside = follow(top.join("root/../../etc").as_os_str().as_bytes(), Last::Follow).unwrap();
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
        let spot = Spot::find(path, path, Last::Follow, Parents::Require).unwrap();
        let mut tree = Tree::new(OwnedFd::from(File::open(&top).unwrap()));
        std::fs::rename(top.join("dir"), top.join("moved")).unwrap();
        symlink("other", top.join("dir")).unwrap();
        let held = std::io::read_to_string(File::from(spot.open(OFlags::RDONLY).unwrap())).unwrap();
        assert_eq!(held, "dir");
        assert_eq!(tree.open(Path::new("dir/file")).unwrap_err(), Errno::NOTDIR);
        assert!(tree.open(Path::new("other/file")).is_ok());
        let real = ByteBuf::from(top.join("other/file").as_os_str().as_bytes());
        let found = Spot::find(path, path, Last::Follow, Parents::Require).map(|spot| spot.real);
        assert_eq!(found, Err(FileFault::Elsewhere { real }));
    }

    #[test]
    fn a_file_that_becomes_a_link_is_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let top = folder.path().canonicalize().unwrap();
        std::fs::write(top.join("file"), "file").unwrap();
        std::fs::write(top.join("other"), "other").unwrap();
        let path = top.join("file");
        let path = path.as_os_str().as_bytes();
        let spot = Spot::find(path, path, Last::Follow, Parents::Require).unwrap();
        assert_eq!(spot.look().unwrap().unwrap().len(), 4);
        std::fs::remove_file(top.join("file")).unwrap();
        assert!(spot.look().unwrap().is_none());
        symlink("other", top.join("file")).unwrap();
        let elsewhere = elsewhere(top.join("other"));
        assert_eq!(spot.open(OFlags::RDONLY).unwrap_err(), elsewhere);
        assert_eq!(spot.look().unwrap_err(), elsewhere);
    }
}
