//! A chat with a real model, the optional peer `smollm`.

use std::io::{self, Write};

use hermes_testkit::peers;
use serde_json::json;

use crate::env::CommandEnv;

/// The address and the name of the model, if it is up.
fn model() -> Option<(String, String)> {
    let access = peers::optional("smollm")?;
    let text = |name: &str| access[name].as_str().map(str::to_owned);
    Some((text("url")?, text("model")?))
}

#[test]
fn a_real_model_answers() {
    let Some((url, model)) = model() else {
        let notice = "SKIPPED, PEER smollm IS DOWN: no real model was tested; start it with: cargo xtask peers up smollm\n";
        // Written directly, because the test harness hides what printing macros print.
        io::stderr().write_all(notice.as_bytes()).unwrap();
        return;
    };
    let config = format!("model:\n  default: {model}\n  provider: custom\n  base_url: {url}\n");
    let env = CommandEnv::new("chat", &config);
    let done = env.run(&["-q", "Say hello."]);
    assert_eq!((done.code, done.err.as_str()), (Some(0), ""), "{done:?}");
    assert!(!done.out.trim().is_empty(), "{done:?}");
    let second = env.run(&["--json", "--resume", "last", "-q", "Say hello again."]);
    let document = second.json();
    assert_eq!(
        [&document["exit"], &document["model"], &document["calls"]],
        [&json!("answered"), &json!(model), &json!(1)],
        "{second:?}"
    );
    assert!(!document["text"].as_str().unwrap().trim().is_empty(), "{second:?}");
    let counted = |name: &str| document["usage"][name].as_u64().unwrap();
    assert!(counted("input") + counted("cache_read") > 0 && counted("output") > 0, "{second:?}");
}
