//! `hermes doctor`: checks the setup and suggests fixes.

mod live;
mod model;

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::ExitCode;

use serde::Serialize;
use serde_json::{Value, json};

use crate::approval::Consent;
use crate::command::gateway;
use crate::database::with_store;
use crate::screen::Tone;
use crate::{Context, FailureKind, Result, backend_health, block_on};
use hermes_config::layers::Severity;
use hermes_config::{FileVersion, LoadedConfig};
use hermes_exec::health::{BackendHealth, Guarantee, GuardHealth, Usability};
use hermes_types::{Guard, Timestamp};

/// Less free space is a warning.
const MIN_FREE_BYTES: u64 = 200 << 20;

const MAX_LISTED_IDS: usize = 5;

/// The result of one check.
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
    fn new(check: &'static str, state: FindingState, detail: impl Into<String>) -> Self {
        Self { check, state, detail: detail.into(), remedy: None }
    }

    fn ok(check: &'static str, detail: impl Into<String>) -> Self {
        Self::new(check, FindingState::Ok, detail)
    }

    fn warning(check: &'static str, detail: impl Into<String>) -> Self {
        Self::new(check, FindingState::Warning, detail)
    }

    fn broken(check: &'static str, detail: impl Into<String>) -> Self {
        Self::new(check, FindingState::Broken, detail)
    }

    fn remedy(self, remedy: impl Into<String>) -> Self {
        Self { remedy: Some(remedy.into()), ..self }
    }
}

/// Only reads, unless there is a consent to run commands.
pub(crate) fn run(context: &Context, live: Option<Consent>) -> Result<ExitCode> {
    let home = context.home.path();
    let mut findings = vec![check_home(home)];
    findings.extend(check_config(&context.loaded));
    findings.extend(check_secrets(home));
    findings.extend(check_space(home));
    findings.extend(check_approvals(context));
    if let Some(config) = &context.loaded.config {
        findings.push(model::run(context, config, live)?);
        for backend in backend_health::configured(config) {
            let health = backend_health::probe(context, config, backend);
            findings.extend(check_backend(&health));
            if let (Some(consent), true) = (live, health.is_usable()) {
                findings.extend(block_on(live::run(context, config, backend, consent))?);
            }
        }
    }
    findings.extend(check_gateway(context));
    let broken: Vec<_> = findings.iter().filter(|finding| finding.state == FindingState::Broken).collect();
    let code = if broken.is_empty() {
        ExitCode::SUCCESS
    } else if broken.iter().any(|finding| finding.check == "configuration") {
        FailureKind::Configuration.code()
    } else {
        FailureKind::Unavailable.code()
    };
    let screen = context.screen;
    if screen.is_json() {
        screen.json(&json!({"ok": code == ExitCode::SUCCESS, "home": home, "findings": findings}))?;
        return Ok(code);
    }
    for finding in &findings {
        let (tone, state) = match finding.state {
            FindingState::Ok => (Tone::Good, "ok"),
            FindingState::Warning => (Tone::Warning, "warning"),
            FindingState::Broken => (Tone::Bad, "broken"),
        };
        let state = screen.paint(tone, &format!("{state:7}"));
        screen.line(&format!(
            "{state}  {}: {}",
            screen.paint(Tone::Strong, finding.check),
            finding.detail
        ))?;
        if let Some(remedy) = &finding.remedy {
            screen.line(&format!("         {} {remedy}", screen.paint(Tone::Quiet, "→")))?;
        }
    }
    Ok(code)
}

