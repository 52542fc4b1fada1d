//! Deadlines, interrupts, trees of processes, background processes, terminals.

use std::sync::Arc;
use std::time::{Duration, Instant};

use hermes_exec::{
    CommandEvent, EndReason, Error, ExitNotice, OutputMode, ProcessId, RunOptions, ScriptDirectory,
    ScriptOptions, Stdin, TerminalEvent, TerminalSize, TreeStatus,
};
use hermes_guest::client::Error as GuestError;
use hermes_guest::protocol::message::{ExitCause, ProcessEvent, ProcessNotice, Rejection};
use hermes_types::{TypedInput, Work};

use crate::fixture::{Fixture, permit_for, run_options};
use crate::session::{Session, WAIT_TIMEOUT, permit, quiet, text};

pub(crate) async fn a_deadline_is_124_and_keeps_the_output(fixture: &Fixture) {
    let s = fixture.open("s").await;
    s.out("export A=before").await;
    for attention in [OutputMode::AtEnd, OutputMode::Live] {
        let soon = RunOptions { timeout: Some(Duration::from_millis(500)), ..run_options(attention.clone()) };
        let mut command = s.start("echo before; export A=after; sleep 1000", soon).await;
        let mut said = Vec::new();
        let outcome = loop {
            match command.next_event().await.unwrap() {
                CommandEvent::Output(bytes) => said.extend(bytes),
                CommandEvent::End(outcome) => break outcome,
            }
        };
        said.extend(&outcome.output);
        assert_eq!((outcome.code, outcome.end_reason, outcome.leftover), (124, EndReason::TimedOut, None));
        assert_eq!((said.as_slice(), outcome.total_bytes), (b"before\n".as_slice(), 7), "{attention:?}");
    }
    assert_eq!(s.out("echo $A").await, "before\n");
}

pub(crate) async fn an_interrupt_is_130_and_keeps_the_output(fixture: &Fixture) {
    let s = fixture.open("s").await;
    for stubborn in ["", "trap '' INT TERM; "] {
        let command = format!("{stubborn}setsid sleep 1000 & echo $!; sleep 1000; sleep 1000");
        let mut command = s.start(&command, run_options(OutputMode::Live)).await;
        let CommandEvent::Output(said) = command.next_event().await.unwrap() else { panic!("it ended") };
        command.interrupt().await.unwrap();
        let outcome = command.wait().await.unwrap();
        assert_eq!((outcome.code, outcome.end_reason, outcome.leftover), (130, EndReason::Interrupted, None));
        assert_eq!(s.alive(&String::from_utf8(said).unwrap()).await, "");
    }
}

pub(crate) async fn a_deadline_kills_the_whole_process_tree(fixture: &Fixture) {
    let s = Arc::new(fixture.open("s").await);
    // Grandchildren, processes in other sessions, and daemons that closed everything they
    // inherited.
    let command = "trap '' TERM INT HUP; sleep 1000 & echo $!; \
        (sleep 1000 & echo $!; sleep 1000) & echo $!; \
        setsid sleep 1000 & echo $!; \
        nohup sleep 1000 >/dev/null 2>&1 & echo $!; \
        (setsid bash -c 'echo $$; cd /; (exec 0<&- 1>&- 2>&-; sleep 1000) & echo $!' &); \
        (exec 3>&1; setsid bash -c '(echo $BASHPID >&3; exec 0<&- 1>&- 2>&- 3>&-; exec sleep 1000) &' &); \
        sleep 1000";
    let rounds = |_| {
        let s = s.clone();
        tokio::spawn(async move {
            for _ in 0..5 {
                let soon = RunOptions {
                    timeout: Some(Duration::from_millis(400)),
                    ..run_options(OutputMode::AtEnd)
                };
                let outcome = s.end(command, soon).await;
                assert_eq!((outcome.code, outcome.leftover), (124, None));
                assert!(outcome.total_bytes > 0);
                assert_eq!(s.alive(&text(&outcome)).await, "");
            }
        })
    };
    for round in (0..10).map(rounds).collect::<Vec<_>>() {
        round.await.unwrap();
    }
    assert!(s.processes().await.list().await.unwrap().is_empty());
}

