//! Shells and interpreters of other languages.

use super::databases::RESETS_SCHEMA;
use super::*;

/// A language in which program texts are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Language {
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

/// The ways in which an interpreter takes a program text.
#[derive(Debug)]
pub(crate) struct Interpreter {
    pub(crate) language: Language,
    /// Options whose value is program text.
    pub(crate) code: &'static [&'static str],
    /// Whether it reads a program from standard input when no file is named.
    pub(crate) reads_input: bool,
    /// Whether its first operand is the program to run.
    pub(crate) runs_operand: bool,
}

const fn interpreter(language: Language, code: &'static [&'static str]) -> Interpreter {
    Interpreter { language, code, reads_input: true, runs_operand: true }
}

const PYTHON: Interpreter = interpreter(Language::Python, &["-c"]);
const PERL: Interpreter = interpreter(Language::Perl, &["-e", "-E"]);
const RUBY: Interpreter = interpreter(Language::Ruby, &["-e"]);
const NODE: Interpreter = interpreter(Language::JavaScript, &["-e", "--eval", "-p", "--print", "-pe", "-ep"]);
pub(super) const BUN: Interpreter = Interpreter { runs_operand: false, ..NODE };
const PHP: Interpreter = interpreter(Language::Php, &["-r", "-B", "-R", "-E", "--run"]);
const SCRIPTS: Interpreter = Interpreter { runs_operand: true, ..OTHER };
pub(super) const OTHER: Interpreter = Interpreter {
    language: Language::Other,
    code: &[
        "-e", "--eval", "-eval", "-c", "-Command", "-command", "-EncodedCommand", "-enc", "--execute", "-E",
        "--expr",
    ],
    reads_input: false,
    runs_operand: false,
};

pub(super) const PROGRAMS: &[ProgramSpec] = &[
    non_reader(&["bash", "sh", "zsh", "dash"])
        .valued(SHELL_VALUED)
        .files(&[
            // A shell shows the lines that it cannot run.
            reads(FirstOperand).when(Not(&Flag(&["-c"]))),
        ])
        .runs(&[Shell])
        .asks(&[OwnFlag(&["-k"]).triggers("shell-hooks")]),
    program(&[
        "ksh", "ksh93", "mksh", "pdksh", "ash", "fish", "rbash", "csh", "tcsh", "yash", "hush", "nu",
        "xonsh", "elvish", "osh",
    ])
    .valued(SHELL_VALUED)
    .runs(&[Shell]),
    reader(&["python", "python3", "pypy", "pypy3", "ipython", "bpython", "jython", "micropython"])
        .valued(&["-W", "-X", "--check-hash-based-pycs"])
        .files(&[
            reads_tree(Operands).when(Value(&["-m"], &["zipfile", "tarfile"])),
            writes(Computed(module_output)),
            adds(Computed(installed_programs)),
            deletes_tree(OperandsFrom(1)).when(All(&[Value(&["-m"], &["venv"]), Arg(&["--clear"])])),
        ])
        .runs(&[Interprets(&PYTHON)])
        .asks(&[judged("inbound-access", serves_owner_files), RESETS_SCHEMA]),
    reader(&["perl"]).files(IN_PLACE).runs(&[Interprets(&PERL)]),
    reader(&["prove"]).runs(&[Custom(|call, found| {
        let files = call.operands().into_iter().cloned();
        found.extend(files.map(|file| Nested::File(Language::Perl, file)));
    })]),
    reader(&["ruby", "jruby", "irb"])
        .valued(&["-r", "-I", "-C", "-E"])
        .files(IN_PLACE)
        .runs(&[Interprets(&RUBY)]),
    reader(&["node", "nodejs", "ts-node", "tsx", "qjs"]).valued(NODE_VALUED).runs(&[Interprets(&NODE)]),
    program(&["deno"]).valued(NODE_VALUED).runs(&[Interprets(&BUN)]),
    program(&["php"])
        .valued(&["-d", "-c", "-S", "-t", "-z"])
        .runs(&[Interprets(&PHP)])
        .asks(&[RESETS_SCHEMA]),
    program(&[
        "lua", "luajit", "rscript", "r", "julia", "elixir", "groovy", "scala", "racket", "octave", "guile",
        "sbcl", "erl", "expect", "ghc", "tclsh", "pwsh", "powershell", "jshell", "raku", "crystal",
        "clojure", "clj", "gforth", "iex", "wish", "kotlin", "dotnet-script", "jrunscript",
    ])
    .valued(&["-l", "-i"])
    .runs(&[Interprets(&SCRIPTS)]),
    program(&["powershell.exe"])
        .valued(&["-l", "-i"])
        .runs(&[Interprets(&SCRIPTS)])
        .asks(&[always("devices")]),
    program(&["osascript"])
        .valued(&["-l", "-i"])
        .runs(&[Interprets(&SCRIPTS)])
        .asks(&[Arg(&["*shut down*", "*restart*"]).triggers("power")]),
    program(&["swift"]).valued(&["-l", "-i"]).runs(&[Interprets(&OTHER)]),
];

