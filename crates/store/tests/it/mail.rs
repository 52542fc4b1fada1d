//! Letters and parts.

use hermes_store::{Delivery, Entry, Fate, LetterId, NewLetter, NewPart, Step, Store};
use hermes_types::{Person, SessionKey};
use serde_json::json;

use crate::{Home, at, said, session, user};

async fn letter(store: &Store, message: &str) -> LetterId {
    let letter = NewLetter {
        platform: "discord".to_owned(),
        chat: "1".to_owned(),
        message: message.to_owned(),
        key: SessionKey::new("k"),
        person: Person::new("discord:7"),
        at: at(1),
        event: json!({ "text": message }),
    };
    store.receive(vec![letter]).await.unwrap()[0].unwrap()
}

#[tokio::test]
async fn a_letter_that_the_model_is_told_of_is_answered_by_that_turn_and_others_wait() {
    let home = Home::new();
    let store = home.store().await;
    let id = session(&store).await;
    let (first, told, untold) =
        (letter(&store, "a").await, letter(&store, "b").await, letter(&store, "c").await);
    let turn = store.open_turn(&id, vec![Entry::new(user("a"), at(1))], vec![first], at(1)).await.unwrap();
    let turns = async || -> Vec<_> {
        let waiting = store.waiting_letters("discord").await.unwrap();
        waiting.into_iter().map(|letter| (letter.id, letter.turn)).collect()
    };
    assert_eq!(turns().await, [(first, Some(turn)), (told, None), (untold, None)]);
    store.append(&id, Step { letters: vec![told], ..Step::one(said("so"), at(2)) }).await.unwrap();
    assert_eq!(turns().await, [(first, Some(turn)), (told, Some(turn)), (untold, None)]);
    store.close_turn(turn, "answered", vec![], at(3)).await.unwrap();
    assert_eq!(turns().await, [(untold, None)]);
}

#[tokio::test]
async fn what_became_of_a_part_is_known_by_its_mark() {
    let home = Home::new();
    let store = home.store().await;
    let part = |mark: &str| NewPart {
        platform: "discord".to_owned(),
        chat: "1".to_owned(),
        key: SessionKey::new("k"),
        mark: Some(mark.to_owned()),
        body: json!({ "text": mark }),
    };
    let added = store.reply(vec![], vec![part("a"), part("b"), part("c")], at(1)).await.unwrap();
    store.delivering(added[1], at(2)).await.unwrap();
    let fate = async |mark: &str| store.fate(mark).await.unwrap();
    assert_eq!([fate("a").await, fate("b").await], [Some(Fate::Waits), Some(Fate::Waits)]);
    store.delivered(added[0], Delivery::Sent("9".to_owned()), at(3)).await.unwrap();
    store.delivered(added[1], Delivery::Later("busy".to_owned()), at(3)).await.unwrap();
    store.delivered(added[2], Delivery::Failed("gone".to_owned()), at(3)).await.unwrap();
    let fates = [fate("a").await, fate("b").await, fate("c").await, fate("d").await];
    let sent = Fate::Sent("9".to_owned());
    assert_eq!(fates, [Some(sent), Some(Fate::Waits), Some(Fate::Failed), None]);
}

#[tokio::test]
async fn what_was_done_long_ago_is_forgotten_but_for_the_last_letter_of_each_chat() {
    let home = Home::new();
    let store = home.store().await;
    let kept = |chat: usize, message: &str| NewLetter {
        platform: "discord".to_owned(),
        chat: format!("{chat:04}"),
        message: message.to_owned(),
        key: SessionKey::new("k"),
        person: Person::new("discord:7"),
        at: at(1),
        event: json!({}),
    };
    let letters = (0..1_010).flat_map(|chat| [kept(chat, "a"), kept(chat, "b")]).collect();
    let ids: Vec<LetterId> = store.receive(letters).await.unwrap().into_iter().flatten().collect();
    // One is not answered, and one was answered late.
    let (waits, late) = (ids[2 * 500], ids[2 * 600]);
    store.reply(vec![late], vec![], at(100)).await.unwrap();
    let done = ids.into_iter().filter(|id| ![waits, late].contains(id)).collect();
    store.reply(done, vec![], at(5)).await.unwrap();
    assert_eq!(store.forget_mail(at(50)).await.unwrap(), 1_010 - 2 + 10);
    let mut last = store.last_letters("discord").await.unwrap();
    last.sort();
    let expected: Vec<_> = (10..1_010).map(|chat| (format!("{chat:04}"), "b".to_owned())).collect();
    assert_eq!(last, expected);
    assert_eq!(store.waiting_letters("discord").await.unwrap()[0].id, waits);
    assert!(store.is_received("discord", "0600", "a").await.unwrap());
    assert!(!store.is_received("discord", "0601", "a").await.unwrap());
    assert_eq!(store.forget_mail(at(50)).await.unwrap(), 0);
}

#[tokio::test]
async fn however_much_waits_in_one_chat_what_waits_in_others_is_seen() {
    let home = Home::new();
    let store = home.store().await;
    let part = |chat: &str| NewPart {
        platform: "discord".to_owned(),
        chat: chat.to_owned(),
        key: SessionKey::new("k"),
        mark: None,
        body: json!({}),
    };
    let mut parts = vec![part("stuck"); 1_100];
    parts.push(part("free"));
    store.reply(vec![], parts, at(1)).await.unwrap();
    let chats = async |without: &[&str]| -> Vec<String> {
        let without = without.iter().map(|chat| (*chat).to_owned()).collect();
        let mut chats: Vec<_> =
            store.undelivered("discord", without).await.unwrap().into_iter().map(|part| part.chat).collect();
        chats.dedup();
        chats
    };
    assert_eq!(chats(&[]).await, ["stuck"]);
    assert_eq!(chats(&["stuck"]).await, ["free"]);
}
