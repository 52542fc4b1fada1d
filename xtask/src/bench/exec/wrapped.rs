//! The bubblewrap commands that a new sandbox is compared with.

use std::path::Path;

/// How the two bubblewrap commands differ from the sandbox; printed with the figures.
pub(super) const NOTE: &str = "bwrap, alike: the same hidden paths and namespaces, no capabilities; without \
    seccomp filter, Landlock, limits, covered sockets, and guest. bwrap, plain: nothing hidden";

/// The namespaces and mounts of both commands.
const BASE: [&str; 15] = [
    "spawn", "bwrap", "--unshare-all", "--die-with-parent", "--new-session", "--ro-bind", "/", "/", "--dev",
    "/dev", "--proc", "/proc", "--tmpfs", "/tmp", "--bind",
];

/// The files of `/proc` that a jail hides.
const PROC_MASKS: [&str; 8] =
    ["acpi", "kcore", "keys", "latency_stats", "timer_list", "sched_debug", "scsi", "kmsg"];

const COMMAND: [&str; 3] = ["bash", "-c", "true"];

/// A command that can read everything.
pub(super) fn plain(workspace: &str) -> Vec<&str> {
    let inside = ["/tmp/workspace", "--chdir", "/tmp/workspace"];
    [&BASE[..], &[workspace], &inside, &COMMAND].concat()
}

/// A command as close to the sandbox as bubblewrap allows: it hides the paths of this machine that
/// a jail hides.
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
