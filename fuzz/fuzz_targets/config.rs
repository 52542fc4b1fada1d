//! Any text as a configuration or secrets file is read or refused, and an edit is correct or
//! refused.
#![no_main]

use hermes_config::dotenv::{self, DotEnv};
use hermes_config::edit::{self, PathStep};
use hermes_config::yaml;
use libfuzzer_sys::fuzz_target;
use serde_json::json;

fuzz_target!(|text: &str| {
    let path = ["terminal", "timeout"].map(|part| PathStep::Key(part.to_owned()));
    if let Ok(edited) = edit::set(text, &path, &json!(7)) {
        let root = yaml::parse(&edited).expect("an edited text can be read");
        assert_eq!(root.to_json()["terminal"]["timeout"], 7);
        edit::unset(&edited, &path).ok();
    }
    let before = DotEnv::parse(text);
    let open_quote = before.invalid_lines.iter().any(|line| line.reason.contains("quote"));
    let after = DotEnv::parse(&dotenv::set(text, "THE_NAME", "a 'value'"));
    if !open_quote {
        assert_eq!(after.get("THE_NAME").map(|line| line.value.as_str()), Some("a 'value'"));
    }
});
