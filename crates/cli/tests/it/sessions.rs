//! `hermes sessions`.

use hermes_store::{FILE_NAME, ModelCall, NewMessage, NewSession, SessionId, SessionPrompt, Store, TurnStep};
use hermes_types::{Call, CallArguments, CallId, Message, Part, Person, SessionKey, Timestamp, Usage};
use serde_json::{Value, json};

use crate::Home;

/// Runs a closure with the database of a home.
pub(crate) fn with_store<T>(home: &Home, work: impl AsyncFnOnce(&Store) -> T) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let store = Store::open(home.path().join(FILE_NAME)).await.unwrap();
        let done = work(&store).await;
        store.close().await;
        done
    })
}

fn at(seconds: u64) -> Timestamp {
    Timestamp::from_seconds(1_700_000_000 + seconds)
}

fn message_step(message: Message, at: Timestamp) -> TurnStep {
    TurnStep { messages: vec![NewMessage::new(message, at)], ..TurnStep::default() }
}

fn new_session() -> NewSession {
    NewSession {
        key: SessionKey::new("work"),
        source: "cli".to_owned(),
        person: Person::new("cli"),
        model: "claude".to_owned(),
        provider: "anthropic".to_owned(),
        prompt: SessionPrompt { text: "You are Hermes.".to_owned(), tools: "[]".to_owned() },
        cwd: Some("/work".to_owned()),
    }
}

/// Creates a session with a command and an older, empty session.
fn create_sessions(home: &Home) -> (SessionId, SessionId) {
    with_store(home, async |store| {
        let empty = store.create_session(new_session(), at(0)).await.unwrap();
        let id = store.create_session(new_session(), at(86_400)).await.unwrap();
        let arguments = json!({"command": "ls"}).as_object().unwrap().clone();
        let call = Call {
            id: CallId::new("c1"),
            name: "terminal".to_owned(),
            arguments: CallArguments::Object(arguments),
            replay: None,
        };
        let parts = vec![Part::Text { text: "I look.".to_owned() }, Part::Call(call)];
        let usage = Usage { input: 10, output: 5, ..Usage::default() };
        let spent = ModelCall {
            provider: "anthropic".to_owned(),
            model: "claude".to_owned(),
            purpose: "turn".to_owned(),
            usage,
            cost: Some(12_300),
            at: at(86_400),
        };
        let asked = Message::user("What is in this directory?\u{1b}[31m");
        store.append_step(&id, message_step(asked, at(86_400))).await.unwrap();
        let entry = NewMessage::new(Message::Assistant { parts }, at(86_401));
        store
            .append_step(
                &id,
                TurnStep { messages: vec![entry], model_calls: vec![spent], ..TurnStep::default() },
            )
            .await
            .unwrap();
        let result = Message::Tool {
            call: CallId::new("c1"),
            name: "terminal".to_owned(),
            text: "Cargo.toml 数据库".to_owned(),
        };
        store.append_step(&id, message_step(result, at(86_402))).await.unwrap();
        store.set_title(&id, "A look around").await.unwrap();
        (id, empty)
    })
}

#[test]
fn listing_conversations_does_not_create_a_database() {
    let home = Home::new();
    assert_eq!(home.run(&["--json", "sessions", "ls"]).json(), json!({"sessions": []}));
    assert_eq!(home.run(&["--json", "sessions", "search", "x"]).json(), json!({"hits": []}));
    assert_eq!(home.run(&["sessions", "export", "--all"]).out, "");
    for args in [&["sessions", "show", "last"], &["sessions", "rm", "20261115"], &["sessions", "export", "x"]]
    {
        let run = home.run(args);
        assert_eq!(run.code, Some(1), "{run:?}");
        assert!(run.err.contains("no session matches") && run.err.contains("hermes sessions ls"), "{run:?}");
    }
    assert_eq!(home.run(&["--json", "sessions", "prune"]).json(), json!({"sessions": 0, "freed_bytes": 0}));
    assert!(!home.path().join(FILE_NAME).exists());
}

