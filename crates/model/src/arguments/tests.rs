use proptest::prelude::*;
use serde_json::json;

use super::*;

fn object(value: Value) -> CallArguments {
    CallArguments::Object(value.as_object().unwrap().clone())
}

fn is_broken(arguments: &CallArguments) -> bool {
    matches!(arguments, CallArguments::Broken { .. })
}

#[test]
fn every_form_decodes_to_an_object() {
    let cases = [
        (r#"{"a":1}"#, json!({"a": 1})),
        ("", json!({})),
        (" \n", json!({})),
        ("null", json!({})),
        ("[]", json!({})),
        ("\"\"", json!({})),
        ("{}", json!({})),
        (r#"{}{"a":1}"#, json!({"a": 1})),
        (r#"{"a":1}{}"#, json!({"a": 1})),
        (r#"{"a":1}{"a":1}"#, json!({"a": 1})),
        (r#"[{"a":1}]"#, json!({"a": 1})),
        (r#""{\"a\":1}""#, json!({"a": 1})),
        (r#""\"{\\\"a\\\":1}\"""#, json!({"a": 1})),
        ("\u{feff}{\"a\":1}", json!({"a": 1})),
        (r#"{"a":"\ud83d"}"#, json!({"a": "\u{fffd}"})),
        // Repaired.
        (r#"{"a":1,}"#, json!({"a": 1})),
        (r#"{"a":[1,2,],}"#, json!({"a": [1, 2]})),
        ("{\"a\":\"x\ty\n\"}", json!({"a": "x\ty\n"})),
        (r#"{"a": [1,2"#, json!({"a": [1, 2]})),
        (r#"{"a": {"b": [1"#, json!({"a": {"b": [1]}})),
        (r#"{"a":1}}"#, json!({"a": 1})),
        (r#"{"a":1}]}"#, json!({"a": 1})),
        ("```json\n{\"a\":1}\n```", json!({"a": 1})),
    ];
    for (text, expected) in cases {
        assert_eq!(decode(text, false).unwrap(), *expected.as_object().unwrap(), "{text}");
    }
}

#[test]
fn ambiguous_arguments_are_broken() {
    let cases = [
        "7", "true", "[1,2]", r#"[{"a":1},{"b":1}]"#, r#"{"a":1}{"a":2}"#, r#"{"a":"never ended"#,
        r#"{"a":"#, r#"{"a"}"#, r#"{"a":[1,2}"#, "{'a':1}", "ls -l", r#"{"a":1} and so on"#,
    ];
    for text in cases {
        assert!(decode(text, false).is_err(), "{text}: {:?}", decode(text, false));
    }
}

#[test]
fn truncated_arguments_are_never_repaired() {
    for text in [r#"{"path":"a","content":"x""#, r#"{"a": [1,2"#, r#"{"a":1,"#, "{", r#"{}{"a"#] {
        assert_eq!(decode(text, true).unwrap_err().to_string(), TRUNCATED, "{text}");
    }
    // Missing arguments are not the same as no arguments.
    assert!(is_broken(&ArgumentsBuilder::default().finish(true)));
    assert_eq!(ArgumentsBuilder::default().finish(false), object(json!({})));
    for nothing in [json!("{}"), json!("null"), json!({})] {
        let mut pieces = ArgumentsBuilder::default();
        pieces.push(&nothing);
        assert!(is_broken(&pieces.finish(true)), "{nothing}");
    }
}

#[test]
fn pieces_can_be_text_values_or_both() {
    let cases = [
        (vec![json!("{\"a\""), json!(":1}")], Some(json!({"a": 1}))),
        (vec![json!({"a": 1})], Some(json!({"a": 1}))),
        (vec![json!({"a": 1}), json!({"b": 2})], Some(json!({"a": 1, "b": 2}))),
        (vec![json!({"a": "he"}), json!({"a": "hello"})], Some(json!({"a": "hello"}))),
        (vec![json!({}), json!("{\"a\":1}")], Some(json!({"a": 1}))),
        (vec![json!("{\"a\":1}"), json!({"a": 1})], Some(json!({"a": 1}))),
        (vec![json!(""), json!({"a": 1}), Value::Null], Some(json!({"a": 1}))),
        (vec![json!([{"a": 1}])], Some(json!({"a": 1}))),
        (vec![Value::Null], Some(json!({}))),
        (vec![json!({"a": 1}), json!({"a": 2})], None),
        (vec![json!("{\"a\":1}"), json!({"a": 2})], None),
        (vec![json!(7)], None),
    ];
    for (pieces, expected) in cases {
        let mut all = ArgumentsBuilder::default();
        pieces.iter().for_each(|piece| all.push(piece));
        let arguments = all.finish(false);
        match expected {
            Some(expected) => assert_eq!(arguments, object(expected), "{pieces:?}"),
            None => assert!(is_broken(&arguments), "{pieces:?}: {arguments:?}"),
        }
    }
}

#[test]
fn arguments_are_converted_to_the_schema_without_guessing() {
    let schema = json!({"properties": {
        "n": {"type": "integer"}, "f": {"type": "number"}, "b": {"type": "boolean"},
        "l": {"type": "array", "items": {"type": "integer"}}, "o": {"type": "object", "properties": {"n": {"type": "integer"}}},
        "s": {"type": "string"}, "m": {"type": ["integer", "null"]}, "a": {"anyOf": [{"type": "boolean"}, {"type": "null"}]},
    }});
    let cases = [
        (json!({"n": "5"}), json!({"n": 5})),
        (json!({"n": 5.0}), json!({"n": 5})),
        (json!({"n": "5.0"}), json!({"n": 5})),
        (json!({"n": "five"}), json!({"n": "five"})),
        (json!({"n": 5.5}), json!({"n": 5.5})),
        (json!({"f": "0.5"}), json!({"f": 0.5})),
        (json!({"f": "NaN"}), json!({"f": "NaN"})),
        (json!({"b": "True"}), json!({"b": true})),
        (json!({"b": "yes"}), json!({"b": "yes"})),
        (json!({"l": "[1,\"2\"]"}), json!({"l": [1, 2]})),
        (json!({"l": "3"}), json!({"l": [3]})),
        (json!({"l": 3}), json!({"l": [3]})),
        (json!({"o": "{\"n\":\"7\"}"}), json!({"o": {"n": 7}})),
        (json!({"o": "x"}), json!({"o": "x"})),
        (json!({"s": "5"}), json!({"s": "5"})),
        (json!({"m": "null"}), json!({"m": null})),
        (json!({"m": "4"}), json!({"m": 4})),
        (json!({"a": "false"}), json!({"a": false})),
        (json!({"unknown": "5"}), json!({"unknown": "5"})),
    ];
    for (given, expected) in cases {
        let fitted = coerce(given.as_object().unwrap().clone(), &schema);
        assert_eq!(Value::Object(fitted), expected, "{given}");
    }
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        ".*".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(".*", inner, 0..4)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

fn any_object() -> impl Strategy<Value = Map<String, Value>> {
    prop::collection::btree_map("[a-z\"\\\\]{1,4}", any_json(), 1..5)
        .prop_map(|map| map.into_iter().collect())
}

proptest! {
    #[test]
    fn an_object_survives_every_form_and_every_split(object in any_object(), size in 1_usize..9) {
        let text = Value::Object(object.clone()).to_string();
        let shapes = [
            text.clone(),
            format!("{{}}{text}"),
            format!("{text}{text}"),
            format!("[{text}]"),
            Value::from(text.clone()).to_string(),
        ];
        for shape in shapes {
            let mut pieces = ArgumentsBuilder::default();
            let chars: Vec<char> = shape.chars().collect();
            chars.chunks(size).for_each(|piece| pieces.push(&Value::from(piece.iter().collect::<String>())));
            for is_truncated in [false, true] {
                prop_assert_eq!(pieces.clone().finish(is_truncated), CallArguments::Object(object.clone()));
            }
        }
        let mut pieces = ArgumentsBuilder::default();
        pieces.push(&Value::Object(object.clone()));
        prop_assert_eq!(pieces.finish(false), CallArguments::Object(object));
    }

    #[test]
    fn a_prefix_of_truncated_arguments_is_broken(object in any_object(), at in any::<prop::sample::Index>()) {
        let text: Vec<char> = Value::Object(object).to_string().chars().collect();
        let prefix: String = text.iter().take(at.index(text.len())).collect();
        let mut pieces = ArgumentsBuilder::default();
        pieces.push(&Value::from(prefix));
        prop_assert!(is_broken(&pieces.finish(true)));
    }

    #[test]
    fn any_text_can_be_decoded(text in ".*") {
        decode(&text, false).ok();
        decode(&text, true).ok();
    }
}
