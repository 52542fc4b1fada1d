//! Detects tool calls that small models write as text because their server does not know their
//! template.
//!
//! | model | form |
//! |---|---|
//! | Hermes, Qwen | `<tool_call>{"name": …, "arguments": {…}}</tool_call>` |
//! | Qwen Coder | `<tool_call><function=NAME><parameter=KEY>VALUE</parameter></function></tool_call>` |
//! | Mistral | `[TOOL_CALLS][{"name": …, "arguments": {…}}]`, `[TOOL_CALLS]NAME[ARGS]{…}` |
//! | Llama | `<\|python_tag\|>{"name": …, "parameters": {…}}`, and the same without the tag |
//! | others | the object alone, or in a code fence |
//!
//! Text is a call only if every name is that of an offered tool. An object alone counts only if it
//! is the whole reply.

use serde_json::{Map, Value};

use crate::arguments;

/// Start a call anywhere in a reply.
const MARKERS: &[&str] = &["<tool_call>", "[TOOL_CALLS]", "<|python_tag|>"];
/// Start a reply that may be a call as a whole.
const REPLY_STARTS: &[&str] = &["{", "[{", "```"];
/// More text than this is not held back.
const MAX_HELD_BYTES: usize = 1 << 20;

/// The name and arguments of a call.
type TextCall = (String, Value);

/// Holds back text that may be a call.
pub(crate) struct CallDetector {
    tools: Vec<String>,
    held: String,
    state: DetectorState,
}

#[derive(Debug, PartialEq, Eq)]
enum DetectorState {
    /// Only whitespace came so far.
    Start,
    Text,
    /// All text is held back.
    Holding,
    /// Nothing is held back.
    Disabled,
}

impl CallDetector {
    /// Without tools, no text is a call.
    pub(crate) fn new(tools: Vec<String>) -> Self {
        let state = if tools.is_empty() { DetectorState::Disabled } else { DetectorState::Start };
        Self { tools, held: String::new(), state }
    }

    /// Adds text and returns the text that is certainly not a call.
    pub(crate) fn push(&mut self, text: &str) -> String {
        if self.state == DetectorState::Disabled {
            return text.to_owned();
        }
        self.held.push_str(text);
        if self.held.len() > MAX_HELD_BYTES {
            return self.disable();
        }
        if self.state == DetectorState::Start {
            let start = self.held.trim_start();
            self.state = if REPLY_STARTS.iter().any(|known| start.starts_with(known)) {
                DetectorState::Holding
            } else if REPLY_STARTS.iter().any(|known| known.starts_with(start)) {
                return String::new();
            } else {
                DetectorState::Text
            };
        }
        if self.state == DetectorState::Holding {
            return String::new();
        }
        let marker = MARKERS.iter().filter_map(|marker| self.held.find(marker)).min();
        if marker.is_some() {
            self.state = DetectorState::Holding;
        }
        let tails = MARKERS.iter().map(|marker| partial_marker_len(&self.held, marker));
        let end = marker.unwrap_or(self.held.len() - tails.max().unwrap_or(0));
        let rest = self.held.split_off(end);
        std::mem::replace(&mut self.held, rest)
    }

    /// Stops detecting and returns the held text.
    pub(crate) fn disable(&mut self) -> String {
        self.state = DetectorState::Disabled;
        std::mem::take(&mut self.held)
    }

    /// The calls in held text, as names and arguments, and the text before them.
    pub(crate) fn parse_calls(&self, held: &str) -> Option<(String, Vec<TextCall>)> {
        if self.tools.is_empty() {
            return None;
        }
        let at = MARKERS.iter().filter_map(|marker| Some((held.find(marker)?, *marker))).min();
        let (before, calls) = match at {
            Some((at, marker)) => {
                let (before, rest) = held.split_at_checked(at)?;
                let parse_block = match marker {
                    "<tool_call>" => parse_tagged,
                    "[TOOL_CALLS]" => parse_bracketed,
                    _ => parse_objects,
                };
                let blocks: Option<Vec<_>> = rest.split(marker).skip(1).map(parse_block).collect();
                (before, blocks?.concat())
            }
            None => ("", parse_objects(strip_fence(held.trim())?)?),
        };
        let known = !calls.is_empty() && calls.iter().all(|(name, _)| self.tools.contains(name));
        known.then(|| (before.to_owned(), calls))
    }
}

