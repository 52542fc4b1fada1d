//! Containers of Docker or Podman, through the Engine API.
//!
//! | | |
//! |---|---|
//! | needs | an engine with Engine API 1.41 or later; no `docker` command |
//! | confines | what the engine's runtime confines, with the fewest rights it can give |
//! | cleans up | the guest is the first process; it exits when idle and the engine removes the container |

pub mod container;
pub mod credentials;
pub mod discover;
pub mod engine;
pub mod engine_error;
pub mod mount_policy;
mod mounts;
mod orphans;
pub mod pull;
pub mod request;
pub mod run_args;
mod translate;
pub mod transport;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use bollard::errors::Error as ApiError;
use bollard::models::{ContainerCreateBody, ContainerInspectResponse};
use bollard::query_parameters::CreateContainerOptionsBuilder;
use hermes_types::{BackendName, Network, Reach};
use serde::Serialize;
use tokio::net::UnixStream;

use super::CreateRequest;
use super::bind::{self, BindMount};
use crate::registry::{PlaceDir, PlaceRecord, SHARED_DIR, create_dirs, run_blocking};
use crate::{Error, ResolvedPlace, embed};
use container::{Container, NamedContainer};
use engine::{Engine, EngineAddress, EngineFacts, EngineKind};
use engine_error::EngineError;
use run_args::RunArgs;

/// The home directory of commands inside the container.
pub const HOME_DIR: &str = "/root";
/// The initial working directory inside the container.
pub const WORKSPACE_DIR: &str = "/workspace";
/// The subdirectory of this backend below the directory of kept files.
pub const KEPT_SUBDIR: &str = "docker";

/// Few engines can limit the disk, so callers show this warning only to users who set a limit.
pub const NO_DISK_LIMIT: &str = "the engine cannot limit the disk of a container";

/// How long to wait for a name that another creation holds.
const NAME_TIMEOUT: Duration = Duration::from_secs(20);
const NAME_POLL_INTERVAL: Duration = Duration::from_millis(50);
const GUEST_START_TIMEOUT: Duration = Duration::from_secs(20);
const PRIVATE_MODE: u32 = 0o700;
const WORLD_WRITABLE_MODE: u32 = 0o777;
const POLL_INTERVAL: Duration = Duration::from_millis(1);

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DockerBackend {
    pub engine: EngineAddress,
    pub image: String,
    /// The host directory for kept files; `None` keeps nothing.
    pub files: Option<PathBuf>,
    pub binds: Vec<BindMount>,
    /// Mounts that only the engine can interpret.
    pub volumes: Vec<EngineVolume>,
    pub network: Network,
    pub limits: ContainerLimits,
    pub user: RunAs,
    /// Options from `terminal.docker_extra_args`.
    #[serde(rename = "extra")]
    pub run_args: Box<RunArgs>,
    /// The number of containers to keep running in advance.
    #[serde(skip)]
    pub warm_count: u32,
    /// Removes containers of this installation that no place directory refers to.
    #[serde(skip)]
    pub remove_orphans: bool,
}

/// A mount that only the engine can interpret: a named volume, or a path with engine options.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct EngineVolume {
    /// The source is a volume name or a host path.
    #[serde(flatten)]
    pub mount: BindMount,
    pub options: Vec<String>,
}

/// Resource limits; `None` means unlimited.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct ContainerLimits {
    pub millicpus: Option<u32>,
    pub memory: Option<u64>,
    /// Bytes of the container's writable layer.
    pub disk: Option<u64>,
    pub processes: Option<u32>,
    /// Bytes of shared memory; `None` leaves the engine's default.
    pub shm: Option<u64>,
    /// Bytes of each tmpfs, by path, instead of the defaults.
    pub scratch: BTreeMap<String, u64>,
}

/// The user that commands run as.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum RunAs {
    /// The user named by the image, usually root.
    Image,
    /// The user that Hermes runs as.
    Host,
}

impl DockerBackend {
    pub(crate) fn reach(&self) -> Reach {
        if self.run_args.reaches_host() {
            return Reach::Host;
        }
        bind::binds_reach(&self.owner_mounts())
    }

