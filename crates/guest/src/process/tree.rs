//! The process tree, read from `/proc`.

use std::collections::{HashMap, HashSet};
use std::io;
use std::mem::MaybeUninit;
use std::str::FromStr;

use rustix::fs::{Mode, OFlags, RawDir};
use rustix::process::{Pid, PidfdFlags, Signal};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ProcStat {
    pub(crate) pid: Pid,
    pub(crate) parent: Option<Pid>,
    group: Option<Pid>,
    /// In clock ticks since boot; identifies a process together with its pid.
    pub(crate) start_time: u64,
    pub(crate) is_zombie: bool,
}

/// Calls `callback` for every process. Does not allocate, because the shim uses it too.
pub(crate) fn for_each_process(mut callback: impl FnMut(ProcStat)) -> io::Result<()> {
    let proc =
        rustix::fs::open("/proc", OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    let mut buffer = [MaybeUninit::uninit(); 8192];
    let mut entries = RawDir::new(&proc, &mut buffer);
    while let Some(entry) = entries.next() {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name.iter().all(u8::is_ascii_digit)
            && let Some(stat) = read_stat(&proc, name)
        {
            callback(stat);
        }
    }
    Ok(())
}

/// The start time of a process, if it exists.
pub(crate) fn start_time(pid: Pid) -> Option<u64> {
    let stat = std::fs::read(format!("/proc/{}/stat", pid.as_raw_nonzero())).ok()?;
    parse_stat(&stat).map(|stat| stat.start_time)
}

fn read_stat(proc: impl rustix::fd::AsFd, name: &[u8]) -> Option<ProcStat> {
    let mut path = [0; 32];
    let length = name.len() + 5;
    path.get_mut(..name.len())?.copy_from_slice(name);
    path.get_mut(name.len()..length)?.copy_from_slice(b"/stat");
    let path = path.get(..length)?;
    let file = rustix::fs::openat(proc, path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let mut text = [0; 1024];
    let length = rustix::io::read(&file, &mut text).ok()?;
    parse_stat(text.get(..length)?)
}

/// Parses a line of `/proc/PID/stat`. The program name is in parentheses and may contain any byte.
fn parse_stat(text: &[u8]) -> Option<ProcStat> {
    // The kernel shows -1 for the group of a process that is being removed.
    let parse_pid = |digits: &[u8]| parse_number(digits).map(|pid: i32| Pid::from_raw(pid.max(0)));
    let pid = parse_pid(text.split(|byte| *byte == b' ').next()?)?;
    let after_name = memchr::memrchr(b')', text)? + 2;
    let mut fields = text.get(after_name..)?.split(|byte| *byte == b' ');
    let state = fields.next()?;
    let parent = parse_pid(fields.next()?)?;
    let group = parse_pid(fields.next()?)?;
    let started = parse_number(fields.nth(16)?)?;
    Some(ProcStat {
        pid: pid?,
        parent,
        group,
        start_time: started,
        is_zombie: state == b"Z" || state == b"X",
    })
}

fn parse_number<N: FromStr>(digits: &[u8]) -> Option<N> {
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// Sends SIGKILL to every descendant of a process and returns the number of living ones.
///
/// Process groups are killed first: that hits all members at once, including a program that forks
/// and exits faster than `/proc` can be read. A group of a descendant has no other members, because
/// the program was started as the leader of its own session.
pub(crate) fn kill_descendants(root: Pid) -> io::Result<usize> {
    let mut all = Vec::new();
    for_each_process(|stat| all.push(stat))?;
    let mut children: HashMap<Pid, Vec<ProcStat>> = HashMap::new();
    for stat in &all {
        if let Some(parent) = stat.parent {
            children.entry(parent).or_default().push(*stat);
        }
    }
    let mut living = Vec::new();
    let mut next = vec![root];
    while let Some(parent) = next.pop() {
        for child in children.get(&parent).into_iter().flatten() {
            next.push(child.pid);
            if !child.is_zombie {
                living.push(*child);
            }
        }
    }
    let guest = rustix::process::getpid();
    let ours = all.iter().find(|stat| stat.pid == guest).and_then(|stat| stat.group);
    let groups: HashSet<Pid> = living.iter().filter_map(|stat| stat.group).collect();
    for group in groups.into_iter().filter(|group| Some(*group) != ours) {
        rustix::process::kill_process_group(group, Signal::KILL).ok();
    }
    living.iter().for_each(|stat| kill(*stat));
    Ok(living.len())
}

/// Kills children of the guest that are not shims: the descendants of a killed shim. Returns how
/// many there were.
pub(crate) fn kill_strays(shims: &HashSet<Pid>) -> io::Result<usize> {
    let guest = rustix::process::getpid();
    let mut strays = Vec::new();
    for_each_process(|stat| {
        if stat.parent == Some(guest) && !stat.is_zombie && !shims.contains(&stat.pid) {
            strays.push(stat);
        }
    })?;
    for stray in &strays {
        kill_descendants(stray.pid)?;
        kill(*stray);
    }
    Ok(strays.len())
}

/// Kills exactly this process, even if its pid was reused.
fn kill(stat: ProcStat) {
    match rustix::process::pidfd_open(stat.pid, PidfdFlags::empty()) {
        Ok(held) => {
            if start_time(stat.pid) == Some(stat.start_time) {
                // It may be dead already.
                rustix::process::pidfd_send_signal(held, Signal::KILL).ok();
            }
        }
        // Before Linux 5.3.
        Err(rustix::io::Errno::NOSYS) => {
            rustix::process::kill_process(stat.pid, Signal::KILL).ok();
        }
        Err(_gone) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_name_may_contain_any_byte() {
        let line = b"41 (a) R 9 (b\n) S 7 41 41 0 -1 4 0 0 0 0 0 0 0 0 20 0 1 0 12345 99 1 2";
        let stat = ProcStat {
            pid: Pid::from_raw(41).unwrap(),
            parent: Pid::from_raw(7),
            group: Pid::from_raw(41),
            start_time: 12345,
            is_zombie: false,
        };
        assert_eq!(parse_stat(line), Some(stat));
        let ending = b"41 (a) X 0 -1 -1 0 -1 4 0 0 0 0 0 0 0 0 20 0 0 0 12345 0 0 2";
        let ending = parse_stat(ending).unwrap();
        assert_eq!((ending.parent, ending.group, ending.is_zombie), (None, None, true));
        assert_eq!(parse_stat(b"41 (cut"), None);
        assert_eq!(parse_stat(b""), None);
    }

    #[test]
    fn the_own_process_is_listed() {
        let me = rustix::process::getpid();
        let mut found = None;
        for_each_process(|stat| found = if stat.pid == me { Some(stat) } else { found }).unwrap();
        assert_eq!(found.unwrap().parent, rustix::process::getppid());
        assert_eq!(found.map(|stat| stat.start_time), start_time(me));
    }
}
