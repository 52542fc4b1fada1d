//! What of the host is shown inside a place, and what that lets commands hurt.

use std::fs;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use hermes_types::Reach;
use serde::Serialize;

/// A directory or file of the host that a place sees.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct BindMount {
    /// Its path on the host.
    pub source: PathBuf,
    /// Its path inside.
    pub target: PathBuf,
    /// Whether it can be written from inside.
    pub writable: Writable,
}

/// Whether something of the host can be written from inside.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum Writable {
    /// It can.
    Yes,
    /// It can only be read.
    No,
}

/// Directories that hold the sockets, devices or controls of the machine.
const CONTROL_DIRS: &[&str] = &["/", "/run", "/var", "/var/run", "/dev", "/proc", "/sys"];

/// What commands that see these can hurt.
pub fn binds_reach(binds: &[BindMount]) -> Reach {
    // A socket can be spoken to however it is mounted, and whoever listens there acts for the command.
    if binds.iter().any(|bind| controls_host(&bind.source)) {
        return Reach::Host;
    }
    let writable = binds.iter().filter(|bind| bind.writable == Writable::Yes);
    let targets: Vec<String> = writable.map(|bind| bind.target.display().to_string()).collect();
    if targets.is_empty() { Reach::Nothing } else { Reach::Directories(targets) }
}

fn controls_host(source: &Path) -> bool {
    // What a path leads to counts, not how it is written; what is not there yet is taken by its name.
    let real = fs::canonicalize(source).unwrap_or_else(|_missing| source.components().collect());
    let is_socket = fs::metadata(&real).is_ok_and(|meta| meta.file_type().is_socket());
    is_socket
        || [source, &real].iter().any(|path| path.extension().is_some_and(|end| end == "sock"))
        || CONTROL_DIRS.iter().any(|control| real == Path::new(control))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_is_the_host_under_any_name_and_a_readable_directory_is_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("engine");
        let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        let link = folder.path().join("link");
        std::os::unix::fs::symlink("/run", &link).unwrap();
        let plain = folder.path().to_str().unwrap();
        let there = |path: &Path| path.to_str().unwrap().to_owned();
        let mine = || Reach::Directories(vec!["/x".to_owned()]);
        let cases = [
            (plain.to_owned(), Writable::No, Reach::Nothing),
            (plain.to_owned(), Writable::Yes, mine()),
            (there(&socket), Writable::No, Reach::Host),
            (there(&link), Writable::No, Reach::Host),
            ("/nowhere/docker.sock".to_owned(), Writable::No, Reach::Host),
            ("/".to_owned(), Writable::No, Reach::Host),
            ("/run/".to_owned(), Writable::Yes, Reach::Host),
        ];
        for (source, writable, expected) in cases {
            let bind = BindMount { source: source.clone().into(), target: "/x".into(), writable };
            assert_eq!(binds_reach(&[bind]), expected, "{source}");
        }
        assert_eq!(binds_reach(&[]), Reach::Nothing);
    }
}
