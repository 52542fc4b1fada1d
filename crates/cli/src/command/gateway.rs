//! `hermes gateway`: serves chats in one process.

pub(crate) mod health;
mod restart;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use hermes_gateway::service::{self, ChannelSupervisor};
use hermes_gateway::{GatewayHost, GatewaySettings, MediaSettings, RateLimit, ResetPolicy, StreamingOptions};
use hermes_types::{LockFile, create_private_dir, hex};
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};
use tokio::signal::unix::{SignalKind, signal};

use crate::args::GatewayAction;
use crate::chat_host::{self, ChatHost};
use crate::command::config::settings;
use crate::{Context, Failure, FailureKind, Result};
use hermes_config::keys::{Config, ResetMode};
use hermes_config::resolve;
use hermes_config::resolve::chat::{self, ChatAccount};
use hermes_config::resolve::gateway::{chat_backend, local_backend_warning, session_scope};

const SECONDS_PER_DAY: u64 = 86_400;

pub(crate) fn run(action: GatewayAction, context: &Arc<Context>) -> Result<ExitCode> {
    match action {
        GatewayAction::Run => {
            let config = settings(context)?;
            chat_host::check(context, config)?;
            restart::reap_inherited();
            let runtime =
                tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
            let ended = runtime.block_on(serve(context, config));
            runtime.shutdown_background();
            match ended? {
                ServeEnd::Stop => Ok(ExitCode::SUCCESS),
                ServeEnd::Restart => Err(restart::exec_self().into()),
            }
        }
        GatewayAction::Status => status(context),
    }
}

/// What happens after the gateway has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ServeEnd {
    Stop,
    Restart,
}

async fn serve(context: &Arc<Context>, config: &Config) -> Result<ServeEnd> {
    // Install signal handlers first, so that no signal is lost during startup.
    let mut term = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut restart = signal(SignalKind::user_defined1())?;
    let home = context.home.path();
    create_private_dir(home)?;
    let _lock = locked(service::lock_home(home).await?, "a gateway already serves this home")?;
    if let Some(warning) = local_backend_warning(config) {
        context.screen.warn(&warning);
    }
    let accounts = chat::accounts(config)?;
    if accounts.is_empty() {
        return Err(Failure::configuration("no chat platform is set up").hint(
            "`hermes config set discord.bot_token -` reads the token of a Discord bot from standard input",
        ));
    }
    let mut locks = Vec::new();
    for account in &accounts {
        let lock = service::try_lock(&account_lock(context, account)?).await?;
        locks.push(locked(lock, "this bot is served by another gateway")?);
    }
    let store = resolve::store::open(context).await?;
    let announced = service::announce_restart(home, &store).await;
    announced.map_err(|error| Failure::failed(error.to_string()))?;
    let host = Arc::new(ChatHost::new(Arc::clone(context), config.clone(), store.clone())?);
    if let Some(Failure { message, hints, .. }) = host.model_failure() {
        tracing::warn!("chats cannot be answered yet: {message}; {}", hints.join("; "));
    }
    let mut supervisor =
        ChannelSupervisor::new(home, store.clone(), Arc::clone(&host) as Arc<dyn GatewayHost>)?;
    for account in accounts {
        let access = account.access_control(config, &store);
        let settings = gateway_settings(config, home, account.streaming_options(config));
        supervisor.start(account.channel(&store).await?, access, settings);
    }
    let reaper = host.start_reaper()?;
    if config.sessions.auto_prune {
        let retention = config.sessions.retention_days.saturating_mul(SECONDS_PER_DAY);
        supervisor.prune_sessions(Duration::from_secs(retention));
    }
    tracing::info!("serving chats; commands run on {}", chat_backend(config));
    let mut failure = None;
    let mut end = ServeEnd::Stop;
    loop {
        let requested = tokio::select! {
            _ = term.recv() => ServeEnd::Stop,
            _ = interrupt.recv() => ServeEnd::Stop,
            _ = restart.recv() => ServeEnd::Restart,
            () = host.restart.notified() => ServeEnd::Restart,
            ended = supervisor.next_end() => match ended {
                None => break,
                Some(Ok(())) => continue,
                Some(Err(error)) => {
                    failure = Some(Failure::unavailable(error.reason).hint(error.hint));
                    continue;
                }
            },
        };
        let is_stopping = supervisor.is_stopping() && end == ServeEnd::Stop;
        if is_stopping && requested == ServeEnd::Stop {
            tracing::info!("stopped at once; the next start resumes running replies");
            supervisor.finish();
            return Ok(ServeEnd::Stop);
        }
        // A restart does not override a stop.
        end = if is_stopping { end } else { requested };
        tracing::info!("stopping after running replies have finished; Ctrl-C or SIGTERM again stops at once");
        supervisor.stop();
    }
    supervisor.finish();
    if let Err(error) = reaper.finish().await {
        tracing::warn!(%error, "cannot remove leftovers of environments");
    }
    store.close().await;
    failure.map_or(Ok(end), Err)
}

