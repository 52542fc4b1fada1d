//! One declaration per program.
//!
//! A [`ProgramSpec`] says which of its options take a value, what it does to files, which commands
//! it runs in turn, and which rules its use triggers. To see what decides whether `git push` asks,
//! open `programs/git.rs` and look for `"push"`. Three small interpreters read the declarations:
//! [`crate::file_effects`] derives the files that are read, written and deleted, [`crate::shell`]
//! the nested commands, and [`crate::rules`] the rules that match.
//!
//! A program that is not declared may do anything with the paths it is given, and every word of it
//! may be a command.

mod build_tools;
mod builtins;
mod cloud;
mod coreutils;
mod curl;
mod databases;
mod disks;
mod docker;
mod documents;
mod editors;
mod find;
mod git;
mod hermes;
mod interpreters;
mod kubectl;
mod network;
mod npm;
mod processes;
mod secrets;
mod ssh;
mod system;
mod variables;
mod wrappers;

use std::collections::HashMap;
use std::sync::LazyLock;

pub(crate) use git::added_remote;
pub(crate) use interpreters::{Interpreter, Language};
pub(crate) use network::{is_local, is_metadata};
pub(crate) use ssh::is_remote;
pub(crate) use variables::{COMMAND_VARIABLES, injects};

use crate::rules::RuleContext;
use crate::shell::{
    Nested, Segment, UNKNOWN_CHAR, Unknown, Word, WordPiece, first_operand, has, nested_behind,
    nested_variable, operands, values,
};
use Runs::*;
use When::*;
use Which::*;

/// Everything the policy knows about one program, or about several that behave alike.
#[derive(Debug)]
pub(crate) struct ProgramSpec {
    /// The names it is called by. A `*` at the end stands for the rest of a name.
    pub(crate) names: &'static [&'static str],
    /// Options that take the next word as their value.
    pub(crate) valued: &'static [&'static str],
    /// The meaning of an argument that looks like a path and is not covered by `files`.
    pub(crate) arguments: ArgumentUse,
    /// Options whose value is a key or a setting to use, and not a file to show.
    pub(crate) key_options: &'static [&'static str],
    /// Whether the first operand is a search pattern.
    pub(crate) searches: bool,
    /// Whether it prints, stores or sends its words and never runs them.
    pub(crate) inert: bool,
    /// Whether what it runs stays in a container of its own.
    pub(crate) contains: bool,
    /// Whether it brings text or files from other machines.
    pub(crate) fetches: bool,
    /// The files it reads, writes and deletes.
    pub(crate) files: &'static [DeclaredFiles],
    /// The commands it runs in turn.
    pub(crate) runs: &'static [Runs],
    /// Options that name the directory in which it runs them.
    pub(crate) directory: &'static [&'static str],
    /// The rules its use triggers.
    pub(crate) asks: &'static [Ask],
}

const fn program(names: &'static [&'static str]) -> ProgramSpec {
    ProgramSpec {
        names,
        valued: &[],
        arguments: ArgumentUse::Unknown,
        key_options: &[],
        searches: false,
        inert: false,
        contains: false,
        fetches: false,
        files: &[],
        runs: &[],
        directory: &[],
        asks: &[],
    }
}

/// A program that reads the files among its arguments.
const fn reader(names: &'static [&'static str]) -> ProgramSpec {
    ProgramSpec { arguments: ArgumentUse::Read, ..program(names) }
}

/// A program that uses the names among its arguments and does not read the files.
const fn non_reader(names: &'static [&'static str]) -> ProgramSpec {
    ProgramSpec { arguments: ArgumentUse::Named, ..program(names) }
}

macro_rules! setters {
    ($($field:ident: $kind:ty,)*) => {
        $(const fn $field(self, $field: $kind) -> Self {
            Self { $field, ..self }
        })*
    };
}

impl ProgramSpec {
    setters! {
        valued: &'static [&'static str],
        key_options: &'static [&'static str],
        directory: &'static [&'static str],
        files: &'static [DeclaredFiles],
        runs: &'static [Runs],
        asks: &'static [Ask],
    }

    const fn reads_outside(self) -> Self {
        Self { arguments: ArgumentUse::ReadOutside, ..self }
    }

    const fn searches(self) -> Self {
        Self { searches: true, ..self }
    }

    const fn inert(self) -> Self {
        Self { inert: true, ..self }
    }

    const fn contains(self) -> Self {
        Self { contains: true, ..self }
    }

    const fn fetches(self) -> Self {
        Self { fetches: true, ..self }
    }

    fn interprets(&self) -> bool {
        self.runs.iter().any(|runs| matches!(runs, Runs::Interprets(_)))
    }
}

