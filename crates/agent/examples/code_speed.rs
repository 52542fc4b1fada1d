//! Measures scripts, in seconds, and prints a line of JSON for each backend: one side of
//! `cargo xtask bench agent`. Arguments: the socket of an engine and an image.
//!
//! Compares a script that prints with a bare `python3 -c` in the same environment, and a call
//! inside a script with the same call made directly.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a failed step has no result")]
#![expect(clippy::print_stdout, reason = "prints the figures")]

#[path = "../tests/it/env.rs"]
#[expect(dead_code, reason = "the tests use the rest")]
mod env;

use std::time::Instant;

use env::{BackendKind, TestEnv};
use hermes_agent::Tool;
use hermes_types::Choice;
use serde_json::json;

const RUNS: usize = 40;
/// Direct calls and calls inside a script alternate in rounds.
const ROUNDS: usize = 5;
const CALLS: usize = 60;

fn main() {
    hermes_exec::backend::sandbox::helper_main();
    let mut arguments = std::env::args().skip(1);
    let (socket, image) = (arguments.next().unwrap().into(), arguments.next().unwrap());
    let kinds = [
        ("local", BackendKind::Local),
        ("sandbox", BackendKind::Sandbox),
        ("docker", BackendKind::Docker { socket, image }),
    ];
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    for (name, kind) in kinds {
        runtime.block_on(measure(name, kind));
    }
}

async fn measure(name: &str, kind: BackendKind) {
    let folder = tempfile::tempdir().unwrap();
    let (owner, guest) = (folder.path().join("owner"), folder.path().join("guest"));
    let mut env = TestEnv::new(kind, folder.path(), &owner, &guest, &std::env::current_exe().unwrap());
    std::fs::create_dir_all(env.work()).unwrap();
    env.code.max_tool_calls = 10_000;
    let session = env.session().await;
    session.approver.answer_with(Choice::Once);
    let bare = json!({"command": "exec python3 -c 'print(1)'"});
    let (mut scripts, mut bares) = (Vec::new(), Vec::new());
    for _ in 0..RUNS {
        let started = Instant::now();
        assert_eq!(session.call(Tool::Terminal, bare.clone()).await.content["output"], "1");
        bares.push(started.elapsed().as_secs_f64());
        let started = Instant::now();
        assert_eq!(session.run("print(1)").await.content["output"], "1\n");
        scripts.push(started.elapsed().as_secs_f64());
    }
    let code = format!(
        "import time, hermes_tools\n\
         hermes_tools.terminal('true')\n\
         for _ in range({CALLS}):\n    \
             began = time.perf_counter()\n    \
             hermes_tools.terminal('true')\n    \
             print(time.perf_counter() - began)\n"
    );
    let (mut direct, mut inside) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        for _ in 0..CALLS {
            let started = Instant::now();
            session.call(Tool::Terminal, json!({"command": "true"})).await;
            direct.push(started.elapsed().as_secs_f64());
        }
        let result = session.run(&code).await;
        let printed = result.content["output"].as_str().unwrap().lines();
        inside.extend(printed.map(|line| line.parse::<f64>().unwrap()));
    }
    println!(
        "{}",
        json!({"backend": name, "script": scripts, "bare": bares, "direct": direct, "inside": inside})
    );
    let places = hermes_exec::Places {
        run_dir: folder.path().join("run"),
        kept_dirs: vec![folder.path().join("kept")],
    };
    assert!(places.end_all(places.list().await.unwrap()).await.is_empty());
}
