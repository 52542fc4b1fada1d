//! `cargo xtask tidy`: checks of layout, names, texts and dependencies. It also runs as a test.

mod words;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::root;
use crate::source::SourceFile;

/// The workspace crates that a crate may use. ARCHITECTURE.md has the same table.
const MAY_USE: &[(&str, &[&str])] = &[
    ("types", &[]),
    ("sandbox", &["types"]),
    ("policy", &["types"]),
    ("net", &["types"]),
    ("model", &["types", "net"]),
    ("store", &["types"]),
    ("guest", &["types"]),
    ("exec", &["types", "policy", "guest", "sandbox", "net"]),
    ("agent", &["types", "policy", "exec", "model", "store", "net"]),
    ("session", &["types", "policy", "store", "agent"]),
    ("gateway", &["types", "store", "session", "net"]),
    (
        "config",
        &[
            "types", "policy", "guest", "sandbox", "net", "exec", "model", "store", "agent", "session",
            "gateway",
        ],
    ),
    (
        "cli",
        &[
            "types", "policy", "guest", "sandbox", "net", "exec", "model", "store", "agent", "session",
            "gateway", "config",
        ],
    ),
    ("testkit", &["types", "model"]),
];

/// Crates that may not be in the dependency tree.
const BANNED: &[&str] = &["openssl-sys", "native-tls", "aws-lc-sys", "eventsource-stream", "serde_yaml"];

/// File and folder names that explain nothing.
const EMPTY_NAMES: &[&str] =
    &["core", "common", "util", "utils", "helper", "helpers", "manager", "misc", "mod"];

/// Endings of type names that explain nothing.
const EMPTY_ENDINGS: &[&str] = &["Manager", "Handler", "Service", "Helper", "Util", "Utils", "Impl", "Base"];

const MAX_FILE_LINES: usize = 800;

const MAX_GLOSSARY_ROWS: usize = 40;