pub(crate) async fn a_leftover_process_does_not_delay_the_command(fixture: &Fixture) {
    let s = fixture.open("s").await;
    let processes = s.processes().await;
    for command in [
        "sleep 1000 & echo $!",
        "nohup sleep 1000 >/dev/null 2>&1 & echo $!",
        "setsid sleep 1000 & disown; echo $!",
        "setsid sleep 1000 </dev/null >/dev/null 2>&1 & disown; echo $!",
        "(sleep 1000 & echo $!)",
        "{ sleep 0.2; exec yes; } & echo $!",
    ] {
        let mut fastest = Duration::MAX;
        for _ in 0..3 {
            let began = Instant::now();
            let outcome = s.run(command).await;
            fastest = fastest.min(began.elapsed());
            let id = outcome.leftover.unwrap();
            assert_eq!(outcome.code, 0, "{command}");
            let listed: Vec<_> =
                processes.list().await.unwrap().iter().map(|view| (view.process, view.tree)).collect();
            assert_eq!(listed, [(id, TreeStatus::Alive)], "{command}");
            let said = text(&outcome);
            let pid = said.lines().find(|line| *line != "y").unwrap().to_owned();
            assert_eq!(s.alive(&pid).await, format!("{pid}\n"), "{command}");
            assert_eq!(processes.kill(id).await.unwrap().tree, TreeStatus::Gone, "{command}");
            assert_eq!(s.alive(&pid).await, "", "{command}");
        }
        assert!(fastest < Duration::from_secs(2), "{command}: {fastest:?}");
    }
    assert_eq!(processes.list().await.unwrap(), []);
}

pub(crate) async fn a_kill_returns_when_the_whole_tree_is_gone(fixture: &Fixture) {
    let s = fixture.open("s").await;
    let processes = s.processes().await;
    let id = s
        .background("trap '' TERM HUP; bash -c 'trap \"\" TERM; echo $$; sleep 1000; :' & setsid sleep 1000 & echo $!; wait")
        .await;
    let pids = output_of(&s, id, 2).await;
    assert_eq!(s.alive(&pids).await.lines().count(), 2);
    let killed = processes.kill(id).await.unwrap();
    assert_eq!(s.alive(&pids).await, "");
    let ended = killed.exit.map(|ended| (ended.code, ended.cause));
    assert_eq!((ended, killed.tree), (Some((137, ExitCause::Killed)), TreeStatus::Gone));
}

pub(crate) async fn a_reused_pid_is_not_killed(fixture: &Fixture) {
    let s = fixture.open("s").await;
    let processes = s.processes().await;
    let id = s.background("sleep 1000").await;
    for stale in [ProcessId { started: id.started + 1, ..id }, ProcessId { pid: 1, ..id }] {
        let refused = processes.kill(stale).await;
        assert!(
            matches!(refused, Err(Error::Guest(GuestError::Rejected(Rejection::NoProcess)))),
            "{refused:?}"
        );
    }
    assert_eq!(processes.show(id).await.unwrap().tree, TreeStatus::Alive);
    processes.kill(id).await.unwrap();
}

pub(crate) async fn background_output_is_available_immediately(fixture: &Fixture) {
    let s = fixture.open("s").await;
    s.out("export STATE=seen").await;
    let id = s.background("echo $STATE; sleep 1000").await;
    assert_eq!(output_of(&s, id, 1).await, "seen\n");
    let processes = s.processes().await;
    let page = processes.output(id, 2, 2).await.unwrap();
    assert_eq!((page.offset, page.data.as_slice(), page.total), (2, b"en".as_slice(), 5));
    processes.kill(id).await.unwrap();
}

pub(crate) async fn notices_report_matches_and_every_end(fixture: &Fixture) {
    let s = fixture.open("s").await;
    let watched = |watch: &[&str]| OutputMode::Background {
        label: "server".to_owned(),
        watch: watch.iter().map(|&pattern| pattern.to_owned()).collect(),
        at_end: ExitNotice::Notify,
    };
    let later = RunOptions { stdin: Stdin::Stream, ..run_options(watched(&["listening on"])) };
    let server = s.background_as("echo starting; echo listening on 80; read x; exit 5", later).await;
    let processes = s.processes().await;
    let mut notices = processes.notices(0).await.unwrap();
    let mut next = async || -> ProcessNotice {
        tokio::time::timeout(WAIT_TIMEOUT, notices.next_notice()).await.unwrap().unwrap()
    };
    let first = next().await;
    let ProcessEvent::LineMatched { line, unreported: 0 } = &first.event else { panic!("{first:?}") };
    assert_eq!((first.process, line.as_slice()), (server, b"listening on 80".as_slice()));
    processes.close_input(server).await.unwrap();
    let second = next().await;
    let ProcessEvent::Exited(ended) = &second.event else { panic!("{second:?}") };
    assert_eq!((second.process, ended.code), (server, 5));
    assert_eq!(ended.tail.as_slice(), b"starting\nlistening on 80\n");
    // This process ends before its notices can be requested.
    let short = s.background_as("exit 3", run_options(watched(&[]))).await;
    let third = next().await;
    let ProcessEvent::Exited(ended) = &third.event else { panic!("{third:?}") };
    assert_eq!((third.process, ended.code), (short, 3));
    // A later client gets the same list.
    let mut again = fixture.open("s").await.processes().await.notices(third.number).await.unwrap();
    assert_eq!(again.next_notice().await.unwrap(), third);
    let view = processes.show(server).await.unwrap();
    assert_eq!(view.label.as_slice(), b"server");
}

