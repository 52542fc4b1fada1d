//! Turns and their steps.

use hermes_store::{Cost, CostStatus, Entry, Error, Held, Prompt, Reader, Search, Seq, Spent, Step};
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
    let turn = store.open_turn(&id, vec![Entry::new(user("list"), at(1))], vec![], at(1)).await.unwrap();
    let again = store.open_turn(&id, vec![Entry::new(user("more"), at(1))], vec![], at(1)).await;
    assert!(matches!(again, Err(Error::AtWork(_))), "{again:?}");
    assert_eq!(store.open_calls(&id).await.unwrap(), []);
    let places = store.append(&id, Step::one(asks(&["a", "b", "c"]), at(2))).await.unwrap();
    assert_eq!(places, Seq::new(2)..Seq::new(3));
    store.append(&id, Step::one(result("b"), at(3))).await.unwrap();
    let left: Vec<_> = store.open_calls(&id).await.unwrap();
    assert_eq!(left, [call("a"), call("c")]);
    let open = store.turn(&id).await.unwrap().unwrap();
    assert_eq!((open.id, open.steps, open.first, &open.held), (turn, 2, Seq::new(1), &Held::Here));
    assert_eq!(store.unfinished().await.unwrap(), [open]);
    store.append(&id, Step::one(result("a"), at(4))).await.unwrap();
    store.append(&id, Step::one(result("c"), at(4))).await.unwrap();
    assert_eq!(store.open_calls(&id).await.unwrap(), []);
    store.append(&id, Step::one(said("that is all"), at(5))).await.unwrap();
    store.close_turn(turn, "text", vec![], at(5)).await.unwrap();
    assert!(matches!(store.close_turn(turn, "text", vec![], at(6)).await, Err(Error::NoTurn)));
    assert_eq!(store.unfinished().await.unwrap(), []);
    store.open_turn(&id, vec![], vec![], at(7)).await.unwrap();
}

#[tokio::test]
async fn an_answer_of_a_tool_is_replaced_only_while_its_turn_is_open() {
    let home = Home::new();
    let store = home.store().await;
    let id = session(&store).await;
    let turn = store.open_turn(&id, vec![Entry::new(user("list"), at(1))], vec![], at(1)).await.unwrap();
    store.append(&id, Step::one(asks(&["a", "b"]), at(2))).await.unwrap();
    store.append(&id, Step::one(result("a"), at(3))).await.unwrap();
    store.append(&id, Step::one(result("b"), at(4))).await.unwrap();
    let before = store.history(&id).await.unwrap();
    store.replace_answer(&id, &CallId::new("a"), "elsewhere 漢字").await.unwrap();
    let mut expected = before;
    if let Message::Tool { text, .. } = &mut expected[2].message {
        *text = "elsewhere 漢字".to_owned();
    }
    assert_eq!(store.history(&id).await.unwrap(), expected);
    for (text, found) in [("elsewhere", vec![3]), ("漢字", vec![3]), ("done", vec![4])] {
        let search = Search { text: text.to_owned(), limit: 9, ..Search::default() };
        let hits = store.search(&Reader::Owner, search).await.unwrap();
        assert_eq!(hits.iter().map(|hit| hit.seq.number()).collect::<Vec<_>>(), found, "{text}");
    }
    let unknown = store.replace_answer(&id, &CallId::new("c"), "x").await;
    assert!(matches!(unknown, Err(Error::NoAnswer(_))), "{unknown:?}");
    store.close_turn(turn, "text", vec![], at(5)).await.unwrap();
    let late = store.replace_answer(&id, &CallId::new("a"), "x").await;
    assert!(matches!(late, Err(Error::NoTurn)), "{late:?}");
    assert_eq!(store.history(&id).await.unwrap(), expected);
}

#[tokio::test]
async fn an_opening_that_fails_opens_no_turn() {
    let home = Home::new();
    let store = home.store().await;
    let id = session(&store).await;
    let large = Entry::new(user(&"x".repeat(33 << 20)), at(1));
    let refused = store.open_turn(&id, vec![Entry::new(user("a"), at(1)), large], vec![], at(1)).await;
    assert!(matches!(refused, Err(Error::TooLarge { .. })), "{refused:?}");
    assert_eq!(store.turn(&id).await.unwrap(), None);
    assert_eq!(store.history(&id).await.unwrap(), []);
    assert_eq!(store.session(&id).await.unwrap().messages, 0);
}