/// The length of a marker's start at the end of the text.
fn partial_marker_len(text: &str, marker: &str) -> usize {
    let lengths = (1..marker.len()).rev();
    lengths.filter_map(|length| marker.get(..length)).find(|start| text.ends_with(start)).map_or(0, str::len)
}

/// Removes a code fence around the text.
fn strip_fence(text: &str) -> Option<&str> {
    let Some(inner) = text.strip_prefix("```") else { return Some(text) };
    let inner = inner.trim_end().strip_suffix("```")?;
    let (language, rest) = inner.split_once('\n')?;
    ["", "json", "tool_call", "tool_code"].contains(&language.trim()).then_some(rest)
}

fn parse_tagged(block: &str) -> Option<Vec<TextCall>> {
    let (inner, after) = block.split_once("</tool_call>").unwrap_or((block, ""));
    match inner.trim().strip_prefix("<function=") {
        _ if !after.trim().is_empty() => None,
        Some(function) => Some(vec![parse_function_tag(function)?]),
        None => parse_objects(inner),
    }
}

/// Parses `NAME><parameter=KEY>VALUE</parameter>…</function>`. Values are text; the tool's schema
/// gives them their type.
fn parse_function_tag(text: &str) -> Option<TextCall> {
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

fn parse_bracketed(block: &str) -> Option<Vec<TextCall>> {
    let (name, rest) = block.split_at_checked(block.find(['[', '{'])?)?;
    if name.trim().is_empty() {
        return parse_objects(rest);
    }
    let arguments = arguments::decode(rest.strip_prefix("[ARGS]").unwrap_or(rest), false).ok()?;
    Some(vec![(name.trim().to_owned(), Value::Object(arguments))])
}

/// Parses one object, a list of objects, or several separated by semicolons or newlines.
fn parse_objects(text: &str) -> Option<Vec<TextCall>> {
    let text = text.trim();
    if let Ok(Value::Array(items)) = serde_json::from_str(text) {
        return items.into_iter().map(parse_call).collect();
    }
    if let Ok(object) = arguments::decode(text, false) {
        return Some(vec![parse_call(Value::Object(object))?]);
    }
    let values = text.split([';', '\n']).map(str::trim).filter(|part| !part.is_empty());
    values.map(|value| parse_call(serde_json::from_str(value).ok()?)).collect()
}

/// Parses the object of one call, which must have no other fields.
fn parse_call(value: Value) -> Option<TextCall> {
    let Value::Object(mut object) = value else { return None };
    if let Some(Value::Object(function)) = object.remove("function") {
        object = function;
    }
    let name = object.remove("name")?.as_str()?.to_owned();
    let arguments = object.remove("arguments").or_else(|| object.remove("parameters"))?;
    let arguments = match arguments {
        Value::Object(_) => arguments,
        Value::String(text) => Value::Object(arguments::decode(&text, false).ok()?),
        _ => return None,
    };
    let has_no_more = object.keys().all(|key| key == "id" || key == "type");
    has_no_more.then_some((name, arguments))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// The released text, the calls, and the held text.
    type Detection = (String, Option<(String, Vec<TextCall>)>, String);

    fn run(text: &str, size: usize) -> Detection {
        let mut detector = CallDetector::new(vec!["terminal".to_owned(), "read_file".to_owned()]);
        let chars: Vec<char> = text.chars().collect();
        let shown =
            chars.chunks(size).map(|piece| detector.push(&piece.iter().collect::<String>())).collect();
        let held = detector.disable();
        (shown, detector.parse_calls(&held), held)
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
    fn text_that_only_resembles_a_call_stays_text() {
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
    fn text_is_released_until_it_may_be_a_call() {
        let mut detector = CallDetector::new(vec!["terminal".to_owned()]);
        assert_eq!(detector.push("hello <"), "hello ");
        assert_eq!(detector.push("b> "), "<b> ");
        assert_eq!(detector.push("[TOOL_"), "");
        assert_eq!(detector.push("BOX]"), "[TOOL_BOX]");
        assert_eq!(detector.push("x<tool_call>{"), "x");
        assert_eq!(detector.push("\"name\""), "");
        let mut none = CallDetector::new(Vec::new());
        assert_eq!(none.push("{\"a\": <tool_call>"), "{\"a\": <tool_call>");
    }
}
