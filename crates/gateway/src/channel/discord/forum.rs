//! Forum and media channels, where a message creates a post, which is a thread.

use serde_json::{Value, json};
use twilight_model::id::Id;
use twilight_model::id::marker::ChannelMarker;

use super::channels::{ChannelInfo, ThreadList};
use super::outbound::AUTO_ARCHIVE_MINUTES;
use super::payload::CreatedObject;
use super::rest::{ApiError, ApiRequest};
use super::{Discord, text};
use crate::channel::OutboundMessage;

impl Discord {
    /// Creates a post. The thread has the id of its first message.
    pub(super) async fn create_post(
        &self,
        forum: Id<ChannelMarker>,
        post: &OutboundMessage,
        message: Value,
    ) -> Result<String, ApiError> {
        let name = text::post_title(&post.text);
        let body = json!({"name": name, "auto_archive_duration": AUTO_ARCHIVE_MINUTES, "message": message});
        let call = ApiRequest::post(format!("channels/{forum}/threads"), body).with_files(post.files.clone());
        let made: CreatedObject = self.rest.fetch(&call).await?;
        let thread = made.id.to_string();
        self.record_joined_thread(&thread);
        Ok(thread)
    }

    /// Our posts with this title and a later id; `None` if unknown.
    pub(super) async fn find_posts(
        &self,
        forum: Id<ChannelMarker>,
        post: &OutboundMessage,
        after: u64,
    ) -> Option<Vec<String>> {
        let me = self.identity()?;
        let guild = self.cached_channel(forum)?.guild_id?;
        let title = text::post_title(&post.text);
        let call = ApiRequest::get(format!("guilds/{guild}/threads/active"));
        let active: ThreadList = match self.rest.fetch(&call).await {
            Ok(active) => active,
            Err(error) => {
                tracing::debug!(%error, "cannot list threads");
                return None;
            }
        };
        let is_like = |thread: &ChannelInfo| {
            thread.parent_id == Some(forum)
                && thread.owner_id.as_ref() == Some(&me.user)
                && thread.name.as_ref() == Some(&title)
                && thread.id.get() > after
        };
        let mut like: Vec<Id<ChannelMarker>> =
            active.threads.into_iter().filter(is_like).map(|thread| thread.id).collect();
        like.sort_unstable();
        Some(like.iter().map(ToString::to_string).collect())
    }
}
