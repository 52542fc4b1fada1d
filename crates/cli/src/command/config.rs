//! `hermes config …`.

use std::fs;
use std::io::{self, IsTerminal, Read};
use std::process::ExitCode;

use serde_json::{Map, Value, json};

use crate::Context;
use crate::args::ConfigAction;
use crate::screen::{OutputFormat, Tone};
use hermes_config::change::{self, ChangeError, KeyChange};
use hermes_config::define::Visibility;
use hermes_config::failure::{Failure, FailureKind};
use hermes_config::file::{self, ConfigLock, FileMode};
use hermes_config::keys::Config;
use hermes_config::layers::{ResolvedKey, Severity, Source};
use hermes_config::{FileVersion, LoadedConfig, keys, migrate, schema};

pub(crate) fn run(action: ConfigAction, context: &Context) -> Result<ExitCode, Failure> {
    match action {
        ConfigAction::Path => path(context),
        ConfigAction::Show { all } => show(context, all),
        ConfigAction::Get { key } => get(context, &key),
        ConfigAction::Set { key, value } => set(context, &key, &value),
        ConfigAction::Unset { key } => unset(context, &key),
        ConfigAction::Explain { key } => explain(context, &key),
        ConfigAction::Check => check(context, &context.loaded),
        ConfigAction::Migrate { dry_run } => {
            migrate(context, if dry_run { MigrationRun::Dry } else { MigrationRun::Real })
        }
        ConfigAction::Edit => edit(context),
        ConfigAction::Schema { markdown: false } => {
            context.screen.json(&schema::json_schema())?;
            Ok(ExitCode::SUCCESS)
        }
        ConfigAction::Schema { markdown: true } => {
            context.screen.text(&schema::markdown())?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn path(context: &Context) -> Result<ExitCode, Failure> {
    let (config, dotenv) =
        (hermes_config::config_path(context.home.path()), hermes_config::dotenv_path(context.home.path()));
    match context.screen.format {
        OutputFormat::Text => context.screen.line(&config.display().to_string())?,
        OutputFormat::Json => {
            context.screen.json(&json!({"home": context.home.path(), "config": config, "env": dotenv}))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The settings, if they can be used.
pub(crate) fn settings(context: &Context) -> Result<&Config, Failure> {
    let unusable = || Failure::new(FailureKind::Configuration, "the configuration cannot be used");
    usable_config(context)?.config.as_ref().ok_or_else(unusable)
}

/// The configuration, if it can be used; warnings are printed on the way.
pub(crate) fn usable_config(context: &Context) -> Result<&LoadedConfig, Failure> {
    let loaded = &context.loaded;
    if let Some(first) = loaded.errors().next() {
        let more = loaded.errors().count() - 1;
        let mut failure = Failure::new(FailureKind::Configuration, first.to_string());
        failure.hints.extend(first.hint.clone());
        if more > 0 {
            failure.hints.push(format!("{more} more: see `hermes config check`"));
        }
        return Err(failure);
    }
    for problem in loaded.problems.iter().filter(|problem| problem.severity == Severity::Warning) {
        context.screen.print_problem(problem);
    }
    Ok(loaded)
}

fn show(context: &Context, all: bool) -> Result<ExitCode, Failure> {
    let loaded = usable_config(context)?;
    let screen = context.screen;
    if screen.format == OutputFormat::Json {
        let keys: Map<String, Value> = loaded
            .resolved
            .iter()
            .map(|r| (r.key.path.to_owned(), json!({"value": r.value, "source": r.source})))
            .collect();
        screen.json(&json!({"home": context.home.path(), "keys": keys}))?;
        return Ok(ExitCode::SUCCESS);
    }
    let shown: Vec<&ResolvedKey> =
        loaded.resolved.iter().filter(|resolved| all || resolved.source != Source::Default).collect();
    let width = shown.iter().map(|resolved| resolved.key.path.len()).max().unwrap_or_default();
    let mut text = String::new();
    for resolved in &shown {
        let path = format!("{:width$}", resolved.key.path);
        let source = screen.paint(Tone::Quiet, &format!("({})", resolved.source));
        text.push_str(&format!(
            "{}  {}  {source}\n",
            screen.paint(Tone::Strong, &path),
            format_value(&resolved.value)
        ));
    }
    let defaults = loaded.resolved.len() - shown.len();
    if defaults > 0 {
        let note = format!("{defaults} other keys have their default; `hermes config show --all` lists them");
        text.push_str(&format!("{}\n", screen.paint(Tone::Quiet, &note)));
    }
    screen.text(&text)?;
    Ok(ExitCode::SUCCESS)
}

/// A value as people write it: text as it is, the rest as JSON.
fn format_value(value: &Value) -> String {
    match value {
        Value::String(text) if text.is_empty() => "\"\"".to_owned(),
        Value::String(text) if !text.contains(char::is_control) => text.clone(),
        Value::Null => "not set".to_owned(),
        value => value.to_string(),
    }
}

fn find_key<'l>(loaded: &'l LoadedConfig, name: &str) -> Result<&'l ResolvedKey, Failure> {
    let found = keys::find(name).and_then(|key| loaded.resolved(key.path));
    found.ok_or_else(|| unknown_key(name))
}

fn unknown_key(name: &str) -> Failure {
    let hint =
        hermes_config::hint(name).unwrap_or_else(|| "`hermes config show --all` lists all keys".to_owned());
    Failure::new(FailureKind::Usage, format!("unknown key `{name}`")).hint(hint)
}

fn get(context: &Context, name: &str) -> Result<ExitCode, Failure> {
    let loaded = usable_config(context)?;
    let resolved = find_key(loaded, name)?;
    match (context.screen.format, &resolved.value) {
        (OutputFormat::Json, value) => context.screen.json(value)?,
        (OutputFormat::Text, Value::String(text)) => context.screen.line(text)?,
        (OutputFormat::Text, Value::Null) => {}
        (OutputFormat::Text, value) => context.screen.line(&value.to_string())?,
    }
    Ok(ExitCode::SUCCESS)
}

fn set(context: &Context, name: &str, value: &str) -> Result<ExitCode, Failure> {
    refuse_managed(context)?;
    let typed;
    let value = if value == "-" {
        typed = read_value(context, name)?;
        typed.as_str()
    } else {
        value
    };
    let changed = change::set(context.home.path(), name, value).map_err(change_failure)?;
    tracing::info!(key = changed.name, file = %changed.file.display(), "setting changed");
    report(context, &changed, "set")
}

fn unset(context: &Context, name: &str) -> Result<ExitCode, Failure> {
    refuse_managed(context)?;
    let changed = change::unset(context.home.path(), name).map_err(change_failure)?;
    tracing::info!(key = changed.name, file = %changed.file.display(), "setting removed");
    report(context, &changed, "unset")
}

/// Says what was done, and when another layer keeps it from counting.
fn report(context: &Context, changed: &KeyChange, verb: &str) -> Result<ExitCode, Failure> {
    let loaded = context.reload();
    let resolved = keys::find(&changed.name).and_then(|key| loaded.resolved(key.path));
    let wins = |source: &Source| matches!(source, Source::Environment { .. } | Source::DotEnv { .. });
    let hidden_by = resolved
        .filter(|resolved| wins(&resolved.source) && resolved.key.visibility == Visibility::Public)
        .map(|resolved| &resolved.source);
    if context.screen.format == OutputFormat::Json {
        context.screen.json(&json!({
            "key": changed.name, "value": changed.value, "file": changed.file, "hidden_by": hidden_by,
        }))?;
        return Ok(ExitCode::SUCCESS);
    }
    let value =
        changed.value.as_ref().map_or_else(String::new, |value| format!(" to {}", format_value(value)));
    context.screen.line(&format!("{verb} {}{value} in {}", changed.name, changed.file.display()))?;
    if let Some(source) = hidden_by {
        let warning = context.screen.paint(Tone::Warning, "warning");
        context.screen.print_stderr(&format!("{warning}: it has no effect as long as this counts: {source}"));
    }
    Ok(ExitCode::SUCCESS)
}

fn change_failure(error: ChangeError) -> Failure {
    let message = error.to_string();
    match error {
        ChangeError::Unknown(name) => unknown_key(&name),
        ChangeError::Invalid { expected, .. } if expected.starts_with("a list") => {
            Failure::new(FailureKind::Usage, message).hint("write a list as JSON: '[\"first\", \"second\"]'")
        }
        ChangeError::Invalid { expected, .. } if expected.starts_with("a map") => {
            Failure::new(FailureKind::Usage, message).hint("write a map as JSON: '{\"NAME\": \"value\"}'")
        }
        ChangeError::Invalid { .. } | ChangeError::PartlyInvalid { .. } => {
            Failure::new(FailureKind::Usage, message)
        }
        ChangeError::Edit { .. } => Failure::new(FailureKind::Configuration, message)
            .hint("change it by hand with `hermes config edit`"),
        ChangeError::Io { .. } => Failure::new(FailureKind::Failed, message),
    }
}

/// A home kept by a package manager is not ours to write.
pub(crate) fn refuse_managed(context: &Context) -> Result<(), Failure> {
    match context.variable("HERMES_MANAGED").map(|value| value.trim().to_ascii_lowercase()) {
        Some(value) if !["0", "false", "no"].contains(&value.as_str()) => Err(Failure::new(
            FailureKind::Refused,
            "cannot change the configuration: this installation is managed (HERMES_MANAGED is set)",
        )
        .hint("Change the settings in the package manager.")),
        _ => Ok(()),
    }
}

/// A value that should not stand on the command line, where others can see it.
fn read_value(context: &Context, name: &str) -> Result<String, Failure> {
    let mut value = String::new();
    if io::stdin().is_terminal() {
        context.screen.prompt(&format!("{name} (not shown):"));
        let _silent = crate::terminal::NoEcho::new()?;
        io::stdin().read_line(&mut value)?;
    } else {
        io::stdin().read_to_string(&mut value)?;
    }
    let trimmed = value.strip_suffix('\n').map_or(value.as_str(), |v| v.strip_suffix('\r').unwrap_or(v));
    Ok(trimmed.to_owned())
}

fn explain(context: &Context, name: &str) -> Result<ExitCode, Failure> {
    let loaded = &context.loaded;
    let resolved = find_key(loaded, name)?;
    let key = resolved.key;
    let about = |problem: &&hermes_config::layers::Problem| {
        problem.key.as_deref() == Some(key.path) || problem.key.is_none()
    };
    let problems: Vec<_> = loaded.problems.iter().filter(about).collect();
    let broken = problems.iter().any(|problem| problem.severity == Severity::Error);
    let code = if broken { FailureKind::Configuration.code() } else { ExitCode::SUCCESS };
    if context.screen.format == OutputFormat::Json {
        let shadows: Vec<Value> = resolved
            .shadows
            .iter()
            .map(|(source, value)| json!({"source": source, "value": value}))
            .collect();
        context.screen.json(&json!({
            "key": key.path, "value": resolved.value, "source": resolved.source, "shadows": shadows,
            "default": (key.default)(), "variable": key.variable, "type": key.accepted().description,
            "secret": key.visibility == Visibility::Secret, "description": schema::sentence(key), "problems": problems,
        }))?;
        return Ok(code);
    }
    let screen = context.screen;
    let row =
        |name: &str, text: &str| format!("  {}  {text}\n", screen.paint(Tone::Quiet, &format!("{name:8}")));
    let mut text = format!("{}\n  {}\n\n", screen.paint(Tone::Strong, key.path), schema::sentence(key));
    text.push_str(&row("value", &format_value(&resolved.value)));
    text.push_str(&row("from", &resolved.source.to_string()));
    for (index, (source, value)) in resolved.shadows.iter().enumerate() {
        text.push_str(&row(
            if index == 0 { "hides" } else { "" },
            &format!("{}  ({source})", format_value(value)),
        ));
    }
    text.push_str(&row("variable", key.variable));
    text.push_str(&row("type", &key.accepted().description));
    screen.text(&text)?;
    problems.iter().for_each(|problem| screen.print_problem(problem));
    Ok(code)
}

fn check(context: &Context, loaded: &LoadedConfig) -> Result<ExitCode, Failure> {
    let ok = loaded.config.is_some();
    let screen = context.screen;
    if screen.format == OutputFormat::Json {
        let file = hermes_config::config_path(context.home.path());
        screen.json(&json!({"ok": ok, "file": file, "problems": loaded.problems}))?;
    } else {
        loaded.problems.iter().for_each(|problem| screen.print_problem(problem));
        let count = |severity| loaded.problems.iter().filter(|problem| problem.severity == severity).count();
        let found = [(Severity::Error, "error"), (Severity::Warning, "warning"), (Severity::Note, "note")]
            .map(|(severity, word)| (count(severity), word))
            .into_iter()
            .filter(|(count, _)| *count > 0)
            .map(|(count, word)| format!("{count} {word}{}", if count == 1 { "" } else { "s" }))
            .collect::<Vec<_>>()
            .join(", ");
        let file = hermes_config::config_path(context.home.path());
        let summary = match (loaded.version, found.as_str()) {
            (FileVersion::NoFile, "") => format!("no {}: every key has its default", file.display()),
            (_, "") => format!("{}: no problems found", file.display()),
            (_, found) => format!("{}: {found}", file.display()),
        };
        screen.line(&summary)?;
        if let FileVersion::Number(number) = loaded.version
            && number < keys::CONFIG_VERSION
        {
            screen.line(&format!(
                "written for version {number}; `hermes config migrate` brings it to {}",
                keys::CONFIG_VERSION
            ))?;
        }
    }
    Ok(if ok { ExitCode::SUCCESS } else { FailureKind::Configuration.code() })
}

/// Whether anything is written.
#[derive(Clone, Copy, PartialEq, Eq)]
enum MigrationRun {
    Dry,
    Real,
}

fn migrate(context: &Context, run: MigrationRun) -> Result<ExitCode, Failure> {
    refuse_managed(context)?;
    let home = context.home.path();
    let screen = context.screen;
    let config_path = hermes_config::config_path(home);
    let from = match context.loaded.version {
        FileVersion::NoFile => {
            return Err(Failure::new(
                FailureKind::Configuration,
                format!("there is no {}", config_path.display()),
            )
            .hint("there is nothing to migrate; a new file is made by `hermes config set`"));
        }
        FileVersion::Number(number) if number > keys::CONFIG_VERSION => {
            return Err(Failure::new(
                FailureKind::Configuration,
                format!(
                    "the file is of version {number}, newer than this program's {}",
                    keys::CONFIG_VERSION
                ),
            )
            .hint("it is read as far as it is understood; there is no way back to an older version"));
        }
        FileVersion::Number(number) => number,
        FileVersion::Missing => 0,
    };
    let lock = ConfigLock::acquire(home)?;
    let text = |path| -> Result<String, Failure> {
        let bytes = file::read(path)?.unwrap_or_default();
        String::from_utf8(bytes)
            .map_err(|_| Failure::new(FailureKind::Configuration, format!("{}: not UTF-8", path.display())))
    };
    let dotenv_path = hermes_config::dotenv_path(home);
    let (old, old_dotenv) = (text(&config_path)?, text(&dotenv_path)?);
    let done = migrate::migrate(&old, &old_dotenv, from)
        .map_err(|error| change_failure(ChangeError::Edit { file: config_path.clone(), error }))?;
    let mut backups = Vec::new();
    if run == MigrationRun::Real {
        for (path, before, after, mode) in [
            (&config_path, &old, &done.config, FileMode::Preserve),
            (&dotenv_path, &old_dotenv, &done.dotenv, FileMode::Private),
        ] {
            if before != after {
                backups.push(back_up(&lock, path, before, from)?);
                lock.write(path, after.as_bytes(), mode)?;
                tracing::info!(from, to = keys::CONFIG_VERSION, file = %path.display(), "file migrated");
            }
        }
    }
    if screen.format == OutputFormat::Json {
        let applied = run == MigrationRun::Real;
        screen.json(&json!({
            "from": from, "to": keys::CONFIG_VERSION, "changes": done.changes, "applied": applied, "backups": backups,
        }))?;
        return Ok(ExitCode::SUCCESS);
    }
    if done.changes.is_empty() {
        screen.line(&format!("{} is up to date (version {from})", config_path.display()))?;
        return Ok(ExitCode::SUCCESS);
    }
    screen.text(&diff(context, &old, &done.config))?;
    // Values of the secrets file are not printed, so there is no diff of it.
    for change in done.changes.iter().filter(|change| change.ends_with("from .env")) {
        screen.line(change)?;
    }
    match run {
        MigrationRun::Dry => screen.line("nothing was written (--dry-run)")?,
        MigrationRun::Real => {
            screen.line(&format!("migrated from version {from} to {}", keys::CONFIG_VERSION))?;
            for backup in backups {
                screen.line(&format!("the old file is kept as {}", backup.display()))?;
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Keeps the old text beside the file, under a name nobody has yet.
fn back_up(
    lock: &ConfigLock,
    path: &std::path::Path,
    text: &str,
    version: u64,
) -> Result<std::path::PathBuf, Failure> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let candidates = std::iter::once(String::new()).chain((2..1000).map(|n| format!(".{n}")));
    let free = candidates
        .map(|suffix| path.with_file_name(format!("{name}.v{version}{suffix}.bak")))
        .find(|backup| fs::symlink_metadata(backup).is_err())
        .ok_or_else(|| {
            Failure::new(FailureKind::Failed, format!("too many backups of {}", path.display()))
        })?;
    lock.write(&free, text.as_bytes(), FileMode::Private)?;
    Ok(free)
}

fn diff(context: &Context, old: &str, new: &str) -> String {
    let diff = similar::TextDiff::from_lines(old, new);
    let text = diff.unified_diff().context_radius(1).header("config.yaml", "config.yaml").to_string();
    let screen = context.screen;
    text.lines()
        .map(|line| match line.chars().next() {
            Some('+') => format!("{}\n", screen.paint(Tone::Good, line)),
            Some('-') => format!("{}\n", screen.paint(Tone::Bad, line)),
            _ => format!("{line}\n"),
        })
        .collect()
}

fn edit(context: &Context) -> Result<ExitCode, Failure> {
    refuse_managed(context)?;
    let path = hermes_config::config_path(context.home.path());
    if file::read(&path)?.is_none() {
        let lock = ConfigLock::acquire(context.home.path())?;
        let start = format!(
            "# See `hermes config schema --markdown` for all keys.\n_config_version: {}\n",
            keys::CONFIG_VERSION
        );
        lock.write(&path, start.as_bytes(), FileMode::Preserve)?;
    }
    let editor = ["VISUAL", "EDITOR"].iter().find_map(|name| context.variable(name)).unwrap_or("vi");
    let mut words = editor.split_whitespace();
    let program = words.next().unwrap_or("vi");
    #[expect(clippy::disallowed_methods, reason = "the owner's own editor, on the owner's own word")]
    let status = std::process::Command::new(program).args(words).arg(&path).status().map_err(|error| {
        Failure::new(FailureKind::Failed, format!("cannot start the editor `{program}`: {error}"))
            .hint("Set EDITOR to another editor.")
    })?;
    if !status.success() {
        return Err(Failure::new(FailureKind::Failed, format!("the editor `{program}` ended with {status}")));
    }
    check(context, &context.reload())
}