/// The use of an argument that looks like a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ArgumentUse {
    /// It uses the name only, and does not read the content.
    Named,
    /// It reads the content.
    Read,
    /// It reads the content; files of the working directory are its business.
    ReadOutside,
    /// It may do anything.
    Unknown,
}

/// Files that a program touches.
#[derive(Debug)]
pub(crate) struct DeclaredFiles {
    pub(crate) access: PathAccess,
    pub(crate) which: Which,
    pub(crate) when: When,
}

/// The effect of a program on a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PathAccess {
    /// The content is read.
    Read,
    /// Everything below the directory is read.
    ReadTree,
    /// The file is made, changed or replaced.
    Write,
    /// The file is made or added to, and nothing in it is lost.
    Add,
    Delete,
    /// The directory and everything below it is deleted.
    DeleteTree,
    /// A program gets the path and may do anything with it.
    Unknown,
}

impl PathAccess {
    pub(crate) fn changes(self) -> bool {
        matches!(self, Self::Write | Self::Add)
    }
}

/// The words of a command that name files.
#[derive(Debug)]
pub(crate) enum Which {
    Operands,
    OperandsFrom(usize),
    FirstOperand,
    /// The last of several operands, unless it is on another machine.
    LastOperand,
    /// The operands behind the script, which is the first of them unless one of these options gives
    /// it.
    OperandsAfterScript(&'static [&'static str]),
    /// The values of these options.
    Values(&'static [&'static str]),
    /// The rest of the words that start with this text.
    AfterPrefix(&'static str),
    /// Every word that looks like a path.
    PathLike,
    Computed(fn(&Invocation<'_>) -> Vec<Word>),
}

const fn files(access: PathAccess, which: Which) -> DeclaredFiles {
    DeclaredFiles { access, which, when: When::Always }
}

const fn reads(which: Which) -> DeclaredFiles {
    files(PathAccess::Read, which)
}

const fn reads_tree(which: Which) -> DeclaredFiles {
    files(PathAccess::ReadTree, which)
}

const fn writes(which: Which) -> DeclaredFiles {
    files(PathAccess::Write, which)
}

const fn adds(which: Which) -> DeclaredFiles {
    files(PathAccess::Add, which)
}

const fn deletes(which: Which) -> DeclaredFiles {
    files(PathAccess::Delete, which)
}

const fn deletes_tree(which: Which) -> DeclaredFiles {
    files(PathAccess::DeleteTree, which)
}

impl DeclaredFiles {
    const fn when(self, when: When) -> Self {
        Self { when, ..self }
    }
}

/// A way in which a program runs another command.
#[derive(Debug)]
pub(crate) enum Runs {
    /// The words behind its own options and this many operands: `timeout 5 CMD`.
    Behind(usize),
    /// The words behind a subcommand, its options and this many operands: `uv run CMD`.
    After(&'static str, &'static [&'static str], usize),
    /// The words behind `--`, or behind one of these: `gnome-terminal -- CMD`.
    AfterMark(&'static [&'static str]),
    /// All words behind its own options, as one shell text: `watch CMD`.
    Line,
    /// The values of these options are shell texts.
    Text(&'static [&'static str]),
    /// A shell text follows one of these marks at the start of a word, or of a line of the input.
    Escapes(&'static [&'static str]),
    /// It is a shell.
    Shell,
    /// It reads program texts in another language.
    Interprets(&'static Interpreter),
    /// It turns the source files among its words into programs.
    Compiles,
    Custom(fn(&Invocation<'_>, &mut Vec<Nested>)),
}

/// A rule that the use of a program triggers.
#[derive(Debug)]
pub(crate) struct Ask {
    /// The id of the rule.
    pub(crate) rule: &'static str,
    /// Subcommands; empty for every use. The conditions then only see the words behind them.
    verbs: &'static [&'static str],
    when: When,
    unless: When,
    /// A test that needs to know the file effects or the owner's directories.
    judge: Option<fn(&RuleContext<'_>) -> bool>,
}

/// Every use triggers the rule.
const fn always(rule: &'static str) -> Ask {
    When::Always.triggers(rule)
}

const fn judged(rule: &'static str, judge: fn(&RuleContext<'_>) -> bool) -> Ask {
    Ask { judge: Some(judge), ..always(rule) }
}

impl Ask {
    const fn unless(self, unless: When) -> Self {
        Self { unless, ..self }
    }

    const fn on(self, verbs: &'static [&'static str]) -> Self {
        Self { verbs, ..self }
    }

    /// Whether this use of the program triggers the rule.
    pub(crate) fn matches(&self, context: &RuleContext<'_>) -> bool {
        let mut call = context.invocation;
        if !self.verbs.is_empty() {
            if !call.has_verb(self.verbs) {
                return false;
            }
            call = call.behind_verb();
        }
        self.when.holds(&call) && !self.unless.holds(&call) && self.judge.is_none_or(|judge| judge(context))
    }
}

/// A condition on the words of a command.
///
/// A `*` at either end of a pattern stands for any text. Upper and lower case only differ in
/// options.
#[derive(Debug)]
pub(crate) enum When {
    Always,
    /// One of these options is given: `-x` also inside a cluster, `--long` also shortened.
    Flag(&'static [&'static str]),
    /// One of these options is given in front of the first operand.
    OwnFlag(&'static [&'static str]),
    /// Some word, option or not, fits one of these patterns.
    Arg(&'static [&'static str]),
    /// Some operand fits one of these patterns.
    Operand(&'static [&'static str]),
    /// The last operand fits one of these patterns.
    LastOperandIs(&'static [&'static str]),
    /// The subcommand is one of these. A pattern may have several words, such as `"config set"`.
    Verb(&'static [&'static str]),
    /// A value of one of these options fits one of these patterns.
    Value(&'static [&'static str], &'static [&'static str]),
    NoArguments,
    /// There are no words but options.
    NoOperands,
    /// Something is piped into it.
    Piped,
    /// Something unknown is piped into it.
    PipedUnknown,
    /// It only prints its help or its version.
    Help,
    Any(&'static [When]),
    All(&'static [When]),
    Not(&'static When),
    Test(fn(&Invocation<'_>) -> bool),
}

impl When {
    const fn triggers(self, rule: &'static str) -> Ask {
        Ask { rule, verbs: &[], when: self, unless: Self::Any(&[]), judge: None }
    }

    pub(crate) fn holds(&self, call: &Invocation<'_>) -> bool {
        match self {
            Self::Always => true,
            Self::Flag(options) => has(call.args, options),
            Self::OwnFlag(options) => {
                has(call.args.get(..first_operand(call.args, call.valued())).unwrap_or_default(), options)
            }
            Self::Arg(patterns) => call.args.iter().any(|word| fits_any(word.prefix(), patterns)),
            Self::Operand(patterns) => call.words().any(|word| fits_any(word, patterns)),
            Self::LastOperandIs(patterns) => call.words().last().is_some_and(|word| fits_any(word, patterns)),
            Self::Verb(verbs) => call.has_verb(verbs),
            Self::Value(options, patterns) => {
                values(call.args, options).iter().any(|value| fits_any(value.prefix(), patterns))
            }
            Self::NoArguments => call.args.is_empty(),
            Self::NoOperands => call.operands().is_empty(),
            Self::Piped => call.segment.stdin.is_piped(),
            Self::PipedUnknown => call.segment.stdin.is_piped() && call.segment.stdin.text.is_none(),
            Self::Help => call.asks_for_help(),
            Self::Any(conditions) => conditions.iter().any(|condition| condition.holds(call)),
            Self::All(conditions) => conditions.iter().all(|condition| condition.holds(call)),
            Self::Not(condition) => !condition.holds(call),
            Self::Test(test) => test(call),
        }
    }
}

/// Whether a word fits one of these patterns.
pub(crate) fn fits_any(word: &str, patterns: &[&str]) -> bool {
    patterns.iter().any(|pattern| fits(word, pattern))
}

fn fits(word: &str, pattern: &str) -> bool {
    let same = |text: &[u8], wanted: &str| {
        if pattern.starts_with('-') {
            text == wanted.as_bytes()
        } else {
            text.eq_ignore_ascii_case(wanted.as_bytes())
        }
    };
    let word = word.as_bytes();
    match (pattern.strip_prefix('*'), pattern.strip_suffix('*')) {
        (Some(""), _) => true,
        (Some(rest), Some(_)) => {
            let part = rest.strip_suffix('*').unwrap_or(rest);
            word.windows(part.len()).any(|window| same(window, part))
        }
        (Some(end), None) => word
            .len()
            .checked_sub(end.len())
            .and_then(|at| word.get(at..))
            .is_some_and(|tail| same(tail, end)),
        (None, Some(start)) => word.get(..start.len()).is_some_and(|head| same(head, start)),
        (None, None) => same(word, pattern),
    }
}

/// A simple command together with the declaration of its program.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Invocation<'a> {
    pub(crate) segment: &'a Segment,
    pub(crate) program: &'static ProgramSpec,
    /// The words that are looked at: all, or those behind the subcommand.
    pub(crate) args: &'a [Word],
}

impl<'a> Invocation<'a> {
    pub(crate) fn new(segment: &'a Segment) -> Self {
        Self { segment, program: find(&segment.name), args: &segment.args }
    }

    pub(crate) fn name(&self) -> &'a str {
        &self.segment.name
    }

    pub(crate) fn valued(&self) -> &'static [&'static str] {
        self.program.valued
    }

    pub(crate) fn has(&self, options: &[&str]) -> bool {
        has(self.args, options)
    }

    pub(crate) fn values(&self, options: &[&str]) -> Vec<Word> {
        values(self.args, options)
    }

    /// The operands, without options and their values.
    pub(crate) fn operands(&self) -> Vec<&'a Word> {
        operands(self.args, self.valued())
    }

    /// Every known word that is no option. The values of options are among them.
    pub(crate) fn words(&self) -> impl Iterator<Item = &'a str> {
        operands(self.args, &[]).into_iter().filter_map(Word::known)
    }

    /// The words from the first operand on.
    pub(crate) fn words_from_verb(&self) -> &'a [Word] {
        self.args.get(first_operand(self.args, self.valued())..).unwrap_or_default()
    }

    /// The words behind the first one that passes a test.
    pub(crate) fn after(&self, test: impl Fn(&Word) -> bool) -> Option<&'a [Word]> {
        self.args.get(self.args.iter().position(test)? + 1..)
    }

    /// The first operand.
    pub(crate) fn verb(&self) -> &'a str {
        self.words_from_verb().first().map(Word::prefix).unwrap_or_default()
    }

    /// The same command, looking at the words behind the first operand only.
    pub(crate) fn behind_verb(&self) -> Self {
        Self { args: self.words_from_verb().get(1..).unwrap_or_default(), ..*self }
    }

    /// Whether the first operands fit one of these patterns, word by word. An unknown word may
    /// expand to nothing.
    fn has_verb(&self, verbs: &[&str]) -> bool {
        let mut operands = self.operands();
        operands.retain(|word| !word.has_unknown() || !word.prefix().is_empty());
        verbs.iter().any(|verb| {
            verb.split(' ')
                .enumerate()
                .all(|(at, part)| operands.get(at).is_some_and(|word| fits(word.prefix(), part)))
        })
    }

    /// Whether only help or the version is printed. The words of a nested command do not count.
    pub(crate) fn asks_for_help(&self) -> bool {
        let wraps = |runs: &Runs| matches!(runs, Runs::Behind(_));
        let own = match self.program {
            program if program.runs.iter().any(wraps) => first_operand(self.args, program.valued),
            program if program.contains && fits_any(self.verb(), CONTAINER_VERBS) => 2,
            _ => self.args.len(),
        };
        let own = self.args.get(..own).unwrap_or(self.args);
        own.iter()
            .take_while(|word| word.prefix() != "--")
            .any(|word| matches!(word.known(), Some("--help" | "--version")))
            || matches!(self.args, [only] if matches!(only.known(), Some("-h" | "-V")))
    }
}

