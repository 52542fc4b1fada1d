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
pub mod pull;
pub mod request;

use std::fs;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use bollard::query_parameters::CreateContainerOptionsBuilder;
use hermes_types::{BackendName, Network, Reach};
use serde::Serialize;
use tokio::net::UnixStream;

use super::bind::{self, Bind};
use crate::registry::Room;
use crate::{Error, Plan, embed};
use container::Container;
use engine::{Address, Engine};
use extra::Extra;

/// The home directory of commands, inside.
pub const HOME: &str = "/root";
/// The directory commands start in, inside.
pub const WORKSPACE: &str = "/workspace";
/// The directory of this backend among those with kept files.
pub const KEPT: &str = "docker";

/// How long the guest may take to answer once its container is started.
const PATIENCE: Duration = Duration::from_secs(20);
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
    /// What commands reach over the network.
    pub network: Network,
    /// How much may be used.
    pub limits: Limits,
    /// Whom commands run as.
    pub user: User,
    /// What the owner asked for besides.
    pub extra: Extra,
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
        bind::reach(&self.binds)
    }

    /// Where the files of the place are kept on the host.
    pub(super) fn kept(&self, plan: &Plan) -> Option<PathBuf> {
        Some(self.files.as_ref()?.join(KEPT).join(plan.name()))
    }

    /// What is to be removed when the place ends.
    pub(super) fn container(&self, plan: &Plan) -> Container {
        Container { engine: self.engine.clone(), name: request::name(plan), place: plan.name() }
    }

    pub(super) async fn make(&self, plan: &Plan, room: &Room) -> Result<UnixStream, Error> {
        let unavailable = |reason: String| Error::Unavailable { backend: BackendName::Docker, reason };
        let engine = Engine::connect(&self.engine).await?;
        pull::check(&engine, &self.image).await?;
        let guest = embed::guest(&plan.host.cache)?;
        for name in ["workspace", "home"] {
            let Some(kept) = self.kept(plan) else { break };
            let path = kept.join(name);
            fs::DirBuilder::new().recursive(true).mode(0o700).create(&path).map_err(Error::file(&path))?;
        }
        let container = self.container(plan);
        // What a hermes that was killed left behind under this name.
        container.remove_from(&engine).await?;
        let body = self.request(plan, &engine.facts, &guest, &room.inside());
        let options = CreateContainerOptionsBuilder::new().name(&container.name).build();
        let api = &engine.api;
        let made = async {
            api.create_container(Some(options), body).await?;
            api.start_container(&container.name, None).await
        };
        if let Err(error) = made.await {
            container.remove_from(&engine).await?;
            return Err(unavailable(error.to_string()));
        }
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Ok(stream) = room.knock().await {
                return Ok(stream);
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
