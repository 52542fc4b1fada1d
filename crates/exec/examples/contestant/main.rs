//! One side of `cargo xtask bench exec` and `bench docker`: reads a request per line and answers
//! with a line of JSON.
//!
//! The other sides use the same protocol, so the benchmark can alternate between them.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a measurement that fails has no result")]
#![expect(clippy::print_stdout, reason = "prints the figures")]
#![expect(clippy::disallowed_methods, reason = "starts bash for comparison")]

mod files;
mod opened;
mod world;

use std::collections::{HashMap, HashSet};
use std::io::stdin;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use hermes_exec::backend::{docker, sandbox};
use hermes_exec::{CommandEvent, EndReason, OutputMode, Places};
use hermes_sandbox::Jail;
use hermes_types::SessionKey;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use opened::{Layout, OWNER_HOME, Opened};
use world::{field, lineage, lives, sleepers};

const DEADLINE: Duration = Duration::from_secs(1);
const TREE_PROCESSES: usize = 200;
/// The number of places that are created concurrently.
const MAX_CONCURRENT: usize = 4;
/// The state of a typical session of an agent.
const SESSION_STATE: &str = "for i in $(seq 100); do export V$i=\"value $i\"; done; \
    for i in $(seq 20); do eval \"f$i() { local a=\\$1; if [ -n \\\"\\$a\\\" ]; then echo $i; fi; }\"; done";

fn main() {
    hermes_sandbox::helper_main();
    let mut args = std::env::args_os().skip(1).map(PathBuf::from);
    let (home, run) = (args.next().unwrap(), args.next().unwrap());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut contestant = Contestant::new(Layout { home, run });
        for line in stdin().lines() {
            let words: Vec<String> = serde_json::from_str(&line.unwrap()).unwrap();
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            println!("{}", contestant.answer(&words).await);
        }
        contestant.end().await;
    });
}

struct Contestant {
    layout: Layout,
    /// The open places, by their names in requests.
    open: HashMap<String, Opened>,
    /// Whether the file to patch contains the second word.
    patched: bool,
    /// The processes of many idle places.
    crowd: Vec<u32>,
    /// Requests so far.
    count: u32,
}

impl Contestant {
    fn new(layout: Layout) -> Self {
        Self { layout, open: HashMap::new(), patched: false, crowd: Vec::new(), count: 0 }
    }

    async fn answer(&mut self, words: &[&str]) -> Value {
        self.count += 1;
        match *words {
            ["spawn", program, ref arguments @ ..] => seconds(spawn(program, arguments)),
            ["no-op", place] => {
                let opened = self.place(place).await;
                let began = Instant::now();
                assert_eq!(opened.run("true").await.code, 0);
                seconds(began.elapsed())
            }
            ["new-place", backend] => self.new_place(&format!("{backend} new {}", self.count)).await,
            ["ready-place", backend] => {
                let session = format!("{backend} ready {}", self.count);
                self.layout.plan(&SessionKey::new(&session)).fill_warm_pool().await.unwrap();
                self.new_place(&session).await
            }
            ["hold", backend, count] => self.measure_memory(backend, count.parse().unwrap()).await,
            ["masked"] => json!(
                Jail::new("/bin/true", Path::new(OWNER_HOME))
                    .masked
                    .iter()
                    .map(Path::new)
                    .collect::<Vec<_>>()
            ),
            ["flood", place, attention, text] => self.measure_output(place, attention, text).await,
            ["tree", place] => self.measure_tree_kill(place).await,
            ["crowd", count] => self.make_crowd(count.parse().unwrap()).await,
            ["crowd-left"] => json!({ "left": self.crowd.iter().filter(|pid| lives(**pid)).count() }),
            ["file", action] => {
                let words = if self.patched { ("omega", "alpha") } else { ("alpha", "omega") };
                self.patched ^= action == "patch";
                let opened = self.place("local").await;
                let cwd = opened.sandbox.cwd().await.unwrap();
                let began = Instant::now();
                files::use_file(opened, &cwd, action, words).await;
                seconds(began.elapsed())
            }
            _ => panic!("{words:?}"),
        }
    }

    async fn place(&mut self, name: &str) -> &Opened {
        if !self.open.contains_key(name) {
            let opened = Opened::new(&self.layout, name).await;
            if name.ends_with("state") {
                assert_eq!(opened.run(SESSION_STATE).await.code, 0);
            }
            self.open.insert(name.to_owned(), opened);
        }
        &self.open[name]
    }

    async fn new_place(&mut self, session: &str) -> Value {
        let began = Instant::now();
        let opened = Opened::new(&self.layout, session).await;
        assert_eq!(opened.run("true").await.code, 0);
        let taken = began.elapsed();
        opened.sandbox.remove().await.unwrap();
        seconds(taken)
    }

