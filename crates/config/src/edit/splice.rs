//! Finds the bytes of a value in a YAML text and replaces them.

use std::ops::Range;

use serde_json::{Value, json};

use super::render::{ScalarContext, block, flow, is_empty, is_nested, scalar, style_of};
use super::{EditError, PathStep, dotted_path, set, unset};
use crate::yaml::{Document, MapEntry, Node, NodeKind, ScalarStyle};

/// The position of a value, after the `:` of a key or the `-` of an item.
#[derive(Clone, Copy)]
struct EditSlot<'a> {
    value: &'a Node,
    /// The byte after the `:` or `-`.
    after: usize,
    /// Spaces before the key or the dash.
    indent: usize,
    layout: SlotLayout,
}

/// The notation of the collection that holds a value.
#[derive(Clone, Copy, PartialEq, Eq)]
enum SlotLayout {
    Block,
    Flow,
    Item,
}

pub(super) struct YamlEditor<'a> {
    text: &'a str,
    root: &'a Node,
    comments: &'a [Range<usize>],
}

impl<'a> YamlEditor<'a> {
    pub(super) fn new(text: &'a str, document: &'a Document) -> Self {
        Self { text, root: &document.root, comments: &document.comments }
    }

    pub(super) fn set(&self, path: &[PathStep], value: &Value) -> Result<String, EditError> {
        let mut slot: Option<EditSlot<'a>> = None;
        let mut node = self.root;
        for (depth, step) in path.iter().enumerate() {
            let here = || dotted_path(path.get(..depth).unwrap_or_default());
            let rest = path.get(depth + 1..).unwrap_or_default();
            if node.is_shared {
                return Err(EditError::Shared(here()));
            }
            match (step, &node.kind) {
                (PathStep::Key(key), NodeKind::Map(entries)) => {
                    match entries.iter().find(|e| e.key == *key) {
                        Some(entry) if !entry.is_merged => {
                            slot = Some(self.entry_slot(node, entry)?);
                            node = &entry.value;
                        }
                        _ => return self.insert(node, entries, key, &nest(rest, value)),
                    }
                }
                (PathStep::Key(key), NodeKind::Null) => {
                    let inner = json!({ key: nest(rest, value) });
                    return match slot {
                        Some(slot) => self.replace(slot, &inner),
                        None => Ok(self.insert_lines(self.text.len(), &block(&inner, 0, self.newline()))),
                    };
                }
                (PathStep::Index(index), NodeKind::List(items)) => match items.get(*index) {
                    Some(item) => {
                        slot = Some(self.item_slot(node, item)?);
                        node = item;
                    }
                    None => {
                        let slot = slot.ok_or_else(|| EditError::NoSuchPart(here()))?;
                        return self.push(slot, node, items, &nest(rest, value));
                    }
                },
                _ => return Err(EditError::NoSuchPart(here())),
            }
        }
        let slot = slot.ok_or(EditError::Unsafe)?;
        if node.is_shared {
            return Err(EditError::Shared(dotted_path(path)));
        }
        match self.set_items(path, node, value)? {
            Some(text) => Ok(text),
            None => self.replace(slot, value),
        }
    }

    /// Changes a block collection item by item if it shares items with the new one, so that the
    /// comments of shared items stay with them.
    fn set_items(&self, path: &[PathStep], node: &Node, value: &Value) -> Result<Option<String>, EditError> {
        if self.is_flow(node) {
            return Ok(None);
        }
        let step = |last: PathStep| [path, &[last]].concat();
        let mut text = self.text.to_owned();
        match (&node.kind, value) {
            (NodeKind::List(old), Value::Array(new)) => {
                let same = old.iter().zip(new).take_while(|(old, new)| old.to_json() == **new).count();
                if same == 0 {
                    return Ok(None);
                }
                for index in (same..old.len()).rev() {
                    text = unset(&text, &step(PathStep::Index(index)))?;
                }
                for (index, item) in new.iter().enumerate().skip(same) {
                    text = set(&text, &step(PathStep::Index(index)), item)?;
                }
            }
            (NodeKind::Map(old), Value::Object(new)) => {
                if !old.iter().any(|entry| new.contains_key(&entry.key)) {
                    return Ok(None);
                }
                for entry in old.iter().filter(|entry| !new.contains_key(&entry.key)) {
                    text = unset(&text, &step(PathStep::Key(entry.key.clone())))?;
                }
                for (key, item) in new {
                    if node.get(key).map(Node::to_json).as_ref() != Some(item) {
                        text = set(&text, &step(PathStep::Key(key.clone())), item)?;
                    }
                }
            }
            _ => return Ok(None),
        }
        Ok(Some(text))
    }