/// Finds stored approvals that Hermes cannot have written.
fn check_approvals(context: &Context) -> Option<DoctorFinding> {
    let name = "approvals";
    let find = with_store(context, async |store| Ok(store.invalid_approvals(Timestamp::now()).await?));
    let found = match block_on(find) {
        Ok(found) => found?,
        Err(failure) => {
            let finding = DoctorFinding::broken(name, failure.message);
            return Some(DoctorFinding { remedy: failure.hints.first().cloned(), ..finding });
        }
    };
    let count = found.grants.len() + found.questions.len();
    let key = found.key_path.display();
    let ids: Vec<&str> =
        found.grants.iter().chain(&found.questions).map(String::as_str).take(MAX_LISTED_IDS).collect();
    let ids = ids.join(", ");
    if !found.has_key {
        let detail = format!("{key} is missing: {count} stored approvals are ignored ({ids})");
        return Some(DoctorFinding::warning(name, detail).remedy(
            "Restore the file, or leave it: Hermes creates a new key and asks about these commands again.",
        ));
    }
    let detail = format!("{count} stored approvals were not written by Hermes and are ignored ({ids})");
    Some(DoctorFinding::warning(name, detail).remedy(
        "Find out what wrote them, unless the key file was replaced. Remove a grant with `hermes approvals revoke ID`.",
    ))
}

fn check_home(home: &Path) -> DoctorFinding {
    let name = "home";
    let shown = home.display();
    let meta = match fs::metadata(home) {
        Ok(meta) if meta.is_dir() => meta,
        Ok(_) => {
            return DoctorFinding::broken(name, format!("{shown} is not a directory"))
                .remedy("Choose another home with --home.");
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let detail = format!("{shown} does not exist yet; it is created when something is saved");
            return DoctorFinding::ok(name, detail);
        }
        Err(error) => {
            return DoctorFinding::broken(name, format!("{shown}: {error}"))
                .remedy("Make it readable, or choose another home with --home.");
        }
    };
    let uid = rustix::process::geteuid().as_raw();
    if meta.uid() != uid && uid != 0 {
        return DoctorFinding::broken(name, format!("{shown} belongs to user {}", meta.uid())).remedy(
            format!("Run hermes as that user, or choose your own home with --home (you are {uid})."),
        );
    }
    if let Err(error) = rustix::fs::access(home, rustix::fs::Access::WRITE_OK) {
        return DoctorFinding::broken(name, format!("cannot write {shown}: {error}"))
            .remedy(format!("chmod u+w {shown}"));
    }
    if meta.permissions().mode() & 0o022 != 0 {
        return DoctorFinding::warning(name, format!("{shown} can be written by other users"))
            .remedy(format!("chmod go-w {shown}"));
    }
    DoctorFinding::ok(name, shown.to_string())
}

fn check_gateway(context: &Context) -> Vec<DoctorFinding> {
    let name = "gateway";
    let has_chats = context.loaded.config.as_ref().is_some_and(|config| config.discord.bot_token.is_some());
    let platforms = gateway::platforms(context);
    if has_chats && platforms.is_empty() {
        let finding = DoctorFinding::warning(name, "not running, so no chat is answered");
        return vec![finding.remedy("hermes gateway run")];
    }
    let finding = |(platform, health): (&String, &Value)| {
        let state = if health["state"] == "down" { FindingState::Broken } else { FindingState::Ok };
        DoctorFinding::new(name, state, format!("{platform} {}", gateway::health::format_health(health)))
    };
    platforms.iter().map(finding).collect()
}

fn check_config(loaded: &LoadedConfig) -> Vec<DoctorFinding> {
    let name = "configuration";
    let file = loaded.layers.file_path.display();
    let (notes, problems): (Vec<_>, Vec<_>) =
        loaded.problems.iter().partition(|problem| problem.severity == Severity::Note);
    if !problems.is_empty() {
        let findings = problems.into_iter().map(|problem| {
            let is_error = problem.severity == Severity::Error;
            let state = if is_error { FindingState::Broken } else { FindingState::Warning };
            let remedy = problem.hint.clone();
            DoctorFinding { remedy, ..DoctorFinding::new(name, state, problem.to_string()) }
        });
        return findings.collect();
    }
    let detail = match (loaded.version, notes.len()) {
        (FileVersion::NoFile, _) => format!("no {file}: every key has its default"),
        (_, 0) => file.to_string(),
        (_, notes) => {
            format!("{file}, {notes} keys are not used by this version (see `hermes config check`)")
        }
    };
    vec![DoctorFinding::ok(name, detail)]
}

