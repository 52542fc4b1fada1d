//! What a command will run in turn: wrappers peeled, texts handed to shells and interpreters found.

mod git;
mod hidden;
mod tables;
mod wrapped;

pub(crate) use git::VALUED as GIT_VALUED;
pub(crate) use wrapped::{ENGINE_VALUED, KUBECTL_VALUED, RUN_VALUED};

use super::args::{first_operand, has, joined, values};
use super::value::{Piece, Word};
use super::{Segment, args};
use tables::{COMMAND_VARIABLES, INTERPRETERS, Interpreter, PREFIXES, SHELLS, SUBCOMMANDS, TEXT_OPTIONS};

/// Wrappers that run their command in the same shell.
pub(super) const STATE_KEEPERS: &[&str] = &["command", "builtin", "eval", "source", "."];

/// Programs whose inner command runs in a container of its own.
pub(crate) const CONTAINERS: &[&str] = &[
    "docker", "podman", "nerdctl", "kubectl", "oc", "apptainer", "singularity", "lxc", "incus",
    "docker-compose",
];

/// What reads a program text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Language {
    Shell,
    Python,
    Perl,
    Ruby,
    JavaScript,
    Php,
    Awk,
    Sed,
    /// Source of a compiled language.
    Compiled,
    /// Any language whose calls are only searched for well-known names.
    Other,
}

impl Language {
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Shell => "sh",
            Self::Python => "python",
            Self::Perl => "perl",
            Self::Ruby => "ruby",
            Self::JavaScript => "node",
            Self::Php => "php",
            Self::Awk => "awk",
            Self::Sed => "sed",
            Self::Compiled => "source",
            Self::Other => "script",
        }
    }
}

/// One thing a command runs.
#[derive(Debug)]
pub(super) enum Inner {
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
    /// A shell that waits for somebody to type.
    Interactive,
}

impl Inner {
    fn argv(words: &[Word]) -> Option<Self> {
        (!words.is_empty()).then(|| Self::Argv {
            words: words.to_vec(),
            assignments: Vec::new(),
            directory: None,
        })
    }

    fn text(word: Word) -> Self {
        Self::Script(word, Vec::new())
    }
}

/// Everything a segment runs in turn.
pub(super) fn of(segment: &Segment) -> Vec<Inner> {
    let mut found = Vec::new();
    for (name, value) in &segment.assignments {
        command_variable(name, value, &mut found);
    }
    let name = segment.name.as_str();
    let args = segment.args.as_slice();
    if segment.program.prefix().contains('/') || segment.program.outline().contains('/') {
        found.push(Inner::File(Language::Shell, segment.program.clone()));
    }
    if SHELLS.contains(&name) {
        shell(args, segment, &mut found);
        return found;
    }
    if let Some(interpreter) = interpreter(name) {
        interpret(interpreter, name, args, segment, &mut found);
        return found;
    }
    if let Some((_, options)) = TEXT_OPTIONS.iter().find(|(program, _)| *program == name) {
        found.extend(values(args, options).into_iter().map(Inner::text));
    }
    if let Some(prefix) = PREFIXES.iter().find(|prefix| prefix.name == name) {
        wrapped::prefixed(prefix, args, &mut found);
    } else if name.starts_with("ld-linux") || name.starts_with("ld-musl") || name == "ld.so" {
        let start =
            first_operand(args, &["--library-path", "--preload", "--audit", "--argv0", "--inhibit-rpath"]);
        found.extend(args.get(start..).and_then(Inner::argv));
    }
    for (program, word, valued, skip) in SUBCOMMANDS {
        if *program == name
            && let Some(at) = args.iter().position(|arg| arg.known() == Some(*word))
        {
            let rest = args.get(at + 1..).unwrap_or_default();
            let start = first_operand(rest, valued) + skip;
            let start = start + usize::from(rest.get(start).and_then(Word::known) == Some("--"));
            found.extend(rest.get(start..).and_then(Inner::argv));
        }
    }
    match name {
        "eval" => found.push(Inner::text(joined(args))),
        "source" | "." => found.extend(args.first().map(|file| Inner::File(Language::Shell, file.clone()))),
        "trap" => found.extend(args.iter().find(|word| word.prefix() != "--").cloned().map(Inner::text)),
        "alias" => found.extend(args.iter().filter_map(|word| word.after('=')).map(Inner::text)),
        "export" | "declare" | "typeset" | "readonly" | "local" => {
            for word in args {
                if let (Some((name, _)), Some(value)) = (word.prefix().split_once('='), word.after('=')) {
                    command_variable(name, &value, &mut found);
                }
            }
        }
        "awk" | "gawk" | "mawk" | "nawk" | "original-awk" => awk(args, &mut found),
        "sed" | "gsed" => sed(args, &mut found),
        "git" => git::runs(args, &mut found),
        "hg" => {
            let settings = values(args, &["--config"]);
            found.extend(settings.iter().filter_map(|setting| setting.after('!')).map(Inner::text));
        }
        _ if tables::COMPILERS.contains(&name) => {
            let is_source = |word: &&Word| {
                let text = word.prefix();
                text == "-" || tables::SOURCE_ENDINGS.iter().any(|ending| text.ends_with(ending))
            };
            found.extend(args.iter().filter(is_source).cloned().map(Inner::Source));
        }
        _ => wrapped::special(name, args, segment, &mut found),
    }
    if found.is_empty() {
        found.extend(hidden::commands(segment));
    }
    found
}

