//! Patterns over the whole text of a command, as the Python program matches them with `fnmatch`.

use std::convert::Infallible;
use std::fmt;

use hermes_types::{Job, Work};

use crate::shell::Script;

/// A pattern with `*`, `?`, `[…]` and `[!…]`. Unlike in a shell, `*` also matches `/` and newlines,
/// and a backslash is an ordinary character.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TextPattern {
    /// As written by the owner.
    text: String,
}

impl std::str::FromStr for TextPattern {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(Self { text: text.trim().to_owned() })
    }
}

impl fmt::Display for TextPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl TextPattern {
    /// Whether the pattern matches the whole text.
    pub fn matches(&self, text: &str) -> bool {
        fnmatch(&self.text, text)
    }

    /// Whether a deny pattern matches a job: its text, a line of a program, or one of its commands,
    /// whatever the case.
    pub(crate) fn denies(&self, job: &Job, script: &Script) -> bool {
        if self.text.is_empty() {
            return false;
        }
        let pattern = self.text.to_lowercase();
        let matches = |text: &str| fnmatch(&pattern, text.trim().to_lowercase().trim());
        let text = job.work.text();
        let lines = text.lines().filter(|_| !matches!(job.work, Work::Shell(_)));
        matches(&text)
            || matches(&without_quoting(&text))
            || lines.into_iter().any(matches)
            || script.segments.iter().any(|segment| matches(&segment.show()))
    }

    /// Whether an entry of `command_allowlist` allows a job: one plain command, verbatim.
    pub(crate) fn allows(&self, job: &Job, script: &Script) -> bool {
        let ([segment], Work::Shell(text)) = (script.segments.as_slice(), &job.work) else { return false };
        let is_plain = script.doubts.is_empty()
            && segment.redirects.is_empty()
            && segment.assignments.is_empty()
            && !segment.stdin.is_piped()
            && !segment.args.iter().any(crate::shell::Word::has_unknown);
        is_plain && !text.contains(['\n', ';', '&', '|', '`']) && self.matches(text.trim())
    }
}

/// The text without backslashes and pairs of quotes that change nothing.
fn without_quoting(text: &str) -> String {
    text.replace("\\\n", "").replace('\\', "").replace("''", "").replace("\"\"", "")
}

fn fnmatch(pattern: &str, text: &str) -> bool {
    let pattern: Vec<char> = pattern.chars().collect();
    let text: Vec<char> = text.chars().collect();
    let (mut pattern, mut text) = (pattern.as_slice(), text.as_slice());
    // The pattern behind the last star, and the text that it has not been tried on.
    let mut retry: Option<(&[char], &[char])> = None;
    loop {
        if let Some((&'*', rest)) = pattern.split_first() {
            pattern = rest;
            retry = Some((rest, text));
            continue;
        }
        let step = match text.split_first() {
            Some((char, rest)) => match_one(pattern, *char).map(|pattern| (pattern, rest)),
            None if pattern.is_empty() => return true,
            None => return false,
        };
        match (step, retry) {
            (Some(next), _) => (pattern, text) = next,
            (None, Some((behind_star, [_, untried @ ..]))) => {
                retry = Some((behind_star, untried));
                (pattern, text) = (behind_star, untried);
            }
            (None, _) => return false,
        }
    }
}

/// The pattern behind its first part, if that matches the character.
fn match_one(pattern: &[char], char: char) -> Option<&[char]> {
    let (first, rest) = pattern.split_first()?;
    let set = match first {
        '?' => return Some(rest),
        // A bracket that opens a set may be its first character, and an unclosed set is plain text.
        '[' => {
            let skip = usize::from(rest.first() == Some(&'!'));
            let skip = skip + usize::from(rest.get(skip) == Some(&']'));
            rest.iter().skip(skip).position(|char| *char == ']').map(|end| rest.split_at(end + skip))
        }
        _ => None,
    };
    match set {
        Some((['!', set @ ..], behind)) => (!set_has(set, char)).then(|| behind.get(1..)).flatten(),
        Some((set, behind)) => set_has(set, char).then(|| behind.get(1..)).flatten(),
        None => (*first == char).then_some(rest),
    }
}

fn set_has(mut set: &[char], char: char) -> bool {
    loop {
        match set {
            [] => return false,
            [low, '-', high, rest @ ..] => {
                if (*low..=*high).contains(&char) {
                    return true;
                }
                set = rest;
            }
            [one, rest @ ..] => {
                if *one == char {
                    return true;
                }
                set = rest;
            }
        }
    }
}
