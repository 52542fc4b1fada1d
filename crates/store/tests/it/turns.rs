//! Turns and their steps.

use hermes_store::{
    Cost, CostStatus, Error, ModelCall, NewMessage, Prompt, SearchQuery, Seq, TurnOwner, TurnStep, Viewer,
};
use hermes_types::{Arguments, Call, CallId, Message, Part, Usage};
use serde_json::json;

use crate::{Home, at, said, session, user};

fn call(id: &str) -> Call {
    let arguments = json!({"command": "ls"}).as_object().unwrap().clone();
    Call { id: CallId::new(id), name: "terminal".to_owned(), arguments: Arguments::Object(arguments) }
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
    let places = store.append_step(&id, TurnStep::from_message(asks(&["a", "b", "c"]), at(2))).await.unwrap();
    assert_eq!(places, Seq::new(2)..Seq::new(3));
    store.append_step(&id, TurnStep::from_message(result("b"), at(3))).await.unwrap();
    let left: Vec<_> = store.open_calls(&id).await.unwrap();
    assert_eq!(left, [call("a"), call("c")]);
    let open = store.current_turn(&id).await.unwrap().unwrap();
    assert_eq!((open.id, open.steps, open.first, &open.owner), (turn, 2, Seq::new(1), &TurnOwner::ThisStore));
    assert_eq!(store.open_turns().await.unwrap(), [open]);
    store.append_step(&id, TurnStep::from_message(result("a"), at(4))).await.unwrap();
    store.append_step(&id, TurnStep::from_message(result("c"), at(4))).await.unwrap();
    assert_eq!(store.open_calls(&id).await.unwrap(), []);
    store.append_step(&id, TurnStep::from_message(said("that is all"), at(5))).await.unwrap();
    store.close_turn(turn, "text", vec![], at(5)).await.unwrap();
    assert!(matches!(store.close_turn(turn, "text", vec![], at(6)).await, Err(Error::NoTurn)));
    assert_eq!(store.open_turns().await.unwrap(), []);
    store.open_turn(&id, vec![], vec![], at(7)).await.unwrap();
}

#[tokio::test]
async fn a_tool_result_is_replaced_only_while_its_turn_is_open() {
    let home = Home::new();
    let store = home.store().await;
    let id = session(&store).await;
    let turn = store.open_turn(&id, vec![NewMessage::new(user("list"), at(1))], vec![], at(1)).await.unwrap();
    store.append_step(&id, TurnStep::from_message(asks(&["a", "b"]), at(2))).await.unwrap();
    store.append_step(&id, TurnStep::from_message(result("a"), at(3))).await.unwrap();
    store.append_step(&id, TurnStep::from_message(result("b"), at(4))).await.unwrap();
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
    let mut entry = NewMessage::new(said("hi"), at(9));
    (entry.usage, entry.finish) = (Some(usage), Some("stop".to_owned()));
    let step = TurnStep {
        messages: vec![entry.clone()],
        model_calls: vec![spent(Cost::Actual(1_500))],
        ..TurnStep::default()
    };
    store.append_step(&id, step).await.unwrap();
    store
        .record_model_call(&id, ModelCall { purpose: "title".to_owned(), ..spent(Cost::Estimated(10)) })
        .await
        .unwrap();
    let now = store.session(&id).await.unwrap();
    assert_eq!((now.api_calls, now.cost, now.cost_status), (2, 1_510, CostStatus::Estimated));
    assert_eq!(now.usage, usage.plus(usage));
    store
        .append_step(&id, TurnStep { model_calls: vec![spent(Cost::Unknown)], ..TurnStep::default() })
        .await
        .unwrap();
    assert_eq!(store.session(&id).await.unwrap().cost_status, CostStatus::Unknown);
    let kept = store.history(&id).await.unwrap();
    assert_eq!((kept[0].usage, &kept[0].finish), (entry.usage, &entry.finish));

    store.remove_session(&id).await.unwrap();
    let days = store.spending(&Viewer::Owner, at(0)).await.unwrap();
    let rows: Vec<_> =
        days.iter().map(|day| (day.purpose.as_str(), day.calls, day.cost, day.cost_status)).collect();
    assert_eq!(
        rows,
        [("turn", 2, 1_500, CostStatus::Unknown), ("title", 1, 10, CostStatus::Estimated)],
        "it outlives the session"
    );
    assert_eq!(store.spending(&Viewer::Owner, at(86_400 * 2)).await.unwrap(), []);
    let huge = Usage { input: u64::MAX, ..Usage::default() };
    let id = session(&store).await;
    for _ in 0..3 {
        store
            .record_model_call(&id, ModelCall { usage: huge, ..spent(Cost::Actual(u64::MAX)) })
            .await
            .unwrap();
    }
    assert!(store.session(&id).await.unwrap().usage.input >= 3 << 50);
}

#[tokio::test]
async fn a_continuation_takes_over_the_open_turn() {
    let home = Home::new();
    let store = home.store().await;
    let old = session(&store).await;
    store.set_title(&old, "Long talk", hermes_store::TitleConflict::Refuse).await.unwrap();
    let turn =
        store.open_turn(&old, vec![NewMessage::new(user("go on"), at(1))], vec![], at(1)).await.unwrap();
    let prompt = Prompt { text: "again".to_owned(), tools: "[1]".to_owned() };
    let beginning = vec![NewMessage::new(user("summary"), at(2)), NewMessage::new(asks(&["a"]), at(2))];
    let new = store.continue_session(&old, prompt.clone(), beginning, at(2)).await.unwrap();
    let (before, after) = (store.session(&old).await.unwrap(), store.session(&new).await.unwrap());
    assert_eq!((before.end_reason.as_deref(), before.ended), (Some("compression"), Some(at(2))));
    assert_eq!((after.title.as_deref(), &after.parent), (Some("Long talk #2"), &Some(old.clone())));
    assert_eq!(store.session_prompt(&new).await.unwrap(), prompt);
    assert_eq!(store.current_turn(&old).await.unwrap(), None);
    assert_eq!(store.current_turn(&new).await.unwrap().unwrap().id, turn);
    store.append_step(&new, TurnStep::from_message(result("a"), at(3))).await.unwrap();
    store.close_turn(turn, "text", vec![], at(3)).await.unwrap();
    assert_eq!(store.history(&old).await.unwrap().len(), 1);
    assert_eq!(store.history(&new).await.unwrap().len(), 3);
    for word in ["Long talk", old.as_str(), "last"] {
        assert_eq!(store.resolve_session(&Viewer::Owner, word).await.unwrap().id, new, "{word}");
    }
    assert_eq!(
        store.find_session(&Viewer::Owner, old.as_str()).await.unwrap().id,
        old,
        "find_session does not follow continuations"
    );
}
