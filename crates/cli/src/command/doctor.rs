//! `hermes doctor`: what is broken, and how to mend it.

mod live;
mod model;

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::ExitCode;

use serde::Serialize;
use serde_json::{Value, json};

use crate::Context;
use crate::approval::Consent;
use crate::backend_health;
use crate::command::gateway;
use crate::screen::{OutputFormat, Tone};
use hermes_config::failure::{Failure, FailureKind};
use hermes_config::layers::Severity;
use hermes_config::{FileVersion, LoadedConfig};
use hermes_exec::health::{BackendHealth, GuaranteeState, Usability};

/// Less free space than this is trouble soon.
const MIN_FREE_BYTES: u64 = 200 << 20;

/// How far to go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DoctorMode {
    /// Look at what is there.
    Offline,
    /// Also run commands, with this answer when the gate asks.
    Live(Consent),
}

/// What one check found.
#[derive(Debug, Serialize)]
struct DoctorFinding {
    check: &'static str,
    state: FindingState,
    detail: String,
    remedy: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum FindingState {
    Ok,
    Warning,
    Broken,
}

impl DoctorFinding {
    fn ok(check: &'static str, detail: impl Into<String>) -> Self {
        Self { check, state: FindingState::Ok, detail: detail.into(), remedy: None }
    }

    fn bad(
        check: &'static str,
        state: FindingState,
        detail: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self { check, state, detail: detail.into(), remedy: Some(remedy.into()) }
    }

