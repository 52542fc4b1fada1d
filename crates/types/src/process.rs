//! Identifying processes.

use std::fs;

/// The name of every guest process. It is an ancestor of all processes of its commands.
pub const GUEST_PROCESS_NAME: &str = "hermes-guest";

/// The start time of a process in clock ticks since boot, which distinguishes it from a later
/// process with the same pid; `None` for a dead process, zombies included.
pub fn process_start_time(pid: i32) -> Option<u64> {
    parse_start_time(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// The start time in a line of `/proc/PID/stat`; `None` for a dead process.
pub fn parse_start_time(stat: &str) -> Option<u64> {
    // The process name may contain anything, so the fields start after the last parenthesis.
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_ascii_whitespace();
    let state = fields.next()?;
    (!matches!(state, "Z" | "X")).then(|| fields.nth(18)?.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_start_time_of_a_living_process_with_any_name_is_found() {
        let stat = "7 (a) b (c) S 1 7 7 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 4711 1 2";
        assert_eq!(parse_start_time(stat), Some(4711));
        assert_eq!(parse_start_time(&stat.replace(" S ", " Z ")), None);
        assert_eq!(parse_start_time("7 (a"), None);
    }
}
