//! Turns settings into the values that the other crates work with.

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
    Audience, Backend, BindMount, Installation, LocalBackend, PlaceLimits, Places, ResolvedPlace,
    SandboxBackend, Spec,
};
use hermes_policy::user_rule::CommandPattern;
use hermes_policy::{Gate, UserRule, UserVerdict};
use hermes_sandbox::JailLimits;
use hermes_types::{BackendName, Egress, EnvName, Network, Place, PlaceId, Reach, SessionKey};

use crate::ConfigContext;
use crate::failure::Failure;
use crate::file::{ConfigLock, FileMode};
use crate::keys::{Config, HomeMode};
pub use docker::docker;
use image::add_image_hints;
pub use local::current_dir;

/// The gate with the rules of the configuration.
pub fn gate(config: &Config) -> Gate {
    let approvals = &config.approvals;
    // A text that is also a command pattern denies by both readings.
    let denied: Vec<CommandPattern> =
        approvals.deny.iter().filter_map(|text| text.to_string().parse().ok()).collect();
    let lists = [
        (UserVerdict::Allow, &approvals.allow),
        (UserVerdict::Ask, &approvals.ask),
        (UserVerdict::Deny, &denied),
    ];
    let rule = |verdict, pattern: &CommandPattern| UserRule { verdict, pattern: pattern.clone() };
    let rules = lists.iter().flat_map(|(verdict, list)| list.iter().map(|pattern| rule(*verdict, pattern)));
    let mut gate = Gate {
        mode: approvals.mode,
        unattended: approvals.cron_mode,
        rules: rules.collect(),
        denied_texts: approvals.deny.clone(),
        allowed_texts: config.general.command_allowlist.clone(),
        guard: config.terminal.guard,
        ..Gate::default()
    };
    gate.question_limits.timeout_secs = approvals.timeout;
    gate
}

/// The lifetime of a throw-away environment, which ends it if this process is killed before it
/// removes it.
const ONE_SHOT_LIFETIME: Duration = Duration::from_secs(60);

/// The install id of a home that has none yet.
const PLACEHOLDER_INSTALL_ID: &str = "00000000000000000000000000000000";

/// The purpose of a resolved environment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResolveMode {
    /// It may be created.
    Create,
    /// It is only displayed: the home gets no install id.
    Inspect,
    /// The gate only judges by it: no engine needs to exist.
    Judge,
}

/// The environment that a command asks for; missing parts come from the configuration.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PlaceRequest {
    pub backend: Option<BackendName>,
    pub image: Option<String>,
    /// The session key; empty for a throw-away session.
    pub session: Option<String>,
    pub audience: Audience,
}

/// The session that a command uses.
#[derive(Debug, Clone)]
pub struct SessionChoice {
    pub key: SessionKey,
    pub keep: Retention,
}

/// The parts of a session that remain after its command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Retention {
    /// Its state and its files.
    All,
    /// Its files and its processes.
    FilesOnly,
    None,
}

impl SessionChoice {
    /// The requested session, or the session of the current directory.
    pub fn new(request: &PlaceRequest, config: &Config) -> Result<Self, Failure> {
        let terminal = &config.terminal;
        let is_docker = request.backend.unwrap_or(terminal.backend) == BackendName::Docker;
        let is_temporary = is_docker && !terminal.docker_persist_across_processes;
        let keep = if is_temporary { Retention::FilesOnly } else { Retention::All };
        let (key, keep) = match request.session.as_deref() {
            Some("") => (format!("once {}", random_hex()?), Retention::None),
            Some(key) => (key.to_owned(), keep),
            None => (current_dir()?.display().to_string(), keep),
        };
        Ok(Self { key: SessionKey::new(key), keep })
    }
}

/// The environments of this home.
pub fn places(context: &ConfigContext, config: &Config) -> Places {
    // Without an install id no environment exists, and a guessable run directory is not trusted.
    let run_dir = match known_install(context) {
        Some(install) => run_dir(context, &install),
        None => install_path(context),
    };
    let persistent = persistent_files_dir(context, config);
    let kept_dirs = [backend::sandbox::KEPT_SUBDIR, backend::docker::KEPT_SUBDIR];
    Places { run_dir, kept_dirs: kept_dirs.map(|subdir| persistent.join(subdir)).to_vec() }
}

