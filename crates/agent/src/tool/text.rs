//! Text that is read, changed and written back without losing a byte of what was not meant to change.

use std::borrow::Cow;

use granit_parser::Parser;
use serde::de::IgnoredAny;
use serde_json::{Value, json};
use toml::de::DeTable;

const BOM: &[u8] = b"\xef\xbb\xbf";
/// The largest file whose syntax is looked at.
const MAX_LINT_BYTES: usize = 1 << 20;
/// Where bytes that are no text are kept while their file is text.
const INVALID_BYTE_BASE: u32 = 0x0010_ff00;

/// How a file is written, apart from its words.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct TextStyle {
    /// Whether a byte order mark begins it.
    bom: bool,
    /// Whether each of its lines ends in a carriage return and a line feed.
    crlf: bool,
}

/// A file as text, in the style of Unix. What is not changed is encoded again as it was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct DecodedText {
    pub(super) text: String,
    pub(super) style: TextStyle,
}

impl TextStyle {
    pub(super) fn of(bytes: &[u8]) -> Self {
        let count = |wanted: u8| bytes.iter().filter(|byte| **byte == wanted).count();
        let pairs = bytes.windows(2).filter(|pair| *pair == b"\r\n").count();
        // A carriage return of another kind could not be told from these when the text is put together again.
        Self {
            bom: bytes.starts_with(BOM),
            crlf: pairs > 0 && pairs == count(b'\n') && pairs == count(b'\r'),
        }
    }

    /// Text in this style. A mark or ends that the text brings itself are not doubled.
    pub(super) fn encode(self, text: &str) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(text.len());
        if self.bom && !text.starts_with('\u{feff}') {
            bytes.extend_from_slice(BOM);
        }
        bytes.extend(encode(&self.with_line_ends(text)));
        bytes
    }

    /// The same without a mark, for a part of a file.
    pub(super) fn encode_part(self, text: &str) -> Vec<u8> {
        encode(&self.with_line_ends(text))
    }

    fn with_line_ends(self, text: &str) -> Cow<'_, str> {
        match self.crlf {
            true => Cow::Owned(text.replace("\r\n", "\n").replace('\n', "\r\n")),
            false => Cow::Borrowed(text),
        }
    }
}

impl DecodedText {
    /// None for the rare file that uses the very characters that bytes which are no text would become.
    pub(super) fn new(bytes: &[u8]) -> Option<Self> {
        let style = TextStyle::of(bytes);
        let mut text = String::with_capacity(bytes.len());
        for chunk in bytes.strip_prefix(BOM).unwrap_or(bytes).utf8_chunks() {
            if chunk.valid().chars().any(|c| invalid_byte(c).is_some()) {
                return None;
            }
            text.push_str(chunk.valid());
            text.extend(
                chunk
                    .invalid()
                    .iter()
                    .filter_map(|byte| char::from_u32(INVALID_BYTE_BASE + u32::from(*byte))),
            );
        }
        let text = if style.crlf { text.replace("\r\n", "\n") } else { text };
        Some(Self { text, style })
    }
}

/// The text as people are shown it.
pub(super) fn display_text(text: &str) -> Cow<'_, str> {
    match text.contains(|c| invalid_byte(c).is_some()) {
        true => Cow::Owned(text.replace(|c| invalid_byte(c).is_some(), "\u{fffd}")),
        false => Cow::Borrowed(text),
    }
}

fn encode(text: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut buffer = [0; 4];
    for c in text.chars() {
        match invalid_byte(c) {
            Some(byte) => bytes.push(byte),
            None => bytes.extend_from_slice(c.encode_utf8(&mut buffer).as_bytes()),
        }
    }
    bytes
}

fn invalid_byte(c: char) -> Option<u8> {
    u32::from(c).checked_sub(INVALID_BYTE_BASE).and_then(|byte| u8::try_from(byte).ok())
}

/// Whether the syntax of a file is right, for formats that can be told without running anything.
pub(super) fn lint(path: &str, content: &str) -> Option<Value> {
    let name = path.rsplit('/').next().unwrap_or(path);
    let (_, extension) = name.rsplit_once('.')?;
    let content = content.strip_prefix('\u{feff}').unwrap_or(content);
    let check: fn(&str) -> Result<(), String> = match extension.to_ascii_lowercase().as_str() {
        "json" => {
            |text| serde_json::from_str::<IgnoredAny>(text).map(drop).map_err(|error| error.to_string())
        }
        "toml" => |text| DeTable::parse(text).map(drop).map_err(|error| error.to_string()),
        "yaml" | "yml" => check_yaml,
        _ => return None,
    };
    if content.len() > MAX_LINT_BYTES {
        return Some(json!({"status": "skipped", "message": "too large to be checked"}));
    }
    Some(match check(content) {
        Ok(()) => json!({"status": "ok"}),
        Err(error) => json!({"status": "error", "output": error}),
    })
}

fn check_yaml(text: &str) -> Result<(), String> {
    Parser::new_from_str(text).try_for_each(|event| event.map(drop)).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_is_decoded_is_encoded_as_it_was(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            if let Some(decoded) = DecodedText::new(&bytes) {
                prop_assert_eq!(decoded.style.encode(&decoded.text), bytes);
            }
        }

        #[test]
        fn lines_of_any_kind_are_encoded_as_they_were(text in "(\u{feff})?[ab\r\n\\xff]{0,60}") {
            let decoded = DecodedText::new(text.as_bytes()).unwrap();
            prop_assert_eq!(decoded.style.encode(&decoded.text), text.as_bytes());
        }
    }

    #[test]
    fn new_content_takes_the_style_of_the_old() {
        let windows = TextStyle::of(b"\xef\xbb\xbfa\r\nb\r\n");
        assert_eq!(windows.encode("x\ny\r\n"), b"\xef\xbb\xbfx\r\ny\r\n");
        assert_eq!(TextStyle::of(b"a\r\nb\n").encode("x\n"), b"x\n");
        assert_eq!(TextStyle::of(b"").encode("x\r\n"), b"x\r\n");
    }

    #[test]
    fn bytes_that_are_no_text_are_shown_as_such_and_kept() {
        let decoded = DecodedText::new(b"caf\xe9\n").unwrap();
        assert_eq!(display_text(&decoded.text), "caf\u{fffd}\n");
        assert_eq!(decoded.style.encode(&decoded.text.replace("caf", "Caf")), b"Caf\xe9\n");
        assert_eq!(DecodedText::new("\u{10ff80}".as_bytes()), None);
    }

    #[test]
    fn syntax_is_checked_where_that_needs_no_program() {
        let status = |path: &str, text: &str| lint(path, text).map(|lint| lint["status"].clone());
        let cases = [
            ("a.json", "{\"a\": [1]}", Some("ok")),
            ("a.json", "{\"a\": [1}", Some("error")),
            ("/x/a.toml", "a = 1\n", Some("ok")),
            ("a.toml", "a = \n", Some("error")),
            ("a.yaml", "a: [1, 2]\n", Some("ok")),
            ("a.yml", "a: [1, 2\nb: }", Some("error")),
            ("a.py", "def f(:", None),
            ("json", "{", None),
        ];
        for (path, text, expected) in cases {
            assert_eq!(status(path, text), expected.map(|word| json!(word)), "{path} {text}");
        }
        let deep = "[".repeat(100_000);
        assert_eq!(status("a.json", &deep), Some(json!("error")));
        assert_eq!(status("a.yaml", &deep), Some(json!("error")));
        assert_eq!(status("a.toml", &format!("a = {deep}")), Some(json!("error")));
    }
}
