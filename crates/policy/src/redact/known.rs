//! Known secret values.

use hermes_types::Secret;

use super::PLACEHOLDER;
use super::anchor::Anchors;
use super::encode::{self, EncodedSecret};
use super::scan::{ScanDecision, ScanRules, SecretTail};
use super::view::ScanView;

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
}

/// The bytes an encoding may begin with, including variants with a line break.
fn anchors_of(form: &EncodedSecret) -> impl Iterator<Item = Box<[u8]>> {
    let start = form.bytes.get(..ANCHOR_BYTES).unwrap_or(&form.bytes);
    let breaks = if form.wraps { 1..start.len() } else { 0..0 };
    let broken = breaks.map(|n| {
        let (before, after) = start.split_at(n);
        [before, b"\n", after].concat().into()
    });
    std::iter::once(start.into()).chain(broken)
}

/// The length of the match at this position, including line breaks.
fn match_len(view: &ScanView<'_>, at: usize, form: &EncodedSecret) -> Option<usize> {
    let mut here = at;
    for (i, byte) in form.bytes.iter().enumerate() {
        if form.wraps && i > 0 {
            here = view.run(here, 2, |b| matches!(b, b'\r' | b'\n'));
        }
        if view.get(here) != Some(*byte) {
            return None;
        }
        here += 1;
    }
    Some(here - at)
}

impl ScanRules for KnownSecrets {
    type Rule = usize;

    fn anchors(&self) -> &Anchors<usize> {
        &self.anchors
    }

    fn decide(&self, view: &ScanView<'_>, at: usize, forms: impl Iterator<Item = usize>) -> ScanDecision {
        let matching = |i: usize| {
            let form = self.forms.get(i)?;
            let left = match_len(view, at, form)?;
            Some((i, SecretTail::Known { left, tail: form.tail, padding: form.padding }))
        };
        let longest = forms.filter_map(matching).min_by_key(|(i, _)| *i);
        ScanDecision::new(view, at, longest.map(|(_, rest)| (at, rest)))
    }
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