/// Subcommands of container tools behind which a command for the container may stand.
const CONTAINER_VERBS: &[&str] = &["run", "exec", "create", "debug", "rsh", "container", "compose"];

/// All declarations.
pub(crate) fn all() -> impl Iterator<Item = &'static ProgramSpec> {
    [
        build_tools::PROGRAMS,
        builtins::PROGRAMS,
        cloud::PROGRAMS,
        coreutils::PROGRAMS,
        curl::PROGRAMS,
        databases::PROGRAMS,
        disks::PROGRAMS,
        docker::PROGRAMS,
        documents::PROGRAMS,
        editors::PROGRAMS,
        find::PROGRAMS,
        git::PROGRAMS,
        hermes::PROGRAMS,
        interpreters::PROGRAMS,
        kubectl::PROGRAMS,
        network::PROGRAMS,
        npm::PROGRAMS,
        processes::PROGRAMS,
        secrets::PROGRAMS,
        ssh::PROGRAMS,
        system::PROGRAMS,
        wrappers::PROGRAMS,
    ]
    .into_iter()
    .flatten()
}

/// Whether a program runs no code of a project, apart from commands that its declaration names.
pub(crate) fn is_plain(program: &ProgramSpec) -> bool {
    let plain = [
        builtins::PROGRAMS,
        coreutils::PROGRAMS,
        curl::PROGRAMS,
        disks::PROGRAMS,
        find::PROGRAMS,
        git::PROGRAMS,
        network::PROGRAMS,
        processes::PROGRAMS,
        secrets::PROGRAMS,
        ssh::PROGRAMS,
        system::PROGRAMS,
        wrappers::PROGRAMS,
    ];
    plain.into_iter().flatten().any(|known| known.names == program.names)
}

