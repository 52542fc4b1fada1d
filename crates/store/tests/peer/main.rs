//! A second process that uses a database, for tests: `store-peer FILE ACTION …`.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on should stop")]

use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use hermes_store::{NewMessage, NewSession, SessionId, SessionPrompt, Store, TurnStep};
use hermes_types::{
    Answer, Call, CallArguments, CallId, Choice, Message, Part, Person, SessionKey, Timestamp,
};

fn print(text: &str) {
    let mut out = io::stdout().lock();
    writeln!(out, "{text}").and_then(|()| out.flush()).unwrap();
}

fn at() -> Timestamp {
    Timestamp::from_seconds(1_800_000_000)
}

fn user(text: String) -> Message {
    Message::user(text)
}

fn message_step(message: Message, at: Timestamp) -> TurnStep {
    TurnStep { messages: vec![NewMessage::new(message, at)], ..TurnStep::default() }
}

fn new_session() -> NewSession {
    NewSession {
        key: SessionKey::new("peer"),
        source: "cli".to_owned(),
        person: Person::new("cli"),
        model: "m".to_owned(),
        provider: "p".to_owned(),
        prompt: SessionPrompt::default(),
        cwd: None,
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

/// Appends messages and confirms each one.
async fn append(file: &Path, session: &str, tag: &str, count: u32) {
    let store = Store::open(file).await.unwrap();
    let session = SessionId::new(session);
    for number in 0..count {
        let text = format!("{tag} {number} {}", "words of some length ".repeat(20));
        store.append_step(&session, message_step(user(text), at())).await.unwrap();
        print(&number.to_string());
    }
}

async fn answer(file: &Path, id: &str) {
    let store = Store::open(file).await.unwrap();
    let answer = Answer { by: Person::new("cli"), at: at(), choice: Choice::Session };
    print(&format!("{:?}", store.answer_question(id, answer).await.unwrap()));
}

async fn approve(file: &Path, code: &str) {
    let store = Store::open(file).await.unwrap();
    print(&format!("{:?}", store.approve_code("discord", code, at()).await.unwrap()));
}

/// Opens a turn, stops in the middle, and waits to be killed.
async fn turn(file: &Path) {
    let store = Store::open(file).await.unwrap();
    let session = store.create_session(new_session(), at()).await.unwrap();
    store
        .open_turn(&session, vec![NewMessage::new(user("do it".to_owned()), at())], vec![], at())
        .await
        .unwrap();
    let call = |id: &str| {
        let call = Call {
            id: CallId::new(id),
            name: "t".to_owned(),
            arguments: CallArguments::Object(Default::default()),
            replay: None,
        };
        Part::Call(call)
    };
    let asked = Message::Assistant { parts: vec![call("a"), call("b")] };
    store.append_step(&session, message_step(asked, at())).await.unwrap();
    let done = Message::Tool { call: CallId::new("a"), name: "t".to_owned(), text: "done".to_owned() };
    store.append_step(&session, message_step(done, at())).await.unwrap();
    print(session.as_str());
    wait_for_stdin();
}

/// Holds a write transaction.
fn hold(file: &Path) {
    let connection = rusqlite::Connection::open(file).unwrap();
    connection.execute_batch("BEGIN IMMEDIATE").unwrap();
    print("held");
    wait_for_stdin();
}

fn wait_for_stdin() {
    io::stdin().read_to_end(&mut Vec::new()).unwrap();
}

async fn open(file: &Path) {
    match Store::open(file).await {
        Ok(_) => print("opened"),
        Err(error) => print(&format!("{error:?}")),
    }
}

/// Fills the disk, frees space, and continues.
async fn fill(file: &Path) {
    let ballast = file.with_file_name("ballast");
    std::fs::write(&ballast, vec![1; 512 << 10]).unwrap();
    let store = Store::open(file).await.unwrap();
    let session = store.create_session(new_session(), at()).await.unwrap();
    let mut stored = 0;
    let error = loop {
        let text = format!("{stored} {}", "text that fills the disk ".repeat(400));
        match store.append_step(&session, message_step(user(text), at())).await {
            Ok(_) => stored += 1,
            Err(error) => break error,
        }
    };
    print(&format!("{error:?}"));
    let found = store.history(&session).await.unwrap();
    print(if found.len() == stored && stored > 0 { "complete" } else { "incomplete" });
    let other = Store::open(file.with_file_name("second.db")).await;
    print(&format!("{:?}", other.map(drop)));
    std::fs::remove_file(&ballast).unwrap();
    let after = store.append_step(&session, message_step(user("after".to_owned()), at())).await;
    print(&format!("{:?}", after.map(drop)));
    let again = store.history(&session).await.unwrap();
    print(if again.len() == stored + 1 { "resumed" } else { "stuck" });
    store.close().await;
    let connection = rusqlite::Connection::open(file).unwrap();
    let check: String = connection.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    print(&check);
    let mut names: Vec<String> = std::fs::read_dir(file.parent().unwrap())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| !name.starts_with("hermes.db"))
        .collect();
    names.sort();
    print(&format!("{names:?}"));
}
