//! `hermes config`: shows and changes the configuration.

use std::fs;
use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use serde_json::{Map, Value, json};

use crate::args::ConfigAction;
use crate::screen::{Tone, format_count};
use crate::terminal::TerminalGuard;
use crate::{Context, Failure, FailureKind, Result};
use hermes_config::change::{self, ChangeError, KeyChange};
use hermes_config::define::Visibility;
use hermes_config::file::{self, ConfigLock, FileMode};
use hermes_config::keys::{CONFIG_VERSION, Config};
use hermes_config::layers::{Problem, ResolvedKey, Severity, Source};
use hermes_config::{FileVersion, LoadedConfig, keys, migrate, schema};

pub(crate) fn run(action: ConfigAction, context: &Context) -> Result<ExitCode> {
    let done = match action {
        ConfigAction::Path => path(context),
        ConfigAction::Show { all } => show(context, all),
        ConfigAction::Get { key } => get(context, &key),
        ConfigAction::Set { key, value } => set(context, &key, value),
        ConfigAction::Unset { key } => unset(context, &key),
        ConfigAction::Explain { key } => return explain(context, &key),
        ConfigAction::Check => return check(context, &context.loaded),
        ConfigAction::Migrate { dry_run } => migrate(context, dry_run),
        ConfigAction::Edit => return edit(context),
        ConfigAction::Schema { markdown: false } => context.screen.json(&schema::json_schema()),
        ConfigAction::Schema { markdown: true } => context.screen.text(&schema::markdown()),
    };
    done.map(|()| ExitCode::SUCCESS)
}

fn path(context: &Context) -> Result<()> {
    let home = context.home.path();
    let config = hermes_config::config_path(home);
    let document = json!({"home": home, "config": config, "env": hermes_config::dotenv_path(home)});
    context.screen.print(&document, &config.display().to_string())
}

/// The typed settings, if the configuration is valid.
pub(crate) fn settings(context: &Context) -> Result<&Config> {
    let invalid = || Failure::configuration("the configuration cannot be used");
    valid_config(context)?.config.as_ref().ok_or_else(invalid)
}

/// The configuration, if it is valid. Prints its warnings.
pub(crate) fn valid_config(context: &Context) -> Result<&LoadedConfig> {
    let loaded = &context.loaded;
    if let Some(first) = loaded.errors().next() {
        let more = loaded.errors().count() - 1;
        let mut failure = Failure::configuration(first.to_string());
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

fn show(context: &Context, all: bool) -> Result<()> {
    let loaded = valid_config(context)?;
    let screen = context.screen;
    if screen.is_json() {
        let key = |resolved: &ResolvedKey| {
            let value = json!({"value": resolved.value, "source": resolved.source});
            (resolved.key.path.to_owned(), value)
        };
        let keys: Map<String, Value> = loaded.resolved.iter().map(key).collect();
        return screen.json(&json!({"home": context.home.path(), "keys": keys}));
    }
    let shown: Vec<&ResolvedKey> =
        loaded.resolved.iter().filter(|resolved| all || resolved.source != Source::Default).collect();
    let width = shown.iter().map(|resolved| resolved.key.path.len()).max().unwrap_or_default();
    for resolved in &shown {
        let path = screen.paint(Tone::Strong, &format!("{:width$}", resolved.key.path));
        let source = screen.paint(Tone::Quiet, &format!("({})", resolved.source));
        screen.line(&format!("{path}  {}  {source}", format_value(&resolved.value)))?;
    }
    let defaults = loaded.resolved.len() - shown.len();
    if defaults > 0 {
        let note = format!("{defaults} other keys have their default; `hermes config show --all` lists them");
        screen.line(&screen.paint(Tone::Quiet, &note))?;
    }
    Ok(())
}

/// A value for people: text as it is, the rest as JSON.
fn format_value(value: &Value) -> String {
    match value {
        Value::String(text) if text.is_empty() => "\"\"".to_owned(),
        Value::String(text) if !text.contains(char::is_control) => text.clone(),
        Value::Null => "not set".to_owned(),
        value => value.to_string(),
    }
}

fn find_key<'l>(loaded: &'l LoadedConfig, name: &str) -> Result<&'l ResolvedKey> {
    let found = keys::find(name).and_then(|key| loaded.resolved(key.path));
    found.ok_or_else(|| unknown_key(name))
}

