//! The settings of containers.

use std::path::PathBuf;

use hermes_exec::Docker;
use hermes_exec::backend::docker::engine::Address;
use hermes_exec::backend::docker::extra::Extra;
use hermes_exec::backend::docker::{Limits, User};
use hermes_types::Network;

use super::{binds, kept, millicpus};
use crate::Context;
use crate::config::keys::Config;
use crate::failure::{Failure, Kind};

/// Processes and threads in a container.
const PROCESSES: u32 = 256;

/// A container, as the configuration wants it.
pub(crate) fn docker(
    context: &Context,
    config: &Config,
    image: Option<&str>,
    home: &str,
) -> Result<Docker, Failure> {
    let terminal = &config.terminal;
    let megabytes = |number: u64| (number > 0).then(|| number.saturating_mul(1 << 20));
    Ok(Docker {
        engine: engine(context)?,
        image: image.unwrap_or(&terminal.docker_image).to_owned(),
        files: terminal.container_persistent.then(|| kept(context, config)),
        binds: binds(config, home)?,
        network: terminal.network.unwrap_or(Network::Full),
        limits: Limits {
            millicpus: millicpus(terminal.container_cpu),
            memory: megabytes(terminal.container_memory),
            disk: megabytes(terminal.container_disk),
            processes: Some(PROCESSES),
        },
        user: if terminal.docker_run_as_host_user { User::Host } else { User::Image },
        extra: Extra::default(),
        pool: u32::try_from(terminal.docker_pool).unwrap_or(u32::MAX),
        reaps_orphans: terminal.docker_orphan_reaper,
    })
}

/// Where the engine listens.
fn engine(context: &Context) -> Result<Address, Failure> {
    let host = context.variable("DOCKER_HOST").unwrap_or("unix:///var/run/docker.sock");
    match host.split_once("://") {
        Some(("unix", path)) => Ok(Address::Unix(PathBuf::from(path))),
        Some(("tcp", host)) => Ok(Address::Tcp(host.to_owned())),
        _ => Err(Failure::new(
            Kind::Configuration,
            format!("DOCKER_HOST is {host}, which is no known address"),
        )
        .hint("unix:///path/of/socket and tcp://host:port are known")),
    }
}