/// The language of a file the script wrote, by its first line or its ending.
pub(super) fn language_of(text: &Word, path: &str) -> Option<Language> {
    let first = text.prefix().lines().next().unwrap_or_default();
    let program = first.strip_prefix("#!").map(|line| {
        let mut words = line.split_whitespace();
        let program = words.next().unwrap_or_default().rsplit('/').next().unwrap_or_default();
        if program == "env" { words.find(|word| !word.starts_with('-')).unwrap_or_default() } else { program }
    });
    if let Some(program) = program {
        return if SHELLS.contains(&program) {
            Some(Language::Shell)
        } else {
            Some(interpreter(program).map_or(Language::Other, |interpreter| interpreter.language))
        };
    }
    let ending = path.rsplit_once('.').map(|(_, ending)| ending)?;
    match ending {
        "sh" | "bash" | "zsh" => Some(Language::Shell),
        "py" => Some(Language::Python),
        "pl" => Some(Language::Perl),
        "rb" => Some(Language::Ruby),
        "js" | "mjs" | "cjs" | "ts" => Some(Language::JavaScript),
        "php" => Some(Language::Php),
        _ => None,
    }
}

fn command_variable(name: &str, value: &Word, found: &mut Vec<Inner>) {
    if COMMAND_VARIABLES.contains(&name) {
        found.push(Inner::text(value.clone()));
    } else if matches!(name, "PS1" | "PS2" | "PS4") && value.outline().contains(['`', '(']) {
        // A prompt is no command, but what it substitutes is.
        let words = [Word::literal("cat <<PROMPT_END\n"), value.clone(), Word::literal("\nPROMPT_END\n")];
        found.push(Inner::text(joined(&words)));
    }
}

/// The interpreter a name stands for, with or without a version: `python3.11`, `pypy3`, `php8`.
fn interpreter(name: &str) -> Option<&'static Interpreter> {
    let stem = name.trim_end_matches(|char: char| char.is_ascii_digit() || char == '.' || char == '-');
    let stem = stem.strip_suffix(".exe").unwrap_or(stem);
    INTERPRETERS
        .iter()
        .find(|interpreter| interpreter.names.contains(&stem) || interpreter.names.contains(&name))
}

