//! Places as their callers see them: made once, found again, entered with a permit only.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on should stop")]

mod files;

use std::path::Path;
use std::time::Duration;

use hermes_exec::backend::sandbox;
use hermes_exec::{
    AtDeadline, AtEnd, Attention, Backend, Directory, Ending, Error, Found, Host, Input, Local, Outcome,
    Places, Plan, Reset, Sandbox, Sandboxed, Spec, State, Wish,
};
use hermes_policy::{Gate, Mode, Moment, Permit, Verdict};
use hermes_sandbox::{Limits, Network};
use hermes_types::{Attendance, Door, Job, Origin, Person, SessionKey, Timestamp};

/// A home of its own for places, which are ended with it.
struct Homes {
    folder: tempfile::TempDir,
}

impl Homes {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    fn host(&self) -> Host {
        Host {
            install: "test".to_owned(),
            run: self.path().join("run"),
            cache: Path::new(env!("CARGO_TARGET_TMPDIR")).join("guest"),
            home: self.path().join("home"),
            most_places: 100,
        }
    }

    fn spec(&self) -> Spec {
        let here = self.path().display().to_string();
        self.spec_of(Backend::Local(Local { base_env: base_env() }), &here, &here)
    }

    fn spec_of(&self, backend: Backend, cwd: &str, home: &str) -> Spec {
        Spec {
            backend,
            cwd: cwd.to_owned(),
            home: home.to_owned(),
            env: vec![("GIVEN".to_owned(), "value".to_owned())],
            init: Vec::new(),
            // The guests of a test end soon after it.
            lifetime: Duration::from_secs(10),
        }
    }

    fn plan(&self, session: &str) -> Plan {
        Plan::new(self.host(), self.spec(), SessionKey::new(session))
    }

    /// A jail that sees nothing of the host but what every jail sees.
    fn jail_plan(&self, session: &str) -> Plan {
        self.jail_plan_for(&self.path().join("owner"), session)
    }

    fn jail_plan_for(&self, owner_home: &Path, session: &str) -> Plan {
        let sandboxed = Sandboxed {
            helper: env!("CARGO_BIN_EXE_exec-jailer").into(),
            files: Some(self.path().join("files")),
            owner_home: owner_home.to_owned(),
            binds: Vec::new(),
            network: Network::None,
            limits: Limits::default(),
            base_env: base_env(),
        };
        let spec = self.spec_of(Backend::Sandbox(sandboxed), sandbox::WORKSPACE, sandbox::HOME);
        Plan::new(self.host(), spec, SessionKey::new(session))
    }
}

fn base_env() -> Vec<(String, String)> {
    vec![("PATH".to_owned(), "/usr/local/bin:/usr/bin:/bin".to_owned())]
}

/// A permit for a command, whatever the gate would ask about it.
fn permit(plan: &Plan, session: &str, command: &str, cwd: &str) -> Permit {
    let gate = Gate { mode: Mode::Off, ..Gate::default() };
    match judge(&gate, plan, session, Job::shell(command, cwd)) {
        Verdict::Allow(permit) => permit,
        other => panic!("{command}: {other:?}"),
    }
}

fn judge(gate: &Gate, plan: &Plan, session: &str, job: Job) -> Verdict {
    let owner = Person::new("cli");
    let origin = Origin {
        person: owner.clone(),
        door: Door::Cli,
        session: SessionKey::new(session),
        attendance: Attendance::Attended(vec![owner]),
        place: plan.place(),
    };
    let moment = Moment { now: Timestamp::from_seconds(0), seed: [0; 16] };
    gate.judge(job, &origin, moment)
}

fn wish(attention: Attention) -> Wish {
    Wish {
        timeout: Some(Duration::from_secs(20)),
        at_deadline: AtDeadline::Kill,
        keep: 50_000,
        input: Input::Nothing,
        env: Vec::new(),
        attention,
        directory: Directory::Session,
    }
}

