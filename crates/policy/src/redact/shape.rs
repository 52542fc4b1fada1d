//! Text with the shape of a secret.
//!
//! The rules are functions and no regular expressions: a rule looks at a few bytes around its
//! anchor before it reads the rest of a long token.

use std::ops::Range;
use std::sync::LazyLock;

use super::anchor::{self, Anchors};
use super::assign::{self, SecretName};
use super::scan::{ScanView, replace_secrets};

/// How much of the first part of a JSON web token is examined.
const MAX_HEADER_BYTES: usize = 1024;

/// No private key in use is longer; a truncated block must not hide everything after it.
const MAX_KEY_BYTES: usize = 32 * 1024;

/// The shapes, which are the same for every redactor.
pub(super) static SHAPES: LazyLock<TokenShapes> = LazyLock::new(TokenShapes::build);

pub(super) struct TokenShapes {
    anchors: Anchors<ShapeRule>,
}

#[derive(Clone, Copy)]
pub(super) enum ShapeRule {
    Token(&'static TokenShape, usize),
    /// Gets the positions of the anchor and behind it.
    Other(fn(&ScanView<'_>, usize, usize) -> Option<Range<usize>>, usize),
    Assignment(SecretName),
}

/// A token recognizable by its prefix.
pub(super) struct TokenShape {
    prefixes: &'static [&'static str],
    class: fn(u8) -> bool,
    /// The minimum number of characters after the prefix.
    least: usize,
    check: Check,
}

#[derive(PartialEq, Eq)]
enum Check {
    /// The prefix does not occur in ordinary text.
    None,
    /// The token must not continue a word.
    Boundary,
    /// As `Boundary`, and it must contain digits.
    Digits,
    /// As `Boundary`, with exactly this length.
    Exact,
}

fn is_alphanumeric_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric()
}

fn is_word_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-')
}

fn is_dotted_byte(byte: u8) -> bool {
    is_word_byte(byte) || byte == b'.'
}

fn is_capital_byte(byte: u8) -> bool {
    byte.is_ascii_uppercase() || byte.is_ascii_digit()
}

const fn token(
    prefixes: &'static [&'static str],
    class: fn(u8) -> bool,
    least: usize,
    check: Check,
) -> TokenShape {
    TokenShape { prefixes, class, least, check }
}

#[rustfmt::skip]
const TOKENS: &[TokenShape] = &[
    // GitHub, GitLab
    token(&["ghp_", "gho_", "ghu_", "ghs_", "ghr_"], is_word_byte, 30, Check::None),
    token(&["github_pat_"], is_word_byte, 22, Check::None),
    token(&["glpat-", "gldt-", "glrt-", "glcbt-", "glptt-", "glft-", "glimt-", "glagent-", "gloas-", "glsoat-"], is_dotted_byte, 18, Check::Boundary),
    // Slack
    token(&["xoxb-", "xoxp-", "xoxa-", "xoxr-", "xoxs-", "xoxe-", "xoxe.", "xoxc-", "xoxd-", "xapp-"], is_dotted_byte, 10, Check::Boundary),
    // Model providers
    token(&["sk-"], is_word_byte, 20, Check::Digits),
    token(&["hf_", "api_org_", "gsk_", "r8_", "xai-", "pplx-", "tvly-", "nvapi-"], is_word_byte, 20, Check::Digits),
    token(&["fc-"], is_alphanumeric_byte, 32, Check::Digits),
    // Clouds
    token(&["AKIA", "ASIA", "ABIA", "ACCA"], is_capital_byte, 16, Check::Exact),
    token(&["AIza"], is_word_byte, 35, Check::Boundary),
    token(&["ya29.", "GOCSPX-"], is_dotted_byte, 20, Check::Boundary),
    token(&["1//0"], is_word_byte, 30, Check::Boundary),
    token(&["LTAI", "AKID"], is_alphanumeric_byte, 16, Check::Digits),
    token(&["dop_v1_", "doo_v1_", "dor_v1_"], is_alphanumeric_byte, 32, Check::None),
    token(&["hvs.", "hvb."], is_word_byte, 20, Check::Digits),
    // Registries
    token(&["npm_"], is_alphanumeric_byte, 36, Check::Boundary),
    token(&["pypi-Ag"], is_word_byte, 30, Check::None),
    token(&["rubygems_", "dckr_pat_"], is_word_byte, 20, Check::Digits),
    // Payments, email and other services
    token(&["sk_live_", "sk_test_", "rk_live_", "rk_test_", "whsec_"], is_alphanumeric_byte, 16, Check::None),
    token(&["SG."], is_dotted_byte, 40, Check::Digits),
    token(&["shpat_", "shpss_", "shpca_", "shppa_"], is_alphanumeric_byte, 32, Check::None),
    token(&["sq0atp-", "sq0csp-"], is_word_byte, 20, Check::None),
    token(&["ntn_", "lin_api_", "figd_", "glsa_", "sbp_", "sntrys_", "nfp_", "dtn_", "tskey-", "PMAK-", "ATATT3x", "dp.pt."], is_word_byte, 20, Check::Digits),
    token(&["AGE-SECRET-KEY-1"], is_capital_byte, 50, Check::None),
];

