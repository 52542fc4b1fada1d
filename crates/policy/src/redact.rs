//! Removes secrets from text before it is shown, stored or truncated.
//!
//! Two passes. The first removes the *values* of known secrets, plain and in the encodings a
//! command is likely to print: base64 at any alignment, hex, percent and JSON escapes. The second
//! removes text with the *shape* of a secret: vendor tokens, private key blocks, authorization
//! headers, passwords in URLs and assignments such as `API_KEY=...`.
//!
//! Every removed secret becomes [`PLACEHOLDER`], the same for every kind: a reader learns that
//! something was removed and nothing about it, and redacting twice changes nothing.
//!
//! Both passes read bytes from left to right and decide as early as possible. A decision that
//! depends on bytes not yet received waits for them, so the result does not depend on how a stream
//! is split into chunks. Memory is bounded: at most the longest encoded secret or one short window
//! is held back, and the rest of a long token is dropped as it arrives.
//!
//! This prevents accidents. A program that wants to leak a value can encode it in a way no list
//! covers; the real protection is to keep the value out of its environment.

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

use known::KnownSecrets;
use scan::Scan;
use shape::TokenShapes;

/// Replaces a secret.
pub const PLACEHOLDER: &str = "[redacted]";

/// Removes secrets from text. Cloning is cheap.
#[derive(Clone)]
pub struct Redactor {
    known: Arc<KnownSecrets>,
    /// `None` if the owner disabled redaction.
    shapes: Option<&'static TokenShapes>,
}

impl Redactor {
    /// Creates a redactor for these values and for everything that looks like a token.
    ///
    /// A value shorter than six bytes, or as common as `password` or `localhost`, is not searched:
    /// it would occur all over ordinary output, and it protects nothing. White space around a value
    /// is ignored, since files end in a newline.
    pub fn new<'a>(secrets: impl IntoIterator<Item = &'a Secret>) -> Self {
        Self { known: Arc::new(KnownSecrets::new(secrets)), shapes: Some(TokenShapes::shared()) }
    }

    /// Creates a redactor that removes nothing.
    pub fn disabled() -> Self {
        Self { known: Arc::new(KnownSecrets::new([])), shapes: None }
    }

    /// Removes the secrets from a text; borrows if there are none.
    pub fn redact<'t>(&self, text: &'t str) -> Cow<'t, str> {
        let Some(shapes) = self.shapes else { return Cow::Borrowed(text) };
        let first = Scan::whole(&*self.known, text.as_bytes());
        let second = Scan::whole(shapes, first.as_deref().unwrap_or(text.as_bytes()));
        match second.or(first) {
            None => Cow::Borrowed(text),
            // Every cut is at an ASCII byte or a whole value, so the lossy branch is never taken;
            // this function must not fail.
            Some(bytes) => Cow::Owned(
                String::from_utf8(bytes)
                    .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned()),
            ),
        }
    }

    /// Starts redacting a stream of bytes.
    pub fn stream(&self) -> RedactStream {
        RedactStream {
            redactor: self.clone(),
            first: Scan::default(),
            second: Scan::default(),
            between: Vec::new(),
        }
    }
}

/// A stream being redacted. Invalid UTF-8 passes through unchanged.
pub struct RedactStream {
    redactor: Redactor,
    first: Scan,
    second: Scan,
    between: Vec<u8>,
}

impl RedactStream {
    /// Adds the next bytes and appends to `out` everything that is decided.
    pub fn push(&mut self, chunk: &[u8], out: &mut Vec<u8>) {
        let Some(shapes) = self.redactor.shapes else { return out.extend_from_slice(chunk) };
        self.first.push(&*self.redactor.known, chunk, &mut self.between);
        self.second.push(shapes, &self.between, out);
        self.between.clear();
    }

    /// Ends the stream and appends the bytes held back.
    pub fn finish(mut self, out: &mut Vec<u8>) {
        let Some(shapes) = self.redactor.shapes else { return };
        self.first.finish(&*self.redactor.known, &mut self.between);
        self.second.push(shapes, &self.between, out);
        self.second.finish(shapes, out);
    }
}

// Both contain secrets that must not be printed.
impl fmt::Debug for Redactor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Redactor").finish_non_exhaustive()
    }
}

impl fmt::Debug for RedactStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stream").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
