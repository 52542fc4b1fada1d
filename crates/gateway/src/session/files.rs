//! Files that come with letters, and files that go with answers.

use std::sync::Arc;
use std::time::Duration;

use hermes_agent::{ExportPolicy, ToolContext, Unkept};
use hermes_types::{Image, ImageKind, Person, SessionKey};
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;

use crate::channel::{Enclosure, Unfetched};
use crate::depot::Held;
use crate::gateway::Shared;
use crate::letter::{Attachment, Letter};
use crate::media::{self, Names};

/// Files of one letter that are taken, or of one answer that are sent.
const MOST: usize = 10;
/// Bytes of all files of one letter.
const TOGETHER: u64 = 512 << 20;
/// How long all files of one letter may take.
const PATIENCE: Duration = Duration::from_secs(600);
/// The longest word for what a file is.
const MEDIA_TYPE: usize = 80;

/// What became of the files of a letter.
#[derive(Debug, Default)]
pub(super) struct Came {
    /// A line about each for the model.
    pub(super) lines: Vec<String>,
    /// Those that are pictures.
    pub(super) images: Vec<Image>,
}

/// Fetches the files of a letter into the place of its session. There is a line also about those that cannot be had: nothing
/// about a file keeps the words from being answered.
pub(super) async fn come(
    shared: &Shared,
    hands: &ToolContext,
    letter: &Letter,
    stop: &CancellationToken,
) -> Came {
    let (mut names, mut came, mut left) = (Names::default(), Came::default(), TOGETHER);
    let end = Instant::now() + PATIENCE;
    for file in letter.files.iter().take(MOST) {
        let name = names.give(&file.name);
        // A message has its name in its chat only, and chats may share a place.
        let [chat, message] = [&letter.room.chat, &letter.message].map(|part| media::safe_name(part));
        let below = format!("{chat}/{message}/{name}");
        let fetched = tokio::select! {
            fetched = timeout_at(end, fetch(shared, hands, file, &below, left, stop)) => fetched,
            () = stop.cancelled() => Ok(Err("somebody ended this".to_owned())),
        };
        came.lines.push(match fetched.unwrap_or_else(|_| Err("it takes too long".to_owned())) {
            Ok((size, path, image)) => {
                left = left.saturating_sub(size);
                let kind = image.as_ref().map(|image| image.kind).map(ImageKind::media_type);
                let kind = kind.or(media_type(file)).map(|kind| format!(", {kind}")).unwrap_or_default();
                came.images.extend(image);
                format!("[file {name}: {size} bytes{kind}, at {path}]")
            }
            Err(why) => format!("[file {name} was not fetched: {why}]"),
        });
    }
    let more = letter.files.len().saturating_sub(MOST);
    if more > 0 {
        came.lines.push(format!("[{more} more files were not fetched: at most {MOST} of one message are]"));
    }
    came
}

/// Fetches one file. Gives its size, its path in the place, and the picture if it is one.
async fn fetch(
    shared: &Shared,
    hands: &ToolContext,
    file: &Attachment,
    below: &str,
    most: u64,
    stop: &CancellationToken,
) -> Result<(u64, String, Option<Image>), String> {
    let copy = shared.depot.incoming().map_err(|error| format!("it cannot be kept: {error}"))?;
    let size = shared.channel.fetch(file, copy.path(), most).await.map_err(|error| match error {
        Unfetched::TooLarge(most) if file.size > most => {
            format!("it is too large: {} bytes, at most {most} are taken", file.size)
        }
        error => error.to_string(),
    })?;
    let path =
        hands.import_file(copy.path(), below, stop, &|_| {}).await.map_err(|error| error.to_string())?;
    let image = match shared.depot.album.keep(copy.path()).await {
        Ok(image) => Some(image),
        Err(Unkept::NoPicture | Unkept::TooLarge(_)) => None,
        Err(Unkept::Io(error)) => {
            tracing::warn!(%error, "a picture cannot be kept");
            None
        }
    };
    Ok((size, path, image))
}

/// What the platform says a file is, if that looks like it.
fn media_type(file: &Attachment) -> Option<&str> {
    let kind = file.media_type.as_deref()?;
    let is_plain = |char: char| char.is_ascii_alphanumeric() || "/.+-;= ".contains(char);
    (kind.len() <= MEDIA_TYPE && kind.chars().all(is_plain)).then_some(kind)
}

/// An answer without the tags in it, and with the files they name.
#[derive(Debug, Default)]
pub(super) struct Answer {
    /// The words.
    pub(super) words: String,
    /// Copies of the files, and their sizes.
    pub(super) files: Vec<(Enclosure, u64)>,
    /// What is said about files that are not sent.
    pub(super) unsent: Vec<String>,
}

/// Carries the files of an answer out of a place.
pub(super) struct Carrier {
    pub(super) hands: Arc<ToolContext>,
    /// Ends it.
    pub(super) stop: CancellationToken,
    /// Who is answered.
    pub(super) person: Person,
}

impl Carrier {
    /// Copies the files that an answer names out of the place, so that they can be sent whatever happens next.
    pub(super) async fn go(&self, shared: &Shared, key: &SessionKey, text: &str) -> Answer {
        let (words, paths) = media::tags(text);
        let (mut names, mut copies, mut unsent) = (Names::default(), Vec::new(), Vec::new());
        for path in paths {
            let taken = match copies.len() {
                MOST.. => Err(format!("at most {MOST} files are sent with an answer")),
                _ => self.take(shared, &path).await,
            };
            match taken {
                Ok((copy, size)) => {
                    shared.sends(key, &self.person, &path, size);
                    copies.push((names.give(&path), copy, size));
                }
                Err(why) => unsent.push(format!("{} was not sent: {why}", media::safe_name(&path))),
            }
        }
        let files = copies.into_iter();
        let files = files.map(|(name, copy, size)| (Enclosure { name, path: copy.leave() }, size)).collect();
        Answer { words, files, unsent }
    }

    /// Copies one file out of the place.
    async fn take(&self, shared: &Shared, path: &str) -> Result<(Held, u64), String> {
        let (copy, mut into) =
            shared.depot.outgoing().map_err(|error| format!("it cannot be copied: {error}"))?;
        let takeable =
            ExportPolicy { extra_roots: &shared.besides, max_bytes: shared.channel.manners().largest_file };
        match self.hands.export_file(path, &mut into, takeable, &self.stop, &|_| {}).await {
            Ok(0) => Err("it is empty".to_owned()),
            Ok(size) => Ok((copy, size)),
            Err(why) => Err(why.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_file_is_said_to_be_stays_a_word() {
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
