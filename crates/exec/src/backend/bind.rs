//! Host directories and files that a place sees, and the reach they give its commands.

use std::fs;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use hermes_types::{MountAccess, Reach};
use serde::{Serialize, Serializer};

/// A host directory or file mounted into a place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct BindMount {
    pub source: PathBuf,
    pub target: PathBuf,
    #[serde(rename = "writable", serialize_with = "serialize_access")]
    pub access: MountAccess,
}

/// The form in the records of places.
pub(crate) fn serialize_access<S: Serializer>(
    access: &MountAccess,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(if *access == MountAccess::ReadWrite { "Yes" } else { "No" })
}

/// Directories that hold sockets, devices or kernel controls.
const CONTROL_DIRS: &[&str] = &["/", "/run", "/var", "/var/run", "/dev", "/proc", "/sys"];

/// The reach of commands that see these mounts.
pub fn binds_reach(binds: &[BindMount]) -> Reach {
    // A read-only mount does not stop a command from talking to a socket, and the server behind it
    // acts for the command.
    if binds.iter().any(|bind| controls_host(&bind.source)) {
        return Reach::Host;
    }
    let writable = binds.iter().filter(|bind| bind.access == MountAccess::ReadWrite);
    let targets: Vec<String> = writable.map(|bind| bind.target.display().to_string()).collect();
    if targets.is_empty() { Reach::Nothing } else { Reach::Directories(targets) }
}

fn controls_host(source: &Path) -> bool {
    // Symbolic links are resolved. A path that does not exist yet is judged by its name.
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
    fn a_socket_has_host_reach_and_a_read_only_directory_none() {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("engine");
        let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        let link = folder.path().join("link");
        std::os::unix::fs::symlink("/run", &link).unwrap();
        let plain = folder.path().to_str().unwrap();
        let there = |path: &Path| path.to_str().unwrap().to_owned();
        let mine = || Reach::Directories(vec!["/x".to_owned()]);
        let cases = [
            (plain.to_owned(), MountAccess::ReadOnly, Reach::Nothing),
            (plain.to_owned(), MountAccess::ReadWrite, mine()),
            (there(&socket), MountAccess::ReadOnly, Reach::Host),
            (there(&link), MountAccess::ReadOnly, Reach::Host),
            ("/nowhere/docker.sock".to_owned(), MountAccess::ReadOnly, Reach::Host),
            ("/".to_owned(), MountAccess::ReadOnly, Reach::Host),
            ("/run/".to_owned(), MountAccess::ReadWrite, Reach::Host),
        ];
        for (source, access, expected) in cases {
            let bind = BindMount { source: source.clone().into(), target: "/x".into(), access };
            assert_eq!(binds_reach(&[bind]), expected, "{source}");
        }
        assert_eq!(binds_reach(&[]), Reach::Nothing);
    }
}
