//! State that a command leaves for the next, and the results of commands.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

use hermes_exec::{
    CommandEvent, EndReason, Error, OutputMode, RunOptions, StateLoss, Stdin, WorkingDirectory,
};

use crate::fixture::{Fixture, run_options};
use hermes_types::BackendName;

use crate::session::{Session, text};

pub(crate) async fn exit_codes_are_those_of_a_shell(fixture: &Fixture) {
    let s = fixture.open("s").await;
    let cases = [
        ("true", 0),
        ("false", 1),
        ("exit 3", 3),
        ("exit 255", 255),
        ("no-such-command-here", 127),
        ("touch plain; ./plain", 126),
        ("kill -TERM $$", 128 + 15),
        ("kill -KILL $$", 128 + 9),
        ("sh -c 'kill -SEGV $$'", 128 + 11),
        ("syntax error (", 2),
        ("true & false & wait", 0),
    ];
    for (command, code) in cases {
        let outcome = s.run(command).await;
        assert_eq!(
            (outcome.code, outcome.end_reason),
            (code, EndReason::Exited),
            "{command}: {}",
            text(&outcome)
        );
    }
}

pub(crate) async fn stdout_and_stderr_keep_their_order(fixture: &Fixture) {
    let s = fixture.open("s").await;
    let output = s.out("for i in $(seq 200); do echo out$i; echo err$i >&2; done").await;
    let expected: String = (1..=200).map(|i| format!("out{i}\nerr{i}\n")).collect();
    assert_eq!(output, expected);
}

pub(crate) async fn directory_and_exports_persist(fixture: &Fixture) {
    let s = fixture.open("s").await;
    let start = s.sandbox.cwd().await.unwrap();
    s.out(
        "mkdir 'a b'; cd 'a b'; export X='x  y' N='one
two'; Y=2",
    )
    .await;
    let again = fixture.open("s").await;
    let outcome = again.run("pwd; echo \"$X-$N-$Y-$GIVEN\"; unset X; exit 3").await;
    assert_eq!(text(&outcome), format!("{start}/a b\nx  y-one\ntwo--value\n"));
    assert_eq!((outcome.code, outcome.cwd, outcome.state_loss), (3, format!("{start}/a b"), StateLoss::No));
    assert_eq!(s.out("cd ..; echo ${X-gone}").await, "gone\n");
    assert_eq!(s.out("pwd").await, format!("{start}\n"));
}

pub(crate) async fn directory_exports_functions_and_aliases_persist(fixture: &Fixture) {
    let s = fixture.open("s").await;
    let start = s.sandbox.cwd().await.unwrap();
    s.out("mkdir 'a b'; cd 'a b'; export X='x y'; Y=2; alias up='echo UP'").await;
    // Functions with a leading underscore, and those defined after them, stay too.
    s.out("_early() { return 3; }; greet() { echo \"hello $1\"; }").await;
    // Another handle finds the same session.
    let again = fixture.open("s").await;
    let outcome = again.run("pwd; echo \"$X-$Y-$GIVEN\"; _early; echo $?; greet you; up; exit 3").await;
    assert_eq!(text(&outcome), format!("{start}/a b\nx y--value\n3\nhello you\nUP\n"));
    assert_eq!((outcome.code, outcome.cwd, outcome.state_loss), (3, format!("{start}/a b"), StateLoss::No));
    again.out("unset X; unset -f greet; unalias up; cd ..").await;
    let outcome = s.run("pwd; echo ${X-gone}; greet 2>&-; echo $?; up 2>&-; echo $?").await;
    assert_eq!(text(&outcome), format!("{start}\ngone\n127\n127\n"));
}

pub(crate) async fn state_survives_exit_errexit_and_exec(fixture: &Fixture) {
    let s = fixture.open("s").await;
    let endings = [
        ("exit", "export A=exit; exit 3", 3),
        ("errexit", "set -e; export A=errexit; false; export A=never", 1),
        ("nounset", "set -u; export A=nounset; echo $no_such_variable; export A=never", 127),
        ("exec", "export A=exec; exec bash -c 'exit 5'", 5),
        ("function", "f() { export A=function; exit 4; }; f", 4),
        ("closed", "export A=closed; exec >&- 2>&- <&-", 0),
        ("trap", "trap 'export A=trap' EXIT; export A=early; exit 6", 6),
    ];
    for (name, command, code) in endings {
        let outcome = s.run(command).await;
        assert_eq!(outcome.code, code, "{name}: {}", text(&outcome));
        assert_eq!(s.out("echo $A; set -o | grep -c '^errexit.*on' || true").await, format!("{name}\n0\n"));
    }
}

