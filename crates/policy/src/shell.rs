//! Analysis of shell commands: from script text to a list of [`Segment`]s, one per simple command.
//!
//! [`understand`] parses the text ([`parse`], [`lex`] into [`syntax`]), walks every branch
//! ([`walk`]) while it expands words ([`expand`]) with what is known ([`env`], [`bindings`]), and
//! follows wrappers and inner scripts ([`scripts`], [`nested`], [`interpreters`]). Unknown parts
//! become a [`Doubt`]. All of it is bounded ([`budget`]).

mod args;
mod assign;
mod bindings;
mod braces;
mod budget;
mod catch_all;
mod endless;
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
use hermes_types::{FileUse, ShellContext, shell_quote};

use crate::programs::{Language, Runs, declares_input, find};

pub(crate) use args::{first_operand, has, operands, values};
pub(crate) use nested::{Nested, nested_behind, nested_variable};
pub(crate) use output::unescape;
pub use syntax::RedirectOperator;
pub use value::pattern_matches;
pub(crate) use value::{FILE_CONTENT, UNKNOWN_CHAR};
pub use value::{PipeData, Redirect, Unknown, Word, WordPiece};

/// The properties of the environment that the analysis needs.
#[derive(Debug, Clone, Copy)]
pub struct Surroundings<'a> {
    pub cwd: &'a str,
    pub home: &'a str,
    /// The Hermes home directory.
    pub hermes_home: &'a str,
    pub shell: &'a ShellContext,
}

impl<'a> Surroundings<'a> {
    /// The surroundings in a new session.
    pub fn new(cwd: &'a str, home: &'a str, hermes_home: &'a str) -> Self {
        static NEW_SESSION: ShellContext = ShellContext::new();
        Self { cwd, home, hermes_home, shell: &NEW_SESSION }
    }
}

/// A simple command as it will run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Segment {
    /// As written.
    pub program: Word,
    /// The lowercase name without its directory; empty if unknown.
    pub name: String,
    pub args: Vec<Word>,
    /// Variables set for this command, or for the script if there is no program.
    pub assignments: Vec<(String, Word)>,
    pub redirects: Vec<Redirect>,
    /// The data on standard input.
    pub stdin: PipeData,
    /// The working directory, if known.
    pub cwd: Option<String>,
    /// The wrapper programs, outermost first.
    pub via: Vec<String>,
    /// Whether it is inside a loop.
    pub repeated: bool,
    pub source: String,
}

impl Segment {
    /// The absolute path of a word, with unknown parts as [`UNKNOWN_CHAR`].
    pub(crate) fn path(&self, word: &Word) -> String {
        crate::paths::resolve(&word.outline(), self.cwd.as_deref())
    }

    /// The command in readable form.
    pub fn show(&self) -> String {
        let mut words: Vec<String> =
            self.assignments.iter().map(|(name, value)| format!("{name}={}", value.show())).collect();
        if !self.program.pieces().is_empty() {
            words.push(quote(&self.program.show()));
        }
        words.extend(self.args.iter().map(|word| quote(&word.show())));
        words.extend(
            self.redirects.iter().map(|redirect| redirect.show_with(&quote(&redirect.target.show()))),
        );
        words.join(" ")
    }
}

fn quote(word: &str) -> String {
    let plain = !word.is_empty()
        && !word.contains(|char: char| char.is_whitespace() || "'\"\\;&|<>()#`".contains(char));
    if plain { word.to_owned() } else { shell_quote(word) }
}

/// Programs so dangerous that a pattern which may match their name counts as the name.
const DANGEROUS_PROGRAMS: &[&str] = &[
    "rm", "dd", "mkfs", "shutdown", "reboot", "halt", "poweroff", "kill", "sh", "bash", "sudo", "chmod",
    "shred", "curl",
];

fn program_name(program: &Word) -> String {
    let outline = program.outline();
    let last = outline.rsplit('/').next().unwrap_or_default();
    let folded: String = last
        .chars()
        .map(|char| match char {
            // Full-width forms look like ASCII.
            '\u{ff01}'..='\u{ff5e}' => char::from_u32(u32::from(char) - 0xfee0).unwrap_or(char),
            other => other,
        })
        .collect::<String>()
        .to_lowercase();
    if folded.contains(UNKNOWN_CHAR) {
        return String::new();
    }
    if program.has_glob() && folded.contains(['*', '?', '[']) && folded.len() > 1 {
        return DANGEROUS_PROGRAMS
            .iter()
            .find(|name| pattern_matches(&folded, name))
            .map(|name| (*name).to_owned())
            .unwrap_or_default();
    }
    folded
}

/// A part of a script that cannot be analyzed, or is dangerous as a whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Doubt {
    pub kind: DoubtKind,
    pub source: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DoubtKind {
    /// The text is not a valid script.
    Syntax,
    TooDeep,
    /// Too long or complex to analyze.
    TooMuch,
    /// Invisible or reordering characters.
    Hidden,
    /// The program name is only known at run time.
    Program,
    /// The program name has characters that look like others.
    Lookalike,
    /// A shell runs the output of these programs.
    Script(Vec<String>),
    /// A program text that is only known at run time.
    Code,
    /// A shell or interpreter that reads commands interactively.
    Interactive,
    /// Runs a file that the same command downloaded or made executable.
    MadeHere,
    /// Runs a file from a world-writable directory.
    Temporary,
    /// Program text with a dangerous operation.
    Danger(&'static str),
    ForkBomb,
    /// An endless loop that starts processes without waiting.
    EndlessSpawn,
}

/// The commands of a script and its doubts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Script {
    /// In the order found.
    pub segments: Vec<Segment>,
    pub doubts: Vec<Doubt>,
}

