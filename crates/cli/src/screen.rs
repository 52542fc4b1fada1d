//! Output: text for people, or one JSON document.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::io::{self, ErrorKind, IsTerminal, Write};
use std::process::ExitCode;
use std::time::Duration;

use hermes_policy::escape::escape;
use hermes_types::Timestamp;
use serde_json::Value;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use crate::{Failure, FailureKind, Result, terminal};
use hermes_config::layers::{Problem, Severity};

/// The minimum width of the last column of a table.
const MIN_LAST_COLUMN: usize = 12;

/// Returns to the beginning of the line and erases it.
pub(crate) const ERASE_LINE: &str = "\r\u{1b}[K";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OutputFormat {
    Text,
    Json,
}

/// Standard output and standard error, with or without colors.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Screen {
    format: OutputFormat,
    pub(crate) colors: bool,
}

/// The meaning of a color.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Tone {
    Good,
    Warning,
    Bad,
    Quiet,
    Strong,
    Plain,
}

impl Screen {
    pub(crate) fn new(format: OutputFormat, process: &BTreeMap<String, String>) -> Self {
        let is_allowed = process.get("NO_COLOR").is_none_or(String::is_empty)
            && process.get("TERM").is_none_or(|term| term != "dumb");
        let colors = is_allowed && io::stdout().is_terminal() && io::stderr().is_terminal();
        Self { format, colors }
    }

    pub(crate) fn is_json(self) -> bool {
        self.format == OutputFormat::Json
    }

    /// Prints text to stdout.
    pub(crate) fn text(self, text: &str) -> Result<()> {
        self.bytes(text.as_bytes())
    }

    /// Prints bytes to stdout. If the reader has closed the pipe, the program exits silently.
    pub(crate) fn bytes(self, bytes: &[u8]) -> Result<()> {
        let mut out = io::stdout().lock();
        match out.write_all(bytes).and_then(|()| out.flush()) {
            Err(error) if error.kind() == ErrorKind::BrokenPipe => std::process::exit(0),
            result => result.map_err(|error| Failure::failed(format!("standard output: {error}"))),
        }
    }

    pub(crate) fn line(self, text: &str) -> Result<()> {
        self.text(&format!("{text}\n"))
    }

    /// Prints one JSON document.
    pub(crate) fn json(self, value: &Value) -> Result<()> {
        self.line(&format!("{value:#}"))
    }

    /// Prints `document` as JSON, or a line of text.
    pub(crate) fn print(self, document: &Value, text: &str) -> Result<()> {
        if self.is_json() { self.json(document) } else { self.line(text) }
    }

    /// Prints a list: `document` as JSON, or `rows` as a table, or the note `empty` on stderr.
    pub(crate) fn list(
        self,
        document: &Value,
        empty: &str,
        head: &[&str],
        rows: &[Vec<String>],
    ) -> Result<()> {
        if self.is_json() {
            return self.json(document);
        }
        if rows.is_empty() {
            self.print_stderr(empty);
            return Ok(());
        }
        // On a terminal the last column is cut to the width of the window.
        let width = |column: usize| {
            let cells = rows.iter().filter_map(|row| row.get(column)).map(String::as_str);
            cells.chain(head.get(column).copied()).map(UnicodeWidthStr::width).max().unwrap_or(0)
        };
        let mut widths: Vec<usize> = (0..head.len()).map(width).collect();
        if let (Ok(size), Some((last, others))) = (terminal::size(), widths.split_last_mut()) {
            let before: usize = others.iter().map(|width| width + 2).sum();
            *last = usize::from(size.columns).saturating_sub(before).max(MIN_LAST_COLUMN).min(*last);
        }
        let line = |cells: Vec<&str>| -> String {
            let padded = cells.iter().zip(&widths).map(|(cell, width)| pad(&truncate(cell, *width), *width));
            padded.collect::<Vec<_>>().join("  ").trim_end().to_owned()
        };
        self.line(&self.paint(Tone::Quiet, &line(head.to_vec())))?;
        rows.iter().try_for_each(|row| self.line(&line(row.iter().map(String::as_str).collect())))
    }

