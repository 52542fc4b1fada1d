//! Selects the images of a conversation that a server is sent, and drops some when it rejects them.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::{mem, ptr};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hermes_types::{Digest, Image, Message};
use tokio::task::spawn_blocking;

use crate::endpoint::{Api, Endpoint};
use crate::error::FailureClass;

/// Anthropic's limit for one image: 5 MiB in base64.
const MAX_ANTHROPIC_IMAGE_BYTES: u64 = (5 << 20) / 4 * 3;
/// The images of more than this and of at most twice as many messages are sent. The images of
/// several messages are dropped at once, because a provider's cache misses everything after a
/// dropped image.
const MESSAGES_PER_STEP: usize = 4;
/// The approximate cost of one image.
pub(crate) const TOKENS_PER_IMAGE: usize = 1_500;
const MAX_REMEMBERED_IMAGES: usize = 256;

/// Loads the bytes of an image, or none if they are gone.
pub(crate) type ImageLoader = Arc<dyn Fn(&Image) -> Option<Vec<u8>> + Send + Sync>;

/// How images are sent to a model.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ImageMode {
    /// Never; the message names the files.
    #[default]
    Text,
    /// Unless its server rejects them; then the request is repeated without them.
    Auto,
    /// Always.
    Native,
}

/// The facts known about a server's support for images.
#[derive(Debug, Default)]
pub(crate) struct VisionState {
    /// The server said that it does not accept images, and it never accepted one.
    unsupported: bool,
    /// The last images that it accepted.
    accepted: VecDeque<Digest>,
    /// The last images that it is not sent again.
    rejected: VecDeque<Digest>,
}

impl VisionState {
    fn may_send(&self, image: &Image) -> bool {
        !self.unsupported && !self.rejected.contains(&image.sha256)
    }

    /// Remembers the images that were sent and dropped, once there is a reply. Older images that
    /// were dropped for it are not sent again. If the newest ones had to be dropped too, they alone
    /// may be the cause: an image that was accepted before is sent again.
    pub(crate) fn record(&mut self, selection: &ImageSelection<'_>) {
        let sent_none = selection.images.is_empty();
        self.unsupported |= sent_none && selection.server_lacks_support && self.accepted.is_empty();
        let was_accepted = |image: &Image| {
            if sent_none {
                self.accepted.contains(&image.sha256)
            } else {
                selection.images.iter().any(|sent| sent.sha256 == image.sha256)
            }
        };
        let older = selection.dropped_older.iter().filter(|image| !was_accepted(image));
        selection.dropped_newest.iter().chain(older).for_each(|image| remember(&mut self.rejected, image));
        selection.images.iter().for_each(|image| remember(&mut self.accepted, image));
    }
}

/// Adds an image to a list and forgets the oldest one if the list is full.
fn remember(known: &mut VecDeque<Digest>, image: &Image) {
    known.retain(|digest| *digest != image.sha256);
    known.push_back(image.sha256.clone());
    if known.len() > MAX_REMEMBERED_IMAGES {
        known.pop_front();
    }
}

/// The images that a server is sent in one call.
pub(crate) struct ImageSelection<'a> {
    messages: &'a [Message],
    /// The images to send, those of the newest message first.
    images: Vec<&'a Image>,
    dropped_older: Vec<&'a Image>,
    /// The dropped images of the newest message.
    dropped_newest: Vec<&'a Image>,
    /// The server said that it does not accept images.
    server_lacks_support: bool,
}

impl<'a> ImageSelection<'a> {
    /// Selects all images that this server accepts.
    pub(crate) fn new(endpoint: &Endpoint, messages: &'a [Message], vision: &VisionState) -> Self {
        let max_bytes = match endpoint.api {
            Api::AnthropicMessages => MAX_ANTHROPIC_IMAGE_BYTES,
            Api::ChatCompletions | Api::Responses | Api::OllamaChat => Image::MAX_BYTES,
        };
        let mut bytes_left = Image::MAX_BYTES;
        let allowed =
            recent_images(messages).filter(|image| image.size <= max_bytes && vision.may_send(image));
        let fitting = allowed.map_while(|image| {
            bytes_left = bytes_left.checked_sub(image.size)?;
            Some(image)
        });
        Self {
            messages,
            images: fitting.collect(),
            dropped_older: Vec::new(),
            dropped_newest: Vec::new(),
            server_lacks_support: false,
        }
    }

