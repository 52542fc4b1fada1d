//! Secrets that are known by the name in front of them.

use super::PLACEHOLDER;
use super::known::is_common;
use super::scan::{Rest, Verdict};
use super::view::View;

/// How much of a value is looked at to tell a secret from a word, a type or a call.
const LOOK: usize = 96;

/// The end of a name such as `DB_PASSWORD`, `apiKey` or `client-secret`.
#[derive(Clone, Copy)]
pub(super) struct Word {
    length: usize,
    /// A name that says nothing but "secret". Others, such as `token`, also name harmless things.
    strong: bool,
}

const STRONG: &[&str] = &["password", "passwd", "passphrase"];
const WEAK: &[&str] = &["secret", "token", "apikey", "accesskey", "secretkey", "accountkey"];
const WEAK_KEYS: &[&str] =
    &["api", "access", "account", "auth", "encryption", "master", "private", "secret", "shared", "signing"];

/// Every spelling of every word.
pub(super) fn words() -> Vec<(String, Word)> {
    let mut words = Vec::new();
    let mut add = |name: String, strong| words.push((name.clone(), Word { length: name.len(), strong }));
    for (names, strong) in [(STRONG, true), (WEAK, false)] {
        for name in names {
            add((*name).to_owned(), strong);
            add(name.to_uppercase(), strong);
            add(capital(name), strong);
        }
    }
    for first in WEAK_KEYS {
        for join in ["_", "-"] {
            add(format!("{first}{join}key"), false);
            add(format!("{first}{join}key").to_uppercase(), false);
            add(format!("{}{join}{}", capital(first), "Key"), false);
        }
        add(format!("{first}Key"), false);
        add(format!("{}Key", capital(first)), false);
    }
    words
}

fn capital(name: &str) -> String {
    let mut chars = name.chars();
    chars.next().map(|c| c.to_ascii_uppercase()).into_iter().chain(chars).collect()
}

fn name_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.')
}

fn quote(byte: Option<u8>) -> Option<u8> {
    byte.filter(|b| matches!(b, b'"' | b'\'' | b'`'))
}

fn blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t')
}

/// A value in a line such as `PASSWORD=...` goes on to the next blank.
fn setting(byte: u8) -> bool {
    !byte.is_ascii_whitespace() && !matches!(byte, b'"' | b'\'' | b'`' | b'\\')
}

/// Elsewhere the punctuation of the language round it ends it.
fn bare(byte: u8) -> bool {
    setting(byte) && !matches!(byte, b',' | b';' | b')' | b']' | b'}' | b'&' | b'|' | b'<' | b'>')
}

/// A header goes on to the end of its line or of the text it is quoted in.
fn header(byte: u8) -> bool {
    !matches!(byte, b'"' | b'\'' | b'\\' | b'\n' | b'\r')
}

/// How a name and its value are joined.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Style {
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

impl Word {
    pub(super) fn judge(self, view: &View<'_>, at: usize) -> Verdict {
        let mut here = at + self.length;
        let found = self.value(view, at, &mut here);
        match found {
            _ if view.starved() => Verdict::Wait { start: here },
            Some(rest) => Verdict::Hide { start: here, rest },
            None => Verdict::Plain,
        }
    }

    /// Moves `here` to the value, and says how far it goes if it is one.
    fn value(self, view: &View<'_>, at: usize, here: &mut usize) -> Option<Rest> {
        let before =
            (0..64).find(|n| !at.checked_sub(*n).and_then(|at| view.before(at)).is_some_and(name_byte));
        let name_start = at - before.unwrap_or(64);
        let suffix = view.run(*here, 12, name_byte);
        if !is_suffix(view.slice(*here, suffix)) {
            return None;
        }
        *here = suffix;
        let name = view.slice(name_start, *here);
        let capitals = !name.iter().any(u8::is_ascii_lowercase);

        let quoted_name = skip_quote(view, here).is_some();
        let blanks = skip_blanks(view, here);
        let separated = skip_separator(view, here)?;
        let flag = name.starts_with(b"--") && blanks > 0 && !quoted_name;
        if !separated && !flag {
            return None;
        }
        let blanks = blanks + if separated { skip_blanks(view, here) } else { 0 };
        let opened = skip_quote(view, here);
        let style = match opened {
            _ if !separated => Style::Flag,
            _ if capitals && blanks == 0 && !quoted_name => Style::Setting,
            Some(_) if quoted_name => Style::Json,
            Some(_) => Style::Quoted,
            None => Style::Bare,
        };
        let rest = match opened {
            Some(quote) => Rest::Until(quote),
            None if style == Style::Setting => Rest::While { prefix: 0, class: setting },
            None => Rest::While { prefix: 0, class: bare },
        };
        let end = view.run(*here, LOOK, |b| match rest {
            Rest::Until(quote) => b != quote && !matches!(b, b'\n' | b'\r' | b'\\'),
            Rest::While { class, .. } => class(b),
            _ => false,
        });
        self.is_secret(view.slice(*here, end), style).then_some(rest)
    }

