//! The life cycle of an environment around a command: it is opened with its image, and then kept or
//! removed.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use hermes_agent::ToolContext;
use hermes_config::layers::Source;
use hermes_config::resolve::image::pull_settings;
use hermes_config::resolve::{self, PlaceRequest, ResolveMode, Retention, SessionChoice};
use hermes_exec::backend::docker::NO_DISK_LIMIT;
use hermes_exec::backend::docker::pull::PullEvent;
use hermes_exec::{
    CommandEvent, OpenPlace, Outcome, OutputMode, ResolvedPlace, RunOptions, Stdin, TreeStatus,
    WorkingDirectory,
};
use hermes_policy::Permit;
use hermes_types::{Job, Work};

use crate::command::{fill_pool, keep_proxy};
use crate::progress::{PullOutput, PullView};
use crate::{Config, Context, Result};

/// How often another command may change the session's directory before a command starts.
pub(crate) const MAX_START_ATTEMPTS: u32 = 5;

/// Opens an environment. A missing image is pulled first, with progress for the user.
async fn open(context: &Context, config: &Config, resolved: &ResolvedPlace) -> Result<OpenPlace> {
    let mut view: Option<PullView> = None;
    let settings = pull_settings(context, config);
    let opened = resolved.open_with_pull(&settings, |image, event| match event {
        PullEvent::Started => {
            tracing::info!(image, "pulling");
            view = Some(PullView::new(image, PullOutput::Start));
        }
        PullEvent::CredentialsUnavailable(error) => context.screen.warn(&error.warning()),
        PullEvent::Progress(progress) => view.iter_mut().for_each(|view| view.show(progress)),
        PullEvent::Finished { .. } => view.take().into_iter().for_each(PullView::finish),
    });
    Ok(opened.await?)
}

/// Warns about limits that cannot be enforced, each once per process. Few engines can limit the
/// disk, so that warning is only for configurations that set a limit; `hermes status` always shows
/// it.
async fn warn_of_limits(context: &Context, place: &OpenPlace) {
    static REPORTED: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    let disk = context.loaded.resolved("terminal.container_disk");
    let is_disk_limited = disk.is_some_and(|disk| disk.source != Source::Default);
    for limit in place.take_unenforced_limits().await {
        let is_relevant = limit != NO_DISK_LIMIT || is_disk_limited;
        if is_relevant && REPORTED.lock().unwrap_or_else(PoisonError::into_inner).insert(limit.clone()) {
            context.screen.warn(&limit);
        }
    }
}

/// Processes that may outlive the command that used an environment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Survivors {
    None,
    /// Some may run.
    Unknown,
    /// Processes that a foreground command left behind.
    Leftover,
    /// Background processes.
    Background,
}

/// Runs `work` in an environment: resolves it, opens it with its image, warns about limits, and
/// keeps or removes it afterwards, whatever `work` returns.
pub(crate) async fn with_place<T>(
    context: &Context,
    config: &Config,
    request: &PlaceRequest,
    work: impl AsyncFnOnce(&ResolvedPlace, &OpenPlace) -> (Result<T>, Survivors),
) -> Result<T> {
    let session = SessionChoice::new(request, config)?;
    let resolved = resolve::resolve_place(context, config, request, &session, ResolveMode::Create)?;
    let run = async {
        let place = open(context, config, &resolved).await?;
        warn_of_limits(context, &place).await;
        if let Err(error) = fill_pool::start(context, request, &resolved) {
            tracing::warn!(error = error.message, "cannot fill the warm pool");
        }
        tracing::info!(place = resolved.name(), backend = %resolved.backend_name(), "environment open");
        let (result, survivors) = work(&resolved, &place).await;
        let closed = close(context, &resolved, session.keep, place, survivors).await;
        let result = result?;
        closed.map(|()| result)
    };
    with_reaper(context, config, &resolved, run).await
}

