//! The attempts as scripts for bash and the usual programs of Linux.

use std::path::{Path, PathBuf};

use hermes_types::shell_quote;

/// Printed by an attempt that succeeded.
pub(super) const SUCCEEDED: &str = "did";
/// More processes than a sandbox allows.
pub(super) const MANY_PROCESSES: u64 = 600;

/// Reads the first character of these files.
pub(super) fn read(paths: &[PathBuf]) -> String {
    let paths = paths.iter().map(|path| shell_quote(&path.to_string_lossy())).collect::<Vec<_>>().join(" ");
    format!("for p in {paths}; do x=; IFS= read -r -N 1 x < \"$p\"; [ -n \"$x\" ] && echo {SUCCEEDED}; done")
}

/// Creates a file.
pub(super) fn write(file: &Path) -> String {
    format!("echo x > {}", shell_quote(&file.to_string_lossy()))
}

/// Opens a file for writing and writes nothing.
pub(super) fn open_for_writing(file: &Path) -> String {
    format!(": >> {} && echo {SUCCEEDED}", shell_quote(&file.to_string_lossy()))
}

/// Reads the state of a process, then signals it.
pub(super) fn touch(pid: u32) -> String {
    format!("IFS= read -r x < /proc/{pid}/stat && echo \"$x\"; kill -0 {pid} && echo {SUCCEEDED}")
}

/// Connects to a loopback port.
pub(super) fn dial(port: u16) -> String {
    format!("exec 3<>/dev/tcp/127.0.0.1/{port}")
}

/// Connects to an abstract socket, which bash alone cannot do.
pub(super) fn dial_abstract(name: &str) -> String {
    format!(
        "if command -v perl >/dev/null; then perl -MSocket -e \
         'socket(S, AF_UNIX, SOCK_STREAM, 0); connect(S, pack(\"Sa*\", AF_UNIX, \"\\0{name}\"))'; \
         elif command -v python3 >/dev/null; then python3 -c \
         'import socket; socket.socket(socket.AF_UNIX).connect(\"\\0{name}\")'; \
         else echo lacks perl or python3; exit; fi"
    )
}

/// Runs a command that requires a program.
pub(super) fn tool(tool: &str, command: &str) -> String {
    format!("command -v {tool} >/dev/null || {{ echo lacks {tool}; exit; }}; {command} && echo {SUCCEEDED}")
}

/// Starts many processes and counts them, until there are more than `limit` or the number is
/// stable.
pub(super) fn start_many(limit: u64) -> String {
    let half = limit / 2;
    format!(
        "exec 3<> <(:); yes 60 | head -n {MANY_PROCESSES} | xargs -P {MANY_PROCESSES} -n 1 sleep & n=0; \
         for i in {{1..100}}; do read -t 0.1 -u 3; set -- /proc/[0-9]*; \
         [ $# -gt {limit} ] && break; [ $# -eq $n ] && [ $# -gt {half} ] && break; n=$#; done; echo count $#"
    )
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::{SocketAddr, UnixListener};
    use std::process::Command;

    use super::*;

    /// Runs a script without confinement, in its own namespaces so that it can mount.
    #[expect(clippy::disallowed_methods, reason = "the control of the attempts")]
    fn unconfined(script: &str) -> String {
        let namespaces = ["--user", "--map-root-user", "--mount", "--pid", "--fork", "--kill-child"];
        let mut command = Command::new("unshare");
        command.args(namespaces).args(["bash", "-c", script]).env_clear();
        let output = command.env("PATH", "/usr/bin:/bin:/usr/sbin:/sbin").output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    }

    #[test]
    fn every_attempt_succeeds_without_confinement() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("it's here");
        std::fs::write(&file, "x").unwrap();
        assert_eq!(unconfined(&read(&[PathBuf::from("/nowhere"), file])), "did\n");
        let created = folder.path().join("made");
        unconfined(&write(&created));
        assert!(created.exists());
        // Process 1 is the script itself in its own /proc.
        let output = unconfined(&format!("mount -t proc proc /proc; {}", touch(1)));
        assert!(output.starts_with("1 (bash) ") && output.ends_with("\ndid\n"), "{output}");
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        unconfined(&dial(listener.local_addr().unwrap().port()));
        listener.accept().unwrap();
        let name = format!("hermes-script-{}", std::process::id());
        let listener = UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
        listener.set_nonblocking(true).unwrap();
        unconfined(&dial_abstract(&name));
        listener.accept().unwrap();
        assert_eq!(unconfined(&tool("unshare", "unshare --user true")), "did\n");
        assert_eq!(unconfined(&tool("mount", "mount -t tmpfs none /tmp")), "did\n");
        assert_eq!(unconfined(&tool("no-such-tool", "true")), "lacks no-such-tool\n");
    }

    #[test]
    fn processes_are_counted_until_they_exceed_the_limit() {
        let output = unconfined(&format!("mount -t proc proc /proc; {}", start_many(20)));
        let count: u32 = output.strip_prefix("count ").unwrap().trim().parse().unwrap();
        assert!(count > 20, "{output}");
    }
}
