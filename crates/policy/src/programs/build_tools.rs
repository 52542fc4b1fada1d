//! Compilers, linters, test runners and make.

use super::databases::RESETS_SCHEMA;
use super::*;

pub(super) const PROGRAMS: &[ProgramSpec] = &[
    reader(&["pytest"]).inert(),
    reader(&["jest", "mypy", "tox", "vitest"]),
    reader(&["biome", "eslint", "prettier", "stylelint"])
        .files(&[writes(Computed(named_files)).when(Flag(&["--fix", "--write", "-w"]))]),
    reader(&[
        "autoflake", "autopep8", "black", "clang-format", "gofmt", "goimports", "isort", "ruff", "rustfmt",
        "shfmt", "yapf",
    ])
    .files(&[writes(Computed(named_files))
        .when(Not(&Any(&[Arg(&["--check*", "--diff", "--dry-run", "-l", "-d"]), Verb(&["check"])])))]),
    non_reader(&["make"])
        .files(&[reads(Values(&["-f", "--file", "--makefile"]))])
        .runs(&[Custom(make)])
        .asks(&[RESETS_SCHEMA]),
    program(&["gmake"]).runs(&[Custom(make)]),
    program(&["just"]).asks(&[RESETS_SCHEMA]),
    program(&["gcc", "cc", "clang", "g++", "c++", "clang++"])
        .files(&[writes(Values(&["-o", "--output"]))])
        .runs(&[Compiles, Custom(compiler_wrapper)]),
    program(&[
        "tcc", "rustc", "javac", "java", "runghc", "zig", "swiftc", "kotlinc", "nim", "dmd", "rust-script",
        "cargo-script", "scala-cli", "jbang", "as", "nasm",
    ])
    .runs(&[Compiles]),
];

/// `gcc -wrapper program,argument`
fn compiler_wrapper(call: &Invocation<'_>, found: &mut Vec<Nested>) {
    for wrapper in call.values(&["-wrapper"]) {
        let words: Vec<Word> = wrapper.outline().split(',').map(Word::literal).collect();
        found.extend(Nested::argv(&words));
    }
}

/// The text of `--eval`, the values of variables, and makefiles that this script wrote.
fn make(call: &Invocation<'_>, found: &mut Vec<Nested>) {
    for text in call.values(&["--eval"]) {
        found.push(Nested::text(text.strip_prefix("$(shell ").unwrap_or(text)));
    }
    for word in call.args {
        let Some((name, value)) = word.as_assignment() else { continue };
        if name == "SHELL" || value.prefix().contains(' ') {
            found.push(Nested::text(value));
        }
    }
    let files = call.values(&["-f", "--file", "--makefile"]);
    found.extend(files.into_iter().map(|file| Nested::File(Language::Other, file)));
}

/// The files that the command names; formatters often get a list that git or `find` made.
fn named_files(call: &Invocation<'_>) -> Vec<Word> {
    call.operands().into_iter().filter(|word| !word.starts_unknown()).cloned().collect()
}
