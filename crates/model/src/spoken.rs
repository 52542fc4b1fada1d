//! Tool calls that small models write as text, because their server does not know their template.
//!
//! | who | how |
//! |---|---|
//! | Hermes, Qwen | `<tool_call>{"name": …, "arguments": {…}}</tool_call>` |
//! | Qwen Coder | `<tool_call><function=NAME><parameter=KEY>VALUE</parameter></function></tool_call>` |
//! | Mistral | `[TOOL_CALLS][{"name": …, "arguments": {…}}]`, `[TOOL_CALLS]NAME[ARGS]{…}` |
//! | Llama | `<\|python_tag\|>{"name": …, "parameters": {…}}`, and the same without the tag |
//! | others | the object alone, or in a code fence |
//!
//! It is a call only if every name is that of a tool we offered. An object alone counts only if it is the whole answer.

use serde_json::{Map, Value};

use crate::arguments::{self, Ending};

/// Where a call begins, anywhere in an answer.
const MARKERS: &[&str] = &["<tool_call>", "[TOOL_CALLS]", "<|python_tag|>"];
/// What the whole answer begins with.
const STARTS: &[&str] = &["{", "[{", "```"];
/// The most text that is held back.
const MOST: usize = 1 << 20;

/// Holds back what may be a call.
#[derive(Debug)]
pub(crate) struct Gate {
    tools: Vec<String>,
    held: String,
    state: State,
}

#[derive(Debug, PartialEq, Eq)]
enum State {
    /// Nothing but blanks came.
    Begin,
    /// Ordinary words.
    Words,
    /// All is held.
    Holding,
    /// Nothing is.
    Open,
}

impl Gate {
    /// Without tools, nothing is a call.
    pub(crate) fn new(tools: Vec<String>) -> Self {
        let state = if tools.is_empty() { State::Open } else { State::Begin };
        Self { tools, held: String::new(), state }
    }

    /// Takes the next piece and gives what may be shown.
    pub(crate) fn push(&mut self, text: &str) -> String {
        if self.state == State::Open {
            return text.to_owned();
        }
        self.held.push_str(text);
        if self.held.len() > MOST {
            self.state = State::Open;
            return std::mem::take(&mut self.held);
        }
        if self.state == State::Begin {
            let start = self.held.trim_start();
            if start.is_empty() {
                return String::new();
            }
            if STARTS.iter().any(|known| start.starts_with(known)) {
                self.state = State::Holding;
            } else if STARTS.iter().any(|known| known.starts_with(start)) {
                return String::new();
            } else {
                self.state = State::Words;
            }
        }
        if self.state == State::Holding {
            return String::new();
        }
        let rest = match MARKERS.iter().filter_map(|marker| self.held.find(marker)).min() {
            Some(at) => {
                self.state = State::Holding;
                self.held.split_off(at)
            }
            None => {
                let tail = MARKERS.iter().map(|marker| overlap(&self.held, marker)).max().unwrap_or(0);
                self.held.split_off(self.held.len() - tail)
            }
        };
        std::mem::replace(&mut self.held, rest)
    }

    /// All that is held; nothing will be from now on.
    pub(crate) fn open(&mut self) -> String {
        self.state = State::Open;
        self.finish()
    }

    /// All that is still held.
    pub(crate) fn finish(&mut self) -> String {
        std::mem::take(&mut self.held)
    }

    /// The calls in a text that was held, and the words before them.
    pub(crate) fn calls(&self, held: &str) -> Option<(String, Vec<(String, Value)>)> {
        if self.tools.is_empty() {
            return None;
        }
        let at = MARKERS.iter().filter_map(|marker| Some((held.find(marker)?, *marker))).min();
        let (before, calls) = match at {
            Some((at, marker)) => {
                let (before, rest) = held.split_at_checked(at)?;
                let calls = match marker {
                    "<tool_call>" => tagged(rest),
                    "[TOOL_CALLS]" => bracketed(rest),
                    _ => several(rest.strip_prefix(marker)?),
                }?;
                (before, calls)
            }
            None => ("", several(unfenced(held.trim())?)?),
        };
        let known = !calls.is_empty() && calls.iter().all(|(name, _)| self.tools.contains(name));
        known.then(|| (before.to_owned(), calls))
    }
}

