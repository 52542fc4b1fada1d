//! State that one command leaves for the next, and exit codes.

use hermes_guest::client::Error;
use hermes_guest::protocol::message::{ExitCause, Rejection, RunRequest, ShellSessionKey, StatePolicy};
use hermes_guest::protocol::message::{OutputDelivery, RunMode, SessionOrigin, Stdin};
use serde_bytes::ByteBuf;

use crate::fixture::{TestGuest, TestShell, output_text};

#[tokio::test]
async fn exit_codes_are_those_of_a_shell() {
    let guest = TestGuest::start().await;
    let s = guest.session().await;
    let cases = [
        ("true", 0),
        ("false", 1),
        ("exit 3", 3),
        ("exit 255", 255),
        ("no-such-command-here", 127),
        ("touch plain; ./plain", 126),
        ("kill -TERM $$", 128 + 15),
        ("kill -KILL $$", 128 + 9),
        ("bash -c 'kill -SEGV $$'", 128 + 11),
        ("syntax error (", 2),
    ];
    for (command, code) in cases {
        assert_eq!(s.sh(command).await.0, code, "{command}");
    }
    let ended = s.run(s.command("kill -KILL $$")).await;
    assert_eq!(ended.cause, ExitCause::Signaled(9));
}

#[tokio::test]
async fn messages_are_those_of_bash() {
    let guest = TestGuest::start().await;
    let s = guest.session().await;
    let (_, output) = s.sh("echo one\nno-such-command").await;
    assert_eq!(output, "one\nbash: line 2: no-such-command: command not found\n");
    assert_eq!(s.out("set | grep -c ^__hermes || true").await, "0\n");
    assert_eq!(
        s.out("echo $0 $# ${#FUNCNAME[@]}; trap -p DEBUG; shopt -p expand_aliases").await,
        "bash 0 0\nshopt -s expand_aliases\n"
    );
}

#[tokio::test]
async fn stdout_and_stderr_keep_their_order() {
    let guest = TestGuest::start().await;
    let s = guest.session().await;
    let output = s.out("for i in $(seq 200); do echo out$i; echo err$i >&2; done").await;
    let expected: String = (1..=200).map(|i| format!("out{i}\nerr{i}\n")).collect();
    assert_eq!(output, expected);
}

#[tokio::test]
async fn directory_exports_functions_and_aliases_persist() {
    let guest = TestGuest::start().await;
    let s = guest.session().await;
    s.out("mkdir -p 'a b'; cd 'a b'; export X=1; Y=2; greet() { echo \"hello $1\"; }; alias up='echo UP'")
        .await;
    assert_eq!(
        s.out("pwd; echo $X-$Y; greet you; up").await,
        format!("{}/a b\n1-\nhello you\nUP\n", guest.work().display())
    );
    s.out("unset X HOME; unset -f greet; unalias up; cd -").await;
    let (_, output) = s.sh("echo ${X-gone} ${HOME-gone}; greet; up; pwd").await;
    assert!(
        output.starts_with("gone gone\n") && output.matches("command not found").count() == 2,
        "{output}"
    );
    assert!(output.ends_with(&format!("{}\n", guest.work().display())), "{output}");
}

#[tokio::test]
async fn state_survives_every_kind_of_exit() {
    let guest = TestGuest::start().await;
    let s = guest.session().await;
    let endings = [
        ("exit", "cd /tmp; export A=exit; exit 3", 3),
        ("errexit", "set -e; export A=errexit; false; export A=never", 1),
        ("nounset", "set -u; export A=nounset; echo $no_such_variable; export A=never", 127),
        ("exec", "export A=exec; exec bash -c 'exit 5'", 5),
        ("exec-fails", "export A=x; exec /no/such/file; export A=never", 127),
        ("noclobber", "set -C; set -f; IFS=x; export A=noclobber", 0),
        ("xtrace", "set -x; export A=xtrace", 0),
        ("posix", "set -o posix; export A=posix", 0),
        ("closed", "export A=closed; exec >&- 2>&- <&-", 0),
        ("function", "f() { export A=function; exit 4; }; f", 4),
        ("redirect", "export A=early; exec 2>&1; export A=redirect; echo x >&2", 0),
        (
            "alias",
            "shopt -s expand_aliases; alias declare=false printf=false export=false; builtin export A=alias",
            0,
        ),
    ];
    for (name, command, code) in endings {
        let ended = s.run(s.command(command)).await;
        assert_eq!(ended.code, code, "{name}: {}", output_text(&ended));
        let expected = if name == "exec-fails" { "x" } else { name };
        assert_eq!(s.out("unalias -a; echo $A").await, format!("{expected}\n"), "{name}");
    }
    assert_eq!(s.out("pwd; set -o | grep -c on$ >/dev/null").await, "/tmp\n");
    s.run(s.command("export A=lost; kill -9 $$")).await;
    assert_eq!(s.out("echo $A").await, "alias\n");
}

