//! The gate finds every program that a real bash or dash runs.
//!
//! `cargo xtask fuzz gate` looks for more scripts on which they disagree.

mod compare;
mod shells;

use std::path::Path;

use compare::{Outcome, compare, entries};
use shells::Shells;

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
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus/differential.txt");
    let scripts = entries(&std::fs::read_to_string(path).expect("the corpus is part of the repository"));
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