fn in_background() -> Attention {
    Attention::Background { label: String::new(), watch: Vec::new(), at_end: AtEnd::Quiet }
}

async fn run_in(sandbox: &Sandbox, plan: &Plan, session: &str, command: &str) -> Outcome {
    let permit = permit(plan, session, command, &sandbox.cwd().await.unwrap());
    sandbox.start(permit, wish(Attention::AtEnd)).await.unwrap().end().await.unwrap()
}

fn text(outcome: &Outcome) -> &str {
    std::str::from_utf8(&outcome.output).unwrap()
}

#[tokio::test]
async fn state_persists_between_commands_and_between_processes() {
    let homes = Homes::new();
    let plan = homes.plan("s");
    let sandbox = plan.open().await.unwrap();
    let first =
        run_in(&sandbox, &plan, "s", "mkdir sub && cd sub && export A='x y'; f() { echo f$1; }").await;
    assert_eq!((first.code, first.ending), (0, Ending::Exited));
    drop(sandbox);
    let again = homes.plan("s").open().await.unwrap();
    let second = run_in(&again, &plan, "s", "pwd; echo \"$A $GIVEN\"; f 1; exit 3").await;
    let sub = homes.path().join("sub").display().to_string();
    assert_eq!(text(&second), format!("{sub}\nx y value\nf1\n"));
    assert_eq!((second.code, second.cwd, second.reset), (3, sub, Reset::No));
}

#[tokio::test]
async fn another_session_is_another_place() {
    let homes = Homes::new();
    let (one, two) = (homes.plan("one"), homes.plan("two\n../x"));
    assert_ne!(one.id(), two.id());
    let (first, second) = (one.open().await.unwrap(), two.open().await.unwrap());
    run_in(&first, &one, "one", "export SECRET=1").await;
    let seen = run_in(&second, &two, "two\n../x", "echo \"[$SECRET]\"").await;
    assert_eq!(text(&seen), "[]\n");
}

#[tokio::test]
async fn a_permit_for_another_place_or_session_runs_nothing() {
    let homes = Homes::new();
    let (one, two) = (homes.plan("one"), homes.plan("two"));
    let sandbox = one.open().await.unwrap();
    let cwd = homes.path().display().to_string();
    for wrong in [permit(&two, "two", "touch ran", &cwd), permit(&one, "other", "touch ran", &cwd)] {
        let refused = sandbox.start(wrong, wish(Attention::AtEnd)).await;
        assert!(matches!(refused, Err(Error::Permit(_))), "{refused:?}");
    }
    assert!(!homes.path().join("ran").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn callers_at_the_same_time_get_the_same_place() {
    let homes = Homes::new();
    let opened: Vec<_> = (0..8)
        .map(|_| {
            let plan = homes.plan("s");
            tokio::spawn(async move {
                let sandbox = plan.open().await.unwrap();
                let outcome = run_in(&sandbox, &plan, "s", "echo $PPID").await;
                (outcome.code, outcome.reset)
            })
        })
        .collect();
    for open in opened {
        assert_eq!(open.await.unwrap(), (0, Reset::No));
    }
    let rooms = std::fs::read_dir(homes.path().join("run")).unwrap();
    let rooms: Vec<_> = rooms.map(|e| e.unwrap().path()).filter(|path| path.is_dir()).collect();
    assert_eq!(rooms.len(), 1, "{rooms:?}");
}

#[tokio::test]
async fn a_place_that_vanished_is_made_again_and_says_so() {
    let homes = Homes::new();
    let plan = homes.plan("s");
    let sandbox = plan.open().await.unwrap();
    run_in(&sandbox, &plan, "s", "export A=1").await;
    let guest = run_in(&sandbox, &plan, "s", "cut -d ' ' -f 4 /proc/$PPID/stat").await;
    let killed = run_guest_killer(text(&guest).trim());
    assert!(killed, "{guest:?}");
    // Whoever holds the old handle, and whoever comes later.
    let seen = run_in(&sandbox, &plan, "s", "echo \"[$A]\"").await;
    assert_eq!((text(&seen), seen.reset), ("[]\n", Reset::Yes));
    let later = run_in(&plan.open().await.unwrap(), &plan, "s", "true").await;
    assert_eq!(later.reset, Reset::No, "it is said once");
}

/// Kills the guest and waits until its socket answers no more.
fn run_guest_killer(pid: &str) -> bool {
    let pid: i32 = pid.parse().unwrap();
    let pid = rustix::process::Pid::from_raw(pid).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    for _ in 0..2000 {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero()));
        if stat.is_err() || stat.is_ok_and(|stat| stat.contains(") Z ")) {
            return true;
        }
        std::thread::yield_now();
    }
    false
}

