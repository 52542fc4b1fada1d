//! Deadlines, interrupts, trees of processes, background processes, terminals.

use std::time::{Duration, Instant};

use hermes_guest::client::{Error, Event};
use hermes_guest::protocol::limit;
use hermes_guest::protocol::message::{
    AtDeadline, AtEnd, Cause, Deadline, Delivery, Fault, Happening, Mode, ProcessId, Run, Signal, Size,
    StateRule, Stdin, Tree,
};
use serde_bytes::ByteBuf;

use crate::place::{PATIENCE, Place, lives, text_of};

const LIVE: Mode = Mode::Foreground { output: Delivery::Live, state: StateRule::Keep };

#[tokio::test]
async fn a_deadline_is_124_kills_the_whole_tree_and_keeps_the_output() {
    let place = Place::start().await;
    let s = place.session().await;
    // A number of our own: other tests, and other people's, sleep on this machine too.
    let long = 1_000_000 + place.pid;
    for _ in 0..10 {
        let command = format!(
            "echo begun; sleep {long} & setsid sleep {long} & \
             (setsid bash -c 'sleep {long} & echo $! >daemon; exec sleep {long}' >/dev/null 2>&1 &) ; \
             until [ -s daemon ]; do :; done; echo $! $(cat daemon); trap '' TERM INT HUP; sleep {long}"
        );
        let ended = s.run(s.killed_after(&command, Duration::from_millis(400))).await;
        assert_eq!((ended.code, ended.cause, ended.tree), (124, Cause::Deadline, Tree::Gone));
        let output = text_of(&ended);
        assert!(output.starts_with("begun\n"), "{output}");
        for pid in output.split_whitespace().skip(1) {
            assert!(!lives(pid), "{pid} lives");
        }
        assert_eq!(s.out(format!("rm daemon; pgrep -f 'sleep {long}' || echo none")).await, "none\n");
    }
    assert_eq!(s.client.stats().await.unwrap().running, 0);
}

#[tokio::test]
async fn two_hundred_processes_are_dead_when_the_deadline_is_told() {
    let place = Place::start().await;
    let s = place.session().await;
    // Half of them side by side, half of them one below the other.
    let long = 1_000_000 + place.pid;
    let command = format!(
        "for i in $(seq 100); do sleep {long} & done; \
         deep() {{ if [ $1 -gt 0 ]; then bash -c \"$(declare -f deep); deep $(($1 - 1)); :\"; \
         else echo ready; sleep {long}; fi; }}; deep 99; :"
    );
    let command = command.as_str();
    let deadline = Duration::from_secs(6);
    let mut running = s.client.run(Run { mode: LIVE, ..s.killed_after(command, deadline) }).await.unwrap();
    let event = running.next().await.unwrap();
    assert!(matches!(&event, Event::Output(page) if page.data.as_slice() == b"ready\n"), "{event:?}");
    assert_eq!(s.out(format!("pgrep -fc 'sleep {long}'")).await, "200\n");
    let Event::Ended(ended) = running.end().await.unwrap() else { panic!("it did not end") };
    assert_eq!((ended.code, ended.tree), (124, Tree::Gone));
    assert_eq!(s.out(format!("pgrep -fc 'sleep {long}' || true")).await, "0\n");
}

#[tokio::test]
async fn a_program_that_forks_and_exits_without_end_is_killed_too() {
    let place = Place::start().await;
    let s = place.session().await;
    for _ in 0..5 {
        let command = "hop() { (hop) & }; hop; echo hopping; sleep 500";
        let ended = s.run(s.killed_after(command, Duration::from_millis(200))).await;
        assert_eq!((ended.code, ended.tree, text_of(&ended).as_str()), (124, Tree::Gone, "hopping\n"));
    }
}

#[tokio::test]
async fn an_interrupt_is_130_and_the_session_lives_on() {
    let place = Place::start().await;
    let s = place.session().await;
    for stubborn in ["", "trap '' INT; "] {
        let command = format!("cd /tmp; {stubborn}echo begun; sleep 1100; sleep 1100");
        let mut running = s.client.run(Run { mode: LIVE, ..s.command(command) }).await.unwrap();
        assert!(matches!(running.next().await.unwrap(), Event::Output(_)));
        running.interrupt().await.unwrap();
        let Event::Ended(ended) = running.end().await.unwrap() else { panic!("it did not end") };
        assert_eq!((ended.code, ended.cause, ended.tree), (130, Cause::Interrupted, Tree::Gone));
        assert_eq!(s.out("echo fine").await, "fine\n");
    }
}

