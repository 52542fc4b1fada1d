//! Known secret values.

use std::ops::Range;

use hermes_types::Secret;

use super::PLACEHOLDER;
use super::anchor::{Anchors, MIN_ANCHOR_BYTES};
use super::dump;
use super::encode::{self, EncodedSecret};
use super::scan::{ScanView, replace_secrets};

/// A shorter value would match by chance.
const MIN_SECRET_BYTES: usize = 6;

/// The bytes of an encoding that are searched; the rest is compared.
const ANCHOR_BYTES: usize = 4;

/// Lines of a multi-line value are searched separately from this length on.
const MIN_LINE_BYTES: usize = 24;

/// Settings or words rather than secrets, in whatever variable they are found.
const COMMON_VALUES: &[&str] = &[
    "123456", "1234567", "12345678", "123456789", "1234567890", "admin123", "anonymous", "changeme",
    "credentials", "default", "development", "disabled", "enabled", "example", "localhost", "pass", "passwd",
    "password", "password1", "password123", "postgres", "production", "qwerty", "required", "secret",
    "secret123", "secrets", "staging", "string", "testing", "undefined", "username",
];

pub(super) fn is_common(value: &[u8]) -> bool {
    COMMON_VALUES.iter().any(|common| common.as_bytes().eq_ignore_ascii_case(value))
        || value.first().is_some_and(|first| value.iter().all(|byte| byte == first))
}

/// All encodings of all values.
pub(super) struct KnownSecrets {
    /// Longest first.
    forms: Vec<EncodedSecret>,
    anchors: Anchors<usize>,
}

impl KnownSecrets {
    pub(super) fn new<'a>(secrets: impl IntoIterator<Item = &'a Secret>) -> Self {
        let mut forms: Vec<EncodedSecret> = secrets
            .into_iter()
            .flat_map(|secret| searched_values(secret.expose()))
            .filter(|value| value.len() >= MIN_SECRET_BYTES && !is_common(value.as_bytes()))
            .flat_map(encode::encodings)
            .filter_map(clear_of_placeholder)
            .filter(|form| form.bytes.len() >= MIN_SECRET_BYTES)
            .collect();
        forms.sort_by(|a, b| b.bytes.len().cmp(&a.bytes.len()).then_with(|| a.cmp(b)));
        forms.dedup();
        let anchors =
            forms.iter().enumerate().flat_map(|(i, form)| anchors_of(form).map(move |start| (start, i)));
        let anchors = Anchors::new(anchors.collect::<Vec<_>>());
        Self { forms, anchors }
    }

    /// Removes the lines of dumps that show a value.
    pub(super) fn replace_dumps(&self, bytes: &[u8]) -> Option<Vec<u8>> {
        if self.forms.is_empty() {
            return None;
        }
        dump::replace(bytes, |decoded| self.find_all(decoded))
    }

    fn find_all(&self, bytes: &[u8]) -> Vec<Range<usize>> {
        let mut found = Vec::new();
        let view = ScanView::new(bytes);
        let mut judged = 0;
        while let Some((at, forms)) = self.anchors.find(bytes, judged) {
            let ends = forms.filter_map(|i| match_end(&view, at, self.forms.get(i)?)).max();
            found.extend(ends.map(|end| at..end));
            judged = ends.unwrap_or(at + 1);
        }
        found
    }

    pub(super) fn replace(&self, bytes: &[u8]) -> Option<Vec<u8>> {
        replace_secrets(bytes, &self.anchors, |view, at, forms| {
            let ends = forms.filter_map(|i| Some((i, match_end(view, at, self.forms.get(i)?)?)));
            ends.min_by_key(|(i, _)| *i).map(|(_, end)| at..end)
        })
    }
}

/// The bytes an encoding may begin with, including variants with a separator.
fn anchors_of(form: &EncodedSecret) -> impl Iterator<Item = Box<[u8]>> {
    let start = form.bytes.get(..ANCHOR_BYTES).unwrap_or(&form.bytes);
    let separated = form.gap.separators().iter().flat_map(move |separator| {
        (1..MIN_ANCHOR_BYTES).map(move |n| {
            let (before, after) = start.split_at(n);
            let mut anchor = [before, &[*separator], after].concat();
            anchor.truncate(MIN_ANCHOR_BYTES);
            anchor.into()
        })
    });
    let carriage_return = form.gap.separators().contains(&b'\r').then(|| {
        let mut anchor = start.get(..1).unwrap_or_default().to_vec();
        anchor.extend(b"\r\n");
        anchor.into()
    });
    // Only behind the third byte.
    let shortened =
        (!form.gap.separators().is_empty()).then(|| start.get(..MIN_ANCHOR_BYTES).unwrap_or(start).into());
    [Some(start.into()), carriage_return, shortened].into_iter().flatten().chain(separated)
}

/// The end of the encoded secret at this position, with the line breaks in it.
fn match_end(view: &ScanView<'_>, at: usize, form: &EncodedSecret) -> Option<usize> {
    let mut here = at;
    for (i, byte) in form.bytes.iter().enumerate() {
        if i > 0 && !form.gap.separators().is_empty() && view.get(here) != Some(*byte) {
            here = view.run(here, form.gap.limit(), |b| form.gap.separators().contains(&b));
        }
        if view.get(here) != Some(*byte) {
            return None;
        }
        here += 1;
    }
    let end = view.run(here, form.tail, is_base64);
    Some(view.run(end, form.padding, |b| b == b'='))
}

fn is_base64(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'-' | b'_')
}

/// The value, and the lines of a key file, which are often printed separately or indented.
fn searched_values(value: &str) -> impl Iterator<Item = &str> {
    let lines = value.lines().map(str::trim).filter(|line| {
        line.len() >= MIN_LINE_BYTES
            && line
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'/' | b'=' | b'-' | b'_'))
    });
    // A value that contains the placeholder is searched around it, or redaction would not be
    // idempotent.
    value.trim().split(PLACEHOLDER).chain(lines)
}

/// Trims the bytes that a placeholder and its neighbors could form together, so that hiding one
/// value cannot make another one appear.
fn clear_of_placeholder(mut form: EncodedSecret) -> Option<EncodedSecret> {
    let placeholder = PLACEHOLDER.as_bytes();
    let parts = || (1..placeholder.len()).map(|n| placeholder.split_at(n));
    while let Some((_, end)) = parts().find(|(_, end)| form.bytes.starts_with(end)) {
        form.bytes.drain(..end.len());
    }
    while let Some((start, _)) = parts().find(|(start, _)| form.bytes.ends_with(start)) {
        form.bytes.truncate(form.bytes.len() - start.len());
    }
    let inside = placeholder.windows(form.bytes.len().max(1)).any(|part| part == form.bytes);
    (!inside).then_some(form)
}
