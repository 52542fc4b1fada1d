//! Round trips, undo and branches of messages.

use hermes_store::{Error, MessageFilter, NewMessage, Seq, SessionId, Store, TurnStep};
use hermes_types::{Call, CallArguments, CallId, Digest, Image, ImageKind, Message, Part, Reasoning};
use proptest::prelude::*;
use serde_json::{Map, Value, json};

use crate::{Home, assistant, at, message_step, session, user};

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>()
            .prop_filter("JSON has no NaN or infinity", |number| number.is_finite())
            .prop_map(Value::from),
        ".{0,12}".prop_map(Value::from),
    ];
    leaf.prop_recursive(2, 8, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((".{0,6}", inner), 0..4)
                .prop_map(|fields| Value::Object(fields.into_iter().collect::<Map<_, _>>())),
        ]
    })
}

fn part() -> impl Strategy<Value = Part> {
    let text = "(?s).{0,20}";
    prop_oneof![
        text.prop_map(|text| Part::Text { text }),
        (text, prop::option::of(".{0,5}"), prop::option::of(value())).prop_map(|(text, issuer, replay)| {
            // Null and a missing value are equal in this field.
            Part::Reasoning(Reasoning { text, issuer, replay: replay.filter(|value| !value.is_null()) })
        }),
        (".{0,8}", ".{0,8}", value()).prop_map(|(id, name, value)| {
            let arguments = match value {
                Value::Object(object) => CallArguments::Object(object),
                other => CallArguments::Broken { text: other.to_string(), why: "no object".to_owned() },
            };
            Part::Call(Call { id: CallId::new(id), name, arguments, replay: None })
        }),
    ]
}

fn image() -> impl Strategy<Value = Image> {
    let kind = prop::sample::select(vec![ImageKind::Png, ImageKind::Jpeg, ImageKind::Gif, ImageKind::Webp]);
    (any::<[u8; 32]>(), kind, any::<u64>()).prop_map(|(bytes, kind, size)| Image {
        sha256: Digest::new(bytes),
        kind,
        size,
    })
}

fn message() -> impl Strategy<Value = Message> {
    prop_oneof![
        ("(?s).{0,40}", prop::collection::vec(image(), 0..3))
            .prop_map(|(text, images)| Message::User { text, images }),
        prop::collection::vec(part(), 0..5).prop_map(|parts| Message::Assistant { parts }),
        (".{0,8}", ".{0,8}", "(?s).{0,40}").prop_map(|(call, name, text)| Message::Tool {
            call: CallId::new(call),
            name,
            text
        }),
    ]
}

fn run<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(work)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn messages_are_read_back_unchanged(messages in prop::collection::vec(message(), 1..6)) {
        run(async {
            let home = Home::new();
            let store = home.store().await;
            let id = session(&store).await;
            let entries = messages.iter().cloned().map(|message| NewMessage::new(message, at(1))).collect();
            store.append_step(&id, TurnStep { messages: entries, ..TurnStep::default() }).await.unwrap();
            let kept = store.history(&id).await.unwrap();
            let found: Vec<_> = kept.iter().map(|kept| kept.message.clone()).collect();
            prop_assert_eq!(&found, &messages);
            let texts = |messages: &[Message]| serde_json::to_string(messages).unwrap();
            prop_assert_eq!(texts(&found), texts(&messages), "byte for byte");
            Ok(())
        })?;
    }
}

#[derive(Debug, Clone)]
enum Action {
    Person(String),
    Model(String),
    Undo(usize),
}

fn action() -> impl Strategy<Value = Action> {
    prop_oneof![
        4 => "[a-z]{1,4}".prop_map(Action::Person),
        4 => "[a-z]{1,4}".prop_map(Action::Model),
        2 => (0..4_usize).prop_map(Action::Undo),
    ]
}

/// The reference model of a session: all messages, and whether each was undone.
#[derive(Debug, Clone, Default)]
struct Model(Vec<(Message, bool)>);

impl Model {
    fn active(&self) -> Vec<(u32, Message)> {
        let numbered = self.0.iter().zip(1..);
        numbered.filter(|((_, undone), _)| !undone).map(|((m, _), at)| (at, m.clone())).collect()
    }