    /// Loads the selected images and deselects those whose bytes are gone.
    pub(crate) async fn load(&mut self, mode: ImageMode, loader: &ImageLoader) -> LoadedImages<'a> {
        if mode == ImageMode::Text {
            self.images.clear();
        }
        let images = LoadedImages::load(&self.images, loader).await;
        self.images.clone_from(&images.positions);
        images
    }

    /// Drops the images that may have been rejected: all but those of the newest message, or else
    /// these. Returns false if there was none to drop.
    pub(crate) fn drop_some(&mut self, class: FailureClass) -> bool {
        if self.images.is_empty() {
            return false;
        }
        self.server_lacks_support = class == FailureClass::ImagesUnsupported;
        match self.split_newest() {
            (newest, older) if older.is_empty() => (self.dropped_newest, self.images) = (newest, older),
            split => (self.images, self.dropped_older) = split,
        }
        true
    }

    /// Drops all images and holds those of the newest message responsible. Returns false if there
    /// was none to drop.
    pub(crate) fn drop_all(&mut self) -> bool {
        (self.dropped_newest, _) = self.split_newest();
        self.server_lacks_support = false;
        !mem::take(&mut self.images).is_empty()
    }

    /// The selected images of the newest message that has any, and all others.
    fn split_newest(&self) -> (Vec<&'a Image>, Vec<&'a Image>) {
        let mut lists = self.messages.iter().rev().map(Message::images);
        let has_selected = |list: &&[Image]| list.iter().any(|image| contains_position(&self.images, image));
        let newest = lists.find(has_selected).unwrap_or_default();
        self.images.iter().partition(|image| newest.iter().any(|one| ptr::eq(one, **image)))
    }
}

/// Images in base64.
#[derive(Clone, Default)]
pub(crate) struct LoadedImages<'a> {
    /// Those whose bytes are present, each at its position in the conversation.
    positions: Vec<&'a Image>,
    data: BTreeMap<Digest, String>,
}

impl<'a> LoadedImages<'a> {
    pub(crate) async fn load(images: &[&'a Image], loader: &ImageLoader) -> Self {
        if images.is_empty() {
            return Self::default();
        }
        let unique: BTreeMap<Digest, Image> =
            images.iter().map(|image| (image.sha256.clone(), (*image).clone())).collect();
        let loader = Arc::clone(loader);
        let read = move || {
            let encode = |(digest, image)| Some((digest, STANDARD.encode(loader(&image)?)));
            unique.into_iter().filter_map(encode).collect()
        };
        let data: BTreeMap<Digest, String> = spawn_blocking(read).await.unwrap_or_default();
        let positions = images.iter().copied().filter(|image| data.contains_key(&image.sha256)).collect();
        Self { positions, data }
    }

    /// The media types and the base64 of those of these images that are sent.
    pub(crate) fn select(&self, images: &[&Image]) -> Vec<(&'static str, &str)> {
        let sent = images.iter().filter(|image| contains_position(&self.positions, image));
        sent.filter_map(|image| Some((image.kind.media_type(), self.data.get(&image.sha256)?.as_str())))
            .collect()
    }
}

/// Whether the list has this position of the conversation: the same image may be in many messages.
fn contains_position(images: &[&Image], image: &Image) -> bool {
    images.iter().any(|one| ptr::eq(*one, image))
}

/// The images of a conversation that may be sent, those of the newest message first.
pub(crate) fn recent_images(messages: &[Message]) -> impl Iterator<Item = &Image> {
    let lists = messages.iter().rev().map(Message::images).filter(|images| !images.is_empty());
    let count = lists.clone().count();
    let dropped = (count.saturating_sub(1) / MESSAGES_PER_STEP).saturating_sub(1) * MESSAGES_PER_STEP;
    lists.take(count - dropped).flatten()
}

#[cfg(test)]
mod tests {
    use hermes_types::ImageKind;

