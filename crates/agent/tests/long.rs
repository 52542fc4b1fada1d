//! Many turns in one process.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

#[expect(dead_code, reason = "other tests need more of it")]
#[path = "turns/bed.rs"]
mod bed;

use hermes_agent::StopReason;
use hermes_testkit::model::Script;
use hermes_testkit::{ScriptedModel, Step};
use serde_json::json;

use bed::Bed;

const TURNS: usize = 2_000;
/// A session has so many, and then another one begins.
const SESSION: usize = 4;
/// After so many everything was there once: caches are full, pools have their threads.
const WARM: usize = 500;

/// Kilobytes that this process holds.
fn memory() -> f64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = text.lines().find(|line| line.starts_with("RssAnon:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[tokio::test]
async fn thousands_of_turns_take_no_more_memory_than_hundreds_and_little_more_disk_than_their_text() {
    let turn = |n: usize| {
        let command = format!("seq {n} {}", n + 3_000);
        [
            Step::call(&format!("c{n}"), "terminal", json!({"command": command})),
            Step::text(&format!("done {n}")),
        ]
    };
    let steps = (0..TURNS).flat_map(turn).collect();
    let model = ScriptedModel::play(Script { steps, forgets: true, ..Script::default() }).unwrap();
    let bed = Bed::with(model).await;
    let (mut warm, mut most, mut text) = (0.0, 0.0_f64, 0);
    for session in 0..TURNS / SESSION {
        let mut conversation = bed.begin().await;
        for turn in 0..SESSION {
            let ended = bed.say(&mut conversation, &format!("turn {turn}")).await;
            assert_eq!(ended.stop_reason, StopReason::Answered);
            bed.events.lock().unwrap().clear();
        }
        text += conversation.history().iter().map(|message| message.text().len()).sum::<usize>();
        conversation.end("test").await.unwrap();
        let turns = (session + 1) * SESSION;
        if turns == WARM {
            warm = memory();
        } else if turns > WARM {
            most = most.max(memory());
        }
    }
    assert!(text > TURNS * 15_000, "{text} bytes are not much");
    assert!(most < 1.1 * warm, "{warm} kB after {WARM} turns, {most} kB later");
    let disk = bed.store.size() as f64 / text as f64;
    assert!(disk < 2.5, "{disk} bytes on disk for each byte of text");
    bed.leave().await;
}