    fn is_secret(self, value: &[u8], style: Style) -> bool {
        let look = Look::of(value);
        let mixed = look.random();
        let looks_secret = match (style, self.strong) {
            (Style::Setting, true) => look.length >= 6,
            (Style::Setting, false) => look.length >= 8,
            _ if look.blanks > 0 => false,
            (Style::Json, true) => look.length >= 6,
            (Style::Quoted, true) => look.length >= 6 && look.letters < look.length,
            (Style::Json | Style::Quoted, false) => look.length >= 8 && mixed,
            (Style::Bare, _) if look.brackets > 0 => false,
            (Style::Bare, true) => look.length >= 6 && !look.path(),
            (Style::Bare, false) => look.length >= 10 && mixed && (look.dots == 0 || look.length >= 20),
            (Style::Flag, _) => look.length >= 8 && look.brackets == 0 && mixed,
        };
        looks_secret && is_literal(value) && !is_common(value)
    }
}

/// What may follow the word within a name.
fn is_suffix(suffix: &[u8]) -> bool {
    let plain = suffix.strip_prefix(b"_").unwrap_or(suffix);
    const WORDS: [&[u8]; 8] = [b"base", b"dev", b"live", b"prod", b"production", b"staging", b"test", b"old"];
    (plain.len() <= 2 && plain.iter().all(u8::is_ascii_digit))
        || (plain.len() < suffix.len() && WORDS.iter().any(|word| word.eq_ignore_ascii_case(plain)))
}

/// Passes a quote, escaped or not, and says which it was.
fn skip_quote(view: &View<'_>, here: &mut usize) -> Option<u8> {
    let escapes = view.run(*here, 4, |b| b == b'\\') - *here;
    let found = quote(view.get(*here + escapes))?;
    *here += escapes + 1;
    Some(found)
}

fn skip_blanks(view: &View<'_>, here: &mut usize) -> usize {
    let end = view.run(*here, 8, blank);
    let skipped = end - *here;
    *here = end;
    skipped
}

