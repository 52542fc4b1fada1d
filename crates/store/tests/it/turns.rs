//! Turns and their steps.

use hermes_store::{CostStatus, Error, ModelCall, NewMessage, SearchQuery, Seq, TurnOwner, TurnStep, Viewer};
use hermes_types::{Call, CallArguments, CallId, Message, Part, Usage};
use serde_json::json;

use crate::{Home, assistant, at, message_step, session, user};

fn call(id: &str) -> Call {
    let arguments = json!({"command": "ls"}).as_object().unwrap().clone();
    let arguments = CallArguments::Object(arguments);
    Call { id: CallId::new(id), name: "terminal".to_owned(), arguments, replay: None }
}

fn asks(calls: &[&str]) -> Message {
    Message::Assistant { parts: calls.iter().map(|id| Part::Call(call(id))).collect() }
}

fn result(id: &str) -> Message {
    Message::Tool { call: CallId::new(id), name: "terminal".to_owned(), text: format!("done {id}") }
}

#[tokio::test]
async fn a_turn_is_one_message_and_its_steps() {
    let home = Home::new();
    let store = home.store().await;
    let id = session(&store).await;
    let turn = store.open_turn(&id, vec![NewMessage::new(user("list"), at(1))], vec![], at(1)).await.unwrap();
    let again = store.open_turn(&id, vec![NewMessage::new(user("more"), at(1))], vec![], at(1)).await;
    assert!(matches!(again, Err(Error::TurnInProgress(_))), "{again:?}");
    assert_eq!(store.open_calls(&id).await.unwrap(), []);
    store.append_step(&id, message_step(asks(&["a", "b", "c"]), at(2))).await.unwrap();
    store.append_step(&id, message_step(result("b"), at(3))).await.unwrap();
    let left: Vec<_> = store.open_calls(&id).await.unwrap();
    assert_eq!(left, [call("a"), call("c")]);
    let open = store.current_turn(&id).await.unwrap().unwrap();
    assert_eq!((open.id, open.steps, open.first, &open.owner), (turn, 2, Seq::new(1), &TurnOwner::ThisStore));
    store.append_step(&id, message_step(result("a"), at(4))).await.unwrap();
    store.append_step(&id, message_step(result("c"), at(4))).await.unwrap();
    assert_eq!(store.open_calls(&id).await.unwrap(), []);
    store.append_step(&id, message_step(assistant("that is all"), at(5))).await.unwrap();
    store.close_turn(turn, "text", vec![], at(5)).await.unwrap();
    assert!(matches!(store.close_turn(turn, "text", vec![], at(6)).await, Err(Error::NoTurn)));
    assert_eq!(store.current_turn(&id).await.unwrap(), None);
    store.open_turn(&id, vec![], vec![], at(7)).await.unwrap();
}

#[tokio::test]
async fn a_tool_result_is_replaced_only_while_its_turn_is_open() {
    let home = Home::new();
    let store = home.store().await;
    let id = session(&store).await;
    let turn = store.open_turn(&id, vec![NewMessage::new(user("list"), at(1))], vec![], at(1)).await.unwrap();
    store.append_step(&id, message_step(asks(&["a", "b"]), at(2))).await.unwrap();
    store.append_step(&id, message_step(result("a"), at(3))).await.unwrap();
    store.append_step(&id, message_step(result("b"), at(4))).await.unwrap();
    let before = store.history(&id).await.unwrap();
    store.replace_tool_result(&id, &CallId::new("a"), "elsewhere 漢字").await.unwrap();
    let mut expected = before;
    if let Message::Tool { text, .. } = &mut expected[2].message {
        *text = "elsewhere 漢字".to_owned();
    }
    assert_eq!(store.history(&id).await.unwrap(), expected);
    for (text, found) in [("elsewhere", vec![3]), ("漢字", vec![3]), ("done", vec![4])] {
        let search = SearchQuery { text: text.to_owned(), limit: 9, ..SearchQuery::default() };
        let hits = store.search(&Viewer::Owner, search).await.unwrap();
        assert_eq!(hits.iter().map(|hit| hit.seq.number()).collect::<Vec<_>>(), found, "{text}");
    }
    let unknown = store.replace_tool_result(&id, &CallId::new("c"), "x").await;
    assert!(matches!(unknown, Err(Error::NoToolResult(_))), "{unknown:?}");
    store.close_turn(turn, "text", vec![], at(5)).await.unwrap();
    let late = store.replace_tool_result(&id, &CallId::new("a"), "x").await;
    assert!(matches!(late, Err(Error::NoTurn)), "{late:?}");
    assert_eq!(store.history(&id).await.unwrap(), expected);
}