/// Analyzes a bash script.
pub fn understand(text: &str, around: &Surroundings<'_>) -> Script {
    read(text, around, |walk| {
        walk.script_text(text);
    })
}

/// Analyzes text that is typed into a program after earlier text. What the earlier text alone does
/// was judged before.
pub fn understand_input(
    program: &str,
    typed_before: Option<&str>,
    text: &str,
    around: &Surroundings<'_>,
) -> Script {
    let Some(before) = typed_before else {
        let too_long = Doubt { kind: DoubtKind::TooMuch, source: text.to_owned() };
        return Script { doubts: vec![too_long], ..understand(text, around) };
    };
    // A terminal sends a carriage return for a line end.
    let all = [before, text].concat().replace('\r', "\n");
    let (lines, open) = before.rsplit_once(['\n', '\r']).unwrap_or(("", before));
    let earlier = lines.replace('\r', "\n");
    let open = format!("{open}{text}").replace('\r', "\n");
    let program = understand(program, around);
    let mut script = Script::default();
    let mut add = |found: Script, known: Script| {
        script.segments.extend(found.segments.into_iter().skip(known.segments.len()));
        let mut doubts = found.doubts;
        for doubt in &known.doubts {
            if let Some(at) = doubts.iter().position(|found| found == doubt) {
                doubts.remove(at);
            }
        }
        script.doubts.extend(doubts);
    };
    let reader = InputReader::of(&program);
    if let InputReader::Interpreter(language) = reader {
        let read_code = |text: &str| {
            read(text, around, |walk| {
                walk.run_code(language, &Word::literal(text), "");
            })
        };
        // A name that earlier lines gave to something dangerous may be used now.
        add(read_code(&all), Script { doubts: Vec::new(), ..read_code(&earlier) });
        // IPython runs lines behind these signs as commands.
        for line in open.lines().filter_map(|line| line.trim_start().strip_prefix(['!', '%'])) {
            add(understand(line.trim_start_matches(['!', '%']), around), Script::default());
        }
        return script;
    }
    if reader != InputReader::Declared {
        add(understand(&all, around), understand(&earlier, around));
    }
    if reader != InputReader::Shell {
        // The commands of the program, with the line as their input.
        for mut segment in program.segments {
            segment.args.insert(0, std::mem::take(&mut segment.program));
            segment.stdin.text = Some(Word::literal(open.clone()));
            let judged = read(&open, around, |walk| {
                walk.run(segment, &open);
            });
            add(judged, Script::default());
        }
    }
    script
}

/// What reads the text that is typed into a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum InputReader {
    Shell,
    Interpreter(Language),
    /// A program whose declaration says what it does with its input.
    Declared,
    Unknown,
}

impl InputReader {
    fn of(program: &Script) -> Self {
        let spec = program.segments.last().map(|segment| find(&segment.name));
        let Some(spec) = spec.filter(|spec| !spec.names.is_empty()) else { return Self::Unknown };
        let runs = |runs: &Runs| match runs {
            Runs::Shell => Some(Self::Shell),
            Runs::Interprets(interpreter) => Some(Self::Interpreter(interpreter.language)),
            _ => None,
        };
        let otherwise = if declares_input(spec) { Self::Declared } else { Self::Unknown };
        spec.runs.iter().find_map(runs).unwrap_or(otherwise)
    }
}

/// Analyzes a Python program.
pub fn understand_python(text: &str, around: &Surroundings<'_>) -> Script {
    read(text, around, |walk| walk.python_text(text))
}

/// Analyzes a file access, by the requested and by the resolved path.
pub fn understand_file(file: &FileUse, around: &Surroundings<'_>) -> Script {
    let text = format!("{} {}", file.path, file.real);
    read(&text, around, |walk| {
        walk.emit_file_access(file.access, &file.path);
        if file.real != file.path {
            walk.emit_file_access(file.access, &file.real);
        }
    })
}

fn read(text: &str, around: &Surroundings<'_>, run: impl FnOnce(&mut walk::Walker<'_>)) -> Script {
    let budget = Budget::for_text(text);
    let mut walk = walk::Walker::new(around, &budget);
    if text.len() > MAX_BYTES {
        walk.doubt(DoubtKind::TooMuch, "");
    } else {
        if text.chars().any(hermes_types::text::is_hidden) {
            walk.doubt(DoubtKind::Hidden, "");
        }
        if text.contains(['\u{2044}', '\u{2215}', '\u{29f8}', '\u{ff0f}', '\u{2571}']) {
            walk.doubt(DoubtKind::Lookalike, text);
        }
        walk.check_session();
        run(&mut walk);
        walk.settle();
        walk.run_traps();
        walk.walk_uncalled();
    }
    walk.script
}
