//! The files that a simple command reads, writes and deletes, whatever program does it.
//!
//! Rules about files are rules about effects, so `shred -u x`, `find x -delete` and `> x` need no rule each. The
//! declarations in [`crate::programs`] say which words of a command are paths, and what happens to them.

use crate::paths::resolve;
use crate::programs::{Access, Arguments, FileUse, Invocation, Which, is_remote};
use crate::shell::{RedirectOperator, Word};

/// One effect on one path. Paths are absolute and normal; unknown stretches are holes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum FileEffect {
    /// The file, or with `tree` everything below the directory, is gone afterward.
    Delete { path: String, tree: bool },
    /// The file is made, changed or replaced.
    Write { path: String },
    /// The content is read.
    Read { path: String },
    /// The path is given to a program that may do anything with it.
    MayChange { path: String },
}

impl FileEffect {
    pub(crate) fn path(&self) -> &str {
        let (Self::Delete { path, .. }
        | Self::Write { path }
        | Self::Read { path }
        | Self::MayChange { path }) = self;
        path
    }
}

/// Everything a command does to files.
pub(crate) fn file_effects(call: &Invocation<'_>, home: &str) -> Vec<FileEffect> {
    let mut found = Vec::new();
    for redirect in &call.segment.redirects {
        let path = call.segment.path(&redirect.target);
        match redirect.operator {
            RedirectOperator::Write | RedirectOperator::Append | RedirectOperator::Both => {
                found.push(FileEffect::Write { path })
            }
            RedirectOperator::ReadWrite => {
                found.push(FileEffect::Read { path: path.clone() });
                found.push(FileEffect::Write { path });
            }
            RedirectOperator::Read => found.push(FileEffect::Read { path }),
            RedirectOperator::Duplicate | RedirectOperator::HereString | RedirectOperator::HereDocument => {}
        }
    }
    if call.name().is_empty() {
        return found;
    }
    let declared = call.program.map_or(&[][..], |program| program.files);
    for file_use in declared.iter().filter(|file_use| file_use.when.holds(call)) {
        for word in words_of(call, file_use) {
            let path = home_path(&word.outline(), call, home);
            found.push(match file_use.access {
                Access::Read => FileEffect::Read { path },
                Access::Write => FileEffect::Write { path },
                Access::Delete => FileEffect::Delete { path, tree: false },
                Access::DeleteTree => FileEffect::Delete { path, tree: true },
            });
        }
    }
    argument_effects(call, home, &mut found);
    found
}

/// The absolute path of a word, with a quoted `~/` read as the home directory.
fn home_path(text: &str, call: &Invocation<'_>, home: &str) -> String {
    match text.strip_prefix("~/") {
        Some(rest) => resolve(&format!("{home}/{rest}"), None),
        None => resolve(text, call.segment.cwd.as_deref()),
    }
}

/// The words that name files the command writes.
pub(crate) fn written_words(call: &Invocation<'_>) -> Vec<Word> {
    let declared = call.program.map_or(&[][..], |program| program.files);
    let writes = |file_use: &&FileUse| file_use.access == Access::Write && file_use.when.holds(call);
    declared.iter().filter(writes).flat_map(|file_use| words_of(call, file_use)).collect()
}

/// The words that a declaration names.
fn words_of(call: &Invocation<'_>, file_use: &FileUse) -> Vec<Word> {
    let operands = |skip: usize| call.operands().into_iter().skip(skip).cloned();
    match &file_use.which {
        Which::Operands => operands(0).collect(),
        Which::OperandsFrom(skip) => operands(*skip).collect(),
        Which::FirstOperand => operands(0).take(1).collect(),
        Which::LastOperand => {
            operands(1).next_back().filter(|word| !is_remote(word.prefix())).into_iter().collect()
        }
        Which::OperandsAfterScript(options) => operands(usize::from(!call.has(options))).collect(),
        Which::Values(options) => call.values(options),
        Which::Behind(start) => call.args.iter().filter_map(|word| word.strip_prefix(start)).collect(),
        Which::PathLike => {
            call.args.iter().filter(|word| word.prefix().contains(['/', '.'])).cloned().collect()
        }
        Which::Fixed(path) => vec![Word::literal(*path)],
        Which::Custom(words) => words(call),
    }
}

/// Adds the effects on arguments that look like paths.
fn argument_effects(call: &Invocation<'_>, home: &str, found: &mut Vec<FileEffect>) {
    let program = call.program;
    let arguments = program.map_or(Arguments::Unknown, |program| program.arguments);
    if arguments == Arguments::Named {
        return;
    }
    let key_options = program.map_or(&[][..], |program| program.key_options);
    let cwd = call.segment.cwd.as_deref();
    let in_secret_directory = cwd.is_none_or(crate::paths::is_secret_tree);
    let mut is_pattern = program.is_some_and(|program| program.searches)
        && !call.has(&["-e", "--regexp", "-f", "--file", "--files"]);
    let mut skip_next = false;
    for word in call.args {
        if std::mem::take(&mut skip_next) {
            continue;
        }
        let text = word.outline();
        if !text.starts_with('-') && std::mem::take(&mut is_pattern) {
            continue;
        }
        if key_options.contains(&text.as_str()) {
            skip_next = true;
            continue;
        }
        // A bare name in an ordinary directory is no secret; this spares most words the closer look.
        if !in_secret_directory
            && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
            && !crate::paths::is_secret_name(&text)
        {
            continue;
        }
        for part in path_parts(&text) {
            let path = home_path(part, call, home);
            if arguments == Arguments::ReadOutside && crate::paths::is_below(&path, cwd.unwrap_or_default()) {
                continue;
            }
            if arguments == Arguments::Unknown {
                found.push(FileEffect::MayChange { path: path.clone() });
            }
            // A file that is written is not read.
            if !found.contains(&FileEffect::Write { path: path.clone() }) {
                found.push(FileEffect::Read { path });
            }
        }
    }
}

/// The stretches of a word that may be paths: `f=@path`, `--opt=path`, `if=path`, `name:path`.
fn path_parts(text: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    if text.len() > 512 || text.contains('\n') {
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
