//! A YAML document as a tree that records the position of every value.
//!
//! A scalar keeps its text and its quoting: the setting that reads it decides what `off` or `0644`
//! means. Anchors, aliases and merge keys (`<<`) are followed within limits. A duplicate key, a
//! second document or a key that is not text is an error, because a guess could select the wrong
//! environment for commands.

use std::borrow::Cow;
use std::collections::HashMap;
use std::ops::Range;

pub use granit_parser::ScalarStyle;
use granit_parser::{Event, Parser, Span, StrInput};
use serde_json::{Map, Value};
use thiserror::Error;

const MAX_BYTES: usize = 4 << 20;
const MAX_DEPTH: usize = 64;
/// Counted after aliases are followed.
const MAX_NODES: usize = 100_000;

/// A position in a file; line and column start at 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Position {
    pub line: usize,
    /// In characters.
    pub column: usize,
}

/// A syntax error, or an unsupported document.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{message}")]
pub struct YamlError {
    pub at: Position,
    pub message: String,
}

/// A value of a document.
#[derive(Debug, Clone, PartialEq)]
pub struct Node {
    pub kind: NodeKind,
    pub at: Position,
    /// Its bytes in the text. For a block scalar, the content without the header.
    pub span: Range<usize>,
    /// Whether it has an anchor or a tag, or comes from an alias or a merge key, so that it cannot be
    /// edited in place. Otherwise the text at `span` is this value only.
    pub is_shared: bool,
}

#[derive(Debug, Clone, PartialEq)]
pub enum NodeKind {
    /// Empty, `~` or `null`.
    Null,
    Scalar {
        /// Unquoted.
        text: String,
        style: ScalarStyle,
    },
    List(Vec<Node>),
    /// In file order.
    Map(Vec<MapEntry>),
}

/// A key of a mapping with its value.
#[derive(Debug, Clone, PartialEq)]
pub struct MapEntry {
    pub key: String,
    /// The position of the key.
    pub at: Position,
    /// The bytes of the key in the text.
    pub span: Range<usize>,
    /// Whether it comes from a merge key (`<<`).
    pub is_merged: bool,
    pub value: Node,
}

impl Node {
    /// A node from a variable or the command line, without a position.
    pub fn from_text(text: &str) -> Self {
        Self {
            kind: NodeKind::Scalar { text: text.to_owned(), style: ScalarStyle::Plain },
            at: Position::default(),
            span: 0..0,
            is_shared: true,
        }
    }

    /// An empty node without a position.
    pub(crate) fn null() -> Self {
        Self { kind: NodeKind::Null, at: Position::default(), span: 0..0, is_shared: false }
    }

    /// The value of a key, if this is a mapping that has it.
    pub fn get(&self, key: &str) -> Option<&Node> {
        self.entry(key).map(|entry| &entry.value)
    }

    /// The entry of a key, if this is a mapping that has it.
    pub fn entry(&self, key: &str) -> Option<&MapEntry> {
        match &self.kind {
            NodeKind::Map(entries) => entries.iter().find(|entry| entry.key == key),
            _ => None,
        }
    }

    /// The type of the value, for messages.
    pub fn describe(&self) -> &'static str {
        match &self.kind {
            NodeKind::Null => "nothing",
            NodeKind::List(_) => "a list",
            NodeKind::Map(_) => "a map",
            NodeKind::Scalar { style: ScalarStyle::Plain, text } => match plain_meaning(text) {
                Value::Bool(_) => "true or false",
                Value::Number(_) => "a number",
                _ => "text",
            },
            NodeKind::Scalar { .. } => "text",
        }
    }

    /// The value as JSON, plain scalars read as PyYAML would.
    pub fn to_json(&self) -> Value {
        match &self.kind {
            NodeKind::Null => Value::Null,
            NodeKind::Scalar { text, style: ScalarStyle::Plain } => plain_meaning(text),
            NodeKind::Scalar { text, .. } => Value::String(text.clone()),
            NodeKind::List(items) => Value::Array(items.iter().map(Node::to_json).collect()),
            NodeKind::Map(entries) => Value::Object(
                entries.iter().map(|e| (e.key.clone(), e.value.to_json())).collect::<Map<_, _>>(),
            ),
        }
    }
}

