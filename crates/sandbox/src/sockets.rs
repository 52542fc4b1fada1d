//! Masks the Unix sockets of the host.
//!
//! A read-only mount does not prevent a connection to a socket on it, and editors, agents and
//! databases place sockets anywhere; many of them execute commands. Landlock blocks all of them on
//! kernels that support it (Linux 7). On older kernels, the sockets that exist when the jail is
//! created are masked, and the directories that hold nothing else: a server that restarts creates
//! its socket again, and the mask of a file ends with the file. A socket that is created later, in
//! another directory that is neither masked nor private, by a program that accepts the jail's user,
//! can be reached. So can what the supplementary groups of the jail's user allow, which only root
//! can drop; the usual sockets of such groups are in masked directories.

use std::fs;
use std::os::unix::fs::FileTypeExt;
use std::path::{Component, Path, PathBuf};

use hermes_types::MountAccess;

use crate::jail::Jail;

/// A directory with more entries holds more than sockets.
const MAX_ENTRIES: usize = 64;

/// The sockets in the file system of this network namespace, except those in writable bind mounts,
/// which are meant for the jail, and the directories made for them.
pub(crate) fn host_sockets(jail: &Jail) -> Vec<PathBuf> {
    let listed = fs::read("/proc/net/unix").unwrap_or_default();
    let is_meant_for_jail = |path: &Path| {
        jail.binds.iter().any(|bind| bind.access == MountAccess::ReadWrite && path.starts_with(&bind.source))
    };
    let mut paths = parse_socket_paths(&String::from_utf8_lossy(&listed));
    // A path of another mount namespace may be a different file here.
    let is_socket = |path: &Path| fs::metadata(path).is_ok_and(|meta| meta.file_type().is_socket());
    paths.retain(|path| !is_meant_for_jail(path) && is_socket(path));
    let mut directories: Vec<PathBuf> = paths.iter().filter_map(|path| Some(path.parent()?.into())).collect();
    directories.dedup();
    directories.retain(|directory| !is_meant_for_jail(directory) && holds_only_sockets(directory));
    paths.extend(directories);
    paths
}

/// Whether there is nothing in a directory but sockets and the files that servers leave next to
/// them.
fn holds_only_sockets(directory: &Path) -> bool {
    let Ok(entries) = fs::read_dir(directory) else { return false };
    let is_of_server = |entry: fs::DirEntry| {
        let path = entry.path();
        let name_says = path.extension().is_some_and(|end| end == "pid" || end == "lock");
        fs::symlink_metadata(&path).is_ok_and(|meta| {
            let kind = meta.file_type();
            kind.is_socket() || (kind.is_file() && (name_says || meta.len() == 0))
        })
    };
    entries
        .take(MAX_ENTRIES + 1)
        .enumerate()
        .all(|(count, entry)| count < MAX_ENTRIES && entry.is_ok_and(is_of_server))
}

/// The eighth field of each line is the path, which may contain spaces.
fn parse_socket_paths(listed: &str) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> = listed
        .lines()
        .filter_map(|line| {
            let rest =
                (0..7).try_fold(line, |rest, _| rest.trim_start().split_once(' ').map(|(_, rest)| rest))?;
            rest.starts_with('/').then(|| PathBuf::from(rest))
        })
        // A path with `..` cannot be compared with others, and no usual program listens there.
        .filter(|path| path.components().all(|part| !matches!(part, Component::ParentDir)))
        .collect();
    paths.sort();
    paths.dedup();
    paths
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_sockets_with_a_path_are_listed() {
        let listed = "Num       RefCount Protocol Flags    Type St Inode Path\n\
                      0000000000000000: 00000002 00000000 00010000 0001 01 100 /var/a b.sock\n\
                      0000000000000000: 00000002 00000000 00010000 0001 01 101 @abstract /x\n\
                      0000000000000000: 00000003 00000000 00000000 0001 03 102\n\
                      0000000000000000: 00000002 00000000 00010000 0001 01 103 /var/a b.sock\n";
        assert_eq!(parse_socket_paths(listed), [PathBuf::from("/var/a b.sock")]);
    }
}