const WEBHOOKS: &[&str] =
    &["hooks.slack.com/services/", "discord.com/api/webhooks/", "discordapp.com/api/webhooks/"];

impl TokenShapes {
    fn build() -> Self {
        let mut rules: Vec<(Box<[u8]>, ShapeRule)> = Vec::new();
        let mut add = |anchor: &str, rule| rules.push((anchor.as_bytes().into(), rule));
        for token in TOKENS {
            for prefix in token.prefixes {
                add(prefix, ShapeRule::Token(token, prefix.len()));
            }
        }
        let mut add_other = |anchor: &str, matches| add(anchor, ShapeRule::Other(matches, anchor.len()));
        for webhook in WEBHOOKS {
            add_other(webhook, match_webhook);
        }
        for anchor in discord_anchors() {
            add_other(&anchor, match_discord_token);
        }
        add_other(":AA", match_telegram_token);
        add_other("eyJ", match_jwt);
        add_other("-----BEGIN ", match_private_key);
        add_other("://", assign::match_url_password);
        add_other("Bearer ", assign::match_bearer);
        add_other("bearer ", assign::match_bearer);
        for name in ["authorization", "Authorization", "AUTHORIZATION"] {
            add_other(name, assign::match_authorization);
        }
        for name in ["cookie", "Cookie", "COOKIE"] {
            add_other(name, assign::match_cookie);
        }
        for option in [" -u", " -U", "-user"] {
            add_other(option, assign::match_curl_user);
        }
        for (name, word) in assign::secret_names() {
            add(&name, ShapeRule::Assignment(word));
        }
        debug_assert!(rules.iter().all(|(anchor, _)| anchor.len() >= anchor::MIN_ANCHOR_BYTES));
        Self { anchors: Anchors::new(rules) }
    }

    pub(super) fn replace(&self, bytes: &[u8]) -> Option<Vec<u8>> {
        replace_secrets(bytes, &self.anchors, |view, at, rules| {
            rules.filter_map(|rule| rule.find_secret(view, at)).next()
        })
    }
}

impl ShapeRule {
    fn find_secret(self, view: &ScanView<'_>, at: usize) -> Option<Range<usize>> {
        match self {
            Self::Token(token, prefix) => token.find_secret(view, at, prefix),
            Self::Other(find_secret, anchor) => find_secret(view, at, at + anchor),
            Self::Assignment(name) => name.find_secret(view, at),
        }
    }
}

impl TokenShape {
    fn find_secret(&self, view: &ScanView<'_>, at: usize, prefix: usize) -> Option<Range<usize>> {
        if self.check != Check::None && !view.is_token_start(at) {
            return None;
        }
        let start = at + prefix;
        let end = view.run(start, self.least.max(64), self.class);
        let digits = view.slice(start, end).iter().filter(|byte| byte.is_ascii_digit()).count();
        let fits = match self.check {
            Check::None | Check::Boundary => end - start >= self.least,
            Check::Digits => end - start >= self.least && digits >= 2,
            Check::Exact => end - start == self.least && !view.get(end).is_some_and(is_word_byte),
        };
        fits.then(|| at..view.run_end(start, self.class))
    }
}

/// The first three characters of a base64 text that begins with two digits: a Discord token begins
/// with the number of its account.
fn discord_anchors() -> impl Iterator<Item = String> {
    ["MD", "MT", "Mj", "Mz", "ND", "NT", "Nj", "Nz", "OD", "OT"]
        .into_iter()
        .flat_map(|first| "AEIMQUYcgk".chars().map(move |second| format!("{first}{second}")))
}

