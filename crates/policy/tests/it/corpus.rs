//! Lists of ordinary, dangerous and look-alike commands, judged with and without access to the
//! host.

use std::path::Path;

use hermes_policy::Gate;
use hermes_types::{Egress, Job, Origin, Reach};

use crate::support::{CWD, moment, origin, origin_with_egress, report, report_with};

struct Entry {
    label: String,
    command: String,
}

fn read(name: &str) -> Vec<Entry> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus").join(name);
    let text = std::fs::read_to_string(path).expect("the corpus is part of the repository");
    text.split("\n%%\n")
        .map(|entry| entry.trim_end_matches('\n'))
        .map(|entry| match entry.split_once('\n') {
            Some((label, command)) if label.starts_with("#: ") => {
                Entry { label: label.trim_start_matches("#: ").to_owned(), command: command.to_owned() }
            }
            _ => Entry { label: String::new(), command: entry.to_owned() },
        })
        .filter(|entry| !entry.command.is_empty())
        .collect()
}

/// Asserts that at most one in fifty of these commands asks or is refused.
fn assert_few_ask(name: &str, origin: &Origin) {
    let entries = read(name);
    let stopped: Vec<String> = entries
        .iter()
        .filter_map(|entry| {
            let report = Gate::default().report(&Job::shell(&entry.command, CWD), origin, moment());
            let ids: Vec<&str> = report.rules.iter().map(|rule| rule.id).collect();
            (report.verdict != "allow").then(|| format!("{} {ids:?}", entry.command))
        })
        .collect();
    assert!(
        stopped.len() * 50 <= entries.len(),
        "{} of {} are stopped:\n{}",
        stopped.len(),
        entries.len(),
        stopped.join("\n")
    );
}

#[test]
fn ordinary_commands_run_without_a_question() {
    assert!(read("ordinary.txt").len() >= 500);
    assert_few_ask("ordinary.txt", &origin(Reach::Host));
    assert_few_ask("ordinary-more.txt", &origin(Reach::Host));
}

#[test]
fn ordinary_commands_run_without_a_question_where_they_can_only_send_data() {
    let origin = origin_with_egress(Reach::Nothing, Egress::ALL);
    assert_few_ask("ordinary.txt", &origin);
    assert_few_ask("ordinary-more.txt", &origin);
}

#[test]
fn commands_that_only_look_dangerous_run_without_a_question() {
    assert_few_ask("near-misses.txt", &origin(Reach::Host));
}

#[test]
fn no_dangerous_command_runs_unasked_and_the_floor_refuses() {
    let mut entries = read("dangerous.txt");
    entries.extend(read("dangerous-more.txt"));
    assert!(entries.len() >= 2000);
    let passed: Vec<String> = entries
        .iter()
        .filter_map(|entry| {
            let report = report(&entry.command);
            let refused = report.verdict == "deny" && report.floor;
            let wrong = if entry.label.starts_with("floor") { !refused } else { report.verdict == "allow" };
            wrong.then(|| format!("{} ({}): {}", entry.label, report.verdict, entry.command))
        })
        .collect();
    assert!(passed.is_empty(), "{} of {} pass:\n{}", passed.len(), entries.len(), passed.join("\n"));
}

#[test]
fn every_rule_matches_its_examples_and_ignores_the_others() {
    let entries = read("rules.txt");
    assert!(entries.len() >= 500);
    for entry in entries {
        let (label, rule) = entry.label.split_once(' ').expect("a label is a tier and a rule");
        let report = report(&entry.command);
        let is_matched = report.rules.iter().any(|found| found.id == rule);
        assert_eq!(is_matched, label != "ignores", "{rule}: {}: {:?}", entry.command, report.rules);
        assert!(label != "floor" || report.verdict == "deny", "{}", entry.command);
    }
}

#[test]
fn nothing_asks_without_access_to_the_host() {
    for name in
        ["ordinary.txt", "ordinary-more.txt", "near-misses.txt", "dangerous.txt", "dangerous-more.txt"]
    {
        for entry in read(name) {
            let report = report_with(&entry.command, Reach::Nothing);
            assert_eq!(report.verdict, "allow", "{}", entry.command);
        }
    }
}

#[test]
fn the_floor_holds_with_access_to_one_directory_of_the_owner() {
    for entry in read("dangerous.txt").iter().filter(|entry| entry.label.starts_with("floor")) {
        let report = report_with(&entry.command, Reach::Directories(vec!["/workspace".to_owned()]));
        assert_eq!((report.verdict, report.floor), ("deny", true), "{}", entry.command);
    }
}
