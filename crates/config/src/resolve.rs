//! From settings to the values that the other crates are made of.

pub mod agent;
pub mod chat;
mod docker;
pub mod engine;
pub mod gateway;
pub mod image;
pub mod local;
pub mod model;
pub mod store;

use std::path::{Path, PathBuf};
use std::time::Duration;

use hermes_exec::backend;
use hermes_exec::backend::docker::pull::PullError;
use hermes_exec::backend::sandbox::{HOME_DIR, WORKSPACE_DIR};
use hermes_exec::{
    Audience, Backend, BindMount, Installation, LocalBackend, Places, ResolvedPlace, SandboxBackend, Spec,
    Writable,
};
use hermes_policy::{Gate, RuleScope, UserRule, UserVerdict};
use hermes_sandbox::JailLimits;
use hermes_types::{BackendName, MountAccess, Network, Place, PlaceId, Reach, SessionKey, Volume};

use crate::ConfigContext;
use crate::failure::{Failure, FailureKind};
use crate::file::{ConfigLock, FileMode};
use crate::keys::Config;
pub use docker::docker;
use local::CommandHome;
pub use local::current_dir;

/// The gate with everything the owner decided in the configuration.
pub fn gate(config: &Config) -> Gate {
    let approvals = &config.approvals;
    let rule = |verdict, pattern: &hermes_policy::user_rule::CommandPattern| UserRule {
        verdict,
        pattern: pattern.clone(),
        scope: RuleScope::Everywhere,
        expires: None,
    };
    // The list of the Python program also holds names of its own rules; they are no commands and match none.
    let listed: Vec<_> =
        config.general.command_allowlist.iter().filter_map(|text| text.parse().ok()).collect();
    let allowed = approvals.allow.iter().chain(&listed).map(|pattern| rule(UserVerdict::Allow, pattern));
    let asked = approvals.ask.iter().map(|pattern| rule(UserVerdict::Ask, pattern));
    let denied = approvals.deny.iter().map(|pattern| rule(UserVerdict::Deny, pattern));
    let mut gate = Gate {
        mode: approvals.mode,
        unattended: approvals.cron_mode,
        rules: allowed.chain(asked).chain(denied).collect(),
        ..Gate::default()
    };
    gate.question_limits.timeout_secs = approvals.timeout;
    gate
}

/// The lifetime of a place that is to leave nothing behind, should we be killed before we remove it.
const ONE_SHOT_LIFETIME: Duration = Duration::from_secs(60);

/// What stands for the identity of a home that has none yet.
const PLACEHOLDER_INSTALL_ID: &str = "00000000000000000000000000000000";

/// Whether a planned place may be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResolveMode {
    /// It may.
    Create,
    /// It is only looked at, so that not even the home gets an identity.
    Inspect,
    /// It is only judged, so that no engine has to exist.
    Judge,
}

/// The environment that a command asks for; what is missing comes from the configuration.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PlaceRequest {
    pub backend: Option<BackendName>,
    pub image: Option<String>,
    /// The session key; empty for a session that leaves nothing behind.
    pub session: Option<String>,
    pub audience: Audience,
}

/// A session by the words of the command line.
pub struct SessionChoice {
    pub key: SessionKey,
    pub keep: Retention,
}

/// What is left of a session when its command has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Retention {
    /// Its state and its files.
    All,
    /// Its files, and what still runs.
    FilesOnly,
    /// Nothing at all.
    None,
}

impl SessionChoice {
    /// The one that was asked for, or that of this directory.
    pub fn new(request: &PlaceRequest, config: &Config) -> Result<Self, Failure> {
        let terminal = &config.terminal;
        let is_docker = request.backend.unwrap_or(terminal.backend) == BackendName::Docker;
        let lasting = match is_docker && !terminal.docker_persist_across_processes {
            true => Retention::FilesOnly,
            false => Retention::All,
        };
        let (key, keep) = match request.session.as_deref() {
            Some("") => (format!("once {:032x}", u128::from_le_bytes(random_bytes()?)), Retention::None),
            Some(key) => (key.to_owned(), lasting),
            None => (current_dir()?.display().to_string(), lasting),
        };
        Ok(Self { key: SessionKey::new(key), keep })
    }
}