/// Whether a declaration says what a program does with text that is typed into it.
pub(crate) fn declares_input(program: &ProgramSpec) -> bool {
    let declared = [
        coreutils::PROGRAMS,
        databases::PROGRAMS,
        disks::PROGRAMS,
        editors::PROGRAMS,
        find::PROGRAMS,
        processes::PROGRAMS,
        secrets::PROGRAMS,
    ];
    declared.into_iter().flatten().any(|known| known.names == program.names)
}

/// The declarations by name; some names end in `*`.
static INDEX: LazyLock<HashMap<&'static str, &'static ProgramSpec>> = LazyLock::new(|| {
    all().flat_map(|program| program.names.iter().map(move |name| (*name, program))).collect()
});

/// No name that ends in `*` is longer.
const MAX_START: usize = 12;

/// Stands for every program without a declaration.
static UNDECLARED: ProgramSpec = program(&[]);

/// The declaration of a program, also of an interpreter with a version: `python3.11`, `php8`.
pub(crate) fn find(name: &str) -> &'static ProgramSpec {
    let find = |name: &str| {
        let starts = (1..=name.len().min(MAX_START)).rev().filter_map(|length| name.get(..length));
        let by_start = || starts.into_iter().find_map(|start| INDEX.get(format!("{start}*").as_str()));
        INDEX.get(name).or_else(by_start).copied()
    };
    let interpreter = || {
        let stem = name.trim_end_matches(|char: char| char.is_ascii_digit() || char == '.' || char == '-');
        find(stem.strip_suffix(".exe").unwrap_or(stem)).filter(|program| program.interprets())
    };
    find(name).or_else(interpreter).unwrap_or(&UNDECLARED)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_program_is_declared_twice() {
        let mut names: Vec<&str> = all().flat_map(|program| program.names).copied().collect();
        names.sort_unstable();
        let count = names.len();
        let repeated: Vec<&str> =
            names.windows(2).filter(|pair| pair[0] == pair[1]).map(|pair| pair[0]).collect();
        assert!(repeated.is_empty(), "{repeated:?}");
        assert!(count > 500);
    }

    #[test]
    fn patterns_stand_for_text_at_either_end() {
        for (pattern, word, expected) in [
            ("push", "push", true),
            ("push", "PUSH", true),
            ("push", "pushd", false),
            ("set*", "set-property", true),
            ("*.target", "reboot.target", true),
            ("*secret*", "my-secret-x", true),
            ("*secret*", "public", false),
            ("*", "", true),
        ] {
            assert_eq!(fits(word, pattern), expected, "{pattern} {word}");
        }
    }
}
