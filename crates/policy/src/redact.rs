//! Removes secrets from text before it is shown, stored or truncated.
//!
//! Three passes. The first removes lines of dumps that show the *value* of a known secret. The
//! second removes the values themselves, plain, reversed, split by white space, and in the encodings
//! a command is likely to print: base64 and base32 at any alignment, hex, percent and JSON escapes.
//! The third removes text with the *shape* of a secret: vendor tokens, private key blocks,
//! authorization headers, cookies, passwords in URLs and assignments such as `API_KEY=...`.
//!
//! Every removed secret becomes [`PLACEHOLDER`], the same for every kind: a reader learns that
//! something was removed and nothing about it, and redacting twice changes nothing.
//!
//! All passes read bytes from left to right and look at each only a few times.
//!
//! This prevents accidents. A program that wants to leak a value can encode it in a way no list
//! covers; the real protection is to keep the value out of its environment.

mod anchor;
mod assign;
mod dump;
mod encode;
mod known;
mod scan;
mod shape;

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use hermes_types::Secret;

use known::KnownSecrets;
use shape::SHAPES;

/// Replaces a secret.
pub const PLACEHOLDER: &str = "[redacted]";

/// Removes secrets from text. Cloning is cheap.
#[derive(Clone)]
pub struct Redactor {
    /// `None` if the owner disabled redaction.
    known: Option<Arc<KnownSecrets>>,
}

impl Redactor {
    /// Creates a redactor for these values and for everything that looks like a token.
    ///
    /// A value shorter than six bytes, or as common as `password` or `localhost`, is not searched:
    /// it would occur all over ordinary output, and it protects nothing. White space around a value
    /// is ignored, since files end in a newline.
    pub fn new<'a>(secrets: impl IntoIterator<Item = &'a Secret>) -> Self {
        Self { known: Some(Arc::new(KnownSecrets::new(secrets))) }
    }

    /// Creates a redactor that removes nothing.
    pub fn disabled() -> Self {
        Self { known: None }
    }

    /// Removes the secrets from a text; borrows if there are none.
    pub fn redact<'t>(&self, text: &'t str) -> Cow<'t, str> {
        let Some(known) = &self.known else { return Cow::Borrowed(text) };
        let dumps = known.replace_dumps(text.as_bytes());
        let first = known.replace(dumps.as_deref().unwrap_or(text.as_bytes())).or(dumps);
        let second = SHAPES.replace(first.as_deref().unwrap_or(text.as_bytes()));
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
}

// It contains secrets that must not be printed.
impl fmt::Debug for Redactor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Redactor").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
