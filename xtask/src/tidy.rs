//! What a reader expects of the tree, checked: it runs as a test, and by hand as `cargo xtask tidy`.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::root;

/// Which workspace crates a crate may use; the page ARCHITECTURE.md has the same table.
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
    ("gateway", &["types", "store", "agent", "net"]),
    ("config", &["types", "policy", "guest", "sandbox", "net", "exec", "model", "store", "agent", "gateway"]),
    (
        "cli",
        &[
            "types", "policy", "guest", "sandbox", "net", "exec", "model", "store", "agent", "gateway",
            "config",
        ],
    ),
    ("testkit", &["types", "model"]),
];

/// Crates that must not come in, by any road.
const BANNED: &[&str] = &["openssl-sys", "native-tls", "aws-lc-sys", "eventsource-stream", "serde_yaml"];

/// Names that explain nothing.
const EMPTY_NAMES: &[&str] =
    &["core", "common", "util", "utils", "helper", "helpers", "manager", "misc", "mod"];

/// Endings of type names that explain nothing.
const EMPTY_ENDINGS: &[&str] = &["Manager", "Handler", "Service", "Helper", "Util", "Utils", "Impl", "Base"];

const LONGEST_FILE: usize = 800;

pub(crate) fn main() -> Result<ExitCode> {
    let found = check(&root())?;
    found.iter().for_each(|line| eprintln!("{line}"));
    Ok(if found.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Everything that is not as it should be, one line each.
fn check(root: &Path) -> Result<Vec<String>> {
    let files = tracked(root)?;
    let mut found = Vec::new();
    dependencies(root, &mut found)?;
    lock_file(root, &mut found)?;
    folders(root, &mut found)?;
    for file in &files {
        names(file, &mut found);
        let is_rust = file.ends_with(".rs");
        if is_rust || file.ends_with(".sh") || file.ends_with(".toml") {
            let text = fs::read_to_string(root.join(file)).with_context(|| file.clone())?;
            leftovers(file, &text, &mut found);
            if is_rust {
                rust(file, &text, &mut found);
            }
        }
    }
    Ok(found)
}

/// The files git knows, and those it would take.
fn tracked(root: &Path) -> Result<Vec<String>> {
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

fn dependencies(root: &Path, found: &mut Vec<String>) -> Result<()> {
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
            found.push(format!("crates/{name}: a crate the dependency table does not know"));
            continue;
        };
        for dependency in package["dependencies"].as_array().into_iter().flatten() {
            let Some(used) = dependency["name"].as_str().and_then(|name| name.strip_prefix("hermes-")) else {
                continue;
            };
            let for_tests = dependency["kind"] == "dev";
            if !allowed.contains(&used) && !(for_tests && (used == "testkit" || used == name)) {
                found.push(format!("crates/{name}: may not use hermes-{used}"));
            }
        }
    }
    Ok(())
}

fn lock_file(root: &Path, found: &mut Vec<String>) -> Result<()> {
    let lock = fs::read_to_string(root.join("Cargo.lock")).context("Cargo.lock")?;
    for line in lock.lines() {
        if let Some(source) = line.strip_prefix("source = ")
            && !source.starts_with("\"registry+")
        {
            found.push(format!("Cargo.lock: {source} is not a crate registry"));
        }
        if let Some(name) = line.strip_prefix("name = ")
            && BANNED.contains(&name.trim_matches('"'))
        {
            found.push(format!("Cargo.lock: {name} is banned"));
        }
    }
    Ok(())
}

/// Every crate is on the map, and the map shows no crate that is not there.
fn folders(root: &Path, found: &mut Vec<String>) -> Result<()> {
    let map = fs::read_to_string(root.join("ARCHITECTURE.md")).context("ARCHITECTURE.md")?;
    let mut there = BTreeSet::new();
    for folder in fs::read_dir(root.join("crates"))? {
        there.insert(folder?.file_name().to_string_lossy().into_owned());
    }
    let shown: BTreeSet<String> = map
        .split('`')
        .filter_map(|word| word.strip_prefix("crates/"))
        .filter_map(|rest| rest.split('/').next())
        .map(str::to_owned)
        .collect();
    found.extend(
        there.difference(&shown).map(|name| format!("ARCHITECTURE.md: does not show `crates/{name}`")),
    );
    found.extend(
        shown.difference(&there).map(|name| format!("ARCHITECTURE.md: `crates/{name}` is not there")),
    );
    let lines = map.lines().count();
    if lines > 400 {
        found.push(format!("ARCHITECTURE.md: {lines} lines, more than 400"));
    }
    Ok(())
}

fn names(file: &str, found: &mut Vec<String>) {
    let parts = file.split('/').map(|part| part.split('.').next().unwrap_or(part));
    for part in parts.filter(|part| EMPTY_NAMES.contains(part)) {
        found.push(format!("{file}: the name `{part}` explains nothing"));
    }
}

fn leftovers(file: &str, text: &str, found: &mut Vec<String>) {
    // Written in two halves, so that this file does not find itself.
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
            found.push(format!("{file}:{}: a leftover: {mark}", number + 1));
        }
    }
}

fn rust(file: &str, text: &str, found: &mut Vec<String>) {
    let lines = text.lines().count();
    if lines > LONGEST_FILE {
        found.push(format!("{file}: {lines} lines, more than {LONGEST_FILE}"));
    }
    if file.ends_with("src/lib.rs") && !text.starts_with("//!") {
        found.push(format!("{file}: does not say what the crate is for"));
    }
    for (number, line) in text.lines().enumerate() {
        let mut words = line.split_whitespace().skip_while(|word| word.starts_with("pub"));
        if !matches!(words.next(), Some("struct" | "enum" | "trait" | "type")) {
            continue;
        }
        let name = words.next().unwrap_or_default();
        let name = name.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default();
        if let Some(ending) = EMPTY_ENDINGS.iter().find(|ending| name.ends_with(**ending)) {
            found.push(format!("{file}:{}: `{name}`: {ending} explains nothing", number + 1));
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
    fn what_is_not_tidy_is_found() {
        let mut found = Vec::new();
        names("crates/exec/src/utils.rs", &mut found);
        leftovers("a.rs", concat!("// TO", "DO later\nfn f() { todo", "!() }\n"), &mut found);
        rust("a.rs", "pub(crate) struct JobManager;\nenum Fine {}\n", &mut found);
        rust("b/src/lib.rs", &"x\n".repeat(801), &mut found);
        assert_eq!(
            found,
            [
                "crates/exec/src/utils.rs: the name `utils` explains nothing",
                concat!("a.rs:1: a leftover: TO", "DO"),
                concat!("a.rs:2: a leftover: todo", "!("),
                "a.rs:1: `JobManager`: Manager explains nothing",
                "b/src/lib.rs: 801 lines, more than 800",
                "b/src/lib.rs: does not say what the crate is for",
            ]
        );
    }
}
