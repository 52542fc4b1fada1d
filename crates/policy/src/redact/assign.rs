//! Secrets recognized by the name before them.

use std::ops::Range;

use super::PLACEHOLDER;
use super::known::is_common;
use super::scan::ScanView;

/// The part of a value that is examined to tell a secret from a word, a type or a call.
const MAX_VALUE_LOOKAHEAD: usize = 96;

/// The part of a command line before an option that is examined for the name of the program.
const MAX_COMMAND_BYTES: usize = 512;

const BRACKETS: &[u8] = b"([{<";

/// The end of a name such as `DB_PASSWORD`, `apiKey` or `client-secret`.
#[derive(Clone, Copy)]
pub(super) struct SecretName {
    length: usize,
    /// A name that can only mean a secret. Others, such as `token`, also name harmless things.
    strong: bool,
}

const STRONG_NAMES: &[&str] = &["password", "passwd", "passphrase"];
const WEAK_NAMES: &[&str] = &["secret", "token", "apikey", "accesskey", "secretkey", "accountkey"];
const WEAK_KEY_PREFIXES: &[&str] =
    &["api", "access", "account", "auth", "encryption", "master", "private", "secret", "shared", "signing"];

/// Every spelling of every name.
pub(super) fn secret_names() -> Vec<(String, SecretName)> {
    let mut words = Vec::new();
    let mut add =
        |name: String, strong| words.push((name.clone(), SecretName { length: name.len(), strong }));
    for (names, strong) in [(STRONG_NAMES, true), (WEAK_NAMES, false)] {
        for name in names {
            add((*name).to_owned(), strong);
            add(name.to_uppercase(), strong);
            add(capitalize(name), strong);
        }
    }
    for first in WEAK_KEY_PREFIXES {
        for join in ["_", "-"] {
            add(format!("{first}{join}key"), false);
            add(format!("{first}{join}key").to_uppercase(), false);
            add(format!("{}{join}{}", capitalize(first), "Key"), false);
        }
        add(format!("{first}Key"), false);
        add(format!("{}Key", capitalize(first)), false);
    }
    words
}

fn capitalize(name: &str) -> String {
    let mut chars = name.chars();
    chars.next().map(|c| c.to_ascii_uppercase()).into_iter().chain(chars).collect()
}

fn is_name_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.')
}

fn as_quote(byte: Option<u8>) -> Option<u8> {
    byte.filter(|b| matches!(b, b'"' | b'\'' | b'`'))
}

fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t')
}

/// A value in a line such as `PASSWORD=...` extends to the next blank.
fn is_setting_byte(byte: u8) -> bool {
    !byte.is_ascii_whitespace() && !matches!(byte, b'"' | b'\'' | b'`' | b'\\')
}

/// Elsewhere the punctuation of the surrounding language ends it.
fn is_bare_byte(byte: u8) -> bool {
    is_setting_byte(byte) && !matches!(byte, b',' | b';' | b')' | b']' | b'}' | b'&' | b'|' | b'<' | b'>')
}

/// A header extends to the end of its line or of the enclosing quotes.
fn is_header_byte(byte: u8) -> bool {
    !matches!(byte, b'"' | b'\'' | b'\\' | b'\n' | b'\r')
}

/// How a name and its value are joined.
#[derive(Clone, Copy, PartialEq, Eq)]
enum AssignStyle {
    /// `NAME=value`, the name in capitals and no blanks.
    Setting,
    /// `"name": "value"`
    Json,
    /// `name = "value"`
    Quoted,
    /// `name: value`
    Bare,
    /// `--name value`
    Flag,
}

impl SecretName {
    /// The value behind the name at this position, if it is a secret.
    pub(super) fn find_secret(self, view: &ScanView<'_>, at: usize) -> Option<Range<usize>> {
        let mut here = at + self.length;
        let before =
            (0..64).find(|n| !at.checked_sub(*n).and_then(|at| view.before(at)).is_some_and(is_name_byte));
        let name_start = at - before.unwrap_or(64);
        let suffix = view.run(here, 12, is_name_byte);
        if !is_suffix(view.slice(here, suffix)) {
            return None;
        }
        here = suffix;
        let name = view.slice(name_start, here);
        let capitals = !name.iter().any(u8::is_ascii_lowercase);

        let quoted_name = skip_quote(view, &mut here).is_some();
        let blanks = skip_blanks(view, &mut here);
        let separated = skip_separator(view, &mut here)?;
        let flag = name.starts_with(b"--") && blanks > 0 && !quoted_name;
        if !separated && !flag {
            return None;
        }
        let blanks = blanks + if separated { skip_blanks(view, &mut here) } else { 0 };
        let opened = skip_quote(view, &mut here);
        let style = match opened {
            _ if !separated => AssignStyle::Flag,
            _ if capitals && blanks == 0 && !quoted_name => AssignStyle::Setting,
            Some(_) if quoted_name => AssignStyle::Json,
            Some(_) => AssignStyle::Quoted,
            None => AssignStyle::Bare,
        };
        let is_value_byte = |b: u8| match opened {
            Some(quote) => b != quote && !matches!(b, b'\n' | b'\r' | b'\\'),
            None if style == AssignStyle::Setting => is_setting_byte(b),
            None => is_bare_byte(b),
        };
        let end = view.run(here, MAX_VALUE_LOOKAHEAD, is_value_byte);
        let is_secret = self.is_secret(view.slice(here, end), style);
        is_secret.then(|| here..view.run_end(here, is_value_byte))
    }

