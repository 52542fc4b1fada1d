//! What bubblewrap is asked for to be compared with a new place.

use std::path::Path;

/// What is still missing, to be said wherever the figures are.
pub(super) const NOTE: &str = "bwrap, alike: the same paths hidden, the same namespaces, no capabilities; it lacks the \
    filter of system calls, Landlock, the limits, covered sockets, and a guest that stays. bwrap, plain: nothing hidden";

/// The namespaces and mounts that everybody asks for.
const BASE: [&str; 15] = [
    "spawn", "bwrap", "--unshare-all", "--die-with-parent", "--new-session", "--ro-bind", "/", "/", "--dev",
    "/dev", "--proc", "/proc", "--tmpfs", "/tmp", "--bind",
];

/// What a jail hides in its `/proc`.
const PROC_MASKS: [&str; 8] =
    ["acpi", "kcore", "keys", "latency_stats", "timer_list", "sched_debug", "scsi", "kmsg"];

/// What is run.
const COMMAND: [&str; 3] = ["bash", "-c", "true"];

/// Everything can be read.
pub(super) fn plain(workspace: &str) -> Vec<&str> {
    let inside = ["/tmp/workspace", "--chdir", "/tmp/workspace"];
    [&BASE[..], &[workspace], &inside, &COMMAND].concat()
}

/// As near to a place of ours as it can get: what a jail hides is hidden, as far as it is on this machine.
pub(super) fn alike(workspace: &str, masked: &[String]) -> Vec<String> {
    let owned = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
    let mut words = owned(&BASE);
    words.extend(owned(&[workspace, "/tmp/workspace"]));
    words.extend(owned(&[
        "--hostname", "sandbox", "--cap-drop", "ALL", "--tmpfs", "/var/tmp", "--tmpfs", "/sys",
    ]));
    words.extend(owned(&["--ro-bind", "/sys/devices/system/cpu", "/sys/devices/system/cpu"]));
    let proc = PROC_MASKS.map(|name| format!("/proc/{name}"));
    for text in masked.iter().chain(&proc) {
        let path = Path::new(text);
        // A link is hidden at its target, and the content of a private directory is hidden already.
        if std::fs::canonicalize(path).is_ok_and(|real| real == path) && !path.starts_with("/tmp") {
            words.extend(owned(if path.is_dir() { &["--tmpfs"] } else { &["--ro-bind", "/dev/null"] }));
            words.push(text.clone());
        }
    }
    words.extend(owned(&["--chdir", "/tmp/workspace"]));
    words.extend(owned(&COMMAND));
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_comparable_wrapping_hides_what_a_jail_hides() {
        let words = alike("/w", &["/etc/passwd".to_owned(), "/etc".to_owned(), "/not/there".to_owned()]);
        let hidden = "--ro-bind /dev/null /etc/passwd --tmpfs /etc";
        assert!(words.join(" ").contains(hidden), "{words:?}");
        assert!(!words.contains(&"/not/there".to_owned()));
        assert!(words.ends_with(&COMMAND.map(str::to_owned)));
    }
}
