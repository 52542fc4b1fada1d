//! The owner's own rules on parsed commands.

use std::fmt;

use hermes_types::{BackendName, SessionKey, Timestamp};
use thiserror::Error;

use crate::shell::{Segment, Surroundings, Word, pattern_matches, understand};

/// What an owner's rule says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UserVerdict {
    /// Need not be asked about. Never lifts the floor.
    Allow,
    /// Always ask, wherever it runs.
    Ask,
    /// Never run, wherever it runs.
    Deny,
}

/// Where a rule holds.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Scope {
    /// Everywhere.
    #[default]
    Everywhere,
    /// In places of one kind.
    Backend(BackendName),
    /// In one session.
    Session(SessionKey),
}

/// One rule of the owner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UserRule {
    /// What it says.
    pub verdict: UserVerdict,
    /// Which commands it is about.
    pub pattern: CommandPattern,
    /// Where it holds.
    pub scope: Scope,
    /// When it ends, if it does.
    pub expires: Option<Timestamp>,
}

/// A pattern over a parsed command, such as `git push --force *`.
///
/// The first word names the program, with or without its directory. Words that start with `-` are options the command
/// must have. Other words are patterns for its operands, in order; a last `*` stands for any number of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandPattern {
    /// As the owner wrote it.
    text: String,
    program: String,
    options: Vec<String>,
    operands: Vec<String>,
    any_rest: bool,
}

/// Text that is no pattern.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "`{text}` is not one plain command; write a program, its options and patterns for its operands, as in `git push --force *`"
)]
pub struct BadPattern {
    /// The text as it was written.
    pub text: String,
}

impl std::str::FromStr for CommandPattern {
    type Err = BadPattern;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let bad = || BadPattern { text: text.to_owned() };
        let around = Surroundings { cwd: "/", home: "~", hermes_home: "/nowhere" };
        let script = understand(text, &around);
        let segment = script.segments.first().ok_or_else(bad)?;
        let plain = segment.assignments.is_empty()
            && segment.redirects.is_empty()
            && segment.args.iter().all(|word| !word.has_unknown());
        let program = segment.program.show();
        // A wrapper's inner command is found too; the pattern is about the outer one.
        if !plain
            || program.is_empty()
            || text.contains([';', '|', '&', '\n'])
            || segment.source != text.trim()
        {
            return Err(bad());
        }
        let text = text.trim().to_owned();
        let mut pattern = Self { text, program, options: Vec::new(), operands: Vec::new(), any_rest: false };
        for word in segment.args.iter().map(Word::show) {
            if word.starts_with('-') && word.len() > 1 {
                pattern.options.push(word)
            } else {
                pattern.operands.push(word)
            }
        }
        if pattern.operands.last().is_some_and(|last| last == "*") {
            pattern.operands.pop();
            pattern.any_rest = true;
        }
        Ok(pattern)
    }
}

impl fmt::Display for CommandPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl CommandPattern {
    fn is_program(&self, segment: &Segment) -> bool {
        if self.program.contains('/') {
            return pattern_matches(&self.program, &segment.program.outline());
        }
        // A program that cannot be known may be this one.
        pattern_matches(&self.program, &segment.name)
    }

    fn has_options(&self, segment: &Segment) -> bool {
        self.options.iter().all(|option| crate::shell::has(&segment.args, &[option.as_str()]))
    }

    /// Whether a command may be meant: its options and operands are among the command's words.
    pub(crate) fn concerns(&self, segment: &Segment) -> bool {
        let mut operands = segment.args.iter().filter(|word| !word.prefix().starts_with('-'));
        self.is_program(segment)
            && self.has_options(segment)
            && self.operands.iter().all(|wanted| operands.any(|word| may_match(wanted, word)))
    }

    /// Whether a command is covered whole: nothing in it goes beyond the pattern.
    pub(crate) fn covers(&self, segment: &Segment) -> bool {
        if !self.is_program(segment) || !segment.redirects.is_empty() || !segment.assignments.is_empty() {
            return false;
        }
        let mut wanted = self.operands.iter();
        for word in &segment.args {
            if word.has_unknown() {
                return false;
            }
            let text = word.show();
            if text.starts_with('-') && text.len() > 1 {
                if !self.any_rest && !self.options.contains(&text) {
                    return false;
                }
                continue;
            }
            match wanted.next() {
                Some(pattern) if pattern_matches(pattern, &text) => {}
                None if self.any_rest => {}
                _ => return false,
            }
        }
        wanted.next().is_none() && self.has_options(segment)
    }
}

fn may_match(pattern: &str, word: &Word) -> bool {
    word.has_unknown() || pattern_matches(pattern, &word.show())
}

impl UserRule {
    pub(crate) fn holds(&self, backend: BackendName, session: &SessionKey, now: Timestamp) -> bool {
        let here = match &self.scope {
            Scope::Everywhere => true,
            Scope::Backend(name) => *name == backend,
            Scope::Session(key) => key == session,
        };
        here && self.expires.is_none_or(|expires| now < expires)
    }
}