#[tokio::test]
async fn a_deadline_keeps_what_was_said_before_it() {
    let homes = Homes::new();
    let plan = homes.plan("s");
    let sandbox = plan.open().await.unwrap();
    let permit = permit(&plan, "s", "echo before; sleep 60", &sandbox.cwd().await.unwrap());
    let wish = Wish { timeout: Some(Duration::from_millis(300)), ..wish(Attention::AtEnd) };
    let outcome = sandbox.start(permit, wish).await.unwrap().end().await.unwrap();
    assert_eq!((outcome.code, outcome.ending, text(&outcome)), (124, Ending::TimedOut, "before\n"));
}

#[tokio::test]
async fn a_command_in_the_background_gives_a_handle_at_once() {
    let homes = Homes::new();
    let plan = homes.plan("s");
    let sandbox = plan.open().await.unwrap();
    let permit = permit(&plan, "s", "sleep 1000", &sandbox.cwd().await.unwrap());
    let outcome = sandbox.start(permit, wish(in_background())).await.unwrap().end().await.unwrap();
    let Ending::Background(id) = outcome.ending else { panic!("{outcome:?}") };
    let processes = sandbox.processes().await.unwrap();
    let listed: Vec<_> = processes.list().await.unwrap().into_iter().map(|view| view.process).collect();
    assert_eq!(listed, [id]);
    assert_eq!(processes.kill(id).await.unwrap().tree, hermes_exec::Tree::Gone);
}

#[tokio::test]
async fn a_guest_that_cannot_be_put_anywhere_is_a_clear_error_and_leaves_nothing() {
    let homes = Homes::new();
    std::fs::write(homes.path().join("run"), "in the way").unwrap();
    let error = homes.plan("s").open().await.unwrap_err();
    assert!(matches!(error, Error::File { .. }), "{error}");
}

#[tokio::test]
async fn what_is_left_of_a_place_that_is_gone_is_swept_away() {
    let homes = Homes::new();
    let (gone, here) = (homes.plan("gone"), homes.plan("here"));
    let sandbox = gone.open().await.unwrap();
    let guest = run_in(&sandbox, &gone, "gone", "cut -d ' ' -f 4 /proc/$PPID/stat").await;
    drop(sandbox);
    assert!(run_guest_killer(text(&guest).trim()));
    let kept = here.open().await.unwrap();
    let names = |homes: &Homes| -> Vec<String> {
        let listed = std::fs::read_dir(homes.path().join("run")).unwrap();
        let mut names: Vec<_> = listed.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    };
    let ours = [".admission", ".swept"];
    // The first sweep was only a moment ago.
    places(&homes).sweep().await.unwrap();
    assert_eq!(names(&homes), [ours[0], ours[1], &here.name(), &format!("{}.lock", here.name())]);
    kept.remove().await.unwrap();
    assert_eq!(names(&homes), ours);
}

