//! Every text of the product in one reviewable file per crate: `crates/NAME/messages.txt`.
//!
//! `cargo xtask docs` writes the files; a test compares them, so that a changed message shows in
//! the diff of a change.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use crate::source::{SourceFile, TokenKind};
use crate::tidy::tracked;

/// Writes the message files and returns their paths.
pub(crate) fn write(root: &Path) -> Result<Vec<String>> {
    let mut written = Vec::new();
    for (path, text) in render(root)? {
        fs::write(root.join(&path), text).with_context(|| path.clone())?;
        written.push(path);
    }
    Ok(written)
}

/// The message files as they should be, by path.
fn render(root: &Path) -> Result<BTreeMap<String, String>> {
    let mut pages = BTreeMap::new();
    for path in tracked(root)?.iter().filter(|path| path.ends_with(".rs")) {
        let file = SourceFile::read(root, path)?;
        let Some(name) = file.product_crate() else { continue };
        let messages = messages(&file);
        if messages.is_empty() {
            continue;
        }
        let page: &mut String = pages.entry(format!("crates/{name}/messages.txt")).or_default();
        let separator = if page.is_empty() { "" } else { "\n" };
        writeln!(page, "{separator}== {path}")?;
        for message in messages {
            writeln!(page, "{}", message.trim_end().replace('\n', "\n    "))?;
        }
    }
    Ok(pages)
}

fn messages(file: &SourceFile) -> Vec<&str> {
    let literals = file.tokens.iter().filter(|token| !token.is_test);
    let texts = literals.filter_map(|token| match &token.kind {
        TokenKind::Str(text) if is_message(text) => Some(text.as_str()),
        _ => None,
    });
    texts.collect()
}

/// True for text that a person reads: at least two words, and neither SQL nor a pattern.
fn is_message(text: &str) -> bool {
    const SQL: &[&str] =
        &["SELECT ", "INSERT ", "UPDATE ", "DELETE ", "CREATE ", "ALTER ", "PRAGMA ", "WITH "];
    let words = text.split_whitespace().filter(|word| word.chars().any(|c| c.is_ascii_lowercase()));
    words.count() > 1 && !SQL.iter().any(|keyword| text.trim_start().starts_with(keyword))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::root;

    #[test]
    fn the_message_files_are_current() {
        for (path, expected) in render(&root()).unwrap() {
            let text = fs::read_to_string(root().join(&path)).unwrap_or_default();
            assert_eq!(text, expected, "{path} is stale: run `cargo xtask docs` and review the diff");
        }
    }

    #[test]
    fn only_text_of_the_product_is_a_message() {
        let text = r#"fn a() { say("two words"); run("one"); sql("SELECT a b"); }
            #[cfg(test)] mod tests { const A: &str = "not this one"; }"#;
        let file = SourceFile::parse("crates/types/src/a.rs", text).unwrap();
        assert_eq!(messages(&file), ["two words"]);
    }
}
