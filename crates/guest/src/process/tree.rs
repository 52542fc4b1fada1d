//! The tree of processes, as `/proc` shows it.

use std::collections::{HashMap, HashSet};
use std::io;
use std::mem::MaybeUninit;

use rustix::fs::{CWD, Mode, OFlags, RawDir};
use rustix::process::{Pid, PidfdFlags, Signal};

/// One process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) pid: Pid,
    pub(crate) parent: Option<Pid>,
    group: Option<Pid>,
    /// In clock ticks since boot; with the pid it names a process for good.
    pub(crate) started: u64,
    pub(crate) zombie: bool,
}

/// Calls back for every process there is. Allocates nothing, because the shim uses it too.
pub(crate) fn each_process(mut see: impl FnMut(Seen)) -> io::Result<()> {
    let proc =
        rustix::fs::open("/proc", OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    let mut buffer = [MaybeUninit::uninit(); 8192];
    let mut entries = RawDir::new(&proc, &mut buffer);
    while let Some(entry) = entries.next() {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name.iter().all(u8::is_ascii_digit)
            && let Some(seen) = look(&proc, name)
        {
            see(seen);
        }
    }
    Ok(())
}

/// When a process started, if it is there.
pub(crate) fn started(pid: Pid) -> Option<u64> {
    let mut digits = [0; 20];
    let name = decimal(pid.as_raw_nonzero().get().unsigned_abs(), &mut digits);
    let proc =
        rustix::fs::openat(CWD, "/proc", OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
            .ok()?;
    look(&proc, name).map(|seen| seen.started)
}

fn decimal(mut number: u32, digits: &mut [u8; 20]) -> &[u8] {
    let mut at = digits.len();
    while number > 0 && at > 0 {
        at -= 1;
        if let Some(digit) = digits.get_mut(at) {
            *digit = b'0' + u8::try_from(number % 10).unwrap_or(0);
        }
        number /= 10;
    }
    digits.get(at..).unwrap_or_default()
}

fn look(proc: impl rustix::fd::AsFd, name: &[u8]) -> Option<Seen> {
    let mut path = [0; 32];
    let length = name.len() + 5;
    path.get_mut(..name.len())?.copy_from_slice(name);
    path.get_mut(name.len()..length)?.copy_from_slice(b"/stat");
    let path = path.get(..length)?;
    let file = rustix::fs::openat(proc, path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let mut text = [0; 1024];
    let length = rustix::io::read(&file, &mut text).ok()?;
    parse(text.get(..length)?)
}

/// Reads a line of `/proc/PID/stat`. The name of the program is in parentheses and may contain any byte.
fn parse(text: &[u8]) -> Option<Seen> {
    let pid = number(text.split(|byte| *byte == b' ').next()?)?;
    let after_name = memchr::memrchr(b')', text)? + 2;
    let mut fields = text.get(after_name..)?.split(|byte| *byte == b' ');
    let state = fields.next()?;
    let parent = number(fields.next()?)?;
    let group = number(fields.next()?)?;
    let started = number(fields.nth(16)?)?;
    Some(Seen {
        pid: Pid::from_raw(i32::try_from(pid).ok()?)?,
        parent: Pid::from_raw(i32::try_from(parent).ok()?),
        group: Pid::from_raw(i32::try_from(group).ok()?),
        started,
        zombie: state == b"Z" || state == b"X",
    })
}

fn number(digits: &[u8]) -> Option<u64> {
    digits.iter().try_fold(0_u64, |value, digit| match digit {
        b'0'..=b'9' => value.checked_mul(10)?.checked_add(u64::from(digit - b'0')),
        _ => None,
    })
}

/// Kills every descendant of a process, once, and says how many living ones there were.
///
/// Their process groups are killed first. That hits all members at one moment, and so also a program that forks and
/// exits faster than one can look. A group with a descendant in it has nobody else in it, because the program was
/// started as the leader of a session of its own.
pub(crate) fn kill_descendants(root: Pid) -> io::Result<usize> {
    let mut all = Vec::new();
    each_process(|seen| all.push(seen))?;
    let mut children: HashMap<Pid, Vec<Seen>> = HashMap::new();
    for seen in &all {
        if let Some(parent) = seen.parent {
            children.entry(parent).or_default().push(*seen);
        }
    }
    let mut living = Vec::new();
    let mut next = vec![root];
    while let Some(parent) = next.pop() {
        for child in children.get(&parent).into_iter().flatten() {
            next.push(child.pid);
            if !child.zombie {
                living.push(*child);
            }
        }
    }
    let guest = rustix::process::getpid();
    let ours = all.iter().find(|seen| seen.pid == guest).and_then(|seen| seen.group);
    let groups: HashSet<Pid> = living.iter().filter_map(|seen| seen.group).collect();
    for group in groups.into_iter().filter(|group| Some(*group) != ours) {
        rustix::process::kill_process_group(group, Signal::KILL).ok();
    }
    living.iter().for_each(|seen| kill(*seen));
    Ok(living.len())
}

/// Kills children of the guest that are none of its shims: what is left of a tree whose shim was killed. Says how
/// many there were.
pub(crate) fn kill_strays(shims: &HashSet<Pid>) -> io::Result<usize> {
    let guest = rustix::process::getpid();
    let mut strays = Vec::new();
    each_process(|seen| {
        if seen.parent == Some(guest) && !seen.zombie && !shims.contains(&seen.pid) {
            strays.push(seen);
        }
    })?;
    for stray in &strays {
        kill_descendants(stray.pid)?;
        kill(*stray);
    }
    Ok(strays.len())
}

/// Kills exactly the process that was seen, even if its pid has been given to another one since.
fn kill(seen: Seen) {
    match rustix::process::pidfd_open(seen.pid, PidfdFlags::empty()) {
        Ok(held) => {
            if started(seen.pid) == Some(seen.started) {
                // It may be dead already, which is what is wanted.
                rustix::process::pidfd_send_signal(held, Signal::KILL).ok();
            }
        }
        // Before Linux 5.3.
        Err(rustix::io::Errno::NOSYS) => {
            rustix::process::kill_process(seen.pid, Signal::KILL).ok();
        }
        Err(_gone) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_may_have_any_name() {
        let line = b"41 (a) R 9 (b\n) S 7 41 41 0 -1 4 0 0 0 0 0 0 0 0 20 0 1 0 12345 99 1 2";
        let seen = Seen {
            pid: Pid::from_raw(41).unwrap(),
            parent: Pid::from_raw(7),
            group: Pid::from_raw(41),
            started: 12345,
            zombie: false,
        };
        assert_eq!(parse(line), Some(seen));
        assert_eq!(parse(b"41 (cut"), None);
        assert_eq!(parse(b""), None);
    }

    #[test]
    fn we_see_ourselves() {
        let me = rustix::process::getpid();
        let mut found = None;
        each_process(|seen| found = if seen.pid == me { Some(seen) } else { found }).unwrap();
        assert_eq!(found.unwrap().parent, rustix::process::getppid());
        assert_eq!(found.map(|seen| seen.started), started(me));
    }
}
