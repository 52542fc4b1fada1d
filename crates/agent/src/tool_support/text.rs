//! Reads, changes and writes text files without changing any other byte.

use std::borrow::Cow;

use granit_parser::Parser;
use serde::de::IgnoredAny;
use serde_json::{Value, json};
use toml::de::DeTable;

/// Bytes that are examined to tell text from binary data.
const SAMPLE_BYTES: usize = 8_000;
const BOM: &[u8] = b"\xef\xbb\xbf";
/// The largest file whose syntax is checked.
const MAX_LINT_BYTES: usize = 1 << 20;
/// First of the 256 code points that stand for invalid bytes while a file is held as text.
const INVALID_BYTE_BASE: u32 = 0x0010_ff00;

/// Byte order mark and line ends of a file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct TextStyle {
    bom: bool,
    /// Whether every line ends in CR LF.
    crlf: bool,
}

/// A file as text with LF line ends. Unchanged parts encode to their original bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DecodedText {
    pub(crate) text: String,
    pub(crate) style: TextStyle,
}

impl TextStyle {
    pub(crate) fn of(bytes: &[u8]) -> Self {
        let count = |wanted: u8| bytes.iter().filter(|byte| **byte == wanted).count();
        let pairs = bytes.windows(2).filter(|pair| *pair == b"\r\n").count();
        // With any other CR or LF in the file, encoding could not restore the original bytes.
        Self {
            bom: bytes.starts_with(BOM),
            crlf: pairs > 0 && pairs == count(b'\n') && pairs == count(b'\r'),
        }
    }

    /// Encodes text in this style without doubling a mark or CR that the text already has.
    pub(crate) fn encode(self, text: &str) -> Vec<u8> {
        let mark = if self.bom && !text.starts_with('\u{feff}') { BOM } else { &[] };
        [mark, &self.encode_part(text)].concat()
    }

    /// Encodes a part of a file, without a byte order mark.
    pub(crate) fn encode_part(self, text: &str) -> Vec<u8> {
        if self.crlf { encode(&text.replace("\r\n", "\n").replace('\n', "\r\n")) } else { encode(text) }
    }
}

impl DecodedText {
    /// None if the file contains a code point that is reserved for invalid bytes.
    pub(crate) fn new(bytes: &[u8]) -> Option<Self> {
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

/// The text for display, with U+FFFD for each invalid byte.
pub(crate) fn display_text(text: &str) -> Cow<'_, str> {
    let is_invalid = |c| invalid_byte(c).is_some();
    if text.contains(is_invalid) {
        Cow::Owned(text.replace(is_invalid, "\u{fffd}"))
    } else {
        Cow::Borrowed(text)
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

/// Checks the syntax of a file in a format that needs no external program; none for others.
pub(crate) fn lint(path: &str, content: &str) -> Option<Value> {
    let name = path.rsplit('/').next().unwrap_or(path);
    let (_, extension) = name.rsplit_once('.')?;
    let content = content.strip_prefix('\u{feff}').unwrap_or(content);
    let error = match extension.to_ascii_lowercase().as_str() {
        "json" | "toml" | "yaml" | "yml" if content.len() > MAX_LINT_BYTES => {
            return Some(json!({"status": "skipped", "message": "too large to be checked"}));
        }
        "json" => serde_json::from_str::<IgnoredAny>(content).err().map(|error| error.to_string()),
        "toml" => DeTable::parse(content).err().map(|error| error.to_string()),
        "yaml" | "yml" => Parser::new_from_str(content).find_map(Result::err).map(|error| error.to_string()),
        _ => return None,
    };
    Some(match error {
        None => json!({"status": "ok"}),
        Some(error) => json!({"status": "error", "output": error}),
    })
}

/// Whether bytes are anything but ASCII-compatible text.
pub(crate) fn is_binary(bytes: &[u8]) -> bool {
    let sample = bytes.get(..SAMPLE_BYTES).unwrap_or(bytes);
    let is_control = |byte: &&u8| matches!(byte, 0..=8 | 14..=26 | 28..=31 | 127);
    sample.contains(&0) || sample.iter().filter(is_control).count() * 10 > sample.len() * 3
}

/// The first characters of a text.
pub(crate) fn truncate_chars(text: &str, max_chars: usize) -> &str {
    match text.char_indices().nth(max_chars) {
        Some((end, _)) => text.get(..end).unwrap_or(text),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn decoded_bytes_encode_to_the_same_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            if let Some(decoded) = DecodedText::new(&bytes) {
                prop_assert_eq!(decoded.style.encode(&decoded.text), bytes);
            }
        }

        #[test]
        fn any_line_ends_encode_to_the_same_bytes(text in "(\u{feff})?[ab\r\n\\xff]{0,60}") {
            let decoded = DecodedText::new(text.as_bytes()).unwrap();
            prop_assert_eq!(decoded.style.encode(&decoded.text), text.as_bytes());
        }
    }

    #[test]
    fn new_content_takes_the_style_of_the_file() {
        let windows = TextStyle::of(b"\xef\xbb\xbfa\r\nb\r\n");
        assert_eq!(windows.encode("x\ny\r\n"), b"\xef\xbb\xbfx\r\ny\r\n");
        assert_eq!(TextStyle::of(b"a\r\nb\n").encode("x\n"), b"x\n");
        assert_eq!(TextStyle::of(b"").encode("x\r\n"), b"x\r\n");
    }

    #[test]
    fn invalid_bytes_are_displayed_as_such_and_preserved() {
        let decoded = DecodedText::new(b"caf\xe9\n").unwrap();
        assert_eq!(display_text(&decoded.text), "caf\u{fffd}\n");
        assert_eq!(decoded.style.encode(&decoded.text.replace("caf", "Caf")), b"Caf\xe9\n");
        assert_eq!(DecodedText::new("\u{10ff80}".as_bytes()), None);
    }

    #[test]
    fn text_is_distinguished_from_binary_data() {
        for text in
            [&b""[..], b"hello\tworld\r\n", "grüße".as_bytes(), b"caf\xe9 latin", b"\x1b[1mbold\x1b[0m"]
        {
            assert!(!is_binary(text), "{text:?}");
        }
        for other in [&b"a\0b"[..], b"\x01\x02\x03\x04", b"\xff\xfeh\0i\0"] {
            assert!(is_binary(other), "{other:?}");
        }
    }

    #[test]
    fn syntax_is_checked_for_json_toml_and_yaml_only() {
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
