//! Many turns in one process.

use std::process::Command;

use hermes_agent::StopReason;
use hermes_testkit::model::ModelScript;
use hermes_testkit::{ScriptStep, ScriptedModel};
use serde_json::json;

use crate::chat::ChatEnv;

const TURNS: usize = 2_000;
/// Turns of one session.
const TURNS_PER_SESSION: usize = 4;
/// Turns after which caches are full and pools have their threads.
const WARM_UP_TURNS: usize = 500;

/// Anonymous memory of this process in kilobytes.
fn memory_kb() -> f64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = text.lines().find(|line| line.starts_with("RssAnon:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// The measured memory is that of the whole process, so the test runs itself again, alone.
#[test]
#[expect(clippy::disallowed_methods, reason = "no other test may run in the measured process")]
fn memory_and_disk_do_not_grow_with_the_number_of_turns() {
    const ALONE: &str = "HERMES_TEST_ALONE";
    if std::env::var_os(ALONE).is_some() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        return runtime.block_on(run_thousands_of_turns());
    }
    let name = "long::memory_and_disk_do_not_grow_with_the_number_of_turns";
    let program = std::env::current_exe().unwrap();
    let status = Command::new(program).args(["--exact", name]).env(ALONE, "1").status().unwrap();
    assert!(status.success(), "{status}");
}

async fn run_thousands_of_turns() {
    let turn = |n: usize| {
        let command = format!("seq {n} {}", n + 3_000);
        [
            ScriptStep::call(&format!("c{n}"), "terminal", json!({"command": command})),
            ScriptStep::text(&format!("done {n}")),
        ]
    };
    let steps = (0..TURNS).flat_map(turn).collect();
    let model =
        ScriptedModel::start_script(ModelScript { steps, discard_requests: true, ..ModelScript::default() })
            .unwrap();
    let env = ChatEnv::with_model(model).await;
    let (mut warm, mut most, mut text) = (0.0, 0.0_f64, 0);
    for session in 0..TURNS / TURNS_PER_SESSION {
        let mut conversation = env.create().await;
        for turn in 0..TURNS_PER_SESSION {
            let result = env.run(&mut conversation, &format!("turn {turn}")).await;
            assert_eq!(result.stop_reason, StopReason::Answered);
            env.events.lock().unwrap().clear();
        }
        text += conversation.history().iter().map(|message| message.text().len()).sum::<usize>();
        conversation.end("test").await.unwrap();
        let turns = (session + 1) * TURNS_PER_SESSION;
        if turns == WARM_UP_TURNS {
            warm = memory_kb();
        } else if turns > WARM_UP_TURNS {
            most = most.max(memory_kb());
        }
    }
    assert!(text > TURNS * 15_000, "only {text} bytes of text");
    assert!(most < 1.1 * warm, "{warm} kB after {WARM_UP_TURNS} turns, {most} kB later");
    let disk = env.store.size() as f64 / text as f64;
    assert!(disk < 2.5, "{disk} bytes on disk for each byte of text");
    env.finish().await;
}
