//! The files that a simple command reads, writes and deletes, whatever program does it.
//!
//! Rules about files are rules about effects, so `shred -u x`, `find x -delete` and `> x` need no
//! rule each. The declarations in [`crate::programs`] say which words of a command are paths, and
//! what happens to them.

use std::collections::HashSet;

use crate::paths::resolve;
use crate::programs::{ArgumentUse, DeclaredFiles, Invocation, PathAccess, Runs, Which, is_remote};
use crate::shell::{RedirectOperator, Segment, Word, first_operand};

/// One effect on one path. Paths are absolute and normal, with a placeholder for unknown parts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FileEffect {
    pub(crate) access: PathAccess,
    pub(crate) path: String,
}

/// Options by which most programs take the file that they write.
const OUTPUT_OPTIONS: &[&str] =
    &["-o", "-out", "--out", "--outfile", "--output", "--output-file", "--outdir"];

/// Everything a command does to files.
pub(crate) fn file_effects(call: &Invocation<'_>, home: &str) -> Vec<FileEffect> {
    let mut found = Vec::new();
    for redirect in &call.segment.redirects {
        let accesses: &[PathAccess] = match redirect.operator {
            RedirectOperator::Write | RedirectOperator::Both => &[PathAccess::Write],
            RedirectOperator::Append => &[PathAccess::Add],
            RedirectOperator::ReadWrite => &[PathAccess::Read, PathAccess::Write],
            RedirectOperator::Read => &[PathAccess::Read],
            RedirectOperator::Mention => &[PathAccess::Read, PathAccess::Unknown],
            RedirectOperator::Duplicate | RedirectOperator::HereString | RedirectOperator::HereDocument => {
                &[]
            }
        };
        let path = call.segment.path(&redirect.target);
        found.extend(accesses.iter().map(|access| FileEffect { access: *access, path: path.clone() }));
    }
    found.extend(variable_outputs(call, home).map(|path| FileEffect { access: PathAccess::Write, path }));
    if call.name().is_empty() {
        return found;
    }
    for files in declared_files(call) {
        found.extend(words_of(call, files).iter().map(|word| FileEffect {
            access: files.access,
            path: home_path(&word.outline(), call.segment, home),
        }));
    }
    if call.program.arguments == ArgumentUse::Unknown && call.program.files.is_empty() {
        let outputs = call.values(OUTPUT_OPTIONS);
        let paths = outputs.iter().filter(|word| !word.starts_unknown()).map(|word| call.segment.path(word));
        found.extend(paths.map(|path| FileEffect { access: PathAccess::Write, path }));
    }
    argument_effects(call, home, &mut found);
    found
}

/// The paths that the words of a command name, whatever happens to them.
pub(crate) fn named_paths(segment: &Segment, home: &str) -> Vec<String> {
    let targets = segment.redirects.iter().map(|redirect| &redirect.target);
    let values = segment.assignments.iter().map(|(_, value)| value);
    let words = segment.args.iter().chain(targets).chain(values).map(Word::outline);
    let in_secret_directory = segment.cwd.as_deref().is_none_or(crate::paths::is_secret_tree);
    words
        .filter(|text| !is_bare_name(text, in_secret_directory))
        .flat_map(|text| {
            let parts = path_parts(&text).into_iter().map(|part| home_path(part, segment, home));
            parts.collect::<Vec<_>>()
        })
        .collect()
}

fn declared_files<'a>(call: &'a Invocation<'_>) -> impl Iterator<Item = &'static DeclaredFiles> + 'a {
    call.program.files.iter().filter(|files| files.when.holds(call))
}

/// The absolute path of a word, with a quoted `~/` read as the home directory.
fn home_path(text: &str, segment: &Segment, home: &str) -> String {
    match text.strip_prefix("~/") {
        Some(rest) => resolve(&format!("{home}/{rest}"), None),
        None => resolve(text, segment.cwd.as_deref()),
    }
}

/// The words that name files the command writes.
pub(crate) fn written_words(call: &Invocation<'_>) -> Vec<Word> {
    let written = declared_files(call).filter(|files| files.access.changes());
    written.flat_map(|files| words_of(call, files)).collect()
}

