//! Inbox and outbox rows.

use hermes_store::{
    DeliveryOutcome, DeliveryState, InboxId, NewInboxRow, NewMessage, NewOutboxRow, Store, TurnStep,
};
use hermes_types::{Person, SessionKey};
use serde_json::json;

use crate::{Home, assistant, at, message_step, session, user};

async fn receive(store: &Store, message: &str) -> InboxId {
    let row = NewInboxRow {
        platform: "discord".to_owned(),
        chat: "1".to_owned(),
        message: message.to_owned(),
        key: SessionKey::new("k"),
        person: Person::new("discord:7"),
        at: at(1),
        event: json!({ "text": message }),
    };
    store.receive_message(row).await.unwrap().unwrap()
}

#[tokio::test]
async fn an_inbox_row_is_answered_by_its_turn_and_others_stay_pending() {
    let home = Home::new();
    let store = home.store().await;
    let id = session(&store).await;
    let (first, second, third) =
        (receive(&store, "a").await, receive(&store, "b").await, receive(&store, "c").await);
    let turn =
        store.open_turn(&id, vec![NewMessage::new(user("a"), at(1))], vec![first], at(1)).await.unwrap();
    let turns = async || -> Vec<_> {
        let waiting = store.pending_inbox("discord").await.unwrap();
        waiting.into_iter().map(|row| (row.id, row.turn)).collect()
    };
    assert_eq!(turns().await, [(first, Some(turn)), (second, None), (third, None)]);
    store
        .append_step(&id, TurnStep { inbox: vec![second], ..message_step(assistant("so"), at(2)) })
        .await
        .unwrap();
    assert_eq!(turns().await, [(first, Some(turn)), (second, Some(turn)), (third, None)]);
    store.close_turn(turn, "answered", vec![], at(3)).await.unwrap();
    assert_eq!(turns().await, [(third, None)]);
}

#[tokio::test]
async fn the_delivery_state_is_found_by_dedup_key() {
    let home = Home::new();
    let store = home.store().await;
    let part = |mark: &str| NewOutboxRow {
        platform: "discord".to_owned(),
        chat: "1".to_owned(),
        key: SessionKey::new("k"),
        dedup_key: Some(mark.to_owned()),
        body: json!({ "text": mark }),
    };
    store.enqueue_reply(vec![], vec![part("a"), part("b"), part("c")], at(1)).await.unwrap();
    let pending = store.pending_outbox("discord", vec![]).await.unwrap();
    let added: Vec<_> = pending.into_iter().map(|row| row.id).collect();
    store.mark_sending(added[1], at(2)).await.unwrap();
    let state = async |mark: &str| store.delivery_state(mark).await.unwrap();
    assert_eq!(
        [state("a").await, state("b").await],
        [Some(DeliveryState::Pending), Some(DeliveryState::Pending)]
    );
    store.record_delivery(added[0], DeliveryOutcome::Sent("9".to_owned()), at(3)).await.unwrap();
    store.record_delivery(added[1], DeliveryOutcome::Retry("busy".to_owned()), at(3)).await.unwrap();
    store.record_delivery(added[2], DeliveryOutcome::Failed("gone".to_owned()), at(3)).await.unwrap();
    let states = [state("a").await, state("b").await, state("c").await, state("d").await];
    let sent = DeliveryState::Sent("9".to_owned());
    assert_eq!(states, [Some(sent), Some(DeliveryState::Pending), Some(DeliveryState::Failed), None]);
}

#[tokio::test]
async fn pruning_keeps_the_last_message_of_each_chat() {
    let home = Home::new();
    let store = home.store().await;
    let message_row = |chat: usize, message: &str| NewInboxRow {
        platform: "discord".to_owned(),
        chat: format!("{chat:04}"),
        message: message.to_owned(),
        key: SessionKey::new("k"),
        person: Person::new("discord:7"),
        at: at(1),
        event: json!({}),
    };
    let mut ids: Vec<InboxId> = Vec::new();
    for row in (0..1_010).flat_map(|chat| [message_row(chat, "a"), message_row(chat, "b")]) {
        ids.extend(store.receive_message(row).await.unwrap());
    }
    // One message is unanswered, and one was answered late.
    let (waits, late) = (ids[2 * 500], ids[2 * 600]);
    store.enqueue_reply(vec![late], vec![], at(100)).await.unwrap();
    let done = ids.into_iter().filter(|id| ![waits, late].contains(id)).collect();
    store.enqueue_reply(done, vec![], at(5)).await.unwrap();
    store.prune_chat_messages(at(50)).await.unwrap();
    let mut last = store.last_inbox_messages("discord").await.unwrap();
    last.sort();
    let expected: Vec<_> = (10..1_010).map(|chat| (format!("{chat:04}"), "b".to_owned())).collect();
    assert_eq!(last, expected);
    assert_eq!(store.pending_inbox("discord").await.unwrap()[0].id, waits);
    assert!(store.is_received("discord", "0600", "a").await.unwrap());
    assert!(!store.is_received("discord", "0601", "a").await.unwrap());
}

#[tokio::test]
async fn pending_messages_of_a_busy_chat_do_not_hide_those_of_others() {
    let home = Home::new();
    let store = home.store().await;
    let part = |chat: &str| NewOutboxRow {
        platform: "discord".to_owned(),
        chat: chat.to_owned(),
        key: SessionKey::new("k"),
        dedup_key: None,
        body: json!({}),
    };
    let mut parts = vec![part("stuck"); 1_100];
    parts.push(part("free"));
    store.enqueue_reply(vec![], parts, at(1)).await.unwrap();
    let chats = async |without: &[&str]| -> Vec<String> {
        let without = without.iter().map(|chat| (*chat).to_owned()).collect();
        let mut chats: Vec<_> = store
            .pending_outbox("discord", without)
            .await
            .unwrap()
            .into_iter()
            .map(|part| part.chat)
            .collect();
        chats.dedup();
        chats
    };
    assert_eq!(chats(&[]).await, ["stuck"]);
    assert_eq!(chats(&["stuck"]).await, ["free"]);
}
