//! Downloads attachments of messages and uploads files of replies.

use std::sync::Arc;
use std::time::Duration;

use hermes_session::{ExportPolicy, ToolContext};
use hermes_store::ImageError;
use hermes_types::{Image, ImageKind, Person, SessionKey};
use serde_json::json;
use tempfile::TempPath;
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;

use crate::channel::{AttachmentFile, FetchError};
use crate::context::GatewayContext;
use crate::error::Error;
use crate::media::{self, UniqueNames};
use crate::media_cache::keep_copy;
use crate::message::{Attachment, InboundMessage};

/// Files per message or reply.
const MAX_FILES: usize = 10;
const MAX_TOTAL_BYTES: u64 = 512 << 20;
const DOWNLOAD_TIMEOUT: Duration = Duration::from_secs(600);
const MAX_MEDIA_TYPE_LEN: usize = 80;

/// The downloaded attachments of a message.
#[derive(Debug, Default)]
pub(super) struct Downloaded {
    /// One line per file for the model.
    pub(super) descriptions: Vec<String>,
    pub(super) images: Vec<Image>,
}

/// Downloads the attachments into the session's environment. Failures become lines too: a file
/// never prevents the text from being answered.
pub(super) async fn download(
    context: &GatewayContext,
    tools: &ToolContext,
    message: &InboundMessage,
    stop: &CancellationToken,
) -> Downloaded {
    let (mut names, mut came, mut left) = (UniqueNames::default(), Downloaded::default(), MAX_TOTAL_BYTES);
    let end = Instant::now() + DOWNLOAD_TIMEOUT;
    for file in message.attachments.iter().take(MAX_FILES) {
        let name = names.assign(&file.name);
        // Message ids are unique per chat only, and chats may share an environment.
        let [chat, message] = [&message.chat.id, &message.id].map(|part| media::safe_name(part));
        let below = format!("{chat}/{message}/{name}");
        let fetched = tokio::select! {
            fetched = timeout_at(end, download_one(context, tools, file, &below, left, stop)) => fetched,
            () = stop.cancelled() => Ok(Err(Error::Stopped)),
        };
        came.descriptions.push(match fetched.unwrap_or(Err(Error::TimedOut)) {
            Ok((size, path, image)) => {
                left = left.saturating_sub(size);
                let kind = image.as_ref().map(|image| image.kind).map(ImageKind::media_type);
                let kind = kind.or(media_type(file)).map(|kind| format!(", {kind}")).unwrap_or_default();
                came.images.extend(image);
                format!("[file {name}: {size} bytes{kind}, at {path}]")
            }
            Err(reason) => format!("[file {name} could not be downloaded: {reason}]"),
        });
    }
    let more = message.attachments.len().saturating_sub(MAX_FILES);
    if more > 0 {
        came.descriptions
            .push(format!("[{more} more files were not downloaded: the limit is {MAX_FILES} per message]"));
    }
    came
}

/// Downloads one file. Returns its size, its path in the environment, and the image if it is one.
async fn download_one(
    context: &GatewayContext,
    tools: &ToolContext,
    file: &Attachment,
    below: &str,
    most: u64,
    stop: &CancellationToken,
) -> Result<(u64, String, Option<Image>), Error> {
    let copy = context.media.create_incoming().map_err(Error::SaveFile)?;
    let size = context.channel.download_attachment(file, &copy, most).await.map_err(|error| match error {
        FetchError::TooLarge(most) if file.size > most => {
            Error::AttachmentTooLarge { size: file.size, limit: most }
        }
        error => Error::Fetch(error),
    })?;
    let path = tools.import_file(&copy, below, stop, &|_| {}).await?;
    let image = match context.media.images.add(&copy).await {
        Ok(image) => Some(image),
        Err(ImageError::NotAnImage | ImageError::TooLarge(_)) => None,
        Err(ImageError::Io(error)) => {
            tracing::warn!(%error, "cannot store image");
            None
        }
    };
    Ok((size, path, image))
}

/// The media type, if it is well-formed.
fn media_type(file: &Attachment) -> Option<&str> {
    let kind = file.media_type.as_deref()?;
    let is_plain = |char: char| char.is_ascii_alphanumeric() || "/.+-;= ".contains(char);
    (kind.len() <= MAX_MEDIA_TYPE_LEN && kind.chars().all(is_plain)).then_some(kind)
}

/// A reply without media tags, and the files they name.
#[derive(Debug, Default)]
pub(super) struct ReplyContent {
    pub(super) text: String,
    pub(super) files: Vec<(AttachmentFile, u64)>,
    /// Notes about files that cannot be uploaded.
    pub(super) unsent: Vec<String>,
}

/// Copies the files of a reply out of the environment.
pub(super) struct Uploader {
    pub(super) tools: Arc<ToolContext>,
    pub(super) stop: CancellationToken,
    pub(super) person: Person,
}

impl Uploader {
    /// Copies the named files now, so that they can be uploaded whatever happens to the
    /// environment.
    pub(super) async fn collect(
        &self,
        context: &GatewayContext,
        key: &SessionKey,
        text: &str,
    ) -> ReplyContent {
        let (words, paths) = media::extract_media_tags(text);
        let (mut names, mut copies, mut unsent) = (UniqueNames::default(), Vec::new(), Vec::new());
        for path in paths {
            let taken = match copies.len() {
                MAX_FILES.. => Err(Error::TooManyFiles(MAX_FILES)),
                _ => self.copy_out(context, &path).await,
            };
            match taken {
                Ok((copy, size)) => {
                    let entry = json!({ "person": self.person, "session": key, "file": path, "size": size });
                    context.audit.record("send", &entry);
                    copies.push((names.assign(&path), copy, size));
                }
                Err(reason) => unsent.push(format!("could not send {}: {reason}", media::safe_name(&path))),
            }
        }
        let files = copies.into_iter();
        let files =
            files.map(|(name, copy, size)| (AttachmentFile { name, path: keep_copy(copy) }, size)).collect();
        ReplyContent { text: words, files, unsent }
    }

    async fn copy_out(&self, context: &GatewayContext, path: &str) -> Result<(TempPath, u64), Error> {
        let (copy, mut into) = context.media.create_outgoing().map_err(Error::CopyFile)?;
        let takeable = ExportPolicy {
            extra_roots: &context.settings.media.extra_roots,
            max_bytes: context.channel.capabilities().max_file_bytes,
        };
        match self.tools.export_file(path, &mut into, takeable, &self.stop, &|_| {}).await {
            Ok(0) => Err(Error::EmptyFile),
            Ok(size) => Ok((copy, size)),
            Err(error) => Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_malformed_media_type_is_dropped() {
        let file = |kind: &str| Attachment {
            name: String::new(),
            size: 0,
            media_type: Some(kind.to_owned()),
            source: String::new(),
        };
        let plain = file("text/plain; charset=utf-8");
        assert_eq!(media_type(&plain), Some("text/plain; charset=utf-8"));
        for kind in ["a]\n[file x", "a\u{202e}b", &"a".repeat(100)] {
            assert_eq!(media_type(&file(kind)), None, "{kind}");
        }
    }
}