const SHELL_VALUED: &[&str] = &["-o", "-O", "+o", "+O", "--rcfile", "--init-file", "-C", "--init-command"];
pub(super) const NODE_VALUED: &[&str] = &["-r", "--require", "--import", "--loader", "-C", "--env-file"];

const IN_PLACE: &[DeclaredFiles] = &[writes(Computed(edited_files)).when(Test(edits_in_place))];

fn edits_in_place(call: &Invocation<'_>) -> bool {
    call.args.iter().map(Word::prefix).any(|option| {
        let flags = option.chars().skip(1).take_while(char::is_ascii_alphanumeric).take(4);
        option.starts_with('-')
            && !option.starts_with("--")
            && !option.starts_with("-I")
            && !option.starts_with("-M")
            && !option.starts_with("-e")
            && flags.into_iter().any(|char| char == 'i')
    })
}

fn edited_files(call: &Invocation<'_>) -> Vec<Word> {
    let skip = usize::from(!call.has(&["-e", "-E"]));
    let words = operands(call.args, &["-e", "-E", "-I", "-r"]);
    words.into_iter().skip(skip).cloned().collect()
}

/// Programs that `-m venv` and `-m pip` put where the owner's may be.
fn installed_programs(call: &Invocation<'_>) -> Vec<Word> {
    let Some(at) = call.args.iter().position(|word| word.known() == Some("-m")) else { return Vec::new() };
    let rest = call.args.get(at + 2..).unwrap_or_default();
    let programs = |directory: &Word| directory.followed_by(&Word::literal("/bin/file"));
    match call.args.get(at + 1).and_then(Word::known) {
        Some("venv" | "virtualenv") => operands(rest, &["--prompt"]).into_iter().map(programs).collect(),
        _ => Vec::new(),
    }
}

/// The files that modules of Python write: `-m json.tool IN OUT`, `-m zipfile -e IN DIR`.
fn module_output(call: &Invocation<'_>) -> Vec<Word> {
    let Some(at) = call.args.iter().position(|word| word.known() == Some("-m")) else { return Vec::new() };
    let rest = call.args.get(at + 2..).unwrap_or_default();
    let words: Vec<&Word> = operands(rest, &["--indent", "-m", "-p"]);
    let unpacks = has(rest, &["-e", "--extract"]);
    let output = match call.args.get(at + 1).map(Word::prefix) {
        Some("json.tool" | "json" | "uu" | "quopri") => words.get(1).map(|word| (**word).clone()),
        Some("zipfile" | "tarfile") if unpacks => Some(
            words
                .get(1)
                .map_or_else(|| Word::literal("file"), |word| word.followed_by(&Word::literal("/file"))),
        ),
        Some("zipfile" | "tarfile") if has(rest, &["-c", "--create"]) => {
            words.first().map(|word| (**word).clone())
        }
        Some("zipapp") => values(rest, &["-o", "--output"]).pop(),
        _ => None,
    };
    output.into_iter().collect()
}

/// Whether `python -m http.server` shows more than a project.
fn serves_owner_files(context: &RuleContext<'_>) -> bool {
    let (call, paths) = (&context.invocation, &context.paths);
    let serves = call
        .values(&["-m"])
        .iter()
        .any(|module| matches!(module.known(), Some("http.server" | "SimpleHTTPServer")));
    let directory = call
        .values(&["-d", "--directory"])
        .into_iter()
        .next()
        .map_or_else(|| call.segment.cwd.clone().unwrap_or_default(), |word| call.segment.path(&word));
    serves
        && (paths.is_home(&directory)
            || paths.is_root(&directory)
            || paths.is_system(&directory)
            || paths.is_credential(&directory))
}
