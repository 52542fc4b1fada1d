//! The known providers: their addresses, protocols, and the variables that hold their keys.
//!
//! Names and variables are those of Hermes Agent. Providers that need more than a plain key are not
//! listed.

mod aliases;
mod select;
mod server;

use hermes_net::Url;

use crate::endpoint::Api;

pub use select::{ModelChoice, ProviderSettings, SelectedEndpoint};
pub use server::{ServerModelSettings, ServerSettings};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Provider {
    /// The name in the configuration.
    pub id: &'static str,
    pub base_url: &'static str,
    /// The variables that may hold the key; the first one that is set counts.
    pub key_variables: &'static [&'static str],
    /// The variable that may hold another address, or the empty string.
    pub base_url_variable: &'static str,
    pub api: Api,
}

impl Provider {
    fn with_id(id: &str) -> Option<&'static Self> {
        PROVIDERS.iter().find(|provider| provider.id == id)
    }
}

/// Finds a provider by its name or an alias, in any case.
pub fn by_name(name: &str) -> Option<&'static Provider> {
    Provider::with_id(aliases::canonical(&name.trim().to_lowercase()))
}

/// Finds the provider that this host belongs to.
pub fn by_host(url: &Url) -> Option<&'static Provider> {
    let host = url.host_str()?;
    let is_own =
        |own: Url| own.host_str() == Some(host) && own.port_or_known_default() == url.port_or_known_default();
    PROVIDERS.iter().find(|provider| provider.base_url.parse().is_ok_and(is_own))
}

/// Chooses the protocol of a server by its provider, its address, or the model's name.
pub fn detect_api(url: &Url, model: &str) -> Api {
    let path = url.path().trim_end_matches('/');
    let host = url.host_str().unwrap_or_default();
    if path.ends_with("/anthropic") || path.ends_with("/anthropic/v1") {
        return Api::AnthropicMessages;
    }
    match by_host(url) {
        Some(provider) if provider.id.starts_with("opencode-") => opencode_api(path, model),
        Some(provider) => provider.api,
        None if host == "api.kimi.com" && path.starts_with("/coding") => Api::AnthropicMessages,
        None if model.starts_with("gpt-5") && host.ends_with(".openai.com") => Api::Responses,
        None => Api::ChatCompletions,
    }
}

/// OpenCode speaks the protocol of each model's vendor.
fn opencode_api(path: &str, model: &str) -> Api {
    let model = model.rsplit('/').next().unwrap_or(model).to_lowercase();
    let is_go = path.contains("/go");
    let starts = |prefixes: &[&str]| prefixes.iter().any(|prefix| model.starts_with(prefix));
    if starts(&["qwen"]) || (is_go && starts(&["minimax-"])) || (!is_go && starts(&["claude-"])) {
        Api::AnthropicMessages
    } else if !is_go && starts(&["gpt-"]) {
        Api::Responses
    } else {
        Api::ChatCompletions
    }
}

/// Each row: protocol, name, address, variables of the key, variable of another address.
macro_rules! providers {
    ($($api:ident $id:literal $base_url:literal [$($key:literal),+] $base_url_variable:literal;)+) => {
        /// All providers. If none is configured, the first one with a key counts.
        pub const PROVIDERS: &[Provider] = &[$(Provider {
            id: $id,
            base_url: $base_url,
            key_variables: &[$($key),+],
            base_url_variable: $base_url_variable,
            api: Api::$api,
        }),+];
    };
}

