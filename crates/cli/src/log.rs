//! Logging to stderr on request, and to a rotated file in the home.
//!
//! Every line passes the redactor, and is written by one call, so lines of several processes never
//! mix.

use std::borrow::Cow;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::{Arc, LazyLock, Mutex};

use hermes_policy::redact::Redactor;
use hermes_types::LockFile;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, Registry};

use crate::args::{Command, GatewayAction};
use crate::{Failure, Result};
use hermes_config::LoadedConfig;
use hermes_config::file::match_owner;
use hermes_config::secrets::secrets;

/// Starts logging. `verbose` counts the `-v` of the command line; `HERMES_LOG` holds levels by
/// name.
pub(crate) fn init(home: &Path, verbose: u8, command: &Command, loaded: &LoadedConfig) -> Result<()> {
    let variable = loaded.layers.process.get("HERMES_LOG");
    // The module of each line is shown only if the user asked for a log.
    let is_requested = verbose > 0 || variable.is_some();
    let stderr = match (verbose, variable.filter(|text| !text.trim().is_empty())) {
        (1, _) => Targets::new().with_default(LevelFilter::INFO),
        (2, _) => Targets::new().with_default(LevelFilter::DEBUG),
        (3.., _) => Targets::new().with_default(LevelFilter::TRACE),
        (0, Some(text)) => Targets::from_str(text).map_err(|error| {
            Failure::configuration(format!("HERMES_LOG: {error}"))
                .hint("Use a level such as `debug`, or `hermes_exec=trace,info`.")
        })?,
        // The state of the gateway, and all warnings.
        (0, None) if matches!(command, Command::Gateway(GatewayAction::Run)) => Targets::new()
            .with_default(LevelFilter::WARN)
            .with_target("hermes_cli::command::gateway", LevelFilter::INFO)
            .with_target("hermes_gateway::service", LevelFilter::INFO),
        (0, None) => Targets::new(),
    };
    let secrets = secrets(loaded);
    let redactor: Arc<LazyRedactor> =
        Arc::new(LazyLock::new(Box::new(move || secrets.map(|secrets| Redactor::new(&secrets)))));
    let logging = loaded.config.as_ref().map(|config| &config.logging);
    let level = logging.map_or(LevelFilter::INFO, |logging| logging.level);
    // A read-only command must not create the home.
    let file = home.is_dir().then(|| {
        let (size, keep) = logging.map_or((5, 3), |logging| (logging.max_size_mb, logging.backup_count));
        LogFile {
            path: home.join("logs").join("agent.log"),
            max_bytes: size.saturating_mul(1 << 20),
            keep,
            open: None,
        }
    });
    let to_file = file.map(|file| {
        let writer = RedactingWriter { redactor: redactor.clone(), out: file };
        text_layer().with_writer(Mutex::new(writer)).with_filter(level)
    });
    let writer = move || RedactingWriter { redactor: redactor.clone(), out: io::stderr() };
    let to_stderr = text_layer().with_target(is_requested).with_writer(writer).with_filter(stderr);
    Registry::default()
        .with(to_file)
        .with(to_stderr)
        .try_init()
        .map_err(|error| Failure::failed(format!("cannot start logging: {error}")))
}

/// Lines without colors. A failure to write the log is not reported.
fn text_layer<S>() -> fmt::Layer<S> {
    fmt::layer().with_ansi(false).log_internal_errors(false)
}

/// Most runs log nothing, and creating a redactor takes longer than such a run.
type LazyRedactor = LazyLock<Option<Redactor>, Box<dyn FnOnce() -> Option<Redactor> + Send>>;

struct RedactingWriter<W> {
    redactor: Arc<LazyRedactor>,
    out: W,
}

impl<W: Write> Write for RedactingWriter<W> {
    /// The formatter passes one whole line.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(line);
        let text = match &**self.redactor {
            Some(redactor) => redactor.redact(&text),
            None => Cow::Borrowed(&*text),
        };
        self.out.write_all(text.as_bytes())?;
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A rotated file: `agent.log`, `agent.log.1`, …; the highest number is the oldest.
struct LogFile {
    path: PathBuf,
    max_bytes: u64,
    keep: u64,
    open: Option<File>,
}

impl Write for LogFile {
    /// Appends a whole line.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let fits = |size: u64| size + (line.len() as u64) <= self.max_bytes || size == 0;
        // Another process may have rotated the file.
        let is_current = |file: &File| -> io::Result<bool> {
            let (opened, current) = (file.metadata()?, fs::metadata(&self.path)?);
            Ok(opened.ino() == current.ino() && fits(current.size()))
        };
        if let Some(file) = self.open.as_mut().filter(|file| is_current(file).unwrap_or(false)) {
            return file.write_all(line).map(|()| line.len());
        }
        let folder = self.path.parent().unwrap_or(Path::new("."));
        if !folder.is_dir() {
            fs::DirBuilder::new().mode(0o700).create(folder)?;
            match_owner(&File::open(folder)?, folder.parent().unwrap_or(folder))?;
        }
        let lock = LockFile::acquire(&folder.join(".agent.log.lock"))?;
        match_owner(&lock.file, folder)?;
        if fs::metadata(&self.path).is_ok_and(|meta| !fits(meta.size())) {
            self.rotate()?;
        }
        let mut file = OpenOptions::new().create(true).append(true).mode(0o600).open(&self.path)?;
        match_owner(&file, folder)?;
        file.write_all(line)?;
        self.open = Some(file);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl LogFile {
    fn rotate(&self) -> io::Result<()> {
        let numbered = |number: u64| PathBuf::from(format!("{}.{number}", self.path.display()));
        for number in (1..self.keep).rev().filter(|number| numbered(*number).exists()) {
            fs::rename(numbered(number), numbered(number + 1))?;
        }
        if self.keep == 0 { fs::remove_file(&self.path) } else { fs::rename(&self.path, numbered(1)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_stays_within_its_size_and_number_of_files() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("logs").join("agent.log");
        let open = || LogFile { path: path.clone(), max_bytes: 1000, keep: 2, open: None };
        let (mut file, mut other) = (open(), open());
        for number in 0..100 {
            let writer = if number % 2 == 0 { &mut file } else { &mut other };
            writer.write_all(format!("line {number:03} {}\n", "x".repeat(40)).as_bytes()).unwrap();
        }
        let mut names: Vec<_> =
            fs::read_dir(home.path().join("logs")).unwrap().map(|e| e.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, [".agent.log.lock", "agent.log", "agent.log.1", "agent.log.2"]);
        let read = |name: &str| fs::read_to_string(path.with_file_name(name)).unwrap();
        let text = [read("agent.log.2"), read("agent.log.1"), read("agent.log")].concat();
        let numbers: Vec<usize> = text.lines().map(|line| line.get(5..8).unwrap().parse().unwrap()).collect();
        let first = *numbers.first().unwrap();
        assert_eq!(numbers, (first..100).collect::<Vec<_>>());
        assert!(text.len() <= 3000 && text.len() > 2000, "{}", text.len());
    }
}