pub(crate) fn main() -> Result<ExitCode> {
    let problems = check(&root())?;
    problems.iter().for_each(|line| eprintln!("{line}"));
    Ok(if problems.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Returns the problems, one line each.
fn check(root: &Path) -> Result<Vec<String>> {
    let files = tracked(root)?;
    let mut problems = Vec::new();
    let mut sources = Vec::new();
    check_dependencies(root, &mut problems)?;
    check_lock_file(root, &mut problems)?;
    check_architecture_page(root, &files, &mut problems)?;
    for file in &files {
        check_file_name(file, &mut problems);
        let is_rust = file.ends_with(".rs");
        if is_rust || file.ends_with(".sh") || file.ends_with(".toml") {
            let text = fs::read_to_string(root.join(file)).with_context(|| file.clone())?;
            check_leftovers(file, &text, &mut problems);
            if is_rust {
                check_rust(file, &text, &mut problems);
                let source = SourceFile::parse(file, &text)?;
                words::check_words(&source, &mut problems);
                sources.push(source);
            }
        }
    }
    words::check_unique_types(&sources, &mut problems);
    check_modules(&sources, &mut problems);
    Ok(problems)
}

/// The files that git tracks, and new ones that it does not ignore.
pub(crate) fn tracked(root: &Path) -> Result<Vec<String>> {
    let output = Command::new("git")
        .args(["ls-files", "--cached", "--others", "--exclude-standard"])
        .current_dir(root)
        .output()
        .context("git ls-files")?;
    if !output.status.success() {
        bail!("git ls-files failed: {}", String::from_utf8_lossy(&output.stderr));
    }
    let names = String::from_utf8(output.stdout)?;
    Ok(names.lines().filter(|name| root.join(name).is_file()).map(str::to_owned).collect())
}

/// Reports files that belong to no module: the compiler ignores them.
fn check_modules(sources: &[SourceFile], problems: &mut Vec<String>) {
    for file in sources.iter().filter(|file| file.path.contains("/src/")) {
        let Some((folder, name)) = file.path.trim_end_matches(".rs").rsplit_once('/') else { continue };
        let parents = [format!("{folder}.rs"), format!("{folder}/main.rs"), format!("{folder}/lib.rs")];
        let is_root = parents.contains(&file.path);
        let parent = |source: &&SourceFile| parents.contains(&source.path);
        if !is_root && !sources.iter().filter(parent).any(|parent| parent.declares_module(name)) {
            problems.push(format!("{}: no module contains this file", file.path));
        }
    }
}

fn check_dependencies(root: &Path, problems: &mut Vec<String>) -> Result<()> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version=1", "--no-deps", "--offline"])
        .current_dir(root)
        .output()
        .context("cargo metadata")?;
    let metadata: Value = serde_json::from_slice(&output.stdout).context("cargo metadata")?;
    for package in metadata["packages"].as_array().into_iter().flatten() {
        let Some(name) = package["name"].as_str().and_then(|name| name.strip_prefix("hermes-")) else {
            continue;
        };
        let Some((_, allowed)) = MAY_USE.iter().find(|(known, _)| *known == name) else {
            problems.push(format!("crates/{name}: missing in the dependency table"));
            continue;
        };
        for dependency in package["dependencies"].as_array().into_iter().flatten() {
            let Some(used) = dependency["name"].as_str().and_then(|name| name.strip_prefix("hermes-")) else {
                continue;
            };
            let for_tests = dependency["kind"] == "dev";
            if !allowed.contains(&used) && !(for_tests && (used == "testkit" || used == name)) {
                problems.push(format!("crates/{name}: may not use hermes-{used}"));
            }
        }
    }
    Ok(())
}

fn check_lock_file(root: &Path, problems: &mut Vec<String>) -> Result<()> {
    let lock = fs::read_to_string(root.join("Cargo.lock")).context("Cargo.lock")?;
    for line in lock.lines() {
        if let Some(source) = line.strip_prefix("source = ")
            && !source.starts_with("\"registry+")
        {
            problems.push(format!("Cargo.lock: {source} is not a crate registry"));
        }
        if let Some(name) = line.strip_prefix("name = ")
            && BANNED.contains(&name.trim_matches('"'))
        {
            problems.push(format!("Cargo.lock: {name} is banned"));
        }
    }
    Ok(())
}

/// The code map of ARCHITECTURE.md lists exactly the crates that exist, and the glossary is short.
fn check_architecture_page(root: &Path, files: &[String], problems: &mut Vec<String>) -> Result<()> {
    let map = fs::read_to_string(root.join("ARCHITECTURE.md")).context("ARCHITECTURE.md")?;
    let names: BTreeSet<&str> = map.split('`').skip(1).step_by(2).collect();
    for folder in fs::read_dir(root.join("crates"))? {
        let folder = format!("crates/{}", folder?.file_name().to_string_lossy());
        if !names.contains(folder.as_str()) {
            problems.push(format!("ARCHITECTURE.md: does not list `{folder}`"));
        }
    }
    for name in names.iter().filter(|name| name.starts_with("crates/") || name.ends_with(".rs")) {
        let end = format!("/{name}");
        if !root.join(name).exists() && !files.iter().any(|file| file.ends_with(&end)) {
            problems.push(format!("ARCHITECTURE.md: names `{name}`, which does not exist"));
        }
    }
    let lines = map.lines().count();
    if lines > 400 {
        problems.push(format!("ARCHITECTURE.md: {lines} lines, more than 400"));
    }
    let glossary = map.split_once("\n## Glossary\n").map_or("", |(_, rest)| rest);
    // The heading and the line below it are not terms.
    let rows = glossary.lines().filter(|line| line.starts_with('|')).count().saturating_sub(2);
    if rows == 0 || rows > MAX_GLOSSARY_ROWS {
        problems.push(format!("ARCHITECTURE.md: {rows} terms in the glossary, not 1 to {MAX_GLOSSARY_ROWS}"));
    }
    Ok(())
}

fn check_file_name(file: &str, problems: &mut Vec<String>) {
    let parts = file.split('/').map(|part| part.split('.').next().unwrap_or(part));
    for part in parts.filter(|part| EMPTY_NAMES.contains(part)) {
        problems.push(format!("{file}: the name `{part}` explains nothing"));
    }
}

fn check_leftovers(file: &str, text: &str, problems: &mut Vec<String>) {
    // Split, so that this file does not match.
    let marks = [
        concat!("TO", "DO"),
        concat!("FIX", "ME"),
        concat!("HA", "CK"),
        concat!("todo", "!("),
        concat!("unimplemented", "!("),
        concat!("dbg", "!("),
        concat!("#[", "ignore"),
        concat!("#[", "allow("),
        concat!("#![", "allow("),
    ];
    for (number, line) in text.lines().enumerate() {
        for mark in marks.iter().filter(|mark| line.contains(**mark)) {
            problems.push(format!("{file}:{}: leftover {mark}", number + 1));
        }
    }
}

fn check_rust(file: &str, text: &str, problems: &mut Vec<String>) {
    let lines = text.lines().count();
    if lines > MAX_FILE_LINES {
        problems.push(format!("{file}: {lines} lines, more than {MAX_FILE_LINES}"));
    }
    if file.ends_with("src/lib.rs") && !text.starts_with("//!") {
        problems.push(format!("{file}: has no crate documentation"));
    }
    for (number, line) in text.lines().enumerate() {
        let mut words = line.split_whitespace().skip_while(|word| word.starts_with("pub"));
        if !matches!(words.next(), Some("struct" | "enum" | "trait" | "type")) {
            continue;
        }
        let name = words.next().unwrap_or_default();
        let name = name.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default();
        if let Some(ending) = EMPTY_ENDINGS.iter().find(|ending| name.ends_with(**ending)) {
            problems.push(format!("{file}:{}: `{name}`: {ending} explains nothing", number + 1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tree_is_tidy() {
        assert_eq!(check(&root()).unwrap(), [] as [String; 0]);
    }

    #[test]
    fn problems_are_reported() {
        let mut problems = Vec::new();
        check_file_name("crates/exec/src/utils.rs", &mut problems);
        check_leftovers("a.rs", concat!("// TO", "DO later\nfn f() { todo", "!() }\n"), &mut problems);
        check_rust("a.rs", "pub(crate) struct JobManager;\nenum Fine {}\n", &mut problems);
        check_rust("b/src/lib.rs", &"x\n".repeat(801), &mut problems);
        assert_eq!(
            problems,
            [
                "crates/exec/src/utils.rs: the name `utils` explains nothing",
                concat!("a.rs:1: leftover TO", "DO"),
                concat!("a.rs:2: leftover todo", "!("),
                "a.rs:1: `JobManager`: Manager explains nothing",
                "b/src/lib.rs: 801 lines, more than 800",
                "b/src/lib.rs: has no crate documentation",
            ]
        );
    }

    #[test]
    fn a_file_without_a_module_is_reported() {
        let file = |path, text| SourceFile::parse(path, text).unwrap();
        let files = [
            file("crates/a/src/lib.rs", "mod b;"),
            file("crates/a/src/b.rs", "pub mod c;"),
            file("crates/a/src/b/c.rs", ""),
            file("crates/a/src/b/d.rs", ""),
        ];
        let mut problems = Vec::new();
        check_modules(&files, &mut problems);
        assert_eq!(problems, ["crates/a/src/b/d.rs: no module contains this file"]);
    }
}
