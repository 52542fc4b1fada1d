//! What is to be said in chats.

use hermes_store::{Delivery, NewPart};
use hermes_types::SessionKey;
use serde_json::json;

use crate::{Home, at};

#[tokio::test]
async fn what_a_part_says_is_awaited_until_it_is_known_how_it_ended() {
    let home = Home::new();
    let store = home.store().await;
    let part = |file: &str| NewPart {
        platform: "discord".to_owned(),
        chat: "1".to_owned(),
        key: SessionKey::new("a"),
        mark: None,
        body: json!({"text": "", "files": [{"name": "a", "path": format!("/cache/{file}")}]}),
    };
    let parts = store.reply(Vec::new(), vec![part("1f-0"), part("1f-1")], at(0)).await.unwrap();
    let awaited = async |file: &str| store.awaits("discord", file).await.unwrap();
    assert!(awaited("1f-0").await && awaited("1f-1").await && !awaited("1f-2").await);
    assert!(!store.awaits("telegram", "1f-0").await.unwrap());
    store.delivering(parts[0], at(1)).await.unwrap();
    store.delivered(parts[1], Delivery::Later("busy".to_owned()), at(1)).await.unwrap();
    assert!(awaited("1f-0").await && awaited("1f-1").await);
    store.delivered(parts[0], Delivery::Sent("7".to_owned()), at(2)).await.unwrap();
    store.delivered(parts[1], Delivery::Failed("gone".to_owned()), at(2)).await.unwrap();
    assert!(!awaited("1f-0").await && !awaited("1f-1").await);
}
