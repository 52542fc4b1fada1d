//! The docker backend.

pub(super) mod mounts;

use hermes_exec::DockerBackend;
use hermes_exec::backend::docker::engine::EngineAddress;
use hermes_exec::backend::docker::mount_policy::ResolvedMounts;
use hermes_exec::backend::docker::run_args::RunArgs;
use hermes_exec::backend::docker::{ContainerLimits, RunAs};
use hermes_types::{Network, Volume};

use super::{ResolveMode, engine, max_processes, megabytes, millicpus, persistent_files_dir};
use crate::ConfigContext;
use crate::failure::Failure;
use crate::keys::Config;
use crate::setting::ByteSize;

/// The settings of containers.
pub fn docker(
    context: &ConfigContext,
    config: &Config,
    image: Option<&str>,
    home: &str,
    mode: ResolveMode,
) -> Result<DockerBackend, Failure> {
    let terminal = &config.terminal;
    let mut extra = terminal.docker_extra_args.parsed.clone();
    extra.gpus = extra.gpus.or_else(|| terminal.docker_gpus.clone());
    let mut limits = ContainerLimits {
        millicpus: millicpus(terminal.container_cpu),
        memory: megabytes(terminal.container_memory),
        disk: megabytes(terminal.container_disk),
        processes: max_processes(config),
        shm: terminal.docker_shm_size.map(|ByteSize(bytes)| bytes),
        scratch: terminal.docker_tmpfs.0.clone(),
    };
    extra.apply_limits(&mut limits);
    let engine = match engine::find(context, config) {
        Ok(found) => found.address,
        // The gate judges by the mounts and options; no engine needs to exist for that.
        Err(_missing) if mode == ResolveMode::Judge => EngineAddress::Unix("/var/run/docker.sock".into()),
        Err(error) => return Err(error.into()),
    };
    let ResolvedMounts { binds, volumes, .. } = mounts::mounts(context, config, home, &engine)?;
    let allowed = if terminal.docker_network { terminal.network } else { Some(Network::None) };
    Ok(DockerBackend {
        engine,
        image: image.unwrap_or(&terminal.docker_image).to_owned(),
        files: terminal.container_persistent.then(|| persistent_files_dir(context, config)),
        binds,
        volumes,
        network: network(allowed, &extra)?,
        limits,
        user: if terminal.docker_run_as_host_user { RunAs::Host } else { RunAs::Image },
        run_args: Box::new(extra),
        warm_count: u32::try_from(terminal.docker_pool).unwrap_or(u32::MAX),
        remove_orphans: terminal.docker_orphan_reaper,
    })
}

/// The variables of commands in a container: those with literal values, then those forwarded by
/// name.
pub(super) fn variables(context: &ConfigContext, config: &Config) -> Vec<(String, String)> {
    let terminal = &config.terminal;
    let literal = terminal.docker_env.iter().map(|(name, value)| (name.as_str().to_owned(), value.clone()));
    let forwarded = terminal.docker_forward_env.iter().filter_map(|name| {
        Some((name.as_str().to_owned(), context.loaded.layers.non_blank_variable(name.as_str())?))
    });
    literal.chain(forwarded).collect()
}

/// The configured mounts.
fn volumes(config: &Config) -> Result<Vec<Volume>, Failure> {
    let mut volumes = config.terminal.docker_volumes.clone();
    for volume in &config.terminal.docker_extra_args.parsed.volumes {
        if volumes.iter().any(|known| known.target == volume.target) {
            let message = format!("terminal.docker_extra_args mounts `{}` a second time", volume.target);
            return Err(Failure::configuration(message).hint("Nothing ran. Remove one of the two mounts."));
        }
        volumes.push(volume.clone());
    }
    Ok(volumes)
}

/// The network access of commands. An option that gives more than the key allows is an error.
fn network(allowed: Option<Network>, extra: &RunArgs) -> Result<Network, Failure> {
    let mode = extra.network.as_deref();
    let option = match (mode, extra.ports.first()) {
        (Some(mode), _) if mode != "none" => Some(format!("--network {mode}")),
        (_, Some(port)) => Some(format!("--publish {port}")),
        _ => None,
    };
    let network = match (allowed, mode) {
        (Some(Network::Proxy), _) => Network::Proxy,
        (_, Some("none")) => Network::None,
        (allowed, _) => allowed.unwrap_or(Network::Full),
    };
    match option {
        Some(option) if network != Network::Full => Err(Failure::configuration(format!(
            "terminal.docker_extra_args has `{option}`, but the network is {}",
            network.as_str()
        ))
        .hint("Nothing ran. Remove the option, or set terminal.network to full.")),
        _ => Ok(network),
    }
}
