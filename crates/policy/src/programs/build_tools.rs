//! Compilers, linters, test runners and make.

use super::databases::RESETS_SCHEMA;
use super::*;

pub(super) const PROGRAMS: &[Program] = &[
    program(&["pytest"]).arguments(ArgumentUse::Named).never_runs_words(),
    program(&["black", "eslint", "jest", "mypy", "prettier", "ruff", "tox", "vitest"])
        .arguments(ArgumentUse::Named),
    program(&["make"]).arguments(ArgumentUse::Named).runs(&[Runs::Custom(make)]).asks(&[RESETS_SCHEMA]),
    program(&["gmake"]).runs(&[Runs::Custom(make)]),
    program(&["just"]).asks(&[RESETS_SCHEMA]),
    program(&["gcc", "cc", "clang"]).files(&[writes(Values(&["-o", "--output"]))]).runs(&[Runs::Compiles]),
    program(&[
        "g++", "c++", "clang++", "tcc", "rustc", "javac", "java", "runghc", "zig", "swiftc", "kotlinc",
        "nim", "dmd", "rust-script", "cargo-script", "scala-cli", "jbang", "as", "nasm",
    ])
    .runs(&[Runs::Compiles]),
];

/// The text of `--eval`, the values of variables, and makefiles that this script wrote.
fn make(call: &Invocation<'_>, found: &mut Vec<Nested>) {
    for text in call.values(&["--eval"]) {
        found.push(Nested::text(text.strip_prefix("$(shell ").unwrap_or(text)));
    }
    for word in call.args {
        let Some((name, _)) = word.prefix().split_once('=') else { continue };
        let value = word.after('=').unwrap_or_default();
        if name == "SHELL" || value.prefix().contains(' ') {
            found.push(Nested::text(value));
        }
    }
    let files = call.values(&["-f", "--file", "--makefile"]);
    found.extend(files.into_iter().map(|file| Nested::File(Language::Other, file)));
}
