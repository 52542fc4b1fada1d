//! What is printed: text for people, or one JSON document.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind, IsTerminal, Write};
use std::process::ExitCode;
use std::time::Duration;

use serde_json::Value;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use crate::terminal;
use hermes_config::failure::{Failure, FailureKind};
use hermes_config::layers::{Problem, Severity};

/// What the last column of a table has at least, on the narrowest terminal.
const MIN_LAST_COLUMN: usize = 12;

/// Who reads the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OutputFormat {
    /// A person.
    Text,
    /// A program.
    Json,
}

/// Standard output and standard error, with or without colors.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Screen {
    pub(crate) format: OutputFormat,
    colors: bool,
}

/// The colors that carry a meaning.
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
        let wanted = process.get("NO_COLOR").is_none_or(String::is_empty)
            && process.get("TERM").is_none_or(|term| term != "dumb");
        let colors = wanted && io::stdout().is_terminal() && io::stderr().is_terminal();
        Self { format, colors }
    }

    /// Prints text to stdout.
    pub(crate) fn text(self, text: &str) -> Result<(), Failure> {
        self.bytes(text.as_bytes())
    }

    /// Prints bytes to stdout. A reader that went away ends the program without a word.
    pub(crate) fn bytes(self, bytes: &[u8]) -> Result<(), Failure> {
        let mut out = io::stdout().lock();
        match out.write_all(bytes).and_then(|()| out.flush()) {
            Err(error) if error.kind() == ErrorKind::BrokenPipe => std::process::exit(0),
            result => {
                result.map_err(|error| Failure::new(FailureKind::Failed, format!("standard output: {error}")))
            }
        }
    }

    pub(crate) fn line(self, text: &str) -> Result<(), Failure> {
        self.text(&format!("{text}\n"))
    }

    /// Prints one JSON document.
    pub(crate) fn json(self, value: &Value) -> Result<(), Failure> {
        self.line(&format!("{value:#}"))
    }

    /// Prints a table, its columns as wide as they must be, and on a terminal the last one as wide as it can be.
    pub(crate) fn table(self, head: &[&str], rows: &[Vec<String>]) -> Result<(), Failure> {
        let width = |column: usize| {
            let cells = rows.iter().filter_map(|row| row.get(column)).map(String::as_str);
            cells.chain(head.get(column).copied()).map(UnicodeWidthStr::width).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..head.len()).map(width).collect();
        let before: usize = widths.iter().rev().skip(1).map(|width| width + 2).sum();
        let room = match terminal::size() {
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
            let mut cells: Vec<String> = row.clone();
            if let Some(last) = cells.last_mut() {
                *last = truncate(last, room);
            }
            self.line(&line(&cells.iter().map(String::as_str).collect::<Vec<_>>()))?;
        }
        Ok(())
    }

    /// Text in a color, where colors are shown.
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

    /// Prints to stderr, where there may be nobody to read it.
    pub(crate) fn print_stderr(self, text: &str) {
        // There is no third place to report that stderr is gone.
        drop(writeln!(io::stderr().lock(), "{text}"));
    }

    /// Prints a part of a line to stderr.
    pub(crate) fn write_stderr(self, text: &str) {
        let mut err = io::stderr().lock();
        drop(err.write_all(text.as_bytes()).and_then(|()| err.flush()));
    }

    /// Whether colors are shown.
    pub(crate) fn has_colors(self) -> bool {
        self.colors
    }

    /// Says on stderr what may not be as expected.
    pub(crate) fn warn(self, text: &str) {
        self.print_stderr(&format!("{}: {text}", self.paint(Tone::Warning, "warning")));
    }

    /// Asks for something on stderr; the answer is typed behind it.
    pub(crate) fn prompt(self, text: &str) {
        let mut err = io::stderr().lock();
        drop(write!(err, "{text} ").and_then(|()| err.flush()));
    }

    /// Prints a problem of the configuration to stderr, its advice below it.
    pub(crate) fn print_problem(self, problem: &Problem) {
        let (tone, word) = match problem.severity {
            Severity::Error => (Tone::Bad, "error"),
            Severity::Warning => (Tone::Warning, "warning"),
            Severity::Note => (Tone::Quiet, "note"),
        };
        self.print_stderr(&format!("{}: {problem}", self.paint(tone, word)));
        if let Some(hint) = &problem.hint {
            self.print_stderr(&format!("  {} {hint}", self.paint(Tone::Quiet, "→")));
        }
    }

    /// Says what went wrong and gives the exit code.
    pub(crate) fn report_failure(self, failure: &Failure) -> ExitCode {
        match self.format {
            OutputFormat::Json => {
                if self.json(&failure.json()).is_err() {
                    return FailureKind::Failed.code();
                }
            }
            OutputFormat::Text => {
                self.print_stderr(&format!("{}: {}", self.paint(Tone::Bad, "error"), failure.message));
                for hint in &failure.hints {
                    self.print_stderr(&format!("  {} {hint}", self.paint(Tone::Quiet, "→")));
                }
            }
        }
        failure.kind.code()
    }
}

/// A duration as people say it.
pub(crate) fn format_age(duration: Duration) -> String {
    let seconds = duration.as_secs();
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{}m", seconds / 60),
        3600..172_800 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86_400),
    }
}

/// Text that may contain anything, in one line that cannot move the cursor.
pub(crate) fn one_line(text: &str, most: usize) -> String {
    let shown: String =
        hermes_policy::escape::escape(text).chars().map(|c| if c == '\n' { ' ' } else { c }).collect();
    truncate(&shown, most)
}

/// The beginning of a line that fits a number of terminal columns, with `…` if something is cut off.
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

/// Text followed by spaces up to a number of terminal columns.
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
