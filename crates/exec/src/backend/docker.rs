//! A container of Docker or Podman, through the Engine API.
//!
//! | | |
//! |---|---|
//! | needs | an engine that speaks version 1.41 of the Engine API or later; no `docker` command |
//! | confines | what the engine's runtime confines, with the fewest rights it can give |
//! | cleans up | the guest is the first process: the container ends with it, when idle, and the engine removes it |

pub mod container;
pub mod engine;
pub mod extra;
pub mod fault;
pub mod find;
mod mounts;
mod orphans;
pub mod pull;
pub mod request;
pub mod road;
mod translate;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use bollard::models::{ContainerCreateBody, ContainerInspectResponse};
use bollard::query_parameters::CreateContainerOptionsBuilder;
use hermes_types::{BackendName, Network, Reach};
use serde::Serialize;

use super::bind::{self, Bind, Writable};
use super::{Fresh, Request};
use crate::registry::{Record, Room, blocking};
use crate::{Error, Plan, embed};
use container::{Container, Named};
use engine::{Address, Engine, Facts, Kind};
use extra::Extra;
use fault::EngineFault;
use road::Road;

/// The home directory of commands, inside.
pub const HOME: &str = "/root";
/// The directory commands start in, inside.
pub const WORKSPACE: &str = "/workspace";
/// The directory of this backend among those with kept files.
pub const KEPT: &str = "docker";

/// What is told of a disk that has no limit: few engines can give one.
pub const NO_DISK_LIMIT: &str = "the engine cannot limit the disk of a container";

/// How long the guest may take to answer once its container is started.
const PATIENCE: Duration = Duration::from_secs(20);
/// What only its owner may use, and what everybody may.
const PRIVATE: u32 = 0o700;
const OPEN: u32 = 0o777;
/// How often is looked.
const PAUSE: Duration = Duration::from_millis(1);

/// The settings of this backend.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Docker {
    /// Where the engine listens.
    pub engine: Address,
    /// What the container is made of.
    pub image: String,
    /// Where the kept files of places are on the host. Without it nothing is kept.
    pub files: Option<PathBuf>,
    /// What of the host is shown inside.
    pub binds: Vec<Bind>,
    /// What is mounted in the words of the engine.
    pub volumes: Vec<Volume>,
    /// What commands reach over the network.
    pub network: Network,
    /// How much may be used.
    pub limits: Limits,
    /// Whom commands run as.
    pub user: User,
    /// What the owner asked for besides.
    pub extra: Box<Extra>,
    /// How many containers are to be ready before anybody asks for one.
    #[serde(skip)]
    pub pool: u32,
    /// Whether containers of ours that nobody knows any more are removed.
    #[serde(skip)]
    pub reaps_orphans: bool,
}

/// A mount in the words of the engine: of a volume that it keeps, or of a path with options that only it knows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Volume {
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
pub struct Limits {
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
pub enum User {
    /// The user that the image names, mostly root.
    Image,
    /// The user that hermes runs as.
    Host,
}

impl Docker {
    pub(super) fn reach(&self) -> Reach {
        if self.extra.reaches_host() {
            return Reach::Host;
        }
        // A volume of the engine is the owner's as a directory is.
        let volumes = self.volumes.iter().map(|volume| Bind {
            source: PathBuf::from(&volume.source),
            target: volume.target.clone(),
            writable: volume.writable,
        });
        bind::reach(&self.binds.iter().cloned().chain(volumes).collect::<Vec<_>>())
    }

    /// The files of one on another machine cannot change their names.
    pub(super) fn ready(&self) -> u32 {
        if Road::to(&self.engine) == Road::Socket { self.pool } else { 0 }
    }

    /// The limits that were asked for and that the engine cannot enforce.
    pub fn unenforced(&self, facts: &Facts) -> Vec<String> {
        let Limits { millicpus, memory, disk, processes, .. } = &self.limits;
        let forgets = facts.kind == Kind::Podman && facts.is_rootless;
        let limits = [
            (NO_DISK_LIMIT, disk.is_some(), Some(facts.has_disk_quota)),
            ("the engine cannot limit the memory of a container", memory.is_some(), facts.enforces.memory),
            (
                "the engine cannot limit the processors of a container",
                millicpus.is_some(),
                facts.enforces.processor,
            ),
            (
                "the engine cannot limit the processes of a container",
                processes.is_some(),
                facts.enforces.processes,
            ),
            (
                "the engine forgets `--ulimit`, as Podman does without root",
                !self.extra.ulimits.is_empty(),
                Some(!forgets),
            ),
        ];
        let missing = limits.into_iter().filter(|(_, wanted, held)| *wanted && *held == Some(false));
        missing.map(|(told, ..)| told.to_owned()).collect()
    }

