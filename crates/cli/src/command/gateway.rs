//! `hermes gateway`: chats, served by one process.

pub(crate) mod anew;
pub(crate) mod state;

use std::fs::{self, File, OpenOptions, TryLockError};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hermes_gateway::{
    AuditLog, BusyPolicy, Channel, ChannelHealth, Gateway, GatewaySettings, MediaSettings, Platform,
    RateLimit, ResetPolicy, SessionHost, StreamingOptions,
};
use hermes_store::Store;
use hermes_types::Timestamp;
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::Context;
use crate::args::GatewayAction;
use crate::chat_host::{self, ChatHouse};
use crate::command::config::settings;
use crate::screen::Format;
use hermes_config::failure::{Failure, Kind};
use hermes_config::file::make_home;
use hermes_config::keys::{BusyInput, Config, ResetMode};
use hermes_config::resolve;
use hermes_config::resolve::chat::{self, Account};
use hermes_config::resolve::gateway::{backend, sharing, warning};
use state::State;

/// Held as long as a gateway serves this home.
const LOCK: &str = "gateway.lock";
/// How long a gateway that was killed may take to be gone.
const GONE: Duration = Duration::from_secs(1);
/// How often conversations of long ago are removed.
const DAY: Duration = Duration::from_secs(86_400);
/// How often it is looked whether it is.
const LOOK: Duration = Duration::from_millis(20);
/// What happened, by whom.
const AUDIT: &str = "audit.jsonl";

pub(crate) fn run(action: GatewayAction, context: &Context) -> Result<ExitCode, Failure> {
    match action {
        GatewayAction::Run => {
            let config = settings(context)?;
            chat_host::check(context, config)?;
            anew::adopt();
            let runtime =
                tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
            let ended = runtime.block_on(serve(context, config));
            runtime.shutdown_background();
            match ended? {
                Ending::Over => Ok(ExitCode::SUCCESS),
                Ending::Anew => Err(anew::start().into()),
            }
        }
        GatewayAction::Status => status(context),
    }
}

/// What comes after a gateway.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ending {
    /// Nothing.
    Over,
    /// The next one.
    Anew,
}

async fn serve(context: &Context, config: &Config) -> Result<Ending, Failure> {
    // What is told before all is ready is heard as well.
    let mut term = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut again = signal(SignalKind::user_defined1())?;
    let home = context.home.path();
    make_home(home)?;
    let _lock = only_one(&home.join(LOCK), "a gateway already serves this home").await?;
    if let Some(warning) = warning(config) {
        context.screen.warn(&warning);
    }
    let accounts = chat::accounts(config)?;
    if accounts.is_empty() {
        return Err(Failure::new(Kind::Configuration, "no chat platform is set up").hint(
            "`hermes config set discord.bot_token -` reads the token of a Discord bot from standard input",
        ));
    }
    let mut locks = Vec::new();
    for account in &accounts {
        locks
            .push(only_one(&account_lock(context, account)?, "this bot is served by another gateway").await?);
    }
    let store = resolve::store::open(context).await?;
    anew::tell(home, &store).await?;
    let logs = home.join("logs");
    fs::create_dir_all(&logs)?;
    let audit = AuditLog::open(&logs.join(AUDIT))?;
    let own = Context { config: context.reloaded(), screen: context.screen };
    let house = Arc::new(ChatHouse::new(Arc::new(own), config.clone(), store.clone())?);
    if let Some(Failure { message, hints, .. }) = house.trouble() {
        tracing::warn!("chats cannot be answered yet: {message}; {}", hints.join("; "));
    }
    let stop = CancellationToken::new();
    let mut state = State::new(home.to_owned());
    let mut channels = JoinSet::new();
    for account in accounts {
        let (platform, people) = (account.platform(), account.people(config, &store));
        let rules = rules(config, home, account.showing(config));
        let channel: Arc<dyn Channel> = account.channel(&store).await?;
        let (health, watched) = watch::channel(ChannelHealth::Connecting);
        state.watch(platform, watched);
        let house = Arc::clone(&house) as Arc<dyn SessionHost>;
        let gateway = Gateway::new(store.clone(), channel, house, people, audit.clone(), rules);
        let stop = stop.clone();
        channels.spawn(async move { (platform, gateway.run(health, stop).await) });
    }
    let reaper = house.reap()?;
    let pruning = config.sessions.auto_prune.then(|| {
        let kept = config.sessions.retention_days.saturating_mul(DAY.as_secs());
        tokio::spawn(prune_daily(Arc::clone(&house), store.clone(), kept))
    });
    tracing::info!("serving chats; commands run on {}", backend(config));
    let mut unfit = None;
    let mut ending = Ending::Over;
    loop {
        let order = tokio::select! {
            _ = term.recv() => Some(Ending::Over),
            _ = interrupt.recv() => Some(Ending::Over),
            _ = again.recv() => Some(Ending::Anew),
            () = house.restarted() => Some(Ending::Anew),
            () = state.changed() => {
                state.tell();
                None
            }
            ended = channels.join_next() => match ended {
                None => break,
                Some(Ok((platform, Err(why)))) => {
                    let failure = Failure::new(Kind::Unavailable, format!("{}: {why}", platform.as_str()));
                    unfit = Some(failure.hint(why.hint));
                    None
                }
                Some(Err(error)) => {
                    unfit = Some(Failure::new(Kind::Failed, format!("a channel ended by a mistake: {error}")));
                    None
                }
                Some(Ok(_)) => None,
            },
        };
        match order {
            Some(Ending::Over) if stop.is_cancelled() && ending == Ending::Over => {
                tracing::info!("ended at once; what was under way goes on with the next start");
                state.remove();
                return Ok(Ending::Over);
            }
            Some(order) => {
                // Whoever wants it to end is not overruled by somebody who wants it to begin anew.
                ending = if stop.is_cancelled() && ending == Ending::Over { ending } else { order };
                tracing::info!(
                    "ending: what is under way is finished first; Ctrl-C or SIGTERM again ends it now"
                );
                stop.cancel();
            }
            None => {}
        }
    }
    // The last word of a platform may have come with its end.
    state.tell();
    state.remove();
    if let Some(pruning) = pruning {
        pruning.abort();
    }
    if let Err(error) = reaper.finish().await {
        tracing::warn!(%error, "leftovers of places could not be removed");
    }
    store.close().await;
    match unfit {
        Some(failure) => Err(failure),
        None => Ok(ending),
    }
}

