//! Environment variables that hold credentials and settings of Hermes itself.
//!
//! They are excluded wherever variables are passed on in bulk: a general pass-through list, the
//! declaration of a skill, shell start files. The owner can still name one for a single command or
//! container. The table lists known products only: the standard AWS variables, for example, are not
//! in it.

/// Variable names with the same purpose.
#[derive(Debug, PartialEq, Eq)]
pub struct SecretFamily {
    /// The object of a sentence.
    pub description: &'static str,
    /// A name that ends in `*` is a prefix.
    pub names: &'static [&'static str],
}

pub const SECRET_FAMILIES: &[SecretFamily] = &[
    SecretFamily {
        description: "the key, the account or the address of a model provider",
        names: &[
            "AI_GATEWAY_*", "ALIBABA_CODING_PLAN_*", "ANTHROPIC_*", "ARCEEAI_*", "ARCEE_*", "AUXILIARY_*",
            "AWS_BEARER_TOKEN_BEDROCK", "AZURE_FOUNDRY_*", "AZURE_OPENAI_*", "BEDROCK_BASE_URL",
            "CLAUDE_CODE_OAUTH_TOKEN", "COHERE_API_KEY", "COPILOT_*", "DASHSCOPE_*", "DEEPSEEK_*",
            "FIREWORKS_*", "GEMINI_API_KEY", "GEMINI_BASE_URL", "GLM_*", "GMI_*", "GOOGLE_API_KEY", "GROQ_*",
            "HELICONE_*", "HERMES_MODEL_API_KEY", "HF_BASE_URL", "HF_TOKEN", "HUGGINGFACE_TOKEN",
            "HUGGING_FACE_HUB_TOKEN", "KILOCODE_*", "KILO_*", "KIMI_*", "LLM_MODEL", "LMSTUDIO_*",
            "LM_API_KEY", "LM_BASE_URL", "LM_STUDIO_*", "MINIMAX_*", "MISTRAL_*", "MOONSHOT_*", "NOUS_*",
            "NVIDIA_API_KEY", "NVIDIA_BASE_URL", "OLLAMA_API_KEY", "OLLAMA_BASE_URL", "OPENAI_*",
            "OPENCODE_*", "OPENROUTER_*", "PERPLEXITY_*", "QWEN_*", "STEPFUN_*", "TOGETHER_API_KEY",
            "TOKENHUB_*", "XAI_*", "XIAOMI_*", "ZAI_*", "Z_AI_*",
        ],
    },
    SecretFamily {
        description: "the key or the address of a tool service",
        names: &[
            "BRAVE_API_KEY", "BRAVE_SEARCH_API_KEY", "BROWSERBASE_*", "BROWSER_USE_API_KEY", "CAMOFOX_*",
            "ELEVENLABS_*", "EXA_API_KEY", "FAL_KEY", "FIRECRAWL_*", "HERMES_LANGFUSE_*", "HONCHO_*",
            "MEM0_*", "PARALLEL_API_KEY", "SEARXNG_*", "SUPERMEMORY_*", "TAVILY_*", "TINKER_API_KEY",
            "TOOL_GATEWAY_*", "VOICE_TOOLS_OPENAI_KEY", "WANDB_API_KEY",
        ],
    },
    SecretFamily {
        description: "the token or a setting of a messaging platform",
        names: &[
            "BLUEBUBBLES_*", "DINGTALK_*", "DISCORD_*", "EMAIL_*", "FEISHU_*", "GOOGLE_CHAT_*", "IRC_*",
            "LINE_ALLOWED_*", "LINE_CHANNEL_*", "LINE_HOME_*", "MATRIX_*", "MATTERMOST_*", "MSTEAMS_*",
            "NTFY_*", "PHOTON_*", "QQBOT_*", "QQ_*", "SIGNAL_*", "SIMPLEX_*", "SLACK_*", "SMS_*", "TEAMS_*",
            "TELEGRAM_*", "TWILIO_*", "WECOM_*", "WEIXIN_*", "WHATSAPP_*",
        ],
    },
    SecretFamily {
        description: "a setting of the hermes gateway",
        names: &["API_SERVER_*", "GATEWAY_*", "HERMES_DASHBOARD_*", "WEBHOOK_*"],
    },
    SecretFamily {
        description: "the token of a code host",
        names: &[
            "GH_ENTERPRISE_TOKEN", "GH_TOKEN", "GITHUB_APP_*", "GITHUB_PERSONAL_ACCESS_TOKEN", "GITHUB_TOKEN",
        ],
    },
    SecretFamily { description: "the token of a sandbox provider", names: &["DAYTONA_*", "MODAL_TOKEN_*"] },
    SecretFamily {
        description: "the password of this machine or a home automation token",
        names: &["HASS_*", "SUDO_PASSWORD"],
    },
    // The Python Hermes Agent passes on a variable under such a name even if it is on this list.
    SecretFamily { description: "a prefix that bypasses this list", names: &["_HERMES_FORCE_*"] },
];