pub(crate) async fn input_needs_its_own_permit(fixture: &Fixture) {
    let s = fixture.open("s").await;
    let other = fixture.open("other").await;
    let processes = s.processes().await;
    let id =
        s.background_as("cat; echo end", RunOptions { stdin: Stdin::Stream, ..run_options(quiet()) }).await;
    let cwd = s.sandbox.cwd().await.unwrap();
    let typing = |work: Work| permit(&s.plan, &s.key, work, &cwd);
    let judged = async |id, text: &str| {
        permit_for(&s.plan, &s.key, processes.input_job(id, text.to_owned()).await.unwrap())
    };
    let (first, stale) = (judged(id, "one\n").await, judged(id, "never\n").await);
    processes.write(id, first).await.unwrap();
    let refused = processes.write(id, stale).await;
    assert!(matches!(refused, Err(Error::SessionMoved)), "{refused:?}");
    assert_eq!(output_of(&s, id, 1).await, "one\n");
    let refused = processes.write(id, typing(Work::Shell("two\n".to_owned()))).await;
    assert!(matches!(refused, Err(Error::NotInput)), "{refused:?}");
    let elsewhere =
        permit_for(&other.plan, &other.key, processes.input_job(id, "three\n".to_owned()).await.unwrap());
    let refused = processes.write(id, elsewhere).await;
    assert!(matches!(refused, Err(Error::Permit(_))), "{refused:?}");
    processes.close_input(id).await.unwrap();
    let view = processes.wait(id, WAIT_TIMEOUT).await.unwrap();
    assert_eq!((view.exit.unwrap().code, view.output_tail.as_slice()), (0, b"one\nend\n".as_slice()));
    let deaf = s.background("sleep 1000").await;
    let refused = processes.write(deaf, judged(deaf, "x").await).await;
    assert!(matches!(refused, Err(Error::Guest(GuestError::Rejected(Rejection::NoStdin)))), "{refused:?}");
    processes.kill(deaf).await.unwrap();
}

pub(crate) async fn a_permit_for_anything_else_runs_nothing(fixture: &Fixture) {
    let (s, other) = (fixture.open("s").await, fixture.open("other").await);
    let cwd = s.sandbox.cwd().await.unwrap();
    let touch = || Work::Shell(format!("touch {cwd}/ran"));
    let size = TerminalSize { rows: 24, columns: 80 };
    let wrong =
        || [permit(&other.plan, &other.key, touch(), &cwd), permit(&s.plan, &other.key, touch(), &cwd)];
    for (to_run, to_show) in wrong().into_iter().zip(wrong()) {
        let refused = s.sandbox.start_command(to_run, run_options(OutputMode::AtEnd)).await;
        assert!(matches!(refused, Err(Error::Permit(_))), "{refused:?}");
        let refused = s.sandbox.open_terminal(to_show, size, &[]).await;
        assert!(matches!(refused, Err(Error::Permit(_))), "{refused:?}");
    }
    for work in [Work::Python("print()".to_owned()), input("print()")] {
        let job = || permit(&s.plan, &s.key, work.clone(), &cwd);
        let refused = s.sandbox.start_command(job(), run_options(OutputMode::AtEnd)).await;
        assert!(matches!(refused, Err(Error::NotACommand)), "{refused:?}");
        let refused = s.sandbox.open_terminal(job(), size, &[]).await;
        assert!(matches!(refused, Err(Error::NotACommand)), "{refused:?}");
    }
    for (work, cwd, directory) in [
        (touch(), cwd.as_str(), ScriptDirectory::Session),
        (input("touch ran"), cwd.as_str(), ScriptDirectory::Session),
        (Work::Python("open('ran', 'w')".to_owned()), "/elsewhere", ScriptDirectory::Session),
        (Work::Python("open('ran', 'w')".to_owned()), cwd.as_str(), ScriptDirectory::Private),
    ] {
        let expected = if matches!(work, Work::Python(_)) { Error::SessionMoved } else { Error::NotPython };
        let refused =
            s.sandbox.start_python(permit(&s.plan, &s.key, work, cwd), script_options(directory)).await;
        assert_eq!(refused.unwrap_err().to_string(), expected.to_string());
    }
    assert_eq!(s.out("ls").await, "");
}

