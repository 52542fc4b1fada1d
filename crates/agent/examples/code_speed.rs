//! How long scripts take, in seconds, as a line of JSON for each backend: one side of `cargo xtask bench agent`. It takes the socket of an
//! engine and an image.
//!
//! A script that prints, beside the same by a bare `python3 -c` in the same place, and a call inside a script, beside the
//! same call made directly.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a measurement that fails has no result")]
#![expect(clippy::print_stdout, reason = "the figures are what this is for")]

#[path = "../tests/code/bed.rs"]
mod bed;

use std::time::Instant;

use bed::{Bed, Kind};
use hermes_agent::Tool;
use hermes_policy::Choice;
use serde_json::json;

const RUNS: usize = 40;
/// How often the two kinds of call take turns, and how many each of them makes then.
const ROUNDS: usize = 5;
const CALLS: usize = 60;

fn main() {
    hermes_exec::backend::sandbox::helper_main();
    let mut words = std::env::args().skip(1);
    let (socket, image) = (words.next().unwrap().into(), words.next().unwrap());
    let kinds =
        [("local", Kind::Local), ("sandbox", Kind::Sandbox), ("docker", Kind::Docker { socket, image })];
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    for (name, kind) in kinds {
        runtime.block_on(measure(name, kind));
    }
}

async fn measure(name: &str, kind: Kind) {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("work")).unwrap();
    let mut bed =
        Bed::new(kind, folder.path(), &folder.path().join("guest"), &std::env::current_exe().unwrap());
    bed.code.max_tool_calls = 10_000;
    let session = bed.hands().await;
    *session.person.says.lock().unwrap() = Some(Choice::Once);
    let bare = json!({"command": "exec python3 -c 'print(1)'"});
    let (mut scripts, mut bares) = (Vec::new(), Vec::new());
    for _ in 0..RUNS {
        let began = Instant::now();
        assert_eq!(session.call(Tool::Terminal, bare.clone()).await.content["output"], "1");
        bares.push(began.elapsed().as_secs_f64());
        let began = Instant::now();
        assert_eq!(session.run("print(1)").await.content["output"], "1\n");
        scripts.push(began.elapsed().as_secs_f64());
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
            let began = Instant::now();
            session.call(Tool::Terminal, json!({"command": "true"})).await;
            direct.push(began.elapsed().as_secs_f64());
        }
        let done = session.run(&code).await;
        let printed = done.content["output"].as_str().unwrap().lines();
        inside.extend(printed.map(|line| line.parse::<f64>().unwrap()));
    }
    println!(
        "{}",
        json!({"backend": name, "script": scripts, "bare": bares, "direct": direct, "inside": inside})
    );
    session.hands.open_place(&|_| {}).await.unwrap();
    let places = hermes_exec::Places {
        run_dir: folder.path().join("run"),
        kept_dirs: vec![folder.path().join("kept")],
    };
    assert!(places.end_all(places.list().await.unwrap()).await.is_empty());
}