/// The family of a name, ignoring case.
pub fn secret_family(name: &str) -> Option<&'static SecretFamily> {
    let name = name.to_ascii_uppercase();
    let covers = |pattern: &&str| match pattern.strip_suffix('*') {
        Some(start) => name.starts_with(start),
        None => name == **pattern,
    };
    SECRET_FAMILIES.iter().find(|family| family.names.iter().any(covers))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_hermes_are_listed_and_names_of_other_programs_are_not() {
        let kept = "OPENAI_API_KEY OPENAI_ORGANIZATION ANTHROPIC_TOKEN CLAUDE_CODE_OAUTH_TOKEN GEMINI_API_KEY HF_TOKEN \
            AWS_BEARER_TOKEN_BEDROCK LLM_MODEL FIRECRAWL_API_URL FAL_KEY PARALLEL_API_KEY TELEGRAM_HOME_CHANNEL_NAME \
            DISCORD_AUTO_THREAD SLACK_ALLOWED_USERS WHATSAPP_MODE SIGNAL_HTTP_URL EMAIL_PASSWORD HASS_TOKEN GH_TOKEN \
            GITHUB_TOKEN GITHUB_APP_PRIVATE_KEY_PATH MODAL_TOKEN_SECRET DAYTONA_API_KEY SUDO_PASSWORD \
            GATEWAY_ALLOWED_USERS HERMES_DASHBOARD_SESSION_TOKEN _HERMES_FORCE_EDITOR openai_api_key";
        let free = "PATH EDITOR AWS_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY AWS_PROFILE GOOGLE_APPLICATION_CREDENTIALS \
            GITHUB_ACTIONS HF_HOME NVIDIA_VISIBLE_DEVICES OLLAMA_HOST SSH_AUTH_SOCK HERMES_HOME MY_DB_PASSWORD \
            HTTP_PROXY LINES PARALLEL OPENAI";
        let found = |names: &str, wanted: bool| -> Vec<String> {
            let odd = names.split_whitespace().filter(|name| secret_family(name).is_some() != wanted);
            odd.map(str::to_owned).collect()
        };
        assert_eq!((found(kept, true), found(free, false)), (Vec::new(), Vec::new()));
    }

    #[test]
    fn every_name_is_listed_once_in_order_and_in_capitals() {
        for family in SECRET_FAMILIES {
            assert!(family.names.is_sorted(), "{}", family.description);
        }
        for pattern in SECRET_FAMILIES.iter().flat_map(|family| family.names) {
            let name = pattern.trim_end_matches('*');
            assert!(
                name.bytes().all(|b| b == b'_' || b.is_ascii_uppercase() || b.is_ascii_digit()),
                "{pattern}"
            );
            let covering = SECRET_FAMILIES.iter().flat_map(|family| family.names).filter(|other| {
                *other == pattern || other.strip_suffix('*').is_some_and(|start| name.starts_with(start))
            });
            assert_eq!(covering.count(), 1, "{pattern}");
        }
    }
}
