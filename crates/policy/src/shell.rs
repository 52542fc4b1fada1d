//! Understanding a command: from script text to a list of [`Segment`]s, each one simple command as it will be run.
//!
//! [`understand`] parses the text ([`parse`], [`lex`] into [`syntax`]), walks every branch ([`walk`]) while it expands
//! words ([`expand`]) with what is known ([`env`], [`bindings`]), and follows wrappers and inner scripts ([`scripts`],
//! [`nested`], [`interpreters`]). What cannot be known becomes a [`Doubt`]. All of it is bounded ([`budget`]).

mod args;
mod bindings;
mod budget;
mod catch_all;
mod env;
mod expand;
mod interpreters;
mod lex;
mod nested;
mod output;
mod parse;
mod scripts;
mod syntax;
mod value;
mod walk;

use budget::{Budget, MAX_BYTES};
use hermes_types::FileUse;

pub(crate) use args::{concatenated, first_operand, has, joined, operands, values};
pub(crate) use nested::{Nested, nested_behind, nested_variable};
pub use syntax::Operator;
pub(crate) use value::{HOLE, pattern_matches};
pub use value::{Piece, Redirect, Stream, Unknown, Word};

/// What must be known about the place to read a command.
#[derive(Debug, Clone, Copy)]
pub struct Surroundings<'a> {
    /// The working directory.
    pub cwd: &'a str,
    /// The home directory.
    pub home: &'a str,
    /// Where Hermes keeps its own files.
    pub hermes_home: &'a str,
}

/// One simple command, as it will be run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Segment {
    /// The program, as written.
    pub program: Word,
    /// The program's name without its directory, in lower case; empty when it cannot be known.
    pub name: String,
    /// The words behind the program.
    pub args: Vec<Word>,
    /// Variables set for this command alone, or for the script when there is no program.
    pub assignments: Vec<(String, Word)>,
    /// Where its input and output go.
    pub redirects: Vec<Redirect>,
    /// What is piped into it.
    pub stdin: Stream,
    /// The directory it runs in, when that is known.
    pub cwd: Option<String>,
    /// The wrappers in front of it, outermost first.
    pub via: Vec<String>,
    /// Whether it stands in a loop.
    pub repeated: bool,
    /// The text it was read from.
    pub source: String,
}

impl Segment {
    /// The absolute path a word names where this command runs, unknown stretches as holes.
    pub(crate) fn path(&self, word: &Word) -> String {
        crate::paths::resolve(&word.outline(), self.cwd.as_deref())
    }

    /// The command for people: wrappers, program and words.
    pub fn show(&self) -> String {
        let mut words: Vec<String> =
            self.assignments.iter().map(|(name, value)| format!("{name}={}", value.show())).collect();
        if !self.program.pieces().is_empty() {
            words.push(quoted(&self.program.show()));
        }
        words.extend(self.args.iter().map(|word| quoted(&word.show())));
        for redirect in &self.redirects {
            let descriptor = redirect.descriptor.as_deref().unwrap_or_default();
            words.push(format!(
                "{descriptor}{} {}",
                redirect.operator.sign(),
                quoted(&redirect.target.show())
            ));
        }
        words.join(" ")
    }
}

fn quoted(word: &str) -> String {
    let plain = !word.is_empty()
        && !word.contains(|char: char| char.is_whitespace() || "'\"\\;&|<>()#`".contains(char));
    if plain { word.to_owned() } else { format!("'{}'", word.replace('\'', "'\\''")) }
}

/// Programs whose harm is such that a pattern which may name them is read as naming them.
const WORST: &[&str] = &[
    "rm", "dd", "mkfs", "shutdown", "reboot", "halt", "poweroff", "kill", "sh", "bash", "sudo", "chmod",
    "shred", "curl",
];

fn program_name(program: &Word) -> String {
    let outline = program.outline();
    let last = outline.rsplit('/').next().unwrap_or_default();
    let folded: String = last
        .chars()
        .map(|char| match char {
            // Full-width forms of ASCII look like it.
            '\u{ff01}'..='\u{ff5e}' => char::from_u32(u32::from(char) - 0xfee0).unwrap_or(char),
            other => other,
        })
        .collect::<String>()
        .to_lowercase();
    if folded.contains(HOLE) {
        return String::new();
    }
    if program.has_glob() && folded.contains(['*', '?', '[']) && folded.len() > 1 {
        return WORST
            .iter()
            .find(|name| pattern_matches(&folded, name))
            .map(|name| (*name).to_owned())
            .unwrap_or_default();
    }
    folded
}

/// Something about a script that cannot be known, or is a danger as a whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Doubt {
    /// What it is.
    pub kind: DoubtKind,
    /// The text it concerns.
    pub source: String,
}

/// The kinds of doubt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DoubtKind {
    /// The text is no valid script.
    Syntax(&'static str),
    /// Too deeply nested to follow.
    TooDeep,
    /// Too long or too involved to follow.
    TooMuch,
    /// Characters that are not shown, or that change how the text is shown.
    Hidden,
    /// The program to run is only known when the command runs.
    Program,
    /// The program's name has letters that look like others.
    ForeignLetters,
    /// A shell runs text that these programs print.
    Script(Vec<String>),
    /// A program text that is only known when the command runs.
    Code,
    /// A shell or interpreter that waits for somebody to type.
    Interactive,
    /// A file is run that this very command downloaded or made runnable.
    MadeHere,
    /// A file is run from a directory everybody can write to.
    Temporary,
    /// A program text does something dangerous.
    Danger(&'static str),
    /// A function that multiplies itself.
    ForkBomb,
    /// A loop without an end that starts processes without waiting.
    EndlessSpawn,
}

/// Everything a script runs, and everything about it that is doubtful.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Script {
    /// The simple commands, in the order they were found.
    pub segments: Vec<Segment>,
    /// What could not be known.
    pub doubts: Vec<Doubt>,
}

/// Reads a bash script.
pub fn understand(text: &str, around: &Surroundings<'_>) -> Script {
    read(text, around, |walk| {
        walk.script_text(text);
    })
}

/// Reads a Python program.
pub fn understand_python(text: &str, around: &Surroundings<'_>) -> Script {
    read(text, around, |walk| walk.python_text(text))
}

/// Reads what a tool does to a file, by the path asked for and by the one it comes to.
pub fn understand_file(file: &FileUse, around: &Surroundings<'_>) -> Script {
    let text = format!("{} {}", file.path, file.real);
    read(&text, around, |walk| {
        walk.emit_file_access(file.access, &file.path);
        if file.real != file.path {
            walk.emit_file_access(file.access, &file.real);
        }
    })
}

fn read(text: &str, around: &Surroundings<'_>, run: impl FnOnce(&mut walk::Walk<'_>)) -> Script {
    let budget = Budget::for_text(text);
    let mut walk = walk::Walk::new(around, &budget);
    if text.len() > MAX_BYTES {
        walk.doubt(DoubtKind::TooMuch, "");
    } else {
        if text.chars().any(hermes_types::text::is_hidden) {
            walk.doubt(DoubtKind::Hidden, "");
        }
        if text.contains(['\u{2044}', '\u{2215}', '\u{29f8}', '\u{ff0f}', '\u{2571}']) {
            walk.doubt(DoubtKind::ForeignLetters, text);
        }
        run(&mut walk);
    }
    walk.script
}
