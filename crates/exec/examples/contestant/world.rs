//! Process facts from `/proc`.

use std::fs;

/// A number from a file of named lines.
pub(crate) fn field(path: &str, name: &str) -> u64 {
    let text = fs::read_to_string(path).unwrap();
    let line = text.lines().find(|line| line.starts_with(name)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// A process and its ancestors.
pub(crate) fn lineage(pid: u32) -> Vec<u32> {
    let mut line = vec![pid];
    while let Some(parent) = line.last().and_then(|pid| parent(*pid)).filter(|parent| *parent > 1) {
        line.push(parent);
    }
    line
}

pub(crate) fn lives(pid: u32) -> bool {
    state(pid).is_some_and(|rest| !rest.starts_with('Z'))
}

/// How many processes sleep for this long.
pub(crate) fn sleepers(mark: &str) -> usize {
    let sleeps = |command: Vec<u8>| command.split(|byte| *byte == 0).eq([b"sleep", mark.as_bytes(), b""]);
    let processes = fs::read_dir("/proc").unwrap().flatten();
    processes.filter(|process| fs::read(process.path().join("cmdline")).is_ok_and(sleeps)).count()
}

fn parent(pid: u32) -> Option<u32> {
    state(pid)?.split_whitespace().nth(1)?.parse().ok()
}

/// The fields after the process name, starting with the state.
fn state(pid: u32) -> Option<String> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    Some(stat.rsplit_once(") ")?.1.to_owned())
}