/// Passes `=`, `:`, `:=` or `=>`. None for a comparison, a path or a shell default such as `${TOKEN:-x}`,
/// false when there is no separator.
fn skip_separator(view: &View<'_>, here: &mut usize) -> Option<bool> {
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

/// Whether a value is written out, rather than taken from somewhere, masked, or a path.
fn is_literal(value: &[u8]) -> bool {
    let contains = |part: &[u8]| value.windows(part.len()).any(|window| window == part);
    let reference =
        value.first().is_none_or(|b| matches!(b, b'$' | b'<' | b'{' | b'*' | b'(' | b'@' | b'=' | b':'))
            || value.starts_with(PLACEHOLDER.as_bytes())
            || value.starts_with(b"%(")
            || value.starts_with(b"%s");
    let masked = contains(b"...") || contains(b"***") || contains("…".as_bytes()) || contains(b"xxxx");
    let elsewhere = contains(b"://")
        || contains(b"process.env")
        || contains(b"os.environ")
        || contains(b"import.meta")
        || contains(b"::")
        || contains(b"${");
    let path = value.iter().filter(|b| **b == b'/').count() > 1
        && value.first().is_some_and(|b| matches!(b, b'/' | b'.' | b'~'))
        && !value.iter().any(u8::is_ascii_digit);
    !(reference || masked || elsewhere || path)
}

/// What a value is made of.
#[derive(Default)]
struct Look {
    length: usize,
    letters: usize,
    digits: usize,
    blanks: usize,
    brackets: usize,
    dots: usize,
    underscores: usize,
}

impl Look {
    fn of(value: &[u8]) -> Self {
        let mut look = Self { length: value.len(), ..Self::default() };
        for byte in value {
            match byte {
                b'a'..=b'z' | b'A'..=b'Z' => look.letters += 1,
                b'0'..=b'9' => look.digits += 1,
                b' ' | b'\t' => look.blanks += 1,
                b'(' | b'[' | b'{' | b'<' => look.brackets += 1,
                b'.' => look.dots += 1,
                b'_' => look.underscores += 1,
                _ => {}
            }
        }
        look
    }

    /// Whether it is made of what the names in a program are made of.
    fn path(&self) -> bool {
        self.letters + self.dots + self.underscores == self.length
    }

    /// Whether no word or number looks like this.
    fn random(&self) -> bool {
        self.letters > 0 && (self.digits >= 2 || (self.length >= 20 && self.digits > 0))
    }
}

/// The password in `scheme://user:password@host`, or a long token that stands for the user.
pub(super) fn address(view: &View<'_>, start: usize) -> Option<(usize, Rest)> {
    let end = view.run(start, 512, |b| bare(b) && !matches!(b, b'/' | b'?' | b'#'));
    let authority = view.slice(start, end);
    let user = authority.get(..authority.iter().rposition(|b| *b == b'@')?)?;
    let exact = |length| Rest::Known { left: length, tail: 0, padding: 0 };
    match user.iter().position(|b| *b == b':') {
        Some(colon) => {
            let password = user.get(colon + 1..)?;
            let secret = password.len() >= 3 && is_literal(password) && !is_common(password);
            secret.then_some((start + colon + 1, exact(password.len())))
        }
        None => {
            let token = user.len() >= 20 && is_literal(user) && Look::of(user).random();
            token.then_some((start, exact(user.len())))
        }
    }
}

const SCHEMES: &[&str] = &[
    "apikey", "api-key", "aws4-hmac-sha256", "basic", "bearer", "bot", "digest", "geniekey", "key",
    "negotiate", "ntlm", "sharedkey", "signature", "token",
];

/// The value of an `Authorization` header, wherever it is written; `here` is behind the name.
pub(super) fn authorization(view: &View<'_>, mut here: usize) -> Verdict {
    let found = credentials(view, &mut here);
    match found {
        _ if view.starved() => Verdict::Wait { start: here },
        Some(rest) => Verdict::Hide { start: here, rest },
        None => Verdict::Plain,
    }
}

fn credentials(view: &View<'_>, here: &mut usize) -> Option<Rest> {
    skip_quote(view, here);
    skip_blanks(view, here);
    if !skip_separator(view, here)? {
        return None;
    }
    skip_blanks(view, here);
    skip_quote(view, here);
    let scheme = view.run(*here, 17, |b| b.is_ascii_alphanumeric() || b == b'-');
    let known = SCHEMES.iter().any(|name| name.as_bytes().eq_ignore_ascii_case(view.slice(*here, scheme)));
    let named = known && view.get(scheme).is_some_and(blank);
    if named {
        *here = scheme;
        skip_blanks(view, here);
    }
    let end = view.run(*here, LOOK, bare);
    let value = view.slice(*here, end);
    let look = Look::of(value);
    let word = value.iter().all(|b| b.is_ascii_lowercase() || matches!(b, b'_' | b'-'));
    let secret = if named {
        look.length >= 6 && !word
    } else {
        look.length >= 16 && look.brackets == 0 && look.random()
    };
    // Some schemes have several parts; all of them go, up to the end of the header.
    (secret && is_literal(value)).then_some(Rest::While { prefix: 0, class: header })
}

/// A bearer token without its header.
pub(super) fn bearer(view: &View<'_>, at: usize, start: usize) -> Option<(usize, Rest)> {
    if !view.boundary(at) {
        return None;
    }
    let token =
        |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_' | b'~' | b'+' | b'/' | b'=');
    let end = view.run(start, 64, token);
    let look = Look::of(view.slice(start, end));
    (look.length >= 16 && look.random()).then_some((start, Rest::While { prefix: 0, class: token }))
}
