//! `cargo xtask lines`: product code, without blank lines, comments and tests.

use std::collections::{BTreeMap, BTreeSet};
use std::process::ExitCode;

use anyhow::Result;

use crate::root;
use crate::source::SourceFile;
use crate::tidy::tracked;

pub(crate) fn main() -> Result<ExitCode> {
    let root = root();
    let mut by_crate: BTreeMap<String, usize> = BTreeMap::new();
    for path in tracked(&root)?.iter().filter(|path| path.ends_with(".rs")) {
        let file = SourceFile::read(&root, path)?;
        if let Some(name) = file.product_crate() {
            *by_crate.entry(name.to_owned()).or_default() += code_lines(&file);
        }
    }
    for (name, lines) in &by_crate {
        println!("{name:<10} {lines:>7}");
    }
    println!("{:<10} {:>7}", "total", by_crate.values().sum::<usize>());
    Ok(ExitCode::SUCCESS)
}

/// Lines with a token that is neither a comment nor part of a test.
fn code_lines(file: &SourceFile) -> usize {
    let tokens = file.tokens.iter().filter(|token| !token.is_test);
    tokens.flat_map(|token| token.first_line..=token.last_line).collect::<BTreeSet<_>>().len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blank_lines_comments_and_tests_do_not_count() {
        let text = "//! Head.\n\n/// Doc.\nfn a() {\n    // why\n    b(\n        \"x\",\n    );\n}\n\n#[cfg(test)]\nmod tests {\n    fn t() {}\n}\n";
        let file = SourceFile::parse("crates/types/src/a.rs", text).unwrap();
        assert_eq!(code_lines(&file), 5);
    }
}