/// The words that a declaration names.
fn words_of(call: &Invocation<'_>, files: &DeclaredFiles) -> Vec<Word> {
    let operands = |skip: usize| call.operands().into_iter().skip(skip).cloned();
    match &files.which {
        Which::Operands => operands(0).collect(),
        Which::OperandsFrom(skip) => operands(*skip).collect(),
        Which::FirstOperand => operands(0).take(1).collect(),
        Which::LastOperand => {
            operands(1).next_back().filter(|word| !is_remote(word.prefix())).into_iter().collect()
        }
        Which::OperandsAfterScript(options) => operands(usize::from(!call.has(options))).collect(),
        Which::Values(options) => call.values(options),
        Which::AfterPrefix(start) => call.args.iter().filter_map(|word| word.strip_prefix(start)).collect(),
        Which::PathLike => {
            call.args.iter().filter(|word| word.prefix().contains(['/', '.'])).cloned().collect()
        }
        Which::Computed(words) => words(call),
    }
}

/// Adds the effects on arguments that look like paths.
fn argument_effects(call: &Invocation<'_>, home: &str, found: &mut Vec<FileEffect>) {
    let (program, arguments) = (call.program, call.program.arguments);
    if arguments == ArgumentUse::Named {
        return;
    }
    let cwd = call.segment.cwd.as_deref();
    let in_secret_directory = cwd.is_none_or(crate::paths::is_secret_tree);
    let changed: HashSet<String> =
        found.iter().filter(|effect| effect.access.changes()).map(|effect| effect.path.clone()).collect();
    let mut is_pattern = program.searches && !call.has(&["-e", "--regexp", "-f", "--file", "--files"]);
    let mut skip_next = false;
    for word in call.args {
        if std::mem::take(&mut skip_next) {
            continue;
        }
        let text = word.outline();
        if !text.starts_with('-') && std::mem::take(&mut is_pattern) {
            continue;
        }
        if program.key_options.contains(&text.as_str()) {
            skip_next = true;
            continue;
        }
        if is_bare_name(&text, in_secret_directory) {
            continue;
        }
        for part in path_parts(&text) {
            let path = home_path(part, call.segment, home);
            if arguments == ArgumentUse::ReadOutside && crate::paths::is_below(&path, cwd.unwrap_or_default())
            {
                continue;
            }
            if arguments == ArgumentUse::Unknown {
                found.push(FileEffect { access: PathAccess::Unknown, path: path.clone() });
            }
            // A file that is written is not read.
            if !changed.contains(&path) {
                found.push(FileEffect { access: PathAccess::Read, path });
            }
        }
    }
}

/// The paths that a command may write because an option names them.
///
/// An option with its value in the same word counts unless its name says that it names an input. The
/// word behind an option counts if the name says that it is an output, or if nothing is known about
/// the program.
pub(crate) fn possible_outputs(call: &Invocation<'_>, home: &str) -> Vec<String> {
    let program = call.program;
    let mut found = Vec::new();
    if program.arguments == ArgumentUse::Named {
        return found;
    }
    let runs_rest = program.runs.iter().any(|runs| matches!(runs, Runs::Behind(_)));
    let own = if runs_rest { first_operand(call.args, program.valued) } else { call.args.len() };
    let mut before = String::new();
    for word in call.args.get(..own).unwrap_or_default() {
        let text = word.outline();
        // `-Wl,-Map,file` passes options on.
        let parts: Vec<&str> =
            if text.starts_with("-W") { text.split(',').skip(1).collect() } else { vec![text.as_str()] };
        for part in parts {
            let value = match option_and_value(part) {
                Some((option, value)) => is_possible_output(call, option, true).then_some(value),
                None => is_possible_output(call, &before, false).then_some(part),
            };
            // `-o name=value` sets something.
            let is_setting = before.len() == 2 && !part.starts_with('-');
            let signs: &[char] = if is_setting { &[] } else { &[',', '=', ':'] };
            let values = value.into_iter().flat_map(|value| value.split(signs));
            found.extend(values.map(|value| home_path(value, call.segment, home)));
            before =
                if part.starts_with('-') && !part.contains('=') { part.to_owned() } else { String::new() };
        }
    }
    found
}

