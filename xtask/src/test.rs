//! `cargo xtask test`: starts the peers, then runs every test.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Command, ExitCode, Stdio};
use std::thread;

use anyhow::{Context, Result};

use crate::{peers, root};

pub(crate) fn main(filters: &[String]) -> Result<ExitCode> {
    let started = peers::main(&["up".to_owned()])?;
    // Outside of CI, tests without a peer are reported and the others run.
    if started != ExitCode::SUCCESS && std::env::var("CI").is_ok_and(|value| value == "true") {
        return Ok(started);
    }
    let tests: &[&str] = if has_nextest() {
        &["nextest", "run", "--workspace"]
    } else {
        &["test", "--workspace", "--quiet", "--no-fail-fast"]
    };
    let mut run = run_cargo(tests, filters)?;
    // nextest leaves out the examples in the documentation.
    if has_nextest() && filters.is_empty() {
        run.add(&run_cargo(&["test", "--workspace", "--quiet", "--no-fail-fast", "--doc"], &[])?);
    }
    // Repeated below the results, where it is seen.
    peers::main(&["status".to_owned()])?;
    eprintln!("the peers keep running; `cargo xtask peers down` stops them");
    println!("{} passed, {} failed, {} skipped", run.totals.passed, run.totals.failed, run.totals.skipped);
    Ok(if run.is_success { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn has_nextest() -> bool {
    let mut command = Command::new(env!("CARGO"));
    command.args(["nextest", "--version"]).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Totals {
    passed: u64,
    failed: u64,
    skipped: u64,
}

impl Totals {
    fn add(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
    }
}

struct TestRun {
    is_success: bool,
    totals: Totals,
}

impl TestRun {
    fn add(&mut self, other: &Self) {
        self.is_success &= other.is_success;
        self.totals.add(other.totals);
    }
}

/// Runs cargo, shows its output, and adds up the numbers in its summaries.
fn run_cargo(args: &[&str], filters: &[String]) -> Result<TestRun> {
    let mut command = Command::new(env!("CARGO"));
    command.args(args).args(filters).current_dir(root());
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("{command:?}"))?;
    let (stdout, stderr) =
        (child.stdout.take().context("no output")?, child.stderr.take().context("no output")?);
    let errors = thread::spawn(move || forward(stderr, std::io::stderr()));
    let mut totals = forward(stdout, std::io::stdout())?;
    if let Ok(found) = errors.join() {
        totals.add(found?);
    }
    Ok(TestRun { is_success: child.wait()?.success(), totals })
}

fn forward(from: impl Read, mut to: impl Write) -> Result<Totals> {
    let mut totals = Totals::default();
    let mut from = BufReader::new(from);
    let mut line = Vec::new();
    while from.read_until(b'\n', &mut line)? > 0 {
        to.write_all(&line)?;
        to.flush()?;
        totals.add(totals_in(&String::from_utf8_lossy(&line)));
        line.clear();
    }
    Ok(totals)
}

/// The numbers of a summary line of nextest or of the test harness.
fn totals_in(line: &str) -> Totals {
    let mut totals = Totals::default();
    let summary = line.trim_start();
    if !summary.starts_with("test result:") && !summary.starts_with("Summary [") {
        return totals;
    }
    let words: Vec<&str> = summary.split_whitespace().collect();
    for pair in words.windows(2) {
        let (Some(word), Some(Ok(count))) = (pair.get(1), pair.first().map(|count| count.parse::<u64>()))
        else {
            continue;
        };
        match word.trim_end_matches([',', ';']) {
            "passed" => totals.passed += count,
            "failed" => totals.failed += count,
            "timed" => totals.failed += count,
            "skipped" | "ignored" => totals.skipped += count,
            _ => {}
        }
    }
    totals
}

#[cfg(test)]
mod tests {
    use super::{Totals, totals_in};

    #[test]
    fn summaries_of_both_test_runners_are_read() {
        let totals = |passed, failed, skipped| Totals { passed, failed, skipped };
        for (line, expected) in [
            (
                "     Summary [ 892.1s] 2077 tests run: 2074 passed (1 flaky), 2 failed, 1 timed out, 4 skipped",
                totals(2074, 3, 4),
            ),
            (
                "test result: FAILED. 3 passed; 1 failed; 2 ignored; 0 measured; 0 filtered out; finished in 0.1s",
                totals(3, 1, 2),
            ),
            ("running 3 tests; 2 passed", Totals::default()),
        ] {
            assert_eq!(totals_in(line), expected, "{line}");
        }
    }
}