/// Text for a program that got none before.
fn input(text: &str) -> Work {
    Work::Input(TypedInput {
        program: "cat".to_owned(),
        typed_before: Some(String::new()),
        text: text.to_owned(),
    })
}

/// Default options for a script.
fn script_options(directory: ScriptDirectory) -> ScriptOptions {
    ScriptOptions {
        timeout: Duration::from_secs(60),
        keep_bytes: 50_000,
        keep_stderr_bytes: 10_000,
        env: Vec::new(),
        module_name: "module".to_owned(),
        module_text: String::new(),
        directory,
    }
}

pub(crate) async fn a_terminal_has_a_size_and_can_be_resized(fixture: &Fixture) {
    let s = fixture.open("s").await;
    let command = "trap 'stty size; exit 3' WINCH; stty size; while :; do read -t 0.05 x; done";
    let mut terminal = s
        .sandbox
        .open_terminal(s.permit(command).await, TerminalSize { rows: 30, columns: 120 }, &[])
        .await
        .unwrap();
    let mut shown = Vec::new();
    let code = loop {
        match terminal.next_event().await.unwrap() {
            TerminalEvent::Output(page) => shown.extend(page.data),
            TerminalEvent::Exited(report) => break report.code,
        }
        if shown == b"30 120\r\n" {
            terminal.resize(TerminalSize { rows: 50, columns: 80 }).await.unwrap();
        }
    };
    assert_eq!((code, String::from_utf8(shown).unwrap().as_str()), (3, "30 120\r\n50 80\r\n"));
    let mut terminal = s
        .sandbox
        .open_terminal(
            s.permit("cat; echo $TERM").await,
            TerminalSize { rows: 24, columns: 80 },
            &[("TERM".to_owned(), "dumb".to_owned())],
        )
        .await
        .unwrap();
    terminal.write_stdin(b"typed\n\x04").await.unwrap();
    let mut shown = Vec::new();
    while let TerminalEvent::Output(page) = terminal.next_event().await.unwrap() {
        shown.extend(page.data);
    }
    assert_eq!(String::from_utf8(shown).unwrap(), "typed\r\ntyped\r\ndumb\r\n");
}

pub(crate) async fn dropping_a_command_kills_only_that_command(fixture: &Fixture) {
    let s = fixture.open("s").await;
    let id = s.background("sleep 1000").await;
    let mut command =
        s.start("setsid sleep 1000 & echo $$ $!; sleep 1000", run_options(OutputMode::Live)).await;
    let CommandEvent::Output(said) = command.next_event().await.unwrap() else { panic!("it ended") };
    let pids = String::from_utf8(said).unwrap();
    drop(command);
    let dead = async { while !s.alive(&pids).await.is_empty() {} };
    tokio::time::timeout(WAIT_TIMEOUT, dead).await.unwrap();
    let processes = s.processes().await;
    assert_eq!(processes.show(id).await.unwrap().tree, TreeStatus::Alive);
    processes.kill(id).await.unwrap();
}

/// The output of a process as soon as it has so many lines.
pub(crate) async fn output_of(s: &Session, id: ProcessId, lines: usize) -> String {
    let processes = s.processes().await;
    let mut followed = processes.follow(id, 0).await.unwrap();
    let mut output = Vec::new();
    let read = async {
        while output.iter().filter(|byte| **byte == b'\n').count() < lines {
            let page = followed.next_page().await.unwrap().unwrap();
            assert_eq!(page.offset, output.len() as u64);
            output.extend_from_slice(&page.data);
        }
    };
    tokio::time::timeout(WAIT_TIMEOUT, read).await.unwrap();
    String::from_utf8(output).unwrap()
}
