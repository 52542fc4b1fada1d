//! Lifetime and cleanup of jails.

use std::fs;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use hermes_sandbox::{JailExit, JailStreams, Launcher, Lifetime};
use hermes_testkit::prerequisite::require_root;

use crate::fixture::{TestUser, test_users};

/// Waits until a condition holds.
fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < Duration::from_secs(10), "never: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Pids of host processes whose command line contains this word.
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

/// A field of `/proc/PID/stat`, counted after the name.
fn stat(pid: u32, field: usize) -> Option<String> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(')')?.1.split_whitespace().nth(field).map(str::to_owned)
}

fn parent(pid: u32) -> Option<u32> {
    stat(pid, 1)?.parse().ok()
}

/// The name of this supervisor's cgroups.
fn cgroup_of(supervisor: u32) -> Option<String> {
    Some(format!("hermes-jail-{supervisor}-{}", stat(supervisor, 19)?))
}

/// The supervisors that this process started.
fn supervisors_of(launcher: u32) -> Vec<u32> {
    let mut supervisors = processes_with("hermes-jail-supervisor");
    supervisors.retain(|pid| parent(*pid) == Some(launcher));
    supervisors
}

fn kill(pid: u32) {
    let pid = rustix::process::Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
}

/// A jail with six processes that can be found by a marker in their command line.
fn jail_with_children(user: &TestUser, word: &str) -> hermes_sandbox::Jail {
    let script = format!(
        "for i in 1 2 3; do (exec -a {word} sleep 100) & setsid -f bash -c 'exec -a {word} sleep 100'; done; touch ready; wait"
    );
    user.jail("/bin/bash", &["-c", &script])
}

fn word(user: &TestUser, name: &str) -> String {
    let top = user.path("");
    format!("{name}-{}", top.file_name().unwrap().to_str().unwrap())
}

#[test]
fn kill_returns_after_every_process_is_gone() {
    let user = test_users().remove(0);
    let word = word(&user, "killed");
    let mut running = Launcher::new(user.program())
        .launch(&jail_with_children(&user, &word), &JailStreams::default())
        .unwrap();
    eventually("the family is there", || {
        user.path("work/ready").exists() && processes_with(&word).len() >= 6
    });
    assert_eq!(running.kill().unwrap(), JailExit::Signal(9));
    assert_eq!(processes_with(&word), [] as [u32; 0]);
}

#[test]
fn dropping_the_handle_kills_a_jail_that_lives_with_its_parent() {
    let user = test_users().remove(0);
    let word = word(&user, "dropped");
    let running = Launcher::new(user.program())
        .launch(&jail_with_children(&user, &word), &JailStreams::default())
        .unwrap();
    eventually("the family is there", || processes_with(&word).len() >= 6);
    drop(running);
    assert_eq!(processes_with(&word), [] as [u32; 0]);
}

#[test]
fn a_killed_launcher_takes_its_jail_with_it() {
    for user in test_users() {
        let word = word(&user, "orphan");
        let mut launcher = user.jail_command(&jail_with_children(&user, &word)).spawn().unwrap();
        eventually("the family is there", || processes_with(&word).len() >= 6);
        launcher.kill().unwrap();
        launcher.wait().unwrap();
        eventually("the family is gone", || processes_with(&word).is_empty());
    }
}

#[test]
fn a_launcher_killed_at_any_moment_leaves_nothing() {
    let user = test_users().remove(0);
    let word = word(&user, "moment");
    let (mut supervisors, mut names) = (Vec::new(), Vec::new());
    for round in 0..100u64 {
        let mut jail = jail_with_children(&user, &word);
        jail.limits.processes = Some(64);
        let mut launcher = user.jail_command(&jail).spawn().unwrap();
        std::thread::sleep(Duration::from_micros(round * 150));
        let new = supervisors_of(launcher.id());
        names.extend(new.iter().filter_map(|pid| cgroup_of(*pid)));
        supervisors.extend(new);
        launcher.kill().unwrap();
        launcher.wait().unwrap();
    }
    eventually("the families are gone", || processes_with(&word).is_empty());
    eventually("the supervisors are gone", || {
        !processes_with("hermes-jail-supervisor").iter().any(|pid| supervisors.contains(pid))
    });
    let mut left = Vec::new();
    cgroups(Path::new("/sys/fs/cgroup"), &mut left);
    left.retain(|path| names.iter().any(|name| path.ends_with(name)));
    assert_eq!(left, [] as [PathBuf; 0]);
}

