//! Which pictures of a conversation a server is shown, and what it is spared to get an answer.

use std::collections::VecDeque;
use std::{mem, ptr};

use hermes_types::{Digest, Image, Message};

use crate::album::{LARGEST, Pictures, Sight};
use crate::endpoint::{Api, Endpoint};
use crate::error::Class;

/// The largest picture for Anthropic, which counts 5 MiB in base64.
const LARGEST_AT_ANTHROPIC: u64 = (5 << 20) / 4 * 3;
/// The pictures of more than this and of at most twice as many messages are sent. So many are left out at once: all that
/// comes after a picture that is left out is new to a provider's cache.
const STEP: usize = 4;
/// About what a picture costs.
pub(crate) const TOKENS: usize = 1_500;
/// How many pictures are remembered of a server.
const MOST_REMEMBERED: usize = 256;

/// What is known of a server's eyes.
#[derive(Debug, Default)]
pub(crate) struct Eyes {
    /// It said that it takes no pictures, and never took any.
    is_blind: bool,
    /// The last pictures that it took.
    taken: VecDeque<Digest>,
    /// The last pictures that it is not shown again.
    unseen: VecDeque<Digest>,
}

impl Eyes {
    fn may_see(&self, image: &Image) -> bool {
        !self.is_blind && !self.unseen.contains(&image.sha256)
    }

    /// Remembers what came of showing pictures, once there is an answer. Older ones that were left out to get it are not shown
    /// again. If the newest ones had to be left out as well, it may have been these alone: what was once taken is good.
    pub(crate) fn learn(&mut self, view: &View<'_>) {
        let is_without = view.images.is_empty();
        self.is_blind |= is_without && view.is_told && self.taken.is_empty();
        let is_good = |image: &Image| match is_without {
            true => self.taken.contains(&image.sha256),
            false => view.images.iter().any(|taken| taken.sha256 == image.sha256),
        };
        let older = view.older.iter().filter(|image| !is_good(image));
        view.newest.iter().chain(older).for_each(|image| note(&mut self.unseen, image));
        view.images.iter().for_each(|image| note(&mut self.taken, image));
    }
}

/// Remembers a picture; the one that was noted first is forgotten first.
fn note(known: &mut VecDeque<Digest>, image: &Image) {
    known.retain(|digest| *digest != image.sha256);
    known.push_back(image.sha256.clone());
    if known.len() > MOST_REMEMBERED {
        known.pop_front();
    }
}

/// What a server is shown of a conversation while it is asked one thing.
#[derive(Debug)]
pub(crate) struct View<'a> {
    messages: &'a [Message],
    /// What is shown, the newest message first.
    images: Vec<&'a Image>,
    /// Those of older messages that were left out.
    older: Vec<&'a Image>,
    /// Those of the newest message that were left out.
    newest: Vec<&'a Image>,
    /// The server said that it takes no pictures.
    is_told: bool,
}

impl<'a> View<'a> {
    /// All that this server takes.
    pub(crate) fn new(endpoint: &Endpoint, messages: &'a [Message], eyes: &Eyes) -> Self {
        let most = match endpoint.api {
            Api::AnthropicMessages => LARGEST_AT_ANTHROPIC,
            Api::ChatCompletions | Api::Responses => LARGEST,
        };
        let mut left = LARGEST;
        let seen = recent(messages).filter(|image| image.size <= most && eyes.may_see(image));
        let fitting = seen.map_while(|image| {
            left = left.checked_sub(image.size)?;
            Some(image)
        });
        let images = fitting.collect();
        Self { messages, images, older: Vec::new(), newest: Vec::new(), is_told: false }
    }

    /// The bytes of what is shown. A picture whose bytes are gone is not shown.
    pub(crate) async fn load(&mut self, sight: &Sight) -> Pictures<'a> {
        let pictures = sight.load(&self.images).await;
        self.images.clone_from(&pictures.shown);
        pictures
    }

    /// Leaves out what may have been refused: all but the pictures of the newest message, or else these. False if none is shown.
    pub(crate) fn narrow(&mut self, class: Class) -> bool {
        if self.images.is_empty() {
            return false;
        }
        self.is_told = class == Class::ImagesUnsupported;
        match self.split() {
            (newest, older) if older.is_empty() => (self.newest, self.images) = (newest, older),
            split => (self.images, self.older) = split,
        }
        true
    }

    /// Leaves out everything, and blames the newest message. False if none is shown.
    pub(crate) fn close(&mut self) -> bool {
        (self.newest, _) = self.split();
        self.is_told = false;
        !mem::take(&mut self.images).is_empty()
    }

    /// Those of the newest message that any is shown of, and the others.
    fn split(&self) -> (Vec<&'a Image>, Vec<&'a Image>) {
        let mut lists = self.messages.iter().rev().map(Message::images);
        let newest = lists.find(|list| list.iter().any(|image| has(&self.images, image))).unwrap_or_default();
        self.images.iter().partition(|image| newest.iter().any(|one| ptr::eq(one, **image)))
    }
}

