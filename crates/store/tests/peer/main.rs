//! Another process that uses a database, for tests: `store-peer FILE WHAT …`.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on should stop")]

use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use hermes_store::{Answer, Choice, Entry, NewSession, Prompt, SessionId, Step, Store};
use hermes_types::{Arguments, Call, CallId, Message, Part, Person, SessionKey, Timestamp};

fn say(text: &str) {
    let mut out = io::stdout().lock();
    writeln!(out, "{text}").and_then(|()| out.flush()).unwrap();
}

fn at() -> Timestamp {
    Timestamp::from_seconds(1_800_000_000)
}

fn user(text: String) -> Message {
    Message::user(text)
}

fn new_session() -> NewSession {
    NewSession {
        key: SessionKey::new("peer"),
        source: "cli".to_owned(),
        person: Person::new("cli"),
        model: "m".to_owned(),
        provider: "p".to_owned(),
        prompt: Prompt::default(),
        cwd: None,
        parent: None,
    }
}

fn main() {
    let mut args = std::env::args().skip(1);
    let file = PathBuf::from(args.next().unwrap());
    let args: Vec<String> = args.collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        match words.as_slice() {
            ["append", session, tag, count] => append(&file, session, tag, count.parse().unwrap()).await,
            ["approve", code] => approve(&file, code).await,
            ["answer", id] => answer(&file, id).await,
            ["turn"] => turn(&file).await,
            ["hold"] => hold(&file),
            ["open"] => open(&file).await,
            ["fill"] => fill(&file).await,
            other => panic!("{other:?}"),
        }
    });
}

/// Adds messages, and says each time that one is kept.
async fn append(file: &Path, session: &str, tag: &str, count: u32) {
    let store = Store::open(file).await.unwrap();
    let session = SessionId::new(session);
    for number in 0..count {
        let text = format!("{tag} {number} {}", "words of some length ".repeat(20));
        store.append(&session, Step::one(user(text), at())).await.unwrap();
        say(&number.to_string());
    }
}

async fn answer(file: &Path, id: &str) {
    let store = Store::open(file).await.unwrap();
    let answer = Answer { by: Person::new("cli"), at: at(), choice: Choice::Session };
    say(&format!("{:?}", store.answer(id, answer).await.unwrap()));
}

async fn approve(file: &Path, code: &str) {
    let store = Store::open(file).await.unwrap();
    say(&format!("{:?}", store.approve("discord", code, at()).await.unwrap()));
}

/// Begins a turn, stops in the middle of it, and waits to be killed.
async fn turn(file: &Path) {
    let store = Store::open(file).await.unwrap();
    let session = store.create(new_session(), at()).await.unwrap();
    store.open_turn(&session, vec![Entry::new(user("do it".to_owned()), at())], vec![], at()).await.unwrap();
    let call = |id: &str| {
        let call = Call {
            id: CallId::new(id),
            name: "t".to_owned(),
            arguments: Arguments::Object(Default::default()),
        };
        Part::Call(call)
    };
    let asked = Message::Assistant { parts: vec![call("a"), call("b")] };
    store.append(&session, Step::one(asked, at())).await.unwrap();
    let done = Message::Tool { call: CallId::new("a"), name: "t".to_owned(), text: "done".to_owned() };
    store.append(&session, Step::one(done, at())).await.unwrap();
    say(session.as_str());
    until_told();
}

/// Writes, and does not end.
fn hold(file: &Path) {
    let connection = rusqlite::Connection::open(file).unwrap();
    connection.execute_batch("BEGIN IMMEDIATE").unwrap();
    say("held");
    until_told();
}

fn until_told() {
    io::stdin().read_to_end(&mut Vec::new()).unwrap();
}

async fn open(file: &Path) {
    match Store::open(file).await {
        Ok(_) => say("opened"),
        Err(error) => say(&format!("{error:?}")),
    }
}

/// Fills the disk, makes room, and goes on.
async fn fill(file: &Path) {
    let ballast = file.with_file_name("ballast");
    std::fs::write(&ballast, vec![1; 512 << 10]).unwrap();
    let store = Store::open(file).await.unwrap();
    let session = store.create(new_session(), at()).await.unwrap();
    let mut kept = 0;
    let error = loop {
        let text = format!("{kept} {}", "text that fills the disk ".repeat(400));
        match store.append(&session, Step::one(user(text), at())).await {
            Ok(_) => kept += 1,
            Err(error) => break error,
        }
    };
    say(&format!("{error:?}"));
    let found = store.history(&session).await.unwrap();
    say(if found.len() == kept && kept > 0 { "all is there" } else { "something is missing" });
    let other = Store::open(file.with_file_name("second.db")).await;
    say(&format!("{:?}", other.map(drop)));
    std::fs::remove_file(&ballast).unwrap();
    let after = store.append(&session, Step::one(user("after".to_owned()), at())).await;
    say(&format!("{:?}", after.map(drop)));
    let again = store.history(&session).await.unwrap();
    say(if again.len() == kept + 1 { "it goes on" } else { "it does not go on" });
    store.close().await;
    let connection = rusqlite::Connection::open(file).unwrap();
    let check: String = connection.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    say(&check);
    let mut names: Vec<String> = std::fs::read_dir(file.parent().unwrap())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| !name.starts_with("hermes.db"))
        .collect();
    names.sort();
    say(&format!("{names:?}"));
}