/// The meaning of an unquoted scalar in YAML 1.1, the dialect of PyYAML.
pub(crate) fn plain_meaning(text: &str) -> Value {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Value::Null,
        "true" | "True" | "TRUE" | "yes" | "Yes" | "YES" | "on" | "On" | "ON" => return Value::Bool(true),
        "false" | "False" | "FALSE" | "no" | "No" | "NO" | "off" | "Off" | "OFF" => {
            return Value::Bool(false);
        }
        _ => {}
    }
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    let looks_numeric = digits.starts_with(|c: char| c.is_ascii_digit() || c == '.')
        && digits.bytes().all(|b| b.is_ascii_digit() || matches!(b, b'.' | b'e' | b'E' | b'+' | b'-'));
    if looks_numeric {
        if let Ok(whole) = text.parse::<i64>() {
            return Value::from(whole);
        }
        // A float in YAML 1.1 has a point; `1e3` without one is text.
        if digits.contains('.')
            && let Ok(float) = text.parse::<f64>()
        {
            return Value::from(float);
        }
    }
    Value::String(text.to_owned())
}

/// A document with its comments.
#[derive(Debug, Clone, PartialEq)]
pub struct Document {
    /// The value of the whole text; `Null` if there are only comments.
    pub root: Node,
    /// The bytes of every comment, in order, from its `#` to the end of its line.
    pub comments: Vec<Range<usize>>,
}

/// Parses a text. A text with only comments is `Null`.
pub fn parse(text: &str) -> Result<Node, YamlError> {
    parse_document(text).map(|document| document.root)
}

/// Parses a text with its comments.
pub fn parse_document(text: &str) -> Result<Document, YamlError> {
    if text.len() > MAX_BYTES {
        return Err(YamlError { at: Position::default(), message: format!("larger than {MAX_BYTES} bytes") });
    }
    if let Some(index) = text.find('\0') {
        let line = text.bytes().take(index).filter(|&b| b == b'\n').count() + 1;
        let message = "a NUL byte; this is not a text file".to_owned();
        return Err(YamlError { at: Position { line, column: 1 }, message });
    }
    let body = text.strip_prefix('\u{feff}').unwrap_or(text);
    let reader = YamlReader {
        parser: Parser::new_from_str(body),
        bom_bytes: text.len() - body.len(),
        text,
        anchors: HashMap::new(),
        comments: Vec::new(),
        nodes: 0,
    };
    reader.document()
}

struct YamlReader<'a> {
    parser: Parser<'a, StrInput<'a>>,
    /// The length of the byte order mark, which is cut off before parsing.
    bom_bytes: usize,
    text: &'a str,
    anchors: HashMap<usize, Node>,
    comments: Vec<Range<usize>>,
    nodes: usize,
}

impl<'a> YamlReader<'a> {
    fn document(mut self) -> Result<Document, YamlError> {
        let mut root = None;
        loop {
            let (event, span) = self.event()?;
            match event {
                Event::StreamEnd => break,
                Event::DocumentStart(..) if root.is_some() => {
                    return Err(error(span, "a second document; only one is read"));
                }
                Event::StreamStart | Event::DocumentStart(..) | Event::DocumentEnd => {}
                event => root = Some(self.node(event, span, 0)?),
            }
        }
        let at = Position { line: 1, column: 1 };
        let end = self.text.len();
        let empty = Node { at, span: end..end, ..Node::null() };
        Ok(Document { root: root.unwrap_or(empty), comments: self.comments })
    }

    /// The next event that is not a comment.
    fn event(&mut self) -> Result<(Event<'a>, Span), YamlError> {
        loop {
            match self.parser.next() {
                None => return Ok((Event::StreamEnd, Span::default())),
                Some(Ok((Event::Comment(..), span))) => self.comments.push(self.bytes(span)),
                Some(Ok(pair)) => return Ok(pair),
                Some(Err(scan)) => {
                    let at = Position { line: scan.marker().line(), column: scan.marker().col() + 1 };
                    return Err(YamlError { at, message: scan.info() });
                }
            }
        }
    }

    fn bytes(&self, span: Span) -> Range<usize> {
        let Range { start, end } = span.byte_range().unwrap_or_default();
        start + self.bom_bytes..end + self.bom_bytes
    }