    /// The mounts that the owner configured. A volume belongs to the owner just as a host directory
    /// does.
    pub(crate) fn owner_mounts(&self) -> Vec<BindMount> {
        self.binds.iter().chain(self.volumes.iter().map(|volume| &volume.mount)).cloned().collect()
    }

    /// A warm place is handed over by renaming directories, which a remote engine does not share.
    pub(super) fn warm_count(&self) -> u32 {
        if self.engine.is_remote() { 0 } else { self.warm_count }
    }

    /// The configured limits that the engine cannot enforce.
    pub fn unenforced_limits(&self, facts: &EngineFacts) -> Vec<String> {
        let ContainerLimits { millicpus, memory, disk, processes, .. } = &self.limits;
        let mut unenforced = Vec::new();
        if disk.is_some() && !facts.has_disk_quota {
            unenforced.push(NO_DISK_LIMIT.to_owned());
        }
        for (name, is_set, enforced) in [
            ("memory", memory.is_some(), facts.enforced.memory),
            ("processors", millicpus.is_some(), facts.enforced.processor),
            ("processes", processes.is_some(), facts.enforced.processes),
        ] {
            if is_set && enforced == Some(false) {
                unenforced.push(format!("the engine cannot limit the {name} of a container"));
            }
        }
        if self.run_args.host.ulimits.is_some() && facts.kind == EngineKind::Podman && facts.is_rootless {
            unenforced.push("rootless Podman ignores `--ulimit`".to_owned());
        }
        unenforced
    }

    /// Whether user ids inside differ from those outside, root included.
    fn has_remapped_users(&self, facts: &EngineFacts) -> bool {
        match self.run_args.host.userns_mode.as_deref() {
            Some("host" | "keep-id") => false,
            Some("auto" | "nomap" | "private") => true,
            _ => facts.remaps_users,
        }
    }

    pub(super) fn kept_dir(&self, place: &ResolvedPlace) -> Option<PathBuf> {
        Some(self.files.as_ref()?.join(KEPT_SUBDIR).join(place.name()))
    }

    /// The container to remove when the place ends.
    pub(super) fn container(&self, place: &ResolvedPlace) -> Container {
        let has_volumes = self.files.is_some() && self.engine.is_remote();
        Container {
            engine: self.engine.clone(),
            name: request::container_name(place),
            place: place.name(),
            volumes: if has_volumes { request::volume_names(place) } else { Vec::new() },
            image: self.image.clone(),
            cache: place.installation.cache_dir.clone(),
        }
    }

    /// Connects to the engine and builds the create request.
    async fn prepare_request(
        &self,
        place: &ResolvedPlace,
    ) -> Result<(Engine, ContainerUser, ContainerCreateBody), Error> {
        let engine = Engine::connect_cached(&self.engine).await?;
        let container_user = match self.requested_user(&engine.facts) {
            Some(user) => ContainerUser::parse(&user),
            // With `keep-id` the process keeps its own uid unless the image names another user.
            None if self.run_args.host.userns_mode.as_deref() == Some("keep-id") => ContainerUser::Name,
            None => ContainerUser::parse(&image_user(&engine, &self.image).await),
        };
        let shared = place.storage_dir().join(SHARED_DIR);
        let mut body = self.build_request(
            place,
            &engine.facts,
            &container_user,
            &embed::guest_path(&place.installation.cache_dir),
            &shared,
        );
        translate::translate_paths(&engine, &mut body).await?;
        Ok((engine, container_user, body))
    }

    pub(super) async fn preview_request(&self, place: &ResolvedPlace) -> Result<CreateRequest, Error> {
        let (engine, _, body) = self.prepare_request(place).await?;
        Ok(CreateRequest {
            engine: Some(self.engine.to_string()),
            container: Some(request::container_name(place)),
            body: request::to_sorted_json(&body)?,
            unenforced: self.unenforced_limits(&engine.facts),
        })
    }

