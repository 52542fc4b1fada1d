//! Concurrent creation of places, killed clients and guests, and removal of places.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Child;
use std::time::{Duration, Instant};

use hermes_exec::{
    Backend, Error, Installation, ListedPlace, PlaceLimits, PlaceState, ProcessId, ResolvedPlace, Spec,
    StateLoss, TreeStatus,
};
use hermes_types::{BackendName, SessionKey};

use tokio::runtime::Handle;

use crate::fixture::Fixture;
use crate::process::output_of;
use crate::session::{Session, TestEnv, WAIT_TIMEOUT, guest, is_alive, kill, text, until};

pub(crate) async fn concurrent_callers_get_the_same_place(test_env: &TestEnv) {
    let processes: Vec<Child> = (0..4)
        .map(|_| test_env.another_hermes("s", &[("show", "echo x >>ran; echo $$; sleep 0.1")]))
        .collect();
    let here = (0..4).map(|_| {
        let fixture = (**test_env).clone();
        tokio::spawn(async move { fixture.open("s").await.run("echo x >>ran").await })
    });
    for opened in here.collect::<Vec<_>>() {
        let outcome = opened.await.unwrap();
        assert_eq!((outcome.code, outcome.state_loss), (0, StateLoss::No));
    }
    for mut hermes in processes {
        assert!(hermes.wait().unwrap().success());
    }
    let s = test_env.open("s").await;
    assert_eq!(s.out("wc -l <ran").await, "8\n", "each command ran once, in the same place");
    let guest = guest(test_env, &s.plan).await;
    let guests = test_env.running().into_iter().filter(|pid| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.split(|byte| *byte == 0).nth(1) == Some(b"serve") && parent(*pid) != guest
    });
    // A process between fork and exec looks like its guest for a moment.
    assert_eq!(guests.filter(|pid| *pid == guest).count(), 1);
    assert_eq!(test_env.places().list().await.unwrap().len(), 1);
}

pub(crate) async fn a_hundred_handles_share_a_place(fixture: &Fixture) {
    let s = fixture.open("s").await;
    s.out("export A=1").await;
    let mut handles = Vec::new();
    for _ in 0..100 {
        handles.push(fixture.open("s").await);
    }
    for handle in &handles {
        let outcome = handle.run("echo $A").await;
        assert_eq!((text(&outcome).as_str(), outcome.state_loss), ("1\n", StateLoss::No));
    }
}

fn parent(pid: i32) -> i32 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let field = stat.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().nth(1));
    field.and_then(|field| field.parse().ok()).unwrap_or(0)
}

