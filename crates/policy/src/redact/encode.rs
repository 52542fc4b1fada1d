//! Encodings in which a secret is likely to be printed.

use std::fmt::Write as _;

use base64::Engine;
use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE};

/// A secret in one encoding.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct EncodedSecret {
    pub(super) bytes: Vec<u8>,
    /// The number of base64 characters after it that still carry bits of the secret.
    pub(super) tail: usize,
    /// The number of padding characters that may follow.
    pub(super) padding: usize,
    /// What may separate its bytes.
    pub(super) gap: Gap,
}

/// The separators that a program may print between the bytes of a value.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Gap {
    None,
    /// Line breaks of encoders.
    Lines,
    /// As `fold` and `sed 's/./& /g'` print it.
    WhiteSpace,
    /// Groups of digits.
    Groups,
}

impl Gap {
    pub(super) fn separators(self) -> &'static [u8] {
        match self {
            Self::None => b"",
            Self::Lines => b"\n\r",
            Self::WhiteSpace => b" \n\r\t",
            Self::Groups => b" \n\r\t:",
        }
    }

    /// The longest separator.
    pub(super) fn limit(self) -> usize {
        match self {
            Self::None | Self::Lines => 2,
            Self::WhiteSpace | Self::Groups => 8,
        }
    }
}

/// The bytes of a shorter value may follow each other by chance, with white space between them.
const MIN_SPLIT_BYTES: usize = 8;

impl EncodedSecret {
    fn exact(bytes: impl Into<Vec<u8>>) -> Self {
        Self { bytes: bytes.into(), tail: 0, padding: 0, gap: Gap::None }
    }

    fn separated(bytes: impl Into<Vec<u8>>, gap: Gap) -> Self {
        Self { gap, ..Self::exact(bytes) }
    }
}

/// All encodings of a value, including the plain one, each once.
pub(super) fn encodings(value: &str) -> Vec<EncodedSecret> {
    let gap = if value.len() < MIN_SPLIT_BYTES { Gap::None } else { Gap::WhiteSpace };
    let reversed: String = value.chars().rev().collect();
    let mut forms = vec![EncodedSecret::exact(reversed)];
    let lower = hermes_types::hex(value.as_bytes());
    forms.extend(
        [lower.to_ascii_uppercase(), lower].map(|digits| EncodedSecret::separated(digits, Gap::Groups)),
    );
    let percent_forms = PERCENT_STYLES.iter().flat_map(|is_kept| percent(value, is_kept));
    forms.extend(percent_forms.map(EncodedSecret::exact));
    let json_forms = JSON_STYLES.iter().map(|(is_escaped, upper)| json(value, is_escaped, *upper));
    forms.extend(json_forms.map(EncodedSecret::exact));
    forms.push(EncodedSecret::exact(value.replace('\'', r"'\''")));
    forms.extend((0..3).flat_map(|shift| base64(value.as_bytes(), shift)));
    forms.extend((0..5).map(|shift| base32(value.as_bytes(), shift)));
    forms.retain(|form| form.bytes != value.as_bytes());
    forms.push(EncodedSecret::separated(value, gap));
    forms.sort();
    forms.dedup();
    forms
}

/// Whether a percent encoder keeps a byte. A space that it keeps becomes a plus sign.
type IsKept = fn(&u8) -> bool;

/// The encoders in use: RFC 3986, the two of JavaScript, Python's `quote` and `quote_plus`, HTML
/// forms, and two that keep only letters and digits or nothing.
const PERCENT_STYLES: &[IsKept] = &[
    |byte| byte.is_ascii_alphanumeric() || b"-_.~".contains(byte),
    |byte| byte.is_ascii_alphanumeric() || b"-_.!~*'()".contains(byte),
    |byte| byte.is_ascii_alphanumeric() || b";,/?:@&=+$-_.!~*'()#".contains(byte),
    |byte| byte.is_ascii_alphanumeric() || b"-_.~/".contains(byte),
    |byte| byte.is_ascii_alphanumeric() || b" -_.~".contains(byte),
    |byte| byte.is_ascii_alphanumeric() || b" -_.*".contains(byte),
    u8::is_ascii_alphanumeric,
    |_| false,
];

fn percent(value: &str, is_kept: &IsKept) -> [String; 2] {
    let (mut upper, mut lower) = (String::new(), String::new());
    for byte in value.bytes() {
        if is_kept(&byte) {
            let shown = if byte == b' ' { '+' } else { char::from(byte) };
            upper.push(shown);
            lower.push(shown);
        } else {
            write!(upper, "%{byte:02X}").ok();
            write!(lower, "%{byte:02x}").ok();
        }
    }
    [upper, lower]
}

/// Whether a JSON writer escapes a character without need.
type IsEscaped = fn(char) -> bool;

