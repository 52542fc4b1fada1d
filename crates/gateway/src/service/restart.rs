//! The notice about a restart, for the chat that asked for it.

use std::fs;
use std::io;
use std::path::Path;

use hermes_store::Store;
use hermes_types::{Timestamp, replace_file};
use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::message::Chat;
use crate::target::ChatAddress;

const RESTART_FILE: &str = "gateway_restart.json";

/// Who asked for a restart.
#[derive(Serialize, Deserialize)]
struct RestartRequest {
    #[serde(flatten)]
    address: ChatAddress,
    message: String,
}

/// Records who asked for a restart, before anything is stopped.
pub fn request_restart(home: &Path, chat: &Chat, message_id: &str) -> io::Result<()> {
    let address = ChatAddress::new(chat.platform, &chat.id, None);
    let request = RestartRequest { address, message: message_id.to_owned() };
    let text = serde_json::to_vec(&request)?;
    replace_file(&home.join(RESTART_FILE), 0o600, |new| fs::write(new, text))
}

/// Tells the chat that asked for a restart that it is done, once.
pub async fn announce_restart(home: &Path, store: &Store) -> Result<(), Error> {
    let path = home.join(RESTART_FILE);
    let Ok(text) = fs::read(&path) else { return Ok(()) };
    match serde_json::from_slice::<RestartRequest>(&text) {
        Ok(RestartRequest { address, message }) => {
            let key = format!("restarted:{}:{message}", address.platform.as_str());
            let parts = address.outbox_parts("Restarted.", &key);
            store.enqueue_reply(Vec::new(), parts, Timestamp::now()).await?;
        }
        Err(error) => tracing::warn!(%error, "cannot parse restart request"),
    }
    Ok(fs::remove_file(path)?)
}