    pub(super) async fn create(
        &self,
        place: &ResolvedPlace,
        dir: &PlaceDir,
        record: &mut PlaceRecord,
    ) -> Result<UnixStream, Error> {
        let prepared = self.prepare(place, dir).await?;
        record.write(dir.path())?;
        record.request = Some(request::to_sorted_json(&prepared.body)?);
        record.unenforced = self.unenforced_limits(&prepared.engine.facts);
        let start = async {
            self.start(&prepared).await?;
            wait_for_guest(&prepared, dir).await
        };
        let started = start.await;
        if started.is_err() {
            prepared.container.remove_from(&prepared.engine).await?;
        }
        started
    }

    /// Checks that the container can be created and creates the host directories it needs.
    async fn prepare(&self, place: &ResolvedPlace, dir: &PlaceDir) -> Result<PreparedContainer, Error> {
        let (engine, user, body) = self.prepare_request(place).await?;
        let is_remapped = self.has_remapped_users(&engine.facts);
        if self.user == RunAs::Host && is_remapped {
            return Err(EngineError::UsersRemapped { address: self.engine.clone() }.into());
        }
        pull::check_image(&engine, &self.image).await?;
        let guest = embed::install_guest(&place.installation.cache_dir)?;
        let container = self.container(place);
        let kept = self.kept_dir(place);
        let is_remote = self.engine.is_remote();
        let subdirs: &[&str] = if is_remote { &[""] } else { &["workspace", "home"] };
        let kept_dirs: Vec<PathBuf> =
            kept.iter().flat_map(|kept| subdirs.iter().map(|name| kept.join(name))).collect();
        kept_dirs.iter().try_for_each(|path| create_dirs(path))?;
        self.prepare_mount_points(place)?;
        if is_remote {
            self.refuse_host_paths()?;
        }
        if self.remove_orphans {
            // Orphans do no harm; the next process retries.
            drop(orphans::remove_orphans(&engine, &place.installation).await);
        }
        match container.find(&engine).await? {
            NamedContainer::Foreign => return Err(Error::NameTaken { name: container.name }),
            NamedContainer::Ours(found) if is_used_elsewhere(&found, dir) => {
                return Err(Error::InUseElsewhere { name: place.name() });
            }
            // A killed hermes left this container behind.
            NamedContainer::Ours(_) | NamedContainer::Missing => container.remove_from(&engine).await?,
        }
        // The directories belong to the user that Hermes runs as, and root can write anywhere,
        // unless user ids are remapped.
        let is_owner = self.user == RunAs::Host && self.run_args.user.is_none();
        let is_private = (is_owner || user == ContainerUser::Root) && !is_remapped;
        if !is_remote {
            let (dir, owner, storage) = (dir.clone(), container.clone(), place.storage_dir());
            let shared = run_blocking(move || dir.create_shared(&storage, Some(&owner))).await?;
            if !is_private {
                // Only the engine knows the uid of a container user on the host. The parent
                // directory is private, so no other host user gets here.
                for path in kept_dirs.into_iter().chain([shared]).filter(|path| path.exists()) {
                    fs::set_permissions(&path, fs::Permissions::from_mode(WORLD_WRITABLE_MODE))
                        .map_err(Error::file(&path))?;
                }
            }
        }
        let run_mode = if is_private { PRIVATE_MODE } else { WORLD_WRITABLE_MODE };
        Ok(PreparedContainer { engine, container, body, guest, run_mode })
    }

    /// A remote engine cannot mount paths of this host.
    fn refuse_host_paths(&self) -> Result<(), Error> {
        match self.owner_mounts().into_iter().find(|mount| mount.source.is_absolute()) {
            None => Ok(()),
            Some(mount) => Err(unavailable(format!(
                "the engine at {} cannot mount {} of this machine",
                self.engine,
                mount.source.display()
            ))),
        }
    }

