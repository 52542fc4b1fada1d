//! Deadlines, interrupts, process trees, background processes, terminals.

use std::time::{Duration, Instant};

use hermes_guest::client::{Error, RunEvent};
use hermes_guest::protocol::limit;
use hermes_guest::protocol::message::{
    ExitCause, ExitNotice, OutputDelivery, ProcessEvent, ProcessId, Rejection, RunMode, RunRequest,
    StatePolicy, Stdin, TerminalSize, TreeStatus,
};
use serde_bytes::ByteBuf;

use crate::fixture::{TIMEOUT, TestGuest, eventually, is_alive, output_text, wait_for_exit};

const LIVE: RunMode = RunMode::Foreground { output: OutputDelivery::Live, state: StatePolicy::Apply };

#[tokio::test]
async fn a_deadline_is_124_kills_the_whole_tree_and_keeps_the_output() {
    let guest = TestGuest::start().await;
    let s = guest.session().await;
    // A unique number: other programs on this machine sleep too.
    let long = 1_000_000 + guest.pid;
    for _ in 0..10 {
        let command = format!(
            "echo begun; sleep {long} & setsid sleep {long} & \
             (setsid bash -c 'sleep {long} & echo $! >daemon; exec sleep {long}' >/dev/null 2>&1 &) ; \
             until [ -s daemon ]; do :; done; echo $! $(cat daemon); trap '' TERM INT HUP; sleep {long}"
        );
        let ended = s.run(s.killed_after(&command, Duration::from_millis(400))).await;
        assert_eq!((ended.code, ended.cause, ended.tree), (124, ExitCause::Deadline, TreeStatus::Gone));
        let output = output_text(&ended);
        assert!(output.starts_with("begun\n"), "{output}");
        for pid in output.split_whitespace().skip(1) {
            assert!(!is_alive(pid), "{pid} lives");
        }
        assert_eq!(s.out(format!("rm daemon; pgrep -f 'sleep {long}' || echo none")).await, "none\n");
    }
    assert_eq!(s.client.stats().await.unwrap().running, 0);
}

#[tokio::test]
async fn two_hundred_processes_are_dead_when_the_deadline_is_reported() {
    let guest = TestGuest::start().await;
    let s = guest.session().await;
    // Half of them are siblings, half of them a chain.
    let long = 1_000_000 + guest.pid;
    let command = format!(
        "for i in $(seq 100); do sleep {long} & done; \
         deep() {{ if [ $1 -gt 0 ]; then bash -c \"$(declare -f deep); deep $(($1 - 1)); :\"; \
         else echo ready; sleep {long}; fi; }}; deep 99; :"
    );
    let command = command.as_str();
    let deadline = Duration::from_secs(6);
    let mut running =
        s.client.run(RunRequest { mode: LIVE, ..s.killed_after(command, deadline) }).await.unwrap();
    let event = running.next_event().await.unwrap();
    assert!(matches!(&event, RunEvent::Output(page) if page.data.as_slice() == b"ready\n"), "{event:?}");
    assert_eq!(s.out(format!("pgrep -fc 'sleep {long}'")).await, "200\n");
    let ended = wait_for_exit(&mut running).await.unwrap();
    assert_eq!((ended.code, ended.tree), (124, TreeStatus::Gone));
    assert_eq!(s.out(format!("pgrep -fc 'sleep {long}' || true")).await, "0\n");
}

#[tokio::test]
async fn a_program_that_forks_and_exits_endlessly_is_killed() {
    let guest = TestGuest::start().await;
    let s = guest.session().await;
    for _ in 0..5 {
        let command = "hop() { (hop) & }; hop; echo hopping; sleep 500";
        let ended = s.run(s.killed_after(command, Duration::from_millis(200))).await;
        assert_eq!(
            (ended.code, ended.tree, output_text(&ended).as_str()),
            (124, TreeStatus::Gone, "hopping\n")
        );
    }
}

#[tokio::test]
async fn an_interrupt_is_130_and_the_session_still_works() {
    let guest = TestGuest::start().await;
    let s = guest.session().await;
    for stubborn in ["", "trap '' INT; "] {
        let command = format!("cd /tmp; {stubborn}echo begun; sleep 1100; sleep 1100");
        let mut running = s.client.run(RunRequest { mode: LIVE, ..s.command(command) }).await.unwrap();
        assert!(matches!(running.next_event().await.unwrap(), RunEvent::Output(_)));
        running.interrupt().await.unwrap();
        let ended = wait_for_exit(&mut running).await.unwrap();
        assert_eq!((ended.code, ended.cause, ended.tree), (130, ExitCause::Interrupted, TreeStatus::Gone));
        assert_eq!(s.out("echo fine").await, "fine\n");
    }
}