/// How much of the text's end may be the beginning of a marker.
fn overlap(text: &str, marker: &str) -> usize {
    let lengths = (1..marker.len()).rev();
    lengths.filter_map(|length| marker.get(..length)).find(|start| text.ends_with(start)).map_or(0, str::len)
}

/// What is in a code fence; a text without one is itself.
fn unfenced(text: &str) -> Option<&str> {
    let Some(inner) = text.strip_prefix("```") else { return Some(text) };
    let inner = inner.trim_end().strip_suffix("```")?;
    let (word, rest) = inner.split_once('\n')?;
    ["", "json", "tool_call", "tool_code"].contains(&word.trim()).then_some(rest)
}

fn tagged(text: &str) -> Option<Vec<(String, Value)>> {
    let mut calls = Vec::new();
    for block in text.split("<tool_call>").skip(1) {
        let (inner, after) = block.split_once("</tool_call>").unwrap_or((block, ""));
        if !after.trim().is_empty() {
            return None;
        }
        match inner.trim().strip_prefix("<function=") {
            Some(function) => calls.push(function_tag(function)?),
            None => calls.extend(several(inner)?),
        }
    }
    Some(calls)
}

/// `NAME><parameter=KEY>VALUE</parameter>…</function>`. Values are text; the schema makes them what they should be.
fn function_tag(text: &str) -> Option<(String, Value)> {
    let (name, rest) = text.split_once('>')?;
    let mut arguments = Map::new();
    for parameter in rest.split("<parameter=").skip(1) {
        let (key, value) = parameter.split_once('>')?;
        let (value, _) = value.split_once("</parameter>")?;
        let value = value.strip_prefix('\n').unwrap_or(value);
        let value = value.strip_suffix('\n').unwrap_or(value);
        arguments.insert(key.trim().to_owned(), Value::from(value));
    }
    rest.contains("</function>").then(|| (name.trim().to_owned(), Value::Object(arguments)))
}

fn bracketed(text: &str) -> Option<Vec<(String, Value)>> {
    let mut calls = Vec::new();
    for block in text.split("[TOOL_CALLS]").skip(1) {
        let block = block.trim();
        if block.starts_with(['[', '{']) {
            calls.extend(several(block)?);
            continue;
        }
        let (name, rest) = block.split_at_checked(block.find(['[', '{'])?)?;
        let rest = rest.strip_prefix("[ARGS]").unwrap_or(rest);
        let arguments = match arguments::decode(rest, Ending::Whole) {
            hermes_types::Arguments::Object(object) => Value::Object(object),
            hermes_types::Arguments::Broken { .. } => return None,
        };
        calls.push((name.trim().to_owned(), arguments));
    }
    Some(calls)
}

/// One object, a list of them, or several with semicolons in between.
fn several(text: &str) -> Option<Vec<(String, Value)>> {
    let text = text.trim();
    if let Ok(Value::Array(items)) = serde_json::from_str(text) {
        return items.into_iter().map(call).collect();
    }
    if let hermes_types::Arguments::Object(object) = arguments::decode(text, Ending::Whole) {
        return Some(vec![call(Value::Object(object))?]);
    }
    let mut calls = Vec::new();
    let values = text.split([';', '\n']).map(str::trim).filter(|part| !part.is_empty());
    for value in values {
        calls.push(call(serde_json::from_str(value).ok()?)?);
    }
    Some(calls)
}