    fn is_secret(self, value: &[u8], style: AssignStyle) -> bool {
        let length = value.len();
        let mixed = looks_random(value);
        let has = |bytes: &[u8]| value.iter().any(|byte| bytes.contains(byte));
        let is_plain = |extra: &[u8]| value.iter().all(|b| b.is_ascii_alphabetic() || extra.contains(b));
        let looks_secret = match (style, self.strong) {
            (AssignStyle::Setting, true) => length >= 6,
            (AssignStyle::Setting, false) => length >= 8,
            _ if has(b" \t") => false,
            (AssignStyle::Json, true) => length >= 6,
            (AssignStyle::Quoted, true) => length >= 6 && !is_plain(b""),
            (AssignStyle::Json | AssignStyle::Quoted, false) => length >= 8 && mixed,
            _ if has(BRACKETS) => false,
            (AssignStyle::Bare, true) => length >= 6 && !is_plain(b"._"),
            (AssignStyle::Bare, false) => length >= 10 && mixed && (!has(b".") || length >= 20),
            (AssignStyle::Flag, _) => length >= 8 && mixed,
        };
        looks_secret && is_literal(value) && !is_common(value)
    }
}

/// Whether a name may continue like this after the word.
fn is_suffix(suffix: &[u8]) -> bool {
    let plain = suffix.strip_prefix(b"_").unwrap_or(suffix);
    const WORDS: [&[u8]; 8] = [b"base", b"dev", b"live", b"prod", b"production", b"staging", b"test", b"old"];
    (plain.len() <= 2 && plain.iter().all(u8::is_ascii_digit))
        || (plain.len() < suffix.len() && WORDS.iter().any(|word| word.eq_ignore_ascii_case(plain)))
}

/// Skips a quote, escaped or not, and returns it.
fn skip_quote(view: &ScanView<'_>, here: &mut usize) -> Option<u8> {
    let escapes = view.run(*here, 4, |b| b == b'\\') - *here;
    let found = as_quote(view.get(*here + escapes))?;
    *here += escapes + 1;
    Some(found)
}

fn skip_blanks(view: &ScanView<'_>, here: &mut usize) -> usize {
    let end = view.run(*here, 8, is_blank);
    let skipped = end - *here;
    *here = end;
    skipped
}

/// Skips `=`, `:`, `:=` or `=>`. `None` for a comparison, a path or a shell default such as
/// `${TOKEN:-x}`; `false` if there is no separator.
fn skip_separator(view: &ScanView<'_>, here: &mut usize) -> Option<bool> {
    let first = view.get(*here).filter(|b| matches!(b, b'=' | b':'));
    let Some(first) = first else { return Some(false) };
    let length = match (first, view.get(*here + 1)) {
        (b'=', Some(b'=' | b'~')) | (b':', Some(b':' | b'/' | b'-' | b'+' | b'?')) => return None,
        (b'=', Some(b'>')) | (b':', Some(b'=')) => 2,
        _ => 1,
    };
    *here += length;
    Some(true)
}

/// Whether a value is literal, not a reference, masked, or a path.
fn is_literal(value: &[u8]) -> bool {
    let contains = |part: &[u8]| value.windows(part.len()).any(|window| window == part);
    let reference =
        value.first().is_none_or(|b| matches!(b, b'$' | b'<' | b'{' | b'*' | b'(' | b'@' | b'=' | b':'))
            || value.starts_with(PLACEHOLDER.as_bytes())
            || value.starts_with(b"%(")
            || value.starts_with(b"%s");
    let masked = contains(b"...") || contains(b"***") || contains("…".as_bytes()) || contains(b"xxxx");
    let sources: [&[u8]; 6] = [b"://", b"process.env", b"os.environ", b"import.meta", b"::", b"${"];
    let elsewhere = sources.into_iter().any(contains);
    let path = count(value, |b| *b == b'/') > 1
        && value.first().is_some_and(|b| matches!(b, b'/' | b'.' | b'~'))
        && !value.iter().any(u8::is_ascii_digit);
    !(reference || masked || elsewhere || path)
}

fn count(value: &[u8], class: impl Fn(&u8) -> bool) -> usize {
    value.iter().filter(|byte| class(byte)).count()
}

/// Whether a value looks like neither a word nor a number.
fn looks_random(value: &[u8]) -> bool {
    let digits = count(value, u8::is_ascii_digit);
    value.iter().any(u8::is_ascii_alphabetic) && (digits >= 2 || (value.len() >= 20 && digits > 0))
}

