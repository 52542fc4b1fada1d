//! A jail ends when it shall, and leaves nothing.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use hermes_sandbox::{Exit, JailId, Launcher, Lifetime, Streams};

use crate::bed::{Bed, everybody};

/// Waits until something is so; says what never became so.
fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < Duration::from_secs(10), "never: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Numbers of processes of the host whose command line has this word.
fn processes_with(word: &str) -> Vec<u32> {
    let has = |pid: u32| {
        fs::read(format!("/proc/{pid}/cmdline"))
            .is_ok_and(|line| String::from_utf8_lossy(&line).contains(word))
    };
    fs::read_dir("/proc")
        .unwrap()
        .flatten()
        .filter_map(|entry| entry.file_name().to_str().and_then(|name| name.parse().ok()))
        .filter(|pid| has(*pid))
        .collect()
}

/// A field of what the kernel says of a process, counted after its name.
fn stat(pid: u32, field: usize) -> Option<String> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(')')?.1.split_whitespace().nth(field).map(str::to_owned)
}

fn parent(pid: u32) -> Option<u32> {
    stat(pid, 1)?.parse().ok()
}

/// What the cgroups of this keeper are called: by its number and when it started.
fn cgroup_of(keeper: u32) -> Option<String> {
    Some(format!("hermes-jail-{keeper}-{}", stat(keeper, 19)?))
}

/// The keepers that this process started.
fn keepers_of(launcher: u32) -> Vec<u32> {
    let mut keepers = processes_with("hermes-jail-keeper");
    keepers.retain(|pid| parent(*pid) == Some(launcher));
    keepers
}

fn kill(pid: u32) {
    let pid = rustix::process::Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
}

/// A jail with a family of processes that can be found by a word of this bed's own.
fn family(bed: &Bed, word: &str) -> hermes_sandbox::Jail {
    let script = format!(
        "for i in 1 2 3; do (exec -a {word} sleep 100) & setsid -f bash -c 'exec -a {word} sleep 100'; done; touch ready; wait"
    );
    bed.jail("/bin/bash", &["-c", &script])
}

fn word(bed: &Bed, name: &str) -> String {
    let top = bed.path("");
    format!("{name}-{}", top.file_name().unwrap().to_str().unwrap())
}

#[test]
fn killing_ends_every_process_before_it_returns() {
    let bed = everybody().remove(0);
    let word = word(&bed, "killed");
    let mut running =
        Launcher::program(bed.program()).launch(&family(&bed, &word), &Streams::default()).unwrap();
    until("the family is there", || bed.path("work/ready").exists() && processes_with(&word).len() >= 6);
    assert_eq!(running.kill().unwrap(), Exit::Signal(9));
    assert_eq!(processes_with(&word), [] as [u32; 0]);
}

#[test]
fn dropping_the_handle_ends_a_jail_that_lives_with_its_parent() {
    let bed = everybody().remove(0);
    let word = word(&bed, "dropped");
    let running = Launcher::program(bed.program()).launch(&family(&bed, &word), &Streams::default()).unwrap();
    until("the family is there", || processes_with(&word).len() >= 6);
    drop(running);
    assert_eq!(processes_with(&word), [] as [u32; 0]);
}

#[test]
fn a_killed_launcher_takes_its_jail_along() {
    for bed in everybody() {
        let word = word(&bed, "orphan");
        let mut launcher = bed.run(&family(&bed, &word)).spawn().unwrap();
        until("the family is there", || processes_with(&word).len() >= 6);
        launcher.kill().unwrap();
        launcher.wait().unwrap();
        until("the family is gone", || processes_with(&word).is_empty());
    }
}

#[test]
fn a_launcher_killed_at_any_moment_leaves_nothing() {
    let bed = everybody().remove(0);
    let word = word(&bed, "moment");
    let (mut keepers, mut names) = (Vec::new(), Vec::new());
    for round in 0..100u64 {
        let mut jail = family(&bed, &word);
        jail.limits.processes = Some(64);
        let mut launcher = bed.run(&jail).spawn().unwrap();
        std::thread::sleep(Duration::from_micros(round * 150));
        let new = keepers_of(launcher.id());
        names.extend(new.iter().filter_map(|pid| cgroup_of(*pid)));
        keepers.extend(new);
        launcher.kill().unwrap();
        launcher.wait().unwrap();
    }
    until("the families are gone", || processes_with(&word).is_empty());
    until("the keepers are gone", || {
        !processes_with("hermes-jail-keeper").iter().any(|pid| keepers.contains(pid))
    });
    let mut left = Vec::new();
    cgroups(Path::new("/sys/fs/cgroup"), &mut left);
    left.retain(|path| names.iter().any(|name| path.ends_with(name)));
    assert_eq!(left, [] as [PathBuf; 0]);
}

