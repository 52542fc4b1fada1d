//! Who else is there: processes that write, and processes that work on a turn.

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

fn name_of(pid: u32) -> String {
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    let name: String = name.trim().chars().filter(|char| !char.is_control()).collect();
    if name.is_empty() { "a process".to_owned() } else { name }
}

/// This process, in words that no other process ever has on this machine: numbers are used again, so its start belongs to it.
pub(crate) fn this_process() -> String {
    mark(std::process::id()).unwrap_or_else(|| format!("? ? {} ?", std::process::id()))
}

fn mark(pid: u32) -> Option<String> {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    // In another container the same number is another process, and cannot be looked up from here.
    let world = fs::read_link("/proc/self/ns/pid").ok()?;
    Some(format!("{} {} {pid} {}", boot.trim(), world.display(), start(pid)?))
}

/// When a process started, in the kernel's ticks.
fn start(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may contain anything; the start is the twentieth field after it.
    stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()
}

/// Where a turn is being worked on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Held {
    /// In this process.
    Here,
    /// In a process that lives.
    Elsewhere(Holder),
    /// In one that cannot be seen from here, such as one in another container. It may live.
    Unknown,
    /// Nowhere: its process has died.
    Nowhere,
}

/// Where the process with this mark is.
pub(crate) fn held(by: &str) -> Held {
    let ours = this_process();
    if by == ours {
        return Held::Here;
    }
    let parts = |mark: &str| mark.split(' ').map(str::to_owned).collect::<Vec<_>>();
    let (theirs, ours) = (parts(by), parts(&ours));
    let ([boot, world, pid, _], [our_boot, our_world, _, _]) = (theirs.as_slice(), ours.as_slice()) else {
        return Held::Unknown;
    };
    if boot == "?" || our_boot == "?" {
        return Held::Unknown;
    }
    if boot != our_boot {
        return Held::Nowhere;
    }
    if world != our_world {
        return Held::Unknown;
    }
    match pid.parse() {
        Ok(pid) if mark(pid).as_deref() == Some(by) => Held::Elsewhere(Holder { pid, name: name_of(pid) }),
        _ => Held::Nowhere,
    }
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

    #[test]
    fn a_mark_names_one_process() {
        let ours = this_process();
        assert_eq!(held(&ours), Held::Here);
        let parts: Vec<&str> = ours.split(' ').collect();
        let other = |at: usize, value: &str| {
            let mut parts = parts.clone();
            parts[at] = value;
            held(&parts.join(" "))
        };
        assert_eq!(other(0, "another-boot"), Held::Nowhere);
        assert_eq!(other(1, "pid:[1]"), Held::Unknown);
        assert_eq!(other(3, "1"), Held::Nowhere, "the number is used again");
        let parent = std::os::unix::process::parent_id();
        assert!(
            matches!(held(&mark(parent).unwrap()), Held::Elsewhere(Holder { pid, .. }) if pid == parent),
            "the process that started us lives"
        );
        assert_eq!(held("nonsense"), Held::Unknown);
    }
}
