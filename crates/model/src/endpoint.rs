//! A model at a server: its address, protocol, credentials and limits.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use hermes_net::Url;
use hermes_types::Secret;
use serde::Serialize;
use serde_json::{Map, Value};
use strum::{EnumString, IntoStaticStr};

/// A model at a server.
#[derive(Debug, Clone, PartialEq)]
pub struct Endpoint {
    /// A name of [`crate::provider`], or one of the configuration.
    pub provider: String,
    pub api: Api,
    /// The protocol's paths are appended to it, as to `https://api.openai.com/v1`.
    pub base_url: Url,
    /// The server's id of the model.
    pub model: String,
    /// None for servers that need none, as most on this machine.
    pub credentials: Option<ApiCredentials>,
    pub timeouts: Timeouts,
    pub retries: Retries,
    /// In tokens, if the configuration sets it.
    pub context_window: Option<u64>,
    /// The window to request if the server is Ollama; it counts for more than `context_window`.
    pub ollama_num_ctx: Option<u64>,
    /// The longest answer in tokens, if the prompt sets no limit.
    pub max_output: Option<u32>,
    /// Additional HTTP headers, which may hold credentials.
    pub headers: Vec<(String, Secret)>,
    /// Fields added to every request; they override ours.
    pub extra_fields: Map<String, Value>,
}

impl Endpoint {
    /// An endpoint with defaults for everything else.
    pub fn new(provider: impl Into<String>, api: Api, base_url: Url, model: impl Into<String>) -> Self {
        Self {
            provider: provider.into(),
            api,
            base_url,
            model: model.into(),
            credentials: None,
            timeouts: Timeouts::default(),
            retries: Retries::default(),
            context_window: None,
            ollama_num_ctx: None,
            max_output: None,
            headers: Vec::new(),
            extra_fields: Map::new(),
        }
    }

    /// Identifies the model that issued reasoning and signatures, which vendors accept back only for
    /// the same model. Two custom servers are two issuers.
    pub(crate) fn issuer(&self) -> String {
        match crate::provider::by_name(&self.provider) {
            Some(known) => format!("{}/{}", known.id, self.model),
            None => {
                let host = self.base_url.host_str().unwrap_or_default();
                format!("{}@{host}/{}", self.provider, self.model)
            }
        }
    }

    /// Whether the server is this machine or in its network. Such a server may take minutes to read
    /// a prompt before it sends anything.
    pub fn is_local(&self) -> bool {
        self.base_url.host_str().is_some_and(is_local)
    }

    /// The longest time without data.
    pub(crate) fn idle_limit(&self, prompt_tokens: usize, is_streamed: bool) -> Duration {
        let Timeouts { total, idle } = self.timeouts;
        let seconds = match (is_streamed, prompt_tokens) {
            _ if self.is_local() => return idle.unwrap_or(total).min(total),
            (true, ..=50_000) => 180,
            (true, ..=100_000) => 240,
            (true, _) => 300,
            (false, ..=50_000) => 90,
            (false, ..=100_000) => 150,
            (false, _) => 240,
        };
        idle.unwrap_or(Duration::from_secs(seconds)).min(total)
    }

    /// Whether requests go to this vendor, judged by the host and not by the configured name.
    pub(crate) fn is_hosted_by(&self, domain: &str) -> bool {
        let host = self.base_url.host_str().unwrap_or_default();
        host == domain || host.strip_suffix(domain).is_some_and(|rest| rest.ends_with('.'))
    }

    pub(crate) fn url(&self, path: &str) -> Url {
        let mut url = self.base_url.clone();
        let base = url.path().trim_end_matches('/').to_owned();
        let path = match self.api {
            // The base is written with and without the version.
            Api::AnthropicMessages if base.ends_with("/v1") => path.strip_prefix("/v1").unwrap_or(path),
            Api::OllamaChat => return self.root_url(path),
            _ => path,
        };
        url.set_path(&format!("{base}{path}"));
        url
    }

    /// A path at the root of the server, outside of the protocol.
    pub(crate) fn root_url(&self, path: &str) -> Url {
        let mut url = self.base_url.clone();
        let base = url.path().trim_end_matches('/');
        let root = ["/v1", "/api"].iter().find_map(|end| base.strip_suffix(end)).unwrap_or(base).to_owned();
        url.set_path(&format!("{root}{path}"));
        url
    }
}

/// The protocol of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, EnumString, IntoStaticStr, Serialize)]
#[strum(serialize_all = "snake_case", const_into_str)]
#[serde(into = "&'static str")]
pub enum Api {
    /// OpenAI's Chat Completions, which most servers speak. The longer keyword is its name.
    #[strum(serialize = "chat_completions", serialize = "openai_chat")]
    ChatCompletions,
    /// Anthropic's Messages.
    AnthropicMessages,
    /// OpenAI's Responses. The longer keyword is its name.
    #[strum(serialize = "codex_responses", serialize = "responses")]
    Responses,
    /// Ollama's own protocol, the only one in which it respects the context window.
    OllamaChat,
}

impl Api {
    pub const fn as_str(self) -> &'static str {
        self.into_str()
    }
}

/// Sent to the host of the endpoint and nowhere else: redirects are not followed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ApiCredentials {
    Key(Secret),
    /// The token that Claude Code stores for itself in this file, read for each request.
    ClaudeCode {
        path: PathBuf,
        /// The key to use if the provider rejects the token.
        key: Option<Secret>,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timeouts {
    /// For one attempt from start to end.
    pub total: Duration,
    /// While no data arrives. Without it, the limit depends on the size of the prompt; a local
    /// server has none.
    pub idle: Option<Duration>,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self { total: Duration::from_secs(1800), idle: None }
    }
}

/// Attempts and the delays between them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retries {
    pub max_attempts: u32,
    /// Doubled with each further failure.
    pub initial_delay: Duration,
    pub max_delay: Duration,
}

impl Default for Retries {
    fn default() -> Self {
        Self { max_attempts: 3, initial_delay: Duration::from_secs(2), max_delay: Duration::from_secs(60) }
    }
}

/// How much a model should reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Effort {
    None,
    Minimal,
    Low,
    Medium,
    High,
    Xhigh,
    Max,
    /// No provider has it; it means the highest level.
    Ultra,
}

/// Loopback, private, link-local and Tailscale addresses, the names that containers have for their
/// host, and every name without a dot.
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
    fn local_hosts_are_recognized() {
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
    fn urls_are_joined_with_and_without_version_and_slash() {
        let at = |api, base: &str| Endpoint::new("x", api, base.parse().unwrap(), "m");
        let chat = at(Api::ChatCompletions, "http://h/v1/");
        assert_eq!(chat.url("/chat/completions").as_str(), "http://h/v1/chat/completions");
        assert_eq!(chat.root_url("/props").as_str(), "http://h/props");
        for base in ["https://api.anthropic.com", "https://api.anthropic.com/v1"] {
            let url = at(Api::AnthropicMessages, base).url("/v1/messages");
            assert_eq!(url.as_str(), "https://api.anthropic.com/v1/messages");
        }
    }

    #[test]
    fn a_vendor_is_recognized_by_its_host() {
        let at = |base: &str| Endpoint::new("x", Api::ChatCompletions, base.parse().unwrap(), "m");
        assert!(at("https://api.openai.com/v1").is_hosted_by("openai.com"));
        assert!(!at("https://notopenai.com/v1").is_hosted_by("openai.com"));
        assert!(!at("https://openai.com.evil.net/v1").is_hosted_by("openai.com"));
    }
}
