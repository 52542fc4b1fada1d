//! Large output, long lines, binary output.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::Instant;

use hermes_guest::client::RunEvent;
use hermes_guest::protocol::limit;
use hermes_guest::protocol::message::{OutputDelivery, RunMode, RunRequest, StatePolicy};

use rustix::process::{Pid, Signal, kill_process};

use crate::fixture::{TestGuest, eventually, is_alive, start_guest, wait_for_exit};

const LIVE: RunMode = RunMode::Foreground { output: OutputDelivery::Live, state: StatePolicy::Apply };

/// Peak resident memory of a process, in bytes.
fn peak_memory(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
}

#[tokio::test]
async fn two_hundred_megabytes_of_output_do_not_use_memory() {
    let guest = TestGuest::start().await;
    let s = guest.session().await;
    let (guest_before, host_before) = (peak_memory(guest.pid), peak_memory(std::process::id()));
    let flood = "head -c 200000000 /dev/zero";
    let ended = s.run(RunRequest { spool_bytes: 8 << 20, ..s.command(flood) }).await;
    assert_eq!((ended.code, ended.output_bytes), (0, 200_000_000));
    assert_eq!((ended.head.len(), ended.tail.len()), (64 * 1024 * 2 / 5, 64 * 1024 - 64 * 1024 * 2 / 5));
    let mut running =
        s.client.run(RunRequest { mode: LIVE, spool_bytes: 8 << 20, ..s.command(flood) }).await.unwrap();
    let began = Instant::now();
    let mut seen = 0;
    let code = loop {
        match running.next_event().await.unwrap() {
            RunEvent::Output(page) => {
                assert_eq!(page.offset, seen, "live output has no gaps");
                seen += page.data.len() as u64;
            }
            RunEvent::Exited(ended) => break ended.code,
        }
    };
    println!("200 MB live in {:?}", began.elapsed());
    assert_eq!((code, seen), (0, 200_000_000));
    // The kernel's per-processor counters are approximate, so the peak can even decrease.
    let guest = peak_memory(guest.pid).saturating_sub(guest_before);
    let host = peak_memory(std::process::id()).saturating_sub(host_before);
    println!("guest grew by {guest}, host by {host} bytes");
    assert!(guest < 32 << 20, "guest grew by {guest}");
    assert!(host < 32 << 20, "host grew by {host}");
}

#[tokio::test]
async fn a_slow_reader_blocks_the_program() {
    let guest = TestGuest::start().await;
    let s = guest.session().await;
    let run = RunRequest { mode: LIVE, ..s.command("head -c 50000000 /dev/zero; touch done") };
    let mut running = s.client.run(run).await.unwrap();
    assert!(matches!(running.next_event().await.unwrap(), RunEvent::Output(_)));
    // Data in flight is bounded, so the program cannot exit before the output is read.
    assert_eq!(s.out("sleep 0.3; ls").await, "");
    let ended = wait_for_exit(&mut running).await.unwrap();
    assert_eq!(ended.output_bytes, 50_000_000);
    assert_eq!(s.out("ls").await, "done\n");
}

#[tokio::test]
async fn the_middle_of_a_long_output_can_be_paged() {
    let guest = TestGuest::start().await;
    let s = guest.session().await;
    let ended =
        s.run(RunRequest { memory_bytes: 4096, spool_bytes: 1 << 20, ..s.command("seq 1 100000") }).await;
    let expected: String = (1..=100_000).map(|i| format!("{i}\n")).collect();
    assert_eq!(ended.output_bytes, expected.len() as u64);
    assert!(expected.as_bytes().starts_with(&ended.head) && expected.as_bytes().ends_with(&ended.tail));
    let (mut all, mut offset) = (Vec::new(), 0);
    while offset < ended.output_bytes {
        let page = s.client.read_output(ended.process, offset, 50_000).await.unwrap();
        assert_eq!(page.offset, offset);
        offset += page.data.len() as u64;
        all.extend_from_slice(&page.data);
    }
    assert_eq!(all, expected.as_bytes());
    let small =
        s.run(RunRequest { memory_bytes: 4096, spool_bytes: 100_000, ..s.command("seq 1 100000") }).await;
    let page = s.client.read_output(small.process, 5000, 100).await.unwrap();
    assert_eq!(page.offset, small.output_bytes - 100_000, "output that is no longer stored is skipped");
}