/// The places of this home.
pub fn places(context: &ConfigContext, config: &Config) -> Places {
    // Before the first one was made there is no directory: a name that anybody could guess is not looked at.
    let run = match known_install(context) {
        Some(install) => run_dir(context, &install),
        None => install_path(context),
    };
    let kept = persistent_files_dir(context, config);
    Places {
        run_dir: run,
        kept_dirs: [backend::sandbox::KEPT_SUBDIR, backend::docker::KEPT_SUBDIR]
            .map(|word| kept.join(word))
            .to_vec(),
    }
}

/// Something about a place did not work.
pub fn place_failure(error: hermes_exec::Error) -> Failure {
    let failure = Failure::new(FailureKind::Unavailable, error.to_string());
    match &error {
        hermes_exec::Error::Engine(fault) => engine::engine_failure(fault),
        hermes_exec::Error::TooManyPlaces { .. } => failure
            .hint("Run `hermes sandbox prune` to remove idle environments.")
            .hint("Set `terminal.max_places` to change the limit."),
        hermes_exec::Error::SettingsChanged { name } => failure
            .hint(format!(
                "Run `hermes sandbox show {name}` to see what uses it; it is recreated once that has ended."
            ))
            .hint(format!("`hermes sandbox rm --force {name}` ends it, with its files")),
        hermes_exec::Error::InUseElsewhere { .. } => {
            failure.hint("XDG_RUNTIME_DIR was another one when it was made; use that, or end it from there")
        }
        hermes_exec::Error::ImageMissing { image } => image::advise(failure, image, None),
        hermes_exec::Error::WrongPlatform { image, .. } => {
            image::advise(failure, image, Some(&PullError::WrongPlatform))
        }
        hermes_exec::Error::Pull { image, error: fault } => image::advise(failure, image, Some(fault)),
        _ => failure,
    }
}

/// The place of a session, ready to be judged and opened. A backend that cannot be used is an error, never another one.
pub fn resolve_place(
    context: &ConfigContext,
    config: &Config,
    request: &PlaceRequest,
    session: &SessionChoice,
    making: ResolveMode,
) -> Result<ResolvedPlace, Failure> {
    let backend = request.backend.unwrap_or(config.terminal.backend);
    if let (Some(_), BackendName::Local | BackendName::Sandbox | BackendName::Ssh) = (&request.image, backend)
    {
        return Err(Failure::new(FailureKind::Usage, format!("the {backend} backend uses no image"))
            .hint("leave `--image` out, or choose a backend that runs images, such as docker"));
    }
    let lifetime = match session.keep {
        Retention::All | Retention::FilesOnly => Duration::from_secs(config.terminal.lifetime_seconds),
        Retention::None => ONE_SHOT_LIFETIME,
    };
    let variable = |name: &str| context.variable(name).map(str::to_owned);
    let owner_home = local::owner_home(context);
    let terminal = &config.terminal;
    let passthrough =
        terminal.env_passthrough.0.iter().filter_map(|name| {
            Some((name.as_str().to_owned(), context.loaded.layers.variable(name.as_str())?))
        });
    let mut env: Vec<_> = passthrough.collect();
    let (kind, cwd, home, init) = match backend {
        BackendName::Local => {
            if let Some(network @ (Network::None | Network::Proxy)) = terminal.network {
                return Err(network_not_confinable(network));
            }
            let names = ["LANG", "TERM", "TZ", "USER", "SHELL"];
            let path = local::search_path(context.variable("PATH").unwrap_or_default());
            let told = names.iter().filter_map(|name| Some(((*name).to_owned(), variable(name)?)));
            let base_env = [("PATH".to_owned(), path)].into_iter().chain(told).collect();
            let home = local::command_home(context, terminal.home_mode);
            match &home {
                CommandHome::Owner(_) => {}
                CommandHome::Profile(_) => env.push(("HERMES_REAL_HOME".to_owned(), owner_home.clone())),
                CommandHome::Missing(_) => {
                    let missing = context.home.path().join("home");
                    context.warn(&format!(
                        "terminal.home_mode: {} does not exist; commands use your own HOME",
                        missing.display()
                    ));
                }
            }
            let cwd = local::initial_cwd(&terminal.cwd, &owner_home)?;
            let init = local::init_files(terminal, &owner_home);
            (Backend::Local(LocalBackend { base_env }), cwd, home.path().to_owned(), init)
        }
        BackendName::Sandbox => {
            let jail = sandbox_backend(context, config, &owner_home)?;
            let sandboxed = SandboxBackend { audience: request.audience, ..jail };
            let cwd = initial_cwd_inside(&terminal.cwd, &owner_home, &sandboxed.binds);
            (Backend::Sandbox(sandboxed), cwd, HOME_DIR.to_owned(), Vec::new())
        }
        BackendName::Docker => {
            let docker = docker(context, config, request.image.as_deref(), &owner_home, making)?;
            let cwd = docker::mounted_directory(config)
                .unwrap_or_else(|| initial_cwd_inside(&terminal.cwd, &owner_home, &docker.binds));
            let given = docker.run_args.env.iter().map(|(name, value)| (name.to_string(), value.clone()));
            env.extend(given);
            env.extend(docker::variables(context, config));
            (Backend::Docker(docker), cwd, backend::docker::HOME_DIR.to_owned(), Vec::new())
        }
        other => {
            return Err(Failure::new(
                FailureKind::Unavailable,
                format!("the {other} backend is not part of this version"),
            )
            .hint("nothing was run; `--backend local` runs on this machine, with the gate asking"));
        }
    };
    let install = match making {
        ResolveMode::Create => install_id(context)?,
        ResolveMode::Inspect | ResolveMode::Judge => {
            known_install(context).unwrap_or_else(|| PLACEHOLDER_INSTALL_ID.to_owned())
        }
    };
    let host = Installation {
        run_dir: run_dir(context, &install),
        cache_dir: context.home.path().join("cache").join("guest"),
        home: context.home.path().to_owned(),
        max_places: usize::try_from(config.terminal.max_places).unwrap_or(usize::MAX),
        install_id: install,
    };
    let spec = Spec { backend: kind, cwd, home, env, init, lifetime };
    ResolvedPlace::new(host, spec, session.key.clone()).map_err(place_failure)
}

