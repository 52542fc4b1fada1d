//! Host paths for Hermes inside a container.
//!
//! An engine resolves mount sources on its own host. If it also created the container that Hermes
//! runs in, the mounts of that container tell where a path is on the host. An engine that does not
//! know this container sees the same paths as Hermes.

use std::fs;
use std::path::{Path, PathBuf};

use bollard::errors::Error as ApiError;
use bollard::models::{ContainerCreateBody, MountPoint, MountType};

use super::engine::Engine;
use super::unavailable;
use crate::Error;

/// Files that engines mount into every container, from a directory named after the container id.
const ENGINE_MOUNTED_FILES: [&str; 4] =
    ["/etc/hostname", "/etc/hosts", "/etc/resolv.conf", "/run/.containerenv"];

/// Rewrites every host path in a request as the engine sees it.
pub(super) async fn translate_paths(engine: &Engine, body: &mut ContainerCreateBody) -> Result<(), Error> {
    let Some(own) = OwnContainer::find(engine).await? else { return Ok(()) };
    let Some(host) = &mut body.host_config else { return Ok(()) };
    let bound = host.mounts.iter_mut().flatten().filter(|mount| mount.typ == Some(MountType::BIND));
    for source in bound.filter_map(|mount| mount.source.as_mut()) {
        *source = own.engine_path(source)?;
    }
    for entry in host.binds.iter_mut().flatten() {
        if let Some((source, rest)) = entry.split_once(':').filter(|(source, _)| source.starts_with('/')) {
            *entry = format!("{}:{rest}", own.engine_path(source)?);
        }
    }
    Ok(())
}

/// The container that Hermes runs in.
struct OwnContainer {
    id: String,
    mounts: Vec<MountPoint>,
}

impl OwnContainer {
    async fn find(engine: &Engine) -> Result<Option<Self>, Error> {
        let table = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let Some(id) = own_container_id(&table) else { return Ok(None) };
        match engine.api.inspect_container(&id, None).await {
            Ok(found) => Ok(Some(Self { id, mounts: found.mounts.unwrap_or_default() })),
            Err(ApiError::DockerResponseServerError { status_code: 404, .. }) => Ok(None),
            Err(error) => {
                Err(unavailable(format!("cannot inspect the container that hermes runs in: {error}")))
            }
        }
    }

    fn engine_path(&self, path: &str) -> Result<String, Error> {
        let real = resolve_existing(Path::new(path));
        let around = self.mounts.iter().filter_map(|mount| {
            let below = real.strip_prefix(mount.destination.as_deref()?).ok()?;
            Some((below, mount))
        });
        // The deepest mount contains the path.
        let on = around.min_by_key(|(below, _)| below.components().count());
        let source = on.and_then(|(below, mount)| {
            let is_memory = mount.typ.as_deref() == Some("tmpfs");
            let source = mount.source.as_deref().filter(|source| !is_memory && !source.is_empty())?;
            Some(PathBuf::from(source).join(below))
        });
        let unseen =
            || Error::PathNotVisible { path: real.clone(), container: self.id.chars().take(12).collect() };
        // Joining an empty path leaves a trailing slash, which is invalid for a file.
        let source: PathBuf = source.ok_or_else(unseen)?.components().collect();
        Ok(source.to_string_lossy().into_owned())
    }
}

/// Resolves symbolic links in the part of the path that exists.
fn resolve_existing(path: &Path) -> PathBuf {
    let there = path.ancestors().find_map(|there| {
        let rest = path.strip_prefix(there).ok()?;
        Some(fs::canonicalize(there).ok()?.join(rest).components().collect())
    });
    there.unwrap_or_else(|| path.to_owned())
}

/// The id of the container that this process runs in, found in its mount table.
fn own_container_id(table: &str) -> Option<String> {
    let is_id = |part: &&str| part.len() == 64 && part.bytes().all(|byte| byte.is_ascii_hexdigit());
    table.lines().find_map(|line| {
        let mut words = line.split(' ').skip(3);
        let (root, target) = (words.next()?, words.next()?);
        if !ENGINE_MOUNTED_FILES.contains(&target) {
            return None;
        }
        root.split('/').find(is_id).map(str::to_owned)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_own_container_id_is_found_in_the_mount_table() {
        let id = "0123456789abcdef".repeat(4);
        let line =
            |root: &str, target: &str| format!("30 20 8:1 {root} {target} rw,relatime - ext4 /dev/sda1 rw\n");
        let docker = format!("/var/lib/docker/containers/{id}/hostname");
        let podman = format!("/containers/overlay-containers/{id}/userdata/hostname");
        for root in [docker, podman] {
            let table = line("/", "/") + &line(&root, "/etc/hostname");
            assert_eq!(own_container_id(&table), Some(id.clone()), "{root}");
            // The host's own mount table lists its containers, but at other paths.
            assert_eq!(own_container_id(&line(&root, "/mnt")), None);
        }
        assert_eq!(own_container_id(&line("/", "/")), None);
    }

    #[test]
    fn a_path_is_translated_through_its_mount() {
        let folder = tempfile::tempdir().unwrap();
        let top = folder.path().canonicalize().unwrap();
        fs::create_dir_all(top.join("home/inner/deep")).unwrap();
        fs::write(top.join("home/file"), "").unwrap();
        fs::create_dir(top.join("memory")).unwrap();
        std::os::unix::fs::symlink(top.join("home/inner"), top.join("link")).unwrap();
        let at = |name: &str| top.join(name).display().to_string();
        let mount = |source: &str, target: &str, typ: &str| MountPoint {
            source: Some(source.to_owned()),
            destination: Some(at(target)),
            typ: Some(typ.to_owned()),
            ..MountPoint::default()
        };
        let mounts = vec![
            mount("/srv/home", "home", "bind"),
            mount("/vol/_data", "home/inner", "volume"),
            mount("/srv/one", "home/file", "bind"),
            mount("", "memory", "tmpfs"),
        ];
        let own = OwnContainer { id: "f".repeat(64), mounts };
        let cases = [
            ("home", Some("/srv/home")),
            ("home/file", Some("/srv/one")),
            ("home/inner/deep", Some("/vol/_data/deep")),
            ("link/deep", Some("/vol/_data/deep")),
            ("memory", None),
            ("", None),
        ];
        for (path, expected) in cases {
            assert_eq!(own.engine_path(&at(path)).ok().as_deref(), expected, "{path}");
        }
        let refused = own.engine_path(&at("memory")).unwrap_err().to_string();
        assert!(refused.contains(&at("memory")) && refused.contains("ffffffffffff"), "{refused}");
    }
}