pub(crate) async fn killing_hermes_ends_foreground_commands_only(test_env: &TestEnv) {
    let fixture = test_env.short_lived();
    let steps = [
        ("background", "for i in 1 2 3; do echo $i; done; until [ -e go ]; do sleep 0.01; done; echo 4"),
        ("show", "export LOST=1; setsid sleep 1000 & echo $$ $!; sleep 1000"),
    ];
    let mut hermes = fixture.another_hermes("s", &steps);
    let mut lines = BufReader::new(hermes.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert_eq!(lines.next().unwrap(), "open");
    let id = process_id(&lines.next().unwrap());
    let foreground = lines.next().unwrap();
    hermes.kill().unwrap();
    hermes.wait().unwrap();
    // The next process finds the place in the list, and its running processes.
    let found = fixture.places().list().await.unwrap();
    let [found] = found.as_slice() else { panic!("{found:?}") };
    assert_eq!(found.record.session, "s");
    let processes = found.processes().await.unwrap();
    let listed = async {
        loop {
            let listed: Vec<_> =
                processes.list().await.unwrap().iter().map(|view| (view.process, view.tree)).collect();
            if listed == [(id, TreeStatus::Alive)] {
                return;
            }
        }
    };
    tokio::time::timeout(WAIT_TIMEOUT, listed).await.unwrap();
    assert_eq!(processes.output(id, 2, 100).await.unwrap().data.as_slice(), b"2\n3\n");
    let s = fixture.open("s").await;
    assert_eq!(s.alive(&foreground).await, "");
    let outcome = s.run("echo [$LOST]; touch go").await;
    assert_eq!((text(&outcome).as_str(), outcome.state_loss), ("[]\n", StateLoss::No));
    assert_eq!(output_of(&s, id, 4).await, "1\n2\n3\n4\n");
    drop((processes, s));
    // Without running processes, the place ends by itself after its lifetime.
    until("the place is gone", || test_env.running().is_empty()).await;
    test_env.assert_nothing_left().await;
}

pub(crate) async fn processes_started_by_several_clients_are_in_one_list(fixture: &Fixture) {
    let s = fixture.open("s").await;
    let mut ids = vec![s.background("sleep 1000").await];
    for _ in 0..2 {
        let mut hermes = fixture.another_hermes("s", &[("background", "sleep 1000")]);
        let mut lines = BufReader::new(hermes.stdout.take().unwrap()).lines().map(Result::unwrap);
        ids.extend(lines.nth(1).map(|line| process_id(&line)));
        assert!(hermes.wait().unwrap().success());
    }
    ids.sort();
    let processes = s.processes().await;
    let listed: Vec<_> = processes.list().await.unwrap().iter().map(|view| view.process).collect();
    assert_eq!(listed, ids);
    for id in ids {
        assert_eq!(processes.kill(id).await.unwrap().tree, TreeStatus::Gone);
    }
}

pub(crate) async fn kept_files_outlive_the_place_and_other_files_stay_untouched(fixture: &Fixture) {
    let places = fixture.places();
    let foreign = places.kept_dirs[0].join("hermes-overlays");
    fs::create_dir_all(&foreign).unwrap();
    let s = fixture.open("s").await;
    s.out("echo kept >file; export A=1").await;
    drop(s);
    for found in places.list().await.unwrap() {
        found.end().await.unwrap();
    }
    places.remove_stale().await.unwrap();
    assert!(fixture.open("s").await.out("cat file; echo [$A]").await == "kept\n[]\n" && foreign.exists());
}

fn process_id(line: &str) -> ProcessId {
    let (pid, started) = line.split_once(' ').unwrap();
    ProcessId { pid: pid.parse().unwrap(), started: started.parse().unwrap() }
}

pub(crate) async fn each_command_runs_at_most_once_when_hermes_is_killed(fixture: &Fixture) {
    let s = fixture.open("s").await;
    let commands: Vec<String> = (0..20).map(|number| format!("echo {number} >>ran")).collect();
    let steps: Vec<(&str, &str)> = commands.iter().map(|command| ("show", command.as_str())).collect();
    let began = Instant::now();
    assert!(fixture.another_hermes("s", &steps).wait().unwrap().success());
    let run_time = began.elapsed();
    assert_eq!(s.out("cat ran; rm ran").await.lines().count(), 20);
    for moment in 1..15 {
        let mut hermes = fixture.another_hermes("s", &steps);
        tokio::time::sleep(run_time * moment / 15).await;
        hermes.kill().unwrap();
        hermes.wait().unwrap();
        // Running processes die, but their effects stay.
        let ran = s.out("touch ran; cat ran; rm ran").await;
        let expected: String = (0..ran.lines().count()).map(|number| format!("{number}\n")).collect();
        assert_eq!(ran, expected);
    }
}

pub(crate) async fn a_client_killed_while_opening_blocks_nothing(test_env: &TestEnv) {
    let fixture = own_helper(&test_env.short_lived());
    let began = Instant::now();
    assert!(fixture.another_hermes("first", &[]).wait().unwrap().success());
    let open_time = began.elapsed();
    let mut seen = test_env.running();
    for moment in 0..20 {
        let session = moment.to_string();
        let mut hermes = fixture.another_hermes(&session, &[]);
        tokio::time::sleep(open_time * moment / 20).await;
        hermes.kill().unwrap();
        hermes.wait().unwrap();
        seen.extend(test_env.running());
        assert_eq!(fixture.open(&session).await.out("echo fine").await, "fine\n");
    }
    until("all processes are gone", || test_env.running().is_empty()).await;
    test_env.assert_nothing_left().await;
    let left: Vec<String> = cgroups().into_iter().filter(|name| belongs_to(name, &seen)).collect();
    assert_eq!(left, Vec::<String>::new());
}

/// The same fixture with its own copy of the jail helper, so that its processes can be recognized.
#[expect(
    clippy::disallowed_methods,
    reason = "`fs::copy` could leave the file open for writing in a child, which prevents its execution"
)]
fn own_helper(fixture: &Fixture) -> Fixture {
    let helper = fixture.folder.join("helper");
    let copied = std::process::Command::new("cp").arg(&fixture.helper).arg(&helper).status().unwrap();
    assert!(copied.success());
    Fixture { helper, ..fixture.clone() }
}

