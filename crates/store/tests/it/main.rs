//! The store on real files, also with other processes.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod chat_messages;
mod faults;
mod history;
mod outbox;
mod pairing;
mod processes;
mod questions;
mod search;
mod sessions;
mod size;
mod turns;

use std::path::PathBuf;
use std::process::Command;

use hermes_store::{FILE_NAME, NewMessage, NewSession, SessionId, SessionPrompt, Store, TurnStep};
use hermes_types::{Message, Part, Person, SessionKey, Timestamp};

/// A directory with a database.
struct Home {
    folder: tempfile::TempDir,
}

impl Home {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join(FILE_NAME)
    }

    async fn store(&self) -> Store {
        Store::open(self.file()).await.unwrap()
    }

    /// Another process that uses the same database.
    #[expect(clippy::disallowed_methods, reason = "the test needs a second process")]
    fn peer(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_store-peer"));
        command.arg(self.file()).args(args);
        command
    }

    /// The result of an SQLite integrity check.
    fn check(&self) -> String {
        let connection = rusqlite::Connection::open(self.file()).unwrap();
        connection.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap()
    }
}

fn at(seconds: u64) -> Timestamp {
    Timestamp::from_seconds(1_800_000_000 + seconds)
}

fn new_session() -> NewSession {
    NewSession {
        key: SessionKey::new("/work: any key\n"),
        source: "cli".to_owned(),
        person: Person::new("cli"),
        model: "m1".to_owned(),
        provider: "p1".to_owned(),
        prompt: SessionPrompt { text: "You are Hermes.".to_owned(), tools: "[]".to_owned() },
        cwd: Some("/work".to_owned()),
    }
}

async fn session(store: &Store) -> SessionId {
    store.create_session(new_session(), at(0)).await.unwrap()
}

fn user(text: &str) -> Message {
    Message::user(text)
}

fn assistant(text: &str) -> Message {
    Message::Assistant { parts: vec![Part::Text { text: text.to_owned() }] }
}

fn message_step(message: Message, at: Timestamp) -> TurnStep {
    TurnStep { messages: vec![NewMessage::new(message, at)], ..TurnStep::default() }
}