#[tokio::test]
async fn a_session_that_moved_after_the_gate_was_asked_runs_nothing() {
    let homes = Homes::new();
    let plan = homes.plan("s");
    let (sandbox, other) = (plan.open().await.unwrap(), plan.open().await.unwrap());
    let judged = permit(&plan, "s", "touch ran", &sandbox.cwd().await.unwrap());
    run_in(&other, &plan, "s", "mkdir elsewhere; cd elsewhere").await;
    let refused = sandbox.start(judged, wish(Attention::AtEnd)).await;
    assert!(matches!(refused, Err(Error::Moved)), "{refused:?}");
    assert!(!homes.path().join("ran").exists() && !homes.path().join("elsewhere/ran").exists());
}

fn places(homes: &Homes) -> Places {
    Places { run: homes.path().join("run"), kept: homes.path().join("kept") }
}

#[tokio::test]
async fn places_are_listed_found_by_name_or_session_and_ended_for_good() {
    let homes = Homes::new();
    let (one, two) = (homes.plan("one"), homes.plan("two"));
    let (first, _second) = (one.open().await.unwrap(), two.open().await.unwrap());
    let left = run_in(&first, &one, "one", "sleep 1000 >/dev/null 2>&1 & echo $!").await;
    let places = places(&homes);
    let facts = |found: &Found| {
        let State::Live(stats) = found.state else { panic!("{found:?}") };
        (found.record.name.clone(), found.record.session.clone(), stats.running)
    };
    let mut expected = [(one.name(), "one".to_owned(), 1), (two.name(), "two".to_owned(), 0)];
    expected.sort();
    assert_eq!(places.list().await.unwrap().iter().map(facts).collect::<Vec<_>>(), expected);
    for wanted in [one.name(), "one".to_owned(), one.id().as_str().to_owned()] {
        let found = places.find(&wanted).await.unwrap();
        assert_eq!(found.iter().map(|found| &found.record.session).collect::<Vec<_>>(), ["one"], "{wanted}");
    }
    assert!(places.find("").await.unwrap().is_empty());
    let failed = places.end(places.list().await.unwrap()).await;
    assert!(failed.is_empty(), "{failed:?}");
    assert!(places.list().await.unwrap().is_empty());
    let sleeper = std::path::Path::new("/proc").join(text(&left).trim());
    assert!(!sleeper.exists(), "what ran there is gone");
}

#[tokio::test]
async fn one_place_too_many_waits_until_another_is_idle() {
    let homes = Homes::new();
    let plan = |session: &str| {
        let mut host = homes.host();
        host.most_places = 1;
        Plan::new(host, Spec { lifetime: Duration::from_secs(60), ..homes.spec() }, SessionKey::new(session))
    };
    let (one, two) = (plan("one"), plan("two"));
    let first = one.open().await.unwrap();
    run_in(&first, &one, "one", "true").await;
    let second = two.open().await.unwrap();
    assert_eq!(run_in(&second, &two, "two", "echo in").await.output, b"in\n");
    let names: Vec<_> =
        places(&homes).list().await.unwrap().into_iter().map(|found| found.record.name).collect();
    assert_eq!(names, [two.name()]);
    second.remove().await.unwrap();
}

#[tokio::test]
async fn a_jail_has_a_workspace_of_its_own_that_is_there_again() {
    let homes = Homes::new();
    let plan = homes.jail_plan("s");
    let sandbox = plan.open().await.unwrap();
    let made = run_in(&sandbox, &plan, "s", "pwd; echo $HOME; echo kept >file; touch /etc/x").await;
    assert!(text(&made).starts_with("/workspace\n/sandbox/home\n"), "{made:?}");
    assert_eq!(made.code, 1, "{made:?}");
    drop(sandbox);
    let again = plan.open().await.unwrap();
    assert_eq!(text(&run_in(&again, &plan, "s", "cat file").await), "kept\n");
    again.remove().await.unwrap();
    assert_eq!(std::fs::read_dir(homes.path().join("files/sandbox")).unwrap().count(), 0);
}