/// The lock, or the error if another process holds it.
fn locked(lock: Option<LockFile>, message: &str) -> Result<LockFile> {
    let hint = "`hermes gateway status` shows it; stop it before you start another one";
    lock.ok_or_else(|| Failure::unavailable(message).hint(hint))
}

fn reset_policy(config: &Config) -> ResetPolicy {
    let chosen = &config.session_reset;
    let idle = Duration::from_secs(chosen.idle_minutes.saturating_mul(60));
    ResetPolicy {
        idle: matches!(chosen.mode, ResetMode::Idle | ResetMode::Both).then_some(idle),
        daily: matches!(chosen.mode, ResetMode::Daily | ResetMode::Both).then_some(chosen.at_hour.0),
        notify: chosen.notify,
    }
}

fn gateway_settings(config: &Config, home: &Path, streaming: StreamingOptions) -> GatewaySettings {
    GatewaySettings {
        scope: session_scope(config),
        busy: config.display.busy_input_mode,
        rate_limit: RateLimit {
            per_minute: u32::try_from(config.gateway.messages_per_minute).unwrap_or(u32::MAX),
            burst: u32::try_from(config.gateway.message_burst).unwrap_or(u32::MAX),
        },
        reset: reset_policy(config),
        streaming,
        media: MediaSettings {
            extra_roots: config.gateway.media_delivery_allow_dirs.clone(),
            home: home.to_owned(),
        },
    }
}

/// The lock file of an account, shared by all homes of this user so that a bot answers once.
fn account_lock(context: &Context, account: &ChatAccount) -> Result<PathBuf> {
    let state = match context.variable("XDG_STATE_HOME") {
        Some(state) => PathBuf::from(state),
        None => PathBuf::from(context.variable("HOME").unwrap_or("/")).join(".local/state"),
    };
    let folder = state.join("hermes").join("gateway-locks");
    create_private_dir(&folder)?;
    let hash = hex(Sha256::digest(account.secret().expose()).split_at(8).0);
    Ok(folder.join(format!("{}-{hash}.lock", account.platform().as_str())))
}

/// The state of the gateway of this home.
pub(crate) fn facts(context: &Context) -> Value {
    service::read_state(context.home.path())
}

/// The state of each platform that the gateway serves.
pub(crate) fn platforms(context: &Context) -> Map<String, Value> {
    match facts(context)["platforms"].take() {
        Value::Object(platforms) => platforms,
        _ => Map::new(),
    }
}

fn status(context: &Context) -> Result<ExitCode> {
    let facts = facts(context);
    let is_running = facts["running"] == true;
    context.screen.print(&facts, &health::format_state(&facts))?;
    Ok(if is_running { ExitCode::SUCCESS } else { FailureKind::Unavailable.code() })
}
