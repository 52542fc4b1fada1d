//! Which process is writing to a database.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// The byte of the log's index that a writer locks (SQLite's file format, WAL-index, `WAL_WRITE_LOCK`).
const WRITE_LOCK: u64 = 120;

/// A process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    /// Its number.
    pub pid: u32,
    /// What it is called.
    pub name: String,
}

/// A process in the words of an error.
pub(crate) fn named(holder: Option<&Holder>) -> String {
    holder.map(|holder| format!(": {} (process {})", holder.name, holder.pid)).unwrap_or_default()
}

/// The process that is writing to a database, if it can be told.
///
/// It is looked up in the kernel's list. Asking with `fcntl` would mean to open the file once more, and closing it
/// again would drop every lock this process has on it.
pub(crate) fn writer(database: &Path) -> Option<Holder> {
    let mut index = database.as_os_str().to_owned();
    index.push("-shm");
    let inode = fs::metadata(Path::new(&index)).ok()?.ino();
    let locks = fs::read_to_string("/proc/locks").ok()?;
    let pid = locks.lines().find_map(|line| holder_in(line, inode))?;
    (pid != std::process::id()).then(|| Holder { pid, name: name_of(pid) })
}

/// The process of a line such as `1: POSIX  ADVISORY  WRITE 712 fd:00:1234 120 120`, if it is about that file.
fn holder_in(line: &str, inode: u64) -> Option<u32> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let &[_, "POSIX", _, "WRITE", pid, file, from, to] = words.as_slice() else { return None };
    let is_file = file.rsplit(':').next()?.parse::<u64>().ok()? == inode;
    let to = if to == "EOF" { u64::MAX } else { to.parse().ok()? };
    let is_lock = (from.parse::<u64>().ok()?..=to).contains(&WRITE_LOCK);
    if is_file && is_lock { pid.parse().ok() } else { None }
}

pub(crate) fn name_of(pid: u32) -> String {
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    let name: String = name.trim().chars().filter(|char| !char.is_control()).collect();
    if name.is_empty() { "a process".to_owned() } else { name }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_list_is_read() {
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
            assert_eq!(holder_in(line, 1234), expected, "{line}");
        }
    }
}