/// The JSON writers in use, and whether they write hexadecimal digits in upper case.
const JSON_STYLES: &[(IsEscaped, bool)] = &[
    (|_| false, false),
    (|char| !char.is_ascii(), false),
    (|char| !char.is_ascii(), true),
    (|char| char == '/', false),
    (|char| char == '/' || !char.is_ascii(), false),
    (|char| matches!(char, '<' | '>' | '&'), false),
    (|char| matches!(char, '<' | '>' | '&'), true),
];

fn json(value: &str, is_escaped: &IsEscaped, upper: bool) -> String {
    let mut text = String::new();
    for c in value.chars() {
        match c {
            '"' => text.push_str("\\\""),
            '\\' => text.push_str("\\\\"),
            '\n' => text.push_str("\\n"),
            '\r' => text.push_str("\\r"),
            '\t' => text.push_str("\\t"),
            '\u{8}' => text.push_str("\\b"),
            '\u{c}' => text.push_str("\\f"),
            '/' if is_escaped(c) => text.push_str("\\/"),
            _ if c.is_ascii_control() || is_escaped(c) => {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    let digits = format!("{unit:04x}");
                    text.push_str("\\u");
                    text.push_str(&if upper { digits.to_uppercase() } else { digits });
                }
            }
            _ => text.push(c),
        }
    }
    text
}

/// The base64 characters that do not depend on the bytes around the value, when `shift` bytes
/// (modulo three) precede it. The characters at both ends also carry bits of the neighbors.
fn base64(value: &[u8], shift: usize) -> [EncodedSecret; 2] {
    let shifted = [vec![0; shift].as_slice(), value].concat();
    let bits = 8 * shifted.len();
    let padding = match shifted.len() % 3 {
        0 => 0,
        1 => 2,
        _ => 1,
    };
    [BASE64_STANDARD, BASE64_URL_SAFE].map(|engine| {
        let text = engine.encode(&shifted);
        let bytes = text.bytes().take(bits / 6).skip((shift * 8).div_ceil(6)).collect();
        EncodedSecret { bytes, tail: usize::from(bits % 6 > 0), padding, gap: Gap::Lines }
    })
}

/// The same for base32, whose groups have five bytes and eight characters.
fn base32(value: &[u8], shift: usize) -> EncodedSecret {
    const DIGITS: &[u8; 32] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";
    let shifted = [vec![0; shift].as_slice(), value].concat();
    let bits = 8 * shifted.len();
    let bit = |at: usize| shifted.get(at / 8).map_or(0, |byte| usize::from(byte >> (7 - at % 8) & 1));
    let digit = |n: usize| (0..5).fold(0, |digit, i| 2 * digit + bit(5 * n + i));
    let digits = (shift * 8).div_ceil(5)..bits / 5;
    let bytes = digits.filter_map(|n| DIGITS.get(digit(n)).copied()).collect();
    EncodedSecret { bytes, tail: usize::from(bits % 5 > 0), padding: 6, gap: Gap::Lines }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(value: &str) -> Vec<String> {
        encodings(value).into_iter().map(|form| String::from_utf8(form.bytes).unwrap()).collect()
    }

    #[test]
    fn a_value_with_odd_characters_has_all_the_forms() {
        let forms = written("p/w \"é+1");
        for expected in [
            "p/w \"é+1", "702f772022c3a92b31", "702F772022C3A92B31", "p%2Fw%20%22%C3%A9%2B1",
            "p%2fw%20%22%c3%a9%2b1", "p/w%20%22%C3%A9%2B1", "p/w%20%22%C3%A9+1", "p%2Fw+%22%C3%A9%2B1",
            "%70%2F%77%20%22%C3%A9%2B%31", "p/w \\\"é+1", "p\\/w \\\"é+1", "p/w \\\"\\u00e9+1",
            "p/w \\\"\\u00E9+1", "cC93ICLDqSsx",
        ] {
            assert!(forms.iter().any(|form| form == expected), "{expected} is missing from {forms:?}");
        }
    }

    #[test]
    fn base64_forms_hold_at_every_alignment() {
        // The encoded texts were made with coreutils from `hunter2!`, `_hunter2!` and `__hunter2!`.
        let cases = [("aHVudGVyMiE=", 0), ("X2h1bnRlcjIh", 1), ("X19odW50ZXIyIQ==", 2)];
        for (encoded, shift) in cases {
            let [form, _] = base64(b"hunter2!", shift);
            let core = String::from_utf8(form.bytes).unwrap();
            assert!(encoded.contains(&core), "{core} is not in {encoded}");
            assert!(core.len() >= 10);
        }
    }

    #[test]
    fn an_ordinary_value_has_few_forms() {
        // Plain, reversed, two of hex, two of percent, three of base64, five of base32.
        assert_eq!(written("jklmno123456").len(), 14);
    }
}
