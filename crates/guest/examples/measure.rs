//! Measures the guest: `cargo run --release -p hermes-guest --example measure --
//! path/to/hermes-guest`.
//!
//! Each figure is measured together with its baseline, in turns, because only the ratio is
//! meaningful on a busy machine.

#![expect(clippy::unwrap_used, reason = "a measurement that fails has no result")]
#![expect(clippy::print_stdout, reason = "the example prints its figures")]
#![expect(clippy::disallowed_methods, reason = "starts the guest, and bash for comparison")]

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use hermes_guest::client::{Client, RunEvent};
use hermes_guest::protocol::message::{
    ExitReport, OpenSession, OutputDelivery, Program, RunMode, RunRequest, ShellSessionKey, StatePolicy,
    Stdin,
};
use serde_bytes::ByteBuf;
use tokio::net::UnixStream;

const ROUNDS: usize = 400;
const FLOOD: &str = "head -c 200000000 /dev/zero";

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let guest = PathBuf::from(std::env::args_os().nth(1).unwrap());
    println!("binary: {} bytes", std::fs::metadata(&guest).unwrap().len());
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("run/guest.sock");
    serve(&guest, &socket);
    let stream = UnixStream::connect(&socket).await.unwrap();
    let pid = stream.peer_cred().unwrap().pid().unwrap().unsigned_abs();
    let client = Client::connect(stream).await.unwrap();
    println!("idle, one client: {} KiB proportional", proportional(pid));
    let env = vec![(ByteBuf::from("PATH"), ByteBuf::from("/usr/bin:/bin"))];
    let key = ShellSessionKey::from("s");
    client
        .open_session(OpenSession {
            key,
            cwd: ByteBuf::from("/tmp"),
            env,
            init_files: Vec::new(),
            protected_env: Vec::new(),
            guard: None,
        })
        .await
        .unwrap();

    latency(&client, "no-op").await;
    let state = "for i in $(seq 100); do export V$i=\"value $i\"; done; \
        for i in $(seq 20); do eval \"f$i() { local a=\\$1; if [ -n \\\"\\$a\\\" ]; then echo $i; fi; }\"; done";
    run(&client, OutputDelivery::Summary, state, None).await;
    latency(&client, "no-op, 100 variables and 20 functions").await;
    println!("after {} commands: {} KiB proportional", 2 * ROUNDS, proportional(pid));
    throughput(&client, pid).await;
    kill(&client).await;
    many_idle(&guest).await;
    end(pid);
}

fn serve(guest: &Path, socket: &Path) {
    let mut command = Command::new(guest);
    command.args(["serve", "--idle", "60", "--socket"]).arg(socket).stdin(Stdio::null());
    assert!(command.status().unwrap().success());
}

fn end(pid: u32) {
    let pid = rustix::process::Pid::from_raw(pid.cast_signed()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
}

async fn run(client: &Client, output: OutputDelivery, text: &str, deadline: Option<Duration>) -> ExitReport {
    let run = RunRequest {
        session: ShellSessionKey::from("s"),
        program: Program::Shell(ByteBuf::from(text)),
        workdir: hermes_guest::protocol::message::WorkingDir::Session,
        judged_shell: None,
        env: Vec::new(),
        stdin: Stdin::Null,
        terminal: None,
        deadline,
        mode: RunMode::Foreground { output, state: StatePolicy::Apply },
        memory_bytes: 64 * 1024,
        spool_bytes: 64 << 20,
        confinement: hermes_guest::protocol::guard::RunConfinement::None,
    };
    let mut running = client.run(run).await.unwrap();
    loop {
        if let RunEvent::Exited(ended) = running.next_event().await.unwrap() {
            return *ended;
        }
    }
}

fn bash(text: &str) -> Duration {
    let began = Instant::now();
    let mut command = Command::new("bash");
    assert!(
        command.args(["-c", text]).stdin(Stdio::null()).stdout(Stdio::null()).status().unwrap().success()
    );
    began.elapsed()
}

fn at(sorted: &mut [Duration], part: f64) -> f64 {
    sorted.sort();
    let index = (sorted.len() as f64 * part) as usize;
    sorted[index.min(sorted.len() - 1)].as_secs_f64() * 1e3
}

async fn latency(client: &Client, name: &str) {
    let (mut ours, mut plain) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        plain.push(bash("true"));
        let began = Instant::now();
        assert_eq!(run(client, OutputDelivery::Summary, "true", None).await.code, 0);
        ours.push(began.elapsed());
    }
    let (median, bare) = (at(&mut ours, 0.5), at(&mut plain, 0.5));
    println!(
        "{name}: median {median:.2} ms, p99 {:.2}; bash -c true: median {bare:.2} ms, p99 {:.2}; ratio {:.2}",
        at(&mut ours, 0.99),
        at(&mut plain, 0.99),
        median / bare
    );
}

