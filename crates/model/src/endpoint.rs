//! Where a model is, how it is spoken to, and who we are to it.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use hermes_types::Secret;
use reqwest::Url;
use serde_json::{Map, Value};

/// A model at a server.
#[derive(Debug, Clone, PartialEq)]
pub struct Endpoint {
    /// Who serves it: a name of [`crate::provider`], or the owner's own.
    pub provider: String,
    /// The protocol.
    pub api: Api,
    /// What the protocol's paths are joined to, such as `https://api.openai.com/v1`.
    pub base_url: Url,
    /// The model's id there.
    pub model: String,
    /// What opens the door.
    pub credentials: Credentials,
    /// How long we wait.
    pub timeouts: Timeouts,
    /// How often we try.
    pub retries: Retries,
    /// The window in tokens, if the owner said it.
    pub window: Option<u64>,
    /// HTTP headers sent along. Some of them open doors.
    pub headers: Vec<(String, Secret)>,
    /// Fields put into every request, over our own.
    pub extra: Map<String, Value>,
}

impl Endpoint {
    /// A model with everything else left to its default.
    pub fn new(provider: impl Into<String>, api: Api, base_url: Url, model: impl Into<String>) -> Self {
        Self {
            provider: provider.into(),
            api,
            base_url,
            model: model.into(),
            credentials: Credentials::None,
            timeouts: Timeouts::default(),
            retries: Retries::default(),
            window: None,
            headers: Vec::new(),
            extra: Map::new(),
        }
    }

    /// Who issues what only the issuer can read. Two servers of the owner's own are two issuers.
    pub(crate) fn issuer(&self) -> String {
        match crate::provider::known(&self.provider) {
            Some(known) => known.id.to_owned(),
            None => format!("{}@{}", self.provider, self.base_url.host_str().unwrap_or_default()),
        }
    }

    /// Whether the server is this machine or one near it. Such a server may take minutes to read a prompt before it says
    /// anything.
    pub fn is_local(&self) -> bool {
        self.base_url.host_str().is_some_and(is_local)
    }

    /// Whether requests go to this vendor, by host and not by what somebody called it.
    pub(crate) fn is_at(&self, domain: &str) -> bool {
        let host = self.base_url.host_str().unwrap_or_default();
        host == domain || host.strip_suffix(domain).is_some_and(|rest| rest.ends_with('.'))
    }

    /// The address of a path of the protocol.
    pub(crate) fn url(&self, path: &str) -> Url {
        let mut url = self.base_url.clone();
        let base = url.path().trim_end_matches('/').to_owned();
        let path = match self.api {
            // Its base is written with and without the version.
            Api::AnthropicMessages if base.ends_with("/v1") => path.strip_prefix("/v1").unwrap_or(path),
            _ => path,
        };
        url.set_path(&format!("{base}{path}"));
        url
    }

    /// The address of a path at the server's root, beside the protocol's own.
    pub(crate) fn beside(&self, path: &str) -> Url {
        let mut url = self.base_url.clone();
        let base = url.path().trim_end_matches('/');
        let root = ["/v1", "/api"].iter().find_map(|end| base.strip_suffix(end)).unwrap_or(base).to_owned();
        url.set_path(&format!("{root}{path}"));
        url
    }

    /// Whether two are the same model at the same place.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.model == other.model && self.base_url == other.base_url
    }
}

/// A protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Api {
    /// OpenAI's Chat Completions, which nearly everybody speaks.
    ChatCompletions,
    /// Anthropic's Messages.
    AnthropicMessages,
    /// OpenAI's Responses.
    Responses,
}

impl Api {
    /// Its word in the configuration.
    pub const fn word(self) -> &'static str {
        match self {
            Self::ChatCompletions => "chat_completions",
            Self::AnthropicMessages => "anthropic_messages",
            Self::Responses => "codex_responses",
        }
    }

    /// The protocol of that word.
    pub fn from_word(word: &str) -> Option<Self> {
        [Self::ChatCompletions, Self::AnthropicMessages, Self::Responses]
            .into_iter()
            .find(|api| api.word() == word || (word == "responses" && *api == Self::Responses))
    }
}

/// What opens the door of a server. It is sent to the host of the endpoint and nowhere else: redirects are not followed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Credentials {
    /// Nothing; servers on this machine mostly want none.
    None,
    /// A key.
    Key(Secret),
    /// The file in which Claude Code keeps its own token, read anew with each request.
    ClaudeCode(PathBuf),
}

