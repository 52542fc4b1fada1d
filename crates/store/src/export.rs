//! Sessions as JSON Lines, a piece at a time: a conversation may be larger than memory should be.

use serde_json::Value;

use crate::error::{Error, Fault};
use crate::history::Which;
use crate::message::Seq;
use crate::session::{Session, SessionId};
use crate::store::Store;

/// Messages that are read at once, at most.
const PAGE: usize = 200;

/// One session on its way out. [`Export::next`] gives the pieces of one line.
#[derive(Debug)]
pub struct Export {
    store: Store,
    session: SessionId,
    stage: Stage,
}

#[derive(Debug)]
enum Stage {
    Head(Box<Session>),
    Messages { after: Seq, is_first: bool },
    Over,
}

impl Store {
    /// Begins to export a session: all that is known of it, and all its messages, those taken back marked.
    pub async fn export(&self, session: &SessionId) -> Result<Export, Error> {
        let head = self.session(session).await?;
        Ok(Export { store: self.clone(), session: session.clone(), stage: Stage::Head(Box::new(head)) })
    }
}

impl Export {
    /// The next piece of text; `None` after the end of the line.
    pub async fn next(&mut self) -> Result<Option<String>, Error> {
        match &self.stage {
            Stage::Over => Ok(None),
            Stage::Head(head) => {
                let prompt = self.store.prompt(&self.session).await?;
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
                self.stage = Stage::Messages { after: Seq::START, is_first: true };
                Ok(Some(line))
            }
            &Stage::Messages { after, is_first } => {
                let page = self.store.messages(&self.session, Which::All, after, PAGE).await?;
                let Some(last) = page.last() else {
                    self.stage = Stage::Over;
                    return Ok(Some("]}\n".to_owned()));
                };
                self.stage = Stage::Messages { after: last.seq, is_first: false };
                let texts: Result<Vec<String>, _> = page.iter().map(serde_json::to_string).collect();
                let joined = self.text(texts.map(|texts| texts.join(",")))?;
                Ok(Some(if is_first { joined } else { format!(",{joined}") }))
            }
        }
    }

    fn text(&self, text: serde_json::Result<String>) -> Result<String, Error> {
        text.map_err(|error| Fault::Damaged(error.to_string()).at(self.store.path()))
    }
}