/// Whether this very place of a conversation is among these: the same picture may be in many.
pub(crate) fn has(images: &[&Image], image: &Image) -> bool {
    images.iter().any(|one| ptr::eq(*one, image))
}

/// The pictures of a conversation that may be sent, the newest message first.
pub(crate) fn recent(messages: &[Message]) -> impl Iterator<Item = &Image> {
    let lists = messages.iter().rev().map(Message::images).filter(|images| !images.is_empty());
    let count = lists.clone().count();
    let left_out = (count.saturating_sub(1) / STEP).saturating_sub(1) * STEP;
    lists.take(count - left_out).flatten()
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

    fn said(images: Vec<Image>) -> Message {
        Message::User { text: String::new(), images }
    }

    /// A message for each picture, and one without between them.
    fn messages(numbers: impl IntoIterator<Item = u16>) -> Vec<Message> {
        numbers.into_iter().flat_map(|number| [said(vec![image(number, 1)]), Message::user("more")]).collect()
    }

    fn at(api: Api) -> Endpoint {
        Endpoint::new("x", api, "http://h/v1".parse().unwrap(), "m")
    }

    fn shown(api: Api, messages: &[Message], eyes: &Eyes) -> Vec<Image> {
        View::new(&at(api), messages, eyes).images.into_iter().cloned().collect()
    }

    fn small(numbers: &[u16]) -> Vec<Image> {
        numbers.iter().map(|number| image(*number, 1)).collect()
    }

    #[test]
    fn only_what_is_recent_and_fits_is_shown() {
        let (chat, claude, eyes) = (Api::ChatCompletions, Api::AnthropicMessages, Eyes::default());
        let many = messages(0..10);
        assert_eq!(shown(chat, &many, &eyes), small(&[9, 8, 7, 6, 5, 4]));
        let unseen = Eyes { unseen: [image(8, 1).sha256].into(), ..Eyes::default() };
        assert_eq!(shown(chat, &many, &unseen), small(&[9, 7, 6, 5, 4]));
        let blind = Eyes { is_blind: true, ..Eyes::default() };
        assert_eq!(shown(chat, &many, &blind), []);
        let large = [said(vec![image(1, LARGEST)]), said(vec![image(2, 4 << 20), image(3, 1)])];
        assert_eq!(shown(chat, &large, &eyes), [image(2, 4 << 20), image(3, 1)]);
        assert_eq!(shown(claude, &large, &eyes), [image(3, 1)]);
        let half = image(1, LARGEST / 2);
        assert_eq!(shown(chat, &[said(vec![half.clone(); 10])], &eyes), [half.clone(), half]);
    }

    #[test]
    fn the_oldest_are_left_out_four_at_a_time() {
        let first = |count| shown(Api::ChatCompletions, &messages(0..count), &Eyes::default()).pop();
        for (counts, oldest) in [(1..=8, 0), (9..=12, 4), (13..=16, 8), (17..=20, 12)] {
            for count in counts {
                assert_eq!(first(count), Some(image(oldest, 1)), "{count}");
            }
        }
    }

    #[test]
    fn what_was_refused_first_is_forgotten_first() {
        let mut eyes = Eyes::default();
        let most = u16::try_from(MOST_REMEMBERED).unwrap();
        for number in (0..=most).rev() {
            let messages = messages([number]);
            let mut view = View::new(&at(Api::ChatCompletions), &messages, &eyes);
            assert!(view.narrow(Class::Format));
            eyes.learn(&view);
        }
        let unseen = |number| !eyes.may_see(&image(number, 1));
        assert_eq!([unseen(0), unseen(most - 1), unseen(most)], [true, true, false]);
    }

    #[test]
    fn there_is_an_end_of_what_can_be_left_out() {
        let messages = messages([1, 2, 3]);
        let mut view = View::new(&at(Api::ChatCompletions), &messages, &Eyes::default());
        let left: Vec<usize> =
            (0..5).map_while(|_| view.narrow(Class::Format).then_some(view.images.len())).collect();
        assert_eq!(left, [1, 0]);
        assert!(!view.close());
    }
}