#[tokio::test]
async fn background_children_do_not_block_the_command() {
    let guest = TestGuest::start().await;
    let s = guest.session().await;
    for command in [
        "sleep 500 & echo $!",
        "nohup sleep 500 >/dev/null 2>&1 & echo $!",
        "setsid sleep 500 & disown; echo $!",
        "(sleep 500 & echo $!)",
        "yes | head -c 1000000 >/dev/null; sleep 500 & echo $!",
    ] {
        let began = Instant::now();
        let ended = s.run(s.command(command)).await;
        assert!(began.elapsed() < Duration::from_secs(30), "{command}: {:?}", began.elapsed());
        assert_eq!((ended.code, ended.tree), (0, TreeStatus::Alive), "{command}");
        let pid = output_text(&ended);
        assert!(is_alive(&pid), "{command}");
        let listed = s.client.processes().await.unwrap();
        assert_eq!(
            listed.iter().map(|view| (view.process, view.tree)).collect::<Vec<_>>(),
            [(ended.process, TreeStatus::Alive)]
        );
        let killed = s.client.kill(ended.process).await.unwrap();
        assert_eq!((killed.tree, killed.exit.unwrap().code), (TreeStatus::Gone, 0), "{command}");
        assert!(!is_alive(&pid), "{command}");
        assert!(s.client.processes().await.unwrap().is_empty());
    }
}

