//! Other names of providers, as Hermes Agent knows them.

/// Servers of the owner: their address is always configured.
pub(super) const OWN_SERVERS: &[&str] =
    &["custom", "local", "ollama", "vllm", "llamacpp", "llama.cpp", "llama-cpp"];

/// Providers of Hermes Agent that need a login or a library instead of a key.
pub(super) const UNSUPPORTED: &[&str] = &[
    "amazon", "amazon-bedrock", "aws", "aws-bedrock", "azure", "azure-ai", "azure-ai-foundry",
    "azure-foundry", "bedrock", "codex", "copilot", "copilot-acp", "copilot-acp-agent", "gcp-vertex",
    "github", "github-copilot", "github-copilot-acp", "github-model", "github-models", "google-vertex",
    "grok-oauth", "minimax-global", "minimax-oauth", "minimax-oauth-io", "minimax-portal", "minimax_oauth",
    "moa", "nous", "nous-portal", "nousresearch", "openai-codex", "openai_codex", "qwen", "qwen-cli",
    "qwen-oauth", "qwen-portal", "vertex", "vertex-ai", "vertexai", "x-ai-oauth", "xai-grok-oauth",
    "xai-oauth",
];

/// Alias and name.
const ALIASES: &[(&str, &str)] = &[
    ("aliyun", "alibaba"),
    ("alibaba-cloud", "alibaba"),
    ("alibaba-coding", "alibaba-coding-plan"),
    ("alibaba_coding", "alibaba-coding-plan"),
    ("alibaba_coding_plan", "alibaba-coding-plan"),
    ("arcee-ai", "arcee"),
    ("arceeai", "arcee"),
    ("claude", "anthropic"),
    ("claude-code", "anthropic"),
    ("claude-oauth", "anthropic"),
    ("dashscope", "alibaba"),
    ("dashscope-coding", "alibaba-coding-plan"),
    ("deep-infra", "deepinfra"),
    ("deep-seek", "deepseek"),
    ("deepinfra-ai", "deepinfra"),
    ("deepseek-chat", "deepseek"),
    ("fireworks-ai", "fireworks"),
    ("fw", "fireworks"),
    ("glm", "zai"),
    ("gmi-cloud", "gmi"),
    ("gmicloud", "gmi"),
    ("go", "opencode-go"),
    ("google", "gemini"),
    ("google-ai-studio", "gemini"),
    ("google-gemini", "gemini"),
    ("grok", "xai"),
    ("hf", "huggingface"),
    ("hugging-face", "huggingface"),
    ("huggingface-hub", "huggingface"),
    ("kilo", "kilocode"),
    ("kilo-code", "kilocode"),
    ("kilo-gateway", "kilocode"),
    ("kimi", "kimi-coding"),
    ("kimi-cn", "kimi-coding-cn"),
    ("kimi-for-coding", "kimi-coding"),
    ("lm-studio", "lmstudio"),
    ("lm_studio", "lmstudio"),
    ("mimo", "xiaomi"),
    ("mini-max", "minimax"),
    ("minimax-china", "minimax-cn"),
    ("minimax_cn", "minimax-cn"),
    ("moonshot", "kimi-coding"),
    ("moonshot-cn", "kimi-coding-cn"),
    ("novita-ai", "novita"),
    ("novitaai", "novita"),
    ("nvidia-nim", "nvidia"),
    ("ollama_cloud", "ollama-cloud"),
    ("openai", "openai-api"),
    ("opencode", "opencode-zen"),
    ("opencode-go-sub", "opencode-go"),
    ("opencode_go", "opencode-go"),
    ("opencode_zen", "opencode-zen"),
    ("or", "openrouter"),
    ("qwen-dashscope", "alibaba"),
    ("solar", "upstage"),
    ("step", "stepfun"),
    ("stepfun-coding-plan", "stepfun"),
    ("tencent", "tencent-tokenhub"),
    ("tencent-cloud", "tencent-tokenhub"),
    ("tencentmaas", "tencent-tokenhub"),
    ("tokenhub", "tencent-tokenhub"),
    ("x-ai", "xai"),
    ("x.ai", "xai"),
    ("xiaomi-mimo", "xiaomi"),
    ("z-ai", "zai"),
    ("z.ai", "zai"),
    ("zen", "opencode-zen"),
    ("zhipu", "zai"),
];

/// The name that an alias stands for; a name in lower case stands for itself.
pub(super) fn canonical(name: &str) -> &str {
    ALIASES.iter().find(|(alias, _)| *alias == name).map_or(name, |(_, id)| *id)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::provider::by_name;

    #[test]
    fn every_alias_stands_for_a_provider() {
        for (alias, id) in ALIASES {
            assert_eq!(by_name(alias).map(|provider| provider.id), Some(*id), "{alias}");
            assert_eq!(by_name(&alias.to_uppercase()).map(|provider| provider.id), Some(*id));
        }
        for name in UNSUPPORTED.iter().chain(OWN_SERVERS) {
            assert_eq!(by_name(name), None, "{name}");
        }
    }
}
