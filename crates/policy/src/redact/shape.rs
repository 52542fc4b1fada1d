//! What has the shape of a secret.

use std::sync::LazyLock;

use super::anchor::{self, Anchors};
use super::assign::{self, Word};
use super::scan::{Rest, Rules, Verdict};
use super::view::{AHEAD, View};

/// No private key in use is longer; a block cut short must not hide everything after it.
const LONGEST_KEY: usize = 32 * 1024;

/// The shapes, which are the same for everybody.
pub(super) struct Shapes {
    anchors: Anchors<Rule>,
}

#[derive(Clone, Copy)]
enum Rule {
    Token(&'static Token, usize),
    Discord,
    Telegram,
    Jwt,
    Key,
    Webhook(usize),
    Address,
    Authorization(usize),
    Bearer(usize),
    Assignment(Word),
}

/// A token that gives itself away by how it begins.
struct Token {
    prefixes: &'static [&'static str],
    class: fn(u8) -> bool,
    /// Fewer characters after the prefix are something else.
    least: usize,
    check: Check,
}

#[derive(PartialEq, Eq)]
enum Check {
    /// The prefix occurs in no ordinary text.
    None,
    /// Must not continue a word.
    Boundary,
    /// As above, and a word of letters alone does not count.
    Digits,
    /// As `Boundary`, and neither longer nor shorter.
    Exact,
}

fn letters(byte: u8) -> bool {
    byte.is_ascii_alphanumeric()
}

fn word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-')
}

fn dotted(byte: u8) -> bool {
    word(byte) || byte == b'.'
}

fn capitals(byte: u8) -> bool {
    byte.is_ascii_uppercase() || byte.is_ascii_digit()
}

#[rustfmt::skip]
const TOKENS: &[Token] = &[
    // GitHub, GitLab
    Token { prefixes: &["ghp_", "gho_", "ghu_", "ghs_", "ghr_"], class: word, least: 30, check: Check::None },
    Token { prefixes: &["github_pat_"], class: word, least: 22, check: Check::None },
    Token {
        prefixes: &["glpat-", "gldt-", "glrt-", "glcbt-", "glptt-", "glft-", "glimt-", "glagent-", "gloas-", "glsoat-"],
        class: dotted, least: 18, check: Check::Boundary,
    },
    // Slack
    Token {
        prefixes: &["xoxb-", "xoxp-", "xoxa-", "xoxr-", "xoxs-", "xoxe-", "xoxe.", "xoxc-", "xoxd-", "xapp-"],
        class: dotted, least: 10, check: Check::Boundary,
    },
    // Model providers
    Token { prefixes: &["sk-"], class: word, least: 20, check: Check::Digits },
    Token { prefixes: &["hf_", "api_org_", "gsk_", "r8_", "xai-", "pplx-", "tvly-", "nvapi-"], class: word, least: 20, check: Check::Digits },
    Token { prefixes: &["fc-"], class: letters, least: 32, check: Check::Digits },
    // Clouds
    Token { prefixes: &["AKIA", "ASIA", "ABIA", "ACCA"], class: capitals, least: 16, check: Check::Exact },
    Token { prefixes: &["AIza"], class: word, least: 35, check: Check::Boundary },
    Token { prefixes: &["ya29.", "GOCSPX-"], class: dotted, least: 20, check: Check::Boundary },
    Token { prefixes: &["1//0"], class: word, least: 30, check: Check::Boundary },
    Token { prefixes: &["LTAI", "AKID"], class: letters, least: 16, check: Check::Digits },
    Token { prefixes: &["dop_v1_", "doo_v1_", "dor_v1_"], class: letters, least: 32, check: Check::None },
    Token { prefixes: &["hvs.", "hvb."], class: word, least: 20, check: Check::Digits },
    // Registries
    Token { prefixes: &["npm_"], class: letters, least: 36, check: Check::Boundary },
    Token { prefixes: &["pypi-Ag"], class: word, least: 30, check: Check::None },
    Token { prefixes: &["rubygems_", "dckr_pat_"], class: word, least: 20, check: Check::Digits },
    // Payments, mail and other services
    Token {
        prefixes: &["sk_live_", "sk_test_", "rk_live_", "rk_test_", "whsec_"],
        class: letters, least: 16, check: Check::None,
    },
    Token { prefixes: &["SG."], class: dotted, least: 40, check: Check::Digits },
    Token { prefixes: &["shpat_", "shpss_", "shpca_", "shppa_"], class: letters, least: 32, check: Check::None },
    Token { prefixes: &["sq0atp-", "sq0csp-"], class: word, least: 20, check: Check::None },
    Token {
        prefixes: &["ntn_", "lin_api_", "figd_", "glsa_", "sbp_", "sntrys_", "nfp_", "dtn_", "tskey-", "PMAK-", "ATATT3x", "dp.pt."],
        class: word, least: 20, check: Check::Digits,
    },
    Token { prefixes: &["AGE-SECRET-KEY-1"], class: capitals, least: 50, check: Check::None },
];