    /// Colors text, if colors are shown.
    pub(crate) fn paint(self, tone: Tone, text: &str) -> String {
        let code = match tone {
            Tone::Good => "32",
            Tone::Warning => "33",
            Tone::Bad => "31",
            Tone::Quiet => "2",
            Tone::Strong => "1",
            Tone::Plain => return text.to_owned(),
        };
        if self.colors { format!("\u{1b}[{code}m{text}\u{1b}[0m") } else { text.to_owned() }
    }

    /// Prints a line to stderr.
    pub(crate) fn print_stderr(self, text: &str) {
        write_stderr(&format!("{text}\n"));
    }

    /// Prints a warning to stderr.
    pub(crate) fn warn(self, text: &str) {
        self.print_stderr(&format!("{}: {text}", self.paint(Tone::Warning, "warning")));
    }

    /// Prints a prompt to stderr; the answer is typed after it.
    pub(crate) fn prompt(self, text: &str) {
        write_stderr(&format!("{text} "));
    }

    /// Prints a problem of the configuration to stderr.
    pub(crate) fn print_problem(self, problem: &Problem) {
        let (tone, word) = match problem.severity {
            Severity::Error => (Tone::Bad, "error"),
            Severity::Warning => (Tone::Warning, "warning"),
            Severity::Note => (Tone::Quiet, "note"),
        };
        self.print_stderr(&format!("{}: {problem}", self.paint(tone, word)));
        self.print_hints(problem.hint.as_ref());
    }

    /// Prints a failure and returns its exit code.
    pub(crate) fn report_failure(self, failure: &Failure) -> ExitCode {
        if !self.is_json() {
            self.print_stderr(&format!("{}: {}", self.paint(Tone::Bad, "error"), failure.message));
            self.print_hints(&failure.hints);
        } else if self.json(&failure.json()).is_err() {
            return FailureKind::Failed.code();
        }
        failure.kind.code()
    }

    fn print_hints<'a>(self, hints: impl IntoIterator<Item = &'a String>) {
        for hint in hints {
            self.print_stderr(&format!("  {} {hint}", self.paint(Tone::Quiet, "→")));
        }
    }
}

pub(crate) fn write_stderr(text: &str) {
    let mut stderr = io::stderr().lock();
    // A failure of stderr cannot be reported anywhere.
    drop(stderr.write_all(text.as_bytes()).and_then(|()| stderr.flush()));
}

/// A duration in its largest unit.
pub(crate) fn format_age(duration: Duration) -> String {
    let seconds = duration.as_secs();
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{}m", seconds / 60),
        3600..172_800 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86_400),
    }
}

/// The time since `at`, in its largest unit.
pub(crate) fn format_since(at: Timestamp) -> String {
    format_age(Duration::from_secs(Timestamp::now().seconds().saturating_sub(at.seconds())))
}

/// The time until `at`, in its largest unit.
pub(crate) fn format_until(at: Timestamp) -> String {
    format_age(Duration::from_secs(at.seconds().saturating_sub(Timestamp::now().seconds())))
}

/// A number with its noun.
pub(crate) fn format_count<N: Display + PartialEq + From<u8>>(number: N, noun: &str) -> String {
    let plural = if number == N::from(1) { "" } else { "s" };
    format!("{number} {noun}{plural}")
}

/// Untrusted text in one line, without control characters.
pub(crate) fn one_line(text: &str, columns: usize) -> String {
    truncate(&escape(text).replace('\n', " "), columns)
}

/// The start of a line that fits into a number of columns, with `…` if it is cut.
pub(crate) fn truncate(line: &str, columns: usize) -> String {
    if line.width() <= columns {
        return line.to_owned();
    }
    let mut used = 0;
    let fits = |c: &char| {
        used += c.width().unwrap_or(0);
        used < columns
    };
    line.chars().take_while(fits).chain(['…']).collect()
}

/// Pads text to a number of columns.
fn pad(text: &str, columns: usize) -> String {
    format!("{text}{}", " ".repeat(columns.saturating_sub(text.width())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wide_characters_count_as_two_columns() {
        assert_eq!(truncate("日本語", 6), "日本語");
        assert_eq!(truncate("日本語", 5), "日本…");
        assert_eq!(truncate("日本語", 4), "日…");
        assert_eq!(truncate("abcdef", 4), "abc…");
        assert_eq!(pad("日本", 6), "日本  ");
        assert_eq!(pad("🙂", 3), "🙂 ");
    }
}
