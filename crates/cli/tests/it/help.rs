//! The help pages, compared with `tests/snapshots/help.txt`.

use std::fs;

#[path = "../../examples/help.rs"]
#[expect(dead_code, reason = "the test does not call the main function of the example")]
mod example;

#[test]
fn the_help_snapshot_is_fresh() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/snapshots/help.txt");
    let snapshot = fs::read_to_string(path).unwrap_or_default();
    let pages = example::help_pages();
    assert!(snapshot == pages, "tests/snapshots/help.txt is stale; run `cargo xtask docs`");
}