/// How long we wait for a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timeouts {
    /// For the whole of one attempt.
    pub total: Duration,
    /// While nothing comes. None: by the size of the prompt, and for a server nearby not at all.
    pub silence: Option<Duration>,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self { total: Duration::from_secs(1800), silence: None }
    }
}

impl Timeouts {
    /// The longest silence, for a prompt of about so many tokens.
    pub(crate) fn silence(&self, endpoint: &Endpoint, tokens: usize, streamed: bool) -> Duration {
        let by_size = match (streamed, tokens) {
            _ if endpoint.is_local() => return self.silence.unwrap_or(self.total).min(self.total),
            (true, ..=50_000) => 180,
            (true, ..=100_000) => 240,
            (true, _) => 300,
            (false, ..=50_000) => 90,
            (false, ..=100_000) => 150,
            (false, _) => 240,
        };
        self.silence.unwrap_or(Duration::from_secs(by_size)).min(self.total)
    }
}

/// How often we try, and how long we wait in between.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retries {
    /// Attempts in all.
    pub attempts: u32,
    /// The first wait; each one after it is twice as long.
    pub first: Duration,
    /// The longest.
    pub longest: Duration,
}

impl Default for Retries {
    fn default() -> Self {
        Self { attempts: 3, first: Duration::from_secs(2), longest: Duration::from_secs(60) }
    }
}

/// How much a model should think.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effort {
    /// Not at all.
    None,
    /// The least.
    Minimal,
    /// A little.
    Low,
    /// As usual.
    Medium,
    /// Much.
    High,
    /// As much as it can.
    Xhigh,
}

impl Effort {
    /// All of them.
    pub const ALL: [Self; 6] = [Self::None, Self::Minimal, Self::Low, Self::Medium, Self::High, Self::Xhigh];

    /// Its word in the configuration.
    pub const fn word(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Minimal => "minimal",
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
            Self::Xhigh => "xhigh",
        }
    }
}

/// Loopback, private and link-local addresses, those of Tailscale, the names containers have for their host, and every name
/// without a dot.
fn is_local(host: &str) -> bool {
    let host = host.trim_start_matches('[').trim_end_matches(']');
    match host.parse::<IpAddr>() {
        Ok(IpAddr::V4(ip)) => {
            let [a, b, ..] = ip.octets();
            ip.is_loopback() || ip.is_private() || ip.is_link_local() || (a == 100 && (64..128).contains(&b))
        }
        Ok(IpAddr::V6(ip)) => ip.is_loopback() || ip.is_unique_local() || ip.is_unicast_link_local(),
        Err(_) => {
            let containers = ["host.docker.internal", "host.containers.internal", "gateway.docker.internal"];
            !host.contains('.') || containers.contains(&host) || host.ends_with(".local")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_nearby_are_known() {
        for host in
            ["localhost", "127.0.0.1", "[::1]", "192.168.1.2", "100.64.0.1", "gpu", "host.docker.internal"]
        {
            assert!(is_local(host), "{host}");
        }
        for host in ["api.openai.com", "8.8.8.8", "100.128.0.1", "[2606:4700::1]"] {
            assert!(!is_local(host), "{host}");
        }
    }

    #[test]
    fn addresses_are_joined_however_the_base_is_written() {
        let at = |api, base: &str| Endpoint::new("x", api, base.parse().unwrap(), "m");
        let chat = at(Api::ChatCompletions, "http://h/v1/");
        assert_eq!(chat.url("/chat/completions").as_str(), "http://h/v1/chat/completions");
        assert_eq!(chat.beside("/props").as_str(), "http://h/props");
        for base in ["https://api.anthropic.com", "https://api.anthropic.com/v1"] {
            let url = at(Api::AnthropicMessages, base).url("/v1/messages");
            assert_eq!(url.as_str(), "https://api.anthropic.com/v1/messages");
        }
    }

    #[test]
    fn a_vendor_is_known_by_its_host() {
        let at = |base: &str| Endpoint::new("x", Api::ChatCompletions, base.parse().unwrap(), "m");
        assert!(at("https://api.openai.com/v1").is_at("openai.com"));
        assert!(!at("https://notopenai.com/v1").is_at("openai.com"));
        assert!(!at("https://openai.com.evil.net/v1").is_at("openai.com"));
    }
}
