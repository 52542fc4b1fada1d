//! The values the owner entrusted to us.

use hermes_types::Secret;

use super::PLACEHOLDER;
use super::anchor::Anchors;
use super::encode::{self, Form};
use super::scan::{Rest, Rules, Verdict};
use super::view::View;

/// A shorter value would be found by chance.
const SHORTEST: usize = 6;

/// How many bytes of a form are searched for; the rest is compared.
const ANCHOR: usize = 4;

/// A line of a longer value is looked for by itself from this length on.
const SHORTEST_LINE: usize = 24;

/// Values that are settings or words rather than secrets, whatever variable they were found in.
const COMMON: &[&str] = &[
    "123456", "1234567", "12345678", "123456789", "1234567890", "admin123", "anonymous", "changeme",
    "credentials", "default", "development", "disabled", "enabled", "example", "localhost", "pass", "passwd",
    "password", "password1", "password123", "postgres", "production", "qwerty", "required", "secret",
    "secret123", "secrets", "staging", "string", "testing", "undefined", "username",
];

/// Whether a value is too common to be a secret.
pub(super) fn is_common(value: &[u8]) -> bool {
    COMMON.iter().any(|common| common.as_bytes().eq_ignore_ascii_case(value))
        || value.first().is_some_and(|first| value.iter().all(|byte| byte == first))
}

/// All forms of all values.
pub(super) struct Known {
    /// Longest first.
    forms: Vec<Form>,
    anchors: Anchors<usize>,
}

impl Known {
    pub(super) fn new<'a>(secrets: impl IntoIterator<Item = &'a Secret>) -> Self {
        let mut forms: Vec<Form> = secrets
            .into_iter()
            .flat_map(|secret| values(secret.expose()))
            .filter(|value| value.len() >= SHORTEST && !is_common(value.as_bytes()))
            .flat_map(encode::forms)
            .filter_map(clear_of_placeholder)
            .filter(|form| form.bytes.len() >= SHORTEST)
            .collect();
        forms.sort_by(|a, b| b.bytes.len().cmp(&a.bytes.len()).then_with(|| a.cmp(b)));
        forms.dedup();
        let anchors =
            forms.iter().enumerate().flat_map(|(i, form)| starts(form).map(move |start| (start, i)));
        let anchors = Anchors::new(anchors.collect::<Vec<_>>());
        Self { forms, anchors }
    }

    fn judge(&self, view: &View<'_>, at: usize, candidates: &[usize]) -> Verdict {
        let matching = |i: &usize| {
            let form = self.forms.get(*i)?;
            Some((*i, form, length(view, at, form)?))
        };
        let longest = candidates.iter().filter_map(matching).min_by_key(|(i, ..)| *i);
        match longest {
            _ if view.starved() => Verdict::Wait { start: at },
            None => Verdict::Plain,
            Some((_, form, left)) => {
                let rest = Rest::Known { left, tail: form.tail, padding: form.padding };
                Verdict::Hide { start: at, rest }
            }
        }
    }
}

/// The bytes a form may begin with: its own, and those with the end of a line among them.
fn starts(form: &Form) -> impl Iterator<Item = Box<[u8]>> {
    let start = form.bytes.get(..ANCHOR).unwrap_or(&form.bytes);
    let breaks = if form.wraps { 1..start.len() } else { 0..0 };
    let broken = breaks.map(|n| {
        let (before, after) = start.split_at(n);
        [before, b"\n", after].concat().into()
    });
    std::iter::once(start.into()).chain(broken)
}

/// How many bytes the form takes up here, line ends included, if it is here.
fn length(view: &View<'_>, at: usize, form: &Form) -> Option<usize> {
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

impl Rules for Known {
    fn next(&self, view: &View<'_>, at: usize) -> Option<(usize, Verdict)> {
        let (at, candidates) = self.anchors.find(view.bytes(), at)?;
        Some((at, self.judge(view, at, candidates)))
    }

    fn unfinished(&self, bytes: &[u8]) -> usize {
        self.anchors.unfinished(bytes)
    }
}

/// The value, and the lines of a key file, which often get printed indented or one by one.
fn values(value: &str) -> impl Iterator<Item = &str> {
    let lines = value.lines().map(str::trim).filter(|line| {
        line.len() >= SHORTEST_LINE
            && line
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'/' | b'=' | b'-' | b'_'))
    });
    // A value that quotes the placeholder is looked for round it, or a text could never come to rest.
    value.trim().split(PLACEHOLDER).chain(lines)
}

/// Cuts off what a placeholder and its neighbors could form together, so that hiding one value cannot
/// make another one appear.
fn clear_of_placeholder(mut form: Form) -> Option<Form> {
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