fn belongs_to(cgroup: &str, pids: &[i32]) -> bool {
    cgroup.rsplit('-').next().and_then(|pid| pid.parse().ok()).is_some_and(|pid| pids.contains(&pid))
}

/// The names of all cgroups of jails on this machine.
fn cgroups() -> Vec<String> {
    let mut names = Vec::new();
    let mut next = vec![std::path::PathBuf::from("/sys/fs/cgroup")];
    while let Some(directory) = next.pop() {
        for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                next.push(entry.path());
                names.push(entry.file_name().to_string_lossy().into_owned());
            }
        }
    }
    names.retain(|name| name.starts_with("hermes"));
    names
}

pub(crate) async fn a_vanished_place_is_recreated_and_reported_once(fixture: &Fixture) {
    let s = fixture.open("s").await;
    let home = s.sandbox.cwd().await.unwrap();
    s.out("export A=1; mkdir sub; cd sub").await;
    kill(guest(fixture, &s.plan).await).await;
    // Both the old handle and a new one use the recreated place.
    let seen = s.run("echo [$A]; pwd").await;
    assert_eq!((text(&seen), seen.state_loss), (format!("[]\n{home}\n"), StateLoss::Yes));
    assert_eq!(fixture.open("s").await.run("true").await.state_loss, StateLoss::No);
    assert_eq!(s.run("true").await.state_loss, StateLoss::No);
}

pub(crate) async fn a_running_command_keeps_its_place_alive_and_a_polling_client_does_not(
    test_env: &TestEnv,
) {
    let fixture = test_env.short_lived();
    let s = fixture.open("s").await;
    let outcome = s.run("export A=1; sleep 2.5; echo done").await;
    assert_eq!((text(&outcome).as_str(), outcome.state_loss), ("done\n", StateLoss::No));
    assert_eq!(s.out("echo $A").await, "1\n");
    let watched = guest(&fixture, &s.plan).await;
    let processes = s.processes().await;
    let mut notices = processes.notices(0).await.unwrap();
    // This client stays connected and polls.
    let poll = async {
        while is_alive(watched) {
            tokio::time::sleep(Duration::from_millis(100)).await;
            drop(processes.list().await);
        }
    };
    tokio::time::timeout(WAIT_TIMEOUT, poll).await.unwrap();
    assert!(notices.next_notice().await.is_err());
    let outcome = s.run("echo [$A]").await;
    assert_eq!((text(&outcome).as_str(), outcome.state_loss), ("[]\n", StateLoss::Yes));
}

pub(crate) async fn a_place_removes_itself_after_its_lifetime(test_env: &TestEnv) {
    let fixture = test_env.short_lived();
    let s = fixture.open("s").await;
    s.run("true").await;
    let run = fixture.host().run_dir;
    drop(s);
    let entries = || {
        let listed = std::fs::read_dir(&run).into_iter().flatten().flatten();
        listed.filter(|entry| !entry.file_name().to_string_lossy().starts_with('.')).count()
    };
    assert_eq!(entries(), 2, "a run directory and its lock");
    until("all processes are gone", || test_env.running().is_empty()).await;
    if test_env.peer.is_some() {
        // A guest in a container cannot reach its run directory, so the sweep removes it.
        test_env.assert_nothing_left().await;
    }
    until("the run directories are gone", || !run.exists()).await;
}

pub(crate) async fn a_changed_setting_keeps_the_files_and_waits_for_running_processes(test_env: &TestEnv) {
    let s = test_env.open("s").await;
    s.out("echo x >kept; export A=1").await;
    let id = s.background("sleep 1000").await;
    // A changed lifetime changes the settings digest.
    let changed = Fixture { lifetime: test_env.lifetime * 2, ..(**test_env).clone() };
    let refused = changed.try_open("s").await;
    assert!(matches!(refused, Err(Error::SettingsChanged { .. })), "{refused:?}");
    s.processes().await.kill(id).await.unwrap();
    let outcome = changed.open("s").await.run("cat kept; echo [$A]").await;
    assert_eq!((text(&outcome).as_str(), outcome.state_loss), ("x\n[]\n", StateLoss::Yes));
    assert_eq!(changed.places().list().await.unwrap().len(), 1);
}

