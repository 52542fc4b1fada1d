//! Output of any length and content.

use std::io::Read;

use hermes_exec::{OutputMode, PlaceState, ProcessId, RunOptions};

use crate::fixture::{Fixture, run_options};
use crate::session::{Session, WAIT_TIMEOUT};

/// The memory that 200 MB of output may use in the client or the guest.
const MAX_MEMORY_BYTES: u64 = 32 << 20;

pub(crate) async fn two_hundred_megabytes_cost_no_memory(fixture: &Fixture) {
    let s = fixture.open("s").await;
    let flood = "head -c 200000000 /dev/zero";
    let mut hermes = fixture.another_hermes("s", &[("live", flood), ("summary", flood)]);
    let mut said = String::new();
    hermes.stdout.take().unwrap().read_to_string(&mut said).unwrap();
    assert!(hermes.wait().unwrap().success());
    let numbers = |line: &str| -> Vec<u64> { line.split(' ').map(|word| word.parse().unwrap()).collect() };
    let lines: Vec<Vec<u64>> = said.lines().skip(1).map(numbers).collect();
    let [live, summary] = lines.as_slice() else { panic!("{said}") };
    assert_eq!(live[..3], [200_000_000, 0, 200_000_000]);
    assert_eq!(summary[..3], [200_000_000, 200_000_000 - 50_000, 0]);
    assert!(live[3] < MAX_MEMORY_BYTES && summary[3] < MAX_MEMORY_BYTES, "{said}");
    let found = fixture.places().find("s").await.unwrap();
    let PlaceState::Running(stats) = found[0].state else { panic!("{found:?}") };
    assert!(stats.memory < MAX_MEMORY_BYTES, "{stats:?}");
    drop(s);
}

pub(crate) async fn long_output_returns_head_and_tail_and_spools_all(fixture: &Fixture) {
    let s = fixture.open("s").await;
    let outcome =
        s.end("seq 1 200000", RunOptions { keep_bytes: 10_000, ..run_options(OutputMode::AtEnd) }).await;
    let whole: String = (1..=200_000).map(|number| format!("{number}\n")).collect();
    let (whole, kept) = (whole.as_bytes(), &outcome.output);
    assert_eq!(
        (outcome.total_bytes, outcome.omitted_bytes),
        (whole.len() as u64, whole.len() as u64 - 10_000)
    );
    let cut = kept.iter().zip(whole).take_while(|(one, other)| one == other).count();
    assert!((1000..9000).contains(&cut), "{cut} bytes of the beginning");
    assert!(whole.ends_with(&kept[cut..]), "{} bytes of the end", kept.len() - cut);
    let same = format!("seq 1 200000 | cmp - {} && echo same", outcome.spool_path.unwrap());
    assert_eq!(s.out(&same).await, "same\n");
    assert_eq!(s.run("echo short").await.spool_path, None);
}

/// The whole output of a process, page by page.
async fn pages_of(s: &Session, id: ProcessId, total: u64) -> Vec<u8> {
    let processes = s.processes().await;
    let mut pages = Vec::new();
    while (pages.len() as u64) < total {
        let page = processes.output(id, pages.len() as u64, 50_000).await.unwrap();
        assert_eq!((page.offset, page.total), (pages.len() as u64, total));
        pages.extend_from_slice(&page.data);
    }
    pages
}

pub(crate) async fn long_lines_and_binary_output_arrive_unchanged(fixture: &Fixture) {
    let s = fixture.open("s").await;
    let command = "head -c 3000000 /dev/zero | tr '\\0' x; printf '\\n\\377\\376\\0\\303\\r\\n'";
    let outcome = s.end(command, RunOptions { keep_bytes: 1 << 20, ..run_options(OutputMode::AtEnd) }).await;
    assert_eq!((outcome.total_bytes, outcome.output.len()), (3_000_007, 1 << 20));
    assert!(outcome.output.starts_with(b"xxx") && outcome.output.ends_with(b"xx\n\xff\xfe\0\xc3\r\n"));
    let outcome = s.run("printf '\\377\\0no newline'").await;
    assert_eq!((outcome.output.as_slice(), outcome.omitted_bytes), (b"\xff\0no newline".as_slice(), 0));
    assert_eq!(s.out("").await, "");
}

pub(crate) async fn the_output_of_a_process_can_be_paged_whole(fixture: &Fixture) {
    let s = fixture.open("s").await;
    let id = s.background("seq 1 100000").await;
    let processes = s.processes().await;
    let view = processes.wait(id, WAIT_TIMEOUT).await.unwrap();
    let whole: String = (1..=100_000).map(|number| format!("{number}\n")).collect();
    assert_eq!(view.output_bytes, whole.len() as u64);
    assert!(pages_of(&s, id, view.output_bytes).await == whole.as_bytes());
}
