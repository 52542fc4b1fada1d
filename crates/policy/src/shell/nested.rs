//! The commands that a command runs in turn: wrapped commands, and texts for shells and
//! interpreters.
//!
//! The declarations in [`crate::programs`] say how a program runs others; this module reads them.

use super::*;
use crate::programs::{self, Interpreter, Invocation, Language, Runs};

/// Wrappers that run their command in the same shell.
pub(super) const SAME_SHELL: &[&str] = &["command", "builtin", "eval", "source", "."];

/// One thing a command runs.
#[derive(Debug)]
pub(crate) enum Nested {
    /// Another command, by its words.
    Argv { words: Vec<Word>, assignments: Vec<(String, Word)>, directory: Option<Word> },
    /// A shell text, and the words it sees as `$1` and so on.
    Script(Word, Vec<Word>),
    /// A program text.
    Code(Language, Word),
    /// A program text from standard input.
    Stdin(Language),
    /// A file.
    File(Language, Word),
    /// A source file that is compiled.
    Source(Word),
    /// A shell that waits for input.
    Interactive,
    /// More than is followed.
    TooMuch,
}

impl Nested {
    /// A command, unless there are no words.
    pub(crate) fn argv(words: &[Word]) -> Option<Self> {
        let words = words.to_vec();
        (!words.is_empty()).then_some(Self::Argv { words, assignments: Vec::new(), directory: None })
    }

    /// A shell text without arguments.
    pub(crate) fn text(word: Word) -> Self {
        Self::Script(word, Vec::new())
    }
}

/// Everything a segment runs in turn.
pub(super) fn nested_commands(segment: &Segment) -> Vec<Nested> {
    let mut found = Vec::new();
    for (name, value) in &segment.assignments {
        nested_variable(name, value, &mut found);
    }
    if segment.program.outline().contains('/') {
        found.push(Nested::File(Language::Shell, segment.program.clone()));
    }
    let call = Invocation::new(segment);
    for runs in call.program.runs {
        run(runs, &call, &mut found);
    }
    let interprets = |runs: &Runs| matches!(runs, Runs::Shell | Runs::Interprets(_));
    if found.is_empty() && !call.program.inert && !call.program.runs.iter().any(interprets) {
        found.extend(catch_all::commands(segment));
    }
    found
}

fn run(runs: &Runs, call: &Invocation<'_>, found: &mut Vec<Nested>) {
    match runs {
        Runs::Behind(skip) => nested_behind(call, *skip, found),
        Runs::After(verb, valued, skip) => {
            if let Some(rest) = call.after(|word| word.known() == Some(verb)) {
                let start = first_operand(rest, valued) + skip;
                let start = start + usize::from(rest.get(start).and_then(Word::known) == Some("--"));
                found.extend(rest.get(start..).and_then(Nested::argv));
            }
        }
        Runs::AfterMark(marks) => {
            let is_mark =
                |word: &Word| word.known().is_some_and(|word| word == "--" || marks.contains(&word));
            found.extend(call.after(is_mark).and_then(Nested::argv));
        }
        Runs::Line => found.push(Nested::text(Word::joined(call.words_from_verb()))),
        Runs::Text(options) => found.extend(call.values(options).into_iter().map(Nested::text)),
        Runs::Escapes(marks) => {
            for word in call.args.iter().chain(&call.segment.stdin.text) {
                escapes(word, marks, found);
            }
        }
        Runs::Shell => shell(call, found),
        Runs::Interprets(interpreter) => interpret(interpreter, call, found),
        Runs::Compiles => {
            let is_source = |word: &&Word| {
                word.prefix() == "-" || SOURCE_ENDINGS.iter().any(|ending| word.prefix().ends_with(ending))
            };
            found.extend(call.args.iter().filter(is_source).cloned().map(Nested::Source));
        }
        Runs::Custom(nested) => nested(call, found),
    }
}

const SOURCE_ENDINGS: &[&str] = &[
    ".c", ".cc", ".cpp", ".cxx", ".rs", ".go", ".java", ".hs", ".zig", ".swift", ".kt", ".nim", ".cr", ".d",
    ".s", ".asm",
];

/// The command behind a wrapper's own options and operands, with the variables set in front of it.
pub(crate) fn nested_behind(call: &Invocation<'_>, skip: usize, found: &mut Vec<Nested>) {
    let start = first_operand(call.args, call.valued()) + skip;
    let (own, mut rest) = call.args.split_at(start.min(call.args.len()));
    // A lone dash is short for `env -i`.
    while let Some((word, tail)) = rest.split_first()
        && matches!(word.known(), Some("-" | "--"))
    {
        rest = tail;
    }
    let mut assignments = Vec::new();
    while let Some((word, tail)) = rest.split_first()
        && let Some(assignment) = word.as_assignment()
    {
        assignments.push(assignment);
        rest = tail;
    }
    let is_option = |word: &Word| word.prefix().starts_with('-');
    if !rest.first().is_none_or(is_option) {
        let directory = values(own, call.program.directory).into_iter().next();
        found.push(Nested::Argv { words: rest.to_vec(), assignments, directory });
    }
}

