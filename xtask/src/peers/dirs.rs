//! Where the peers keep their files.

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// The two directories that everything lives in.
#[derive(Debug, Clone)]
pub(crate) struct Dirs {
    /// Files that are kept: images, storage of the engines, logs, `peers.json`.
    state: PathBuf,
    /// Files that end with the machine: sockets and records of processes. It is short because the
    /// path of a Unix socket has room for about 100 bytes, and named after the state directory so
    /// that it is found again even if that was deleted while peers were up.
    run: PathBuf,
    id: String,
}

impl Dirs {
    /// The directories of this workspace, or of `HERMES_PEERS_DIR`.
    pub(crate) fn find() -> Result<Self> {
        let state = match std::env::var_os("HERMES_PEERS_DIR") {
            Some(path) => std::path::absolute(PathBuf::from(path)).context("HERMES_PEERS_DIR")?,
            None => Path::new(env!("CARGO_MANIFEST_DIR"))
                .parent()
                .context("xtask has no parent directory")?
                .join("target/peers"),
        };
        let id = format!("hermes-peers-{}", fingerprint(&state));
        Ok(Self { run: Path::new("/run").join(&id), state, id })
    }

    /// A name for things outside the directories, such as cgroups, that no other workspace uses.
    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    /// A path in the state directory.
    pub(crate) fn state(&self, path: &str) -> PathBuf {
        self.state.join(path)
    }

    /// A path in the runtime directory.
    pub(crate) fn run(&self, path: &str) -> PathBuf {
        self.run.join(path)
    }

    /// The runtime directory itself.
    pub(crate) fn run_root(&self) -> &Path {
        &self.run
    }

    /// The log of a peer or of a build step.
    pub(crate) fn log(&self, name: &str) -> PathBuf {
        self.state.join("logs").join(format!("{name}.log"))
    }

    /// Creates the directories that every task needs.
    pub(crate) fn create(&self) -> Result<()> {
        make(&self.state, 0o755)?;
        make(&self.state("logs"), 0o755)?;
        make(&self.state("shared"), 0o1777)
    }
}

/// Creates a directory and its parents, with this mode for the last.
pub(crate) fn make(path: &Path, mode: u32) -> Result<()> {
    fs::create_dir_all(path).with_context(|| format!("cannot create {}", path.display()))?;
    fs::set_permissions(path, fs::Permissions::from_mode(mode))
        .with_context(|| format!("cannot set the mode of {}", path.display()))
}

/// Replaces a file as a whole, so that a reader or a killed writer never leaves half of it.
pub(crate) fn write(path: &Path, contents: &str, mode: u32) -> Result<()> {
    let fresh = path.with_added_extension("new");
    fs::write(&fresh, contents).with_context(|| format!("cannot write {}", fresh.display()))?;
    fs::set_permissions(&fresh, fs::Permissions::from_mode(mode))?;
    fs::rename(&fresh, path).with_context(|| format!("cannot write {}", path.display()))
}

/// Removes a file or a whole directory; one that is not there is fine.
pub(crate) fn remove(path: &Path) -> Result<()> {
    let outcome = match fs::symlink_metadata(path) {
        Ok(meta) if meta.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(error) => Err(error),
    };
    match outcome {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {}", path.display()))
        }
        _ => Ok(()),
    }
}

/// Removes everything in a directory except these entries: files of earlier recipes.
pub(crate) fn keep_only(dir: &Path, names: &[String]) -> Result<()> {
    for entry in fs::read_dir(dir).with_context(|| format!("cannot read {}", dir.display()))? {
        let entry = entry?;
        if !names.iter().any(|name| entry.file_name() == name.as_str()) {
            remove(&entry.path())?;
        }
    }
    Ok(())
}

/// Eight hexadecimal digits that change with the value.
pub(crate) fn fingerprint(value: impl Hash) -> String {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    format!("{:08x}", hasher.finish() & 0xffff_ffff)
}