#[test]
fn a_killed_supervisor_takes_its_jail_with_it() {
    let user = test_users().remove(0);
    let word = word(&user, "unkept");
    let mut jail = jail_with_children(&user, &word);
    jail.lifetime = Lifetime::Detached;
    let pid = detach(&user, &jail);
    eventually("the family is there", || processes_with(&word).len() >= 6);
    kill(parent(pid).unwrap());
    eventually("the family is gone", || processes_with(&word).is_empty());
    eventually("the jail is gone", || !is_alive(pid));
}

/// Launches a detached jail and returns the pid of its first process.
fn detach(user: &TestUser, jail: &hermes_sandbox::Jail) -> u32 {
    let spec = user.write_spec(jail);
    let output = user.command(user.uid, user.program()).arg("detach").arg(spec).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap().trim().parse().unwrap()
}

fn is_alive(pid: u32) -> bool {
    stat(pid, 0).is_some_and(|state| state != "Z" && state != "X")
}

#[test]
fn a_detached_jail_outlives_its_launcher_and_ends_with_its_first_process() {
    for user in test_users() {
        let word = word(&user, "detached");
        let mut jail = jail_with_children(&user, &word);
        jail.lifetime = Lifetime::Detached;
        let pid = detach(&user, &jail);
        eventually("the family is there", || processes_with(&word).len() >= 6);
        assert!(is_alive(pid));
        kill(pid);
        eventually("the jail is gone", || !is_alive(pid));
        assert_eq!(processes_with(&word), [] as [u32; 0]);
    }
}

/// All our cgroups below this directory.
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

/// The pid behind a pidfd.
fn pid_of(pidfd: BorrowedFd<'_>) -> u32 {
    let info = fs::read_to_string(format!("/proc/self/fdinfo/{}", pidfd.as_raw_fd())).unwrap();
    info.lines().find_map(|line| line.strip_prefix("Pid:")).unwrap().trim().parse().unwrap()
}

#[test]
fn cgroups_are_removed_with_their_jail() {
    let user = test_users().remove(0);
    let mut jail = user.jail("/bin/sleep", &["100"]);
    jail.limits.processes = Some(8);
    let mut running = Launcher::new(user.program()).launch(&jail, &JailStreams::default()).unwrap();
    let pid = pid_of(running.pidfd());
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
fn cgroups_of_a_killed_supervisor_are_removed() {
    if !require_root("create cgroups reliably") {
        return;
    }
    let user = test_users().remove(0);
    let word = word(&user, "swept");
    let mut jail = jail_with_children(&user, &word);
    jail.limits.processes = Some(32);
    let mut launcher = user.jail_command(&jail).spawn().unwrap();
    eventually("the family is there", || processes_with(&word).len() >= 6);
    let supervisors = supervisors_of(launcher.id());
    let [supervisor] = supervisors.as_slice() else { panic!("one supervisor, not {supervisors:?}") };
    let ours = cgroup_of(*supervisor).unwrap();
    let left = || {
        let mut found = Vec::new();
        cgroups(Path::new("/sys/fs/cgroup"), &mut found);
        found.retain(|path| path.ends_with(&ours));
        found.len()
    };
    kill(*supervisor);
    launcher.wait().unwrap();
    eventually("the family is gone", || processes_with(&word).is_empty());
    assert_eq!(left(), 1);
    eventually("the cgroup is swept", || {
        hermes_sandbox::remove_stale_cgroups();
        left() == 0
    });
}

#[test]
fn no_mount_of_a_jail_is_visible_outside() {
    let user = test_users().remove(0);
    let mounts = || fs::read_to_string("/proc/self/mountinfo").unwrap();
    let before = mounts();
    let running =
        Launcher::new(user.program()).launch(&user.jail("/bin/sleep", &["100"]), &JailStreams::default());
    let during = mounts();
    drop(running.unwrap());
    let lines = |text: &str| text.lines().filter(|line| line.contains("/jail-")).count();
    assert_eq!((lines(&before), lines(&during)), (0, 0));
}

#[test]
fn a_guest_listens_on_a_socket_in_a_shared_directory() {
    for user in test_users() {
        let script = "import socket; l = socket.socket(socket.AF_UNIX); l.bind(\"s\"); l.listen(); c, _ = l.accept(); c.send(b\"hello\")";
        let mut jail = user.jail("/usr/bin/python3", &["-c", script]);
        jail.lifetime = Lifetime::Detached;
        let pid = detach(&user, &jail);
        let socket = user.path("work/s");
        eventually("the guest answers", || {
            std::os::unix::net::UnixStream::connect(&socket)
                .is_ok_and(|stream| std::io::read_to_string(stream).is_ok_and(|text| text == "hello"))
        });
        eventually("the guest has ended", || !is_alive(pid));
    }
}