#[tokio::test]
async fn background_output_does_not_block_the_command() {
    let guest = TestGuest::start().await;
    let s = guest.session().await;
    let began = Instant::now();
    let ended = s.run(s.command("yes & echo first")).await;
    assert!(began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
    assert!(output_text(&ended).contains("first"));
    s.client.kill(ended.process).await.unwrap();
}

#[tokio::test]
async fn killing_the_shim_kills_the_tree() {
    let guest = TestGuest::start().await;
    let s = guest.session().await;
    let ended = s.run(s.command("setsid sleep 700 & echo $!; kill -9 $PPID; sleep 700")).await;
    assert_eq!((ended.code, ended.tree), (137, TreeStatus::Gone));
    let pid = output_text(&ended);
    assert!(!is_alive(&pid), "{pid} lives");
    assert_eq!(s.out("echo fine").await, "fine\n");
}

#[tokio::test]
async fn background_output_is_available_immediately_and_can_be_paged() {
    let guest = TestGuest::start().await;
    let s = guest.session().await;
    s.out("export STATE=seen; cd /tmp").await;
    let id = s.start(s.in_background("echo $STATE in $PWD; read x; echo got $x")).await;
    assert!(s.wait_for_output(id, "\n").await.starts_with("seen in /tmp\n"));
    let without_input = s.client.write_stdin(id, None, b"x").await.unwrap_err();
    assert!(matches!(without_input, Error::Rejected(Rejection::NoStdin)), "{without_input:?}");
    let id = s.start(RunRequest { stdin: Stdin::Stream, ..s.in_background("cat; echo end") }).await;
    s.client.write_stdin(id, None, b"one\n").await.unwrap();
    assert_eq!(s.wait_for_output(id, "\n").await, "one\n");
    s.client.write_stdin(id, None, b"two\n").await.unwrap();
    s.client.close_stdin(id).await.unwrap();
    let view = s.client.wait(id, TIMEOUT).await.unwrap();
    assert_eq!(
        (view.exit.unwrap().code, view.label.as_slice(), view.output_bytes),
        (0, b"test".as_slice(), 12)
    );
    let page = s.client.read_output(id, 4, 5).await.unwrap();
    assert_eq!((page.offset, page.data.as_slice(), page.total), (4, b"two\ne".as_slice(), 12));
}

#[tokio::test]
async fn notices_report_matches_and_the_exit_to_later_clients_too() {
    let guest = TestGuest::start().await;
    let s = guest.session().await;
    let watch_patterns = vec![ByteBuf::from("listening on"), ByteBuf::from("panic")];
    let mode = RunMode::Background { label: ByteBuf::new(), watch_patterns, exit_notice: ExitNotice::Notify };
    let command = "echo starting; printf 'listen'; printf 'ing on 80\\n'; read x; exit 5";
    let id = s.start(RunRequest { mode, stdin: Stdin::Stream, ..s.command(command) }).await;
    let mut notices = s.client.follow_notices(0).await.unwrap();
    let first = tokio::time::timeout(TIMEOUT, notices.next_notice()).await.unwrap().unwrap();
    assert_eq!((first.number, first.process), (0, id));
    assert_eq!(
        first.event,
        ProcessEvent::LineMatched { line: ByteBuf::from("listening on 80"), unreported: 0 }
    );
    s.client.close_stdin(id).await.unwrap();
    let second = tokio::time::timeout(TIMEOUT, notices.next_notice()).await.unwrap().unwrap();
    let ProcessEvent::Exited(ended) = &second.event else { panic!("{second:?}") };
    assert_eq!((ended.code, ended.tail.as_slice()), (5, b"starting\nlistening on 80\n".as_slice()));
    let mut again = guest.client().await.follow_notices(1).await.unwrap();
    assert_eq!(again.next_notice().await.unwrap(), second);
}

#[tokio::test]
async fn a_running_program_accepts_input() {
    let guest = TestGuest::start().await;
    let s = guest.session().await;
    let run =
        RunRequest { mode: LIVE, stdin: Stdin::Stream, ..s.command("head -c 300000; echo end; exit 4") };
    let mut running = s.client.run(run).await.unwrap();
    let data = vec![b'z'; 300_000];
    running.write_stdin(&data).await.unwrap();
    let mut output = Vec::new();
    let code = loop {
        match running.next_event().await.unwrap() {
            RunEvent::Output(page) => {
                assert_eq!(page.offset, output.len() as u64);
                output.extend_from_slice(&page.data);
            }
            RunEvent::Exited(ended) => break ended.code,
        }
    };
    assert_eq!((code, output.len()), (4, 300_000 + 4));
}

#[tokio::test]
async fn a_terminal_has_a_size_and_can_be_resized() {
    let guest = TestGuest::start().await;
    let s = guest.session().await;
    let run = RunRequest {
        mode: LIVE,
        stdin: Stdin::Stream,
        terminal: Some(TerminalSize { rows: 30, columns: 120 }),
        ..s.command("export T=1; trap 'stty size; exit 3' WINCH; tty >/dev/null && stty size; while :; do read -t 0.05 x; done")
    };
    let mut running = s.client.run(run).await.unwrap();
    let mut output = String::new();
    let code = loop {
        match running.next_event().await.unwrap() {
            RunEvent::Output(page) => {
                output.push_str(&String::from_utf8_lossy(&page.data));
                if output == "30 120\r\n" {
                    running.resize(TerminalSize { rows: 50, columns: 80 }).await.unwrap();
                }
            }
            RunEvent::Exited(ended) => break ended.code,
        }
    };
    assert_eq!((code, output.as_str()), (3, "30 120\r\n50 80\r\n"));
    assert_eq!(s.out("echo $T").await, "1\n", "a terminal makes no difference to the state");
    let id = s
        .start(RunRequest {
            terminal: Some(TerminalSize { rows: 1, columns: 1 }),
            stdin: Stdin::Stream,
            ..s.in_background("cat")
        })
        .await;
    s.client.write_stdin(id, None, b"typed\n").await.unwrap();
    assert_eq!(s.wait_for_output(id, "typed\r\ntyped\r\n").await, "typed\r\ntyped\r\n");
    s.client.close_stdin(id).await.unwrap();
    assert_eq!(s.client.wait(id, TIMEOUT).await.unwrap().exit.unwrap().code, 0);
}

#[tokio::test]
async fn a_stale_process_id_affects_nothing() {
    let guest = TestGuest::start().await;
    let s = guest.session().await;
    let id = s.start(s.in_background("sleep 300")).await;
    let stale = ProcessId { started: id.started + 1, ..id };
    assert!(matches!(s.client.kill(stale).await.unwrap_err(), Error::Rejected(Rejection::NoProcess)));
    assert!(is_alive(&id.pid.to_string()));
    let killed = s.client.kill(id).await.unwrap();
    assert_eq!(killed.exit.map(|ended| (ended.code, ended.cause)), Some((137, ExitCause::Killed)));
}

#[tokio::test]
async fn a_background_process_has_a_deadline() {
    let guest = TestGuest::start().await;
    let s = guest.session().await;
    let deadline = Some(Duration::from_millis(50));
    let id =
        s.start(RunRequest { deadline, ..s.in_background("echo begun; setsid sleep 600 & sleep 600") }).await;
    let view = s.client.wait(id, TIMEOUT).await.unwrap();
    assert_eq!(view.exit.map(|ended| (ended.code, ended.cause)), Some((124, ExitCause::Deadline)));
    assert_eq!(s.client.kill(id).await.unwrap().tree, TreeStatus::Gone);
}

#[tokio::test]
async fn terminal_input_is_written_as_fast_as_the_program_reads() {
    let guest = TestGuest::start().await;
    let s = guest.session().await;
    let lines: String = (0..2000).map(|number| format!("line {number}\n")).collect();
    let run = RunRequest {
        stdin: Stdin::Data(ByteBuf::from(lines)),
        terminal: Some(TerminalSize { rows: 30, columns: 120 }),
        ..s.command("stty -echo; count=0; while read -r x; do count=$((count + 1)); done; echo $count")
    };
    let ended = s.run(run).await;
    assert!(output_text(&ended).ends_with("2000\r\n"), "{}", output_text(&ended));
}

#[tokio::test]
async fn records_are_bounded_and_the_oldest_are_deleted_first() {
    let guest = TestGuest::start().await;
    let s = guest.session().await;
    let mut started = Vec::new();
    for number in 0..limit::MAX_FINISHED + 6 {
        let id = s.start(s.in_background(&format!("echo {number}"))).await;
        s.client.wait(id, TIMEOUT).await.unwrap();
        started.push(id);
    }
    eventually("nothing runs", async || s.client.stats().await.unwrap().running == 0).await;
    let mut listed: Vec<_> = s.client.processes().await.unwrap().iter().map(|view| view.process).collect();
    started.drain(..6);
    listed.sort();
    started.sort();
    assert_eq!(listed, started);
    let stats = s.client.stats().await.unwrap();
    assert_eq!((stats.clients, stats.sessions, stats.running), (1, 1, 0));
    assert!(stats.memory > 0);
}

#[tokio::test]
async fn running_processes_are_limited_and_the_latest_exits_are_kept() {
    let guest = TestGuest::start().await;
    let s = guest.session().await;
    let first = s.start(RunRequest { stdin: Stdin::Stream, ..s.in_background("cat") }).await;
    let mut others = Vec::new();
    for _ in 1..limit::MAX_RUNNING {
        others.push(s.start(s.in_background("exec sleep 1300")).await);
    }
    let refused = s.client.run(s.in_background("true")).await;
    assert!(matches!(refused, Err(Error::Rejected(Rejection::TooManyProcesses))), "{refused:?}");
    for other in others {
        s.client.kill(other).await.unwrap();
    }
    // This process started first and exits last.
    s.client.close_stdin(first).await.unwrap();
    assert!(s.client.wait(first, TIMEOUT).await.unwrap().exit.is_some());
    let stored: Vec<_> = s.client.processes().await.unwrap().iter().map(|view| view.process).collect();
    assert!(stored.contains(&first) && stored.len() <= limit::MAX_FINISHED + 1, "{}", stored.len());
}

#[tokio::test]
async fn input_is_judged_with_the_program_and_what_was_typed_before() {
    let guest = TestGuest::start().await;
    let s = guest.session().await;
    let id = s.start(RunRequest { stdin: Stdin::Stream, ..s.in_background("cat") }).await;
    s.client.write_stdin(id, Some(""), b"rm -rf ").await.unwrap();
    let history = s.client.input_history(id).await.unwrap();
    assert_eq!(history.command.as_slice(), b"cat");
    assert_eq!(history.typed.as_ref().unwrap().as_slice(), b"rm -rf ");
    let refused = s.client.write_stdin(id, Some(""), b"~\n").await.unwrap_err();
    assert!(matches!(refused, Error::Rejected(Rejection::SessionMoved)), "{refused:?}");
    s.client.write_stdin(id, Some("rm -rf "), b"x\n").await.unwrap();
    assert_eq!(s.wait_for_output(id, "x").await, "rm -rf x\n");
    s.client.write_stdin(id, None, &vec![b'x'; limit::MAX_INPUT_HISTORY_BYTES]).await.unwrap();
    assert_eq!(s.client.input_history(id).await.unwrap().typed, None);
    let refused = s.client.write_stdin(id, Some("rm -rf x\n"), b"x").await.unwrap_err();
    assert!(matches!(refused, Error::Rejected(Rejection::SessionMoved)), "{refused:?}");
}
