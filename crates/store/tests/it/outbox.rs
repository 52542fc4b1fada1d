//! Outbox rows.

use hermes_store::{DeliveryOutcome, NewOutboxRow};
use hermes_types::SessionKey;
use serde_json::json;

use crate::{Home, at};

#[tokio::test]
async fn a_row_references_its_file_until_its_delivery_ends() {
    let home = Home::new();
    let store = home.store().await;
    let part = |file: &str| NewOutboxRow {
        platform: "discord".to_owned(),
        chat: "1".to_owned(),
        key: SessionKey::new("a"),
        dedup_key: None,
        body: json!({"text": "", "files": [{"name": "a", "path": format!("/cache/{file}")}]}),
    };
    store.enqueue_reply(Vec::new(), vec![part("1f-0"), part("1f-1")], at(0)).await.unwrap();
    let pending = store.pending_outbox("discord", vec![]).await.unwrap();
    let parts: Vec<_> = pending.into_iter().map(|row| row.id).collect();
    let awaited = async |file: &str| store.references_file("discord", file).await.unwrap();
    assert!(awaited("1f-0").await && awaited("1f-1").await && !awaited("1f-2").await);
    assert!(!store.references_file("telegram", "1f-0").await.unwrap());
    store.mark_sending(parts[0], at(1)).await.unwrap();
    store.record_delivery(parts[1], DeliveryOutcome::Retry("busy".to_owned()), at(1)).await.unwrap();
    assert!(awaited("1f-0").await && awaited("1f-1").await);
    store.record_delivery(parts[0], DeliveryOutcome::Sent("7".to_owned()), at(2)).await.unwrap();
    store.record_delivery(parts[1], DeliveryOutcome::Failed("gone".to_owned()), at(2)).await.unwrap();
    assert!(!awaited("1f-0").await && !awaited("1f-1").await);
}