    pub(super) fn unset(&self, path: &[PathStep]) -> Result<String, EditError> {
        let mut node = self.root;
        let mut parents = Vec::new();
        for (depth, step) in path.iter().enumerate() {
            if node.is_shared {
                return Err(EditError::Shared(dotted_path(path.get(..depth).unwrap_or_default())));
            }
            parents.push(node);
            node = match (step, &node.kind) {
                (PathStep::Key(key), _) => match node.entry(key) {
                    Some(entry) if !entry.is_merged => &entry.value,
                    _ => return Err(EditError::Shared(dotted_path(path))),
                },
                (PathStep::Index(index), NodeKind::List(items)) => {
                    items.get(*index).ok_or(EditError::Unsafe)?
                }
                _ => return Err(EditError::Unsafe),
            };
        }
        let (Some(parent), Some(last)) = (parents.pop(), path.last()) else { return Err(EditError::Unsafe) };
        match (&parent.kind, last) {
            (NodeKind::Map(entries), PathStep::Key(_)) if entries.len() == 1 && path.len() > 1 => {
                self.unset(path.get(..path.len() - 1).unwrap_or_default())
            }
            (NodeKind::List(items), PathStep::Index(_)) if items.len() == 1 => {
                let list = path.get(..path.len() - 1).unwrap_or_default();
                self.set(list, &json!([]))
            }
            (NodeKind::Map(entries), PathStep::Key(key)) => {
                let index = entries.iter().position(|e| e.key == *key).ok_or(EditError::Unsafe)?;
                let spans: Vec<_> =
                    entries.iter().map(|e| e.span.start..self.value_end(&e.value, e)).collect();
                self.cut(parent, &spans, index)
            }
            (NodeKind::List(items), PathStep::Index(index)) => {
                let spans: Vec<_> = items.iter().map(|item| self.dash(item)..item.span.end).collect();
                self.cut(parent, &spans, *index)
            }
            _ => Err(EditError::Unsafe),
        }
    }

    /// Removes one part of a collection, given the spans of all of them.
    fn cut(&self, parent: &Node, parts: &[Range<usize>], index: usize) -> Result<String, EditError> {
        let part = parts.get(index).cloned().ok_or(EditError::Unsafe)?;
        if self.is_flow(parent) {
            let removed = match (index.checked_sub(1).and_then(|i| parts.get(i)), parts.get(index + 1)) {
                (_, Some(next)) => part.start..next.start,
                (Some(before), None) => before.end..part.end,
                (None, None) => part,
            };
            return Ok(self.splice(removed, ""));
        }
        let start = self.line_start(part.start);
        if !self.piece(start..part.start).trim().is_empty() {
            return Err(EditError::Unsafe);
        }
        let end = self.after_line(part.end);
        let comments = self.comment_lines(start..end, part.start - start);
        Ok(self.splice(start..end, &comments))
    }

