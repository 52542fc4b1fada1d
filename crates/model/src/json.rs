//! Tolerant parsing of JSON from servers, and a stable order of keys: the same value always gives
//! the same bytes.

use serde_json::{Map, Value};

/// Parses a value and tolerates lone surrogates.
pub(crate) fn parse(text: &str) -> serde_json::Result<Value> {
    tolerate_lone_surrogates(text, |text| serde_json::from_str(text))
}

/// Parses text in which a lone surrogate, which some servers send when a character is split between
/// two chunks, becomes the replacement character instead of an error.
pub(crate) fn tolerate_lone_surrogates<T>(
    text: &str,
    parse: impl Fn(&str) -> serde_json::Result<T>,
) -> serde_json::Result<T> {
    parse(text).or_else(|error| replace_lone_surrogates(text).map_or(Err(error), |clean| parse(&clean)))
}

/// Replaces lone surrogate escapes; returns none if there are none.
fn replace_lone_surrogates(text: &str) -> Option<String> {
    if !text.contains("\\ud") && !text.contains("\\uD") {
        return None;
    }
    let mut clean = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('\\') {
        let (before, escape) = rest.split_at(at);
        clean.push_str(before);
        let units = (escaped_unit(escape), escape.get(6..).and_then(escaped_unit));
        let (length, is_lone) = match units {
            (Some(0xD800..=0xDBFF), Some(0xDC00..=0xDFFF)) => (12, false),
            (Some(unit), _) => (6, (0xD800..=0xDFFF).contains(&unit)),
            // Skips the escaped character too, so that `\\u` is not read as an escape.
            (None, _) => (1 + escape.chars().nth(1).map_or(0, char::len_utf8), false),
        };
        let (whole, after) = escape.split_at_checked(length).unwrap_or((escape, ""));
        clean.push_str(if is_lone { "\\ufffd" } else { whole });
        rest = after;
    }
    clean.push_str(rest);
    (clean != text).then_some(clean)
}

/// The code unit of a `\u` escape at the start of the text.
fn escaped_unit(text: &str) -> Option<u32> {
    let digits = text.strip_prefix("\\u")?.get(..4)?;
    u32::from_str_radix(digits, 16).ok()
}

/// Sorts the keys at every depth: servers that cache a prefix find it only if it has the same
/// bytes.
pub(crate) fn sort_keys(object: &Map<String, Value>) -> Value {
    let mut value = Value::Object(object.clone());
    value.sort_all_objects();
    value
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn lone_surrogates_are_replaced_and_pairs_are_kept() {
        let cases = [
            (r#""a\ud83d""#, "a\u{fffd}"),
            (r#""\ud83d\ude00""#, "😀"),
            (r#""\ude00x""#, "\u{fffd}x"),
            (r#""\ud83d\ud83d\ude00""#, "\u{fffd}😀"),
            (r#""\\ud83d""#, "\\ud83d"),
            (r#""\uD83Dé""#, "\u{fffd}é"),
        ];
        for (text, expected) in cases {
            assert_eq!(parse(text).unwrap(), json!(expected), "{text}");
        }
        assert!(parse(r#""\ud83"#).is_err());
        assert!(parse("{").is_err());
    }

    #[test]
    fn the_same_object_is_the_same_text_whatever_the_order_of_its_keys() {
        let one = json!({"b": [{"d": 1, "c": 2}], "a": null});
        let other = json!({"a": null, "b": [{"c": 2, "d": 1}]});
        let text = |value: &Value| sort_keys(value.as_object().unwrap()).to_string();
        assert_eq!(text(&one), r#"{"a":null,"b":[{"c":2,"d":1}]}"#);
        assert_eq!(text(&one), text(&other));
    }
}