/// A call from its object, which must have nothing else in it.
fn call(value: Value) -> Option<(String, Value)> {
    let Value::Object(mut object) = value else { return None };
    if let Some(Value::Object(function)) = object.remove("function") {
        object = function;
    }
    let name = object.remove("name")?.as_str()?.to_owned();
    let arguments = object.remove("arguments").or_else(|| object.remove("parameters"))?;
    let arguments = match arguments {
        Value::Object(_) => arguments,
        Value::String(text) => match arguments::decode(&text, Ending::Whole) {
            hermes_types::Arguments::Object(object) => Value::Object(object),
            hermes_types::Arguments::Broken { .. } => return None,
        },
        _ => return None,
    };
    let alone = object.keys().all(|key| key == "id" || key == "type");
    alone.then_some((name, arguments))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// What was shown, what was found, and what was held.
    type Ran = (String, Option<(String, Vec<(String, Value)>)>, String);

    fn run(text: &str, size: usize) -> Ran {
        let mut gate = Gate::new(vec!["terminal".to_owned(), "read_file".to_owned()]);
        let letters: Vec<char> = text.chars().collect();
        let shown = letters.chunks(size).map(|piece| gate.push(&piece.iter().collect::<String>())).collect();
        let held = gate.finish();
        (shown, gate.calls(&held), held)
    }

    #[test]
    fn calls_written_as_text_are_found_and_never_shown() {
        let call = ("terminal".to_owned(), json!({"command": "ls"}));
        let object = r#"{"name": "terminal", "arguments": {"command": "ls"}}"#;
        let two = vec![call.clone(), ("read_file".to_owned(), json!({"path": "a"}))];
        let other = r#"{"name": "read_file", "parameters": {"path": "a"}}"#;
        let one = vec![call];
        let cases = [
            (format!("<tool_call>{object}</tool_call>"), "", one.clone()),
            (format!("<tool_call>\n{object}\n</tool_call>\n<tool_call>{other}</tool_call>"), "", two.clone()),
            (format!("I look. <tool_call>{object}"), "I look. ", one.clone()),
            (
                "<tool_call><function=terminal><parameter=command>\nls\n</parameter></function></tool_call>"
                    .to_owned(),
                "",
                one.clone(),
            ),
            (format!("[TOOL_CALLS][{object}, {other}]"), "", two.clone()),
            ("[TOOL_CALLS]terminal[ARGS]{\"command\": \"ls\"}".to_owned(), "", one.clone()),
            (format!("<|python_tag|>{object}; {other}"), "", two.clone()),
            (object.to_owned(), "", one.clone()),
            (format!("[{object}]"), "", one.clone()),
            (format!("```json\n{object}\n```"), "", one.clone()),
            (r#"{"name": "terminal", "arguments": "{\"command\": \"ls\"}"}"#.to_owned(), "", one.clone()),
            (
                r#"{"type": "function", "function": {"name": "terminal", "arguments": {"command": "ls"}}}"#
                    .to_owned(),
                "",
                one,
            ),
        ];
        for (text, words, calls) in cases {
            for size in [1, 3, 7, 4096] {
                let (shown, found, held) = run(&text, size);
                assert_eq!(shown, words, "{text} by {size}");
                assert_eq!(found, Some((String::new(), calls.clone())), "{held}");
            }
        }
    }

    #[test]
    fn what_only_looks_like_a_call_stays_text() {
        let cases = [
            "hello <b>world</b> [TOOL] <|p",
            r#"{"answer": 42}"#,
            r#"{"name": "rm", "arguments": {}}"#,
            r#"{"name": "terminal", "arguments": {}, "why": "an example"}"#,
            "```python\nprint(1)\n```",
            "```json\n{\"name\": \"terminal\", \"arguments\": {}}\n```\nis how it is called",
            "<tool_call>not json</tool_call>",
            "<tool_call>{\"name\": \"terminal\", \"arguments\": {}}</tool_call> and more",
        ];
        for text in cases {
            for size in [1, 3, 7, 4096] {
                let (shown, found, held) = run(text, size);
                assert_eq!(found, None, "{text}");
                assert_eq!(format!("{shown}{held}"), text, "by {size}");
            }
        }
    }

    #[test]
    fn words_flow_until_something_looks_like_a_call() {
        let mut gate = Gate::new(vec!["terminal".to_owned()]);
        assert_eq!(gate.push("hello <"), "hello ");
        assert_eq!(gate.push("b> "), "<b> ");
        assert_eq!(gate.push("[TOOL_"), "");
        assert_eq!(gate.push("BOX]"), "[TOOL_BOX]");
        assert_eq!(gate.push("x<tool_call>{"), "x");
        assert_eq!(gate.push("\"name\""), "");
        let mut none = Gate::new(Vec::new());
        assert_eq!(none.push("{\"a\": <tool_call>"), "{\"a\": <tool_call>");
    }
}
