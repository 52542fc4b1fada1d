//! Finds the process that holds the write lock of a database.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::file::with_suffix;

/// The byte of the WAL index that a writer locks (SQLite file format, `WAL_WRITE_LOCK`).
const WRITE_LOCK_BYTE: u64 = 120;

/// A process that holds a lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LockOwner {
    pub pid: u32,
    pub name: String,
}

/// The process as a suffix of an error message.
pub(crate) fn describe(owner: Option<&LockOwner>) -> String {
    owner.map(|owner| format!(": {} (process {})", owner.name, owner.pid)).unwrap_or_default()
}

/// The other process that is writing to a database, if it can be found.
///
/// It reads `/proc/locks`. Asking with `fcntl` would require another descriptor of the file, and
/// closing that would drop every lock this process holds on it.
pub(crate) fn find_writer(database: &Path) -> Option<LockOwner> {
    let inode = fs::metadata(with_suffix(database, "-shm")).ok()?.ino();
    let locks = fs::read_to_string("/proc/locks").ok()?;
    let pid = locks.lines().find_map(|line| parse_lock_line(line, inode))?;
    (pid != std::process::id()).then(|| LockOwner { pid, name: process_name(pid) })
}

/// Parses a line such as `1: POSIX  ADVISORY  WRITE 712 fd:00:1234 120 120`; `None` if it is about
/// another lock.
fn parse_lock_line(line: &str, inode: u64) -> Option<u32> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let &[_, "POSIX", _, "WRITE", pid, file, from, to] = words.as_slice() else { return None };
    let is_file = file.rsplit(':').next()?.parse::<u64>().ok()? == inode;
    let to = if to == "EOF" { u64::MAX } else { to.parse().ok()? };
    let is_lock = (from.parse::<u64>().ok()?..=to).contains(&WRITE_LOCK_BYTE);
    if is_file && is_lock { pid.parse().ok() } else { None }
}

pub(crate) fn process_name(pid: u32) -> String {
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    let name: String = name.trim().chars().filter(|char| !char.is_control()).collect();
    if name.is_empty() { "a process".to_owned() } else { name }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_proc_locks_are_parsed() {
        let cases = [
            ("1: POSIX  ADVISORY  WRITE 712 fd:00:1234 120 120", Some(712)),
            ("1: POSIX  ADVISORY  WRITE 712 fd:00:1234 100 EOF", Some(712)),
            ("1: POSIX  ADVISORY  READ  712 fd:00:1234 120 120", None),
            ("1: POSIX  ADVISORY  WRITE 712 fd:00:1234 128 128", None),
            ("1: POSIX  ADVISORY  WRITE 712 fd:00:99 120 120", None),
            ("1: FLOCK  ADVISORY  WRITE 712 fd:00:1234 0 EOF", None),
            ("1: -> POSIX ADVISORY WRITE 712 fd:00:1234 120 120", None),
            ("", None),
        ];
        for (line, expected) in cases {
            assert_eq!(parse_lock_line(line, 1234), expected, "{line}");
        }
    }
}
