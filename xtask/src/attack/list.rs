//! Lists of commands.
//!
//! Entries are separated by lines with `%%`. The first line of an entry is `#: KIND WORDS`, with
//! the kind `ordinary` or the harm that is expected, such as `delete` or `send`. The rest is one
//! step, or several separated by lines with `---`:
//!
//! | first line of a step | meaning of the rest |
//! |---|---|
//! | none of the following | a shell command |
//! | `@python` | a Python program for `execute_code` |
//! | `@file PATH` | the content of a file that the tool `write_file` writes |
//! | `@type PROGRAM` | lines that are typed into the running program |

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Entry {
    pub(super) list: String,
    /// The line of the list at which it begins.
    pub(super) line: usize,
    pub(super) label: String,
    pub(super) steps: Vec<Step>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Step {
    Shell(String),
    Python(String),
    File { path: String, content: String },
    Type { program: String, lines: String },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Ordinary,
    Dangerous,
}

impl Entry {
    pub(super) fn kind(&self) -> Kind {
        if self.label.starts_with("ordinary") { Kind::Ordinary } else { Kind::Dangerous }
    }

    pub(super) fn text(&self) -> String {
        self.steps.iter().map(Step::text).collect::<Vec<_>>().join("\n---\n")
    }
}

impl Step {
    fn parse(text: &str) -> Result<Self> {
        let (first, rest) = text.split_once('\n').unwrap_or((text, ""));
        let rest = rest.to_owned();
        Ok(match first.split_once(' ').unwrap_or((first, "")) {
            ("@python", "") => Self::Python(rest),
            ("@file", path) => Self::File { path: path.to_owned(), content: rest },
            ("@type", program) => Self::Type { program: program.to_owned(), lines: rest },
            (word, _) if word.starts_with('@') => bail!("unknown kind of step `{word}`"),
            _ => Self::Shell(text.to_owned()),
        })
    }

    fn text(&self) -> String {
        match self {
            Self::Shell(text) => text.clone(),
            Self::Python(text) => format!("@python\n{text}"),
            Self::File { path, content } => format!("@file {path}\n{content}"),
            Self::Type { program, lines } => format!("@type {program}\n{lines}"),
        }
    }
}

pub(super) fn read(file: &Path) -> Result<Vec<Entry>> {
    let text = fs::read_to_string(file).with_context(|| file.display().to_string())?;
    let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
    parse(&name, &text)
}

fn parse(name: &str, text: &str) -> Result<Vec<Entry>> {
    let mut entries = Vec::new();
    let mut line = 1;
    for part in text.split_inclusive("\n%%\n") {
        let body = part.strip_suffix("\n%%\n").unwrap_or(part).trim_end_matches('\n');
        if !body.trim().is_empty() {
            let (label, steps) = body
                .strip_prefix("#: ")
                .and_then(|rest| rest.split_once('\n'))
                .with_context(|| format!("{name}:{line}: an entry starts with `#: KIND` and has a step"))?;
            let steps: Vec<Step> = steps
                .split("\n---\n")
                .map(Step::parse)
                .collect::<Result<_>>()
                .with_context(|| format!("{name}:{line}"))?;
            ensure!(!steps.is_empty(), "{name}:{line}: no step");
            entries.push(Entry { list: name.to_owned(), line, label: label.to_owned(), steps });
        }
        line += part.matches('\n').count();
    }
    Ok(entries)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_have_labels_lines_and_steps() {
        let text = "#: delete plain\nrm -rf ~\n%%\n#: plant\nalias a=b\n---\n@python\nprint(1)\n---\n@type sqlite3 x\n.shell id\n";
        let entries = parse("a.txt", text).unwrap();
        assert_eq!(entries.len(), 2);
        assert_eq!((entries[0].line, entries[0].label.as_str()), (1, "delete plain"));
        assert_eq!(entries[1].line, 4);
        assert_eq!(
            entries[1].steps,
            [
                Step::Shell("alias a=b".to_owned()),
                Step::Python("print(1)".to_owned()),
                Step::Type { program: "sqlite3 x".to_owned(), lines: ".shell id".to_owned() }
            ]
        );
        assert!(parse("a.txt", "rm -rf ~\n").is_err());
        assert!(parse("a.txt", "#: delete\n@perl\nx\n").is_err());
    }
}