/// A confinement that cannot be given is refused.
fn network_not_confinable(network: Network) -> Failure {
    let word = network.as_str();
    Failure::new(
        FailureKind::Configuration,
        format!("terminal.network is {word}, but the local backend cannot confine the network"),
    )
    .hint("nothing was run; `--backend sandbox` can, and `full` is what local has")
}

/// The directory a session in a jail starts in. One of the owner's own is not there, unless it was mounted.
fn initial_cwd_inside(chosen: &str, owner_home: &str, binds: &[BindMount]) -> String {
    let path = Path::new(chosen);
    let homes = ["/home", "/Users", owner_home].into_iter().filter(|home| *home != "/");
    let mounted = binds.iter().any(|bind| path.starts_with(&bind.target));
    if path.is_absolute() && (mounted || !homes.into_iter().any(|home| path.starts_with(home))) {
        chosen.to_owned()
    } else {
        WORKSPACE_DIR.to_owned()
    }
}

/// The jail's settings.
pub fn sandbox_backend(
    context: &ConfigContext,
    config: &Config,
    home: &str,
) -> Result<SandboxBackend, Failure> {
    let terminal = &config.terminal;
    let megabytes = |number: u64| (number > 0).then(|| number.saturating_mul(1 << 20));
    let names = ["PATH", "LANG", "TERM", "TZ"];
    let variable = |name: &str| context.variable(name).map(str::to_owned);
    Ok(SandboxBackend {
        helper: std::env::current_exe()?,
        files: terminal.container_persistent.then(|| persistent_files_dir(context, config)),
        owner_home: PathBuf::from(home),
        audience: Audience::default(),
        binds: binds(&terminal.docker_volumes, home)?,
        network: terminal.network.unwrap_or(Network::Proxy),
        limits: JailLimits {
            memory: megabytes(terminal.container_memory),
            processes: max_processes(config),
            millicpus: millicpus(terminal.container_cpu),
            disk: megabytes(terminal.container_disk),
            scratch: Some(512 << 20),
            open_files: None,
        },
        base_env: names.iter().filter_map(|name| Some(((*name).to_owned(), variable(name)?))).collect(),
    })
}

/// Where the kept files of places are.
fn persistent_files_dir(context: &ConfigContext, config: &Config) -> PathBuf {
    let chosen = config.terminal.sandbox_dir.as_deref().unwrap_or("sandboxes");
    context.home.path().join(local::expand_tilde(chosen, &local::owner_home(context)))
}