    fn node(&mut self, event: Event<'a>, span: Span, depth: usize) -> Result<Node, YamlError> {
        if depth > MAX_DEPTH {
            return Err(error(span, "nested too deeply"));
        }
        self.count(1, span)?;
        let at = position(span);
        let Range { start, end } = self.bytes(span);
        let (kind, end, anchor, tagged) = match event {
            Event::Alias(id) => {
                let target = self.anchors.get(&id).cloned();
                let target = target.ok_or_else(|| error(span, "an alias inside its own anchor"))?;
                self.count(size(&target), span)?;
                return Ok(Node { kind: target.kind, at, span: start..end, is_shared: true });
            }
            Event::Scalar(text, style, anchor, tag) => {
                let tagged = tag.is_some();
                let is_block = matches!(style, ScalarStyle::Literal | ScalarStyle::Folded);
                // The parser ends a block scalar only at the first character of the next line.
                let content = self.text.get(start..end).filter(|_| is_block);
                let end = content.map_or(end, |text| start + text.trim_end_matches([' ', '\t']).len());
                (scalar_kind(&text, style, tag.map(Cow::into_owned).as_ref()), end, anchor, tagged)
            }
            Event::SequenceStart(_, anchor, tag) => {
                let (items, end) = self.list(end, depth)?;
                (NodeKind::List(items), end, anchor, tag.is_some())
            }
            Event::MappingStart(_, anchor, tag) => {
                let (entries, end) = self.map(end, depth)?;
                (NodeKind::Map(entries), end, anchor, tag.is_some())
            }
            _ => return Err(error(span, "an unexpected end")),
        };
        let node = Node { kind, at, span: start..end.max(start), is_shared: anchor != 0 || tagged };
        if anchor != 0 {
            self.anchors.insert(anchor, node.clone());
        }
        Ok(node)
    }

    fn list(&mut self, start: usize, depth: usize) -> Result<(Vec<Node>, usize), YamlError> {
        let mut items: Vec<Node> = Vec::new();
        loop {
            match self.event()? {
                (Event::SequenceEnd, span) => {
                    let last = items.last().map(|item| item.span.end);
                    return Ok((items, self.collection_end(span, last, start)));
                }
                (event, span) => items.push(self.node(event, span, depth + 1)?),
            }
        }
    }

    fn map(&mut self, start: usize, depth: usize) -> Result<(Vec<MapEntry>, usize), YamlError> {
        let mut entries: Vec<MapEntry> = Vec::new();
        let mut merged: Vec<MapEntry> = Vec::new();
        let mut last = None;
        loop {
            let (event, span) = self.event()?;
            if matches!(event, Event::MappingEnd) {
                let end = self.collection_end(span, last, start);
                for entry in merged {
                    if !entries.iter().any(|own| own.key == entry.key) {
                        entries.push(entry);
                    }
                }
                return Ok((entries, end));
            }
            let key = self.node(event, span, depth + 1)?;
            let (event, value_span) = self.event()?;
            let value = self.node(event, value_span, depth + 1)?;
            last = Some(value.span.end.max(key.span.end));
            let name = match key.kind {
                NodeKind::Scalar { text, .. } => text,
                NodeKind::Null => "null".to_owned(),
                NodeKind::List(_) | NodeKind::Map(_) => return Err(error(span, "a key that is not text")),
            };
            if name == "<<" {
                merge(&value, span, &mut merged)?;
                continue;
            }
            if let Some(first) = entries.iter().find(|entry| entry.key == name) {
                let message =
                    format!("duplicate key `{name}` (also on line {}); remove one of them", first.at.line);
                return Err(error(span, &message));
            }
            entries.push(MapEntry { key: name, at: key.at, span: key.span, is_merged: false, value });
        }
    }

    fn count(&mut self, nodes: usize, span: Span) -> Result<(), YamlError> {
        self.nodes += nodes;
        if self.nodes > MAX_NODES { Err(error(span, "too many values")) } else { Ok(()) }
    }

    /// The end of a flow collection is its bracket. The end of a block collection has no width; the
    /// end of its last value is used.
    fn collection_end(&self, span: Span, last: Option<usize>, start: usize) -> usize {
        let Range { start: bracket, end } = self.bytes(span);
        if end > bracket { end } else { last.unwrap_or(start) }
    }
}

