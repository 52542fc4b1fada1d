//! A helper process for tests: it creates jails, which a test runner cannot, and acts as another
//! hermes that can be killed.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test that cannot go on should stop, and prints its results"
)]

#[path = "../it/fixture.rs"]
mod fixture;

use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use hermes_exec::{
    CommandEvent, EndReason, ExitNotice, OpenPlace, OutputMode, Places, ResolvedPlace, RunOptions,
    RunningCommand,
};
use hermes_types::Work;

use fixture::{Fixture, Peer, permit_for, run_options};

fn main() {
    hermes_sandbox::helper_main();
    let mut words = std::env::args().skip(1);
    let mut word = || words.next().unwrap();
    let (backend, folder) = (word().parse().unwrap(), PathBuf::from(word()));
    let (socket, image) = (word().into(), word());
    let peer = Peer { socket, image, options: word().lines().map(str::to_owned).collect() };
    let fixture = Fixture {
        backend,
        peer: Some(peer).filter(|peer| !peer.image.is_empty()),
        owner: folder.join("owner"),
        folder,
        cache: word().into(),
        helper: std::env::current_exe().unwrap(),
        lifetime: Duration::from_millis(word().parse().unwrap()),
    };
    let session = word();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let plan = fixture.plan(&session);
        let sandbox = plan.open().await.unwrap();
        let hermes = Hermes { plan, sandbox, session };
        println!("open");
        while let (Some(verb), Some(text)) = (words.next(), words.next()) {
            hermes.run_step(&verb, &text).await;
        }
    });
}

/// Runs the steps of its command line in order.
struct Hermes {
    plan: ResolvedPlace,
    sandbox: OpenPlace,
    session: String,
}

impl Hermes {
    async fn run_step(&self, verb: &str, text: &str) {
        match verb {
            "show" => {
                let mut command = self.start(text, OutputMode::Live).await;
                while let CommandEvent::Output(bytes) = command.next_event().await.unwrap() {
                    std::io::stdout().write_all(&bytes).unwrap();
                    std::io::stdout().flush().unwrap();
                }
            }
            "background" => {
                let attention = OutputMode::Background {
                    label: String::new(),
                    watch: Vec::new(),
                    at_end: ExitNotice::Quiet,
                };
                let EndReason::Background(id) =
                    self.start(text, attention).await.wait().await.unwrap().end_reason
                else {
                    panic!("it did not start")
                };
                println!("{} {}", id.pid, id.started);
            }
            "live" | "summary" => {
                let attention = if verb == "live" { OutputMode::Live } else { OutputMode::AtEnd };
                let before = peak_memory();
                let mut command = self.start(text, attention).await;
                let mut seen = 0;
                let outcome = loop {
                    match command.next_event().await.unwrap() {
                        CommandEvent::Output(bytes) => seen += bytes.len(),
                        CommandEvent::End(outcome) => break outcome,
                    }
                };
                // The kernel counts in batches, so the peak may look lower than before.
                let grown = peak_memory().saturating_sub(before);
                println!("{} {} {seen} {grown}", outcome.total_bytes, outcome.omitted_bytes);
            }
            "end" => {
                let places = Places { run_dir: self.plan.run_dir().to_owned(), kept_dirs: Vec::new() };
                for found in places.find(&self.session).await.unwrap() {
                    found.end().await.unwrap();
                }
            }
            other => panic!("{other}"),
        }
    }

    async fn start(&self, text: &str, attention: OutputMode) -> RunningCommand {
        let job = self.sandbox.job(Work::Shell(text.to_owned())).await.unwrap();
        let permit = permit_for(&self.plan, &self.session, job);
        let run_options = RunOptions { timeout: None, ..run_options(attention) };
        self.sandbox.start_command(permit, run_options).await.unwrap()
    }
}

/// The peak memory of this process in bytes.
fn peak_memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
}