#[tokio::test]
async fn a_failed_first_message_opens_no_turn() {
    let home = Home::new();
    let store = home.store().await;
    let id = session(&store).await;
    let large = NewMessage::new(user(&"x".repeat(33 << 20)), at(1));
    let refused = store.open_turn(&id, vec![NewMessage::new(user("a"), at(1)), large], vec![], at(1)).await;
    assert!(matches!(refused, Err(Error::TooLarge { .. })), "{refused:?}");
    assert_eq!(store.current_turn(&id).await.unwrap(), None);
    assert_eq!(store.history(&id).await.unwrap(), []);
    assert_eq!(store.session(&id).await.unwrap().messages, 0);
}

#[tokio::test]
async fn costs_are_summed_by_session_and_day() {
    let home = Home::new();
    let store = home.store().await;
    let id = session(&store).await;
    let usage = Usage { input: 10, cache_read: 100, cache_write: 5, output: 20, reasoning: 7 };
    let spent = |cost| ModelCall {
        provider: "p1".to_owned(),
        model: "m1".to_owned(),
        purpose: "turn".to_owned(),
        usage,
        cost,
        at: at(9),
    };
    assert_eq!(store.session(&id).await.unwrap().cost_status, CostStatus::None);
    let mut entry = NewMessage::new(assistant("hi"), at(9));
    (entry.usage, entry.finish) = (Some(usage), Some("stop".to_owned()));
    let step = TurnStep {
        messages: vec![entry.clone()],
        model_calls: vec![spent(Some(1_500))],
        ..TurnStep::default()
    };
    store.append_step(&id, step).await.unwrap();
    store.record_model_call(&id, ModelCall { purpose: "title".to_owned(), ..spent(Some(10)) }).await.unwrap();
    let now = store.session(&id).await.unwrap();
    assert_eq!((now.api_calls, now.cost, now.cost_status), (2, 1_510, CostStatus::Actual));
    assert_eq!(now.usage, usage.plus(usage));
    store.append_step(&id, TurnStep { model_calls: vec![spent(None)], ..TurnStep::default() }).await.unwrap();
    assert_eq!(store.session(&id).await.unwrap().cost_status, CostStatus::Unknown);
    let kept = store.history(&id).await.unwrap();
    assert_eq!((kept[0].usage, &kept[0].finish), (entry.usage, &entry.finish));

    store.remove_session(&id).await.unwrap();
    let connection = rusqlite::Connection::open(home.file()).unwrap();
    let sql = "SELECT purpose, calls, cost, cost_status FROM spending ORDER BY cost DESC";
    let mut statement = connection.prepare(sql).unwrap();
    let read = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?));
    let rows: Vec<(String, u32, u32, String)> =
        statement.query_map([], read).unwrap().map(Result::unwrap).collect();
    let row = |purpose: &str, calls, cost, status: &str| (purpose.to_owned(), calls, cost, status.to_owned());
    let expected = [row("turn", 2, 1_500, "unknown"), row("title", 1, 10, "actual")];
    assert_eq!(rows, expected, "it outlives the session");
    let huge = Usage { input: u64::MAX, ..Usage::default() };
    let id = session(&store).await;
    for _ in 0..3 {
        store.record_model_call(&id, ModelCall { usage: huge, ..spent(Some(u64::MAX)) }).await.unwrap();
    }
    assert!(store.session(&id).await.unwrap().usage.input >= 3 << 50);
}

#[tokio::test]
async fn a_cost_status_of_an_older_version_is_unknown() {
    let home = Home::new();
    let store = home.store().await;
    let id = session(&store).await;
    for status in ["included", "estimated"] {
        let connection = rusqlite::Connection::open(home.file()).unwrap();
        connection.execute("UPDATE sessions SET cost_status = ?1", [status]).unwrap();
        assert_eq!(store.session(&id).await.unwrap().cost_status, CostStatus::Unknown, "{status}");
    }
}