/// Removes conversations that nobody went on with for so many seconds, with their places.
async fn prune_daily(house: Arc<ChatHouse>, store: Store, kept: u64) {
    loop {
        let now = Timestamp::now();
        let before = Timestamp::from_seconds(now.seconds().saturating_sub(kept));
        match prune(&house, &store, before, now).await {
            Ok(removed) => tracing::info!(removed, "conversations of long ago are removed"),
            Err(error) => tracing::warn!(%error, "conversations of long ago cannot be removed"),
        }
        tokio::time::sleep(DAY).await;
    }
}

async fn prune(
    house: &ChatHouse,
    store: &Store,
    before: Timestamp,
    now: Timestamp,
) -> Result<usize, hermes_store::Error> {
    for session in store.idle(before).await? {
        // The place of a chat is that of its current conversation; others may be shared by several.
        let current = store.current(&session.key).await?;
        let is_current = current.is_some_and(|current| current.id == session.id && current.touched < before);
        if is_current
            && Platform::from_name(&session.source).is_some()
            && let Err(why) = house.close_if_idle(&session.key).await
        {
            tracing::warn!(session = session.id.as_str(), why, "a conversation of long ago stays");
            continue;
        }
        store.retire(&session.id, before, now).await?;
    }
    Ok(store.prune(before).await?.sessions)
}

/// When conversations that nobody went on with are over.
fn reset(config: &Config) -> ResetPolicy {
    let chosen = &config.session_reset;
    let idle = Duration::from_secs(chosen.idle_minutes.saturating_mul(60));
    let (is_daily, is_idle) = match chosen.mode {
        ResetMode::None => (false, false),
        ResetMode::Daily => (true, false),
        ResetMode::Idle => (false, true),
        ResetMode::Both => (true, true),
    };
    ResetPolicy {
        idle: is_idle.then_some(idle),
        daily: is_daily.then_some(chosen.at_hour.0),
        notify: chosen.notify,
    }
}

/// How a gateway behaves.
fn rules(config: &Config, home: &Path, showing: StreamingOptions) -> GatewaySettings {
    GatewaySettings {
        scope: sharing(config),
        busy: match config.display.busy_input_mode {
            BusyInput::Queue => BusyPolicy::Queue,
            BusyInput::Interrupt => BusyPolicy::Interrupt,
            BusyInput::Steer => BusyPolicy::Steer,
        },
        rate_limit: RateLimit {
            per_minute: u32::try_from(config.gateway.messages_per_minute).unwrap_or(u32::MAX),
            burst: u32::try_from(config.gateway.message_burst).unwrap_or(u32::MAX),
        },
        reset: reset(config),
        streaming: showing,
        media: MediaSettings {
            extra_roots: config.gateway.media_delivery_allow_dirs.clone(),
            home: home.to_owned(),
        },
    }
}

/// Takes a lock that one process can have. It is free again when that process is gone, however it ended, and with it what it
/// had just begun to start.
async fn only_one(path: &Path, taken: &str) -> Result<File, Failure> {
    let file = OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(path)?;
    let begun = Instant::now();
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::WouldBlock) if begun.elapsed() < GONE => tokio::time::sleep(LOOK).await,
            Err(TryLockError::WouldBlock) => {
                return Err(Failure::new(Kind::Unavailable, taken)
                    .hint("`hermes gateway status` shows it; end it before you start another one"));
            }
            Err(TryLockError::Error(error)) => return Err(error.into()),
        }
    }
}

/// The lock of an account, the same for every home of this user: a bot answers once.
fn account_lock(context: &Context, account: &Account) -> Result<PathBuf, Failure> {
    let state = match context.variable("XDG_STATE_HOME") {
        Some(state) => PathBuf::from(state),
        None => PathBuf::from(context.variable("HOME").unwrap_or("/")).join(".local/state"),
    };
    let folder = state.join("hermes").join("gateway-locks");
    make_home(&folder)?;
    let hash: String =
        Sha256::digest(account.secret().expose()).iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    Ok(folder.join(format!("{}-{hash}.lock", account.platform().as_str())))
}

/// Whether a gateway serves this home, and how its platforms are.
pub(crate) fn facts(context: &Context) -> Value {
    let home = context.home.path();
    let is_running = match File::open(home.join(LOCK)) {
        Ok(file) => matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock)),
        Err(_) => false,
    };
    state::facts(home, is_running)
}

/// How the platforms are that a gateway of this home serves now.
pub(crate) fn platforms(context: &Context) -> Map<String, Value> {
    match facts(context)["platforms"].take() {
        Value::Object(platforms) => platforms,
        _ => Map::new(),
    }
}

fn status(context: &Context) -> Result<ExitCode, Failure> {
    let facts = facts(context);
    let is_running = facts["running"] == true;
    if context.screen.format == Format::Json {
        context.screen.json(&facts)?;
    } else {
        context.screen.text(&state::text(&facts))?;
    }
    Ok(if is_running { ExitCode::SUCCESS } else { Kind::Unavailable.code() })
}