const WEBHOOKS: &[&str] =
    &["hooks.slack.com/services/", "discord.com/api/webhooks/", "discordapp.com/api/webhooks/"];

impl Shapes {
    /// Built once, on first use.
    pub(super) fn shared() -> &'static Self {
        static SHARED: LazyLock<Shapes> = LazyLock::new(Shapes::build);
        &SHARED
    }

    fn build() -> Self {
        let mut rules: Vec<(Box<[u8]>, Rule)> = Vec::new();
        let mut add = |anchor: &str, rule| rules.push((anchor.as_bytes().into(), rule));
        for token in TOKENS {
            for prefix in token.prefixes {
                add(prefix, Rule::Token(token, prefix.len()));
            }
        }
        for webhook in WEBHOOKS {
            add(webhook, Rule::Webhook(webhook.len()));
        }
        for anchor in discord_anchors() {
            add(&anchor, Rule::Discord);
        }
        add(":AA", Rule::Telegram);
        add("eyJ", Rule::Jwt);
        add("-----BEGIN ", Rule::Key);
        add("://", Rule::Address);
        for name in ["authorization", "Authorization", "AUTHORIZATION"] {
            add(name, Rule::Authorization(name.len()));
        }
        for name in ["Bearer ", "bearer "] {
            add(name, Rule::Bearer(name.len()));
        }
        for (name, word) in assign::words() {
            add(&name, Rule::Assignment(word));
        }
        debug_assert!(rules.iter().all(|(anchor, _)| anchor.len() >= anchor::SHORTEST));
        Self { anchors: Anchors::new(rules) }
    }
}

impl Rules for Shapes {
    fn next(&self, view: &View<'_>, at: usize) -> Option<(usize, Verdict)> {
        let (at, rules) = self.anchors.find(view.bytes(), at)?;
        let verdict =
            rules.iter().map(|rule| rule.judge(view, at)).find(|verdict| !matches!(verdict, Verdict::Plain));
        Some((at, verdict.unwrap_or(Verdict::Plain)))
    }

    fn unfinished(&self, bytes: &[u8]) -> usize {
        self.anchors.unfinished(bytes)
    }
}

impl Rule {
    fn judge(self, view: &View<'_>, at: usize) -> Verdict {
        let found = match self {
            Self::Token(token, prefix) => token.rest(view, at, prefix).map(|rest| (at, rest)),
            Self::Discord => discord(view, at).map(|rest| (at, rest)),
            Self::Telegram => telegram(view, at),
            Self::Jwt => jwt(view, at).map(|rest| (at, rest)),
            Self::Key => key(view, at).map(|rest| (at, rest)),
            Self::Webhook(prefix) => webhook(view, at + prefix),
            Self::Address => assign::address(view, at + 3),
            Self::Authorization(name) => return assign::authorization(view, at + name),
            Self::Bearer(name) => assign::bearer(view, at, at + name),
            Self::Assignment(word) => return word.judge(view, at),
        };
        match found {
            _ if view.starved() => Verdict::Wait { start: at },
            Some((start, rest)) => Verdict::Hide { start, rest },
            None => Verdict::Plain,
        }
    }
}