    fn undo(&mut self, exchanges: usize) {
        let said: Vec<u32> = self
            .active()
            .into_iter()
            .filter_map(|(at, message)| matches!(message, Message::User { .. }).then_some(at))
            .collect();
        if said.is_empty() || exchanges == 0 {
            return;
        }
        let from = said[said.len().saturating_sub(exchanges)];
        for ((_, undone), _) in self.0.iter_mut().zip(1..).filter(|(_, at)| *at >= from) {
            *undone = true;
        }
    }
}

async fn assert_equals_model(store: &Store, id: &SessionId, model: &Model) {
    let kept = store.history(id).await.unwrap();
    let found: Vec<_> = kept.into_iter().map(|kept| (kept.seq.number(), kept.message)).collect();
    assert_eq!(found, model.active());
    let all = store.messages(id, MessageFilter::All, Seq::START, 1_000).await.unwrap();
    let marks: Vec<_> = all.iter().map(|kept| kept.undone).collect();
    assert_eq!(marks, model.0.iter().map(|(_, undone)| *undone).collect::<Vec<_>>());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn append_and_undo_behave_like_a_list(actions in prop::collection::vec(action(), 1..25)) {
        run(async {
            let home = Home::new();
            let store = home.store().await;
            let (id, mut model) = (session(&store).await, Model::default());
            for action in actions {
                match action {
                    Action::Person(text) => {
                        store.append_step(&id, message_step(user(&text), at(1))).await.unwrap();
                        model.0.push((user(&text), false));
                    }
                    Action::Model(text) => {
                        store.append_step(&id, message_step(assistant(&text), at(1))).await.unwrap();
                        model.0.push((assistant(&text), false));
                    }
                    Action::Undo(exchanges) => {
                        for _ in 0..exchanges {
                            store.undo(&id).await.unwrap();
                        }
                        model.undo(exchanges);
                    }
                }
            }
            assert_equals_model(&store, &id, &model).await;
        });
    }
}

#[tokio::test]
async fn undo_returns_the_first_undone_user_text() {
    let home = Home::new();
    let store = home.store().await;
    let id = session(&store).await;
    for message in [user("one"), assistant("1"), user("two"), assistant("2")] {
        store.append_step(&id, message_step(message, at(1))).await.unwrap();
    }
    for left in [2, 0, 0] {
        store.undo(&id).await.unwrap();
        assert_eq!(store.history(&id).await.unwrap().len(), left);
    }
    let turn = store.open_turn(&id, vec![], vec![], at(2)).await.unwrap();
    assert!(matches!(store.undo(&id).await, Err(Error::TurnInProgress(_))));
    store.close_turn(turn, "text", vec![], at(2)).await.unwrap();
    assert_eq!(store.history(&id).await.unwrap(), []);
}

#[tokio::test]
async fn a_page_has_a_byte_limit() {
    let home = Home::new();
    let store = home.store().await;
    let id = session(&store).await;
    for _ in 0..5 {
        store.append_step(&id, message_step(user(&"x".repeat(3 << 20)), at(1))).await.unwrap();
    }
    let (mut after, mut sizes) = (Seq::START, Vec::new());
    loop {
        let page = store.messages(&id, MessageFilter::Active, after, 100).await.unwrap();
        let Some(last) = page.last() else { break };
        after = last.seq;
        sizes.push(page.len());
    }
    assert_eq!(sizes, [2, 2, 1]);
}

#[tokio::test]
async fn an_export_is_one_line_with_all_messages() {
    let home = Home::new();
    let store = home.store().await;
    let id = session(&store).await;
    let empty = session(&store).await;
    for number in 0..450 {
        store.append_step(&id, message_step(user(&format!("line\n{number}")), at(number))).await.unwrap();
    }
    store.undo(&id).await.unwrap();
    let line = async |id: &SessionId| {
        let mut text = String::new();
        let write = |piece: &str| -> Result<(), Error> {
            text.push_str(piece);
            Ok(())
        };
        store.export(id, write).await.unwrap();
        assert_eq!(text.matches('\n').count(), 1);
        serde_json::from_str::<Value>(&text).unwrap()
    };
    let whole = line(&id).await;
    assert_eq!(whole["id"], json!(id.as_str()));
    assert_eq!((&whole["system_prompt"], &whole["message_count"]), (&json!("You are Hermes."), &json!(450)));
    let messages = whole["messages"].as_array().unwrap();
    assert_eq!(messages.len(), 450);
    assert_eq!(
        messages[449],
        json!({"seq": 450, "at": at(449).seconds(), "undone": true, "role": "user", "text": "line\n449"})
    );
    assert_eq!(line(&empty).await["messages"], json!([]));
}