    /// Whether users inside are others outside, root too.
    fn is_remapped(&self, facts: &Facts) -> bool {
        match self.extra.userns.as_deref() {
            Some("host" | "keep-id") => false,
            Some("auto" | "nomap" | "private") => true,
            _ => facts.remaps_users,
        }
    }

    /// Where the files of the place are kept on the host.
    pub(super) fn kept(&self, plan: &Plan) -> Option<PathBuf> {
        Some(self.files.as_ref()?.join(KEPT).join(plan.name()))
    }

    /// What is to be removed when the place ends.
    pub(super) fn container(&self, plan: &Plan) -> Container {
        let road = Road::to(&self.engine);
        let volumes =
            if self.files.is_some() && road == Road::Exec { request::volumes(plan) } else { Vec::new() };
        Container {
            engine: self.engine.clone(),
            name: request::name(plan),
            place: plan.name(),
            road,
            volumes,
            image: self.image.clone(),
            cache: plan.host.cache.clone(),
        }
    }

    /// The engine, and what it is asked for, by whoever wants the container.
    async fn wanted(&self, plan: &Plan) -> Result<(Engine, Inmate, ContainerCreateBody), Error> {
        let engine = Engine::known(&self.engine).await?;
        let inmate = match self.chosen_user(&engine.facts) {
            Some(user) => Inmate::of(&user),
            // With its own number, unless the image names another.
            None if self.extra.userns.as_deref() == Some("keep-id") => Inmate::Name,
            None => Inmate::of(&user_of_image(&engine, &self.image).await),
        };
        let shared = Room::of(plan).shared(self.kept(plan).as_deref());
        let mut body = self.request(plan, &engine.facts, &inmate, &embed::path(&plan.host.cache), &shared);
        translate::apply(&engine, &mut body).await?;
        Ok((engine, inmate, body))
    }

    /// What would be asked of the engine. Nothing is made.
    pub(super) async fn sketch(&self, plan: &Plan) -> Result<Request, Error> {
        let (engine, _, body) = self.wanted(plan).await?;
        Ok(Request {
            engine: Some(self.engine.to_string()),
            container: Some(request::name(plan)),
            body: request::shown(&body),
            unenforced: self.unenforced(&engine.facts),
        })
    }