fn scalar_kind(text: &str, style: ScalarStyle, tag: Option<&granit_parser::Tag>) -> NodeKind {
    let is_string = tag.is_some_and(|tag| tag.suffix() == "str");
    if style == ScalarStyle::Plain && !is_string && plain_meaning(text).is_null() {
        NodeKind::Null
    } else {
        let style = if is_string { ScalarStyle::DoubleQuoted } else { style };
        NodeKind::Scalar { text: text.to_owned(), style }
    }
}

fn merge(value: &Node, span: Span, into: &mut Vec<MapEntry>) -> Result<(), YamlError> {
    match &value.kind {
        NodeKind::Map(entries) => {
            for entry in entries {
                if !into.iter().any(|known| known.key == entry.key) {
                    into.push(MapEntry { is_merged: true, ..entry.clone() });
                }
            }
            Ok(())
        }
        NodeKind::List(items) => items.iter().try_for_each(|item| merge(item, span, into)),
        _ => Err(error(span, "`<<` requires a map")),
    }
}

fn size(node: &Node) -> usize {
    match &node.kind {
        NodeKind::Null | NodeKind::Scalar { .. } => 1,
        NodeKind::List(items) => 1 + items.iter().map(size).sum::<usize>(),
        NodeKind::Map(entries) => 1 + entries.iter().map(|entry| 1 + size(&entry.value)).sum::<usize>(),
    }
}

fn position(span: Span) -> Position {
    Position { line: span.start.line(), column: span.start.col() + 1 }
}

fn error(span: Span, message: &str) -> YamlError {
    YamlError { at: position(span), message: message.to_owned() }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn plain_scalars_have_the_meaning_of_pyyaml() {
        let cases = [
            ("yes", json!(true)),
            ("Off", json!(false)),
            ("~", json!(null)),
            ("-12", json!(-12)),
            ("1.50", json!(1.5)),
            ("1e3", json!("1e3")),
            ("3.11.7", json!("3.11.7")),
            ("nikolaik/python:3", json!("nikolaik/python:3")),
            (".", json!(".")),
        ];
        for (text, expected) in cases {
            assert_eq!(plain_meaning(text), expected, "{text}");
        }
    }

    #[test]
    fn spans_are_exact_for_every_style() {
        let text = "\u{feff}é: \"x y\" # c\nb: 'it''s'  # c\nc: plain # c\nd: [1, {e: f}] # c\ng: !!str 5\n";
        let root = parse(text).unwrap();
        let piece = |key: &str| text.get(root.get(key).unwrap().span.clone()).unwrap();
        assert_eq!(piece("é"), "\"x y\"");
        assert_eq!(piece("b"), "'it''s'");
        assert_eq!(piece("c"), "plain");
        assert_eq!(piece("d"), "[1, {e: f}]");
        assert_eq!(piece("g"), "5");
        assert_eq!(root.get("c").unwrap().at, Position { line: 3, column: 4 });
    }

    #[test]
    fn anchors_aliases_and_merge_keys_are_followed() {
        let root = parse("base: &b {x: 1, y: 2}\nuse:\n  <<: *b\n  y: 3\nagain: *b\n").unwrap();
        assert_eq!(
            root.to_json(),
            json!({"base": {"x": 1, "y": 2}, "use": {"y": 3, "x": 1}, "again": {"x": 1, "y": 2}})
        );
    }

    #[test]
    fn ambiguous_or_hostile_documents_are_refused() {
        let bomb = (0..30).fold("a0: &a0 [x,x,x,x,x,x,x,x,x]\n".to_owned(), |text, i| {
            format!("{text}a{0}: &a{0} [*a{i},*a{i},*a{i},*a{i},*a{i},*a{i},*a{i},*a{i},*a{i}]\n", i + 1)
        });
        let cases = [
            ("a: 1\nb: 2\na: 3\n", "duplicate key `a` (also on line 1); remove one of them", 3),
            ("a: 1\n---\nb: 2\n", "a second document; only one is read", 2),
            ("? [a]\n: 1\n", "a key that is not text", 1),
            (&format!("{}{}", "[".repeat(100), "]".repeat(100)), "nested too deeply", 1),
            (&bomb, "too many values", 6),
        ];
        for (text, message, line) in cases {
            let error = parse(text).unwrap_err();
            assert_eq!((error.message.as_str(), error.at.line), (message, line));
        }
    }
}