/// `bash -c text`, `bash file`, `bash < text`.
fn shell(args: &[Word], segment: &Segment, found: &mut Vec<Inner>) {
    let valued = ["-o", "-O", "+o", "+O", "--rcfile", "--init-file", "-C", "--init-command"];
    for file in values(args, &["--rcfile", "--init-file"]) {
        found.push(Inner::File(Language::Shell, file));
    }
    let mut index = 0;
    let mut takes_text = false;
    let mut reads_input = false;
    while let Some(word) = args.get(index) {
        let text = word.prefix();
        if text == "--" || text == "-" {
            index += 1;
            break;
        }
        if !text.starts_with(['-', '+']) {
            break;
        }
        if let Some(long) = text.strip_prefix("--") {
            takes_text |= long == "command";
            index += 1 + usize::from(valued.contains(&text));
            continue;
        }
        takes_text |= text.starts_with('-') && text.contains('c');
        reads_input |= text.starts_with('-') && text.contains('s');
        let with_value = text.ends_with(['o', 'O']) && text.len() <= 3;
        index += 1 + usize::from(with_value);
    }
    let rest = args.get(index..).unwrap_or_default();
    match rest.first() {
        Some(text) if takes_text => {
            found.push(Inner::Script(text.clone(), rest.iter().skip(2).cloned().collect()));
        }
        Some(file) if !reads_input => found.push(Inner::File(Language::Shell, file.clone())),
        _ if segment.stdin.is_piped() || reads_input => found.push(Inner::Stdin(Language::Shell)),
        _ if has(args, &["--version", "--help"]) => {}
        _ => found.push(Inner::Interactive),
    }
}

fn interpret(
    interpreter: &Interpreter,
    name: &str,
    args: &[Word],
    segment: &Segment,
    found: &mut Vec<Inner>,
) {
    let language = interpreter.language;
    let mut index = 0;
    let mut took_code = false;
    while let Some(word) = args.get(index) {
        let text = word.prefix();
        if !text.starts_with('-') || text == "-" || text == "--" {
            break;
        }
        index += 1;
        if language == Language::Python && !text.starts_with("--") && text.contains('i') {
            found.push(Inner::Interactive);
        }
        if language == Language::Python && text == "-m" {
            module(args.get(index..).unwrap_or_default(), found);
            return;
        }
        if let Some((option, _)) = text.split_once('=')
            && interpreter.code.contains(&option)
        {
            found.extend(word.after('=').map(|code| Inner::Code(language, code)));
            took_code = true;
            continue;
        }
        match code_option(interpreter, word) {
            Some(CodeOption::Next) => {
                found.extend(args.get(index).map(|code| Inner::Code(language, code.clone())));
                index += 1;
                took_code = true;
                if language == Language::Python {
                    return;
                }
            }
            Some(CodeOption::Attached(code)) => {
                found.push(Inner::Code(language, code));
                took_code = true;
            }
            None if text.starts_with("--version")
                || text == "-V"
                || text == "-v"
                || text == "--help"
                || text == "-h" =>
            {
                took_code = true;
            }
            None => index += usize::from(interpreter.valued.contains(&text)),
        }
    }
    if took_code {
        return;
    }
    let rest = args.get(index..).unwrap_or_default();
    match rest.first() {
        Some(word) if word.known() == Some("eval") && matches!(name, "deno") => {
            found.extend(rest.get(1).map(|code| Inner::Code(language, code.clone())));
        }
        Some(word) if matches!(word.known(), Some("-")) => found.push(Inner::Stdin(language)),
        Some(word) if matches!(name, "deno" | "bun") && word.known() == Some("run") => {
            let file = rest.iter().skip(1).find(|word| !word.prefix().starts_with('-'));
            found.extend(file.map(|file| Inner::File(language, file.clone())));
        }
        Some(file) if !matches!(name, "bun" | "emacs" | "dotnet" | "swift" | "deno") => {
            found.push(Inner::File(language, file.clone()));
        }
        Some(_) => {}
        None if segment.stdin.is_piped() => found.push(Inner::Stdin(language)),
        None if interpreter.reads_input && (args.is_empty() || language != Language::JavaScript) => {
            found.push(Inner::Interactive);
        }
        None => {}
    }
}

enum CodeOption {
    Next,
    Attached(Word),
}

