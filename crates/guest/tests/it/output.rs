//! Much output, long lines, odd bytes.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::Instant;

use hermes_guest::client::Event;
use hermes_guest::protocol::message::{Delivery, Mode, Run, StateRule};

use rustix::process::{Pid, Signal, kill_process};

use crate::place::{PATIENCE, Place, lives, serve};

const LIVE: Mode = Mode::Foreground { output: Delivery::Live, state: StateRule::Keep };

/// Resident memory of a process, at its highest, in bytes.
fn peak(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
}

#[tokio::test]
async fn two_hundred_megabytes_cost_neither_side_memory() {
    let place = Place::start().await;
    let s = place.session().await;
    let (guest_before, host_before) = (peak(place.pid), peak(std::process::id()));
    let flood = "head -c 200000000 /dev/zero";
    let ended = s.run(Run { spool: 8 << 20, ..s.command(flood) }).await;
    assert_eq!((ended.code, ended.total), (0, 200_000_000));
    assert_eq!((ended.head.len(), ended.tail.len()), (64 * 1024 * 2 / 5, 64 * 1024 - 64 * 1024 * 2 / 5));
    let mut running = s.client.run(Run { mode: LIVE, spool: 8 << 20, ..s.command(flood) }).await.unwrap();
    let began = Instant::now();
    let mut seen = 0;
    let code = loop {
        match running.next().await.unwrap() {
            Event::Output(page) => {
                assert_eq!(page.offset, seen, "live output has no gaps");
                seen += page.data.len() as u64;
            }
            Event::Ended(ended) => break ended.code,
            Event::Moved(_) => panic!("it was not moved"),
        }
    };
    println!("200 MB live in {:?}", began.elapsed());
    assert_eq!((code, seen), (0, 200_000_000));
    // The kernel counts by processor and sums up roughly, so even the highest can be less than before.
    let guest = peak(place.pid).saturating_sub(guest_before);
    let host = peak(std::process::id()).saturating_sub(host_before);
    println!("guest grew by {guest}, host by {host} bytes");
    assert!(guest < 32 << 20, "guest grew by {guest}");
    assert!(host < 32 << 20, "host grew by {host}");
}

#[tokio::test]
async fn a_slow_reader_makes_the_program_wait() {
    let place = Place::start().await;
    let s = place.session().await;
    let run = Run { mode: LIVE, ..s.command("head -c 50000000 /dev/zero; touch done") };
    let mut running = s.client.run(run).await.unwrap();
    assert!(matches!(running.next().await.unwrap(), Event::Output(_)));
    // Whatever is in flight is bounded, so the program cannot have come to its end however long it is given.
    assert_eq!(s.out("sleep 0.3; ls").await, "");
    let Event::Ended(ended) = running.end().await.unwrap() else { panic!("it did not end") };
    assert_eq!(ended.total, 50_000_000);
    assert_eq!(s.out("ls").await, "done\n");
}

#[tokio::test]
async fn the_middle_of_a_long_output_can_be_paged() {
    let place = Place::start().await;
    let s = place.session().await;
    let ended = s.run(Run { keep: 4096, spool: 1 << 20, ..s.command("seq 1 100000") }).await;
    let expected: String = (1..=100_000).map(|i| format!("{i}\n")).collect();
    assert_eq!(ended.total, expected.len() as u64);
    assert!(expected.as_bytes().starts_with(&ended.head) && expected.as_bytes().ends_with(&ended.tail));
    let (mut all, mut offset) = (Vec::new(), 0);
    while offset < ended.total {
        let page = s.client.output(ended.process, offset, 50_000).await.unwrap();
        assert_eq!(page.offset, offset);
        offset += page.data.len() as u64;
        all.extend_from_slice(&page.data);
    }
    assert_eq!(all, expected.as_bytes());
    let small = s.run(Run { keep: 4096, spool: 100_000, ..s.command("seq 1 100000") }).await;
    let page = s.client.output(small.process, 5000, 100).await.unwrap();
    assert_eq!(page.offset, small.total - 100_000, "what is too old is not made up");
}

/// What is in the private directory of the guest, besides its socket.
fn spools(place: &Place) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(place.socket.parent().unwrap()).unwrap();
    entries.map(|entry| entry.unwrap().path()).filter(|path| *path != place.socket).collect()
}

#[tokio::test]
async fn the_whole_of_a_long_output_is_a_private_file_as_long_as_its_record() {
    let place = Place::start().await;
    let s = place.session().await;
    let short = s.run(s.command("seq 1 100")).await;
    assert_eq!((short.spool, spools(&place)), (None, Vec::new()));
    let long = s.run(Run { keep: 4096, ..s.command("seq 1 100000") }).await;
    let path = PathBuf::from(OsStr::from_bytes(&long.spool.unwrap()));
    let expected: String = (1..=100_000).map(|i| format!("{i}\n")).collect();
    assert_eq!(std::fs::read_to_string(&path).unwrap(), expected);
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(spools(&place), [path]);
    s.client.forget(long.process).await.unwrap();
    assert_eq!(spools(&place), [] as [PathBuf; 0]);

    let id = s.start(Run { keep: 4096, ..s.in_background("seq 1 100000; sleep 900") }).await;
    s.wait_for_output(id, "100000").await;
    let view = s.client.process(id).await.unwrap();
    assert_eq!(std::fs::read(OsStr::from_bytes(&view.spool.unwrap())).unwrap(), expected.as_bytes());
    let capped = s.run(Run { keep: 4096, spool: 8192, ..s.command("seq 1 100000") }).await;
    assert_eq!(capped.spool, None, "a file without the beginning is not the whole output");
    let live = s.run(Run { mode: LIVE, ..s.command("seq 1 1000000") }).await;
    assert_eq!((live.spool, live.total), (None, 6_888_896));
    assert_eq!(spools(&place).len(), 2);
}

#[tokio::test]
async fn a_guest_that_ends_leaves_no_spool_and_the_next_one_removes_what_a_killed_one_left() {
    let mut place = Place::start().await;
    for signal in [Signal::KILL, Signal::TERM] {
        let s = place.session().await;
        let long = s.run(Run { keep: 4096, ..s.command("seq 1 100000") }).await;
        assert_eq!(spools(&place), [PathBuf::from(OsStr::from_bytes(&long.spool.unwrap()))]);
        kill_process(Pid::from_raw(place.pid.cast_signed()).unwrap(), signal).unwrap();
        s.client.closed().await;
        if signal == Signal::KILL {
            serve(&place.socket, &["--idle", "60"]);
            place.pid = place.client().await.about().await.unwrap().pid;
        } else {
            let gone = async { while lives(&place.pid.to_string()) {} };
            tokio::time::timeout(PATIENCE, gone).await.unwrap();
        }
        assert_eq!(spools(&place), [] as [PathBuf; 0], "{signal:?}");
    }
}

#[tokio::test]
async fn a_long_line_and_bytes_that_are_no_text_come_through() {
    let place = Place::start().await;
    let s = place.session().await;
    let run = Run {
        keep: 1 << 20,
        ..s.command("head -c 3000000 /dev/zero | tr '\\0' x; echo; printf '\\377\\376\\0\\303\\r\\n'")
    };
    let ended = s.run(run).await;
    assert_eq!(ended.total, 3_000_007);
    assert!(ended.tail.ends_with(b"xx\n\xff\xfe\0\xc3\r\n"), "{:?}", &ended.tail[ended.tail.len() - 20..]);
    assert_eq!(s.out("printf 'no newline'").await, "no newline");
    assert_eq!(s.out("").await, "");
}
