//! The files that a simple command reads, writes and deletes, whatever program does it.
//!
//! Rules about files are rules about effects, so `shred -u x`, `find x -delete` and `> x` need no
//! rule each. The declarations in [`crate::programs`] say which words of a command are paths, and
//! what happens to them.

use std::collections::HashSet;

use crate::paths::resolve;
use crate::programs::{ArgumentUse, DeclaredFiles, Invocation, PathAccess, Which, is_remote};
use crate::shell::{RedirectOperator, Segment, Word};

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
            RedirectOperator::ReadWrite => &[PathAccess::Read, PathAccess::Add],
            RedirectOperator::Read => &[PathAccess::Read],
            RedirectOperator::Mention => &[PathAccess::Read, PathAccess::Unknown],
            RedirectOperator::Duplicate | RedirectOperator::HereString | RedirectOperator::HereDocument => {
                &[]
            }
        };
        let path = call.segment.path(&redirect.target);
        found.extend(accesses.iter().map(|access| FileEffect { access: *access, path: path.clone() }));
    }
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
