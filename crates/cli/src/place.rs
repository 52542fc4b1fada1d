//! The life cycle around an environment: opening it with its image, warnings, and what is left of it.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use hermes_agent::ToolContext;
use hermes_config::failure::Failure;
use hermes_config::keys::Config;
use hermes_config::layers::Source;
use hermes_config::resolve::image::{credentials_warning, pull_settings};
use hermes_config::resolve::{self, Keep, PlaceRequest, Session};
use hermes_exec::backend::docker::NO_DISK_LIMIT;
use hermes_exec::backend::docker::pull::PullEvent;
use hermes_exec::{OpenPlace, ResolvedPlace, TreeStatus};

use crate::Context;
use crate::command::{fill_pool, keep_proxy};
use crate::progress::{Plain, Watched};

/// Opens a place. A missing image is pulled first, with progress for the user.
pub(crate) async fn open(
    context: &Context,
    config: &Config,
    plan: &ResolvedPlace,
) -> Result<OpenPlace, Failure> {
    let mut progress: Option<Watched> = None;
    let settings = pull_settings(context, config);
    let opened = plan.open_with_pull(&settings, |event| match event {
        PullEvent::Started { image } => {
            tracing::info!(image, "pulling");
            progress = Some(Watched::new(image, Plain::Once));
        }
        PullEvent::CredentialsUnavailable(error) => context.screen.warn(&credentials_warning(error)),
        PullEvent::Progress { progress: state, .. } => {
            progress.iter_mut().for_each(|progress| progress.show(state));
        }
        PullEvent::Finished { .. } => progress.take().into_iter().for_each(Watched::finish),
    });
    opened.await.map_err(resolve::fault)
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

/// Leaves the place as its session wants it left, if it was opened at all.
pub(crate) async fn leave(
    context: &Context,
    request: &PlaceRequest,
    plan: &ResolvedPlace,
    session: &Session,
    hands: Option<ToolContext>,
) -> Result<(), Failure> {
    let Some(sandbox) = hands.and_then(ToolContext::into_place) else { return Ok(()) };
    warn_of_limits(context, &sandbox).await;
    fill_pool::start(context, request, plan)?;
    let views = match sandbox.processes().await {
        Ok(processes) => processes.list().await.unwrap_or_default(),
        Err(_gone) => Vec::new(),
    };
    if views.iter().any(|view| view.tree == TreeStatus::Alive) {
        keep_proxy::start(context, plan)
    } else if session.keep == Keep::Nothing {
        sandbox.remove().await.map_err(resolve::fault)
    } else if session.keep == Keep::Files {
        sandbox.end_if_unused().await.map_err(resolve::fault)
    } else {
        Ok(())
    }
}
