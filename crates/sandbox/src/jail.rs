//! What a jail shall be: one value, complete, that can be handed to another process.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::mask;

/// One jail and the program that runs in it as its process 1.
///
/// Nothing comes from the process that starts it: the environment is exactly `environment`, and everything that can
/// be written is a [`Bind`] with [`Access::ReadWrite`] or lies in the private `/tmp`, `/var/tmp` and `/dev/shm`. The
/// rest of the machine's file tree can be read, except what is `masked`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Jail {
    /// The program, by its path inside the jail. It reaps what it does not know: it is process 1.
    #[serde(with = "lossless")]
    pub program: PathBuf,
    /// Its arguments, without its own name.
    pub arguments: Vec<OsString>,
    /// Where it starts, inside the jail.
    #[serde(with = "lossless")]
    pub directory: PathBuf,
    /// Its whole environment.
    pub environment: Vec<(OsString, OsString)>,
    /// Directories and files of the host that the jail sees on purpose, also below masked ones.
    pub binds: Vec<Bind>,
    /// Paths of the host that appear empty, also where a bind shows them at another path. What does not exist is not
    /// hidden. Absolute, without `..`.
    #[serde(with = "lossless_list")]
    pub masked: Vec<PathBuf>,
    /// What of the network it can reach.
    pub network: Network,
    /// How much it may use.
    pub limits: Limits,
    /// What it takes this machine's name to be.
    pub hostname: String,
    /// Whether it outlives the process that launched it.
    pub lifetime: Lifetime,
    /// A directory of the host that is removed when the program has ended well, together with the file of the same name
    /// and `.lock` behind it. Whoever holds that file locked sees to the directory itself.
    pub room: Option<OsString>,
}

/// Something of the host, shown in the jail.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bind {
    /// The path on the host.
    #[serde(with = "lossless")]
    pub source: PathBuf,
    /// The path in the jail. It must exist in the read-only tree, unless it begins with a name that the root does not
    /// have, or lies below a masked or private directory: there it is made.
    #[serde(with = "lossless")]
    pub target: PathBuf,
    /// Whether the jail may write there.
    pub access: Access,
}

/// Whether a bind can be written from inside.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Access {
    /// The jail can only read.
    ReadOnly,
    /// The jail can read and write.
    ReadWrite,
}

/// What of the network a jail can reach.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Network {
    /// A loopback interface of its own and nothing else.
    None,
    /// The network of the host, its loopback included. This is a hole, and shown as one.
    Full,
}

/// How much a jail may use. What is `None` is not limited by us. What cannot be enforced is in [`Held`](crate::Held).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Bytes of memory, of all its processes together.
    pub memory: Option<u64>,
    /// Processes and threads.
    pub processes: Option<u32>,
    /// Processor time, in thousandths of one processor.
    pub millicpus: Option<u32>,
    /// Bytes on disk in the directories it may write. The private directories are always limited, see `scratch`.
    pub disk: Option<u64>,
    /// Bytes in `/tmp`, `/var/tmp` and `/dev/shm` together. They are kept in memory and count as such.
    pub scratch: Option<u64>,
    /// Open files of each process.
    pub open_files: Option<u64>,
}

/// Whether a jail outlives the process that launched it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Lifetime {
    /// It is killed when the handle is dropped or the process holding it dies, however it dies.
    WithParent,
    /// It lives until its program ends or it is killed. The program is expected to end itself.
    Detached,
}

impl Jail {
    /// A jail around `program` that can write nothing but its private directories, reaches no network and dies with
    /// its launcher. What no command needs is hidden: secrets of the system, sockets of engines and sessions, other
    /// people's homes, and the credentials in `home`. The rest of `home` stays readable, because people keep their
    /// tools there.
    pub fn new(program: impl Into<PathBuf>, home: &Path) -> Self {
        let (masked, binds) = mask::usual(home);
        Self {
            program: program.into(),
            arguments: Vec::new(),
            directory: PathBuf::from("/"),
            environment: Vec::new(),
            binds,
            masked,
            network: Network::None,
            limits: Limits::default(),
            hostname: "sandbox".to_owned(),
            lifetime: Lifetime::WithParent,
            room: None,
        }
    }

    /// Shows `path` at the same path.
    #[must_use]
    pub fn bind(mut self, path: impl AsRef<Path>, access: Access) -> Self {
        let path = path.as_ref();
        self.binds.push(Bind { source: path.to_path_buf(), target: path.to_path_buf(), access });
        self
    }
}

/// A path is bytes, not text: what cannot be written as UTF-8 must still arrive.
mod lossless {
    use std::ffi::OsString;
    use std::path::{Path, PathBuf};

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(super) fn serialize<S: Serializer>(path: &Path, to: S) -> Result<S::Ok, S::Error> {
        path.as_os_str().serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<PathBuf, D::Error> {
        OsString::deserialize(from).map(PathBuf::from)
    }
}

mod lossless_list {
    use std::ffi::{OsStr, OsString};
    use std::path::PathBuf;

    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(paths: &[PathBuf], to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(paths.iter().map(|path| -> &OsStr { path.as_os_str() }))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<PathBuf>, D::Error> {
        Ok(Vec::<OsString>::deserialize(from)?.into_iter().map(PathBuf::from).collect())
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStringExt;

    use super::*;

    #[test]
    fn a_jail_with_paths_that_are_not_text_arrives_whole() {
        let odd = PathBuf::from(OsString::from_vec(b"/data/\xff\xfe\n".to_vec()));
        let mut jail = Jail::new(&odd, Path::new("/root")).bind(&odd, Access::ReadWrite);
        jail.masked.push(odd.clone());
        jail.arguments.push(odd.into_os_string());
        let bytes = postcard::to_stdvec(&jail).unwrap();
        assert_eq!(postcard::from_bytes::<Jail>(&bytes).unwrap(), jail);
    }
}