/// Removes leftovers of environments while `work` runs, and once more when it has ended.
pub(crate) async fn with_reaper<T>(
    context: &Context,
    config: &Config,
    resolved: &ResolvedPlace,
    work: impl Future<Output = T>,
) -> T {
    let reaper = resolve::places(context, config).start_reaper(resolved.backend().engine_access());
    let result = work.await;
    // The next process retries a failed removal; the command has its own outcome.
    if let Err(error) = reaper.finish().await {
        tracing::warn!(%error, "cannot remove leftovers of environments");
    }
    result
}

/// The options of a foreground command without input, in the directory of its session.
pub(crate) fn foreground_options(timeout: Duration, keep_bytes: u32, output: OutputMode) -> RunOptions {
    RunOptions {
        timeout: Some(timeout),
        keep_bytes,
        stdin: Stdin::Null,
        env: Vec::new(),
        output,
        directory: WorkingDirectory::Session,
        terminal_size: None,
    }
}

/// Runs a command in `cwd`, or in the directory of its session, with the permit that `judge`
/// returns. Returns the refusal if there is none. The command is interrupted whenever `interrupt`
/// returns.
pub(crate) async fn run_command<R>(
    place: &OpenPlace,
    text: &str,
    cwd: Option<&str>,
    options: &RunOptions,
    mut judge: impl AsyncFnMut(Job) -> Result<Result<Permit, R>>,
    mut print: impl FnMut(&[u8]) -> Result<()>,
    mut interrupt: impl AsyncFnMut(),
) -> Result<Result<Outcome, R>> {
    let mut attempts = 0;
    let mut command = loop {
        let mut job = place.job(Work::Shell(text.to_owned())).await?;
        if let Some(cwd) = cwd {
            cwd.clone_into(&mut job.cwd);
        }
        let permit = match judge(job).await? {
            Ok(permit) => permit,
            Err(refusal) => return Ok(Err(refusal)),
        };
        attempts += 1;
        match place.start_command(permit, options.clone()).await {
            // Another command changed the session's state; the gate must judge the new one.
            Err(hermes_exec::Error::SessionMoved) if attempts < MAX_START_ATTEMPTS => {}
            started => break started?,
        }
    };
    loop {
        tokio::select! {
            event = command.next_event() => match event? {
                CommandEvent::Output(bytes) => print(&bytes)?,
                CommandEvent::End(outcome) => return Ok(Ok(outcome)),
            },
            () = interrupt() => command.interrupt().await?,
        }
    }
}

/// Keeps or removes an environment after its command.
async fn close(
    context: &Context,
    resolved: &ResolvedPlace,
    keep: Retention,
    place: OpenPlace,
    survivors: Survivors,
) -> Result<()> {
    match (keep, survivors) {
        (_, Survivors::Background) => keep_proxy::start(context, resolved),
        (Retention::None, _) => Ok(place.remove().await?),
        (_, Survivors::Leftover) => keep_proxy::start(context, resolved),
        (Retention::FilesOnly, _) => Ok(place.end_if_unused().await?),
        // The proxy process exits at once if nothing runs.
        (Retention::All, Survivors::Unknown) => keep_proxy::start(context, resolved),
        (Retention::All, Survivors::None) => Ok(()),
    }
}

/// Keeps or removes the environment of a tool context, if it was opened.
pub(crate) async fn release_place(
    context: &Context,
    request: &PlaceRequest,
    resolved: &ResolvedPlace,
    session: &SessionChoice,
    tools: ToolContext,
) -> Result<()> {
    let Some(place) = tools.into_place() else { return Ok(()) };
    warn_of_limits(context, &place).await;
    fill_pool::start(context, request, resolved)?;
    // Nothing runs in an environment that has ended.
    let views = async { place.processes().await?.list().await }.await.unwrap_or_default();
    let is_alive = views.iter().any(|view| view.tree == TreeStatus::Alive);
    let survivors = if is_alive { Survivors::Background } else { Survivors::None };
    close(context, resolved, session.keep, place, survivors).await
}
