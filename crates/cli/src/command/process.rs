//! `hermes process`: what runs in the background.

use std::io::{self, Read};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use hermes_exec::{
    ListedPlace, PlaceRecord, PlaceState, Places, ProcessHandle, ProcessView, Processes, TreeStatus,
};
use hermes_types::{Job, SessionKey, Work};
use serde_json::{Value, json};
use tokio::signal::unix::{SignalKind, signal};

use crate::Context;
use crate::approval::{self, Consent, Decision};
use crate::args::ProcessAction;
use crate::command::config::settings;
use crate::screen::{OutputFormat, format_age, one_line};
use hermes_config::failure::{Failure, FailureKind};
use hermes_config::keys::Config;
use hermes_config::resolve;

/// How long one question to the guest may wait; a longer wait is several.
const WAIT: Duration = Duration::from_secs(600);
/// Bytes of output that are fetched at once.
const PAGE: u32 = 256 * 1024;

pub(crate) fn run(action: ProcessAction, context: &Context) -> Result<ExitCode, Failure> {
    let config = settings(context)?;
    let places = resolve::places(context, config);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        match action {
            ProcessAction::Ls => list(&places, context).await,
            ProcessAction::Log { id, follow, offset, limit } => {
                let one = One::find(&places, &id).await?;
                let from = match u64::try_from(offset) {
                    Ok(offset) => offset,
                    Err(_negative) => one.view().await?.output_bytes.saturating_sub(offset.unsigned_abs()),
                };
                if follow { one.follow(from, context).await } else { one.log(from, limit, context).await }
            }
            ProcessAction::Wait { id, timeout } => {
                let one = One::find(&places, &id).await?;
                one.wait(timeout.map(Duration::from_secs), context).await
            }
            ProcessAction::Kill { id } => One::find(&places, &id).await?.kill(context).await,
            ProcessAction::Write { id, text, close, yes } => {
                let one = One::find(&places, &id).await?;
                let consent = if yes { Consent::Given } else { Consent::Ask };
                let end = if close { End::Close } else { End::Leave };
                one.write(text, end, consent, context, config).await
            }
        }
    })
}

/// What becomes of the input after something was typed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Leave,
    Close,
}

async fn list(places: &Places, context: &Context) -> Result<ExitCode, Failure> {
    let mut all: Vec<(PlaceRecord, ProcessView)> = Vec::new();
    for found in places.list().await.map_err(resolve::place_failure)? {
        if matches!(found.state, PlaceState::Running(_)) {
            // A place that ended just now has nothing that runs.
            let Ok(processes) = found.processes().await else { continue };
            let Ok(views) = processes.list().await else { continue };
            all.extend(views.into_iter().map(|view| (found.record.clone(), view)));
        }
    }
    if context.screen.format == OutputFormat::Json {
        let list: Vec<Value> = all.iter().map(|(record, view)| facts(record, view)).collect();
        context.screen.json(&json!({"processes": list}))?;
        return Ok(ExitCode::SUCCESS);
    }
    if all.is_empty() {
        context
            .screen
            .print_stderr("nothing runs in the background; `hermes exec --background` starts something");
        return Ok(ExitCode::SUCCESS);
    }
    let row = |(record, view): &(PlaceRecord, ProcessView)| {
        let state = match (&view.exit, view.tree) {
            (_, TreeStatus::Alive) => "running".to_owned(),
            (Some(ended), TreeStatus::Gone) => format!("exit {}", ended.code),
            (None, TreeStatus::Gone) => "ended".to_owned(),
        };
        vec![
            handle(record, view),
            state,
            format_age(view.age),
            one_line(&record.session, 24),
            one_line(&String::from_utf8_lossy(&view.command), 60),
        ]
    };
    let rows: Vec<_> = all.iter().map(row).collect();
    context.screen.table(&["ID", "STATE", "AGE", "SESSION", "COMMAND"], &rows)?;
    Ok(ExitCode::SUCCESS)
}