    fn entry_slot(&self, map: &Node, entry: &'a MapEntry) -> Result<EditSlot<'a>, EditError> {
        let colon = self.find(entry.span.end, b':').ok_or(EditError::Unsafe)?;
        Ok(EditSlot {
            value: &entry.value,
            after: colon + 1,
            indent: entry.at.column.saturating_sub(1),
            layout: if self.is_flow(map) { SlotLayout::Flow } else { SlotLayout::Block },
        })
    }

    fn item_slot(&self, list: &Node, item: &'a Node) -> Result<EditSlot<'a>, EditError> {
        let flow = self.is_flow(list);
        let after = if flow { item.span.start } else { self.dash(item) + 1 };
        let indent = after.saturating_sub(self.line_start(after) + 1);
        Ok(EditSlot {
            value: item,
            after,
            indent,
            layout: if flow { SlotLayout::Flow } else { SlotLayout::Item },
        })
    }

    /// Replaces a value.
    fn replace(&self, slot: EditSlot<'a>, value: &Value) -> Result<String, EditError> {
        let old = slot.value;
        let end = if old.span.is_empty() { slot.after.max(old.span.end) } else { old.span.end };
        if slot.layout == SlotLayout::Flow {
            let start = if old.span.is_empty() { end } else { old.span.start };
            let space =
                if start == slot.after && self.byte(start.wrapping_sub(1)) == Some(b':') { " " } else { "" };
            return Ok(self.splice(start..end, &format!("{space}{}", flow(value, style_of(old)))));
        }
        let nl = self.newline();
        let child = slot.indent + 2;
        let as_block =
            slot.layout == SlotLayout::Block && !self.is_flow(old) && !is_empty(value) && is_nested(value);
        let first_line_end = self.line_end(slot.after);
        if !as_block {
            let inner = self.comment_lines(slot.after..end, child);
            let next = self.after_line(end);
            let rest = if next == end { "" } else { self.piece(end..self.line_end(end)) };
            let rendered = flow(value, style_of(old));
            let start = if old.span.is_empty() || end > first_line_end || old.span.start > first_line_end {
                slot.after
            } else {
                self.skip_spaces(slot.after)
            };
            let space = if start == slot.after { " " } else { "" };
            let line = format!("{space}{rendered}{}{nl}{inner}", rest);
            return Ok(self.splice(start..next, &line));
        }
        // The comment after the key stays there; the others go above the new lines.
        let region = slot.after..if end > first_line_end { end } else { first_line_end };
        let mut found = self.comments_in(&region);
        let same_line = match found.first() {
            Some(first) if first.start < first_line_end => {
                format!(" {}", self.piece(found.remove(0)).trim_end())
            }
            _ => String::new(),
        };
        let above = self.render_comments(&found, child);
        let body = block(value, child, nl);
        let tail = if self.byte(region.end.wrapping_sub(1)) == Some(b'\n') { nl } else { "" };
        let body = body.trim_end_matches(['\r', '\n']);
        Ok(self.splice(region, &format!("{same_line}{nl}{above}{body}{tail}")))
    }

    /// Adds a key to a mapping that has others.
    fn insert(
        &self,
        map: &Node,
        entries: &[MapEntry],
        key: &str,
        value: &Value,
    ) -> Result<String, EditError> {
        let own: Vec<&MapEntry> = entries.iter().filter(|entry| !entry.is_merged).collect();
        if self.is_flow(map) {
            let pair = format!(
                "{}: {}",
                scalar(key, ScalarStyle::Plain, ScalarContext::Flow),
                flow(value, ScalarStyle::Plain)
            );
            return Ok(match own.last() {
                Some(last) => {
                    let end = self.value_end(&last.value, last);
                    self.splice(end..end, &format!(", {pair}"))
                }
                None => self.splice(map.span.start + 1..map.span.start + 1, &pair),
            });
        }
        let (Some(first), Some(last)) = (own.first(), own.last()) else { return Err(EditError::Unsafe) };
        let indent = first.at.column.saturating_sub(1);
        let lines = block(&json!({ key: value }), indent, self.newline());
        Ok(self.insert_lines(self.value_end(&last.value, last), &lines))
    }

    /// Adds an item to a list.
    fn push(
        &self,
        slot: EditSlot<'a>,
        list: &Node,
        items: &[Node],
        value: &Value,
    ) -> Result<String, EditError> {
        let Some(last) = items.last() else {
            return self.replace(slot, &json!([value]));
        };
        if self.is_flow(list) {
            return Ok(
                self.splice(last.span.end..last.span.end, &format!(", {}", flow(value, ScalarStyle::Plain)))
            );
        }
        let dash = self.dash(last);
        let indent = dash - self.line_start(dash);
        let lines = format!("{:indent$}- {}{}", "", flow(value, style_of(last)), self.newline());
        Ok(self.insert_lines(last.span.end, &lines))
    }

    /// Inserts lines after the line that holds `at`.
    fn insert_lines(&self, at: usize, lines: &str) -> String {
        let at = self.after_line(at);
        let unfinished = at == self.text.len() && !self.text.is_empty() && !self.text.ends_with('\n');
        let break_first = if unfinished { self.newline() } else { "" };
        self.splice(at..at, &format!("{break_first}{lines}"))
    }

    fn value_end(&self, value: &Node, entry: &MapEntry) -> usize {
        let colon = self.find(entry.span.end, b':').map_or(entry.span.end, |colon| colon + 1);
        value.span.end.max(colon)
    }

    fn comments_in(&self, region: &Range<usize>) -> Vec<Range<usize>> {
        self.comments.iter().filter(|comment| region.contains(&comment.start)).cloned().collect()
    }

    /// The comments of a region, one per line.
    fn comment_lines(&self, region: Range<usize>, indent: usize) -> String {
        self.render_comments(&self.comments_in(&region), indent)
    }

    fn render_comments(&self, spans: &[Range<usize>], indent: usize) -> String {
        let line = |span: &Range<usize>| {
            format!("{:indent$}{}{}", "", self.piece(span.clone()).trim_end(), self.newline())
        };
        spans.iter().map(line).collect()
    }

    fn is_flow(&self, node: &Node) -> bool {
        let nested = matches!(node.kind, NodeKind::List(_) | NodeKind::Map(_));
        nested && matches!(self.byte(node.span.start), Some(b'[' | b'{'))
    }

    /// The dash before an item of a block list.
    fn dash(&self, item: &Node) -> usize {
        let before = self.text.as_bytes().get(..item.span.start).unwrap_or_default();
        before.iter().rposition(|&byte| byte == b'-').unwrap_or(item.span.start)
    }

    fn find(&self, from: usize, wanted: u8) -> Option<usize> {
        self.text.bytes().enumerate().skip(from).find(|&(_, byte)| byte == wanted).map(|(index, _)| index)
    }

    fn skip_spaces(&self, from: usize) -> usize {
        let spaces = self.text.bytes().skip(from).take_while(|byte| matches!(byte, b' ' | b'\t')).count();
        from + spaces
    }

    fn line_start(&self, at: usize) -> usize {
        let before = self.text.as_bytes().get(..at).unwrap_or_default();
        before.iter().rposition(|&byte| byte == b'\n').map_or(0, |index| index + 1)
    }

    /// The end of the line that holds `at`, before its line break.
    fn line_end(&self, at: usize) -> usize {
        let end = self.find(at, b'\n').unwrap_or(self.text.len());
        if end > at && self.byte(end - 1) == Some(b'\r') { end - 1 } else { end }
    }

    /// The start of the line after a value that ends at `at`. A block scalar already ends there.
    fn after_line(&self, at: usize) -> usize {
        if at == 0 || self.byte(at - 1) == Some(b'\n') {
            return at;
        }
        self.find(at, b'\n').map_or(self.text.len(), |index| index + 1)
    }

    fn newline(&self) -> &'static str {
        if self.text.contains("\r\n") { "\r\n" } else { "\n" }
    }

    fn byte(&self, at: usize) -> Option<u8> {
        self.text.as_bytes().get(at).copied()
    }

    fn piece(&self, span: Range<usize>) -> &'a str {
        self.text.get(span).unwrap_or_default()
    }

    pub(super) fn splice(&self, span: Range<usize>, with: &str) -> String {
        let (before, after) = (self.piece(0..span.start), self.piece(span.end..self.text.len()));
        [before, with, after].concat()
    }
}

fn nest(path: &[PathStep], value: &Value) -> Value {
    path.iter().rev().fold(value.clone(), |inner, step| match step {
        PathStep::Key(key) => json!({ key: inner }),
        PathStep::Index(_) => json!([inner]),
    })
}