#[test]
fn a_killed_keeper_takes_its_jail_along() {
    let bed = everybody().remove(0);
    let word = word(&bed, "unkept");
    let mut jail = family(&bed, &word);
    jail.lifetime = Lifetime::Detached;
    let id = detach(&bed, &jail);
    until("the family is there", || processes_with(&word).len() >= 6);
    kill(parent(u32::try_from(number(id)).unwrap()).unwrap());
    until("the family is gone", || processes_with(&word).is_empty());
    until("the jail is gone", || !id.is_alive().unwrap());
}

fn detach(bed: &Bed, jail: &hermes_sandbox::Jail) -> JailId {
    let spec = bed.spec(jail);
    let output = bed.command(bed.uid, bed.program()).arg("detach").arg(spec).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    postcard::from_bytes(&output.stdout).unwrap()
}

#[test]
fn a_detached_jail_outlives_its_launcher_and_is_found_again() {
    for bed in everybody() {
        let word = word(&bed, "detached");
        let mut jail = family(&bed, &word);
        jail.lifetime = Lifetime::Detached;
        let id = detach(&bed, &jail);
        until("the family is there", || processes_with(&word).len() >= 6);
        assert!(id.is_alive().unwrap());
        id.kill().unwrap();
        assert_eq!(processes_with(&word), [] as [u32; 0]);
        assert!(!id.is_alive().unwrap());
        id.kill().unwrap();
    }
}

/// The number of a jail's first process, which its name begins with.
fn number(id: JailId) -> i32 {
    postcard::take_from_bytes(&postcard::to_stdvec(&id).unwrap()).unwrap().0
}

/// Every cgroup below this directory that is one of ours and belongs to this process.
fn cgroups(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            if entry.file_name().to_string_lossy().starts_with("hermes-jail-") {
                found.push(entry.path());
            }
            cgroups(&entry.path(), found);
        }
    }
}

#[test]
fn cgroups_are_removed_with_their_jail() {
    let bed = everybody().remove(0);
    let mut jail = bed.jail("/bin/sleep", &["100"]);
    jail.limits.processes = Some(8);
    let mut running = Launcher::program(bed.program()).launch(&jail, &Streams::default()).unwrap();
    let pid = number(running.id().unwrap());
    let holds = |cgroup: &PathBuf| {
        fs::read_to_string(cgroup.join("cgroup.procs"))
            .is_ok_and(|text| text.lines().any(|line| line == pid.to_string()))
    };
    let mut before = Vec::new();
    cgroups(Path::new("/sys/fs/cgroup"), &mut before);
    before.retain(holds);
    if rustix::process::getuid().is_root() {
        assert_eq!(before.len(), 1, "{before:?}");
    }
    running.kill().unwrap();
    assert!(before.iter().all(|cgroup| !cgroup.exists()), "{before:?}");
}

#[test]
fn cgroups_of_a_killed_keeper_are_swept() {
    if !rustix::process::getuid().is_root() {
        return eprintln!("only root can be sure to make cgroups");
    }
    let bed = everybody().remove(0);
    let word = word(&bed, "swept");
    let mut jail = family(&bed, &word);
    jail.limits.processes = Some(32);
    let mut launcher = bed.run(&jail).spawn().unwrap();
    until("the family is there", || processes_with(&word).len() >= 6);
    let keepers = keepers_of(launcher.id());
    let [keeper] = keepers.as_slice() else { panic!("one keeper, not {keepers:?}") };
    let ours = cgroup_of(*keeper).unwrap();
    let left = || {
        let mut found = Vec::new();
        cgroups(Path::new("/sys/fs/cgroup"), &mut found);
        found.retain(|path| path.ends_with(&ours));
        found.len()
    };
    kill(*keeper);
    launcher.wait().unwrap();
    until("the family is gone", || processes_with(&word).is_empty());
    assert_eq!(left(), 1);
    until("the cgroup is swept", || {
        hermes_sandbox::sweep();
        left() == 0
    });
}

#[test]
fn no_mount_of_a_jail_is_seen_outside() {
    let bed = everybody().remove(0);
    let mounts = || fs::read_to_string("/proc/self/mountinfo").unwrap();
    let before = mounts();
    let running =
        Launcher::program(bed.program()).launch(&bed.jail("/bin/sleep", &["100"]), &Streams::default());
    let during = mounts();
    drop(running.unwrap());
    let lines = |text: &str| text.lines().filter(|line| line.contains("/jail-")).count();
    assert_eq!((lines(&before), lines(&during)), (0, 0));
}

#[test]
fn a_guest_listens_on_a_socket_in_a_shared_directory() {
    for bed in everybody() {
        let script = "import socket; l = socket.socket(socket.AF_UNIX); l.bind(\"s\"); l.listen(); c, _ = l.accept(); c.send(b\"hello\")";
        let mut jail = bed.jail("/usr/bin/python3", &["-c", script]);
        jail.lifetime = Lifetime::Detached;
        let id = detach(&bed, &jail);
        let socket = bed.path("work/s");
        until("the guest answers", || {
            std::os::unix::net::UnixStream::connect(&socket)
                .is_ok_and(|stream| std::io::read_to_string(stream).is_ok_and(|text| text == "hello"))
        });
        until("the guest has ended", || !id.is_alive().unwrap());
    }
}