fn match_discord_token(view: &ScanView<'_>, at: usize, _: usize) -> Option<Range<usize>> {
    if !view.is_token_start(at) {
        return None;
    }
    let account = view.run(at, 32, is_word_byte);
    if !(23..=30).contains(&(account - at)) || view.get(account) != Some(b'.') {
        return None;
    }
    let time = view.run(account + 1, 10, is_word_byte);
    if !(5..=8).contains(&(time - account - 1)) || view.get(time) != Some(b'.') {
        return None;
    }
    let proof = view.run(time + 1, 27, is_word_byte);
    (proof - time > 27).then(|| at..view.run_end(at, is_dotted_byte))
}

/// Hides the part after the colon; the number before it is the public id of the bot.
fn match_telegram_token(view: &ScanView<'_>, at: usize, _: usize) -> Option<Range<usize>> {
    let digit =
        |n: usize| at.checked_sub(n).and_then(|at| view.before(at)).is_some_and(|b| b.is_ascii_digit());
    let digits = (0..13).find(|n| !digit(*n)).unwrap_or(13);
    if !(6..=12).contains(&digits) {
        return None;
    }
    let end = view.run(at + 1, 48, is_word_byte);
    (33..=45).contains(&(end - at - 1)).then(|| at + 1..view.run_end(at + 1, is_word_byte))
}

fn match_jwt(view: &ScanView<'_>, at: usize, _: usize) -> Option<Range<usize>> {
    if !view.is_token_start(at) || view.before(at).is_some_and(|b| matches!(b, b'+' | b'/' | b'-')) {
        return None;
    }
    let header = view.run(at, MAX_HEADER_BYTES, is_word_byte);
    if header - at < 12 || view.get(header) != Some(b'.') {
        return None;
    }
    let least = if view.has(header + 1, b"eyJ") { 6 } else { 16 };
    let payload = view.run(header + 1, least, is_word_byte);
    (payload - header > least).then(|| at..view.run_end(at, is_dotted_byte))
}

/// A block counts only if key material follows its first line, so that code which mentions that
/// line stays readable. It need not have an end.
fn match_private_key(view: &ScanView<'_>, at: usize, label: usize) -> Option<Range<usize>> {
    let end = view.run(label, 48, |b| b.is_ascii_uppercase() || b.is_ascii_digit() || b == b' ');
    let named = view.slice(label, end);
    if !(named.ends_with(b"PRIVATE KEY") || named.ends_with(b"PRIVATE KEY BLOCK")) || !view.has(end, b"-----")
    {
        return None;
    }
    let between =
        |b: u8| b.is_ascii_whitespace() || matches!(b, b'\\' | b'n' | b'r' | b'"' | b'\'' | b'+' | b',');
    let body = view.run(end + 5, 32, between);
    let block =
        view.run(body, 16, |b| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'/' | b'=' | b'-' | b':'));
    let header = view.has(body, b"Proc-Type:") || view.has(body, b"Version:") || view.has(body, b"Comment:");
    (block - body == 16 || header).then(|| at..key_end(view, at))
}

/// The end of the private key block at `at`: with its last line, or where it stops being one.
fn key_end(view: &ScanView<'_>, at: usize) -> usize {
    let end = view.run(at, MAX_KEY_BYTES, |b| {
        b.is_ascii_alphanumeric()
            || b.is_ascii_whitespace()
            || matches!(b, b'+' | b'/' | b'=' | b'\\' | b':' | b',' | b'-' | b'"' | b'\'')
    });
    let mark = b"-----END ";
    match view.slice(at, end).windows(mark.len()).position(|window| window == mark) {
        Some(start) => {
            let label = |b: u8| is_capital_byte(b) || matches!(b, b' ' | b'-');
            view.run_end(at + start + mark.len(), label)
        }
        None => end,
    }
}

fn match_webhook(view: &ScanView<'_>, _: usize, start: usize) -> Option<Range<usize>> {
    let path = |b: u8| is_word_byte(b) || b == b'/';
    let end = view.run(start, 20, path);
    (end - start == 20).then(|| start..view.run_end(start, path))
}