fn unknown_key(name: &str) -> Failure {
    let default = || "Run `hermes config show --all` to list all keys.".to_owned();
    Failure::usage(format!("unknown key `{name}`")).hint(hermes_config::hint(name).unwrap_or_else(default))
}

fn get(context: &Context, name: &str) -> Result<()> {
    match &find_key(valid_config(context)?, name)?.value {
        value if context.screen.is_json() => context.screen.json(value),
        Value::String(text) => context.screen.line(text),
        Value::Null => Ok(()),
        value => context.screen.line(&value.to_string()),
    }
}

fn set(context: &Context, name: &str, value: String) -> Result<()> {
    refuse_managed(context)?;
    let value = if value == "-" { read_value(context, name)? } else { value };
    report(context, change::set(context.home.path(), name, &value), "set")
}

fn unset(context: &Context, name: &str) -> Result<()> {
    refuse_managed(context)?;
    report(context, change::unset(context.home.path(), name), "unset")
}

/// Reports a change, and warns if a higher layer hides it.
fn report(context: &Context, changed: Result<KeyChange, ChangeError>, verb: &str) -> Result<()> {
    let KeyChange { name, file, value } = changed.map_err(change_failure)?;
    tracing::info!(key = name, file = %file.display(), change = verb, "setting changed");
    let loaded = context.reload();
    let resolved = keys::find(&name).and_then(|key| loaded.resolved(key.path));
    let hides = |source: &Source| matches!(source, Source::Environment { .. } | Source::DotEnv { .. });
    let hidden_by = resolved
        .filter(|resolved| hides(&resolved.source) && resolved.key.visibility == Visibility::Public)
        .map(|resolved| &resolved.source);
    let document = json!({"key": name, "value": value, "file": file, "hidden_by": hidden_by});
    let value = value.as_ref().map_or_else(String::new, |value| format!(" to {}", format_value(value)));
    context.screen.print(&document, &format!("{verb} {name}{value} in {}", file.display()))?;
    if let (Some(source), false) = (hidden_by, context.screen.is_json()) {
        context.screen.warn(&format!("it has no effect while this is set: {source}"));
    }
    Ok(())
}

fn change_failure(error: ChangeError) -> Failure {
    let message = error.to_string();
    match error {
        ChangeError::Unknown(name) => unknown_key(&name),
        ChangeError::Invalid { expected, .. } if expected.starts_with("a list") => {
            Failure::usage(message).hint("Write a list as JSON: '[\"first\", \"second\"]'.")
        }
        ChangeError::Invalid { expected, .. } if expected.starts_with("a map") => {
            Failure::usage(message).hint("Write a map as JSON: '{\"NAME\": \"value\"}'.")
        }
        ChangeError::Invalid { .. } | ChangeError::PartlyInvalid { .. } => Failure::usage(message),
        ChangeError::Edit { .. } => {
            Failure::configuration(message).hint("Change it by hand with `hermes config edit`.")
        }
        ChangeError::Io { .. } => Failure::failed(message),
    }
}

/// Refuses to change a home that a package manager manages.
pub(crate) fn refuse_managed(context: &Context) -> Result<()> {
    match context.variable("HERMES_MANAGED").map(|value| value.trim().to_ascii_lowercase()) {
        Some(value) if !["0", "false", "no"].contains(&value.as_str()) => Err(Failure::refused(
            "cannot change the configuration: this installation is managed (HERMES_MANAGED is set)",
        )
        .hint("Change the settings in the package manager.")),
        _ => Ok(()),
    }
}

/// Reads a value from standard input; other users could see the command line.
fn read_value(context: &Context, name: &str) -> Result<String> {
    let mut value = String::new();
    if io::stdin().is_terminal() {
        context.screen.prompt(&format!("{name} (not shown):"));
        let _guard = TerminalGuard::no_echo()?;
        io::stdin().read_line(&mut value)?;
    } else {
        value = io::read_to_string(io::stdin())?;
    }
    let trimmed = value.strip_suffix('\n').map_or(value.as_str(), |v| v.strip_suffix('\r').unwrap_or(v));
    Ok(trimmed.to_owned())
}