/// The password in `scheme://user:password@host`, or a long token in place of the user.
pub(super) fn match_url_password(view: &ScanView<'_>, _: usize, start: usize) -> Option<Range<usize>> {
    let end = view.run(start, 512, |b| is_bare_byte(b) && !matches!(b, b'/' | b'?' | b'#'));
    let authority = view.slice(start, end);
    let user = authority.get(..authority.iter().rposition(|b| *b == b'@')?)?;
    let user_end = start + user.len();
    match user.iter().position(|b| *b == b':') {
        Some(colon) => {
            let password = user.get(colon + 1..)?;
            let secret = password.len() >= 3 && is_literal(password) && !is_common(password);
            secret.then_some(start + colon + 1..user_end)
        }
        None => {
            let token = user.len() >= 20 && is_literal(user) && looks_random(user);
            token.then_some(start..user_end)
        }
    }
}

const AUTH_SCHEMES: &[&str] = &[
    "apikey", "api-key", "aws4-hmac-sha256", "basic", "bearer", "bot", "digest", "geniekey", "key",
    "negotiate", "ntlm", "sharedkey", "signature", "token",
];

/// The start of the value of a header, whose name ends here.
fn header_value(view: &ScanView<'_>, mut here: usize) -> Option<usize> {
    skip_quote(view, &mut here);
    skip_blanks(view, &mut here);
    if !skip_separator(view, &mut here)? {
        return None;
    }
    skip_blanks(view, &mut here);
    skip_quote(view, &mut here);
    Some(here)
}

/// The value of an `Authorization` header.
pub(super) fn match_authorization(view: &ScanView<'_>, _: usize, name_end: usize) -> Option<Range<usize>> {
    let mut here = header_value(view, name_end)?;
    let scheme = view.run(here, 17, |b| b.is_ascii_alphanumeric() || b == b'-');
    let known =
        AUTH_SCHEMES.iter().any(|name| name.as_bytes().eq_ignore_ascii_case(view.slice(here, scheme)));
    let named = known && view.get(scheme).is_some_and(is_blank);
    if named {
        here = scheme;
        skip_blanks(view, &mut here);
    }
    let end = view.run(here, MAX_VALUE_LOOKAHEAD, is_bare_byte);
    let value = view.slice(here, end);
    let word = value.iter().all(|b| b.is_ascii_lowercase() || matches!(b, b'_' | b'-'));
    let secret = if named {
        value.len() >= 6 && !word
    } else {
        value.len() >= 16 && !value.iter().any(|byte| BRACKETS.contains(byte)) && looks_random(value)
    };
    // Some schemes have several parts; all are removed, up to the end of the header.
    (secret && is_literal(value)).then(|| here..view.run_end(here, is_header_byte))
}

/// The cookies of a request, up to the end of the header, or the value of one that a server sets.
pub(super) fn match_cookie(view: &ScanView<'_>, at: usize, name_end: usize) -> Option<Range<usize>> {
    let is_set = at.checked_sub(1).and_then(|at| view.before(at + 1)) == Some(b'-');
    let here = header_value(view, name_end)?;
    let name = view.run(here, MAX_VALUE_LOOKAHEAD, is_name_byte);
    if name == here || view.get(name) != Some(b'=') {
        return None;
    }
    let (start, end) = if is_set {
        (name + 1, view.run_end(name + 1, |b| is_header_byte(b) && b != b';'))
    } else {
        (here, view.run_end(here, is_header_byte))
    };
    (end > start && is_literal(view.slice(start, end))).then_some(start..end)
}

/// The password in `curl -u user:password`.
pub(super) fn match_curl_user(view: &ScanView<'_>, at: usize, mut here: usize) -> Option<Range<usize>> {
    let line = view.slice(at.saturating_sub(MAX_COMMAND_BYTES), at);
    let command = line.rsplit(|b| matches!(b, b'\n' | b';' | b'|' | b'&')).next().unwrap_or_default();
    if !command.windows(4).any(|word| word == b"curl") {
        return None;
    }
    if view.get(here) == Some(b'=') {
        here += 1;
    }
    skip_blanks(view, &mut here);
    let quote = skip_quote(view, &mut here);
    let user = view.run(here, MAX_VALUE_LOOKAHEAD, |b| is_bare_byte(b) && b != b':');
    if view.get(user) != Some(b':') {
        return None;
    }
    let is_password_byte = |b: u8| match quote {
        Some(quote) => b != quote && !matches!(b, b'\n' | b'\r'),
        None => is_setting_byte(b),
    };
    let end = view.run_end(user + 1, is_password_byte);
    (end > user + 1 && is_literal(view.slice(user + 1, end))).then_some(user + 1..end)
}

/// A bearer token without its header.
pub(super) fn match_bearer(view: &ScanView<'_>, at: usize, start: usize) -> Option<Range<usize>> {
    if !view.is_token_start(at) {
        return None;
    }
    let token =
        |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_' | b'~' | b'+' | b'/' | b'=');
    let end = view.run(start, 64, token);
    (end - start >= 16 && looks_random(view.slice(start, end))).then(|| start..view.run_end(start, token))
}