pub(crate) async fn places_are_listed_found_by_name_or_session_and_ended(fixture: &Fixture) {
    let (one, two) = (fixture.open("one").await, fixture.open("two").await);
    let left = one.out("sleep 1000 >/dev/null 2>&1 & echo $!").await;
    let places = fixture.places();
    let facts = |found: &ListedPlace| {
        let PlaceState::Running(stats) = found.state else { panic!("{found:?}") };
        (found.record.name.clone(), found.record.session.clone(), stats.running)
    };
    let mut expected = [(one.plan.name(), "one".to_owned(), 1), (two.plan.name(), "two".to_owned(), 0)];
    expected.sort();
    assert_eq!(places.list().await.unwrap().iter().map(facts).collect::<Vec<_>>(), expected);
    for wanted in [one.plan.name(), "one".to_owned(), one.plan.id().as_str().to_owned()] {
        let found = places.find(&wanted).await.unwrap();
        assert_eq!(found.iter().map(|found| &found.record.session).collect::<Vec<_>>(), ["one"], "{wanted}");
    }
    assert!(places.find("").await.unwrap().is_empty());
    let guests = [guest(fixture, &one.plan).await, guest(fixture, &two.plan).await];
    let failed = places.end_all(places.list().await.unwrap()).await;
    assert!(failed.is_empty(), "{failed:?}");
    assert!(!guests.into_iter().any(is_alive), "{left}");
    let live = |found: &ListedPlace| found.state != PlaceState::Stopped;
    assert!(!places.list().await.unwrap().iter().any(live));
}

pub(crate) async fn a_place_over_the_limit_waits_for_an_idle_one(fixture: &Fixture) {
    let session = async |key: &str| {
        let mut host = fixture.host();
        host.limits.max_places = 1;
        let plan = ResolvedPlace::new(host, Spec { ..fixture.spec() }, SessionKey::new(key)).unwrap();
        Session { sandbox: plan.open().await.unwrap(), plan, key: key.to_owned() }
    };
    let one = session("one").await;
    let first = guest(fixture, &one.plan).await;
    let two = session("two").await;
    assert_eq!(two.out("echo in").await, "in\n");
    assert!(!is_alive(first));
}

async fn session_with_limits(
    fixture: &Fixture,
    key: &str,
    person: &str,
    limits: PlaceLimits,
) -> Result<Session, Error> {
    let host = Installation { limits, ..fixture.host() };
    let plan = ResolvedPlace::new(host, fixture.spec(), SessionKey::new(key)).unwrap();
    let plan = plan.for_person(hermes_types::Person::new(person));
    Ok(Session { sandbox: plan.open().await?, plan, key: key.to_owned() })
}

pub(crate) async fn a_person_over_their_limit_is_refused_and_others_are_not(fixture: &Fixture) {
    let limits = PlaceLimits { max_per_person: 1, ..PlaceLimits::default() };
    let one = session_with_limits(fixture, "one", "chat:7", limits).await.unwrap();
    one.out("sleep 1000 >/dev/null 2>&1 &").await;
    let started = std::time::Instant::now();
    let refused = session_with_limits(fixture, "two", "chat:7", limits).await;
    assert!(matches!(refused, Err(Error::TooManyOfPerson { max: 1 })), "{:?}", refused.err());
    assert!(started.elapsed() < Duration::from_secs(10));
    let other = session_with_limits(fixture, "three", "chat:8", limits).await.unwrap();
    assert_eq!(other.out("echo in").await, "in\n");
    // Their own place is found again.
    session_with_limits(fixture, "one", "chat:7", limits).await.unwrap();
}

pub(crate) async fn a_place_that_no_hermes_uses_ends_whatever_runs_there(fixture: &Fixture) {
    let limits = PlaceLimits { max_idle: Some(Duration::from_secs(1000)), ..PlaceLimits::default() };
    let s = session_with_limits(fixture, "s", "chat:7", limits).await.unwrap();
    s.out("sleep 1000 >/dev/null 2>&1 &").await;
    let guest = guest(fixture, &s.plan).await;
    let used = fixture.folder.join("run").join(s.plan.name()).join("used");
    let ago = |seconds| {
        let file = fs::File::options().append(true).open(&used).unwrap();
        file.set_modified(std::time::SystemTime::now() - Duration::from_secs(seconds)).unwrap();
    };
    ago(500);
    fixture.places().remove_stale().await.unwrap();
    assert!(is_alive(guest), "it was used recently");
    ago(2000);
    // A hermes that uses it now records that.
    s.plan.open().await.unwrap();
    fixture.places().remove_stale().await.unwrap();
    assert!(is_alive(guest), "it was just used");
    ago(2000);
    fixture.places().remove_stale().await.unwrap();
    assert!(!is_alive(guest));
}

