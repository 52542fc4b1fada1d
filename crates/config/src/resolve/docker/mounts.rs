//! The mounts of containers and sandboxes.

mod skills;

use std::path::{Path, PathBuf};

use hermes_exec::backend::BindMount;
use hermes_exec::backend::docker::WORKSPACE_DIR;
use hermes_exec::backend::docker::engine::EngineAddress;
use hermes_exec::backend::docker::mount_policy::{HomeFiles, MountPolicy, MountSettings, ResolvedMounts};

use crate::ConfigContext;
use crate::failure::Failure;
use crate::keys::Config;
use crate::resolve::{current_dir, install_path, known_install, local, persistent_files_dir, run_dir};

/// Resolves the configured mounts. Warnings go to the user.
pub(super) fn mounts(
    context: &ConfigContext,
    config: &Config,
    owner_home: &str,
    engine: &EngineAddress,
) -> Result<ResolvedMounts, Failure> {
    let terminal = &config.terminal;
    let is_cwd_mounted = terminal.docker_mount_cwd_to_workspace;
    let workspace = is_cwd_mounted.then(|| start_directory(config, owner_home)).transpose()?;
    let external_skills = config.skills.external_dirs.iter();
    let external_skills =
        external_skills.map(|text| (text.as_str(), local::expand_tilde(text, &local::owner_home(context))));
    // A remote engine cannot mount files of this machine.
    let is_local = matches!(engine, EngineAddress::Unix(_));
    let home_files = (is_local && !terminal.strict_mounts).then(|| HomeFiles {
        external_skills: external_skills.collect(),
        credential_files: &terminal.credential_files,
        declared: skills::declared,
    });
    let settings = MountSettings {
        volumes: &super::volumes(config)?,
        workspace,
        home_files,
        owner_home: Path::new(owner_home),
        cwd: &current_dir()?,
    };
    let mounts = apply_policy(context, config, &settings)?;
    mounts.warnings.iter().for_each(|warning| context.warn(warning));
    Ok(mounts)
}

/// The host directories that the owner shows in a sandbox. It has no named volumes.
pub(in crate::resolve) fn sandbox_mounts(
    context: &ConfigContext,
    config: &Config,
    owner_home: &str,
) -> Result<Vec<BindMount>, Failure> {
    let volumes = &config.terminal.docker_volumes;
    if volumes.is_empty() {
        return Ok(Vec::new());
    }
    let settings = MountSettings {
        volumes,
        workspace: None,
        home_files: None,
        owner_home: Path::new(owner_home),
        cwd: &current_dir()?,
    };
    let mounts = apply_policy(context, config, &settings)?;
    let with_options = mounts.volumes.into_iter().map(|volume| volume.mount);
    Ok(mounts.binds.into_iter().chain(with_options.filter(|mount| mount.source.is_absolute())).collect())
}

fn apply_policy(
    context: &ConfigContext,
    config: &Config,
    settings: &MountSettings<'_>,
) -> Result<ResolvedMounts, Failure> {
    let layers = &context.loaded.layers;
    let install = known_install(context);
    let run_dir = install.map_or_else(|| install_path(context), |install| run_dir(context, &install));
    let protected = [
        persistent_files_dir(context, config),
        run_dir,
        layers.file_path.clone(),
        layers.dotenv_path.clone(),
    ];
    MountPolicy::new(context.home.path(), &protected).resolve(settings).map_err(|error| {
        let hints = error.hint().into_iter().map(Into::into).collect();
        Failure { hints, ..Failure::configuration(error.to_string()) }
    })
}

/// The host directory that sessions work in. A configured directory that exists only in the
/// container stands for the current directory.
fn start_directory(config: &Config, owner_home: &str) -> Result<PathBuf, Failure> {
    let chosen = PathBuf::from(local::initial_cwd(&config.terminal.cwd, owner_home)?);
    let is_inside = chosen.starts_with(WORKSPACE_DIR) || !chosen.is_dir();
    if is_inside { current_dir() } else { Ok(chosen) }
}