    pub(super) async fn make(&self, plan: &Plan, room: &Room, record: &Record) -> Result<Fresh, Error> {
        let unavailable = |reason: String| Error::Unavailable { backend: BackendName::Docker, reason };
        let (engine, inmate, body) = self.wanted(plan).await?;
        if self.user == User::Host && self.is_remapped(&engine.facts) {
            return Err(EngineFault::Remapped { address: self.engine.clone() }.into());
        }
        pull::check(&engine, &self.image).await?;
        let guest = embed::guest(&plan.host.cache)?;
        let container = self.container(plan);
        let shared: &[&str] = if container.road == Road::Socket { &["workspace", "home"] } else { &[""] };
        for name in shared {
            let Some(kept) = self.kept(plan) else { break };
            let path = kept.join(name);
            fs::DirBuilder::new().recursive(true).mode(0o700).create(&path).map_err(Error::file(&path))?;
        }
        self.prepare_targets(plan)?;
        let with_options = self.volumes.iter().map(|volume| Path::new(&volume.source));
        let ours = with_options.filter(|source| source.is_absolute());
        let mut ours = self.binds.iter().map(|bind| bind.source.as_path()).chain(ours);
        if let (Road::Exec, Some(path)) = (container.road, ours.next()) {
            let path = path.display();
            return Err(unavailable(format!(
                "its engine at {} cannot show {path} of this machine",
                self.engine
            )));
        }
        if self.reaps_orphans {
            // They are in nobody's way; the next hermes tries again.
            drop(orphans::remove(&engine, &self.engine, &plan.host.install, &plan.host.run).await);
        }
        match container.look(&engine).await? {
            Named::Another => return Err(Error::NameTaken { name: container.name }),
            Named::Ours(found) if is_used_elsewhere(&found, room) => {
                return Err(Error::InUseElsewhere { name: plan.name() });
            }
            // What a hermes that was killed left behind.
            Named::Ours(_) | Named::Nothing => container.remove_from(&engine).await?,
        }
        // The user that hermes runs as owns what hermes makes, and root may do anything; but not the root of other users.
        let is_owner = self.user == User::Host && self.extra.user.is_none();
        let is_private = is_owner || inmate == Inmate::Root;
        let run_mode = if is_private && !self.is_remapped(&engine.facts) { PRIVATE } else { OPEN };
        if container.road == Road::Socket {
            let (room, kept, owner) = (room.clone(), self.kept(plan), container.clone());
            let shared = blocking(move || room.share(kept.as_deref(), Some(&owner))).await?;
            if run_mode != PRIVATE {
                let kept = ["workspace", "home"].iter().filter_map(|name| Some(self.kept(plan)?.join(name)));
                open_to_all(kept.chain([shared]).filter(|path| path.exists()))?;
            }
        }
        let request = Some(request::shown(&body));
        let owner = self.owner(&engine.facts);
        let mounts = body.host_config.iter().flat_map(|config| config.mounts.iter().flatten());
        let sources: Vec<PathBuf> =
            mounts.filter_map(|mount| mount.source.as_ref().map(PathBuf::from)).collect();
        let options = CreateContainerOptionsBuilder::new().name(&container.name).build();
        let api = &engine.api;
        record.write(room.path())?;
        let made = async {
            let explain = |error| Error::from(engine::explain(&self.engine, &error, &sources));
            let mut created = api.create_container(Some(options.clone()), body.clone()).await;
            if created.is_err() && matches!(container.look(&engine).await?, Named::Ours(_)) {
                // The engine was still busy with what a hermes had asked for that was killed meanwhile.
                container.remove_from(&engine).await?;
                created = api.create_container(Some(options), body).await;
            }
            created.map_err(explain)?;
            if container.road == Road::Exec {
                let brought = container.bring(&engine, &guest, run_mode, owner.unwrap_or_default()).await;
                brought.map_err(|error| unavailable(error.to_string()))?;
            }
            api.start_container(&container.name, None).await.map_err(explain)
        };
        if let Err(error) = made.await {
            container.remove_from(&engine).await?;
            return Err(error);
        }
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Ok(stream) = room.knock().await {
                return Ok(Fresh { stream, request, unenforced: self.unenforced(&engine.facts) });
            }
            if let Some(end) = container.ended(&engine).await? {
                container.remove_from(&engine).await?;
                return Err(unavailable(format!("its container ended at once: {end}")));
            }
            if Instant::now() > deadline {
                container.remove_from(&engine).await?;
                return Err(unavailable(format!("its guest did not answer within {PATIENCE:?}")));
            }
            tokio::time::sleep(PAUSE).await;
        }
    }
}

/// Whom commands run as, by what is known of that user before anything runs.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Inmate {
    Root,
    /// By numbers.
    Number {
        uid: u32,
        gid: Option<u32>,
    },
    /// By a name that only the image knows.
    Name,
}

impl Inmate {
    /// The one that engines take for this text.
    fn of(user: &str) -> Self {
        let (name, group) = user.split_once(':').unwrap_or((user, ""));
        match (name, name.parse()) {
            ("" | "root", _) | (_, Ok(0)) => Self::Root,
            (_, Ok(uid)) => Self::Number { uid, gid: group.parse().ok() },
            (_, Err(_name)) => Self::Name,
        }
    }
}

/// The user that an image names. Of one that is not there nobody knows; that is told later.
async fn user_of_image(engine: &Engine, image: &str) -> String {
    let config = engine.api.inspect_image(image).await.ok().and_then(|found| found.config);
    config.and_then(|config| config.user).unwrap_or_default()
}

/// Lets every user of a container write there. Who that is on this machine only the engine knows; all others stop at
/// the directory above, which is ours alone.
fn open_to_all(paths: impl Iterator<Item = PathBuf>) -> Result<(), Error> {
    for path in paths {
        fs::set_permissions(&path, fs::Permissions::from_mode(OPEN)).map_err(Error::file(&path))?;
    }
    Ok(())
}

/// Whether a container is that of a room under another run directory, which is still there.
fn is_used_elsewhere(found: &ContainerInspectResponse, room: &Room) -> bool {
    let runs = found.state.as_ref().is_some_and(|state| state.running == Some(true));
    let labels = found.config.as_ref().and_then(|config| config.labels.as_ref());
    let other = labels.and_then(|labels| labels.get(request::ROOM)).map(Path::new);
    runs && other.is_some_and(|other| other != room.path() && other.exists())
}
