//! Places as their callers see them: made once, found again, entered with a permit only.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on should stop")]

mod files;

use std::path::Path;
use std::time::Duration;

use hermes_exec::backend::sandbox;
use hermes_exec::{
    Attention, Backend, Ending, Error, Happening, Host, Local, Outcome, Plan, Reset, Sandbox, Sandboxed,
    Spec, Wish,
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

    fn plan(&self, session: &str) -> Plan {
        let here = self.path().display().to_string();
        self.plan_of(Backend::Local(Local { base_env: base_env() }), &here, &here, session)
    }

    /// A jail that sees nothing of the host but what every jail sees.
    fn jail_plan(&self, session: &str) -> Plan {
        self.jail_plan_for(&self.path().join("owner"), session)
    }

    fn jail_plan_for(&self, owner_home: &Path, session: &str) -> Plan {
        let sandboxed = Sandboxed {
            helper: env!("CARGO_BIN_EXE_exec-jailer").into(),
            files: self.path().join("files"),
            owner_home: owner_home.to_owned(),
            binds: Vec::new(),
            network: Network::None,
            limits: Limits::default(),
            base_env: base_env(),
        };
        self.plan_of(Backend::Sandbox(sandboxed), sandbox::WORKSPACE, sandbox::HOME, session)
    }

    fn plan_of(&self, backend: Backend, cwd: &str, home: &str, session: &str) -> Plan {
        let host = Host {
            install: "test".to_owned(),
            run: self.path().join("run"),
            cache: Path::new(env!("CARGO_TARGET_TMPDIR")).join("guest"),
            home: self.path().join("home"),
        };
        let spec = Spec {
            backend,
            cwd: cwd.to_owned(),
            home: home.to_owned(),
            env: vec![("GIVEN".to_owned(), "value".to_owned())],
            // The guests of a test end soon after it.
            lifetime: Duration::from_secs(1),
        };
        Plan::new(host, spec, SessionKey::new(session))
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
    Wish { timeout: Duration::from_secs(20), keep: 50_000, input: None, env: Vec::new(), attention }
}

async fn run_in(sandbox: &Sandbox, plan: &Plan, session: &str, command: &str) -> Outcome {
    let permit = permit(plan, session, command, sandbox.cwd());
    let mut command = sandbox.start(permit, wish(Attention::AtEnd)).await.unwrap();
    loop {
        if let Happening::End(outcome) = command.next().await.unwrap() {
            return outcome;
        }
    }
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
    assert_eq!(again.was_reset(), Reset::No);
    let second = run_in(&again, &plan, "s", "pwd; echo \"$A $GIVEN\"; f 1; exit 3").await;
    let sub = homes.path().join("sub").display().to_string();
    assert_eq!(text(&second), format!("{sub}\nx y value\nf1\n"));
    assert_eq!((second.code, second.cwd), (3, sub));
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
                let permit = permit(&plan, "s", "echo $PPID", "/");
                let mut command = sandbox.start(permit, wish(Attention::AtEnd)).await.unwrap();
                match command.next().await.unwrap() {
                    Happening::End(outcome) => (outcome.code, sandbox.was_reset()),
                    Happening::Output(_) => panic!("a summary was asked for"),
                }
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
    drop(sandbox);
    let killed = run_guest_killer(text(&guest).trim());
    assert!(killed, "{guest:?}");
    let again = plan.open().await.unwrap();
    assert_eq!(again.was_reset(), Reset::Yes);
    let seen = run_in(&again, &plan, "s", "echo \"[$A]\"").await;
    assert_eq!(text(&seen), "[]\n");
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
    let permit = permit(&plan, "s", "echo before; sleep 60", "/");
    let wish = Wish { timeout: Duration::from_millis(300), ..wish(Attention::AtEnd) };
    let mut command = sandbox.start(permit, wish).await.unwrap();
    let Happening::End(outcome) = command.next().await.unwrap() else { panic!("no end") };
    assert_eq!((outcome.code, outcome.ending, text(&outcome)), (124, Ending::TimedOut, "before\n"));
}

#[tokio::test]
async fn a_command_in_the_background_gives_a_handle_at_once() {
    let homes = Homes::new();
    let plan = homes.plan("s");
    let sandbox = plan.open().await.unwrap();
    let permit = permit(&plan, "s", "sleep 1", "/");
    let mut command = sandbox.start(permit, wish(Attention::Background)).await.unwrap();
    let Happening::End(outcome) = command.next().await.unwrap() else { panic!("no end") };
    assert!(matches!(outcome.ending, Ending::Background(_)), "{outcome:?}");
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
    assert_eq!(names(&homes), [here.name(), format!("{}.lock", here.name())]);
    kept.remove().unwrap();
    assert_eq!(names(&homes), [format!("{}.lock", here.name())]);
}

#[tokio::test]
async fn a_session_that_moved_after_the_gate_was_asked_runs_nothing() {
    let homes = Homes::new();
    let plan = homes.plan("s");
    let (sandbox, other) = (plan.open().await.unwrap(), plan.open().await.unwrap());
    let judged = permit(&plan, "s", "touch ran", sandbox.cwd());
    run_in(&other, &plan, "s", "mkdir elsewhere; cd elsewhere").await;
    let refused = sandbox.start(judged, wish(Attention::AtEnd)).await;
    assert!(matches!(refused, Err(Error::Guest(_))), "{refused:?}");
    assert!(!homes.path().join("ran").exists() && !homes.path().join("elsewhere/ran").exists());
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
    again.remove().unwrap();
    assert_eq!(std::fs::read_dir(homes.path().join("files/sandbox")).unwrap().count(), 0);
}