#[tokio::test]
async fn a_command_may_set_its_own_exit_trap() {
    let guest = TestGuest::start().await;
    let s = guest.session().await;
    assert_eq!(
        s.sh("trap 'echo bye $?; export T=trap' EXIT; export A=1; exit 3").await,
        (3, "bye 3\n".to_owned())
    );
    assert_eq!(s.out("echo $A $T; trap -p EXIT | grep -c bye || true").await, "1 trap\n0\n");
    assert_eq!(s.sh("trap 'exit 9' EXIT; export A=2; exit 3").await.0, 9);
    assert_eq!(s.out("trap 'echo no' EXIT; trap - EXIT; export A=$A-3").await, "");
    assert_eq!(
        s.out("(trap 'echo sub' EXIT; export A=no); echo $A; trap 'echo int' INT; type -t trap >/dev/null")
            .await,
        "sub\n2-3\n"
    );
    assert_eq!(s.out("declare -F").await, "", "our own function is not the session's");
}

#[tokio::test]
async fn any_value_is_restored_unchanged() {
    let guest = TestGuest::start().await;
    let s = guest.session().await;
    s.out(r#"export N=$'two\nlines\n' Q="it's \"quoted\" \$HOME \`x\` \\" B=$'\x01\x7f\xff\xfe\e' E= U='äöü €' S='declare -x FAKE="1"
declare -x FAKE2="2"'"#)
        .await;
    let expected = "two\nlines\n\0it's \"quoted\" $HOME `x` \\\0\x01\x7f";
    let ended =
        s.run(s.command(r#"printf '%s\0%s\0%s\0%s\0%s\0%s' "$N" "$Q" "$B" "$E" "$U" "${FAKE-none}""#)).await;
    let output = [ended.head.as_slice(), ended.tail.as_slice()].concat();
    assert!(output.starts_with(expected.as_bytes()), "{}", String::from_utf8_lossy(&output));
    assert!(output.ends_with("\u{1b}\0\0äöü €\0none".as_bytes()), "{output:?}");
    assert!(output.windows(2).any(|pair| pair == [0xff, 0xfe]));
    s.out(
        "mkdir $'new\\nline'; cd $'new\\nline'; f() { cat <<'X'\n}\nfake () \nX\n}; alias q=\"echo 'a b'\"",
    )
    .await;
    assert_eq!(
        s.out("f; q; basename \"$PWD\"; declare -F").await,
        "}\nfake () \na b\nnew\nline\ndeclare -f f\n"
    );
}

#[tokio::test]
async fn parallel_commands_never_mix_their_states() {
    let guest = TestGuest::start().await;
    let s = guest.session().await;
    for round in 0..6 {
        let calls = (0..50).map(|i| {
            let (client, key) = (s.client.clone(), s.key.clone());
            let shell = TestShell { client, key };
            let command = format!(
                "export P{i}={round} PAIR_A={round}.{i} PAIR_B={round}.{i}; mkdir -p d{round}.{i}; cd d{round}.{i} 2>/dev/null; \
                 f{i}() {{ echo {round}; }}"
            );
            tokio::spawn(async move { shell.run(shell.command(command)).await })
        });
        for call in calls.collect::<Vec<_>>() {
            let ended = call.await.unwrap();
            assert_eq!(ended.code, 0);
        }
        let output = s
            .out("echo $PAIR_A $PAIR_B ${PWD##*/d}; env | grep -c '^P[0-9]*='; declare -F | wc -l; cd ..")
            .await;
        let lines: Vec<&str> = output.lines().collect();
        let pair: Vec<&str> = lines[0].split(' ').collect();
        assert!(
            pair[0] == pair[1] && pair[1] == pair[2] && pair[0].starts_with(&format!("{round}.")),
            "{output}"
        );
        assert_eq!(&lines[1..], ["50", "50"], "{output}");
        let values = s.out("env | grep '^P[0-9]*=' | cut -d= -f2 | sort -u; f7").await;
        assert_eq!(values, format!("{round}\n{round}\n"));
    }
}

#[tokio::test]
async fn a_directory_or_variable_for_one_call_does_not_persist() {
    let guest = TestGuest::start().await;
    let s = guest.session().await;
    let run = RunRequest {
        workdir: hermes_guest::protocol::message::WorkingDir::Other(ByteBuf::from("/")),
        env: vec![(ByteBuf::from("ONCE"), ByteBuf::from("1")), (ByteBuf::from("LANG"), ByteBuf::from("C"))],
        ..s.command("pwd; echo $ONCE $LANG; cd /tmp; export EXPORTED=1")
    };
    let ended = s.run(run).await;
    assert_eq!(output_text(&ended), "/\n1 C\n");
    assert_eq!(ended.cwd.as_slice(), guest.work().to_str().unwrap().as_bytes());
    let work_dir = guest.work().display().to_string();
    assert_eq!(
        s.out("pwd; echo ${ONCE-none} $LANG $EXPORTED").await,
        format!("{work_dir}\nnone C.UTF-8 1\n")
    );
    let internal = RunMode::Foreground { output: OutputDelivery::Summary, state: StatePolicy::Discard };
    s.run(RunRequest { mode: internal, ..s.command("cd /; export EXPORTED=2; f() { :; }") }).await;
    assert_eq!(s.out("pwd; echo $EXPORTED; declare -F").await, format!("{work_dir}\n1\n"));
}

#[tokio::test]
async fn a_missing_directory_is_126_and_nothing_runs() {
    let guest = TestGuest::start().await;
    let s = guest.session().await;
    let run = RunRequest {
        workdir: hermes_guest::protocol::message::WorkingDir::Other(ByteBuf::from("nowhere")),
        ..s.command("touch ran")
    };
    let ended = s.run(run).await;
    assert_eq!((ended.code, ended.cause), (126, ExitCause::NoWorkingDir));
    assert!(output_text(&ended).contains("nowhere: No such file"), "{}", output_text(&ended));
    s.out("mkdir gone; cd gone; rmdir ../gone").await;
    assert_eq!(s.sh("touch ran").await.0, 126);
    assert_eq!(
        s.out("ls; pwd").await,
        format!("{}\n", guest.work().display()),
        "the next command finds a place"
    );
}

#[tokio::test]
async fn the_environment_is_what_the_client_sent() {
    let guest = TestGuest::start().await;
    let s = guest.session().await;
    assert_eq!(s.out("env | cut -d= -f1 | sort | tr '\\n' ' '").await, "HOME LANG PATH PWD SHLVL _ ");
    assert_eq!(s.out("ls /proc/self/fd | tr '\\n' ' '; echo; tr '\\0' '\\n' </proc/$PPID/environ | grep -c hunter || true").await, "0 1 2 3 \n0\n");
    let strange = RunRequest {
        env: vec![(ByteBuf::from("A.B"), ByteBuf::from("x"))],
        ..s.command("env | grep '^A.B='")
    };
    assert_eq!(output_text(&s.run(strange).await), "A.B=x\n");
}

#[tokio::test]
async fn long_commands_and_inputs_are_delivered_completely() {
    let guest = TestGuest::start().await;
    let s = guest.session().await;
    let text = "x".repeat(1024 * 1024);
    assert_eq!(s.out(format!("v='{text}'; echo ${{#v}}")).await, "1048576\n");
    let data: Vec<u8> = (0..100 * 1024).map(|i: u32| u8::try_from(i % 251).unwrap()).collect();
    let sum =
        RunRequest { stdin: Stdin::Data(ByteBuf::from(data.clone())), ..s.command("cat > in; wc -c < in") };
    assert_eq!(output_text(&s.run(sum).await), "102400\n");
    assert_eq!(std::fs::read(guest.work().join("in")).unwrap(), data);
    let nul = s.client.run(s.command("echo \0")).await.unwrap_err();
    assert!(matches!(nul, Error::Rejected(Rejection::Malformed)), "{nul:?}");
}

#[tokio::test]
async fn a_session_may_have_any_key_and_is_found_again() {
    let guest = TestGuest::start().await;
    let names: [&[u8]; 4] = [b"", b"../../etc/passwd", b"a\0b\n\xff", "наша сессия 🦀".as_bytes()];
    for (number, name) in names.iter().enumerate() {
        guest.named_session(name).await.out(format!("export N={number}")).await;
    }
    for (number, name) in names.iter().enumerate() {
        let s = guest.named_session(name).await;
        assert_eq!(s.out("echo $N").await, format!("{number}\n"));
        assert_eq!(s.client.show_session(&s.key, "").await.unwrap().origin, SessionOrigin::Found);
    }
    let client = guest.client().await;
    let absent = client.show_session(&ShellSessionKey::from("never"), "").await.unwrap_err();
    assert!(matches!(absent, Error::Rejected(Rejection::NoSession)), "{absent:?}");
    let unopened = TestShell { client, key: ShellSessionKey::from("never") };
    let rejected = unopened.client.run(unopened.command("true")).await.unwrap_err();
    assert!(matches!(rejected, Error::Rejected(Rejection::NoSession)), "{rejected:?}");
}

#[tokio::test]
async fn a_session_reports_what_changes_the_meaning_of_commands() {
    let guest = TestGuest::start().await;
    let s = guest.session().await;
    let view = async |known: &str| s.client.show_session(&s.key, known).await.unwrap().shell;
    // A new session has an empty digest, so there is nothing to report.
    assert_eq!(view("").await, None);
    s.out("alias ls=rm; export CDPATH=/srv HOME=/var OTHER=1; greet() { echo hi; }; BASH_ALIASES[cat]=rm")
        .await;
    let context = view("").await.unwrap();
    let pair = |name: &str, text: &str| (name.to_owned(), text.to_owned());
    assert_eq!(context.aliases, [pair("cat", "rm"), pair("ls", "rm")].into());
    assert_eq!(context.functions, [pair("greet", "greet () \n{ \n    echo hi\n}\n")].into());
    assert_eq!(context.variables, [pair("CDPATH", "/srv"), pair("HOME", "/var")].into());
    assert_eq!(view(&context.digest).await, None);
    s.out("true").await;
    assert_eq!(view(&context.digest).await, None);
    s.out("unalias -a; unset -f greet; unset CDPATH; export HOME=/").await;
    s.out("unset HOME").await;
    assert_ne!(view(&context.digest).await.unwrap().digest, "");
}

#[tokio::test]
async fn a_command_judged_by_another_shell_state_does_not_run() {
    let guest = TestGuest::start().await;
    let s = guest.session().await;
    let judged =
        |text: &str, digest: &str| RunRequest { judged_shell: Some(digest.to_owned()), ..s.command(text) };
    s.run(judged("alias ls=rm", "")).await;
    for text in ["touch ran", "ls -rf ~"] {
        let refused = s.client.run(judged(text, "")).await.unwrap_err();
        assert!(matches!(refused, Error::Rejected(Rejection::SessionMoved)), "{refused:?}");
    }
    let context = s.client.show_session(&s.key, "").await.unwrap().shell.unwrap();
    s.run(judged("unalias ls", &context.digest)).await;
    assert_eq!(output_text(&s.run(judged("ls", "")).await), "");
}

#[tokio::test]
async fn names_that_the_session_needs_cannot_be_taken() {
    let guest = TestGuest::start().await;
    let s = guest.session().await;
    for taken in [
        "builtin() { echo hidden; }",
        "builtin() { command builtin \"$@\"; }",
        "alias builtin=true",
        "alias() { :; }; eval() { :; }; command() { :; }",
        "alias alias=true for=true case=true",
        "declare() { :; }; trap() { :; }; shopt() { :; }",
        "alias -- {=x }=x if=x",
    ] {
        s.sh(taken).await;
        s.out("cd /; export AFTER=1; alias after=true").await;
        assert_eq!(
            s.out("pwd; echo $AFTER; type -t after; unalias after; unset AFTER").await,
            "/\n1\nalias\n",
            "{taken}"
        );
        assert_eq!(
            s.out("cd /tmp; for i in 1; do case $i in 1) eval echo ok;; esac; done").await,
            "ok\n",
            "{taken}"
        );
        assert_eq!(s.out("pwd; type -t builtin alias").await, "/tmp\nbuiltin\nbuiltin\n", "{taken}");
    }
}
