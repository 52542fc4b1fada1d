//! How long scripts take: `cargo run --release -p hermes-agent --example code_speed [SOCKET IMAGE]`.
//!
//! For each backend: a script that prints, beside the same by a bare `python3 -c` in the same place, and a call inside a
//! script, beside the same call made directly. With the socket of an engine and an image of it, containers too.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a measurement that fails has no result")]
#![expect(clippy::print_stdout, reason = "the figures are what this is for")]

#[path = "../tests/code/bed.rs"]
mod bed;

use std::time::{Duration, Instant};

use bed::{Bed, Kind};
use hermes_agent::Tool;
use hermes_policy::Choice;
use serde_json::json;

const RUNS: usize = 40;
const CALLS: usize = 200;

fn main() {
    hermes_exec::backend::sandbox::helper_main();
    let mut words = std::env::args().skip(1);
    let mut kinds = vec![Kind::Local, Kind::Sandbox];
    if let (Some(socket), Some(image)) = (words.next(), words.next()) {
        kinds.push(Kind::Docker { socket: socket.into(), image });
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    for kind in kinds {
        runtime.block_on(measure(kind));
    }
}

async fn measure(kind: Kind) {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("work")).unwrap();
    println!("{kind:?}");
    let mut bed =
        Bed::new(kind, folder.path(), &folder.path().join("guest"), &std::env::current_exe().unwrap());
    bed.code.max_tool_calls = 10_000;
    let session = bed.hands().await;
    *session.person.says.lock().unwrap() = Some(Choice::Once);
    let bare = json!({"command": "exec python3 -c 'print(1)'"});
    let (mut scripts, mut bares) = (Vec::new(), Vec::new());
    for _ in 0..RUNS {
        let began = Instant::now();
        assert_eq!(session.call(Tool::Terminal, bare.clone()).await.answer["output"], "1");
        bares.push(began.elapsed());
        let began = Instant::now();
        assert_eq!(session.run("print(1)").await.answer["output"], "1\n");
        scripts.push(began.elapsed());
    }
    let (script, bare) = (median(scripts), median(bares));
    println!("  a script that prints {script:?}, python3 -c by terminal {bare:?}");
    let mut direct = Vec::new();
    for _ in 0..CALLS {
        let began = Instant::now();
        session.call(Tool::Terminal, json!({"command": "true"})).await;
        direct.push(began.elapsed());
    }
    let code = format!(
        "import time, hermes_tools\n\
         def each(call):\n    \
             times = []\n    \
             for _ in range({CALLS}):\n        \
                 began = time.perf_counter()\n        \
                 call()\n        \
                 times.append(time.perf_counter() - began)\n    \
             first = times[0]\n    \
             return first, sorted(times)[len(times) // 2]\n\
         for call in (lambda: hermes_tools.terminal('true'), lambda: hermes_tools._call('nothing')):\n    \
             print(*['%.0f' % (1e6 * took) for took in each(call)])\n"
    );
    let done = session.run(&code).await;
    let direct = median(direct);
    println!(
        "  a call made directly {direct:?}; inside a script, then one that is refused, first and median in us:"
    );
    print!("{}", done.answer["output"].as_str().unwrap());
    session.hands.sandbox().await.unwrap();
    let places =
        hermes_exec::Places { run: folder.path().join("run"), kept: vec![folder.path().join("kept")] };
    assert!(places.end(places.list().await.unwrap()).await.is_empty());
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}
