//! The helper program of the tests. It creates sandboxes, which the test harness cannot do because
//! it has several threads, and it is the other hermes that runs a script until a test kills it.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a failed step fails the test")]

#[path = "../it/env.rs"]
#[expect(dead_code, reason = "the tests use the rest")]
mod env;

use hermes_types::Choice;
use std::path::PathBuf;

use env::{BackendKind, TestEnv};
use serde_json::Value;

fn main() {
    hermes_exec::backend::sandbox::helper_main();
    let mut arguments = std::env::args().skip(1);
    let env = read_env(&arguments.next().unwrap());
    let code = arguments.next().unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let session = env.session().await;
        session.approver.answer_with(Choice::Once);
        drop(session.run(&code).await);
    });
}

fn read_env(json: &str) -> TestEnv {
    let json: Value = serde_json::from_str(json).unwrap();
    let path = |value: &Value| PathBuf::from(value.as_str().unwrap());
    let kind = match &json["kind"] {
        Value::String(kind) if kind == "local" => BackendKind::Local,
        Value::String(_) => BackendKind::Sandbox,
        docker => {
            let image = docker["image"].as_str().unwrap().to_owned();
            BackendKind::Docker { socket: path(&docker["socket"]), image }
        }
    };
    let [folder, owner, cache, helper] = ["folder", "owner", "cache", "helper"].map(|name| path(&json[name]));
    TestEnv::new(kind, &folder, &owner, &cache, &helper)
}