#[tokio::test]
async fn what_models_cost_is_summed_up_by_session_and_day() {
    let home = Home::new();
    let store = home.store().await;
    let id = session(&store).await;
    let usage = Usage { input: 10, cache_read: 100, cache_write: 5, output: 20, reasoning: 7 };
    let spent = |cost| Spent {
        provider: "p1".to_owned(),
        model: "m1".to_owned(),
        purpose: "turn".to_owned(),
        usage,
        cost,
        at: at(9),
    };
    assert_eq!(store.session(&id).await.unwrap().cost_status, CostStatus::None);
    let mut entry = Entry::new(said("hi"), at(9));
    (entry.usage, entry.finish) = (Some(usage), Some("stop".to_owned()));
    let step =
        Step { entries: vec![entry.clone()], spent: vec![spent(Cost::Actual(1_500))], ..Step::default() };
    store.append(&id, step).await.unwrap();
    store.spend(&id, Spent { purpose: "title".to_owned(), ..spent(Cost::Estimated(10)) }).await.unwrap();
    let now = store.session(&id).await.unwrap();
    assert_eq!((now.api_calls, now.cost, now.cost_status), (2, 1_510, CostStatus::Estimated));
    assert_eq!(now.usage, usage.plus(usage));
    store.append(&id, Step { spent: vec![spent(Cost::Unknown)], ..Step::default() }).await.unwrap();
    assert_eq!(store.session(&id).await.unwrap().cost_status, CostStatus::Unknown);
    let kept = store.history(&id).await.unwrap();
    assert_eq!((kept[0].usage, &kept[0].finish), (entry.usage, &entry.finish));

    store.remove(&id).await.unwrap();
    let days = store.spending(&Reader::Owner, at(0)).await.unwrap();
    let rows: Vec<_> =
        days.iter().map(|day| (day.purpose.as_str(), day.calls, day.cost, day.cost_status)).collect();
    assert_eq!(
        rows,
        [("turn", 2, 1_500, CostStatus::Unknown), ("title", 1, 10, CostStatus::Estimated)],
        "it outlives the session"
    );
    assert_eq!(store.spending(&Reader::Owner, at(86_400 * 2)).await.unwrap(), []);
    let huge = Usage { input: u64::MAX, ..Usage::default() };
    let id = session(&store).await;
    for _ in 0..3 {
        store.spend(&id, Spent { usage: huge, ..spent(Cost::Actual(u64::MAX)) }).await.unwrap();
    }
    assert!(store.session(&id).await.unwrap().usage.input >= 3 << 50);
}

#[tokio::test]
async fn a_continuation_takes_the_turn_along() {
    let home = Home::new();
    let store = home.store().await;
    let old = session(&store).await;
    store.set_title(&old, "Long talk", hermes_store::Clash::Refuse).await.unwrap();
    let turn = store.open_turn(&old, vec![Entry::new(user("go on"), at(1))], vec![], at(1)).await.unwrap();
    let prompt = Prompt { text: "again".to_owned(), tools: "[1]".to_owned() };
    let beginning = vec![Entry::new(user("summary"), at(2)), Entry::new(asks(&["a"]), at(2))];
    let new = store.continuation(&old, prompt.clone(), beginning, at(2)).await.unwrap();
    let (before, after) = (store.session(&old).await.unwrap(), store.session(&new).await.unwrap());
    assert_eq!((before.end_reason.as_deref(), before.ended), (Some("compression"), Some(at(2))));
    assert_eq!((after.title.as_deref(), &after.parent), (Some("Long talk #2"), &Some(old.clone())));
    assert_eq!(store.prompt(&new).await.unwrap(), prompt);
    assert_eq!(store.turn(&old).await.unwrap(), None);
    assert_eq!(store.turn(&new).await.unwrap().unwrap().id, turn);
    store.append(&new, Step::one(result("a"), at(3))).await.unwrap();
    store.close_turn(turn, "text", vec![], at(3)).await.unwrap();
    assert_eq!(store.history(&old).await.unwrap().len(), 1);
    assert_eq!(store.history(&new).await.unwrap().len(), 3);
    for word in ["Long talk", old.as_str(), "last"] {
        assert_eq!(store.resolve(&Reader::Owner, word).await.unwrap().id, new, "{word}");
    }
    assert_eq!(store.meant(&Reader::Owner, old.as_str()).await.unwrap().id, old, "to look at, it is itself");
}
