//! Random `config set` edits against a model in memory.

use std::fs;

use hermes_config::edit::{self, PathStep};
use hermes_config::{change, keys, yaml};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, TestRunner};
use serde_json::{Value, json};

const FIXTURE: &str = include_str!("../fixtures/python-user.yaml");

/// A text that a key of this schema accepts, and the parsed value.
fn valid_value(schema: &Value) -> BoxedStrategy<(String, Value)> {
    if let Some(words) = schema["enum"].as_array() {
        let words: Vec<Value> = words.iter().filter(|word| **word != "apptainer").cloned().collect();
        return prop::sample::select(words).prop_map(|w| (w.as_str().unwrap().to_owned(), w)).boxed();
    }
    if let Some(examples) = schema["examples"].as_array() {
        let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        return prop::sample::select(examples.clone()).prop_map(move |value| (text(&value), value)).boxed();
    }
    let text = prop_oneof![
        "[a-z][a-z0-9/:.-]{0,20}[a-z]",
        "[ -~]{1,30}",
        "\\PC{1,12}",
        Just("true".to_owned()),
        Just("0644".to_owned()),
        Just("- x".to_owned()),
        Just("a: b #c".to_owned()),
        Just("two\nlines".to_owned()),
        Just("~".to_owned()),
    ];
    match schema["type"].as_str() {
        Some("boolean") => any::<bool>().prop_map(|b| (b.to_string(), json!(b))).boxed(),
        Some("integer") => (1_u64..65_000).prop_map(|n| (n.to_string(), json!(n))).boxed(),
        Some("number") => (0_u32..1000).prop_map(|n| (format!("{}.5", n), json!(f64::from(n) + 0.5))).boxed(),
        Some("array") => {
            let item = match schema["items"]["pattern"].as_str() {
                // No word of the shell's grammar begins so.
                None if schema["items"]["examples"].is_array() => "x[a-z]{1,5} -[a-z] [a-z/]{1,9}".boxed(),
                None => text.boxed(),
                Some(pattern) if pattern.contains(':') => "/[a-z ]{1,9}x:/[a-z]{3,9}(:ro)?"
                    .prop_filter("no trailing space", |t| !t.contains(" :"))
                    .boxed(),
                Some(_) => "[A-Z_][A-Z0-9_]{0,9}".boxed(),
            };
            prop::collection::vec(item, 0..4)
                .prop_filter("targets and names are unique", |items| {
                    let target = |item: &str| item.split(':').nth(1).unwrap_or(item).to_owned();
                    let all: std::collections::HashSet<_> = items.iter().map(|i| target(i)).collect();
                    all.len() == items.len()
                })
                .prop_map(|items| (json!(items).to_string(), json!(items)))
                .boxed()
        }
        Some("object") => prop::collection::btree_map("[A-Z_][A-Z0-9_]{0,6}", text, 0..4)
            .prop_map(|map| (json!(map).to_string(), json!(map)))
            .boxed(),
        Some("string") => text.prop_map(|t| (t.clone(), json!(t))).boxed(),
        _ => "[a-z0-9]{1,8}(,[a-z0-9]{1,8}){0,3}".prop_map(|t| (t.clone(), json!(t))).boxed(),
    }
}

fn set_in_model(model: &mut Value, path: &str, value: Value) {
    if path.starts_with("model.") && model["model"].is_string() {
        let short = model["model"].take();
        model["model"] = json!({"default": short});
    }
    if path == "terminal.backend" {
        model["terminal"].as_object_mut().unwrap().shift_remove("env_type");
    }
    let mut at = model;
    for part in path.split('.') {
        if at.is_null() {
            *at = json!({});
        }
        at = &mut at[part];
    }
    *at = value;
}

fn sorted_comments(text: &str) -> Vec<String> {
    let mut comments: Vec<String> = edit::comments(text).unwrap().into_iter().map(str::to_owned).collect();
    comments.sort();
    comments
}

#[test]
fn five_hundred_random_edits_keep_every_comment_and_match_a_model() {
    let keys: Vec<_> = keys::all().filter(|key| key.accepted().schema["writeOnly"].is_null()).collect();
    for newline in ["\n", "\r\n"] {
        let start = FIXTURE.replace('\n', newline);
        let home = tempfile::tempdir().unwrap();
        let file = home.path().join("config.yaml");
        fs::write(&file, &start).unwrap();
        let comments = sorted_comments(&start);
        assert_eq!(comments.len(), 33, "{comments:#?}");
        let mut model = yaml::parse(&start).unwrap().to_json();
        let mut runner = TestRunner::new(Config::default());
        for round in 0..500 {
            let key = prop::sample::select(keys.clone()).new_tree(&mut runner).unwrap().current();
            let (text, value) = valid_value(&key.accepted().schema).new_tree(&mut runner).unwrap().current();
            let before = fs::read_to_string(&file).unwrap();
            let result = change::set(home.path(), key.path, &text);
            let after = fs::read_to_string(&file).unwrap();
            let context = || {
                format!("round {round}: set {} {text:?}\n--- before\n{before}\n--- after\n{after}", key.path)
            };
            assert!(result.is_ok(), "{result:?} {}", context());
            set_in_model(&mut model, key.path, value);
            assert_eq!(yaml::parse(&after).unwrap().to_json(), model, "{}", context());
            assert_eq!(sorted_comments(&after), comments, "{}", context());
        }
    }
}

#[test]
fn unsetting_everything_in_any_order_leaves_the_comments() {
    let mut text = FIXTURE.to_owned();
    let mut paths: Vec<Vec<PathStep>> = Vec::new();
    fn leaves(node: &Value, at: &[PathStep], into: &mut Vec<Vec<PathStep>>) {
        match node {
            Value::Object(map) => {
                for (key, value) in map {
                    leaves(value, &[at, &[PathStep::Key(key.clone())]].concat(), into);
                }
            }
            _ => into.push(at.to_vec()),
        }
    }
    leaves(&yaml::parse(&text).unwrap().to_json(), &[], &mut paths);
    let shared = |path: &[PathStep]| {
        let names = ["quick_commands"].map(|name| PathStep::Key(name.into()));
        path.first().is_some_and(|first| names.contains(first))
    };
    for path in paths.iter().filter(|path| !shared(path)) {
        // Unsets each key alone, and then all keys in turn.
        edit::unset(FIXTURE, path).unwrap_or_else(|error| panic!("{path:?}: {error}"));
        text = edit::unset(&text, path).unwrap_or_else(|error| panic!("{path:?}: {error}\n{text}"));
    }
    assert_eq!(sorted_comments(&text), sorted_comments(FIXTURE));
    let rest = yaml::parse(&text).unwrap().to_json();
    assert_eq!(rest.as_object().unwrap().keys().collect::<Vec<_>>(), ["quick_commands"]);
}
