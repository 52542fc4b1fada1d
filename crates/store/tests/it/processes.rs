//! Several processes on one database, and processes that are killed.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};
use std::time::Duration;

use hermes_store::{Error, SessionId, Store, TurnOwner};
use hermes_types::{CallId, Message};

use crate::{Home, at, message_step, session, user};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_processes_and_their_threads_lose_nothing() {
    let home = Home::new();
    let store = home.store().await;
    let (shared, own) = (session(&store).await, session(&store).await);
    let peers: Vec<_> = ["x", "y"]
        .into_iter()
        .map(|tag| {
            let mut peer = home.peer(&["append", shared.as_str(), tag, "50"]);
            peer.stdout(Stdio::null()).spawn().unwrap()
        })
        .collect();
    let tasks: Vec<_> = (0..4)
        .map(|task| {
            let (store, id) = (store.clone(), if task < 2 { shared.clone() } else { own.clone() });
            tokio::spawn(async move {
                for number in 0..50 {
                    store
                        .append_step(&id, message_step(user(&format!("t{task} {number}")), at(1)))
                        .await
                        .unwrap();
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    for mut peer in peers {
        assert!(peer.wait().unwrap().success());
    }
    let check = async |id: &SessionId, writers: usize| {
        let stored = store.history(id).await.unwrap();
        let places: Vec<u32> = stored.iter().map(|stored| stored.seq.number()).collect();
        assert_eq!(places, (1..=u32::try_from(writers * 50).unwrap()).collect::<Vec<_>>());
        // The messages of each writer are in order.
        let mut next: BTreeMap<String, usize> = BTreeMap::new();
        for stored in stored {
            let text = stored.message.text();
            let mut words = text.split(' ');
            let expected = next.entry(words.next().unwrap().to_owned()).or_default();
            assert_eq!(words.next().unwrap(), expected.to_string());
            *expected += 1;
        }
        assert_eq!(next.len(), writers);
    };
    check(&shared, 4).await;
    check(&own, 2).await;
    store.close().await;
    assert_eq!(home.check(), "ok");
}

#[tokio::test]
async fn a_hundred_kills_lose_no_confirmed_message() {
    let home = Home::new();
    let store = home.store().await;
    let id = session(&store).await;
    store.close().await;
    let (mut acknowledged, mut seed) = (0, 0x9e37_79b9_7f4a_7c15_u64);
    for round in 0..100 {
        let mut peer = home
            .peer(&["append", id.as_str(), &format!("r{round}"), "1000000"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(peer.stdout.take().unwrap());
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        // The kill comes after some messages, while the process writes the next one.
        let mut line = String::new();
        for _ in 0..=seed % 7 {
            line.clear();
            lines.read_line(&mut line).unwrap();
        }
        std::thread::sleep(Duration::from_micros(seed % 900));
        peer.kill().unwrap();
        peer.wait().unwrap();
        let mut rest = String::new();
        lines.read_to_string(&mut rest).unwrap();
        let whole_lines = rest.rsplit_once('\n').map_or("", |(whole, _)| whole);
        let last = whole_lines.lines().next_back().unwrap_or(line.trim());
        acknowledged += last.parse::<usize>().unwrap() + 1;
        let store = home.store().await;
        let stored = store.history(&id).await.unwrap();
        // One more message may be stored, because its confirmation was not read.
        let extra = stored.len() - acknowledged;
        assert!(extra <= 1, "round {round}: {} stored, {acknowledged} acknowledged", stored.len());
        acknowledged = stored.len();
        if round % 2 == 0 {
            store.close().await;
        }
    }
    assert_eq!(home.check(), "ok");
}

#[tokio::test]
async fn the_turn_of_a_killed_process_is_taken_over() {
    let home = Home::new();
    let store = home.store().await;
    let mut peer = home.peer(&["turn"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(peer.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let id = SessionId::new(line.trim());
    let turn = store.current_turn(&id).await.unwrap().unwrap();
    assert!(
        matches!(&turn.owner, TurnOwner::OtherProcess(Some(holder)) if holder.pid == peer.id()),
        "{turn:?}"
    );
    let refused = store.take_over_turn(turn.id).await;
    let Err(Error::OwnedByOther { owner: Some(holder), .. }) = &refused else { panic!("{refused:?}") };
    assert_eq!((holder.pid, holder.name.as_str()), (peer.id(), "store-peer"));
    let refused = store.append_step(&id, message_step(user("me too"), at(1))).await;
    assert!(matches!(refused, Err(Error::OwnedByOther { .. })), "{refused:?}");
    assert!(matches!(store.remove_session(&id).await, Err(Error::TurnInProgress(_))));

    peer.kill().unwrap();
    peer.wait().unwrap();
    let turn = store.current_turn(&id).await.unwrap().unwrap();
    assert_eq!((turn.steps, &turn.owner), (2, &TurnOwner::Exited));
    let early = store.append_step(&id, message_step(user("not yet"), at(1))).await;
    assert!(matches!(early, Err(Error::OwnedByOther { .. })), "a turn must be taken over first: {early:?}");
    assert_eq!(store.take_over_turn(turn.id).await.unwrap().owner, TurnOwner::ThisStore);
    assert_eq!(store.history(&id).await.unwrap().len(), 3);
    let open: Vec<CallId> = store.open_calls(&id).await.unwrap().into_iter().map(|call| call.id).collect();
    assert_eq!(open, [CallId::new("b")]);
    let result = Message::Tool { call: CallId::new("b"), name: "t".to_owned(), text: "done".to_owned() };
    store.append_step(&id, message_step(result, at(2))).await.unwrap();
    store.close_turn(turn.id, "text", vec![], at(2)).await.unwrap();
    assert_eq!(store.current_turn(&id).await.unwrap(), None);
}

#[tokio::test]
#[expect(clippy::disallowed_methods, reason = "the test needs a process in another namespace")]
async fn the_death_of_a_process_in_another_container_is_detected() {
    let home = Home::new();
    let store = home.store().await;
    let mut container = Command::new("unshare")
        .args(["--user", "--map-root-user", "--pid", "--fork", "--kill-child"])
        .arg(env!("CARGO_BIN_EXE_store-peer"))
        .arg(home.file())
        .arg("turn")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut out = BufReader::new(container.stdout.take().unwrap());
    let mut line = String::new();
    out.read_line(&mut line).unwrap();
    let id = SessionId::new(line.trim());
    let turn = store.current_turn(&id).await.unwrap().unwrap();
    assert!(matches!(turn.owner, TurnOwner::OtherProcess(_)), "{turn:?}");
    container.kill().unwrap();
    container.wait().unwrap();
    // The pipe is closed when the process is gone.
    out.read_to_string(&mut line).unwrap();
    assert_eq!(store.current_turn(&id).await.unwrap().unwrap().owner, TurnOwner::Exited);
    assert_eq!(store.take_over_turn(turn.id).await.unwrap().owner, TurnOwner::ThisStore);
}

#[tokio::test]
async fn a_process_that_blocks_writing_is_named() {
    let home = Home::new();
    let store = home.store().await;
    let id = session(&store).await;
    let mut peer = home.peer(&["hold"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(peer.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "held\n");
    let refused = store.append_step(&id, message_step(user("x"), at(1))).await;
    let Err(Error::Busy { owner: Some(holder), .. }) = &refused else { panic!("{refused:?}") };
    assert_eq!((holder.pid, holder.name.as_str()), (peer.id(), "store-peer"));
    let message = refused.unwrap_err().to_string();
    assert!(message.ends_with(&format!(": store-peer (process {})", peer.id())), "{message}");
    assert_eq!(store.history(&id).await.unwrap(), [], "reading is not blocked");
    drop(peer.stdin.take());
    peer.wait().unwrap();
    store.append_step(&id, message_step(user("y"), at(1))).await.unwrap();
    assert_eq!(store.history(&id).await.unwrap().len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_creation_makes_one_database() {
    for _ in 0..10 {
        let home = Home::new();
        let peers: Vec<_> = (0..3)
            .map(|_| home.peer(&["open"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap())
            .collect();
        let file = home.file();
        let here = (0..3).map(|_| tokio::spawn(Store::open(file.clone())));
        for opened in here.collect::<Vec<_>>() {
            session(&opened.await.unwrap().unwrap()).await;
        }
        for peer in peers {
            let said = peer.wait_with_output().unwrap();
            assert_eq!(String::from_utf8_lossy(&said.stdout), "opened\n", "{said:?}");
        }
        let store = home.store().await;
        let all = store.sessions(
            &hermes_store::Viewer::Owner,
            hermes_store::SessionQuery { limit: 9, ..Default::default() },
        );
        assert_eq!(all.await.unwrap().len(), 3);
    }
}
