//! The notice about a restart, for the chat that asked for it.

use std::fs;
use std::io;
use std::path::Path;

use hermes_store::Store;
use hermes_types::{Timestamp, replace_file};
use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::message::{Chat, Platform};
use crate::target::ChatAddress;

const RESTART_FILE: &str = "gateway_restart.json";

/// Who asked for a restart.
#[derive(Serialize, Deserialize)]
struct RestartRequest {
    platform: Platform,
    chat: String,
    message: String,
}

/// Records who asked for a restart, before anything is stopped.
pub fn request_restart(home: &Path, chat: &Chat, message_id: &str) -> io::Result<()> {
    let (chat_id, message) = (chat.id.clone(), message_id.to_owned());
    let request = RestartRequest { platform: chat.platform, chat: chat_id, message };
    let text = serde_json::to_vec(&request)?;
    replace_file(&home.join(RESTART_FILE), 0o600, |new| fs::write(new, text))
}

/// Tells the chat that asked for a restart that it is done, once.
pub async fn announce_restart(home: &Path, store: &Store) -> Result<(), Error> {
    let path = home.join(RESTART_FILE);
    let Ok(text) = fs::read(&path) else { return Ok(()) };
    match serde_json::from_slice::<RestartRequest>(&text) {
        Ok(RestartRequest { platform, chat, message }) => {
            let key = format!("restarted:{}:{message}", platform.as_str());
            let parts = ChatAddress { platform, chat }.outbox_parts("Restarted.", &key);
            store.enqueue_reply(Vec::new(), parts, Timestamp::now()).await?;
        }
        Err(error) => tracing::warn!(%error, "cannot parse restart request"),
    }
    Ok(fs::remove_file(path)?)
}
