//! The complete description of a jail, which can be sent to another process.

use std::ffi::OsString;
use std::path::Path;

use hermes_types::MountAccess;
use serde::{Deserialize, Serialize};

use crate::mask;

/// A jail and the program that runs in it as process 1.
///
/// The program inherits nothing: its environment is exactly `environment`. It can write only to a
/// [`JailMount`] with [`MountAccess::ReadWrite`] and to the private `/tmp`, `/var/tmp` and
/// `/dev/shm`. It can read the rest of the host's file tree, except `masked` paths.
///
/// Paths are `OsString`s, because a `PathBuf` that is not UTF-8 cannot be serialized.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Jail {
    /// Path of the program inside the jail. As process 1 it must reap orphaned processes.
    pub program: OsString,
    /// Arguments, without the program name.
    pub arguments: Vec<OsString>,
    /// Working directory inside the jail.
    pub directory: OsString,
    /// The complete environment.
    pub environment: Vec<(OsString, OsString)>,
    /// Directories and files of the host that the jail can access, even below masked paths.
    pub binds: Vec<JailMount>,
    /// Paths of the host that appear empty, even where a bind mount shows them at another path.
    /// Missing paths are ignored. Must be absolute, without `..`.
    pub masked: Vec<OsString>,
    pub network: JailNetwork,
    pub limits: JailLimits,
    pub hostname: String,
    pub lifetime: Lifetime,
    /// A directory of the host that is removed when the program exits with 0, together with the
    /// lock file of the same name with the extension `.lock`. A process that holds the lock is
    /// responsible for the directory instead.
    pub run_dir: Option<OsString>,
}

/// A path of the host that is visible in the jail.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JailMount {
    pub source: OsString,
    /// The path in the jail. It must exist in the read-only tree, unless its first component does
    /// not exist in the root, or it is below a masked or private directory: there it is created.
    pub target: OsString,
    pub access: MountAccess,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum JailNetwork {
    /// Only a private loopback interface.
    None,
    /// The network of the host, including its loopback. This is an exposure.
    Full,
}

/// Resource limits; `None` is unlimited. Limits that this machine cannot enforce are listed in
/// [`LimitReport`](crate::LimitReport).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JailLimits {
    /// Bytes of memory of all processes together.
    pub memory: Option<u64>,
    /// Number of processes and threads.
    pub processes: Option<u32>,
    /// Processor time in thousandths of one processor.
    pub millicpus: Option<u32>,
    /// Bytes in `/tmp`, `/var/tmp` and `/dev/shm` together. They are in memory and count as memory.
    pub scratch: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Lifetime {
    /// The jail is killed when the handle is dropped or its process dies.
    WithParent,
    /// The jail lives until its program exits or it is killed. The program must exit by itself.
    Detached,
}

impl Jail {
    /// A jail that can write only to its private directories, has no network and dies with its
    /// launcher. It masks system secrets, sockets of container engines and user sessions, other
    /// users' homes, and credentials in `home`. The rest of `home` is readable, because users keep
    /// their tools there.
    pub fn new(program: impl Into<OsString>, home: &Path) -> Self {
        let (masked, binds) = mask::default_masks(home);
        Self {
            program: program.into(),
            arguments: Vec::new(),
            directory: OsString::from("/"),
            environment: Vec::new(),
            binds,
            masked,
            network: JailNetwork::None,
            limits: JailLimits::default(),
            hostname: "sandbox".to_owned(),
            lifetime: Lifetime::WithParent,
            run_dir: None,
        }
    }

    /// Adds a bind mount of `path` at the same path.
    #[must_use]
    pub fn bind(mut self, path: impl AsRef<Path>, access: MountAccess) -> Self {
        let path = path.as_ref();
        self.binds.push(JailMount { source: path.into(), target: path.into(), access });
        self
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStringExt;
    use std::path::PathBuf;

    use super::*;

    #[test]
    fn a_jail_with_non_utf8_paths_is_serialized_losslessly() {
        let odd = PathBuf::from(OsString::from_vec(b"/data/\xff\xfe\n".to_vec()));
        let mut jail = Jail::new(&odd, Path::new("/root")).bind(&odd, MountAccess::ReadWrite);
        jail.masked.push(odd.clone().into());
        jail.arguments.push(odd.into_os_string());
        let bytes = postcard::to_stdvec(&jail).unwrap();
        assert_eq!(postcard::from_bytes::<Jail>(&bytes).unwrap(), jail);
    }
}