impl Token {
    fn rest(&self, view: &View<'_>, at: usize, prefix: usize) -> Option<Rest> {
        if self.check != Check::None && !view.boundary(at) {
            return None;
        }
        let start = at + prefix;
        let end = view.run(start, self.least.max(64), self.class);
        let digits = view.slice(start, end).iter().filter(|byte| byte.is_ascii_digit()).count();
        let fits = match self.check {
            Check::None | Check::Boundary => end - start >= self.least,
            Check::Digits => end - start >= self.least && digits >= 2,
            Check::Exact => end - start == self.least && !view.get(end).is_some_and(word),
        };
        fits.then_some(Rest::While { prefix, class: self.class })
    }
}

/// The first three characters of a base64 text that begins with two digits and a third one: a Discord
/// token begins with the number of its account.
fn discord_anchors() -> impl Iterator<Item = String> {
    ["MD", "MT", "Mj", "Mz", "ND", "NT", "Nj", "Nz", "OD", "OT"]
        .into_iter()
        .flat_map(|first| "AEIMQUYcgk".chars().map(move |second| format!("{first}{second}")))
}

fn discord(view: &View<'_>, at: usize) -> Option<Rest> {
    if !view.boundary(at) {
        return None;
    }
    let account = view.run(at, 32, word);
    if !(23..=30).contains(&(account - at)) || view.get(account) != Some(b'.') {
        return None;
    }
    let time = view.run(account + 1, 10, word);
    if !(5..=8).contains(&(time - account - 1)) || view.get(time) != Some(b'.') {
        return None;
    }
    let proof = view.run(time + 1, 27, word);
    (proof - time > 27).then_some(Rest::While { prefix: 0, class: dotted })
}

/// Hides what follows the colon: the number before it is the bot's public id.
fn telegram(view: &View<'_>, at: usize) -> Option<(usize, Rest)> {
    let digit =
        |n: usize| at.checked_sub(n).and_then(|at| view.before(at)).is_some_and(|b| b.is_ascii_digit());
    let digits = (0..13).find(|n| !digit(*n)).unwrap_or(13);
    if !(6..=12).contains(&digits) {
        return None;
    }
    let end = view.run(at + 1, 48, word);
    (33..=45).contains(&(end - at - 1)).then_some((at + 1, Rest::While { prefix: 0, class: word }))
}

fn jwt(view: &View<'_>, at: usize) -> Option<Rest> {
    if !view.boundary(at) || view.before(at).is_some_and(|b| matches!(b, b'+' | b'/' | b'-')) {
        return None;
    }
    let header = view.run(at, AHEAD, word);
    if header - at < 12 || view.get(header) != Some(b'.') {
        return None;
    }
    let least = if view.has(header + 1, b"eyJ") { 6 } else { 16 };
    let payload = view.run(header + 1, least, word);
    (payload - header > least).then_some(Rest::While { prefix: 0, class: dotted })
}

/// A block counts once something like a key follows its first line, so that a program that merely
/// mentions the line stays readable. It need not have an end.
fn key(view: &View<'_>, at: usize) -> Option<Rest> {
    let label = at + 11;
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
    (block - body == 16 || header).then_some(Rest::Key { left: LONGEST_KEY, matched: 0 })
}

fn webhook(view: &View<'_>, start: usize) -> Option<(usize, Rest)> {
    let path = |b: u8| word(b) || b == b'/';
    let end = view.run(start, 20, path);
    (end - start == 20).then_some((start, Rest::While { prefix: 0, class: path }))
}
