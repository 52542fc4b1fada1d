//! Attacks that use things up. Each is small enough to do no harm where it is not stopped.

use std::os::fd::AsFd;

use hermes_sandbox::{Hold, Launcher, Limits, Streams};

use crate::attack::{plain, testbed};
use crate::bed::everybody;

#[test]
fn processes_are_limited() {
    plain("fork-bomb 64").jail(|_, jail| jail.limits.processes = Some(20)).is_refused();
}

#[test]
fn memory_is_limited() {
    plain("memory-bomb 96").jail(|_, jail| jail.limits.memory = Some(48 << 20)).is_refused();
}

#[test]
fn private_files_are_limited_in_size() {
    testbed(|_| ["disk-fill".into(), "/tmp".into(), "48".into()])
        .freely(|bed| format!("{} attack disk-fill {} 48", bed.text("testbed"), bed.text("work")))
        .jail(|_, jail| jail.limits.scratch = Some(16 << 20))
        .is_refused();
}

#[test]
fn shared_memory_is_limited_in_size() {
    testbed(|_| ["disk-fill".into(), "/dev/shm".into(), "48".into()])
        .freely(|bed| format!("{} attack disk-fill {} 48", bed.text("testbed"), bed.text("work")))
        .jail(|_, jail| jail.limits.scratch = Some(16 << 20))
        .is_refused();
}

#[test]
fn private_files_are_limited_in_number() {
    testbed(|_| ["inodes".into(), "/tmp".into(), "6000".into()])
        .freely(|bed| format!("{} attack inodes {} 6000", bed.text("testbed"), bed.text("work")))
        .jail(|_, jail| jail.limits.scratch = Some(16 << 20))
        .is_refused();
}

#[test]
fn open_files_are_limited() {
    plain("descriptors 256").jail(|_, jail| jail.limits.open_files = Some(64)).is_refused();
}

#[test]
fn processor_time_is_limited() {
    let bed = everybody().remove(0);
    let script = "import time\nend = time.monotonic() + 0.6\nwhile time.monotonic() < end: pass\nprint(time.process_time())";
    let mut jail = bed.jail("/usr/bin/python3", &["-c", script]);
    jail.limits.millicpus = Some(200);
    let (reader, writer) = std::io::pipe().unwrap();
    let streams = Streams { stdout: Some(writer.as_fd()), ..Streams::default() };
    let mut running = Launcher::program(bed.program()).launch(&jail, &streams).unwrap();
    drop(writer);
    let used: f64 = std::io::read_to_string(reader).unwrap().trim().parse().unwrap();
    running.wait().unwrap();
    match &running.held().cpu {
        // A fifth of the time, and what one turn may go over.
        Hold::Held => assert!(used < 0.3, "{used} seconds of 0.6"),
        other => eprintln!("processor time cannot be limited here: {other:?}"),
    }
}

#[test]
fn a_limit_that_cannot_be_held_is_reported() {
    let bed = everybody().remove(0);
    let mut jail = bed.jail("/bin/true", &[] as &[&str]);
    jail.limits = Limits { disk: Some(1 << 20), open_files: Some(64), ..Limits::default() };
    let mut running = Launcher::program(bed.program()).launch(&jail, &Streams::default()).unwrap();
    let held = running.held().clone();
    running.wait().unwrap();
    assert_eq!((held.memory, held.open_files), (Hold::NotAsked, Hold::Held));
    assert!(matches!(held.disk, Hold::NotHeld { .. }));
}