    use super::*;

    fn image(number: u16, size: u64) -> Image {
        let mut bytes = [0; 32];
        bytes[..2].copy_from_slice(&number.to_be_bytes());
        Image { sha256: Digest::new(bytes), kind: ImageKind::Gif, size }
    }

    fn user_message(images: Vec<Image>) -> Message {
        Message::User { text: String::new(), images }
    }

    /// A message for each image, and one without after it.
    fn messages(numbers: impl IntoIterator<Item = u16>) -> Vec<Message> {
        numbers
            .into_iter()
            .flat_map(|number| [user_message(vec![image(number, 1)]), Message::user("more")])
            .collect()
    }

    fn at(api: Api) -> Endpoint {
        Endpoint::new("x", api, "http://h/v1".parse().unwrap(), "m")
    }

    fn selected(api: Api, messages: &[Message], vision: &VisionState) -> Vec<Image> {
        ImageSelection::new(&at(api), messages, vision).images.into_iter().cloned().collect()
    }

    fn small(numbers: &[u16]) -> Vec<Image> {
        numbers.iter().map(|number| image(*number, 1)).collect()
    }

    #[test]
    fn only_recent_images_that_fit_are_selected() {
        let (chat, claude, vision) = (Api::ChatCompletions, Api::AnthropicMessages, VisionState::default());
        let many = messages(0..10);
        assert_eq!(selected(chat, &many, &vision), small(&[9, 8, 7, 6, 5, 4]));
        let rejected = VisionState { rejected: [image(8, 1).sha256].into(), ..VisionState::default() };
        assert_eq!(selected(chat, &many, &rejected), small(&[9, 7, 6, 5, 4]));
        let unsupported = VisionState { unsupported: true, ..VisionState::default() };
        assert_eq!(selected(chat, &many, &unsupported), []);
        let large = [
            user_message(vec![image(1, Image::MAX_BYTES)]),
            user_message(vec![image(2, 4 << 20), image(3, 1)]),
        ];
        assert_eq!(selected(chat, &large, &vision), [image(2, 4 << 20), image(3, 1)]);
        assert_eq!(selected(claude, &large, &vision), [image(3, 1)]);
        let half = image(1, Image::MAX_BYTES / 2);
        assert_eq!(selected(chat, &[user_message(vec![half.clone(); 10])], &vision), [half.clone(), half]);
    }

    #[test]
    fn the_oldest_images_are_dropped_four_messages_at_a_time() {
        let first =
            |count| selected(Api::ChatCompletions, &messages(0..count), &VisionState::default()).pop();
        for (counts, oldest) in [(1..=8, 0), (9..=12, 4), (13..=16, 8), (17..=20, 12)] {
            for count in counts {
                assert_eq!(first(count), Some(image(oldest, 1)), "{count}");
            }
        }
    }

    #[test]
    fn the_oldest_rejection_is_forgotten_first() {
        let mut vision = VisionState::default();
        let most = u16::try_from(MAX_REMEMBERED_IMAGES).unwrap();
        for number in (0..=most).rev() {
            let messages = messages([number]);
            let mut selection = ImageSelection::new(&at(Api::ChatCompletions), &messages, &vision);
            assert!(selection.drop_some(FailureClass::Format));
            vision.record(&selection);
        }
        let rejected = |number| !vision.may_send(&image(number, 1));
        assert_eq!([rejected(0), rejected(most - 1), rejected(most)], [true, true, false]);
    }

    #[test]
    fn images_can_be_dropped_until_none_is_left() {
        let messages = messages([1, 2, 3]);
        let mut selection =
            ImageSelection::new(&at(Api::ChatCompletions), &messages, &VisionState::default());
        let left: Vec<usize> = (0..5)
            .map_while(|_| selection.drop_some(FailureClass::Format).then_some(selection.images.len()))
            .collect();
        assert_eq!(left, [1, 0]);
        assert!(!selection.drop_all());
    }
}