/// One process that was asked for.
struct One {
    handle: ProcessHandle,
    found: ListedPlace,
    processes: Processes,
}

impl One {
    async fn find(places: &Places, id: &str) -> Result<Self, Failure> {
        let handle: ProcessHandle = id.parse().map_err(|error: hermes_exec::process::InvalidHandle| {
            Failure::new(FailureKind::Usage, format!("`{id}` is {error}"))
        })?;
        let gone = || {
            Failure::new(FailureKind::Failed, format!("there is no process `{id}`"))
                .hint("`hermes process ls` lists them; they are forgotten half an hour after their end")
        };
        // By its identity alone: a session may be called like the place of another.
        let mut listed = places.list().await.map_err(resolve::place_failure)?.into_iter();
        let is_meant = |found: &ListedPlace| found.record.place.as_str().starts_with(&handle.place);
        let found = listed.find(is_meant).filter(|found| matches!(found.state, PlaceState::Running(_)));
        let found = found.ok_or_else(gone)?;
        let processes = found.processes().await.map_err(resolve::place_failure)?;
        processes.show(handle.process).await.map_err(|_missing| gone())?;
        Ok(Self { handle, found, processes })
    }

    async fn view(&self) -> Result<ProcessView, Failure> {
        self.processes.show(self.handle.process).await.map_err(resolve::place_failure)
    }

    async fn log(&self, from: u64, limit: Option<u64>, context: &Context) -> Result<ExitCode, Failure> {
        let (mut at, mut left) = (from, limit.unwrap_or(u64::MAX));
        let mut collected = Vec::new();
        loop {
            let wanted = u32::try_from(left).unwrap_or(PAGE).min(PAGE);
            let page = self
                .processes
                .output(self.handle.process, at, wanted)
                .await
                .map_err(resolve::place_failure)?;
            at = page.offset + page.data.len() as u64;
            left = left.saturating_sub(page.data.len() as u64);
            let is_last = page.data.is_empty() || left == 0 || at >= page.total;
            match context.screen.format {
                OutputFormat::Text => context.screen.bytes(&page.data)?,
                // One document must be whole, so it has an end.
                OutputFormat::Json => collected.extend_from_slice(&page.data),
            }
            if is_last || collected.len() > MOST_JSON {
                break;
            }
        }
        if context.screen.format == OutputFormat::Json {
            let view = self.view().await?;
            let mut facts = facts(&self.found.record, &view);
            facts["output"] = Value::from(String::from_utf8_lossy(&collected));
            facts["next_offset"] = Value::from(at);
            context.screen.json(&facts)?;
        }
        Ok(ExitCode::SUCCESS)
    }

    async fn follow(&self, from: u64, context: &Context) -> Result<ExitCode, Failure> {
        if context.screen.format == OutputFormat::Json {
            return Err(Failure::new(FailureKind::Usage, "`--follow` has no end, so it makes no document")
                .hint("leave `--json` or `--follow` out"));
        }
        let mut followed =
            self.processes.follow(self.handle.process, from).await.map_err(resolve::place_failure)?;
        let mut interrupts = signal(SignalKind::interrupt())?;
        loop {
            tokio::select! {
                page = followed.next_page() => match page.map_err(|error| resolve::place_failure(error.into()))? {
                    Some(page) => context.screen.bytes(&page.data)?,
                    None => return Ok(ExitCode::SUCCESS),
                },
                // It goes on; only we stop looking.
                _ = interrupts.recv() => return Ok(ExitCode::SUCCESS),
            }
        }
    }