    /// Measures the memory of this process per open place.
    async fn measure_memory(&mut self, backend: &str, count: usize) -> Value {
        let own = || field("/proc/self/smaps_rollup", "Pss:");
        // The cost of the first place is not counted.
        self.place(backend).await;
        let before = own();
        let mut held = Vec::new();
        for number in 0..count {
            let opened = Opened::new(&self.layout, &format!("{backend} held {number}")).await;
            assert_eq!(opened.run("true").await.code, 0);
            held.push(opened);
        }
        let kib = own().saturating_sub(before);
        for opened in held {
            opened.sandbox.remove().await.unwrap();
        }
        json!({ "kib_each": kib as f64 / count as f64 })
    }

    async fn measure_output(&mut self, place: &str, attention: &str, text: &str) -> Value {
        let attention = if attention == "live" { OutputMode::Live } else { OutputMode::AtEnd };
        let opened = self.place(place).await;
        let guest = opened.guest();
        let own = std::process::id();
        let (guest_before, host_before) = (memory(guest, "VmRSS:"), memory(own, "VmRSS:"));
        let began = Instant::now();
        let mut command = opened.start(text, attention.clone(), None).await;
        let mut seen = 0;
        let outcome = loop {
            match command.next_event().await.unwrap() {
                CommandEvent::Output(bytes) => seen += bytes.len() as u64,
                CommandEvent::End(outcome) => break outcome,
            }
        };
        let taken = began.elapsed();
        assert_eq!(seen, if attention == OutputMode::Live { outcome.total_bytes } else { 0 });
        json!({
            "seconds": taken.as_secs_f64(),
            "total": outcome.total_bytes,
            // The peak minus the memory before is an upper bound.
            "guest_kib": memory(guest, "VmHWM:").saturating_sub(guest_before),
            "host_kib": memory(own, "VmHWM:").saturating_sub(host_before),
        })
    }

    /// Measures the delay between a deadline and the end of a process tree that tries to escape.
    async fn measure_tree_kill(&mut self, place: &str) -> Value {
        // No other process sleeps for this number of seconds.
        let mark = format!("86400.{}{:05}", std::process::id(), self.count);
        let each = TREE_PROCESSES / 4;
        let text = format!(
            "for i in $(seq {each}); do sleep {mark} & setsid sleep {mark} & (sleep {mark} &); \
             (setsid sleep {mark} & ); done; echo ready; wait"
        );
        let opened = self.place(place).await;
        let began = Instant::now();
        let mut command = opened.start(&text, OutputMode::Live, Some(DEADLINE)).await;
        let mut grown = 0;
        let outcome = loop {
            match command.next_event().await.unwrap() {
                CommandEvent::Output(_) => grown = sleepers(&mark),
                CommandEvent::End(outcome) => break outcome,
            }
        };
        let late = began.elapsed().saturating_sub(DEADLINE);
        assert_eq!(outcome.end_reason, EndReason::TimedOut);
        json!({ "seconds": late.as_secs_f64(), "grown": grown, "left": sleepers(&mark) })
    }

    /// Creates many places concurrently, as many sessions would, and leaves them idle.
    async fn make_crowd(&mut self, count: usize) -> Value {
        let began = Instant::now();
        let mut making = JoinSet::new();
        let mut guests = Vec::new();
        for number in 0..count {
            if making.len() >= MAX_CONCURRENT {
                guests.extend(making.join_next().await.map(Result::unwrap));
            }
            let layout = self.layout.clone();
            making.spawn(async move { Opened::new(&layout, &format!("crowd {number}")).await.guest() });
        }
        guests.extend(making.join_all().await);
        let taken = began.elapsed();
        let ours = lineage(std::process::id());
        let all: HashSet<u32> =
            guests.iter().flat_map(|pid| lineage(*pid)).filter(|pid| !ours.contains(pid)).collect();
        let kib: u64 = all.iter().map(|pid| field(&format!("/proc/{pid}/smaps_rollup"), "Pss:")).sum();
        self.crowd = all.into_iter().collect();
        json!({
            "seconds": taken.as_secs_f64(),
            "processes_each": self.crowd.len() as f64 / count as f64,
            "kib_each": kib as f64 / count as f64,
        })
    }

    fn places(&self) -> Places {
        Places {
            run_dir: self.layout.run.clone(),
            kept_dirs: [sandbox::KEPT_SUBDIR, docker::KEPT_SUBDIR]
                .map(|kept| self.layout.home.join("sandboxes").join(kept))
                .to_vec(),
        }
    }

    async fn end(self) {
        let places = self.places();
        drop(self.open);
        assert!(places.end_all(places.list().await.unwrap()).await.is_empty());
    }
}

fn spawn(program: &str, arguments: &[&str]) -> Duration {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null());
    let began = Instant::now();
    let status = command.status().unwrap();
    let taken = began.elapsed();
    assert!(status.success(), "{program} {arguments:?}: {status}");
    taken
}

fn seconds(taken: Duration) -> Value {
    json!({ "seconds": taken.as_secs_f64() })
}

/// Kilobytes of a process.
fn memory(pid: u32, name: &str) -> u64 {
    field(&format!("/proc/{pid}/status"), name)
}
