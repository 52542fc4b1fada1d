//! Who serves models: where, by which protocol, and which variable holds the key.
//!
//! The names and variables are those of Hermes Agent. Providers whose door is not opened by a plain key are not here.

use reqwest::Url;

use crate::endpoint::Api;

/// A provider of models.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Provider {
    /// Its word in the configuration.
    pub id: &'static str,
    /// What its paths are joined to.
    pub base_url: &'static str,
    /// The variables that hold its key; the first one that is set is used.
    pub keys: &'static [&'static str],
    /// The variable that holds another address.
    pub base_url_variable: Option<&'static str>,
    /// How it is spoken to.
    pub api: Api,
}

/// The provider of this name, or of another name people have for it.
pub fn known(id: &str) -> Option<&'static Provider> {
    let id = match id {
        "openai" => "openai-api",
        "claude" => "anthropic",
        "google" => "gemini",
        "moonshot" | "kimi" => "kimi-coding",
        "lm-studio" => "lmstudio",
        "qwen" | "dashscope" => "alibaba",
        "glm" => "zai",
        other => other,
    };
    ALL.iter().find(|provider| provider.id == id)
}

/// The provider whose own host this is.
pub fn at(url: &Url) -> Option<&'static Provider> {
    let host = url.host_str()?;
    let same = |provider: &&Provider| {
        let own = provider.base_url.parse::<Url>();
        own.is_ok_and(|own| {
            own.host_str() == Some(host) && own.port_or_known_default() == url.port_or_known_default()
        })
    };
    ALL.iter().find(same)
}

/// How a server is spoken to that nobody said it of: by its provider, then by its address, then by the model's name.
pub fn api(provider: &str, url: &Url, model: &str) -> Api {
    let path = url.path().trim_end_matches('/');
    if path.ends_with("/anthropic") || path.ends_with("/anthropic/v1") {
        return Api::AnthropicMessages;
    }
    match known(provider).filter(|known| at(url) == Some(*known)).or_else(|| at(url)) {
        Some(found) => found.api,
        None if url.host_str() == Some("api.kimi.com") && path.starts_with("/coding") => {
            Api::AnthropicMessages
        }
        None if model.starts_with("gpt-5")
            && url.host_str().is_some_and(|host| host.ends_with(".openai.com")) =>
        {
            Api::Responses
        }
        None => Api::ChatCompletions,
    }
}

const CHAT: Api = Api::ChatCompletions;
const MESSAGES: Api = Api::AnthropicMessages;
const RESPONSES: Api = Api::Responses;

