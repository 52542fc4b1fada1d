//! Reports missing prerequisites of tests: peers, privileges, features of the kernel.

use std::io::Write;
use std::os::unix::fs::MetadataExt;

/// Reports that a test cannot run. In CI the test fails; elsewhere a line is printed to the
/// terminal.
#[expect(clippy::disallowed_methods, reason = "the caller of the tests sets CI")]
pub fn report_missing(what: &str) {
    let message = format!("NOTHING WAS TESTED: {what}");
    let is_ci = std::env::var("CI").is_ok_and(|value| value == "true");
    assert!(!is_ci, "{message}");
    report(&message);
}

/// Reports that a test does not apply to this machine.
pub fn report_not_applicable(what: &str) {
    report(&format!("NOT APPLICABLE: {what}"));
}

/// Whether the test runs as root. If not, reports what needs it.
pub fn require_root(what: &str) -> bool {
    let is_root = std::fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0);
    if !is_root {
        report_missing(&format!("only root can {what}"));
    }
    is_root
}

/// Writes to standard error directly: the test harness hides the output of a test that passes.
fn report(message: &str) {
    let test = std::thread::current().name().unwrap_or("a test").to_owned();
    writeln!(std::io::stderr(), "{test}: {message}").ok();
}
