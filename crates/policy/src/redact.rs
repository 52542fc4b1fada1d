//! Takes secrets out of text before anybody reads it, keeps it or cuts it short.
//!
//! Two passes. The first removes the *values* the owner entrusted to us, in plain and in the encodings a
//! command is likely to print them in: base64 at any alignment, hex, percent and JSON escapes. The second
//! removes what merely has the *shape* of a secret: vendor tokens, private key blocks, authorization
//! headers, passwords in addresses and assignments such as `API_KEY=...`.
//!
//! Whatever is removed becomes [`PLACEHOLDER`], the same for every kind: a reader learns that something
//! was there and nothing about it, and redacting twice changes nothing.
//!
//! Both passes read bytes from left to right and decide as early as the bytes at hand allow. A decision
//! that would need bytes not yet seen is put off, never guessed, so the result is the same however a
//! stream is cut into chunks. Memory is bounded: what is held back is at most the longest encoded secret
//! or one short window, and the rest of a long token is dropped as it arrives.
//!
//! This catches accidents. A program that wants to smuggle a value out can always encode it in a way no
//! list foresees; keeping it out of the place where the program runs is the protection, this is the net.

mod anchor;
mod assign;
mod encode;
mod known;
mod scan;
mod shape;
mod view;

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use hermes_types::Secret;

use known::Known;
use scan::Scan;
use shape::Shapes;

/// What stands where a secret stood.
pub const PLACEHOLDER: &str = "[redacted]";

/// Removes secrets from text. Cloning is cheap.
#[derive(Clone)]
pub struct Redactor {
    known: Arc<Known>,
    /// None for owners who do not want anything removed.
    shapes: Option<&'static Shapes>,
}

impl Redactor {
    /// A redactor for these values and for everything that looks like a token.
    ///
    /// A value shorter than six bytes, or as common as `password` or `localhost`, is not looked for: it
    /// would be found all over ordinary output, the text would become useless, and the value is no secret
    /// anyone could keep. White space round a value is ignored, since files end in a newline.
    pub fn new<'a>(secrets: impl IntoIterator<Item = &'a Secret>) -> Self {
        Self { known: Arc::new(Known::new(secrets)), shapes: Some(Shapes::shared()) }
    }

    /// A redactor that removes nothing, for owners who switched redaction off.
    pub fn silent() -> Self {
        Self { known: Arc::new(Known::new([])), shapes: None }
    }

    /// The text without its secrets; borrowed when there was nothing to remove.
    pub fn text<'t>(&self, text: &'t str) -> Cow<'t, str> {
        let Some(shapes) = self.shapes else { return Cow::Borrowed(text) };
        let first = Scan::whole(&*self.known, text.as_bytes());
        let second = Scan::whole(shapes, first.as_deref().unwrap_or(text.as_bytes()));
        match second.or(first) {
            None => Cow::Borrowed(text),
            // Every cut falls on an ASCII byte or on a whole value, so the lossy branch is never taken;
            // it is there because this function must not fail.
            Some(bytes) => Cow::Owned(
                String::from_utf8(bytes)
                    .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned()),
            ),
        }
    }

    /// Starts redacting a stream of bytes that arrives in pieces.
    pub fn stream(&self) -> Stream {
        Stream {
            redactor: self.clone(),
            first: Scan::default(),
            second: Scan::default(),
            between: Vec::new(),
        }
    }
}

/// A redaction under way. Bytes that are no valid UTF-8 pass through unchanged.
pub struct Stream {
    redactor: Redactor,
    first: Scan,
    second: Scan,
    between: Vec<u8>,
}

impl Stream {
    /// Takes the next bytes and appends to `out` everything that is already certain.
    pub fn push(&mut self, chunk: &[u8], out: &mut Vec<u8>) {
        let Some(shapes) = self.redactor.shapes else { return out.extend_from_slice(chunk) };
        self.first.push(&*self.redactor.known, chunk, &mut self.between);
        self.second.push(shapes, &self.between, out);
        self.between.clear();
    }

    /// Ends the stream and appends what was held back.
    pub fn finish(mut self, out: &mut Vec<u8>) {
        let Some(shapes) = self.redactor.shapes else { return };
        self.first.finish(&*self.redactor.known, &mut self.between);
        self.second.push(shapes, &self.between, out);
        self.second.finish(shapes, out);
    }
}

// Both hold values that must never be printed, so what they hold is left out.
impl fmt::Debug for Redactor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Redactor").finish_non_exhaustive()
    }
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stream").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