    /// Creates and starts the container.
    async fn start(&self, prepared: &PreparedContainer) -> Result<(), Error> {
        let PreparedContainer { engine, container, body, guest, run_mode } = prepared;
        let mounts = body.host_config.iter().flat_map(|config| config.mounts.iter().flatten());
        let sources: Vec<PathBuf> =
            mounts.filter_map(|mount| mount.source.as_ref().map(PathBuf::from)).collect();
        let explain = |error| Error::from(engine::explain_create_error(&self.engine, &error, &sources));
        let options = CreateContainerOptionsBuilder::new().name(&container.name).build();
        let deadline = Instant::now() + NAME_TIMEOUT;
        while let Err(error) = engine.api.create_container(Some(options.clone()), body.clone()).await {
            // The engine may still be creating the container for a hermes that was killed. Until
            // that is done the name is taken, but the container may not be found.
            match container.find(engine).await? {
                _ if Instant::now() > deadline => return Err(explain(error)),
                NamedContainer::Ours(_) => container.remove_from(engine).await?,
                NamedContainer::Missing if is_name_taken(&error) => {
                    tokio::time::sleep(NAME_POLL_INTERVAL).await;
                }
                _ => return Err(explain(error)),
            }
        }
        if self.engine.is_remote() {
            let owner = self.host_owner(&engine.facts).unwrap_or_default();
            let uploaded = container.upload_guest(engine, guest, *run_mode, owner).await;
            uploaded.map_err(|error| unavailable(error.to_string()))?;
        }
        engine.api.start_container(&container.name, None).await.map_err(explain)
    }
}

/// A container that can be created.
struct PreparedContainer {
    engine: Engine,
    container: Container,
    body: ContainerCreateBody,
    /// The guest program on this host.
    guest: PathBuf,
    /// The mode of the guest's run directory.
    run_mode: u32,
}

/// Whether a container could not be created because of its name. Podman reports that as a 500.
fn is_name_taken(error: &ApiError) -> bool {
    matches!(error, ApiError::DockerResponseServerError { message, .. }
        if message.contains("name") && message.contains("already in use"))
}

/// Waits until the guest accepts connections.
async fn wait_for_guest(prepared: &PreparedContainer, dir: &PlaceDir) -> Result<UnixStream, Error> {
    let deadline = Instant::now() + GUEST_START_TIMEOUT;
    loop {
        if let Ok(stream) = dir.connect().await {
            return Ok(stream);
        }
        if let Some(end) = prepared.container.exit_reason(&prepared.engine).await? {
            return Err(unavailable(format!("the container exited immediately: {end}")));
        }
        if Instant::now() > deadline {
            return Err(unavailable(format!("the guest did not respond within {GUEST_START_TIMEOUT:?}")));
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

fn unavailable(reason: String) -> Error {
    Error::Unavailable { backend: BackendName::Docker, reason }
}

/// The user that commands run as, as far as it is known before the container starts.
#[derive(Debug, Clone, PartialEq, Eq)]
enum ContainerUser {
    Root,
    Number {
        uid: u32,
        gid: Option<u32>,
    },
    /// A name that only the image can resolve.
    Name,
}

impl ContainerUser {
    fn parse(user: &str) -> Self {
        let (name, group) = user.split_once(':').unwrap_or((user, ""));
        match (name, name.parse()) {
            ("" | "root", _) | (_, Ok(0)) => Self::Root,
            (_, Ok(uid)) => Self::Number { uid, gid: group.parse().ok() },
            (_, Err(_name)) => Self::Name,
        }
    }
}

/// The user named by the image; empty if the image is missing, which a later step reports.
async fn image_user(engine: &Engine, image: &str) -> String {
    let config = engine.api.inspect_image(image).await.ok().and_then(|found| found.config);
    config.and_then(|config| config.user).unwrap_or_default()
}

/// Whether the container runs for a place directory that exists below another run directory.
fn is_used_elsewhere(found: &ContainerInspectResponse, dir: &PlaceDir) -> bool {
    let runs = found.state.as_ref().is_some_and(|state| state.running == Some(true));
    let labels = found.config.as_ref().and_then(|config| config.labels.as_ref());
    let other = labels.and_then(|labels| labels.get(request::PLACE_DIR_LABEL)).map(Path::new);
    runs && other.is_some_and(|other| other != dir.path() && other.exists())
}
