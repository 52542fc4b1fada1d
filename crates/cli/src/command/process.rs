//! `hermes process`: background processes.

use std::io;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use hermes_exec::{
    Error, ListedPlace, PlaceRecord, PlaceState, Places, ProcessHandle, ProcessView, Processes, TreeStatus,
};
use hermes_types::SessionKey;
use serde_json::{Value, json};
use tokio::signal::unix::{SignalKind, signal};

use crate::approval::{Consent, approve};
use crate::args::ProcessAction;
use crate::command::config::settings;
use crate::place::MAX_START_ATTEMPTS;
use crate::screen::{format_age, one_line};
use crate::{Config, Context, Failure, Result, block_on};
use hermes_config::resolve;

/// The longest wait of one request to the guest; a longer wait uses several.
const MAX_WAIT: Duration = Duration::from_secs(600);
/// Bytes of output per request.
const PAGE_BYTES: u32 = 256 * 1024;
/// About the most output in one document.
const MAX_JSON_BYTES: usize = 16 << 20;

pub(crate) fn run(action: ProcessAction, context: &Context) -> Result<ExitCode> {
    let config = settings(context)?;
    let places = resolve::places(context, config);
    block_on(async {
        match action {
            ProcessAction::Ls => list(&places, context).await?,
            ProcessAction::Log { id, follow, offset, limit } => {
                let process = SelectedProcess::find(&places, &id).await?;
                let from = match u64::try_from(offset) {
                    Ok(offset) => offset,
                    Err(_) => process.view().await?.output_bytes.saturating_sub(offset.unsigned_abs()),
                };
                if follow {
                    process.follow(from, context).await?;
                } else {
                    process.log(from, limit, context).await?;
                }
            }
            ProcessAction::Wait { id, timeout } => {
                let process = SelectedProcess::find(&places, &id).await?;
                return process.wait(timeout.map(Duration::from_secs), context).await;
            }
            ProcessAction::Kill { id } => SelectedProcess::find(&places, &id).await?.kill(context).await?,
            ProcessAction::Write { id, text, close, yes } => {
                let process = SelectedProcess::find(&places, &id).await?;
                // Without a text, standard input holds it.
                let consent = Consent::new(yes, text.is_some());
                return process.write(text, close, consent, context, config).await;
            }
        }
        Ok(ExitCode::SUCCESS)
    })
}