/// The paths in variables whose names say that programs write there.
fn variable_outputs(call: &Invocation<'_>, home: &str) -> impl Iterator<Item = String> {
    let is_command = !call.name().is_empty();
    let exported = call.args.iter().filter(|_| call.name() == "export").filter_map(Word::as_assignment);
    let set = call.segment.assignments.iter().cloned().chain(exported);
    let is_output = move |name: &str| {
        // The shell shortens this file when its greatest length is set.
        name == "HISTFILE" || (is_command && OUTPUT_VARIABLES.iter().any(|part| name.contains(part)))
    };
    let outputs = set.filter(move |(name, value)| is_output(name) && value.prefix().contains('/'));
    outputs.map(|(_, value)| home_path(&value.outline(), call.segment, home))
}

/// Parts of the names of variables that name a file to write.
const OUTPUT_VARIABLES: &[&str] =
    &["OUT", "LOG", "HIST", "TRACE", "COVERAGE", "DUMP", "PROFILE", "GCOV", "RECORD", "RESULT"];

/// The name and the value in a word such as `--name=value` or `-n/value`.
fn option_and_value(text: &str) -> Option<(&str, &str)> {
    let at = text.strip_prefix('-')?.find(['=', '/', '~'])? + 1;
    let (option, value) = text.split_at_checked(at)?;
    Some((option, value.trim_start_matches('=')))
}

fn is_possible_output(call: &Invocation<'_>, option: &str, is_attached: bool) -> bool {
    let program = call.program;
    let is_output = matches!(option, "-o" | "-O" | "-MF")
        || (option.len() > 2 && OUTPUT_NAMES.iter().any(|name| option.contains(name)));
    if program.inert {
        return is_output && option.len() > 2;
    }
    let name = option.trim_start_matches('-');
    let is_input = match name.len() {
        0 => true,
        1 => INPUT_FLAGS.contains(name),
        _ => name.starts_with('D') || INPUT_NAMES.iter().any(|input| name.contains(input)),
    };
    is_output || (!is_input && (is_attached || program.names.is_empty()))
}

/// Options of one letter that usually name an input.
const INPUT_FLAGS: &str = "ABCDFHILNPRSTVXYcdefgijklmnpqrsuvwx";

/// Parts of the names of options whose value is a file to write.
const OUTPUT_NAMES: &[&str] = &[
    "out", "log", "report", "trace", "save", "write", "dump", "export", "record", "profile", "result",
    "redirect", "dest", "junit", "stat", "metric", "histor", "session", "backup", "pid", "sock", "snapshot",
    "warn", "coverage", "append", "prof", "Map", "temp", "tmp", "store",
];

/// Parts of the names of options whose value is read or is the place of the work.
const INPUT_NAMES: &[&str] = &[
    "base", "bind", "build", "bundle", "ca-", "cache", "cert", "conf", "constraint", "context", "cred",
    "cwd", "data", "dir", "env", "exclude", "file", "filter", "find-links", "from", "git", "home", "ident",
    "ignore", "import", "include", "index", "input", "isystem", "kube", "key", "lib", "load", "manifest",
    "model", "mount", "package", "patch", "path", "plugin", "prefix", "project", "python", "reference",
    "registry", "repo", "require", "root", "rules", "schema", "secret", "set", "source", "src", "sysroot",
    "target", "template", "theme", "user", "value", "var", "volume", "work",
];

/// Whether a word is only a name, and no secret. This spares most words the closer look.
fn is_bare_name(text: &str, in_secret_directory: bool) -> bool {
    !in_secret_directory
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
        && !crate::paths::is_secret_name(text)
}

/// The stretches of a word that may be paths: `f=@path`, `--opt=path`, `if=path`, `name:path`.
fn path_parts(text: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    // The kernel opens no longer path.
    if text.len() > 4096 || text.contains('\n') {
        return parts;
    }
    if !text.starts_with('-') {
        parts.push(text);
    }
    if let Some((_, rest)) = text.rsplit_once('=') {
        parts.push(rest);
    }
    for mark in ['=', '@', ':'] {
        if let Some((_, rest)) = text.split_once(mark) {
            let rest = rest.trim_start_matches(['@', '<']);
            let rest = rest.split([';', ',']).next().unwrap_or_default();
            if !rest.is_empty() && !rest.starts_with("//") {
                parts.push(rest);
            }
        }
    }
    if let Some(rest) = text.get(2..).filter(|rest| {
        text.starts_with('-') && !text.starts_with("--") && rest.starts_with(['/', '~', '@', '.'])
    }) {
        parts.push(rest.trim_start_matches('@'));
    }
    parts
}
