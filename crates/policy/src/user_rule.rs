//! The owner's rules for parsed commands.

use std::fmt;

use thiserror::Error;

use crate::shell::{Segment, Surroundings, Word, pattern_matches, understand};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UserVerdict {
    /// Run without a question. Does not override the floor.
    Allow,
    /// Always ask, in every environment.
    Ask,
    /// Never run, in any environment.
    Deny,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UserRule {
    pub verdict: UserVerdict,
    pub pattern: CommandPattern,
}

/// A pattern over a parsed command, such as `git push --force *`.
///
/// The first word names the program, with or without its directory. Words that start with `-` are
/// required options. Other words are patterns for the operands, in order; a final `*` matches any
/// number of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandPattern {
    /// As written by the owner.
    text: String,
    program: String,
    options: Vec<String>,
    operands: Vec<String>,
    any_rest: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "`{text}` is not one plain command; write a program, its options and patterns for its operands, as in `git push --force *`"
)]
pub struct InvalidPattern {
    pub text: String,
}

impl std::str::FromStr for CommandPattern {
    type Err = InvalidPattern;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let bad = || InvalidPattern { text: text.to_owned() };
        let around = Surroundings::new("/", "~", "/nowhere");
        let script = understand(text, &around);
        let segment = script.segments.first().ok_or_else(bad)?;
        let plain = segment.assignments.is_empty()
            && segment.redirects.is_empty()
            && segment.args.iter().all(|word| !word.has_unknown());
        let program = segment.program.show();
        // Segments of inner commands follow; the pattern is about the outer one.
        if !plain
            || program.is_empty()
            || text.contains([';', '|', '&', '\n'])
            || segment.source != text.trim()
        {
            return Err(bad());
        }
        let is_option = |word: &String| word.starts_with('-') && word.len() > 1;
        let (options, mut operands): (Vec<_>, Vec<_>) =
            segment.args.iter().map(Word::show).partition(is_option);
        let any_rest = operands.pop_if(|last| last == "*").is_some();
        Ok(Self { text: text.trim().to_owned(), program, options, operands, any_rest })
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
        // An unknown program may be this one.
        pattern_matches(&self.program, &segment.name)
    }

    fn has_options(&self, segment: &Segment) -> bool {
        self.options.iter().all(|option| crate::shell::has(&segment.args, &[option.as_str()]))
    }

    /// Whether the pattern may apply: its options and operands are among the words of the command.
    pub(crate) fn may_match_word(&self, segment: &Segment) -> bool {
        let mut operands = segment.args.iter().filter(|word| !word.prefix().starts_with('-'));
        self.is_program(segment)
            && self.has_options(segment)
            && self.operands.iter().all(|wanted| {
                operands.any(|word| word.has_unknown() || pattern_matches(wanted, &word.show()))
            })
    }

    /// Whether the pattern covers the whole command.
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
