//! `hermes approvals …`.

pub(crate) mod questions;

use std::io::{self, Read};
use std::process::ExitCode;

use hermes_policy::{Gate, GateReport, Moment};
use hermes_types::{Attendance, BackendName, Choice, EntryPoint, Job, Origin, SessionKey, Timestamp};
use serde_json::json;

use crate::Context;
use crate::approval;
use crate::args::ApprovalsAction;
use crate::command::config::settings;
use crate::screen::{OutputFormat, Tone};
use hermes_config::failure::Failure;
use hermes_config::resolve;

pub(crate) fn run(action: ApprovalsAction, context: &Context) -> Result<ExitCode, Failure> {
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build();
    match action {
        ApprovalsAction::Test { command, backend } => test(context, &command, backend),
        ApprovalsAction::Ls => runtime()?.block_on(questions::list(context)),
        ApprovalsAction::Approve { id, session, always } => {
            let choice = match (session, always) {
                (_, true) => Choice::Always,
                (true, false) => Choice::Session,
                (false, false) => Choice::Once,
            };
            runtime()?.block_on(questions::answer(context, &id, choice))
        }
        ApprovalsAction::Deny { id, reason } => {
            runtime()?.block_on(questions::answer(context, &id, Choice::Deny { reason }))
        }
        ApprovalsAction::Grants => runtime()?.block_on(questions::grants(context)),
        ApprovalsAction::Revoke { id } => runtime()?.block_on(questions::revoke(context, &id)),
    }
}

fn test(context: &Context, command: &str, backend: Option<BackendName>) -> Result<ExitCode, Failure> {
    let config = settings(context)?;
    let backend = backend.unwrap_or(config.terminal.backend);
    let (place, cwd) = resolve::judged_place(context, config, backend)?;
    let owner = approval::owner();
    let origin = Origin {
        attendance: Attendance::Attended(vec![owner.clone()]),
        person: owner,
        entry_point: EntryPoint::Cli,
        session: SessionKey::new(""),
        place,
    };
    let gate = resolve::gate(config);
    let judge = |text: &str| report(&gate, &Job::shell(text, &cwd), &origin);
    if command == "-" {
        let mut input = Vec::new();
        io::stdin().lock().read_to_end(&mut input)?;
        let input = input.strip_suffix(b"\0").unwrap_or(&input);
        for command in input.split(|&byte| byte == 0) {
            let report = judge(&String::from_utf8_lossy(command));
            context.screen.line(&json!(report).to_string())?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    let report = judge(command);
    match context.screen.format {
        OutputFormat::Json => context.screen.json(&json!(report))?,
        OutputFormat::Text => context.screen.text(&text(context, &report))?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Grants and questions play no part here, so neither the moment nor the seed does.
fn report(gate: &Gate, job: &Job, origin: &Origin) -> GateReport {
    gate.report(job, origin, Moment { now: Timestamp::from_seconds(0), seed: [0; 16] })
}

fn text(context: &Context, report: &GateReport) -> String {
    let screen = context.screen;
    let (tone, words) = match (report.verdict, report.floor) {
        ("allow", _) => (Tone::Good, "allow: it would run without a question"),
        ("ask", _) => (Tone::Warning, "ask: needs approval"),
        (_, true) => (Tone::Bad, "deny: cannot be approved"),
        (_, false) => (Tone::Bad, "deny: your own rules forbid it"),
    };
    let mut text = format!("{}\n", screen.paint(tone, words));
    for found in &report.rules {
        let id = screen.paint(Tone::Strong, found.id);
        text.push_str(&format!("  {id}: {}\n    {}\n", found.reason, found.segment));
    }
    if !report.segments.is_empty() {
        text.push_str(&format!("{}\n", screen.paint(Tone::Quiet, "read as")));
        report.segments.iter().for_each(|segment| text.push_str(&format!("  {segment}\n")));
    }
    text
}