#[test]
fn conversations_are_listed_newest_first() {
    let home = Home::new();
    let (id, empty) = create_sessions(&home);
    let listed = home.run(&["--json", "sessions", "ls"]).json();
    let ids: Vec<&Value> = listed["sessions"].as_array().unwrap().iter().map(|one| &one["id"]).collect();
    assert_eq!(ids, [&json!(id), &json!(empty)]);
    let first = &listed["sessions"][0];
    assert_eq!(
        (&first["title"], &first["message_count"], &first["cost"], &first["cost_status"]),
        (&json!("A look around"), &json!(3), &json!(12_300), &json!("actual"))
    );
    let page = home.run(&["--json", "sessions", "ls", "-n", "1", "--after", id.as_str()]).json();
    assert_eq!(page["sessions"][0]["id"], json!(empty));
    assert_eq!(
        home.run(&["--json", "sessions", "ls", "--source", "discord"]).json(),
        json!({"sessions": []})
    );
    let text = home.run(&["sessions", "list"]).out;
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[0].starts_with("ID ") && lines[1].starts_with(id.as_str()), "{text}");
    assert!(lines[1].ends_with("A look around") && lines[2].ends_with('-'), "{text}");
}

#[test]
fn a_conversation_is_shown_by_any_name_without_control_characters() {
    let home = Home::new();
    let (id, empty) = create_sessions(&home);
    let prefix: String = id.as_str().chars().take(13).collect();
    for word in [id.as_str(), &prefix, "A look around", "last"] {
        let shown = home.run(&["--json", "sessions", "show", word]).json();
        assert_eq!(shown["id"], json!(id), "{word}");
        assert_eq!(shown["messages"].as_array().unwrap().len(), 3);
    }
    let shown = home.run(&["sessions", "show", "last"]);
    assert_eq!(shown.code, Some(0), "{shown:?}");
    assert!(!shown.out.contains('\u{1b}') && shown.out.contains("⟨U+001B⟩[31m"), "{}", shown.out);
    for line in
        ["1 user", "2 model", "I look.", "→ terminal {\"command\":\"ls\"}", "3 result of terminal", "$0.0123"]
    {
        assert!(shown.out.contains(line), "{line}: {}", shown.out);
    }
    let end = home.run(&["--json", "sessions", "show", "last", "-n", "1"]).json();
    assert_eq!((&end["skipped"], &end["messages"][0]["seq"]), (&json!(2), &json!(3)));
    let ambiguous = home.run(&["sessions", "show", "202311"]);
    assert_eq!(ambiguous.code, Some(2), "{ambiguous:?}");
    assert!(ambiguous.err.contains("matches 2 sessions"), "{ambiguous:?}");
    assert_eq!(home.run(&["--json", "sessions", "show", empty.as_str()]).json()["messages"], json!([]));
}

#[test]
fn messages_can_be_searched() {
    let home = Home::new();
    let (id, _) = create_sessions(&home);
    for (words, seq) in
        [(&["directory"][..], 1), (&["數据", "OR", "数据库"], 3), (&["--", "-x", "OR", "look"], 2)]
    {
        let mut args = vec!["--json", "sessions", "search"];
        args.extend(words);
        let found = home.run(&args).json();
        let hit = &found["hits"][0];
        assert_eq!((&hit["session"], &hit["seq"]), (&json!(id), &json!(seq)), "{words:?}: {found}");
    }
    let all = ["sessions", "search", "directory", "OR", "look", "--json"];
    for (options, count) in [(&[][..], 2), (&["-n", "1"], 1), (&["--source", "discord"], 0)] {
        let found = home.run(&[&all, options].concat()).json();
        assert_eq!(found["hits"].as_array().map(Vec::len), Some(count), "{options:?}: {found}");
    }
    let text = home.run(&["sessions", "search", "\"this directory\""]);
    assert!(text.out.contains("What is in this directory?⟨U+001B⟩[31m"), "{text:?}");
    let nothing = home.run(&["sessions", "search", "\"*()"]);
    assert_eq!((nothing.code, nothing.out.as_str()), (Some(0), ""), "{nothing:?}");
}

