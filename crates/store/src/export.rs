//! Export of sessions as JSON Lines, in chunks: a session may not fit into memory.

use serde_json::Value;

use crate::error::{Error, QueryError};
use crate::history::MessageFilter;
use crate::message::Seq;
use crate::session::SessionId;
use crate::store::Store;

const PAGE_MESSAGES: usize = 200;

impl Store {
    /// Writes a session as one line: its metadata and all its messages, undone ones marked.
    pub async fn export<E: From<Error>>(
        &self,
        session: &SessionId,
        mut write: impl FnMut(&str) -> Result<(), E>,
    ) -> Result<(), E> {
        let invalid =
            |error: serde_json::Error| QueryError::Corrupt(error.to_string()).into_error(self.path());
        let mut head = serde_json::to_value(self.session(session).await?).map_err(invalid)?;
        let prompt = self.session_prompt(session).await?;
        head["system_prompt"] = Value::from(prompt.text);
        head["tools"] = Value::from(prompt.tools);
        let head = head.to_string();
        write(head.strip_suffix('}').unwrap_or(&head))?;
        write(",\"messages\":[")?;
        let mut after = Seq::START;
        loop {
            let page = self.messages(session, MessageFilter::All, after, PAGE_MESSAGES).await?;
            let Some(last) = page.last() else { return write("]}\n") };
            if after != Seq::START {
                write(",")?;
            }
            after = last.seq;
            let texts: Result<Vec<String>, _> = page.iter().map(serde_json::to_string).collect();
            write(&texts.map_err(invalid)?.join(","))?;
        }
    }
}