async fn throughput(client: &Client, pid: u32) {
    for (name, output) in [("summary", OutputDelivery::Summary), ("live", OutputDelivery::Live)] {
        let (mut ours, mut plain) = (Vec::new(), Vec::new());
        let (guest, host) = (peak(pid), peak(std::process::id()));
        let (mut worked, mut piped) = (Duration::ZERO, Duration::ZERO);
        for _ in 0..5 {
            let before = waited_for();
            plain.push(bash(&format!("{FLOOD} | cat >/dev/null")));
            piped += waited_for() - before;
            let (began, before) = (Instant::now(), processor(pid) + processor(std::process::id()));
            assert_eq!(run(client, output, FLOOD, None).await.output_bytes, 200_000_000);
            ours.push(began.elapsed());
            worked += processor(pid) + processor(std::process::id()) - before;
        }
        println!("processor time: guest and host {:?}, head | cat {:?}", worked / 5, piped / 5);
        let (median, bare) = (at(&mut ours, 0.5), at(&mut plain, 0.5));
        println!(
            "200 MB, {name}: {median:.0} ms; | cat: {bare:.0} ms; throughput {:.2} of it; guest grew {} KiB, host {} KiB",
            bare / median,
            peak(pid).saturating_sub(guest),
            peak(std::process::id()).saturating_sub(host)
        );
    }
}

/// Processor time of a single-threaded process.
fn processor(pid: u32) -> Duration {
    let text = std::fs::read_to_string(format!("/proc/{pid}/schedstat")).unwrap();
    Duration::from_nanos(text.split(' ').next().unwrap().parse().unwrap())
}

/// Processor time of all exited children.
fn waited_for() -> Duration {
    let text = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = text.rsplit(')').next().unwrap().split_whitespace().collect();
    let ticks: u64 = fields[13].parse::<u64>().unwrap() + fields[14].parse::<u64>().unwrap();
    Duration::from_millis(ticks * 1000 / rustix::param::clock_ticks_per_second())
}

async fn kill(client: &Client) {
    let tree = "for i in $(seq 100); do sleep 900 & done; \
        deep() { if [ $1 -gt 0 ]; then bash -c \"$(declare -f deep); deep $(($1 - 1)); :\"; else sleep 900; fi; }; deep 99; :";
    let deadline = Duration::from_secs(3);
    let mut late = Vec::new();
    for _ in 0..5 {
        let began = Instant::now();
        assert_eq!(run(client, OutputDelivery::Summary, tree, Some(deadline)).await.code, 124);
        late.push(began.elapsed() - deadline);
    }
    println!("200 processes: gone {:.1} ms after the deadline (median of 5)", at(&mut late, 0.5));
}

async fn many_idle(guest: &Path) {
    let dir = tempfile::tempdir().unwrap();
    let mut pids = Vec::new();
    for number in 0..50 {
        let socket = dir.path().join(format!("{number}/guest.sock"));
        serve(guest, &socket);
        let stream = UnixStream::connect(&socket).await.unwrap();
        pids.push(stream.peer_cred().unwrap().pid().unwrap().unsigned_abs());
    }
    let total: u64 = pids.iter().map(|pid| proportional(*pid)).sum();
    println!("50 idle guests: {} KiB proportional each", total / 50);
    pids.into_iter().for_each(end);
}

fn peak(pid: u32) -> u64 {
    kilobytes(&format!("/proc/{pid}/status"), "VmHWM:")
}

fn proportional(pid: u32) -> u64 {
    kilobytes(&format!("/proc/{pid}/smaps_rollup"), "Pss:")
}

fn kilobytes(path: &str, field: &str) -> u64 {
    let text = std::fs::read_to_string(path).unwrap();
    let line = text.lines().find(|line| line.starts_with(field)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}