impl From<hermes_exec::Error> for Failure {
    /// The failure of an environment, with hints.
    fn from(error: hermes_exec::Error) -> Self {
        let failure = Failure::unavailable(error.to_string());
        match error {
            hermes_exec::Error::Engine(error) => error.into(),
            hermes_exec::Error::TooManyPlaces { .. } => failure
                .hint("Run `hermes sandbox prune` to remove idle environments.")
                .hint("Set `terminal.max_places` to change the limit."),
            hermes_exec::Error::TooManyOfPerson { .. } => failure
                .hint("Wait until a command there has ended, or end a session.")
                .hint("Set `terminal.max_places_per_person` to change the limit."),
            hermes_exec::Error::SettingsChanged { name } => failure
                .hint(format!(
                    "Run `hermes sandbox show {name}` to see what uses it; \
                     it is recreated once that has ended."
                ))
                .hint(format!("Run `hermes sandbox rm --force {name}` to remove it with its files.")),
            hermes_exec::Error::InUseElsewhere { .. } => failure.hint(
                "It was created under a different XDG_RUNTIME_DIR; use that one, or remove the environment \
                 there.",
            ),
            hermes_exec::Error::ImageMissing { image } => add_image_hints(failure, &image, None),
            hermes_exec::Error::WrongPlatform { image, .. } => {
                add_image_hints(failure, &image, Some(&PullError::WrongPlatform))
            }
            hermes_exec::Error::Pull { image, error } => add_image_hints(failure, &image, Some(&error)),
            _ => failure,
        }
    }
}

/// The environment of a session. An unusable backend is an error; no other backend replaces it.
pub fn resolve_place(
    context: &ConfigContext,
    config: &Config,
    request: &PlaceRequest,
    session: &SessionChoice,
    mode: ResolveMode,
) -> Result<ResolvedPlace, Failure> {
    let backend = request.backend.unwrap_or(config.terminal.backend);
    let uses_image = !matches!(backend, BackendName::Local | BackendName::Sandbox | BackendName::Ssh);
    if request.image.is_some() && !uses_image {
        return Err(Failure::usage(format!("the {backend} backend uses no image"))
            .hint("Omit `--image`, or choose a backend that uses images, such as docker."));
    }
    let owner_home = local::owner_home(context);
    let spec = match backend {
        BackendName::Local => local_spec(context, config, owner_home)?,
        BackendName::Sandbox => {
            let jail = sandbox_backend(context, config, &owner_home)?;
            let cwd = initial_cwd_inside(&config.terminal.cwd, &owner_home, &jail.binds);
            let jail = SandboxBackend { audience: request.audience, ..jail };
            isolated_spec(Backend::Sandbox(jail), cwd, HOME_DIR, Vec::new())
        }
        BackendName::Docker => {
            let docker = docker(context, config, request.image.as_deref(), &owner_home, mode)?;
            let cwd = if config.terminal.docker_mount_cwd_to_workspace {
                backend::docker::WORKSPACE_DIR.to_owned()
            } else {
                initial_cwd_inside(&config.terminal.cwd, &owner_home, &docker.binds)
            };
            let options = docker.run_args.env.iter().map(|(name, value)| (name.to_string(), value.clone()));
            let env = options.chain(docker::variables(context, config)).collect();
            isolated_spec(Backend::Docker(docker), cwd, backend::docker::HOME_DIR, env)
        }
        other => {
            return Err(Failure::unavailable(format!("the {other} backend is not part of this version"))
                .hint("Nothing ran. Use `--backend local` to run on this machine, with approvals."));
        }
    };
    let install_id = match (mode, known_install(context)) {
        (_, Some(install)) => install,
        (ResolveMode::Create, None) => create_install_id(context)?,
        (ResolveMode::Inspect | ResolveMode::Judge, None) => PLACEHOLDER_INSTALL_ID.to_owned(),
    };
    let host = Installation {
        run_dir: run_dir(context, &install_id),
        cache_dir: context.home.path().join("cache").join("guest"),
        home: context.home.path().to_owned(),
        limits: place_limits(config),
        install_id,
    };
    let passthrough =
        config.terminal.env_passthrough.0.iter().filter_map(|name| {
            Some((name.as_str().to_owned(), context.loaded.layers.variable(name.as_str())?))
        });
    let env: Vec<_> = passthrough.chain(spec.env).collect();
    refuse_variables_in_clear_text(config, &spec.backend, &env)?;
    let lifetime = match session.keep {
        Retention::All | Retention::FilesOnly => Duration::from_secs(config.terminal.lifetime_seconds),
        Retention::None => ONE_SHOT_LIFETIME,
    };
    Ok(ResolvedPlace::new(host, Spec { env, lifetime, ..spec }, session.key.clone())?)
}