async fn list(places: &Places, context: &Context) -> Result<()> {
    let mut all: Vec<(PlaceRecord, ProcessView)> = Vec::new();
    for place in places.list().await? {
        if matches!(place.state, PlaceState::Running(_)) {
            // The environment may have ended in between.
            let views = async { place.processes().await?.list().await }.await.unwrap_or_default();
            all.extend(views.into_iter().map(|view| (place.record.clone(), view)));
        }
    }
    let row = |(record, view): &(PlaceRecord, ProcessView)| {
        let state = match (&view.exit, view.tree) {
            (_, TreeStatus::Alive) => "running".to_owned(),
            (Some(exit), TreeStatus::Gone) => format!("exit {}", exit.code),
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
    let facts: Vec<Value> = all.iter().map(|(record, view)| facts(record, view)).collect();
    context.screen.list(
        &json!({"processes": facts}),
        "no background processes; `hermes exec --background` starts one",
        &["ID", "STATE", "AGE", "SESSION", "COMMAND"],
        &all.iter().map(row).collect::<Vec<_>>(),
    )
}

struct SelectedProcess {
    handle: ProcessHandle,
    place: ListedPlace,
    processes: Processes,
}

impl SelectedProcess {
    async fn find(places: &Places, id: &str) -> Result<Self> {
        let handle: ProcessHandle = id.parse().map_err(|error: hermes_exec::process::InvalidHandle| {
            Failure::usage(format!("`{id}` is {error}"))
        })?;
        let missing = || {
            Failure::failed(format!("no process `{id}`"))
                .hint("Run `hermes process ls` to list them; ended ones are listed for half an hour.")
        };
        // By id alone: a session may have the same name as the environment of another.
        let has_id = |place: &ListedPlace| place.record.place.as_str().starts_with(&handle.place);
        let place = places.list().await?.into_iter().find(has_id);
        let place =
            place.filter(|place| matches!(place.state, PlaceState::Running(_))).ok_or_else(missing)?;
        let processes = place.processes().await?;
        processes.show(handle.process).await.map_err(|_missing| missing())?;
        Ok(Self { handle, place, processes })
    }

    async fn view(&self) -> Result<ProcessView> {
        Ok(self.processes.show(self.handle.process).await?)
    }

    async fn log(&self, from: u64, limit: Option<u64>, context: &Context) -> Result<()> {
        let (mut at, mut left) = (from, limit.unwrap_or(u64::MAX));
        let mut collected = Vec::new();
        let is_json = context.screen.is_json();
        loop {
            let count = u32::try_from(left).unwrap_or(PAGE_BYTES).min(PAGE_BYTES);
            let page = self.processes.output(self.handle.process, at, count).await?;
            at = page.offset + page.data.len() as u64;
            left = left.saturating_sub(page.data.len() as u64);
            if is_json {
                collected.extend_from_slice(&page.data);
            } else {
                context.screen.bytes(&page.data)?;
            }
            let is_last = page.data.is_empty() || left == 0 || at >= page.total;
            if is_last || collected.len() > MAX_JSON_BYTES {
                break;
            }
        }
        if !is_json {
            return Ok(());
        }
        let mut facts = facts(&self.place.record, &self.view().await?);
        facts["output"] = Value::from(String::from_utf8_lossy(&collected));
        facts["next_offset"] = Value::from(at);
        context.screen.json(&facts)
    }

    async fn follow(&self, from: u64, context: &Context) -> Result<()> {
        if context.screen.is_json() {
            return Err(Failure::usage("`--follow` cannot be used with `--json`")
                .hint("Omit `--json` or `--follow`."));
        }
        let mut pages = self.processes.follow(self.handle.process, from).await?;
        let mut interrupts = signal(SignalKind::interrupt())?;
        loop {
            tokio::select! {
                page = pages.next_page() => match page.map_err(hermes_exec::Error::from)? {
                    Some(page) => context.screen.bytes(&page.data)?,
                    None => return Ok(()),
                },
                // The process continues.
                _ = interrupts.recv() => return Ok(()),
            }
        }
    }

    async fn wait(&self, timeout: Option<Duration>, context: &Context) -> Result<ExitCode> {
        let start = Instant::now();
        let mut interrupts = signal(SignalKind::interrupt())?;
        loop {
            let left = timeout.map_or(MAX_WAIT, |limit| limit.saturating_sub(start.elapsed()).min(MAX_WAIT));
            let view = tokio::select! {
                view = self.processes.wait(self.handle.process, left) => view?,
                _ = interrupts.recv() => return Ok(ExitCode::from(130)),
            };
            let code = view.exit.as_ref().map(|exit| exit.code);
            if code.is_none() && timeout.is_none_or(|timeout| start.elapsed() < timeout) {
                continue;
            }
            if context.screen.is_json() {
                context.screen.json(&facts(&self.place.record, &view))?;
            } else if code.is_none() {
                context.screen.print_stderr("still running");
            }
            return Ok(ExitCode::from(code.map_or(124, |code| u8::try_from(code).unwrap_or(1))));
        }
    }

    async fn kill(&self, context: &Context) -> Result<()> {
        let before = self.view().await?.tree;
        let view = self.processes.kill(self.handle.process).await?;
        let text = match before {
            TreeStatus::Alive => format!("killed {}", self.handle),
            TreeStatus::Gone => format!("{} had already ended", self.handle),
        };
        context.screen.print(&facts(&self.place.record, &view), &text)
    }

    async fn write(
        &self,
        text: Option<String>,
        close: bool,
        consent: Consent,
        context: &Context,
        config: &Config,
    ) -> Result<ExitCode> {
        let text = match text {
            Some(text) => format!("{text}\n"),
            None => io::read_to_string(io::stdin().lock())?,
        };
        let count = text.len();
        let view = self.view().await?;
        if view.exit.is_some() {
            return Err(Failure::failed(format!("{} has ended and accepts no input", self.handle))
                .hint("Run `hermes process log` to print its output."));
        }
        if count > 0 {
            let record = &self.place.record;
            let place = record.place(context.home.path()).ok_or_else(|| {
                Failure::failed("this environment was created by another version of hermes")
            })?;
            let session = SessionKey::new(&record.session);
            let mut attempts = 0;
            loop {
                let job = self.processes.input_job(self.handle.process, text.clone()).await?;
                let decision = approve(context, config, place.clone(), &session, job, consent).await?;
                let permit = match decision.permit_or_report(context)? {
                    Ok(permit) => permit,
                    Err(code) => return Ok(code),
                };
                attempts += 1;
                match self.processes.write(self.handle.process, permit).await {
                    // More was typed since the gate judged the text.
                    Err(Error::SessionMoved) if attempts < MAX_START_ATTEMPTS => {}
                    written => break written?,
                }
            }
        }
        if close {
            self.processes.close_input(self.handle.process).await?;
        }
        if context.screen.is_json() {
            context.screen.json(&json!({"written": count, "closed": close}))?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// The id of a process.
pub(crate) fn handle(record: &PlaceRecord, view: &ProcessView) -> String {
    ProcessHandle::new(&record.place, view.process).to_string()
}

/// The JSON document of a process.
pub(crate) fn facts(record: &PlaceRecord, view: &ProcessView) -> Value {
    json!({
        "id": handle(record, view),
        "place": record.name,
        "backend": record.backend,
        "session": record.session,
        "command": String::from_utf8_lossy(&view.command),
        "cwd": String::from_utf8_lossy(&view.cwd),
        "running": view.tree == TreeStatus::Alive,
        "exit_code": view.exit.as_ref().map(|exit| exit.code),
        "age_seconds": view.age.as_secs_f64(),
        "output_bytes": view.output_bytes,
        "last": String::from_utf8_lossy(&view.output_tail),
    })
}