pub(crate) async fn any_value_is_restored_unchanged(fixture: &Fixture) {
    let s = fixture.open("s").await;
    s.out(
        r#"export N=$'two\nlines\n' Q="it's \"quoted\" \$HOME \`x\` \\" B=$'\x01\x7f\xff\xfe\e' E= U='äöü €' S='declare -x FAKE="1"
declare -x FAKE2="2"'"#,
    )
    .await;
    let outcome = s.run(r#"printf '%s\0%s\0%s\0%s\0%s\0%s' "$N" "$Q" "$B" "$E" "$U" "${FAKE-none}""#).await;
    let expected = [
        b"two\nlines\n\0it's \"quoted\" $HOME `x` \\\0\x01\x7f\xff\xfe\x1b\0\0".as_slice(),
        "äöü €\0none".as_bytes(),
    ];
    assert_eq!(outcome.output, expected.concat());
    s.out("mkdir $'new\\nline'; cd $'new\\nline'; f() { cat <<'X'\n}\nfake () \nX\n}").await;
    assert_eq!(s.out("f; basename \"$PWD\"; declare -F").await, "}\nfake () \nnew\nline\ndeclare -f f\n");
}

pub(crate) async fn parallel_calls_never_mix_their_states(fixture: &Fixture) {
    let s = Arc::new(fixture.open("s").await);
    // All names exist from the start: a command does not run if another one exported a new name after
    // the verdict.
    let names: Vec<String> = (0..50).map(|number| format!("OF{number}=")).collect();
    s.out(&format!("export ONE=begin OTHER=begin {}", names.join(" "))).await;
    // The guest is the same on every backend, but containers are slower, so they get fewer rounds.
    let rounds = if fixture.peer.is_some() { 20 } else { 100 };
    for round in 0..rounds {
        let call = |number: i32| {
            let s = s.clone();
            tokio::spawn(async move {
                let mark = format!("{round}.{number}");
                s.out(&format!("echo $ONE $OTHER; export ONE={mark} OTHER={mark} OF{number}={round}")).await
            })
        };
        for called in (0..50).map(call).collect::<Vec<_>>() {
            let found = called.await.unwrap();
            let (one, other) = found.trim().split_once(' ').unwrap();
            assert_eq!(one, other);
        }
        let last = s.out("echo $ONE $OTHER; env | grep '^OF[0-9]*=' | cut -d= -f2 | sort | uniq -c").await;
        let lines: Vec<&str> = last.lines().collect();
        let (one, other) = lines[0].split_once(' ').unwrap();
        assert!(one == other && one.starts_with(&format!("{round}.")), "{last}");
        assert_eq!(lines[1].split_whitespace().collect::<Vec<_>>(), ["50", &round.to_string()], "{last}");
    }
}

pub(crate) async fn a_directory_or_variable_for_one_call_does_not_persist(fixture: &Fixture) {
    let s = fixture.open("s").await;
    let here = s.sandbox.cwd().await.unwrap();
    s.out("export ONCE=old").await;
    for value in ["first", "second"] {
        let other = RunOptions {
            directory: WorkingDirectory::Override,
            env: vec![("ONCE".to_owned(), value.to_owned())],
            ..run_options(OutputMode::AtEnd)
        };
        let permit = s.permit_in("/", "pwd; echo $ONCE; cd /usr; export EXPORTED=1").await;
        let outcome = s.sandbox.start_command(permit, other).await.unwrap().wait().await.unwrap();
        assert_eq!((text(&outcome), outcome.cwd), (format!("/\n{value}\n"), here.clone()));
        assert_eq!(s.out("pwd; echo $ONCE $EXPORTED").await, format!("{here}\nold 1\n"));
    }
}

pub(crate) async fn a_missing_directory_is_126_and_nothing_runs(fixture: &Fixture) {
    let s = fixture.open("s").await;
    let here = s.sandbox.cwd().await.unwrap();
    let nowhere = format!("{here}/nowhere");
    for attention in [OutputMode::AtEnd, OutputMode::Live, crate::session::quiet()] {
        let elsewhere = RunOptions { directory: WorkingDirectory::Override, ..run_options(attention) };
        let permit = s.permit_in(&nowhere, &format!("touch {here}/ran")).await;
        let outcome = s.sandbox.start_command(permit, elsewhere).await.unwrap().wait().await.unwrap();
        assert_eq!((outcome.code, outcome.end_reason), (126, EndReason::BadDirectory));
    }
    s.out("mkdir gone; cd gone; rmdir ../gone").await;
    assert_eq!(s.run("touch ran").await.code, 126);
    assert_eq!(s.out("pwd; ls").await, format!("{here}\n"), "the next command runs in the initial directory");
}

pub(crate) async fn a_session_that_moved_after_the_verdict_runs_nothing(fixture: &Fixture) {
    let (s, other) = (fixture.open("s").await, fixture.open("s").await);
    let judged = s.permit("touch ran").await;
    other.out("mkdir elsewhere; cd elsewhere").await;
    let refused = s.sandbox.start_command(judged, run_options(OutputMode::AtEnd)).await;
    assert!(matches!(refused, Err(Error::SessionMoved)), "{refused:?}");
    assert_eq!(s.out("ls . ..").await, ".:\n\n..:\nelsewhere\n");
    for change in ["alias touch=rm", "touch() { rm -r .; }", "export CDPATH=/", "export HOME=/", "unset HOME"]
    {
        let judged = s.permit("touch ran").await;
        other.out(change).await;
        let refused = s.sandbox.start_command(judged, run_options(OutputMode::AtEnd)).await;
        assert!(matches!(refused, Err(Error::SessionMoved)), "{change}: {refused:?}");
    }
}

pub(crate) async fn long_commands_and_long_inputs_arrive_whole(fixture: &Fixture) {
    let s = fixture.open("s").await;
    let word = "x".repeat(1 << 20);
    assert_eq!(s.out(&format!("v='{word}'; echo ${{#v}}")).await, "1048576\n");
    let data: Vec<u8> = (0..100 * 1024).map(|i: u32| u8::try_from(i % 251).unwrap()).collect();
    let fed = RunOptions {
        stdin: Stdin::Data(data.clone().into()),
        keep_bytes: 1 << 20,
        ..run_options(OutputMode::AtEnd)
    };
    let outcome = s.end("cat", fed).await;
    assert!(outcome.output == data, "{} bytes came back", outcome.output.len());
    assert_eq!(s.out("cat; echo end").await, "end\n", "a command without input reads nothing");
}

pub(crate) async fn a_session_gets_only_its_own_environment(fixture: &Fixture) {
    let s = fixture.open("s").await;
    // Podman sets TERM in every container.
    let names = s.out("env | cut -d= -f1 | grep -vx TERM | sort | tr '\\n' ' '").await;
    assert_eq!(names, "GIVEN HOME PATH PWD SHLVL _ ");
    // The process that supervises the command does not see the command's secret. The guard hides it.
    let expected = if fixture.backend == BackendName::Local { "" } else { "HOME PATH " };
    assert_eq!(
        s.out(
            "(tr '\\0' '\\n' </proc/$PPID/environ) 2>/dev/null | cut -d= -f1 | grep -vx TERM | sort | tr '\\n' ' '"
        )
        .await,
        expected
    );
    // Under the guard, the shell inherits the file of its state.
    let expected = if fixture.backend == BackendName::Local { "0 1 2 242 3 " } else { "0 1 2 3 " };
    assert_eq!(s.out("ls /proc/self/fd | tr '\\n' ' '").await, expected);
}

pub(crate) async fn a_secret_is_visible_only_to_its_command(fixture: &Fixture) {
    let s = fixture.open("s").await;
    let secret = format!("hunter-{}", std::process::id());
    let with_secret =
        RunOptions { env: vec![("SECRET".to_owned(), secret.clone())], ..run_options(OutputMode::Live) };
    let mut command = s.start("export SECRET; echo ${#SECRET}; exec sleep 1000", with_secret).await;
    let CommandEvent::Output(said) = command.next_event().await.unwrap() else { panic!("it ended") };
    assert_eq!(String::from_utf8(said).unwrap(), format!("{}\n", secret.len()));
    let tells = |path: &Path| {
        let content = fs::read(path).unwrap_or_default();
        content.windows(secret.len()).any(|part| part == secret.as_bytes())
    };
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        assert!(!tells(&entry.path().join("cmdline")), "{entry:?}");
    }
    let mut next = vec![fixture.folder.clone()];
    while let Some(directory) = next.pop() {
        for entry in fs::read_dir(&directory).unwrap().flatten() {
            let kind = entry.file_type().unwrap();
            if kind.is_dir() {
                next.push(entry.path());
            }
            assert!(!kind.is_file() || !tells(&entry.path()), "{entry:?}");
        }
    }
    for private in ["run", &format!("run/{}", s.plan.name()), &format!("run/{}/guest", s.plan.name())] {
        let mode = fs::metadata(fixture.folder.join(private)).unwrap().mode();
        assert_eq!(mode & 0o777, 0o700, "{private}");
    }
}

pub(crate) async fn a_session_may_have_any_key_and_is_isolated(fixture: &Fixture) {
    let long = "k".repeat(10 * 1024);
    let keys = ["", "../..", "/", "a\nb", "a b;$(touch ran)`", "\u{1}\u{7f}\u{202e}🦀", "K", "k", &long];
    let mut open: Vec<Session> = Vec::new();
    for key in keys {
        let s = fixture.open(key).await;
        assert_eq!(s.out(&format!("echo [$MINE]; export MINE={}", open.len())).await, "[]\n", "{key:?}");
        open.push(s);
    }
    for (number, key) in keys.iter().enumerate() {
        assert_eq!(fixture.open(key).await.out("echo $MINE").await, format!("{number}\n"), "{key:?}");
    }
    let mut found: Vec<String> =
        fixture.places().list().await.unwrap().into_iter().map(|found| found.record.session).collect();
    let mut expected = keys.map(str::to_owned).to_vec();
    found.sort();
    expected.sort();
    assert_eq!(found, expected);
}