fn check_secrets(home: &Path) -> Option<DoctorFinding> {
    let path = hermes_config::dotenv_path(home);
    let mode = fs::metadata(&path).ok()?.permissions().mode() & 0o777;
    let path = path.display();
    Some(if mode & 0o077 == 0 {
        DoctorFinding::ok("secrets", path.to_string())
    } else {
        let detail = format!("{path} can be read by other users (mode {mode:o})");
        DoctorFinding::warning("secrets", detail).remedy(format!("chmod 600 {path}"))
    })
}

fn check_space(home: &Path) -> Option<DoctorFinding> {
    // The home may not exist yet.
    let existing = home.ancestors().find(|path| path.exists())?;
    let disk = rustix::fs::statvfs(existing).ok()?;
    let free = disk.f_bavail.saturating_mul(disk.f_frsize);
    let detail = format!("{} MB free at {}", free >> 20, existing.display());
    Some(if free < MIN_FREE_BYTES {
        DoctorFinding::warning("disk", detail).remedy("Free some space; hermes cannot write without it.")
    } else {
        DoctorFinding::ok("disk", detail)
    })
}

fn check_guard(guard: &GuardHealth) -> DoctorFinding {
    let name = "guard";
    if let Some(problem) = &guard.problem {
        let detail = format!("not available, so code that was not read needs approval: {problem}");
        return DoctorFinding::warning(name, detail).remedy(
            "Allow user namespaces, use the sandbox or docker backend, or accept it with \
             `hermes config set terminal.guard off`.",
        );
    }
    match guard.setting {
        Guard::Off => DoctorFinding::warning(name, "off: only the gate protects your files")
            .remedy("hermes config set terminal.guard protect"),
        Guard::Protect | Guard::Project => {
            DoctorFinding::ok(name, format!("works ({})", guard.setting.as_str()))
        }
    }
}

fn check_backend(health: &BackendHealth) -> Vec<DoctorFinding> {
    let name = health.backend.as_str();
    match &health.usability {
        Usability::Usable => {}
        Usability::Unusable(problem) => {
            let finding = DoctorFinding::broken(name, format!("not usable: {}", problem.what));
            return vec![finding.remedy(problem.remedy.as_str())];
        }
        Usability::Unknown(reason) => return vec![DoctorFinding::warning(name, *reason)],
    }
    let (held, open): (Vec<_>, Vec<_>) =
        health.confinement.0.iter().partition(|(_, guarantee)| matches!(guarantee, Guarantee::Held(_)));
    if held.is_empty() {
        let detail = "works; it does not isolate commands, so dangerous ones need approval";
        let findings = [DoctorFinding::ok(name, detail)];
        return findings.into_iter().chain(health.guard.as_ref().map(check_guard)).collect();
    }
    let names: Vec<&str> = held.iter().map(|(name, _)| *name).collect();
    let mut findings = vec![DoctorFinding::ok(name, format!("works; confines {}", names.join(", ")))];
    if let Some(engine) = &health.engine {
        findings.push(DoctorFinding::ok(name, engine.to_string()));
        if !engine.image_present {
            let detail = format!("the image {} is not pulled yet", engine.image);
            findings.push(DoctorFinding::warning(name, detail));
        }
    }
    findings.extend(open.into_iter().map(|(area, guarantee)| {
        let (state, reason) = match guarantee {
            Guarantee::NotHeld(reason) => ("not confined", reason),
            Guarantee::Held(reason) | Guarantee::Unknown(reason) => ("unknown", reason),
        };
        DoctorFinding::warning(name, format!("{area} {state}: {reason}"))
    }));
    findings
}
