//! `hermes approvals`: questions, grants, and tests of commands.

pub(crate) mod questions;

use std::io::{self, Read};

use hermes_policy::{GateReport, Moment};
use hermes_types::{Attendance, BackendName, Choice, EntryPoint, Job, Origin, SessionKey, Timestamp};
use serde_json::json;

use crate::approval::owner;
use crate::args::ApprovalsAction;
use crate::command::config::settings;
use crate::screen::Tone;
use crate::{Context, Result, block_on};
use hermes_config::resolve;

pub(crate) fn run(action: ApprovalsAction, context: &Context) -> Result<()> {
    match action {
        ApprovalsAction::Test { command, backend } => test(context, &command, backend),
        ApprovalsAction::Ls => block_on(questions::list(context)),
        ApprovalsAction::Approve { id, session, always } => {
            let choice = match (session, always) {
                (_, true) => Choice::Always,
                (true, false) => Choice::Session,
                (false, false) => Choice::Once,
            };
            block_on(questions::answer(context, &id, choice))
        }
        ApprovalsAction::Deny { id, reason } => {
            block_on(questions::answer(context, &id, Choice::Deny { reason }))
        }
        ApprovalsAction::Grants => block_on(questions::grants(context)),
        ApprovalsAction::Revoke { id } => block_on(questions::revoke(context, &id)),
    }
}

fn test(context: &Context, command: &str, backend: Option<BackendName>) -> Result<()> {
    let config = settings(context)?;
    let backend = backend.unwrap_or(config.terminal.backend);
    let (place, cwd) = resolve::judged_place(context, config, backend)?;
    let origin = Origin {
        attendance: Attendance::Attended(vec![owner()]),
        person: owner(),
        entry_point: EntryPoint::Cli,
        session: SessionKey::new(""),
        place,
    };
    let gate = resolve::gate(config);
    // The report depends on no grants and asks no questions, so it needs no time and no random
    // seed.
    let moment = Moment { now: Timestamp::from_seconds(0), seed: [0; 16] };
    let judge = |text: &str| gate.report(&Job::shell(text, &cwd), &origin, moment);
    if command == "-" {
        let mut input = Vec::new();
        io::stdin().lock().read_to_end(&mut input)?;
        let input = input.strip_suffix(b"\0").unwrap_or(&input);
        let mut commands = input.split(|&byte| byte == 0).map(String::from_utf8_lossy);
        return commands.try_for_each(|command| context.screen.line(&json!(judge(&command)).to_string()));
    }
    let report = judge(command);
    context.screen.print(&json!(report), &format_report(context, &report))
}

fn format_report(context: &Context, report: &GateReport) -> String {
    let screen = context.screen;
    let (tone, verdict) = match (report.verdict, report.floor) {
        ("allow", _) => (Tone::Good, "allow: it would run without a question"),
        ("ask", _) => (Tone::Warning, "ask: needs approval"),
        (_, true) => (Tone::Bad, "deny: cannot be approved"),
        (_, false) => (Tone::Bad, "deny: your own rules forbid it"),
    };
    let mut text = screen.paint(tone, verdict);
    for rule in &report.rules {
        let id = screen.paint(Tone::Strong, rule.id);
        text.push_str(&format!("\n  {id}: {}\n    {}", rule.reason, rule.segment));
    }
    if !report.may_use.is_empty() {
        text.push_str(&format!("\n  may use: {}", report.may_use.join(", ")));
    }
    if !report.segments.is_empty() {
        text.push_str(&format!("\n{}", screen.paint(Tone::Quiet, "read as")));
        report.segments.iter().for_each(|segment| text.push_str(&format!("\n  {segment}")));
    }
    text
}
