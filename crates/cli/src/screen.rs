//! Output: text for people, or one JSON document.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind, IsTerminal, Write};
use std::process::ExitCode;
use std::time::Duration;

use hermes_policy::escape::escape;
use hermes_types::Timestamp;
use serde_json::Value;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use crate::terminal;
use hermes_config::failure::{Failure, FailureKind};
use hermes_config::layers::{Problem, Severity};

/// The minimum width of the last column of a table.
const MIN_LAST_COLUMN: usize = 12;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OutputFormat {
    Text,
    Json,
}

/// Standard output and standard error, with or without colors.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Screen {
    pub(crate) format: OutputFormat,
    colors: bool,
}

/// The meaning of a color.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Tone {
    Good,
    Warning,
    Bad,
    Quiet,
    Strong,
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
    pub(crate) fn text(self, text: &str) -> Result<(), Failure> {
        self.bytes(text.as_bytes())
    }

    /// Prints bytes to stdout. If the reader has closed the pipe, the program exits silently.
    pub(crate) fn bytes(self, bytes: &[u8]) -> Result<(), Failure> {
        let mut out = io::stdout().lock();
        match out.write_all(bytes).and_then(|()| out.flush()) {
            Err(error) if error.kind() == ErrorKind::BrokenPipe => std::process::exit(0),
            result => result.map_err(|error| Failure::failed(format!("standard output: {error}"))),
        }
    }

    pub(crate) fn line(self, text: &str) -> Result<(), Failure> {
        self.text(&format!("{text}\n"))
    }

    /// Prints one JSON document.
    pub(crate) fn json(self, value: &Value) -> Result<(), Failure> {
        self.line(&format!("{value:#}"))
    }

    /// Prints a list: `document` as JSON, or `rows` as a table, or the note `empty` on stderr.
    pub(crate) fn list(
        self,
        document: &Value,
        empty: &str,
        head: &[&str],
        rows: &[Vec<String>],
    ) -> Result<(), Failure> {
        if self.is_json() {
            return self.json(document);
        }
        if rows.is_empty() {
            self.print_stderr(empty);
            return Ok(());
        }
        self.table(head, rows)
    }

    /// Prints a table. On a terminal the last column is cut to the width of the window.
    pub(crate) fn table(self, head: &[&str], rows: &[Vec<String>]) -> Result<(), Failure> {
        let width = |column: usize| {
            let cells = rows.iter().filter_map(|row| row.get(column)).map(String::as_str);
            cells.chain(head.get(column).copied()).map(UnicodeWidthStr::width).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..head.len()).map(width).collect();
        let before: usize = widths.iter().rev().skip(1).map(|width| width + 2).sum();
        let last_width = match terminal::size() {
            Ok(size) if usize::from(size.columns) > before + MIN_LAST_COLUMN => {
                usize::from(size.columns) - before
            }
            Ok(_) => MIN_LAST_COLUMN,
            Err(_no_terminal) => usize::MAX,
        };
        let line = |cells: &[&str]| -> String {
            let padded = cells.iter().zip(&widths).map(|(cell, width)| pad(cell, *width));
            padded.collect::<Vec<_>>().join("  ").trim_end().to_owned()
        };
        self.line(&self.paint(Tone::Quiet, &line(head)))?;
        for row in rows {
            let last = row.last().map(|cell| truncate(cell, last_width)).unwrap_or_default();
            let mut cells: Vec<&str> = row.iter().map(String::as_str).collect();
            cells.pop();
            cells.push(&last);
            self.line(&line(&cells))?;
        }
        Ok(())
    }

    /// Colors text, if colors are shown.
    pub(crate) fn paint(self, tone: Tone, text: &str) -> String {
        let code = match tone {
            Tone::Good => "32",
            Tone::Warning => "33",
            Tone::Bad => "31",
            Tone::Quiet => "2",
            Tone::Strong => "1",
        };
        if self.colors { format!("\u{1b}[{code}m{text}\u{1b}[0m") } else { text.to_owned() }
    }

    /// Prints a line to stderr.
    pub(crate) fn print_stderr(self, text: &str) {
        write_stderr(&format!("{text}\n"));
    }

    /// Prints a part of a line to stderr.
    pub(crate) fn write_stderr(self, text: &str) {
        write_stderr(text);
    }

    pub(crate) fn has_colors(self) -> bool {
        self.colors
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
        match self.format {
            OutputFormat::Json => {
                if self.json(&failure.json()).is_err() {
                    return FailureKind::Failed.code();
                }
            }
            OutputFormat::Text => {
                self.print_stderr(&format!("{}: {}", self.paint(Tone::Bad, "error"), failure.message));
                self.print_hints(&failure.hints);
            }
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
