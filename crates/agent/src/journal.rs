//! What a front end stores together with a turn.

use hermes_store::{InboxId, NewOutboxRow};

use crate::{BoxFuture, StopReason};

/// Rows that the store writes in the transactions that open and close a turn: a message of a chat
/// is answered exactly when its turn has ended.
pub trait TurnJournal: Send + Sync {
    /// The messages that the turn answers. Empty for a resumed turn: the store knows its messages.
    fn inbox_ids(&self) -> Vec<InboxId> {
        Vec::new()
    }

    /// The reply of a turn that ended for this reason with this text.
    fn reply_rows<'a>(&'a self, _reason: &'a StopReason, _text: &'a str) -> BoxFuture<'a, Vec<NewOutboxRow>> {
        Box::pin(async { Vec::new() })
    }
}

/// The journal of a terminal, which answers no stored message.
impl TurnJournal for () {}