/// The files of the guest that commands may see.
fn spool_files(guest: &TestGuest) -> Vec<PathBuf> {
    let work = guest.socket.parent().unwrap().join("work");
    let Ok(entries) = std::fs::read_dir(work) else { return Vec::new() };
    entries.map(|entry| entry.unwrap().path()).collect()
}

#[tokio::test]
async fn long_output_is_a_private_file_until_its_record_is_deleted() {
    let guest = TestGuest::start().await;
    let s = guest.session().await;
    let short = s.run(s.command("seq 1 100")).await;
    assert_eq!((short.spool_path, spool_files(&guest)), (None, Vec::new()));
    let long = s.run(RunRequest { memory_bytes: 4096, ..s.command("seq 1 100000") }).await;
    let path = PathBuf::from(OsStr::from_bytes(&long.spool_path.unwrap()));
    let expected: String = (1..=100_000).map(|i| format!("{i}\n")).collect();
    assert_eq!(std::fs::read_to_string(&path).unwrap(), expected);
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(spool_files(&guest), [path.as_path()]);

    let id = s.start(RunRequest { memory_bytes: 4096, ..s.in_background("seq 1 100000; sleep 900") }).await;
    s.wait_for_output(id, "100000").await;
    let view = s.client.process(id).await.unwrap();
    assert_eq!(std::fs::read(OsStr::from_bytes(&view.spool_path.unwrap())).unwrap(), expected.as_bytes());
    let capped =
        s.run(RunRequest { memory_bytes: 4096, spool_bytes: 8192, ..s.command("seq 1 100000") }).await;
    assert_eq!(capped.spool_path, None, "a file without the beginning is not the whole output");
    let live = s.run(RunRequest { mode: LIVE, ..s.command("seq 1 1000000") }).await;
    assert_eq!((live.spool_path, live.output_bytes), (None, 6_888_896));
    assert_eq!(spool_files(&guest).len(), 3);
    for _ in 0..limit::MAX_FINISHED_FOREGROUND {
        s.run(RunRequest { memory_bytes: 4096, ..s.command("seq 1 10000") }).await;
    }
    s.client.processes().await.unwrap();
    assert!(!path.exists(), "the oldest record and its file are deleted");
}

#[tokio::test]
async fn spools_are_removed_at_exit_and_by_the_guest_after_a_killed_one() {
    let mut guest = TestGuest::start().await;
    for signal in [Signal::KILL, Signal::TERM] {
        let s = guest.session().await;
        let long = s.run(RunRequest { memory_bytes: 4096, ..s.command("seq 1 100000") }).await;
        assert_eq!(spool_files(&guest), [PathBuf::from(OsStr::from_bytes(&long.spool_path.unwrap()))]);
        kill_process(Pid::from_raw(guest.pid.cast_signed()).unwrap(), signal).unwrap();
        s.client.wait_closed().await;
        if signal == Signal::KILL {
            start_guest(&guest.socket, &["--idle", "60"]);
            guest.pid = guest.find_pid().await;
        } else {
            eventually("the guest is gone", async || !is_alive(&guest.pid.to_string())).await;
        }
        assert_eq!(spool_files(&guest), [] as [PathBuf; 0], "{signal:?}");
    }
}

#[tokio::test]
async fn long_lines_and_binary_output_are_delivered() {
    let guest = TestGuest::start().await;
    let s = guest.session().await;
    let run = RunRequest {
        memory_bytes: 1 << 20,
        ..s.command("head -c 3000000 /dev/zero | tr '\\0' x; echo; printf '\\377\\376\\0\\303\\r\\n'")
    };
    let ended = s.run(run).await;
    assert_eq!(ended.output_bytes, 3_000_007);
    assert!(ended.tail.ends_with(b"xx\n\xff\xfe\0\xc3\r\n"), "{:?}", &ended.tail[ended.tail.len() - 20..]);
    assert_eq!(s.out("printf 'no newline'").await, "no newline");
    assert_eq!(s.out("").await, "");
}
