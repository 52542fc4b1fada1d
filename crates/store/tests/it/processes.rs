//! Several processes on one database, and processes that die.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};
use std::time::Duration;

use hermes_store::{Error, Held, SessionId, Step, Store};
use hermes_types::{CallId, Message};

use crate::{Home, at, session, user};

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
                    store.append(&id, Step::one(user(&format!("t{task} {number}")), at(1))).await.unwrap();
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
        let kept = store.history(id).await.unwrap();
        let places: Vec<u32> = kept.iter().map(|kept| kept.seq.number()).collect();
        assert_eq!(places, (1..=u32::try_from(writers * 50).unwrap()).collect::<Vec<_>>());
        // Each writer's own messages are in its own order.
        let mut next: BTreeMap<String, usize> = BTreeMap::new();
        for kept in kept {
            let text = kept.message.text();
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
async fn killed_a_hundred_times_nothing_that_was_kept_is_lost() {
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
        // Killed after some messages, somewhere in the work on the next one.
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
        let kept = store.history(&id).await.unwrap();
        // One more may have been kept whose reply was not read.
        let extra = kept.len() - acknowledged;
        assert!(extra <= 1, "round {round}: {} kept, {acknowledged} acknowledged", kept.len());
        acknowledged = kept.len();
        if round % 2 == 0 {
            store.close().await;
        }
    }
    assert_eq!(home.check(), "ok");
}

#[tokio::test]
async fn the_turn_of_a_killed_process_goes_on_in_another() {
    let home = Home::new();
    let store = home.store().await;
    let mut peer = home.peer(&["turn"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(peer.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let id = SessionId::new(line.trim());
    let turn = store.turn(&id).await.unwrap().unwrap();
    assert!(matches!(&turn.held, Held::Elsewhere(Some(holder)) if holder.pid == peer.id()), "{turn:?}");
    let refused = store.take_over(turn.id).await;
    let Err(Error::Elsewhere { holder: Some(holder), .. }) = &refused else { panic!("{refused:?}") };
    assert_eq!((holder.pid, holder.name.as_str()), (peer.id(), "store-peer"));
    let refused = store.append(&id, Step::one(user("me too"), at(1))).await;
    assert!(matches!(refused, Err(Error::Elsewhere { .. })), "{refused:?}");
    assert!(matches!(store.remove(&id).await, Err(Error::AtWork(_))));

    peer.kill().unwrap();
    peer.wait().unwrap();
    let unfinished = store.unfinished().await.unwrap();
    let [turn] = unfinished.as_slice() else { panic!("{unfinished:?}") };
    assert_eq!((turn.steps, &turn.held), (2, &Held::Nowhere));
    let early = store.append(&id, Step::one(user("not yet"), at(1))).await;
    assert!(
        matches!(early, Err(Error::Elsewhere { .. })),
        "it is not ours before it is taken over: {early:?}"
    );
    assert_eq!(store.take_over(turn.id).await.unwrap().held, Held::Here);
    assert_eq!(store.history(&id).await.unwrap().len(), 3);
    let open: Vec<CallId> = store.open_calls(&id).await.unwrap().into_iter().map(|call| call.id).collect();
    assert_eq!(open, [CallId::new("b")]);
    let result = Message::Tool { call: CallId::new("b"), name: "t".to_owned(), text: "done".to_owned() };
    store.append(&id, Step::one(result, at(2))).await.unwrap();
    store.close_turn(turn.id, "text", vec![], at(2)).await.unwrap();
    assert_eq!(store.unfinished().await.unwrap(), []);
}

#[tokio::test]
#[expect(clippy::disallowed_methods, reason = "a process in another world is what is tested")]
async fn a_process_in_another_container_is_seen_to_live_and_to_die() {
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
    let turn = store.turn(&id).await.unwrap().unwrap();
    assert!(matches!(turn.held, Held::Elsewhere(_)), "{turn:?}");
    container.kill().unwrap();
    container.wait().unwrap();
    // Its end of the pipe is closed when it is gone.
    out.read_to_string(&mut line).unwrap();
    assert_eq!(store.turn(&id).await.unwrap().unwrap().held, Held::Nowhere);
    assert_eq!(store.take_over(turn.id).await.unwrap().held, Held::Here);
}

#[tokio::test]
async fn a_process_that_writes_for_too_long_is_named() {
    let home = Home::new();
    let store = home.store().await;
    let id = session(&store).await;
    let mut peer = home.peer(&["hold"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(peer.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "held\n");
    let refused = store.append(&id, Step::one(user("x"), at(1))).await;
    let Err(Error::Busy { holder: Some(holder), .. }) = &refused else { panic!("{refused:?}") };
    assert_eq!((holder.pid, holder.name.as_str()), (peer.id(), "store-peer"));
    let told = refused.unwrap_err().to_string();
    assert!(told.ends_with(&format!(": store-peer (process {})", peer.id())), "{told}");
    assert_eq!(store.history(&id).await.unwrap(), [], "reading goes on");
    drop(peer.stdin.take());
    peer.wait().unwrap();
    store.append(&id, Step::one(user("y"), at(1))).await.unwrap();
    assert_eq!(store.history(&id).await.unwrap().len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_made_by_many_at_once_is_one() {
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
        let all = store
            .sessions(&hermes_store::Reader::Owner, hermes_store::Listing { limit: 9, ..Default::default() });
        assert_eq!(all.await.unwrap().len(), 3);
    }
}