/// The shell texts that follow a mark at the start of a word or of one of its lines.
fn escapes(word: &Word, marks: &[&str], found: &mut Vec<Nested>) {
    if let Some(text) = marks.iter().find_map(|mark| word.strip_prefix(mark)) {
        found.push(Nested::text(text));
        return;
    }
    for line in word.outline().lines() {
        let text = marks.iter().find_map(|mark| line.trim_start().strip_prefix(mark));
        found.extend(text.map(|text| Nested::text(Word::literal(text))));
    }
}

/// The command in the value of a variable.
pub(crate) fn nested_variable(name: &str, value: &Word, found: &mut Vec<Nested>) {
    if programs::COMMAND_VARIABLES.contains(&name) {
        found.push(Nested::text(value.clone()));
    } else if matches!(name, "PS1" | "PS2" | "PS4") && value.outline().contains(['`', '(']) {
        // A prompt is no command, but the shell runs the substitutions in it.
        let words = [Word::literal("cat <<PROMPT_END\n"), value.clone(), Word::literal("\nPROMPT_END\n")];
        found.push(Nested::text(Word::joined(&words)));
    }
}

/// The language of a file the script wrote, by its first line or its ending.
pub(super) fn language_of(text: &Word, path: &str) -> Option<Language> {
    let first = text.prefix().lines().next().unwrap_or_default();
    if let Some(line) = first.strip_prefix("#!") {
        let mut words = line.split_whitespace();
        let mut name = words.next().unwrap_or_default().rsplit('/').next().unwrap_or_default();
        if name == "env" {
            name = words.find(|word| !word.starts_with('-')).unwrap_or_default();
        }
        let language = programs::find(name).runs.iter().find_map(|runs| match runs {
            Runs::Shell => Some(Language::Shell),
            Runs::Interprets(interpreter) => Some(interpreter.language),
            _ => None,
        });
        return Some(language.unwrap_or(Language::Other));
    }
    match path.rsplit_once('.')?.1 {
        "sh" | "bash" | "zsh" => Some(Language::Shell),
        "py" => Some(Language::Python),
        "pl" => Some(Language::Perl),
        "rb" => Some(Language::Ruby),
        "js" | "mjs" | "cjs" | "ts" => Some(Language::JavaScript),
        "php" => Some(Language::Php),
        _ => None,
    }
}

/// `bash -c text`, `bash file`, `bash < text`.
fn shell(call: &Invocation<'_>, found: &mut Vec<Nested>) {
    for file in call.values(&["--rcfile", "--init-file"]) {
        found.push(Nested::File(Language::Shell, file));
    }
    // `bash -n` only reads the script.
    let own = call.args.get(..first_operand(call.args, call.valued())).unwrap_or_default();
    let is_changed = |word: &Word| word.prefix().starts_with('+') || word.splits;
    let is_checked = own.iter().any(|word| word.known() == Some("-n")) && !has(own, &["-s", "-i"]);
    if is_checked && !call.args.iter().any(is_changed) {
        return;
    }
    let mut rest = call.args;
    let (mut takes_text, mut reads_input) = (false, false);
    while let Some((word, tail)) = rest.split_first()
        && word.prefix().starts_with(['-', '+'])
    {
        rest = tail;
        let text = word.prefix();
        if matches!(text, "-" | "--") {
            break;
        }
        let is_long = text.starts_with("--");
        // `+c` and `+s` mean the same as `-c` and `-s`.
        takes_text |= text == "--command" || (!is_long && text.contains('c'));
        reads_input |= !is_long && text.contains('s');
        // Each `o` of a cluster such as `-euo` takes a word.
        let values = if is_long {
            usize::from(call.valued().contains(&text))
        } else {
            text.matches(['o', 'O']).count()
        };
        rest = rest.get(values..).unwrap_or_default();
    }
    match rest.first() {
        Some(text) if takes_text => {
            // A word that may be several or none leaves all of them open.
            let is_open = rest.iter().take(2).any(|word| word.splits);
            let words = if is_open {
                vec![Word::unknown(Unknown::Variable("@".to_owned()))]
            } else {
                rest.iter().skip(2).cloned().collect()
            };
            found.push(Nested::Script(text.clone(), words));
        }
        Some(file) if !reads_input => found.push(Nested::File(Language::Shell, file.clone())),
        _ if call.segment.stdin.is_piped() || reads_input => found.push(Nested::Stdin(Language::Shell)),
        _ if call.has(&["--version", "--help"]) => {}
        _ => found.push(Nested::Interactive),
    }
}