/// Whether a word is, or ends in, an option whose value is program text.
fn code_option(interpreter: &Interpreter, word: &Word) -> Option<CodeOption> {
    let text = word.prefix();
    if interpreter.code.contains(&text) {
        return Some(CodeOption::Next);
    }
    if text.starts_with("--") {
        return None;
    }
    for option in interpreter.code.iter().filter(|option| option.len() == 2) {
        let letter = option.chars().nth(1)?;
        // Perl's `-M` and `-I` take the rest of the word.
        let cluster: Vec<char> =
            text.chars().skip(1).take_while(|char| !matches!(char, 'M' | 'I' | 'W' | 'X')).collect();
        let Some(at) = cluster.iter().position(|char| *char == letter) else { continue };
        if !cluster.iter().take(at).all(char::is_ascii_alphanumeric) {
            continue;
        }
        let before: String = text.chars().take(at + 2).collect();
        let rest = word.strip_prefix(&before)?;
        let next = rest.known() == Some("");
        return Some(if next { CodeOption::Next } else { CodeOption::Attached(rest) });
    }
    None
}

/// `python -m module …`
fn module(args: &[Word], found: &mut Vec<Inner>) {
    match args.first().and_then(Word::known) {
        Some("timeit") => {
            let codes = args::operands(args.get(1..).unwrap_or_default(), &["-n", "-r", "-u"]);
            found.extend(codes.into_iter().map(|code| Inner::Code(Language::Python, code.clone())));
        }
        Some("pip") => found.extend(Inner::argv(args)),
        Some("cProfile" | "profile" | "trace" | "pdb" | "coverage" | "runpy") => {
            let rest = args.get(1..).unwrap_or_default();
            found.extend(values(rest, &["-c"]).into_iter().map(|code| Inner::Code(Language::Python, code)));
            let files = args::operands(rest, &["-o", "-s", "-c", "-m"]);
            found.extend(
                files
                    .into_iter()
                    .find(|file| file.prefix().contains(['/', '.']))
                    .map(|file| Inner::File(Language::Python, file.clone())),
            );
        }
        Some(_) => {}
        None => found.push(Inner::Stdin(Language::Python)),
    }
}

fn awk(args: &[Word], found: &mut Vec<Inner>) {
    let scripts = values(args, &["-e", "--source"]);
    if !scripts.is_empty() {
        found.extend(scripts.into_iter().map(|script| Inner::Code(Language::Awk, script)));
        return;
    }
    let files = values(args, &["-f", "--file", "-E"]);
    if !files.is_empty() {
        found.extend(files.into_iter().map(|file| Inner::File(Language::Awk, file)));
        return;
    }
    let start = first_operand(
        args,
        &["-F", "-v", "-i", "-l", "--field-separator", "--assign", "--include", "--load"],
    );
    found.extend(args.get(start).map(|script| Inner::Code(Language::Awk, script.clone())));
}

fn sed(args: &[Word], found: &mut Vec<Inner>) {
    let scripts = values(args, &["-e", "--expression"]);
    if !scripts.is_empty() {
        found.extend(scripts.into_iter().map(|script| Inner::Code(Language::Sed, script)));
        return;
    }
    if values(args, &["-f", "--file"]).is_empty() {
        let start = first_operand(args, &["-l", "-E-"]);
        found.extend(args.get(start).map(|script| Inner::Code(Language::Sed, script.clone())));
    }
}

/// A word that stands for paths below another, as `find` hands them over.
fn below(start: &Word, name: Option<&Word>) -> Word {
    let mut pieces = start.pieces().to_vec();
    pieces.push(Piece::Text("/".to_owned()));
    match name {
        Some(name) if name.prefix().is_empty() && name.outline() == "**" => {
            pieces.extend(name.pieces().iter().cloned())
        }
        Some(name) => {
            pieces.push(Piece::Unknown(super::value::Unknown::Input));
            pieces.push(Piece::Text("/".to_owned()));
            pieces.extend(name.pieces().iter().cloned());
        }
        None => pieces.push(Piece::Unknown(super::value::Unknown::Input)),
    }
    Word::from_pieces(super::walk::joined(pieces))
}
