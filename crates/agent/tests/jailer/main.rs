//! What tests start besides themselves: the program that makes jails, which the program that runs the tests cannot,
//! and another hermes that runs a script, to be killed.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on should stop")]

#[path = "../code/bed.rs"]
mod bed;

use std::path::PathBuf;

use bed::{Bed, Kind};
use hermes_policy::Choice;
use serde_json::Value;

fn main() {
    hermes_exec::backend::sandbox::helper_main();
    let mut words = std::env::args().skip(1);
    let mut word = || words.next().unwrap();
    let bed = read(&word());
    let code = word();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let hermes = bed.hands().await;
        *hermes.person.says.lock().unwrap() = Some(Choice::Once);
        drop(hermes.run(&code).await);
    });
}

/// What we were told.
fn read(told: &str) -> Bed {
    let told: Value = serde_json::from_str(told).unwrap();
    let path = |value: &Value| PathBuf::from(value.as_str().unwrap());
    let kind = match &told["kind"] {
        Value::String(word) if word == "local" => Kind::Local,
        Value::String(_) => Kind::Sandbox,
        docker => {
            let image = docker["image"].as_str().unwrap().to_owned();
            Kind::Docker { socket: path(&docker["socket"]), image }
        }
    };
    Bed::new(kind, &path(&told["folder"]), &path(&told["cache"]), &path(&told["helper"]))
}
