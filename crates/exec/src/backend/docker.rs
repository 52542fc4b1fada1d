//! A container of Docker or Podman, through the Engine API.
//!
//! | | |
//! |---|---|
//! | needs | an engine that speaks version 1.41 of the Engine API or later; no `docker` command |
//! | confines | what the engine's runtime confines, with the fewest rights it can give |
//! | cleans up | the guest is the first process: the container ends with it, when idle, and the engine removes it |

pub mod container;
pub mod discover;
pub mod engine;
pub mod engine_error;
mod mounts;
mod orphans;
pub mod pull;
pub mod request;
pub mod run_args;
mod translate;
pub mod transport;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use bollard::models::{ContainerCreateBody, ContainerInspectResponse};
use bollard::query_parameters::CreateContainerOptionsBuilder;
use hermes_types::{BackendName, Network, Reach};
use serde::Serialize;

use super::bind::{self, BindMount, Writable};
use super::{CreateRequest, CreatedPlace};
use crate::registry::{PlaceDir, PlaceRecord, run_blocking};
use crate::{Error, ResolvedPlace, embed};
use container::{Container, NamedContainer};
use engine::{Engine, EngineAddress, EngineFacts, EngineKind};
use engine_error::EngineError;
use run_args::RunArgs;
use transport::GuestTransport;

/// The home directory of commands, inside.
pub const HOME_DIR: &str = "/root";
/// The directory commands start in, inside.
pub const WORKSPACE_DIR: &str = "/workspace";
/// The directory of this backend among those with kept files.
pub const KEPT_SUBDIR: &str = "docker";

/// What is told of a disk that has no limit: few engines can give one.
pub const NO_DISK_LIMIT: &str = "the engine cannot limit the disk of a container";

/// How long the guest may take to answer once its container is started.
const GUEST_START_TIMEOUT: Duration = Duration::from_secs(20);
/// What only its owner may use, and what everybody may.
const PRIVATE_MODE: u32 = 0o700;
const WORLD_WRITABLE_MODE: u32 = 0o777;
/// How often is looked.
const POLL_INTERVAL: Duration = Duration::from_millis(1);

/// The settings of this backend.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DockerBackend {
    /// Where the engine listens.
    pub engine: EngineAddress,
    /// What the container is made of.
    pub image: String,
    /// Where the kept files of places are on the host. Without it nothing is kept.
    pub files: Option<PathBuf>,
    /// What of the host is shown inside.
    pub binds: Vec<BindMount>,
    /// What is mounted in the words of the engine.
    pub volumes: Vec<EngineVolume>,
    /// What commands reach over the network.
    pub network: Network,
    /// How much may be used.
    pub limits: ContainerLimits,
    /// Whom commands run as.
    pub user: RunAs,
    /// What the owner asked for besides.
    #[serde(rename = "extra")]
    pub run_args: Box<RunArgs>,
    /// How many containers are to be ready before anybody asks for one.
    #[serde(skip)]
    pub warm_count: u32,
    /// Whether containers of ours that nobody knows any more are removed.
    #[serde(skip)]
    pub remove_orphans: bool,
}

/// A mount in the words of the engine: of a volume that it keeps, or of a path with options that only it knows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct EngineVolume {
    /// A name, or a path on the host.
    pub source: String,
    /// Its path inside.
    pub target: PathBuf,
    /// Whether it can be written from inside.
    pub writable: Writable,
    /// What else was asked for.
    pub options: Vec<String>,
}

/// How much a container may use. What is absent has no limit.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct ContainerLimits {
    /// Thousandths of a processor.
    pub millicpus: Option<u32>,
    /// Bytes of memory.
    pub memory: Option<u64>,
    /// Bytes of the container's own layer.
    pub disk: Option<u64>,
    /// Processes and threads.
    pub processes: Option<u32>,
    /// Bytes of shared memory; what the engine gives if absent.
    pub shm: Option<u64>,
    /// Bytes of directories in memory, by path, instead of the usual ones.
    pub scratch: BTreeMap<String, u64>,
}

