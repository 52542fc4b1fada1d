//! Forums and media channels: a message to one of them begins a thread there, which is a post.

use serde::Deserialize;
use serde_json::{Value, json};
use twilight_model::id::Id;
use twilight_model::id::marker::ChannelMarker;

use super::payload::Made;
use super::places::Known;
use super::post::ARCHIVE;
use super::rest::{Call, Fault};
use super::{Account, lock, text};
use crate::channel::Post;

/// The threads of a server that are open.
#[derive(Debug, Deserialize)]
struct Active {
    threads: Vec<Open>,
}

#[derive(Debug, Deserialize)]
struct Open {
    id: Id<ChannelMarker>,
    name: String,
    #[serde(default)]
    owner_id: Option<String>,
    #[serde(default)]
    parent_id: Option<Id<ChannelMarker>>,
}

impl Account {
    /// Whether only threads can be in a channel, as far as is known.
    pub(super) fn is_forum(&self, channel: Id<ChannelMarker>) -> bool {
        lock(&self.places).get(channel).is_some_and(Known::is_forum)
    }

    /// Begins a post. Its first message has the id of its thread.
    pub(super) async fn begin_post(
        &self,
        forum: Id<ChannelMarker>,
        post: &Post,
        message: Value,
    ) -> Result<String, Fault> {
        let name = text::title(&post.text);
        let body = json!({"name": name, "auto_archive_duration": ARCHIVE, "message": message});
        let call = Call::post(format!("channels/{forum}/threads"), body).with_files(post.named_files());
        let made: Made = self.rest.ask(&call).await?;
        let thread = made.id.to_string();
        self.join(&thread);
        Ok(thread)
    }

    /// The posts of ours in a forum that have the title of a message and are later than an id. Nothing where the platform
    /// does not say.
    pub(super) async fn posts_like(
        &self,
        forum: Id<ChannelMarker>,
        post: &Post,
        after: u64,
    ) -> Option<Vec<String>> {
        let me = self.me()?;
        let guild = lock(&self.places).get(forum)?.guild()?;
        let title = text::title(&post.text);
        let call = Call::get(format!("guilds/{guild}/threads/active"));
        let active: Active = match self.rest.ask(&call).await {
            Ok(active) => active,
            Err(fault) => {
                tracing::debug!(why = fault.why(), "threads of Discord could not be looked at");
                return None;
            }
        };
        let is_like = |thread: &Open| {
            thread.parent_id == Some(forum)
                && thread.owner_id.as_ref() == Some(&me.user)
                && thread.name == title
                && thread.id.get() > after
        };
        let mut like: Vec<Id<ChannelMarker>> =
            active.threads.into_iter().filter(is_like).map(|thread| thread.id).collect();
        like.sort_unstable();
        Some(like.iter().map(ToString::to_string).collect())
    }
}