    /// Something that could not be tried, or cannot be mended.
    fn warning(check: &'static str, detail: impl Into<String>) -> Self {
        Self { check, state: FindingState::Warning, detail: detail.into(), remedy: None }
    }
}

pub(crate) fn run(context: &Context, depth: DoctorMode) -> Result<ExitCode, Failure> {
    let home = context.home.path();
    let mut findings = vec![check_home(home)];
    findings.extend(check_config(&context.loaded));
    findings.extend(check_secrets(home));
    findings.extend(check_space(home));
    if let Some(config) = &context.loaded.config {
        findings.push(model::run(context, config, depth)?);
        for backend in backend_health::configured(config) {
            let health = backend_health::probe(context, config, backend);
            findings.extend(check_backend(&health));
            if let (DoctorMode::Live(consent), true) = (depth, health.is_usable()) {
                findings.extend(live::run(context, config, backend, consent)?);
            }
        }
    }
    findings.extend(check_gateway(context));
    let broken = |check: Option<&str>| {
        findings.iter().any(|f| f.state == FindingState::Broken && check.is_none_or(|check| check == f.check))
    };
    let code = match (broken(Some("configuration")), broken(None)) {
        (true, _) => FailureKind::Configuration.code(),
        (false, true) => FailureKind::Unavailable.code(),
        (false, false) => ExitCode::SUCCESS,
    };
    let screen = context.screen;
    if screen.format == OutputFormat::Json {
        screen.json(&json!({"ok": code == ExitCode::SUCCESS, "home": home, "findings": findings}))?;
        return Ok(code);
    }
    for finding in &findings {
        let (tone, mark) = match finding.state {
            FindingState::Ok => (Tone::Good, "ok"),
            FindingState::Warning => (Tone::Warning, "warning"),
            FindingState::Broken => (Tone::Bad, "broken"),
        };
        let mark = screen.paint(tone, &format!("{mark:7}"));
        screen.line(&format!("{mark}  {}: {}", screen.paint(Tone::Strong, finding.check), finding.detail))?;
        if let Some(remedy) = &finding.remedy {
            screen.line(&format!("         {} {remedy}", screen.paint(Tone::Quiet, "→")))?;
        }
    }
    Ok(code)
}

fn check_home(home: &Path) -> DoctorFinding {
    let name = "home";
    let shown = home.display();
    let meta = match fs::metadata(home) {
        Ok(meta) if meta.is_dir() => meta,
        Ok(_) => {
            return DoctorFinding::bad(
                name,
                FindingState::Broken,
                format!("{shown} is not a directory"),
                "choose another with --home",
            );
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return DoctorFinding::ok(
                name,
                format!("{shown} does not exist yet; it is created when something is saved"),
            );
        }
        Err(error) => {
            return DoctorFinding::bad(
                name,
                FindingState::Broken,
                format!("{shown}: {error}"),
                "make it readable, or choose another with --home",
            );
        }
    };
    let me = rustix::process::geteuid().as_raw();
    if meta.uid() != me && me != 0 {
        let remedy = format!("run hermes as that user, or choose your own home with --home (you are {me})");
        return DoctorFinding::bad(
            name,
            FindingState::Broken,
            format!("{shown} belongs to user {}", meta.uid()),
            remedy,
        );
    }
    if let Err(error) = rustix::fs::access(home, rustix::fs::Access::WRITE_OK) {
        return DoctorFinding::bad(
            name,
            FindingState::Broken,
            format!("{shown} cannot be written: {error}"),
            format!("chmod u+w {shown}"),
        );
    }
    if meta.permissions().mode() & 0o022 != 0 {
        let detail = format!("{shown} can be written by others");
        return DoctorFinding::bad(name, FindingState::Warning, detail, format!("chmod go-w {shown}"));
    }
    DoctorFinding::ok(name, shown.to_string())
}

/// How chats are served, if any are.
fn check_gateway(context: &Context) -> Vec<DoctorFinding> {
    let name = "gateway";
    let has_chats = context.loaded.config.as_ref().is_some_and(|config| config.discord.bot_token.is_some());
    let platforms = gateway::platforms(context);
    if has_chats && platforms.is_empty() {
        let detail = "does not run, so no chat is answered";
        return vec![DoctorFinding::bad(name, FindingState::Warning, detail, "hermes gateway run")];
    }
    let finding = |(word, health): (&String, &Value)| {
        let state = if health["state"] == "down" { FindingState::Broken } else { FindingState::Ok };
        DoctorFinding {
            check: name,
            state,
            detail: format!("{word} {}", gateway::health::format_health(health)),
            remedy: None,
        }
    };
    platforms.iter().map(finding).collect()
}

fn check_config(loaded: &LoadedConfig) -> Vec<DoctorFinding> {
    let name = "configuration";
    let file = loaded.layers.file_path.display();
    let worth_telling = |severity| severity != Severity::Note;
    let mut findings: Vec<DoctorFinding> = loaded
        .problems
        .iter()
        .filter(|problem| worth_telling(problem.severity))
        .map(|problem| {
            let state = if problem.severity == Severity::Error {
                FindingState::Broken
            } else {
                FindingState::Warning
            };
            DoctorFinding { check: name, state, detail: problem.to_string(), remedy: problem.hint.clone() }
        })
        .collect();
    let notes = loaded.problems.iter().filter(|problem| problem.severity == Severity::Note).count();
    if findings.is_empty() {
        findings.push(match (loaded.version, notes) {
            (FileVersion::NoFile, _) => {
                DoctorFinding::ok(name, format!("no {file}: every key has its default"))
            }
            (_, 0) => DoctorFinding::ok(name, file.to_string()),
            (_, notes) => DoctorFinding::ok(
                name,
                format!("{file}, {notes} keys are not used by this version (see `hermes config check`)"),
            ),
        });
    }
    findings
}

fn check_secrets(home: &Path) -> Option<DoctorFinding> {
    let path = hermes_config::dotenv_path(home);
    let mode = fs::metadata(&path).ok()?.permissions().mode() & 0o777;
    Some(if mode & 0o077 == 0 {
        DoctorFinding::ok("secrets", path.display().to_string())
    } else {
        let detail = format!("{} can be read by others (mode {mode:o})", path.display());
        DoctorFinding::bad("secrets", FindingState::Warning, detail, format!("chmod 600 {}", path.display()))
    })
}

fn check_space(home: &Path) -> Option<DoctorFinding> {
    // The home may not be there yet; what counts is the disk it will be on.
    let there = home.ancestors().find(|path| path.exists())?;
    let disk = rustix::fs::statvfs(there).ok()?;
    let free = disk.f_bavail.saturating_mul(disk.f_frsize);
    let detail = format!("{} MB free at {}", free >> 20, there.display());
    Some(if free < MIN_FREE_BYTES {
        DoctorFinding::bad(
            "disk",
            FindingState::Warning,
            detail,
            "free some space; hermes stops writing when there is none",
        )
    } else {
        DoctorFinding::ok("disk", detail)
    })
}

fn check_backend(health: &BackendHealth) -> Vec<DoctorFinding> {
    let name = health.backend.as_str();
    match &health.usability {
        Usability::Usable => {}
        Usability::Unusable(trouble) => {
            let detail = format!("not usable: {}", trouble.what);
            return vec![DoctorFinding::bad(name, FindingState::Broken, detail, trouble.remedy.as_str())];
        }
        Usability::Unknown(reason) => return vec![DoctorFinding::warning(name, *reason)],
    }
    let (held, open): (Vec<_>, Vec<_>) =
        health.confinement.rows().into_iter().partition(|(_, hold)| hold.state == GuaranteeState::Held);
    if held.is_empty() {
        return vec![DoctorFinding::ok(
            name,
            "works; it does not isolate commands, so dangerous ones need approval",
        )];
    }
    let names: Vec<&str> = held.iter().map(|(name, _)| *name).collect();
    let mut findings = vec![DoctorFinding::ok(name, format!("can be used; held: {}", names.join(", ")))];
    if let Some(engine) = &health.engine {
        findings.push(DoctorFinding::ok(name, engine.to_string()));
        if !engine.image_present {
            let detail = format!("the image {} is not there yet", engine.image);
            findings.push(DoctorFinding::warning(name, detail));
        }
    }
    findings.extend(open.into_iter().map(|(what, hold)| {
        let state = if hold.state == GuaranteeState::NotHeld { "not held" } else { "unknown" };
        let reason = hold.reason.as_deref().unwrap_or_default();
        DoctorFinding::warning(name, format!("{what} {state}: {reason}"))
    }));
    findings
}
