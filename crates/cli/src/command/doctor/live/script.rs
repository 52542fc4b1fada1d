//! The attempts themselves, for bash and what any Linux has.

use std::path::{Path, PathBuf};

use hermes_types::shell_quote;

/// What a command says when it could do what it shall not.
pub(super) const DID: &str = "did";
/// More processes than a jail may have.
pub(super) const CROWD: u64 = 600;

/// Reads the first character of these files.
pub(super) fn read(paths: &[PathBuf]) -> String {
    let paths: Vec<String> = paths.iter().map(|path| shell_quote(&path.to_string_lossy())).collect();
    let paths = paths.join(" ");
    format!("for p in {paths}; do x=; IFS= read -r -N 1 x < \"$p\"; [ -n \"$x\" ] && echo {DID}; done")
}

/// Makes this file.
pub(super) fn write(file: &Path) -> String {
    format!("echo x > {}", shell_quote(&file.to_string_lossy()))
}

/// Looks at this process, then signals it.
pub(super) fn touch(pid: u32) -> String {
    format!("IFS= read -r x < /proc/{pid}/stat && echo \"$x\"; kill -0 {pid} && echo {DID}")
}

/// Connects to this port of the loopback.
pub(super) fn dial(port: u16) -> String {
    format!("exec 3<>/dev/tcp/127.0.0.1/{port}")
}

/// Connects to the abstract socket of this name. Bash alone cannot.
pub(super) fn dial_abstract(name: &str) -> String {
    format!(
        "if command -v perl >/dev/null; then perl -MSocket -e \
         'socket(S, AF_UNIX, SOCK_STREAM, 0); connect(S, pack(\"Sa*\", AF_UNIX, \"\\0{name}\"))'; \
         elif command -v python3 >/dev/null; then python3 -c \
         'import socket; socket.socket(socket.AF_UNIX).connect(\"\\0{name}\")'; \
         else echo lacks perl or python3; exit; fi"
    )
}

/// Runs this command, for which it takes this tool.
pub(super) fn tool(tool: &str, command: &str) -> String {
    format!("command -v {tool} >/dev/null || {{ echo lacks {tool}; exit; }}; {command} && echo {DID}")
}

/// Starts many processes and counts them, until there are more than this or no more come.
pub(super) fn crowd(most: u64) -> String {
    let half = most / 2;
    format!(
        "exec 3<> <(:); yes 60 | head -n {CROWD} | xargs -P {CROWD} -n 1 sleep & n=0; \
         for i in {{1..100}}; do read -t 0.1 -u 3; set -- /proc/[0-9]*; \
         [ $# -gt {most} ] && break; [ $# -eq $n ] && [ $# -gt {half} ] && break; n=$#; done; echo count $#"
    )
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::{SocketAddr, UnixListener};
    use std::process::Command;

    use super::*;

    /// Runs it in namespaces of its own, so that it may mount, but with nothing to hold it otherwise.
    #[expect(clippy::disallowed_methods, reason = "the control of what is tried in a jail")]
    fn unconfined(script: &str) -> String {
        let namespaces = ["--user", "--map-root-user", "--mount", "--pid", "--fork", "--kill-child"];
        let mut command = Command::new("unshare");
        command.args(namespaces).args(["bash", "-c", script]).env_clear();
        let output = command.env("PATH", "/usr/bin:/bin:/usr/sbin:/sbin").output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    }

    #[test]
    fn every_attempt_succeeds_where_nothing_confines_it() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("it's here");
        std::fs::write(&file, "x").unwrap();
        assert_eq!(unconfined(&read(&[PathBuf::from("/nowhere"), file])), "did\n");
        let made = folder.path().join("made");
        unconfined(&write(&made));
        assert!(made.exists());
        // Process 1 of its own namespace is the one that it sees under /proc of its own.
        let touched = unconfined(&format!("mount -t proc proc /proc; {}", touch(1)));
        assert!(touched.starts_with("1 (bash) ") && touched.ends_with("\ndid\n"), "{touched}");
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
    fn a_crowd_is_counted_until_it_is_too_large() {
        let told = unconfined(&format!("mount -t proc proc /proc; {}", crowd(20)));
        let count: u32 = told.strip_prefix("count ").unwrap().trim().parse().unwrap();
        assert!(count > 20, "{told}");
    }
}