pub(crate) async fn a_place_over_its_age_ends_whatever_runs_there(fixture: &Fixture) {
    let limits = PlaceLimits { max_age: Some(Duration::from_secs(1)), ..PlaceLimits::default() };
    let s = session_with_limits(fixture, "s", "chat:7", limits).await.unwrap();
    s.out("sleep 1000 >/dev/null 2>&1 &").await;
    let guest = guest(fixture, &s.plan).await;
    until("the place has ended", || {
        tokio::task::block_in_place(|| Handle::current().block_on(fixture.places().remove_stale())).unwrap();
        !is_alive(guest)
    })
    .await;
    assert_eq!(s.out("echo again").await, "again\n");
}

/// The run directory is often in memory.
pub(crate) async fn what_grows_is_not_in_the_run_directory(fixture: &Fixture) {
    let mut spec = fixture.spec();
    match &mut spec.backend {
        Backend::Sandbox(jail) => jail.files = None,
        Backend::Docker(docker) => docker.files = None,
        Backend::Local(_) => {}
    }
    let plan = ResolvedPlace::new(fixture.host(), spec, SessionKey::new("s")).unwrap();
    let s = Session { sandbox: plan.open().await.unwrap(), plan, key: "s".to_owned() };
    let run = fixture.host().run_dir;
    // A spool, and a file of a place that keeps none.
    let ended = s.run("head -c 9000000 /dev/zero | tr '\\0' x; head -c 3000000 /dev/zero > big").await;
    let spool = ended.spool_path.unwrap();
    assert_eq!(s.out(&format!("wc -c <{spool}")).await.trim(), "9000000");
    assert!(size_below(&run) < 1_000_000, "{}", size_below(&run));
}

fn size_below(path: &Path) -> u64 {
    let Ok(meta) = fs::symlink_metadata(path) else { return 0 };
    let below = fs::read_dir(path).into_iter().flatten().flatten();
    if meta.is_dir() { below.map(|entry| size_below(&entry.path())).sum() } else { meta.len() }
}

pub(crate) async fn a_place_that_was_removed_leaves_nothing(test_env: &TestEnv) {
    let s = test_env.open("s").await;
    s.out("mkdir locked; touch locked/file; chmod 0 locked; sleep 1000 &").await;
    s.sandbox.remove().await.unwrap();
    test_env.assert_nothing_left().await;
    let kept = fs::read_dir(test_env.persistent_dir().join(test_env.backend.as_str()));
    assert_eq!(kept.into_iter().flatten().count(), 0);
    if test_env.backend == BackendName::Local {
        fs::set_permissions(test_env.folder.join("work/locked"), readable()).unwrap();
    }
}

fn readable() -> fs::Permissions {
    std::os::unix::fs::PermissionsExt::from_mode(0o700)
}

pub(crate) async fn remains_of_an_ended_place_are_removed(fixture: &Fixture) {
    let (gone, here) = (fixture.open("gone").await, fixture.open("here").await);
    let dead = guest(fixture, &gone.plan).await;
    drop(gone);
    kill(dead).await;
    fixture.places().remove_stale().await.unwrap();
    let listed = fs::read_dir(fixture.folder.join("run")).unwrap();
    let mut names: Vec<_> = listed.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    let (run_dir, lock) = (here.plan.name(), format!("{}.lock", here.plan.name()));
    assert_eq!(names, [".admission", ".storage", ".swept", &run_dir, &lock]);
}

pub(crate) async fn a_failed_creation_is_an_error_with_the_reason(fixture: &Fixture) {
    let run = fixture.folder.join("run");
    fs::write(&run, "in the way").unwrap();
    let error = fixture.try_open("s").await.unwrap_err();
    assert!(matches!(&error, Error::File { path, .. } if path.starts_with(&run)), "{error}");
    fs::remove_file(&run).unwrap();
    // Writes the guest program to the cache.
    fixture.open("s").await.sandbox.remove().await.unwrap();
    let mut broken = fixture.clone();
    broken.cache = fixture.folder.join("work");
    for entry in fs::read_dir(&fixture.cache).unwrap().flatten() {
        // Something that cannot be replaced is in the place of the guest program.
        fs::create_dir_all(broken.cache.join(entry.file_name()).join("in the way")).unwrap();
    }
    let error = broken.try_open("s").await.unwrap_err();
    assert!(matches!(&error, Error::File { path, .. } if path.starts_with(&broken.cache)), "{error}");
    assert!(fixture.places().list().await.unwrap().iter().all(|found| found.state == PlaceState::Stopped));
}
