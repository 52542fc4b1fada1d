//! The gate finds every program that a real bash or dash runs.
//!
//! `cargo xtask fuzz gate` looks for more scripts on which they disagree.

mod compare;
mod shells;

use std::path::Path;

use hermes_types::ShellKind;

use compare::{Outcome, compare};
use shells::Shells;

/// The scripts of the list: the shell, an earlier command of the session, and the script.
fn scripts() -> Vec<(ShellKind, Option<String>, String)> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus/differential.txt");
    let text = std::fs::read_to_string(path).expect("the corpus is part of the repository");
    text.split("\n%%\n")
        .filter_map(|entry| entry.trim_end_matches('\n').split_once('\n'))
        .map(|(label, script)| {
            let shell = if label.contains("sh only") { ShellKind::Sh } else { ShellKind::Bash };
            match script.split_once("\n#: then\n") {
                Some((earlier, script)) => (shell, Some(earlier.to_owned()), script.to_owned()),
                None => (shell, None, script.to_owned()),
            }
        })
        .collect()
}

#[test]
fn every_program_that_runs_is_found_or_doubted() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let shells = match Shells::new(directory.path()) {
        Ok(shells) => shells,
        Err(reason) if std::env::var_os("CI").is_none() => {
            eprintln!("skipped: {reason}");
            return;
        }
        Err(reason) => panic!("{reason}"),
    };
    let scripts = scripts();
    assert!(scripts.len() >= 100);
    let mut doubts = Vec::new();
    let mut wrong = String::new();
    for (shell, earlier, script) in &scripts {
        match compare(&shells, *shell, earlier.as_deref(), script) {
            Outcome::Agrees => {}
            Outcome::Doubted(doubt) => doubts.push(doubt.kind),
            Outcome::Disagrees(missed) => {
                wrong.push_str(&format!("{shell:?}: {earlier:?} {script}\nran {missed}\n\n"));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
    assert!(doubts.len() * 4 <= scripts.len(), "too many doubts: {doubts:?}");
}
