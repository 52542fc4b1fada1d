//! Export of sessions as JSON Lines, in chunks: a session may not fit into memory.

use serde_json::Value;

use crate::error::{Error, QueryError};
use crate::history::MessageFilter;
use crate::message::Seq;
use crate::session::{SessionId, SessionRow};
use crate::store::Store;

const PAGE_MESSAGES: usize = 200;

/// An export in progress. [`Export::next`] returns the chunks of one line.
#[derive(Debug)]
pub struct Export {
    store: Store,
    session: SessionId,
    state: ExportState,
}

#[derive(Debug)]
enum ExportState {
    Head(Box<SessionRow>),
    Messages { after: Seq, is_first: bool },
    Done,
}

impl Store {
    /// Starts to export a session: its metadata and all its messages, undone ones marked.
    pub async fn export(&self, session: &SessionId) -> Result<Export, Error> {
        let head = self.session(session).await?;
        Ok(Export { store: self.clone(), session: session.clone(), state: ExportState::Head(Box::new(head)) })
    }
}

impl Export {
    /// The next chunk; `None` after the end of the line.
    pub async fn next(&mut self) -> Result<Option<String>, Error> {
        match &self.state {
            ExportState::Done => Ok(None),
            ExportState::Head(head) => {
                let prompt = self.store.session_prompt(&self.session).await?;
                let mut line = self.text(serde_json::to_value(head).map(|mut head| {
                    head["system_prompt"] = Value::from(prompt.text);
                    head["tools"] = Value::from(prompt.tools);
                    head["message_count"] = head["messages"].take();
                    if let Value::Object(fields) = &mut head {
                        fields.shift_remove("messages");
                    }
                    head.to_string()
                }))?;
                line.truncate(line.len().saturating_sub(1));
                line.push_str(",\"messages\":[");
                self.state = ExportState::Messages { after: Seq::START, is_first: true };
                Ok(Some(line))
            }
            &ExportState::Messages { after, is_first } => {
                let page =
                    self.store.messages(&self.session, MessageFilter::All, after, PAGE_MESSAGES).await?;
                let Some(last) = page.last() else {
                    self.state = ExportState::Done;
                    return Ok(Some("]}\n".to_owned()));
                };
                self.state = ExportState::Messages { after: last.seq, is_first: false };
                let texts: Result<Vec<String>, _> = page.iter().map(serde_json::to_string).collect();
                let joined = self.text(texts.map(|texts| texts.join(",")))?;
                Ok(Some(if is_first { joined } else { format!(",{joined}") }))
            }
        }
    }

    fn text(&self, text: serde_json::Result<String>) -> Result<String, Error> {
        text.map_err(|error| QueryError::Corrupt(error.to_string()).into_error(self.store.path()))
    }
}