/// Refuses to send the values of forwarded variables where others on the network can read them.
fn refuse_variables_in_clear_text(
    config: &Config,
    backend: &Backend,
    env: &[(String, String)],
) -> Result<(), Failure> {
    let Backend::Docker(docker) = backend else { return Ok(()) };
    let terminal = &config.terminal;
    let mut forwarded = terminal.docker_forward_env.iter().chain(&terminal.env_passthrough.0);
    let has_value =
        |name: &EnvName| env.iter().any(|(known, value)| known == name.as_str() && !value.is_empty());
    match forwarded.find(|name| docker.engine.is_exposed_to_network() && has_value(name)) {
        None => Ok(()),
        Some(name) => Err(Failure::configuration(format!(
            "cannot forward {name} to the engine at {}: the connection is not encrypted",
            docker.engine
        ))
        .hint(
            "Nothing ran. Reach the engine through SSH (`ssh -L 2375:/var/run/docker.sock HOST`, then \
             DOCKER_HOST=tcp://127.0.0.1:2375), or remove the name from terminal.docker_forward_env and \
             terminal.env_passthrough.",
        )),
    }
}

fn place_limits(config: &Config) -> PlaceLimits {
    let terminal = &config.terminal;
    let count = |number: u64| match number {
        0 => usize::MAX,
        number => usize::try_from(number).unwrap_or(usize::MAX),
    };
    let seconds = |number: u64| (number > 0).then(|| Duration::from_secs(number));
    PlaceLimits {
        max_places: count(terminal.max_places),
        max_per_person: count(terminal.max_places_per_person),
        max_idle: seconds(terminal.max_idle_seconds),
        max_age: seconds(terminal.max_age_seconds),
    }
}

fn isolated_spec(backend: Backend, cwd: String, home: &str, env: Vec<(String, String)>) -> Spec {
    Spec { backend, cwd, home: home.to_owned(), env, init: Vec::new(), lifetime: Duration::ZERO }
}

fn local_spec(context: &ConfigContext, config: &Config, owner_home: String) -> Result<Spec, Failure> {
    let terminal = &config.terminal;
    if let Some(network @ (Network::None | Network::Proxy)) = terminal.network {
        let message = "but the local backend cannot confine the network";
        return Err(Failure::configuration(format!("terminal.network is {}, {message}", network.as_str()))
            .hint("Nothing ran. Use `--backend sandbox`, or set terminal.network to `full`."));
    }
    let path = local::search_path(context.variable("PATH").unwrap_or_default());
    let variables = host_variables(context, &["LANG", "TERM", "TZ", "USER", "SHELL"]);
    let base_env = [("PATH".to_owned(), path)].into_iter().chain(variables).collect();
    let cwd = local::initial_cwd(&terminal.cwd, &owner_home)?;
    let init = local::init_files(terminal, &owner_home);
    let mut home = owner_home.clone();
    let mut env = Vec::new();
    match local::profile_home(context, terminal.home_mode) {
        Some(profile) if profile.is_dir() => {
            env.push(("HERMES_REAL_HOME".to_owned(), owner_home));
            home = profile.display().to_string();
        }
        Some(missing) if terminal.home_mode == HomeMode::Profile => context.warn(&format!(
            "terminal.home_mode: {} does not exist; commands use your own HOME",
            missing.display()
        )),
        _ => {}
    }
    let backend = Backend::Local(LocalBackend { base_env, guard: terminal.guard });
    Ok(Spec { backend, cwd, home, env, init, lifetime: Duration::ZERO })
}

/// The variables of this process that have a value.
fn host_variables(context: &ConfigContext, names: &[&str]) -> impl Iterator<Item = (String, String)> {
    names.iter().filter_map(|name| Some(((*name).to_owned(), context.variable(name)?.to_owned())))
}

