//! The life cycle around an environment: opening it with its image, warnings, and what is left of it.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use hermes_agent::ToolContext;
use hermes_config::failure::Failure;
use hermes_config::keys::Config;
use hermes_config::layers::Source;
use hermes_config::resolve::image::{credentials_warning, pull_settings};
use hermes_config::resolve::{self, PlaceRequest, ResolveMode, Retention, SessionChoice};
use hermes_exec::backend::docker::NO_DISK_LIMIT;
use hermes_exec::backend::docker::pull::PullEvent;
use hermes_exec::{OpenPlace, ResolvedPlace, TreeStatus};

use crate::Context;
use crate::command::{fill_pool, keep_proxy};
use crate::progress::{PullOutput, PullView};

/// Opens a place. A missing image is pulled first, with progress for the user.
pub(crate) async fn open(
    context: &Context,
    config: &Config,
    plan: &ResolvedPlace,
) -> Result<OpenPlace, Failure> {
    let mut progress: Option<PullView> = None;
    let settings = pull_settings(context, config);
    let opened = plan.open_with_pull(&settings, |event| match event {
        PullEvent::Started { image } => {
            tracing::info!(image, "pulling");
            progress = Some(PullView::new(image, PullOutput::Start));
        }
        PullEvent::CredentialsUnavailable(error) => context.screen.warn(&credentials_warning(error)),
        PullEvent::Progress { progress: state, .. } => {
            progress.iter_mut().for_each(|progress| progress.show(state));
        }
        PullEvent::Finished { .. } => progress.take().into_iter().for_each(PullView::finish),
    });
    opened.await.map_err(resolve::place_failure)
}

/// Tells of limits that a place was made without, each once per process. That few engines limit the disk is told to
/// those who asked for a limit; `hermes status` tells everybody.
pub(crate) async fn warn_of_limits(context: &Context, sandbox: &OpenPlace) {
    static TOLD: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    let disk = context.loaded.resolved("terminal.container_disk");
    let is_disk_wanted = disk.is_some_and(|disk| disk.source != Source::Default);
    for limit in sandbox.take_unenforced_limits().await {
        let is_wanted = limit != NO_DISK_LIMIT || is_disk_wanted;
        if is_wanted && TOLD.lock().unwrap_or_else(PoisonError::into_inner).insert(limit.clone()) {
            context.screen.warn(&limit);
        }
    }
}

/// Processes that may outlive the command that used a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Survivors {
    None,
    /// Some may run; nothing is known about them.
    Unknown,
    /// Processes that a foreground command left behind.
    Leftover,
    /// Background processes that were asked for.
    Background,
}

/// Runs `work` in an environment: resolves it, opens it with its image, warns about limits, and
/// keeps or removes it afterwards, whatever `work` returns.
pub(crate) async fn with_place<T>(
    context: &Context,
    config: &Config,
    request: &PlaceRequest,
    session: &SessionChoice,
    work: impl AsyncFnOnce(&ResolvedPlace, &OpenPlace) -> (Result<T, Failure>, Survivors),
) -> Result<T, Failure> {
    let plan = resolve::resolve_place(context, config, request, session, ResolveMode::Create)?;
    let reaper = resolve::places(context, config).start_reaper(plan.engine_access());
    let place = open(context, config, &plan).await?;
    warn_of_limits(context, &place).await;
    if let Err(error) = fill_pool::start(context, request, &plan) {
        tracing::warn!(error = error.message, "cannot fill the warm pool");
    }
    tracing::info!(place = plan.name(), backend = %plan.backend_name(), "environment open");
    let (done, survivors) = work(&plan, &place).await;
    let closed = close(context, &plan, session.keep, place, survivors).await;
    // A failed removal is retried by the next process; the command has its own outcome.
    if let Err(error) = reaper.finish().await {
        tracing::warn!(%error, "cannot remove the remains of environments");
    }
    let done = done?;
    closed.map(|()| done)
}

/// Keeps or removes a place when its command has ended.
async fn close(
    context: &Context,
    plan: &ResolvedPlace,
    keep: Retention,
    place: OpenPlace,
    survivors: Survivors,
) -> Result<(), Failure> {
    match (keep, survivors) {
        (_, Survivors::Background) => keep_proxy::start(context, plan),
        (Retention::None, _) => place.remove().await.map_err(resolve::place_failure),
        (_, Survivors::Leftover) => keep_proxy::start(context, plan),
        (Retention::FilesOnly, _) => place.end_if_unused().await.map_err(resolve::place_failure),
        // The proxy process exits at once if nothing runs.
        (Retention::All, Survivors::Unknown) => keep_proxy::start(context, plan),
        (Retention::All, Survivors::None) => Ok(()),
    }
}

/// Leaves the place as its session wants it left, if it was opened at all.
pub(crate) async fn release_place(
    context: &Context,
    request: &PlaceRequest,
    plan: &ResolvedPlace,
    session: &SessionChoice,
    hands: Option<ToolContext>,
) -> Result<(), Failure> {
    let Some(sandbox) = hands.and_then(ToolContext::into_place) else { return Ok(()) };
    warn_of_limits(context, &sandbox).await;
    fill_pool::start(context, request, plan)?;
    let views = match sandbox.processes().await {
        Ok(processes) => processes.list().await.unwrap_or_default(),
        Err(_gone) => Vec::new(),
    };
    let is_alive = views.iter().any(|view| view.tree == TreeStatus::Alive);
    let survivors = if is_alive { Survivors::Background } else { Survivors::None };
    close(context, plan, session.keep, sandbox, survivors).await
}