/// Whom commands run as.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum RunAs {
    /// The user that the image names, mostly root.
    Image,
    /// The user that hermes runs as.
    Host,
}

impl DockerBackend {
    pub(super) fn reach(&self) -> Reach {
        if self.run_args.reaches_host() {
            return Reach::Host;
        }
        // A volume of the engine is the owner's as a directory is.
        let volumes = self.volumes.iter().map(|volume| BindMount {
            source: PathBuf::from(&volume.source),
            target: volume.target.clone(),
            writable: volume.writable,
        });
        bind::binds_reach(&self.binds.iter().cloned().chain(volumes).collect::<Vec<_>>())
    }

    /// The files of one on another machine cannot change their names.
    pub(super) fn warm_count(&self) -> u32 {
        if GuestTransport::for_address(&self.engine) == GuestTransport::Socket { self.warm_count } else { 0 }
    }

    /// The limits that were asked for and that the engine cannot enforce.
    pub fn unenforced_limits(&self, facts: &EngineFacts) -> Vec<String> {
        let ContainerLimits { millicpus, memory, disk, processes, .. } = &self.limits;
        let forgets = facts.kind == EngineKind::Podman && facts.is_rootless;
        let limits = [
            (NO_DISK_LIMIT, disk.is_some(), Some(facts.has_disk_quota)),
            ("the engine cannot limit the memory of a container", memory.is_some(), facts.enforced.memory),
            (
                "the engine cannot limit the processors of a container",
                millicpus.is_some(),
                facts.enforced.processor,
            ),
            (
                "the engine cannot limit the processes of a container",
                processes.is_some(),
                facts.enforced.processes,
            ),
            (
                "the engine forgets `--ulimit`, as Podman does without root",
                !self.run_args.ulimits.is_empty(),
                Some(!forgets),
            ),
        ];
        let missing = limits.into_iter().filter(|(_, wanted, held)| *wanted && *held == Some(false));
        missing.map(|(told, ..)| told.to_owned()).collect()
    }

    /// Whether users inside are others outside, root too.
    fn has_remapped_users(&self, facts: &EngineFacts) -> bool {
        match self.run_args.userns.as_deref() {
            Some("host" | "keep-id") => false,
            Some("auto" | "nomap" | "private") => true,
            _ => facts.remaps_users,
        }
    }

    /// Where the files of the place are kept on the host.
    pub(super) fn kept_dir(&self, plan: &ResolvedPlace) -> Option<PathBuf> {
        Some(self.files.as_ref()?.join(KEPT_SUBDIR).join(plan.name()))
    }

    /// What is to be removed when the place ends.
    pub(super) fn container(&self, plan: &ResolvedPlace) -> Container {
        let transport = GuestTransport::for_address(&self.engine);
        let volumes = if self.files.is_some() && transport == GuestTransport::EngineExec {
            request::volume_names(plan)
        } else {
            Vec::new()
        };
        Container {
            engine: self.engine.clone(),
            name: request::container_name(plan),
            place: plan.name(),
            transport,
            volumes,
            image: self.image.clone(),
            cache: plan.installation.cache_dir.clone(),
        }
    }

    /// The engine, and what it is asked for, by whoever wants the container.
    async fn prepare_request(
        &self,
        plan: &ResolvedPlace,
    ) -> Result<(Engine, ContainerUser, ContainerCreateBody), Error> {
        let engine = Engine::connect_cached(&self.engine).await?;
        let inmate = match self.requested_user(&engine.facts) {
            Some(user) => ContainerUser::parse(&user),
            // With its own number, unless the image names another.
            None if self.run_args.userns.as_deref() == Some("keep-id") => ContainerUser::Name,
            None => ContainerUser::parse(&image_user(&engine, &self.image).await),
        };
        let shared = PlaceDir::for_place(plan).shared_dir(self.kept_dir(plan).as_deref());
        let mut body = self.build_request(
            plan,
            &engine.facts,
            &inmate,
            &embed::guest_path(&plan.installation.cache_dir),
            &shared,
        );
        translate::translate_paths(&engine, &mut body).await?;
        Ok((engine, inmate, body))
    }