#[test]
fn an_export_has_one_line_per_conversation() {
    let home = Home::new();
    let (id, empty) = create_sessions(&home);
    let run = home.run(&["sessions", "export", "last", empty.as_str()]);
    let lines: Vec<Value> = run.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.iter().map(|line| &line["id"]).collect::<Vec<_>>(), [&json!(id), &json!(empty)]);
    assert_eq!(lines[0]["system_prompt"], json!("You are Hermes."));
    assert_eq!(lines[0]["messages"][2]["text"], json!("Cargo.toml 数据库"));
    assert_eq!(home.run(&["sessions", "export", "--all"]).out.lines().count(), 2);
    let missing = home.run(&["sessions", "export", "last", "unknown"]);
    assert_eq!((missing.code, missing.out.as_str()), (Some(1), ""), "{missing:?}");
}

#[test]
fn rm_removes_all_conversations_or_none_and_prune_needs_consent() {
    let home = Home::new();
    let (id, empty) = create_sessions(&home);
    let run = home.run(&["sessions", "rm", "last", "unknown"]);
    assert_eq!(run.code, Some(1), "{run:?}");
    let next = with_store(&home, async |store| {
        let next = store.create_session(new_session(), at(1)).await.unwrap();
        assert_eq!(store.set_title(&next, "A look around").await.unwrap(), "A look around #2");
        next
    });
    let run = home.run(&["--json", "sessions", "rm", "last", "A look around", id.as_str()]);
    assert_eq!(run.json(), json!({"removed": [id], "sessions": 1}));
    assert_eq!(
        home.run(&["--json", "sessions", "rm", "A look around"]).json(),
        json!({"removed": [next], "sessions": 1})
    );
    with_store(&home, async |store| store.end_session(&empty, "exit", at(1)).await.unwrap());
    let dry = home.run(&["--json", "sessions", "prune", "--dry-run"]).json();
    assert_eq!(dry, json!({"would_remove": [empty]}));
    let run = home.run(&["sessions", "prune"]);
    assert_eq!(run.code, Some(4), "{run:?}");
    assert!(run.err.contains("--yes"), "{run:?}");
    let run = home.run(&["--json", "sessions", "prune", "--yes", "--older-than", "100000"]);
    assert_eq!(run.json()["sessions"], json!(0));
    let run = home.run(&["--json", "sessions", "prune", "--yes"]);
    assert_eq!(run.json()["sessions"], json!(1));
    assert_eq!(home.run(&["--json", "sessions", "ls"]).json(), json!({"sessions": []}));
}

#[test]
fn a_file_that_is_not_a_database_is_reported_and_left_unchanged() {
    let home = Home::new();
    home.write(FILE_NAME, "not a database, but a text\n".repeat(40));
    let before = home.read(FILE_NAME).unwrap();
    for args in [&["sessions", "ls"][..], &["approvals", "ls"], &["approvals", "approve", "q_x"]] {
        let run = home.run(args);
        assert_eq!(run.code, Some(1), "{run:?}");
        assert!(
            run.err.contains("not an SQLite database") && run.err.contains("→ Move the file away"),
            "{run:?}"
        );
    }
    assert_eq!(home.read(FILE_NAME).unwrap(), before);
}

#[test]
fn conversations_are_listed_despite_an_invalid_configuration() {
    let home = Home::with_config("terminal: {timeout: nonsense}\n");
    create_sessions(&home);
    assert_eq!(home.run(&["sessions", "ls"]).code, Some(0));
}
