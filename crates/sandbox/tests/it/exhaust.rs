//! Attacks that exhaust resources. Each is small enough to be harmless if it is not stopped.

use std::os::fd::AsFd;

use hermes_sandbox::{JailStreams, Launcher, LimitStatus};
use hermes_testkit::prerequisite::report_missing;

use crate::attack::{testbed, testbed_command};
use crate::fixture::test_users;

#[test]
fn processes_are_limited() {
    testbed_command("fork-bomb 64").jail(|_, jail| jail.limits.processes = Some(20)).assert_refused();
}

#[test]
fn memory_is_limited() {
    testbed_command("memory-bomb 96").jail(|_, jail| jail.limits.memory = Some(48 << 20)).assert_refused();
}

#[test]
fn private_files_are_limited_in_size() {
    testbed(|_| ["disk-fill".into(), "/tmp".into(), "48".into()])
        .control_script(|user| {
            format!("{} attack disk-fill {} 48", user.path_str("testbed"), user.path_str("work"))
        })
        .jail(|_, jail| jail.limits.scratch = Some(16 << 20))
        .assert_refused();
}

#[test]
fn shared_memory_is_limited_in_size() {
    testbed(|_| ["disk-fill".into(), "/dev/shm".into(), "48".into()])
        .control_script(|user| {
            format!("{} attack disk-fill {} 48", user.path_str("testbed"), user.path_str("work"))
        })
        .jail(|_, jail| jail.limits.scratch = Some(16 << 20))
        .assert_refused();
}

#[test]
fn private_files_are_limited_in_number() {
    testbed(|_| ["inodes".into(), "/tmp".into(), "6000".into()])
        .control_script(|user| {
            format!("{} attack inodes {} 6000", user.path_str("testbed"), user.path_str("work"))
        })
        .jail(|_, jail| jail.limits.scratch = Some(16 << 20))
        .assert_refused();
}

#[test]
fn processor_time_is_limited() {
    let user = test_users().remove(0);
    let script = "import time\nend = time.monotonic() + 0.6\nwhile time.monotonic() < end: pass\nprint(time.process_time())";
    let mut jail = user.jail("/usr/bin/python3", &["-c", script]);
    jail.limits.millicpus = Some(200);
    let (reader, writer) = std::io::pipe().unwrap();
    let streams = JailStreams { stdout: Some(writer.as_fd()), ..JailStreams::default() };
    let mut running = Launcher::new(user.program()).launch(&jail, &streams).unwrap();
    drop(writer);
    let used: f64 = std::io::read_to_string(reader).unwrap().trim().parse().unwrap();
    running.wait().unwrap();
    match &running.limits.cpu {
        // A fifth of the time, plus what one period may exceed.
        LimitStatus::Enforced => assert!(used < 0.3, "{used} seconds of 0.6"),
        other => report_missing(&format!("processor time cannot be limited: {other:?}")),
    }
}