#[tokio::test]
async fn what_is_left_in_the_background_does_not_hold_the_command() {
    let place = Place::start().await;
    let s = place.session().await;
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
        assert_eq!((ended.code, ended.tree), (0, Tree::Alive), "{command}");
        let pid = text_of(&ended);
        assert!(lives(&pid), "{command}");
        let listed = s.client.processes().await.unwrap();
        assert_eq!(
            listed.iter().map(|view| (view.process, view.tree)).collect::<Vec<_>>(),
            [(ended.process, Tree::Alive)]
        );
        let killed = s.client.kill(ended.process).await.unwrap();
        assert_eq!((killed.tree, killed.ended.unwrap().code), (Tree::Gone, 0), "{command}");
        assert!(!lives(&pid), "{command}");
        assert!(s.client.processes().await.unwrap().is_empty());
    }
}

#[tokio::test]
async fn a_background_flood_does_not_hold_the_command() {
    let place = Place::start().await;
    let s = place.session().await;
    let began = Instant::now();
    let ended = s.run(s.command("yes & echo first")).await;
    assert!(began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
    assert!(text_of(&ended).contains("first"));
    s.client.kill(ended.process).await.unwrap();
}

#[tokio::test]
async fn killing_the_shim_kills_the_tree() {
    let place = Place::start().await;
    let s = place.session().await;
    let ended = s.run(s.command("setsid sleep 700 & echo $!; kill -9 $PPID; sleep 700")).await;
    assert_eq!((ended.code, ended.tree), (137, Tree::Gone));
    let pid = text_of(&ended);
    assert!(!lives(&pid), "{pid} lives");
    assert_eq!(s.out("echo fine").await, "fine\n");
}

#[tokio::test]
async fn at_the_deadline_a_command_can_go_on_in_the_background() {
    let place = Place::start().await;
    let s = place.session().await;
    let deadline = Some(Deadline { after: Duration::from_millis(50), then: AtDeadline::Background });
    let run = Run { deadline, stdin: Stdin::Stream, ..s.command("echo early; read x; echo late $x; exit 7") };
    let mut running = s.client.run(run).await.unwrap();
    let id = running.id().unwrap();
    assert_eq!(running.end().await.unwrap(), Event::Moved(id));
    drop(running);
    s.client.write_stdin(id, b"word\n").await.unwrap();
    let view = s.client.wait(id, PATIENCE).await.unwrap();
    assert_eq!(view.ended.unwrap().code, 7);
    assert_eq!(s.client.output(id, 0, 1000).await.unwrap().data.as_slice(), b"early\nlate word\n");
    let asked = s.client.run(Run { mode: LIVE, ..s.command("echo $$; sleep 300") }).await;
    let mut running = asked.unwrap();
    assert!(matches!(running.next().await.unwrap(), Event::Output(_)));
    running.background().await.unwrap();
    let id = running.id().unwrap();
    assert_eq!(running.end().await.unwrap(), Event::Moved(id));
    assert_eq!(s.client.kill(id).await.unwrap().tree, Tree::Gone);
}

#[tokio::test]
async fn background_output_is_there_at_once_and_can_be_paged() {
    let place = Place::start().await;
    let s = place.session().await;
    s.out("export STATE=seen; cd /tmp").await;
    let id = s.start(s.in_background("echo $STATE in $PWD; read x; echo got $x")).await;
    assert!(s.wait_for_output(id, "\n").await.starts_with("seen in /tmp\n"));
    let without_input = s.client.write_stdin(id, b"x").await.unwrap_err();
    assert!(matches!(without_input, Error::Refused(Fault::NoStdin)), "{without_input:?}");
    let id = s.start(Run { stdin: Stdin::Stream, ..s.in_background("cat; echo end") }).await;
    s.client.write_stdin(id, b"one\n").await.unwrap();
    assert_eq!(s.wait_for_output(id, "\n").await, "one\n");
    s.client.write_stdin(id, b"two\n").await.unwrap();
    s.client.close_stdin(id).await.unwrap();
    let view = s.client.wait(id, PATIENCE).await.unwrap();
    assert_eq!((view.ended.unwrap().code, view.label.as_slice(), view.total), (0, b"test".as_slice(), 12));
    let page = s.client.output(id, 4, 5).await.unwrap();
    assert_eq!((page.offset, page.data.as_slice(), page.total), (4, b"two\ne".as_slice(), 12));
    s.client.forget(id).await.unwrap();
    assert!(matches!(s.client.process(id).await.unwrap_err(), Error::Refused(Fault::NoProcess)));
}

#[tokio::test]
async fn notices_tell_of_matches_and_of_the_end_even_to_a_later_client() {
    let place = Place::start().await;
    let s = place.session().await;
    let watch = vec![ByteBuf::from("listening on"), ByteBuf::from("panic")];
    let mode = Mode::Background { label: ByteBuf::new(), watch, at_end: AtEnd::Notify };
    let command = "echo starting; printf 'listen'; printf 'ing on 80\\n'; read x; exit 5";
    let id = s.start(Run { mode, stdin: Stdin::Stream, ..s.command(command) }).await;
    let mut notices = s.client.notices(0).await.unwrap();
    let first = tokio::time::timeout(PATIENCE, notices.next()).await.unwrap().unwrap();
    assert_eq!((first.number, first.process), (0, id));
    assert_eq!(first.what, Happening::Matched { line: ByteBuf::from("listening on 80"), unreported: 0 });
    s.client.close_stdin(id).await.unwrap();
    let second = tokio::time::timeout(PATIENCE, notices.next()).await.unwrap().unwrap();
    let Happening::Ended(ended) = &second.what else { panic!("{second:?}") };
    assert_eq!((ended.code, ended.tail.as_slice()), (5, b"starting\nlistening on 80\n".as_slice()));
    let mut again = place.client().await.notices(1).await.unwrap();
    assert_eq!(again.next().await.unwrap(), second);
}

#[tokio::test]
async fn a_program_can_be_fed_and_signaled_as_it_runs() {
    let place = Place::start().await;
    let s = place.session().await;
    let run = Run {
        mode: LIVE,
        stdin: Stdin::Stream,
        ..s.command("trap 'echo usr; exit 4' USR1; cat; echo eof; while :; do :; done")
    };
    let mut running = s.client.run(run).await.unwrap();
    let data = vec![b'z'; 300_000];
    running.write(&data).await.unwrap();
    running.close_stdin().await.unwrap();
    let mut output = Vec::new();
    let code = loop {
        match running.next().await.unwrap() {
            Event::Output(page) => {
                assert_eq!(page.offset, output.len() as u64);
                output.extend_from_slice(&page.data);
                if output.ends_with(b"eof\n") {
                    running.signal(Signal(10)).await.unwrap();
                }
            }
            Event::Ended(ended) => break ended.code,
            Event::Moved(_) => panic!("it was not moved"),
        }
    };
    assert_eq!((code, output.len()), (4, 300_000 + 8));
}

#[tokio::test]
async fn a_terminal_has_a_size_and_can_be_resized() {
    let place = Place::start().await;
    let s = place.session().await;
    let run = Run {
        mode: LIVE,
        stdin: Stdin::Stream,
        terminal: Some(Size { rows: 30, columns: 120 }),
        ..s.command("export T=1; trap 'stty size; exit 3' WINCH; tty >/dev/null && stty size; while :; do read -t 0.05 x; done")
    };
    let mut running = s.client.run(run).await.unwrap();
    let mut output = String::new();
    let code = loop {
        match running.next().await.unwrap() {
            Event::Output(page) => {
                output.push_str(&String::from_utf8_lossy(&page.data));
                if output == "30 120\r\n" {
                    running.resize(Size { rows: 50, columns: 80 }).await.unwrap();
                }
            }
            Event::Ended(ended) => break ended.code,
            Event::Moved(_) => panic!("it was not moved"),
        }
    };
    assert_eq!((code, output.as_str()), (3, "30 120\r\n50 80\r\n"));
    assert_eq!(s.out("echo $T").await, "1\n", "a terminal makes no difference to the state");
    let id = s
        .start(Run {
            terminal: Some(Size { rows: 1, columns: 1 }),
            stdin: Stdin::Stream,
            ..s.in_background("cat")
        })
        .await;
    s.client.write_stdin(id, b"typed\n").await.unwrap();
    assert_eq!(s.wait_for_output(id, "typed\r\ntyped\r\n").await, "typed\r\ntyped\r\n");
    s.client.close_stdin(id).await.unwrap();
    assert_eq!(s.client.wait(id, PATIENCE).await.unwrap().ended.unwrap().code, 0);
}

#[tokio::test]
async fn a_handle_of_another_time_hits_nothing() {
    let place = Place::start().await;
    let s = place.session().await;
    let id = s.start(s.in_background("sleep 300")).await;
    let stale = ProcessId { started: id.started + 1, ..id };
    assert!(matches!(s.client.kill(stale).await.unwrap_err(), Error::Refused(Fault::NoProcess)));
    assert!(matches!(s.client.forget(id).await.unwrap_err(), Error::Refused(Fault::Running)));
    assert!(lives(&id.pid.to_string()));
    let killed = s.client.kill(id).await.unwrap();
    assert_eq!(killed.ended.map(|ended| (ended.code, ended.cause)), Some((137, Cause::Killed)));
}

#[tokio::test]
async fn a_background_process_has_its_deadline_too() {
    let place = Place::start().await;
    let s = place.session().await;
    let deadline = Some(Deadline { after: Duration::from_millis(50), then: AtDeadline::Kill });
    let id = s.start(Run { deadline, ..s.in_background("echo begun; setsid sleep 600 & sleep 600") }).await;
    let view = s.client.wait(id, PATIENCE).await.unwrap();
    assert_eq!(view.ended.map(|ended| (ended.code, ended.cause)), Some((124, Cause::Deadline)));
    assert_eq!(s.client.kill(id).await.unwrap().tree, Tree::Gone);
}

#[tokio::test]
async fn what_is_typed_at_once_is_read_at_the_pace_of_the_program() {
    let place = Place::start().await;
    let s = place.session().await;
    let lines: String = (0..2000).map(|number| format!("line {number}\n")).collect();
    let run = Run {
        stdin: Stdin::Data(ByteBuf::from(lines)),
        terminal: Some(Size { rows: 30, columns: 120 }),
        ..s.command("stty -echo; count=0; while read -r x; do count=$((count + 1)); done; echo $count")
    };
    let ended = s.run(run).await;
    assert!(text_of(&ended).ends_with("2000\r\n"), "{}", text_of(&ended));
}

#[tokio::test]
async fn records_are_bounded_and_the_oldest_go_first() {
    let place = Place::start().await;
    let s = place.session().await;
    let mut started = Vec::new();
    for number in 0..limit::FINISHED + 6 {
        let id = s.start(s.in_background(&format!("echo {number}"))).await;
        s.client.wait(id, PATIENCE).await.unwrap();
        started.push(id);
    }
    let idle = async { while s.client.stats().await.unwrap().running > 0 {} };
    tokio::time::timeout(PATIENCE, idle).await.unwrap();
    let mut listed: Vec<_> = s.client.processes().await.unwrap().iter().map(|view| view.process).collect();
    started.drain(..6);
    listed.sort();
    started.sort();
    assert_eq!(listed, started);
    let stats = s.client.stats().await.unwrap();
    assert_eq!((stats.clients, stats.sessions, stats.running, stats.finished), (1, 1, 0, 64));
    assert!(stats.uptime > Duration::ZERO && stats.memory > 0);
}

#[tokio::test]
async fn no_more_run_at_once_than_may_and_what_ended_last_is_kept() {
    let place = Place::start().await;
    let s = place.session().await;
    let first = s.start(Run { stdin: Stdin::Stream, ..s.in_background("cat") }).await;
    let mut others = Vec::new();
    for _ in 1..limit::RUNNING {
        others.push(s.start(s.in_background("exec sleep 1300")).await);
    }
    let refused = s.client.run(s.in_background("true")).await;
    assert!(matches!(refused, Err(Error::Refused(Fault::TooMany { .. }))), "{refused:?}");
    for other in others {
        s.client.kill(other).await.unwrap();
    }
    // It was the first to start and is the last to end.
    s.client.close_stdin(first).await.unwrap();
    assert!(s.client.wait(first, PATIENCE).await.unwrap().ended.is_some());
    let kept: Vec<_> = s.client.processes().await.unwrap().iter().map(|view| view.process).collect();
    assert!(kept.contains(&first) && kept.len() <= limit::FINISHED + 1, "{}", kept.len());
}
