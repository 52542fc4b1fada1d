//! Configuration changes killed with SIGKILL, and concurrent writers.

use std::collections::HashSet;
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

use crate::Home;

#[test]
fn a_killed_config_set_leaves_the_old_or_the_new_file() {
    // A large file makes the write slow, so more kills hit it.
    let padding = "# a line that must survive\n".repeat(1_500);
    let content = |number: usize| format!("{padding}terminal:\n  timeout: {number} # kept\n{padding}");
    let home = Home::with_config(&content(1));
    let started = Instant::now();
    assert_eq!(home.run(&["config", "set", "terminal.timeout", "2"]).code, Some(0));
    let mut whole_run = started.elapsed();
    let mut value = 2;
    let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
    let (mut old, mut new) = (0, 0);
    for round in 0..200 {
        let next = 100 + round;
        let mut child = home
            .command(&["config", "set", "terminal.timeout", &next.to_string()])
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        let permille = u32::try_from(seed % 1200).unwrap();
        thread::sleep(whole_run * permille / 1000);
        child.kill().unwrap();
        child.wait().unwrap();
        let found = home.read("config.yaml").unwrap();
        if found == content(next) {
            value = next;
            new += 1;
            whole_run = whole_run * 9 / 10;
        } else {
            assert!(found == content(value), "round {round}: neither the old nor the new file");
            old += 1;
            // On a busy machine the command takes longer than the measured time.
            whole_run = whole_run * 31 / 30;
        }
    }
    // Without both outcomes, the kills came at the wrong time.
    assert!(old >= 20 && new >= 5, "{old} old, {new} new");
    assert_eq!(home.run(&["config", "set", "terminal.timeout", "9"]).code, Some(0));
    assert_eq!(home.read("config.yaml").unwrap(), content(9));
    let names: HashSet<_> = std::fs::read_dir(home.path())
        .unwrap()
        .map(|e| e.unwrap().file_name().into_string().unwrap())
        .collect();
    assert_eq!(names, HashSet::from(["config.yaml", ".config.lock", "logs"].map(str::to_owned)));
}

#[test]
fn concurrent_sets_all_survive() {
    let home = Home::with_config("# shared\n");
    thread::scope(|scope| {
        for writer in 0..4 {
            let home = &home;
            scope.spawn(move || {
                for number in 0..10 {
                    let key = format!("terminal.docker_env.W{writer}_{number}");
                    let run = home.run(&["config", "set", &key, "x"]);
                    assert_eq!(run.code, Some(0), "{run:?}");
                    let run = home.run(&["config", "set", &format!("W{writer}_{number}_TOKEN"), "y"]);
                    assert_eq!(run.code, Some(0), "{run:?}");
                    thread::sleep(Duration::from_millis(1));
                }
            });
        }
    });
    let loaded = home.load(&[]);
    assert_eq!(loaded.layers.dotenv.entries.len(), 40);
    assert_eq!(loaded.config.unwrap().terminal.docker_env.len(), 40);
    assert!(home.read("config.yaml").unwrap().starts_with("# shared\n"));
}
