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

/// Directories that hold sockets, devices or kernel controls, or files of engines that run
/// everything as root.
const CONTROL_DIRS: &[&str] = &[
    "/run", "/var/run", "/dev", "/proc", "/sys", "/var/lib/docker", "/var/lib/containers",
    "/var/lib/containerd", "/var/lib/kubelet", "/var/lib/rancher", "/var/lib/lxd", "/var/lib/incus",
    "/var/lib/libvirt", "/var/snap",
];

/// Directories whose files decide what the host runs.
const SYSTEM_DIRS: &[&str] = &[
    "/etc", "/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/boot", "/var", "/nix", "/gnu",
];
/// Below system directories, but made for the files of people and services.
const WORK_DIRS: &[&str] =
    &["/usr/src", "/usr/local/src", "/var/www", "/var/tmp", "/var/folders", "/var/lib/jenkins"];

const HOME_PARENTS: &[&str] = &["/home", "/var/home", "/export/home", "/Users"];
/// A home elsewhere has one of these.
const HOME_FILES: &[&str] = &[".bashrc", ".zshrc", ".ssh"];

/// A directory with more entries in its top two levels is not searched for sockets to the end.
const MAX_SEARCHED: usize = 100_000;

/// The reach of commands that see these mounts.
pub fn binds_reach(binds: &[BindMount]) -> Reach {
    if binds.iter().any(reaches_host) {
        return Reach::Host;
    }
    let writable = binds.iter().filter(|bind| bind.access == MountAccess::ReadWrite);
    let targets: Vec<String> = writable.map(|bind| bind.target.display().to_string()).collect();
    if targets.is_empty() { Reach::Nothing } else { Reach::Directories(targets) }
}

fn reaches_host(bind: &BindMount) -> bool {
    // Symbolic links are resolved. A path that does not exist yet is judged by its name.
    let real = fs::canonicalize(&bind.source).unwrap_or_else(|_missing| bind.source.components().collect());
    let is_writable = bind.access == MountAccess::ReadWrite;
    // A read-only mount does not stop a command from talking to a socket, and the server behind it
    // acts for the command.
    [&bind.source, &real].iter().any(|path| path.extension().is_some_and(|end| end == "sock"))
        || controls_host(&real, is_writable)
        || (is_writable && (is_system(&real) || holds_home(&real)))
}

/// Whether a path is, contains or lies below a directory of controls, or shows a socket.
fn controls_host(real: &Path, is_writable: bool) -> bool {
    let kind = fs::metadata(real).map(|meta| meta.file_type());
    if kind.as_ref().is_ok_and(|kind| kind.is_socket()) {
        return true;
    }
    // Such as the name servers in `/run/systemd/resolve`.
    let is_kernel = ["/dev", "/proc", "/sys"].iter().any(|dir| real.starts_with(dir));
    if kind.is_ok_and(|kind| kind.is_file()) && !is_writable && !is_kernel {
        return false;
    }
    let overlaps = |control: &&str| real.starts_with(control) || Path::new(control).starts_with(real);
    CONTROL_DIRS.iter().any(overlaps) || shows_socket(real)
}

/// Whether the top two levels of a directory contain a socket, or too much to tell.
fn shows_socket(directory: &Path) -> bool {
    let entries = |directory: &Path| fs::read_dir(directory).into_iter().flatten().flatten();
    let below = |entry: &fs::DirEntry| {
        let is_directory = entry.file_type().is_ok_and(|kind| kind.is_dir());
        is_directory.then(|| entries(&entry.path())).into_iter().flatten()
    };
    let searched = entries(directory).flat_map(|entry| below(&entry).chain([entry]));
    let mut searched = searched.enumerate();
    searched
        .any(|(count, entry)| count >= MAX_SEARCHED || entry.file_type().is_ok_and(|kind| kind.is_socket()))
}

fn is_system(real: &Path) -> bool {
    let below = |dirs: &[&str]| dirs.iter().any(|dir| real.starts_with(dir));
    below(SYSTEM_DIRS) && !below(WORK_DIRS)
}

/// Whether a path is the home of a user or contains homes: start-up files there are run outside.
fn holds_home(real: &Path) -> bool {
    let homes = || HOME_PARENTS.iter().map(Path::new);
    homes().any(|homes| homes.starts_with(real) || real.parent() == Some(homes))
        || Path::new("/root") == real
        || HOME_FILES.iter().any(|name| real.join(name).exists())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reach_of(source: &Path, access: MountAccess) -> Reach {
        binds_reach(&[BindMount { source: source.into(), target: "/x".into(), access }])
    }

    fn directories() -> Reach {
        Reach::Directories(vec!["/x".to_owned()])
    }

    #[test]
    fn a_socket_has_host_reach_and_a_read_only_directory_none() {
        let folder = tempfile::tempdir().unwrap();
        let (plain, deep) = (folder.path().join("plain"), folder.path().join("deep"));
        fs::create_dir_all(&plain).unwrap();
        fs::create_dir_all(deep.join("a/b")).unwrap();
        let socket = deep.join("a/engine");
        let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        let link = folder.path().join("link");
        std::os::unix::fs::symlink("/run", &link).unwrap();
        assert_eq!(reach_of(&plain, MountAccess::ReadOnly), Reach::Nothing);
        assert_eq!(reach_of(&plain, MountAccess::ReadWrite), directories());
        let with_socket = [&socket, &deep, &deep.join("a"), &link];
        let by_name = ["/nowhere/docker.sock", "/"].map(PathBuf::from);
        for source in with_socket.into_iter().chain(&by_name) {
            assert_eq!(reach_of(source, MountAccess::ReadOnly), Reach::Host, "{}", source.display());
        }
        // A socket deeper down is some program's own.
        assert_eq!(reach_of(folder.path(), MountAccess::ReadOnly), Reach::Nothing);
        assert_eq!(binds_reach(&[]), Reach::Nothing);
    }

    #[test]
    fn directories_that_lead_to_sockets_and_devices_have_host_reach() {
        for source in [
            "/run/podman", "/run/user/1000", "/var/run/nowhere", "/run/", "/var/lib/docker", "/var/lib",
            "/var", "/sys/fs/cgroup", "/dev/disk", "/proc/1", "/proc/version",
        ] {
            assert_eq!(reach_of(Path::new(source), MountAccess::ReadOnly), Reach::Host, "{source}");
        }
    }

    #[test]
    fn a_writable_mount_of_a_system_directory_or_a_home_has_host_reach() {
        let folder = tempfile::tempdir_in("/var/tmp").unwrap();
        fs::write(folder.path().join(".bashrc"), "").unwrap();
        let cases = [
            ("/etc", Reach::Host),
            ("/etc/cron.d", Reach::Host),
            ("/usr/local/bin", Reach::Host),
            ("/home", Reach::Host),
            ("/home/nobody-of-this-name", Reach::Host),
            ("/home/nobody-of-this-name/work", directories()),
            ("/usr/local/src/project", directories()),
            ("/srv/data", directories()),
            (folder.path().to_str().unwrap(), Reach::Host),
        ];
        for (source, expected) in cases {
            assert_eq!(reach_of(Path::new(source), MountAccess::ReadWrite), expected, "{source}");
        }
        for source in ["/etc", "/etc/passwd", "/usr/local", "/home/nobody-of-this-name"] {
            assert_eq!(reach_of(Path::new(source), MountAccess::ReadOnly), Reach::Nothing, "{source}");
        }
    }
}