    async fn wait(&self, timeout: Option<Duration>, context: &Context) -> Result<ExitCode, Failure> {
        let begun = Instant::now();
        let mut interrupts = signal(SignalKind::interrupt())?;
        loop {
            let left = timeout.map_or(WAIT, |timeout| timeout.saturating_sub(begun.elapsed()).min(WAIT));
            let view = self.processes.wait(self.handle.process, left);
            let view = tokio::select! {
                view = view => view.map_err(resolve::place_failure)?,
                _ = interrupts.recv() => return Ok(ExitCode::from(130)),
            };
            let ended = view.exit.as_ref().map(|ended| ended.code);
            if ended.is_none() && timeout.is_none_or(|timeout| begun.elapsed() < timeout) {
                continue;
            }
            if context.screen.format == OutputFormat::Json {
                context.screen.json(&facts(&self.found.record, &view))?;
            } else if ended.is_none() {
                context.screen.print_stderr("still running");
            }
            return Ok(ExitCode::from(ended.map_or(124, |code| u8::try_from(code).unwrap_or(1))));
        }
    }

    async fn kill(&self, context: &Context) -> Result<ExitCode, Failure> {
        let before = self.view().await?.tree;
        let view = self.processes.kill(self.handle.process).await.map_err(resolve::place_failure)?;
        match (context.screen.format, before) {
            (OutputFormat::Json, _) => context.screen.json(&facts(&self.found.record, &view))?,
            (OutputFormat::Text, TreeStatus::Alive) => {
                context.screen.line(&format!("killed {}", self.handle))?
            }
            (OutputFormat::Text, TreeStatus::Gone) => {
                context.screen.line(&format!("{} had ended already", self.handle))?;
            }
        }
        Ok(ExitCode::SUCCESS)
    }

    async fn write(
        &self,
        text: Option<String>,
        end: End,
        consent: Consent,
        context: &Context,
        config: &Config,
    ) -> Result<ExitCode, Failure> {
        let (text, consent) = match text {
            Some(text) => (format!("{text}\n"), consent),
            None => {
                let mut text = String::new();
                io::stdin().lock().read_to_string(&mut text)?;
                (text, if consent == Consent::Ask { Consent::Unavailable } else { consent })
            }
        };
        let count = text.len();
        let view = self.view().await?;
        if view.exit.is_some() {
            return Err(Failure::new(
                FailureKind::Failed,
                format!("{} has ended and takes no input", self.handle),
            )
            .hint("`hermes process log` prints what it said"));
        }
        if count > 0 {
            let place = self.found.record.place(context.home.path()).ok_or_else(|| {
                Failure::new(FailureKind::Failed, "this environment was created by another version of hermes")
            })?;
            let session = SessionKey::new(&self.found.record.session);
            let cwd = String::from_utf8_lossy(&view.cwd).into_owned();
            let job = Job { work: Work::Input(text), cwd };
            let decision = approval::approve(context, config, place, &session, job, consent).await?;
            let permit = match decision {
                Decision::Allowed(permit) => permit,
                Decision::Refused(refused) => return approval::report_refusal(context, &refused),
                Decision::Interrupted => return Ok(ExitCode::from(130)),
            };
            self.processes.write(self.handle.process, permit).await.map_err(resolve::place_failure)?;
        }
        if end == End::Close {
            self.processes.close_input(self.handle.process).await.map_err(resolve::place_failure)?;
        }
        if context.screen.format == OutputFormat::Json {
            context.screen.json(&json!({"written": count, "closed": end == End::Close}))?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Bytes of output in one document, at most about.
const MOST_JSON: usize = 16 << 20;

/// The id of a process, as people write it.
pub(crate) fn handle(record: &PlaceRecord, view: &ProcessView) -> String {
    ProcessHandle::new(&record.place, view.process).to_string()
}

/// What `--json` says about a process.
pub(crate) fn facts(record: &PlaceRecord, view: &ProcessView) -> Value {
    json!({
        "id": handle(record, view),
        "place": record.name,
        "backend": record.backend,
        "session": record.session,
        "command": String::from_utf8_lossy(&view.command),
        "cwd": String::from_utf8_lossy(&view.cwd),
        "running": view.tree == TreeStatus::Alive,
        "exit_code": view.exit.as_ref().map(|ended| ended.code),
        "age_seconds": view.age.as_secs_f64(),
        "output_bytes": view.output_bytes,
        "last": String::from_utf8_lossy(&view.output_tail),
    })
}