providers! {
    ChatCompletions "openrouter" "https://openrouter.ai/api/v1" ["OPENROUTER_API_KEY"] "OPENROUTER_BASE_URL";
    AnthropicMessages "anthropic" "https://api.anthropic.com"
        ["ANTHROPIC_API_KEY", "ANTHROPIC_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN"] "ANTHROPIC_BASE_URL";
    Responses "openai-api" "https://api.openai.com/v1" ["OPENAI_API_KEY"] "OPENAI_BASE_URL";
    ChatCompletions "gemini" "https://generativelanguage.googleapis.com/v1beta/openai"
        ["GOOGLE_API_KEY", "GEMINI_API_KEY"] "GEMINI_BASE_URL";
    ChatCompletions "deepseek" "https://api.deepseek.com/v1" ["DEEPSEEK_API_KEY"] "DEEPSEEK_BASE_URL";
    Responses "xai" "https://api.x.ai/v1" ["XAI_API_KEY"] "XAI_BASE_URL";
    ChatCompletions "zai" "https://api.z.ai/api/paas/v4"
        ["GLM_API_KEY", "ZAI_API_KEY", "Z_AI_API_KEY"] "GLM_BASE_URL";
    ChatCompletions "kimi-coding" "https://api.moonshot.ai/v1"
        ["KIMI_API_KEY", "KIMI_CODING_API_KEY"] "KIMI_BASE_URL";
    ChatCompletions "kimi-coding-cn" "https://api.moonshot.cn/v1" ["KIMI_CN_API_KEY"] "";
    ChatCompletions "arcee" "https://api.arcee.ai/api/v1" ["ARCEEAI_API_KEY"] "ARCEE_BASE_URL";
    ChatCompletions "gmi" "https://api.gmi-serving.com/v1" ["GMI_API_KEY"] "GMI_BASE_URL";
    AnthropicMessages "minimax" "https://api.minimax.io/anthropic" ["MINIMAX_API_KEY"] "MINIMAX_BASE_URL";
    AnthropicMessages "minimax-cn" "https://api.minimaxi.com/anthropic"
        ["MINIMAX_CN_API_KEY"] "MINIMAX_CN_BASE_URL";
    ChatCompletions "alibaba" "https://dashscope-intl.aliyuncs.com/compatible-mode/v1"
        ["DASHSCOPE_API_KEY"] "DASHSCOPE_BASE_URL";
    ChatCompletions "alibaba-coding-plan" "https://coding-intl.dashscope.aliyuncs.com/v1"
        ["ALIBABA_CODING_PLAN_API_KEY", "DASHSCOPE_API_KEY"] "ALIBABA_CODING_PLAN_BASE_URL";
    ChatCompletions "nvidia" "https://integrate.api.nvidia.com/v1" ["NVIDIA_API_KEY"] "NVIDIA_BASE_URL";
    ChatCompletions "opencode-zen" "https://opencode.ai/zen/v1"
        ["OPENCODE_ZEN_API_KEY"] "OPENCODE_ZEN_BASE_URL";
    ChatCompletions "opencode-go" "https://opencode.ai/zen/go/v1"
        ["OPENCODE_GO_API_KEY"] "OPENCODE_GO_BASE_URL";
    ChatCompletions "kilocode" "https://api.kilo.ai/api/gateway" ["KILOCODE_API_KEY"] "KILOCODE_BASE_URL";
    ChatCompletions "huggingface" "https://router.huggingface.co/v1" ["HF_TOKEN"] "HF_BASE_URL";
    ChatCompletions "xiaomi" "https://api.xiaomimimo.com/v1" ["XIAOMI_API_KEY"] "XIAOMI_BASE_URL";
    ChatCompletions "tencent-tokenhub" "https://tokenhub.tencentmaas.com/v1"
        ["TOKENHUB_API_KEY"] "TOKENHUB_BASE_URL";
    ChatCompletions "stepfun" "https://api.stepfun.ai/step_plan/v1" ["STEPFUN_API_KEY"] "STEPFUN_BASE_URL";
    ChatCompletions "deepinfra" "https://api.deepinfra.com/v1/openai"
        ["DEEPINFRA_API_KEY"] "DEEPINFRA_BASE_URL";
    ChatCompletions "fireworks" "https://api.fireworks.ai/inference/v1" ["FIREWORKS_API_KEY"] "";
    ChatCompletions "novita" "https://api.novita.ai/openai/v1" ["NOVITA_API_KEY"] "NOVITA_BASE_URL";
    ChatCompletions "upstage" "https://api.upstage.ai/v1" ["UPSTAGE_API_KEY"] "UPSTAGE_BASE_URL";
    ChatCompletions "ollama-cloud" "https://ollama.com/v1" ["OLLAMA_API_KEY"] "OLLAMA_BASE_URL";
    ChatCompletions "lmstudio" "http://127.0.0.1:1234/v1" ["LM_API_KEY"] "LM_BASE_URL";
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_provider_has_an_address_and_a_key_of_its_own() {
        let mut seen = HashSet::new();
        for provider in PROVIDERS {
            assert!(seen.insert(provider.id) && seen.insert(provider.base_url), "{}", provider.id);
            let url: Url = provider.base_url.parse().unwrap();
            assert_eq!(detect_api(&url, "m"), provider.api, "{}", provider.id);
            assert!(!provider.key_variables.is_empty());
            // Plans of one vendor may share a host, which belongs to the first of them.
            assert_eq!(by_host(&url).unwrap().base_url.parse::<Url>().unwrap().host_str(), url.host_str());
        }
    }

    #[test]
    fn the_protocol_is_detected_from_the_address() {
        let cases = [
            ("http://localhost:8000/v1", "m", Api::ChatCompletions),
            ("https://gate.example/anthropic", "m", Api::AnthropicMessages),
            ("https://api.openai.com/v1", "gpt-4o", Api::Responses),
            ("https://eu.api.openai.com/v1", "gpt-5.1", Api::Responses),
            ("http://127.0.0.1:9/v1", "m", Api::ChatCompletions),
            ("https://api.openai.com.evil.example/v1", "m", Api::ChatCompletions),
        ];
        for (url, model, expected) in cases {
            assert_eq!(detect_api(&url.parse().unwrap(), model), expected, "{url}");
        }
    }
}
