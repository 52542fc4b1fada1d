//! The settings of containers.

mod mounts;

use std::path::PathBuf;

use hermes_exec::backend::docker::engine::Address;
use hermes_exec::backend::docker::extra::Extra;
use hermes_exec::backend::docker::{Limits, User};
use hermes_exec::{Bind, Docker};
use hermes_types::Network;

use super::{kept, millicpus};
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
    let (binds, volumes) = mounts::mounts(context, config, home)?;
    Ok(Docker {
        engine: engine(context)?,
        image: image.unwrap_or(&terminal.docker_image).to_owned(),
        files: terminal.container_persistent.then(|| kept(context, config)),
        binds,
        volumes,
        network: terminal.network.unwrap_or(Network::Full),
        limits: Limits {
            millicpus: millicpus(terminal.container_cpu),
            memory: megabytes(terminal.container_memory),
            disk: megabytes(terminal.container_disk),
            processes: Some(PROCESSES),
        },
        user: if terminal.docker_run_as_host_user { User::Host } else { User::Image },
        extra: Extra::default(),
    })
}

/// The variables of commands in a container, besides those of every place: what the owner gave a value for, and then
/// what is forwarded by name.
pub(crate) fn variables(context: &Context, config: &Config) -> Vec<(String, String)> {
    let terminal = &config.terminal;
    let literal = terminal.docker_env.0.iter().map(|(name, value)| (name.as_str().to_owned(), value.clone()));
    let forwarded = terminal
        .docker_forward_env
        .iter()
        .filter_map(|name| Some((name.as_str().to_owned(), context.loaded.layers.filled(name.as_str())?)));
    literal.chain(forwarded).collect()
}

/// The directory that sessions start in, if it is the one that hermes was started in.
pub(crate) fn mounted_directory(config: &Config) -> Option<String> {
    let is_mounted = config.terminal.docker_mount_cwd_to_workspace;
    is_mounted.then(|| hermes_exec::backend::docker::WORKSPACE.to_owned())
}

/// What of the host such containers see, for the gate to judge by.
pub(crate) fn binds(context: &Context, config: &Config, home: &str) -> Result<Vec<Bind>, Failure> {
    Ok(mounts::mounts(context, config, home)?.0)
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