/// The directory in which a session starts inside an isolated environment. A directory in the
/// owner's home does not exist there unless it is mounted.
fn initial_cwd_inside(chosen: &str, owner_home: &str, binds: &[BindMount]) -> String {
    let path = Path::new(chosen);
    let homes = ["/home", "/Users", owner_home].into_iter().filter(|home| *home != "/");
    let is_mounted = binds.iter().any(|bind| path.starts_with(&bind.target));
    if path.is_absolute() && (is_mounted || !homes.into_iter().any(|home| path.starts_with(home))) {
        chosen.to_owned()
    } else {
        WORKSPACE_DIR.to_owned()
    }
}

/// The settings of the sandbox backend.
pub fn sandbox_backend(
    context: &ConfigContext,
    config: &Config,
    home: &str,
) -> Result<SandboxBackend, Failure> {
    let terminal = &config.terminal;
    Ok(SandboxBackend {
        helper: std::env::current_exe()?,
        files: terminal.container_persistent.then(|| persistent_files_dir(context, config)),
        owner_home: PathBuf::from(home),
        audience: Audience::default(),
        binds: docker::mounts::sandbox_mounts(context, config, home)?,
        network: terminal.network.unwrap_or(Network::Proxy),
        limits: JailLimits {
            memory: megabytes(terminal.container_memory),
            processes: max_processes(config),
            millicpus: millicpus(terminal.container_cpu),
            scratch: Some(512 << 20),
        },
        base_env: host_variables(context, &["PATH", "LANG", "TERM", "TZ"]).collect(),
    })
}

/// The directory for persistent files of environments.
fn persistent_files_dir(context: &ConfigContext, config: &Config) -> PathBuf {
    let chosen = config.terminal.sandbox_dir.as_deref().unwrap_or("sandboxes");
    context.home.path().join(local::expand_tilde(chosen, &local::owner_home(context)))
}

/// A number of MB in bytes; `None` for 0.
fn megabytes(number: u64) -> Option<u64> {
    (number > 0).then(|| number.saturating_mul(1 << 20))
}

/// Thousandths of a processor, rounded up; `None` for 0.
fn millicpus(cpus: f64) -> Option<u32> {
    let text = format!("{:.0}", (cpus * 1000.0).ceil());
    text.parse().ok().filter(|millis| *millis > 0)
}

/// The limit of processes and threads; `None` for 0.
fn max_processes(config: &Config) -> Option<u32> {
    let number = config.terminal.container_pids;
    (number > 0).then(|| u32::try_from(number).unwrap_or(u32::MAX))
}

/// Creates the install id, which distinguishes this home from others.
fn create_install_id(context: &ConfigContext) -> Result<String, Failure> {
    let home = context.home.path();
    let write_failure = |error: std::io::Error| {
        Failure::failed(format!("cannot write {}: {error}", home.display()))
            .hint("Run `hermes doctor`, or choose another home with `--home DIR`.")
    };
    let lock = ConfigLock::acquire(home).map_err(write_failure)?;
    // Another process may have been faster.
    if let Some(id) = known_install(context) {
        return Ok(id);
    }
    let id = random_hex()?;
    lock.write(&install_path(context), id.as_bytes(), FileMode::Private).map_err(write_failure)?;
    Ok(id)
}

/// The install id, unless it was never created.
pub fn known_install(context: &ConfigContext) -> Option<String> {
    let text = std::fs::read_to_string(install_path(context)).ok()?;
    Some(text.trim().to_owned()).filter(|id| id.len() == 32)
}

fn install_path(context: &ConfigContext) -> PathBuf {
    context.home.path().join(".install-id")
}

/// The directory of sockets. It is short, because the path of a socket has at most about 100 bytes.
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

/// The environment and initial directory by which the gate would judge a command on this backend.
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

/// The environment of a backend that this version does not have.
fn unsupported_place(context: &ConfigContext, backend: BackendName) -> (Place, String) {
    let (reach, home, cwd) = match backend {
        BackendName::Ssh => {
            let home = local::owner_home(context);
            (Reach::Host, home.clone(), home)
        }
        _ => (Reach::Nothing, "/root".to_owned(), WORKSPACE_DIR.to_owned()),
    };
    let hermes_home = context.home.path().display().to_string();
    let egress = Egress::ALL;
    (Place { id: PlaceId::new("test"), backend, reach, egress, home, hermes_home }, cwd)
}

/// 128 random bits as 32 hexadecimal digits.
pub fn random_hex() -> Result<String, Failure> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(|error| Failure::failed(error.to_string()))?;
    Ok(format!("{:032x}", u128::from_be_bytes(bytes)))
}
