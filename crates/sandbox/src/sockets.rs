//! Sockets that programs of the host listen on.
//!
//! A read-only mount does not keep anybody from connecting to a socket on it, and editors, agents and databases put
//! theirs wherever they like; many of them run what they are told. Where the kernel's Landlock knows sockets (Linux 7)
//! it refuses them all. Elsewhere those that exist when a jail is made are covered; one made later, in a directory
//! that is neither masked nor private, by a program that lets the jail's user in, can be reached.

use std::fs;
use std::os::unix::fs::FileTypeExt;
use std::path::{Component, Path, PathBuf};

use crate::jail::{Access, Jail};

/// The sockets with a path that exist now in this process's network, but for those in directories that the jail may
/// write, which are there for it.
pub(crate) fn of_the_host(jail: &Jail) -> Vec<PathBuf> {
    let listed = fs::read("/proc/net/unix").unwrap_or_default();
    let meant = |path: &Path| {
        jail.binds.iter().any(|bind| bind.access == Access::ReadWrite && path.starts_with(&bind.source))
    };
    let mut paths = parse(&String::from_utf8_lossy(&listed));
    // A path in another mount namespace can be that of another file here.
    let is_socket = |path: &Path| fs::metadata(path).is_ok_and(|meta| meta.file_type().is_socket());
    paths.retain(|path| !meant(path) && is_socket(path));
    paths
}

/// The eighth word of each line is the path, if there is one; it may have spaces.
fn parse(listed: &str) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> = listed
        .lines()
        .filter_map(|line| {
            let rest =
                (0..7).try_fold(line, |rest, _| rest.trim_start().split_once(' ').map(|(_, rest)| rest))?;
            rest.starts_with('/').then(|| PathBuf::from(rest))
        })
        // One that climbs cannot be compared with others, and is not what a listening program would choose.
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
        assert_eq!(parse(listed), [PathBuf::from("/var/a b.sock")]);
    }
}