fn explain(context: &Context, name: &str) -> Result<ExitCode> {
    let loaded = &context.loaded;
    let resolved = find_key(loaded, name)?;
    let key = resolved.key;
    let is_relevant = |problem: &&Problem| problem.key.as_deref().is_none_or(|path| path == key.path);
    let problems: Vec<_> = loaded.problems.iter().filter(is_relevant).collect();
    let has_error = problems.iter().any(|problem| problem.severity == Severity::Error);
    let code = if has_error { FailureKind::Configuration.code() } else { ExitCode::SUCCESS };
    let screen = context.screen;
    let accepted = key.accepted().description;
    if screen.is_json() {
        let shadow = |(source, value): &(Source, Value)| json!({"source": source, "value": value});
        screen.json(&json!({
            "key": key.path, "value": resolved.value, "source": resolved.source,
            "shadows": resolved.shadows.iter().map(shadow).collect::<Vec<_>>(),
            "default": (key.default)(), "variable": key.variable, "type": accepted,
            "secret": key.visibility == Visibility::Secret, "description": schema::sentence(key), "problems": problems,
        }))?;
        return Ok(code);
    }
    screen.line(&format!("{}\n  {}\n", screen.paint(Tone::Strong, key.path), schema::sentence(key)))?;
    let mut rows = vec![("value", format_value(&resolved.value)), ("from", resolved.source.to_string())];
    for (index, (source, value)) in resolved.shadows.iter().enumerate() {
        let label = if index == 0 { "hides" } else { "" };
        rows.push((label, format!("{}  ({source})", format_value(value))));
    }
    rows.extend([("variable", key.variable.to_owned()), ("type", accepted)]);
    for (label, text) in rows {
        screen.line(&format!("  {}  {text}", screen.paint(Tone::Quiet, &format!("{label:8}"))))?;
    }
    problems.iter().for_each(|problem| screen.print_problem(problem));
    Ok(code)
}

fn check(context: &Context, loaded: &LoadedConfig) -> Result<ExitCode> {
    let is_valid = loaded.config.is_some();
    let code = if is_valid { ExitCode::SUCCESS } else { FailureKind::Configuration.code() };
    let screen = context.screen;
    let file = hermes_config::config_path(context.home.path());
    if screen.is_json() {
        screen.json(&json!({"ok": is_valid, "file": file, "problems": loaded.problems}))?;
        return Ok(code);
    }
    loaded.problems.iter().for_each(|problem| screen.print_problem(problem));
    let severities = [(Severity::Error, "error"), (Severity::Warning, "warning"), (Severity::Note, "note")];
    let counts = severities.iter().filter_map(|(severity, noun)| {
        let count = loaded.problems.iter().filter(|problem| problem.severity == *severity).count();
        (count > 0).then(|| format_count(count, noun))
    });
    let counts: Vec<String> = counts.collect();
    let file = file.display();
    screen.line(&match (loaded.version, counts.join(", ").as_str()) {
        (FileVersion::NoFile, "") => format!("no {file}: every key has its default"),
        (_, "") => format!("{file}: no problems found"),
        (_, counts) => format!("{file}: {counts}"),
    })?;
    if let FileVersion::Number(number) = loaded.version
        && number < CONFIG_VERSION
    {
        screen.line(&format!(
            "written for version {number}; run `hermes config migrate` to update it to {CONFIG_VERSION}"
        ))?;
    }
    Ok(code)
}