/// Thousandths of a processor, rounded up; none for 0.
fn millicpus(cpus: f64) -> Option<u32> {
    let text = format!("{:.0}", (cpus * 1000.0).ceil());
    text.parse().ok().filter(|millis| *millis > 0)
}

/// Processes and threads; none for 0.
fn max_processes(config: &Config) -> Option<u32> {
    let number = config.terminal.container_pids;
    (number > 0).then(|| u32::try_from(number).unwrap_or(u32::MAX))
}

/// What tells this home from others, made on first use.
fn install_id(context: &ConfigContext) -> Result<String, Failure> {
    if let Some(id) = known_install(context) {
        return Ok(id);
    }
    let home = context.home.path();
    let unwritable = |error: std::io::Error| {
        Failure::new(FailureKind::Failed, format!("{} cannot be written: {error}", home.display()))
            .hint("Run `hermes doctor`, or choose another home with `--home DIR`.")
    };
    let lock = ConfigLock::acquire(home).map_err(unwritable)?;
    if let Some(id) = known_install(context) {
        return Ok(id);
    }
    let id: String = random_bytes()?.iter().map(|byte| format!("{byte:02x}")).collect();
    lock.write(&install_path(context), id.as_bytes(), FileMode::Private).map_err(unwritable)?;
    Ok(id)
}

/// The same, unless it was never made.
fn known_install(context: &ConfigContext) -> Option<String> {
    let text = std::fs::read_to_string(install_path(context)).ok()?;
    Some(text.trim().to_owned()).filter(|id| id.len() == 32)
}

/// Whether something was made for this home before.
pub fn has_identity(context: &ConfigContext) -> bool {
    known_install(context).is_some()
}

fn install_path(context: &ConfigContext) -> PathBuf {
    context.home.path().join(".install-id")
}

/// Where sockets are: a short path, since theirs has room for about 100 bytes.
fn run_dir(context: &ConfigContext, install: &str) -> PathBuf {
    let short: String = install.chars().take(8).collect();
    match context.variable("XDG_RUNTIME_DIR") {
        Some(dir) if dir.len() < 48 => Path::new(dir).join(format!("hermes-{short}")),
        _ => {
            let uid = rustix::process::getuid().as_raw();
            PathBuf::from(format!("/tmp/hermes-{uid}-{short}"))
        }
    }
}

/// The owner's directories and files that places of this machine see.
fn binds(volumes: &[Volume], home: &str) -> Result<Vec<BindMount>, Failure> {
    if volumes.is_empty() {
        return Ok(Vec::new());
    }
    let base = current_dir()?;
    let bind = |volume: &Volume| {
        let source = volume.source.resolve(Path::new(home), &base)?;
        let writable = if volume.access == MountAccess::ReadWrite { Writable::Yes } else { Writable::No };
        Some(BindMount { source, target: PathBuf::from(&volume.target), writable })
    };
    Ok(volumes.iter().filter_map(bind).collect())
}

/// The place and the initial directory by which the gate would judge a command on this backend.
pub fn judged_place(
    context: &ConfigContext,
    config: &Config,
    backend: BackendName,
) -> Result<(Place, String), Failure> {
    if !matches!(backend, BackendName::Local | BackendName::Sandbox | BackendName::Docker) {
        return Ok(unsupported_place(context, backend));
    }
    let request = PlaceRequest { backend: Some(backend), ..PlaceRequest::default() };
    let session = SessionChoice { key: SessionKey::new(""), keep: Retention::All };
    let place = resolve_place(context, config, &request, &session, ResolveMode::Judge)?;
    Ok((place.place(), place.initial_cwd().to_owned()))
}

/// The reach that a backend of a later version is going to have.
fn unsupported_place(context: &ConfigContext, backend: BackendName) -> (Place, String) {
    let (reach, home, cwd) = match backend {
        BackendName::Ssh => {
            let home = local::owner_home(context);
            (Reach::Host, home.clone(), home)
        }
        _ => (Reach::Nothing, "/root".to_owned(), WORKSPACE_DIR.to_owned()),
    };
    let hermes_home = context.home.path().display().to_string();
    (Place { id: PlaceId::new("test"), backend, reach, home, hermes_home }, cwd)
}

/// Sixteen random bytes.
pub fn random_bytes() -> Result<[u8; 16], Failure> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(|error| Failure::new(FailureKind::Failed, error.to_string()))?;
    Ok(bytes)
}