/// All of them, in the order in which a key in the environment decides when nobody chose.
pub const ALL: &[Provider] = &[
    entry("openrouter", "https://openrouter.ai/api/v1", &["OPENROUTER_API_KEY"], "OPENROUTER_BASE_URL", CHAT),
    entry(
        "anthropic",
        "https://api.anthropic.com",
        &["ANTHROPIC_API_KEY", "ANTHROPIC_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN"],
        "ANTHROPIC_BASE_URL",
        MESSAGES,
    ),
    entry("openai-api", "https://api.openai.com/v1", &["OPENAI_API_KEY"], "OPENAI_BASE_URL", RESPONSES),
    entry(
        "gemini",
        "https://generativelanguage.googleapis.com/v1beta/openai",
        &["GOOGLE_API_KEY", "GEMINI_API_KEY"],
        "GEMINI_BASE_URL",
        CHAT,
    ),
    entry("deepseek", "https://api.deepseek.com/v1", &["DEEPSEEK_API_KEY"], "DEEPSEEK_BASE_URL", CHAT),
    entry("xai", "https://api.x.ai/v1", &["XAI_API_KEY"], "XAI_BASE_URL", RESPONSES),
    entry(
        "zai",
        "https://api.z.ai/api/paas/v4",
        &["GLM_API_KEY", "ZAI_API_KEY", "Z_AI_API_KEY"],
        "GLM_BASE_URL",
        CHAT,
    ),
    entry(
        "kimi-coding",
        "https://api.moonshot.ai/v1",
        &["KIMI_API_KEY", "KIMI_CODING_API_KEY"],
        "KIMI_BASE_URL",
        CHAT,
    ),
    entry("kimi-coding-cn", "https://api.moonshot.cn/v1", &["KIMI_CN_API_KEY"], "", CHAT),
    entry("arcee", "https://api.arcee.ai/api/v1", &["ARCEEAI_API_KEY"], "ARCEE_BASE_URL", CHAT),
    entry("gmi", "https://api.gmi-serving.com/v1", &["GMI_API_KEY"], "GMI_BASE_URL", CHAT),
    entry("minimax", "https://api.minimax.io/anthropic", &["MINIMAX_API_KEY"], "MINIMAX_BASE_URL", MESSAGES),
    entry(
        "minimax-cn",
        "https://api.minimaxi.com/anthropic",
        &["MINIMAX_CN_API_KEY"],
        "MINIMAX_CN_BASE_URL",
        MESSAGES,
    ),
    entry(
        "alibaba",
        "https://dashscope-intl.aliyuncs.com/compatible-mode/v1",
        &["DASHSCOPE_API_KEY"],
        "DASHSCOPE_BASE_URL",
        CHAT,
    ),
    entry(
        "alibaba-coding-plan",
        "https://coding-intl.dashscope.aliyuncs.com/v1",
        &["ALIBABA_CODING_PLAN_API_KEY", "DASHSCOPE_API_KEY"],
        "ALIBABA_CODING_PLAN_BASE_URL",
        CHAT,
    ),
    entry("nvidia", "https://integrate.api.nvidia.com/v1", &["NVIDIA_API_KEY"], "NVIDIA_BASE_URL", CHAT),
    entry(
        "opencode-zen",
        "https://opencode.ai/zen/v1",
        &["OPENCODE_ZEN_API_KEY"],
        "OPENCODE_ZEN_BASE_URL",
        CHAT,
    ),
    entry(
        "opencode-go",
        "https://opencode.ai/zen/go/v1",
        &["OPENCODE_GO_API_KEY"],
        "OPENCODE_GO_BASE_URL",
        CHAT,
    ),
    entry("kilocode", "https://api.kilo.ai/api/gateway", &["KILOCODE_API_KEY"], "KILOCODE_BASE_URL", CHAT),
    entry("huggingface", "https://router.huggingface.co/v1", &["HF_TOKEN"], "HF_BASE_URL", CHAT),
    entry("xiaomi", "https://api.xiaomimimo.com/v1", &["XIAOMI_API_KEY"], "XIAOMI_BASE_URL", CHAT),
    entry(
        "tencent-tokenhub",
        "https://tokenhub.tencentmaas.com/v1",
        &["TOKENHUB_API_KEY"],
        "TOKENHUB_BASE_URL",
        CHAT,
    ),
    entry("ollama-cloud", "https://ollama.com/v1", &["OLLAMA_API_KEY"], "OLLAMA_BASE_URL", CHAT),
    entry("lmstudio", "http://127.0.0.1:1234/v1", &["LM_API_KEY"], "LM_BASE_URL", CHAT),
];

const fn entry(
    id: &'static str,
    base_url: &'static str,
    keys: &'static [&'static str],
    variable: &'static str,
    api: Api,
) -> Provider {
    let base_url_variable = if variable.is_empty() { None } else { Some(variable) };
    Provider { id, base_url, keys, base_url_variable, api }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_provider_has_an_address_and_a_key_of_its_own() {
        let mut seen = HashSet::new();
        for provider in ALL {
            assert!(seen.insert(provider.id) && seen.insert(provider.base_url), "{}", provider.id);
            let url: Url = provider.base_url.parse().unwrap();
            assert_eq!(api(provider.id, &url, "m"), provider.api, "{}", provider.id);
            assert!(!provider.keys.is_empty());
            // Two plans of one vendor share a host, and then the first has it.
            assert_eq!(at(&url).unwrap().base_url.parse::<Url>().unwrap().host_str(), url.host_str());
        }
    }

    #[test]
    fn the_protocol_follows_from_the_address() {
        let cases = [
            ("custom", "http://localhost:8000/v1", "m", Api::ChatCompletions),
            ("custom", "https://gate.example/anthropic", "m", Api::AnthropicMessages),
            ("custom", "https://api.openai.com/v1", "gpt-4o", Api::Responses),
            ("custom", "https://eu.api.openai.com/v1", "gpt-5.1", Api::Responses),
            ("anthropic", "http://127.0.0.1:9/v1", "m", Api::ChatCompletions),
            ("custom", "https://api.openai.com.evil.example/v1", "m", Api::ChatCompletions),
        ];
        for (provider, url, model, expected) in cases {
            assert_eq!(api(provider, &url.parse().unwrap(), model), expected, "{url}");
        }
    }
}