fn migrate(context: &Context, dry_run: bool) -> Result<()> {
    refuse_managed(context)?;
    let home = context.home.path();
    let screen = context.screen;
    let config_path = hermes_config::config_path(home);
    let from = match context.loaded.version {
        FileVersion::NoFile => {
            return Err(Failure::configuration(format!("no {}", config_path.display()))
                .hint("There is nothing to migrate; `hermes config set` creates the file."));
        }
        FileVersion::Number(number) if number > CONFIG_VERSION => {
            return Err(Failure::configuration(format!(
                "the file has version {number}, newer than this program's {CONFIG_VERSION}"
            ))
            .hint("Use a newer hermes; a file cannot be migrated to an older version."));
        }
        FileVersion::Number(number) => number,
        FileVersion::Missing => 0,
    };
    let lock = ConfigLock::acquire(home)?;
    let read = |path: &Path| {
        String::from_utf8(file::read(path)?.unwrap_or_default())
            .map_err(|_| Failure::configuration(format!("{}: not UTF-8", path.display())))
    };
    let dotenv_path = hermes_config::dotenv_path(home);
    let (old, old_dotenv) = (read(&config_path)?, read(&dotenv_path)?);
    let migrated = migrate::migrate(&old, &old_dotenv, from)
        .map_err(|error| change_failure(ChangeError::Edit { file: config_path.clone(), error }))?;
    let mut backups = Vec::new();
    for (path, before, after, mode) in [
        (&config_path, &old, &migrated.config, FileMode::Preserve),
        (&dotenv_path, &old_dotenv, &migrated.dotenv, FileMode::Private),
    ] {
        if !dry_run && before != after {
            backups.push(back_up(&lock, path, before, from)?);
            lock.write(path, after.as_bytes(), mode)?;
            tracing::info!(from, to = CONFIG_VERSION, file = %path.display(), "file migrated");
        }
    }
    let changes = &migrated.changes;
    let document = json!({
        "from": from, "to": CONFIG_VERSION, "changes": changes, "applied": !dry_run, "backups": backups,
    });
    if screen.is_json() || changes.is_empty() {
        let text = format!("{} is up to date (version {from})", config_path.display());
        return screen.print(&document, &text);
    }
    screen.text(&diff(context, &old, &migrated.config))?;
    // A diff of the secrets file would print secrets.
    for change in changes.iter().filter(|change| change.ends_with("from .env")) {
        screen.line(change)?;
    }
    if dry_run {
        return screen.line("nothing was written (--dry-run)");
    }
    screen.line(&format!("migrated from version {from} to {CONFIG_VERSION}"))?;
    backups
        .iter()
        .try_for_each(|backup| screen.line(&format!("the old file is kept as {}", backup.display())))
}

/// Writes the old text to an unused file name in the same directory.
fn back_up(lock: &ConfigLock, path: &Path, text: &str, version: u64) -> Result<PathBuf> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let suffixes = std::iter::once(String::new()).chain((2..1000).map(|n| format!(".{n}")));
    let backup = suffixes
        .map(|suffix| path.with_file_name(format!("{name}.v{version}{suffix}.bak")))
        .find(|backup| fs::symlink_metadata(backup).is_err())
        .ok_or_else(|| Failure::failed(format!("too many backups of {}", path.display())))?;
    lock.write(&backup, text.as_bytes(), FileMode::Private)?;
    Ok(backup)
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

fn edit(context: &Context) -> Result<ExitCode> {
    refuse_managed(context)?;
    let path = hermes_config::config_path(context.home.path());
    if file::read(&path)?.is_none() {
        let text = format!(
            "# See `hermes config schema --markdown` for all keys.\n_config_version: {CONFIG_VERSION}\n"
        );
        ConfigLock::acquire(context.home.path())?.write(&path, text.as_bytes(), FileMode::Preserve)?;
    }
    let editor = ["VISUAL", "EDITOR"].iter().find_map(|name| context.variable(name)).unwrap_or("vi");
    let mut words = editor.split_whitespace();
    let program = words.next().unwrap_or("vi");
    #[expect(clippy::disallowed_methods, reason = "the owner chose and started the editor")]
    let status = std::process::Command::new(program).args(words).arg(&path).status().map_err(|error| {
        Failure::failed(format!("cannot start the editor `{program}`: {error}"))
            .hint("Set EDITOR to another editor.")
    })?;
    if !status.success() {
        return Err(Failure::failed(format!("the editor `{program}` ended with {status}")));
    }
    check(context, &context.reload())
}