/// `python -c text`, `node file`, `perl < text`.
fn interpret(interpreter: &Interpreter, call: &Invocation<'_>, found: &mut Vec<Nested>) {
    let language = interpreter.language;
    let is_python = language == Language::Python;
    let mut rest = call.args;
    let mut took_code = false;
    while let Some((word, tail)) = rest.split_first()
        && word.prefix().starts_with('-')
        && !matches!(word.prefix(), "-" | "--")
    {
        rest = tail;
        let text = word.prefix();
        if is_python && !text.starts_with("--") && text.contains('i') {
            found.push(Nested::Interactive);
        }
        if is_python && text == "-m" {
            return python_module(rest, found);
        }
        if let Some(code) = attached_code(interpreter, word) {
            took_code = true;
            let is_next = code.known() == Some("");
            let code = if is_next { rest.first().cloned() } else { Some(code) };
            found.extend(code.map(|code| Nested::Code(language, code)));
            if is_next && is_python {
                return;
            }
            rest = rest.get(usize::from(is_next)..).unwrap_or_default();
        } else if text.starts_with("--version") || matches!(text, "-V" | "-v" | "--help" | "-h") {
            took_code = true;
        } else {
            rest = rest.get(usize::from(call.valued().contains(&text))..).unwrap_or_default();
        }
    }
    let is_script = language == Language::JavaScript;
    match rest.first().map(|word| (word, word.known())) {
        _ if took_code => {}
        Some((_, Some("eval"))) if call.name() == "deno" => {
            found.extend(rest.get(1).map(|code| Nested::Code(language, code.clone())));
        }
        Some((_, Some("-"))) => found.push(Nested::Stdin(language)),
        Some((_, Some("run"))) if !interpreter.runs_operand && is_script => {
            let file = rest.iter().skip(1).find(|word| !word.prefix().starts_with('-'));
            found.extend(file.map(|file| Nested::File(language, file.clone())));
        }
        Some((file, _)) if interpreter.runs_operand => found.push(Nested::File(language, file.clone())),
        None if call.segment.stdin.is_piped() => found.push(Nested::Stdin(language)),
        None if interpreter.reads_input && (call.args.is_empty() || !is_script) => {
            found.push(Nested::Interactive);
        }
        _ => {}
    }
}

/// The program text behind an option in the same word; empty if it is the next word.
fn attached_code(interpreter: &Interpreter, word: &Word) -> Option<Word> {
    let text = word.prefix();
    let (option, _) = text.split_once('=').unwrap_or((text, ""));
    if interpreter.code.contains(&option) {
        return Some(word.after('=').unwrap_or_default());
    }
    // Perl's `-M` and `-I` take the rest of the word.
    let flags = text.strip_prefix('-').filter(|flags| !flags.starts_with('-'))?;
    let cluster = flags.find(|char: char| !char.is_ascii_alphanumeric() || "MIWX".contains(char));
    let cluster = flags.get(..cluster.unwrap_or(flags.len()))?;
    let flags = interpreter.code.iter().filter(|option| option.len() == 2);
    let at = flags.into_iter().find_map(|option| cluster.find(option.strip_prefix('-')?))?;
    word.strip_prefix(text.get(..at + 2)?)
}

/// `python -m module …`
fn python_module(args: &[Word], found: &mut Vec<Nested>) {
    let rest = args.get(1..).unwrap_or_default();
    match args.first().and_then(Word::known) {
        Some("timeit") => {
            let codes = operands(rest, &["-n", "-r", "-u"]);
            found.extend(codes.into_iter().map(|code| Nested::Code(Language::Python, code.clone())));
        }
        Some("pip") => found.extend(Nested::argv(args)),
        Some("cProfile" | "profile" | "trace" | "pdb" | "coverage" | "runpy") => {
            found.extend(values(rest, &["-c"]).into_iter().map(|code| Nested::Code(Language::Python, code)));
            let files = operands(rest, &["-o", "-s", "-c", "-m", "-C", "-f", "--coverdir", "--file"]);
            let file = files.into_iter().find(|file| file.prefix().contains(['/', '.']));
            found.extend(file.map(|file| Nested::File(Language::Python, file.clone())));
        }
        Some(_) => {}
        None => found.push(Nested::Stdin(Language::Python)),
    }
}
