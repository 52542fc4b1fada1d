//! Rust source as tokens, for the checks that look at names, literals and line counts.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, anyhow};
use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};

/// One token, with the lines it covers.
#[derive(Debug, Clone)]
pub(crate) struct Token {
    pub(crate) kind: TokenKind,
    pub(crate) first_line: usize,
    pub(crate) last_line: usize,
    /// Inside an item marked `#[cfg(test)]` or `#[test]`.
    pub(crate) is_test: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum TokenKind {
    Ident(String),
    /// The content of a string literal, with the simple escapes resolved.
    Str(String),
    Other(char),
}

/// A Rust file of the repository.
pub(crate) struct SourceFile {
    /// Path from the top of the repository.
    pub(crate) path: String,
    pub(crate) tokens: Vec<Token>,
}

impl SourceFile {
    pub(crate) fn read(root: &Path, path: &str) -> Result<Self> {
        let text = fs::read_to_string(root.join(path)).with_context(|| path.to_owned())?;
        Self::parse(path, &text)
    }

    pub(crate) fn parse(path: &str, text: &str) -> Result<Self> {
        let stream: TokenStream = text.parse().map_err(|error| anyhow!("{path}: {error}"))?;
        let mut tokens = Vec::new();
        flatten(stream, is_test_path(path), &mut tokens);
        Ok(Self { path: path.to_owned(), tokens })
    }

    /// Whether it contains `mod name`.
    pub(crate) fn declares_module(&self, name: &str) -> bool {
        let is = |token: &Token, word: &str| matches!(&token.kind, TokenKind::Ident(text) if text == word);
        self.tokens
            .windows(2)
            .any(|pair| matches!(pair, [first, second] if is(first, "mod") && is(second, name)))
    }

    /// The crate, if this file is part of a crate that ships.
    pub(crate) fn product_crate(&self) -> Option<&str> {
        let (name, rest) = self.path.strip_prefix("crates/")?.split_once('/')?;
        (rest.starts_with("src/") && name != "testkit" && !is_test_path(&self.path)).then_some(name)
    }
}

fn is_test_path(path: &str) -> bool {
    path.contains("/tests/") || path.ends_with("/tests.rs")
}

fn flatten(stream: TokenStream, is_test: bool, tokens: &mut Vec<Token>) {
    let mut trees = stream.into_iter().peekable();
    // True from a test attribute to the end of the item it marks.
    let mut in_test_item = false;
    while let Some(tree) = trees.next() {
        let is_test = is_test || in_test_item;
        match tree {
            TokenTree::Punct(punct) if punct.as_char() == '#' => {
                trees.next_if(|next| matches!(next, TokenTree::Punct(bang) if bang.as_char() == '!'));
                let attribute = match trees.peek() {
                    Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Bracket => group.clone(),
                    _ => {
                        push(TokenKind::Other('#'), punct.span(), is_test, tokens);
                        continue;
                    }
                };
                trees.next();
                if is_doc(&attribute) {
                    continue;
                }
                in_test_item |= marks_test(&attribute);
                push(TokenKind::Other('#'), punct.span(), is_test || in_test_item, tokens);
                push_group(&attribute, is_test || in_test_item, tokens);
            }
            TokenTree::Group(group) => {
                push_group(&group, is_test, tokens);
                if group.delimiter() == Delimiter::Brace {
                    in_test_item = false;
                }
            }
            TokenTree::Punct(punct) => {
                push(TokenKind::Other(punct.as_char()), punct.span(), is_test, tokens);
                if punct.as_char() == ';' {
                    in_test_item = false;
                }
            }
            TokenTree::Ident(ident) => {
                push(TokenKind::Ident(ident.to_string()), ident.span(), is_test, tokens);
            }
            TokenTree::Literal(literal) => {
                let kind = string_content(&literal.to_string()).map_or(TokenKind::Other('0'), TokenKind::Str);
                push(kind, literal.span(), is_test, tokens);
            }
        }
    }
}

fn push(kind: TokenKind, span: proc_macro2::Span, is_test: bool, tokens: &mut Vec<Token>) {
    tokens.push(Token { kind, first_line: span.start().line, last_line: span.end().line, is_test });
}

fn push_group(group: &Group, is_test: bool, tokens: &mut Vec<Token>) {
    push(TokenKind::Other('('), group.span_open(), is_test, tokens);
    flatten(group.stream(), is_test, tokens);
    push(TokenKind::Other(')'), group.span_close(), is_test, tokens);
}

fn is_doc(attribute: &Group) -> bool {
    matches!(attribute.stream().into_iter().next(), Some(TokenTree::Ident(ident)) if ident == "doc")
}

/// True for `#[cfg(test)]`, `#[test]` and `#[tokio::test]`.
fn marks_test(attribute: &Group) -> bool {
    let text = attribute.stream().to_string().replace(' ', "");
    text == "test" || text.starts_with("tokio::test") || text == "cfg(test)"
}

/// The content of a string literal; `None` for numbers, characters and byte strings.
fn string_content(literal: &str) -> Option<String> {
    if let Some(raw) = literal.strip_prefix('r') {
        let raw = raw.trim_start_matches('#').trim_end_matches('#');
        return Some(raw.strip_prefix('"')?.strip_suffix('"')?.to_owned());
    }
    let quoted = literal.strip_prefix('"')?.strip_suffix('"')?;
    let mut content = String::new();
    let mut chars = quoted.chars().peekable();
    while let Some(c) = chars.next() {
        if c != '\\' {
            content.push(c);
            continue;
        }
        match chars.next() {
            Some('\n') => while chars.next_if(|c| c.is_whitespace()).is_some() {},
            Some('n') => content.push('\n'),
            Some('"') => content.push('"'),
            Some(other) => content.extend(['\\', other]),
            None => {}
        }
    }
    Some(content)
}