    /// What would be asked of the engine. Nothing is made.
    pub(super) async fn preview_request(&self, plan: &ResolvedPlace) -> Result<CreateRequest, Error> {
        let (engine, _, body) = self.prepare_request(plan).await?;
        Ok(CreateRequest {
            engine: Some(self.engine.to_string()),
            container: Some(request::container_name(plan)),
            body: request::to_sorted_json(&body),
            unenforced: self.unenforced_limits(&engine.facts),
        })
    }

    pub(super) async fn create(
        &self,
        plan: &ResolvedPlace,
        room: &PlaceDir,
        record: &PlaceRecord,
    ) -> Result<CreatedPlace, Error> {
        let unavailable = |reason: String| Error::Unavailable { backend: BackendName::Docker, reason };
        let (engine, inmate, body) = self.prepare_request(plan).await?;
        if self.user == RunAs::Host && self.has_remapped_users(&engine.facts) {
            return Err(EngineError::UsersRemapped { address: self.engine.clone() }.into());
        }
        pull::check_image(&engine, &self.image).await?;
        let guest = embed::install_guest(&plan.installation.cache_dir)?;
        let container = self.container(plan);
        let shared: &[&str] =
            if container.transport == GuestTransport::Socket { &["workspace", "home"] } else { &[""] };
        for name in shared {
            let Some(kept) = self.kept_dir(plan) else { break };
            let path = kept.join(name);
            fs::DirBuilder::new().recursive(true).mode(0o700).create(&path).map_err(Error::file(&path))?;
        }
        self.prepare_mount_points(plan)?;
        let with_options = self.volumes.iter().map(|volume| Path::new(&volume.source));
        let ours = with_options.filter(|source| source.is_absolute());
        let mut ours = self.binds.iter().map(|bind| bind.source.as_path()).chain(ours);
        if let (GuestTransport::EngineExec, Some(path)) = (container.transport, ours.next()) {
            let path = path.display();
            return Err(unavailable(format!(
                "its engine at {} cannot show {path} of this machine",
                self.engine
            )));
        }
        if self.remove_orphans {
            // They are in nobody's way; the next hermes tries again.
            drop(
                orphans::remove_orphans(
                    &engine, &self.engine, &plan.installation.install_id, &plan.installation.run_dir,
                )
                .await,
            );
        }
        match container.find(&engine).await? {
            NamedContainer::Foreign => return Err(Error::NameTaken { name: container.name }),
            NamedContainer::Ours(found) if is_used_elsewhere(&found, room) => {
                return Err(Error::InUseElsewhere { name: plan.name() });
            }
            // What a hermes that was killed left behind.
            NamedContainer::Ours(_) | NamedContainer::Missing => container.remove_from(&engine).await?,
        }
        // The user that hermes runs as owns what hermes makes, and root may do anything; but not the root of other users.
        let is_owner = self.user == RunAs::Host && self.run_args.user.is_none();
        let is_private = is_owner || inmate == ContainerUser::Root;
        let run_mode = if is_private && !self.has_remapped_users(&engine.facts) {
            PRIVATE_MODE
        } else {
            WORLD_WRITABLE_MODE
        };
        if container.transport == GuestTransport::Socket {
            let (room, kept, owner) = (room.clone(), self.kept_dir(plan), container.clone());
            let shared = run_blocking(move || room.create_shared(kept.as_deref(), Some(&owner))).await?;
            if run_mode != PRIVATE_MODE {
                let kept =
                    ["workspace", "home"].iter().filter_map(|name| Some(self.kept_dir(plan)?.join(name)));
                make_world_writable(kept.chain([shared]).filter(|path| path.exists()))?;
            }
        }
        let request = Some(request::to_sorted_json(&body));
        let owner = self.host_owner(&engine.facts);
        let mounts = body.host_config.iter().flat_map(|config| config.mounts.iter().flatten());
        let sources: Vec<PathBuf> =
            mounts.filter_map(|mount| mount.source.as_ref().map(PathBuf::from)).collect();
        let options = CreateContainerOptionsBuilder::new().name(&container.name).build();
        let api = &engine.api;
        record.write(room.path())?;
        let made = async {
            let explain = |error| Error::from(engine::explain_create_error(&self.engine, &error, &sources));
            let mut created = api.create_container(Some(options.clone()), body.clone()).await;
            if created.is_err() && matches!(container.find(&engine).await?, NamedContainer::Ours(_)) {
                // The engine was still busy with what a hermes had asked for that was killed meanwhile.
                container.remove_from(&engine).await?;
                created = api.create_container(Some(options), body).await;
            }
            created.map_err(explain)?;
            if container.transport == GuestTransport::EngineExec {
                let brought =
                    container.upload_guest(&engine, &guest, run_mode, owner.unwrap_or_default()).await;
                brought.map_err(|error| unavailable(error.to_string()))?;
            }
            api.start_container(&container.name, None).await.map_err(explain)
        };
        if let Err(error) = made.await {
            container.remove_from(&engine).await?;
            return Err(error);
        }
        let deadline = Instant::now() + GUEST_START_TIMEOUT;
        loop {
            if let Ok(stream) = room.connect().await {
                return Ok(CreatedPlace {
                    stream,
                    request,
                    unenforced_limits: self.unenforced_limits(&engine.facts),
                });
            }
            if let Some(end) = container.exit_reason(&engine).await? {
                container.remove_from(&engine).await?;
                return Err(unavailable(format!("its container ended at once: {end}")));
            }
            if Instant::now() > deadline {
                container.remove_from(&engine).await?;
                return Err(unavailable(format!("its guest did not answer within {GUEST_START_TIMEOUT:?}")));
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }
}

/// Whom commands run as, by what is known of that user before anything runs.
#[derive(Debug, Clone, PartialEq, Eq)]
enum ContainerUser {
    Root,
    /// By numbers.
    Number {
        uid: u32,
        gid: Option<u32>,
    },
    /// By a name that only the image knows.
    Name,
}

impl ContainerUser {
    /// The one that engines take for this text.
    fn parse(user: &str) -> Self {
        let (name, group) = user.split_once(':').unwrap_or((user, ""));
        match (name, name.parse()) {
            ("" | "root", _) | (_, Ok(0)) => Self::Root,
            (_, Ok(uid)) => Self::Number { uid, gid: group.parse().ok() },
            (_, Err(_name)) => Self::Name,
        }
    }
}

/// The user that an image names. Of one that is not there nobody knows; that is told later.
async fn image_user(engine: &Engine, image: &str) -> String {
    let config = engine.api.inspect_image(image).await.ok().and_then(|found| found.config);
    config.and_then(|config| config.user).unwrap_or_default()
}

/// Lets every user of a container write there. Who that is on this machine only the engine knows; all others stop at
/// the directory above, which is ours alone.
fn make_world_writable(paths: impl Iterator<Item = PathBuf>) -> Result<(), Error> {
    for path in paths {
        fs::set_permissions(&path, fs::Permissions::from_mode(WORLD_WRITABLE_MODE))
            .map_err(Error::file(&path))?;
    }
    Ok(())
}

/// Whether a container is that of a room under another run directory, which is still there.
fn is_used_elsewhere(found: &ContainerInspectResponse, room: &PlaceDir) -> bool {
    let runs = found.state.as_ref().is_some_and(|state| state.running == Some(true));
    let labels = found.config.as_ref().and_then(|config| config.labels.as_ref());
    let other = labels.and_then(|labels| labels.get(request::PLACE_DIR_LABEL)).map(Path::new);
    runs && other.is_some_and(|other| other != room.path() && other.exists())
}
