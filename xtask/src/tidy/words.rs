//! Words that a name or a text may not use, and type names that must be unique.

use std::collections::BTreeMap;

use crate::source::{SourceFile, Token, TokenKind};

/// Words that may not be part of an identifier: metaphors, and words that name no actor.
const BANNED_IN_NAMES: &[&str] = &[
    "album", "anew", "artist", "aside", "bait", "beside", "bluff", "carrier", "clerk", "deed", "deeds",
    "depot", "desk", "door", "doors", "errand", "eyes", "hall", "halls", "hole", "holes", "house", "keeper",
    "letter", "letters", "manner", "manners", "mind", "nobody", "occasion", "office", "patience", "road",
    "roads", "ruin", "scene", "seat", "shelf", "somebody", "told", "untold", "venue", "visit", "visitor",
    "whoever", "wish", "yard",
];

/// Words and phrases that may not be part of a text.
const BANNED_IN_TEXTS: &[&str] = &[
    "whoever", "nobody", "somebody", "anew", "beside", "meanwhile", "under way", "let in", "is told",
    "was told",
];

/// The same type name in two crates is confusing, except for these.
const SHARED_TYPE_NAMES: &[&str] = &["Client", "Config", "Error"];

/// Reports banned words in the names and texts of one file.
pub(super) fn check_words(file: &SourceFile, problems: &mut Vec<String>) {
    // The lists above would report themselves.
    if file.path.ends_with("tidy/words.rs") {
        return;
    }
    for token in &file.tokens {
        match &token.kind {
            TokenKind::Ident(name) => {
                if let Some(word) = words_of(name).find(|word| BANNED_IN_NAMES.contains(&word.as_str())) {
                    problems
                        .push(format!("{}:{}: `{name}` uses the word `{word}`", file.path, token.first_line));
                }
            }
            TokenKind::Str(text) if text.contains(' ') => {
                let padded =
                    format!(" {} ", text.to_lowercase().replace(|c: char| !c.is_alphanumeric(), " "));
                for word in BANNED_IN_TEXTS.iter().filter(|word| padded.contains(&format!(" {word} "))) {
                    problems.push(format!("{}:{}: a text uses `{word}`", file.path, token.first_line));
                }
            }
            _ => {}
        }
    }
}

/// The words of an identifier, in lower case.
fn words_of(name: &str) -> impl Iterator<Item = String> {
    let mut words = vec![String::new()];
    let mut after_lower = false;
    for c in name.chars() {
        if c == '_' || (c.is_uppercase() && after_lower) {
            words.push(String::new());
        }
        after_lower = c.is_lowercase();
        if let Some(word) = words.last_mut().filter(|_| c != '_') {
            word.extend(c.to_lowercase());
        }
    }
    words.into_iter()
}

/// Reports public type names that occur more than once in the product.
pub(super) fn check_unique_types(files: &[SourceFile], problems: &mut Vec<String>) {
    let mut places: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for file in files.iter().filter(|file| file.product_crate().is_some()) {
        for (name, line) in public_types(&file.tokens) {
            places.entry(name).or_default().push(format!("{}:{line}", file.path));
        }
    }
    for (name, places) in places {
        if places.len() > 1 && !SHARED_TYPE_NAMES.contains(&name) {
            problems.push(format!(
                "the type name `{name}` is used {} times: {}",
                places.len(),
                places.join(", ")
            ));
        }
    }
}

/// Types declared `pub` or `pub(crate)` outside of tests, with their lines.
fn public_types(tokens: &[Token]) -> impl Iterator<Item = (&str, usize)> {
    tokens.windows(2).enumerate().filter_map(|(at, pair)| {
        let [
            Token { kind: TokenKind::Ident(keyword), is_test: false, .. },
            Token { kind: TokenKind::Ident(name), first_line, .. },
        ] = pair
        else {
            return None;
        };
        let is_type = matches!(keyword.as_str(), "struct" | "enum" | "trait" | "type" | "union");
        (is_type && is_public(&tokens[..at])).then_some((name.as_str(), *first_line))
    })
}

/// True if the tokens end with `pub` or `pub(…)`.
fn is_public(before: &[Token]) -> bool {
    let is_pub = |token: &Token| token.kind == TokenKind::Ident("pub".to_owned());
    match before {
        [.., last] if is_pub(last) => true,
        [.., first, open, _, close] => {
            is_pub(first) && open.kind == TokenKind::Other('(') && close.kind == TokenKind::Other(')')
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, text: &str) -> SourceFile {
        SourceFile::parse(path, text).unwrap()
    }

    #[test]
    fn banned_words_are_reported() {
        let mut problems = Vec::new();
        let text = "struct OutboxOffice;\nfn is_told() -> &'static str { \"nobody is here\" }\nfn fine() { \"nobody\"; }";
        check_words(&file("a.rs", text), &mut problems);
        assert_eq!(
            problems,
            [
                "a.rs:1: `OutboxOffice` uses the word `office`",
                "a.rs:2: `is_told` uses the word `told`",
                "a.rs:2: a text uses `nobody`",
            ]
        );
    }

    #[test]
    fn a_public_type_name_is_unique() {
        let files = [
            file("crates/a/src/lib.rs", "pub struct Plan; struct Own; pub enum Error {}"),
            file("crates/b/src/lib.rs", "pub(crate) enum Plan {} struct Own; pub enum Error {}"),
        ];
        let mut problems = Vec::new();
        check_unique_types(&files, &mut problems);
        assert_eq!(
            problems,
            ["the type name `Plan` is used 2 times: crates/a/src/lib.rs:1, crates/b/src/lib.rs:1"]
        );
    }
}
