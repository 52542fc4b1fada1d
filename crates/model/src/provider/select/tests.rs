use super::*;

fn select(choice: ModelChoice, variables: &[(&str, &str)]) -> Result<SelectedEndpoint, Error> {
    let variable =
        |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
    let settings = ProviderSettings {
        servers: &BTreeMap::new(),
        variable: &variable,
        claude_code: &|| None,
        max_attempts: 3,
        openrouter_routing: Map::new(),
    };
    settings.select(&choice)
}

fn choice(provider: &str, base_url: Option<&str>) -> ModelChoice {
    ModelChoice {
        provider: provider.to_owned(),
        model: "m".to_owned(),
        base_url: base_url.map(str::to_owned),
        ..ModelChoice::default()
    }
}

#[test]
fn a_provider_is_chosen_by_name_address_or_key() {
    let keys = [("OPENROUTER_API_KEY", "r"), ("OPENAI_API_KEY", "o"), ("ANTHROPIC_API_KEY", "a")];
    let cases = [
        (choice("anthropic", None), "anthropic", "https://api.anthropic.com/", "ANTHROPIC_API_KEY"),
        (choice("auto", None), "openrouter", "https://openrouter.ai/api/v1", "OPENROUTER_API_KEY"),
        // A leftover address of another provider.
        (
            choice("anthropic", Some("https://api.openai.com/v1")),
            "anthropic",
            "https://api.anthropic.com/",
            "ANTHROPIC_API_KEY",
        ),
        // The key of the host's owner, not that of the named provider.
        (
            choice("deepseek", Some("https://api.openai.com/v1")),
            "deepseek",
            "https://api.openai.com/v1",
            "OPENAI_API_KEY",
        ),
    ];
    for (choice, provider, url, key) in cases {
        let selected = select(choice, &keys).unwrap();
        assert_eq!(selected.endpoint.provider, provider);
        assert_eq!(selected.endpoint.base_url.as_str(), url);
        assert_eq!(selected.key_source.as_deref(), Some(key));
    }
}

#[test]
fn missing_settings_are_named() {
    let no_provider = Error::NoProvider { model: "m".to_owned() };
    assert_eq!(select(ModelChoice::default(), &[]), Err(Error::NoModel));
    assert_eq!(select(choice("auto", None), &[]), Err(no_provider));
    let no_base_url = Error::NoBaseUrl { provider: "custom".to_owned() };
    assert_eq!(select(choice("custom", None), &[]), Err(no_base_url));
    for error in [
        select(choice("nosuch", None), &[]),
        select(choice("", Some("localhost:8000")), &[]),
        select(choice("anthropic", None), &[("OPENAI_API_KEY", "o")]),
        select(choice("Nous", None), &[]),
        select(choice("ollama", None), &[("OPENROUTER_API_KEY", "r")]),
    ] {
        assert!(!error.unwrap_err().hints().is_empty());
    }
}

/// The expected endpoints are those of Hermes Agent 0.19.
#[test]
fn names_in_any_case_and_aliases_choose_the_same_endpoints_as_in_hermes_agent() {
    let lan = Some("http://gpu:8000/v1");
    let google = "https://generativelanguage.googleapis.com/v1beta";
    let model =
        |provider: &str, model: &str| ModelChoice { model: model.to_owned(), ..choice(provider, None) };
    let keys = [
        ("XAI_API_KEY", "x"),
        ("ANTHROPIC_API_KEY", "a"),
        ("DEEPSEEK_API_KEY", "d"),
        ("GOOGLE_API_KEY", "g"),
        ("OPENCODE_ZEN_API_KEY", "z"),
        ("OPENCODE_GO_API_KEY", "z"),
        ("DEEPINFRA_API_KEY", "i"),
        ("KIMI_API_KEY", "sk-kimi-1"),
        ("OPENROUTER_API_KEY", "r"),
        ("GROQ_API_KEY", "q"),
        ("ATTACKER_API_KEY", "no"),
        ("OPENAI_API_KEY", "o"),
    ];
    let cases = [
        (choice("ollama", lan), "http://gpu:8000/v1", Api::OllamaChat, None),
        (choice("vLLM", lan), "http://gpu:8000/v1", Api::ChatCompletions, None),
        (choice(" Local ", lan), "http://gpu:8000/v1", Api::ChatCompletions, None),
        (choice("llama.cpp", lan), "http://gpu:8000/v1", Api::ChatCompletions, None),
        (choice("grok", None), "https://api.x.ai/v1", Api::Responses, Some("XAI_API_KEY")),
        (
            choice("Anthropic", None),
            "https://api.anthropic.com/",
            Api::AnthropicMessages,
            Some("ANTHROPIC_API_KEY"),
        ),
        (
            choice("openrouter", lan),
            "https://openrouter.ai/api/v1",
            Api::ChatCompletions,
            Some("OPENROUTER_API_KEY"),
        ),
        (choice("deepseek", lan), "http://gpu:8000/v1", Api::ChatCompletions, Some("DEEPSEEK_API_KEY")),
        (
            choice("anthropic", Some("https://openrouter.ai/api/v1")),
            "https://api.anthropic.com/",
            Api::AnthropicMessages,
            Some("ANTHROPIC_API_KEY"),
        ),
        (
            choice("anthropic", Some("https://proxy.example/anthropic")),
            "https://proxy.example/anthropic",
            Api::AnthropicMessages,
            Some("ANTHROPIC_API_KEY"),
        ),
        (
            choice("google", Some(google)),
            "https://generativelanguage.googleapis.com/v1beta/openai",
            Api::ChatCompletions,
            Some("GOOGLE_API_KEY"),
        ),
        (choice("kimi", None), "https://api.kimi.com/coding", Api::AnthropicMessages, Some("KIMI_API_KEY")),
        (
            model("zen", "claude-sonnet-4-5"),
            "https://opencode.ai/zen/v1",
            Api::AnthropicMessages,
            Some("OPENCODE_ZEN_API_KEY"),
        ),
        (
            model("opencode", "gpt-5.1"),
            "https://opencode.ai/zen/v1",
            Api::Responses,
            Some("OPENCODE_ZEN_API_KEY"),
        ),
        (
            model("go", "minimax-m2.5"),
            "https://opencode.ai/zen/go/v1",
            Api::AnthropicMessages,
            Some("OPENCODE_GO_API_KEY"),
        ),
        (
            choice("deep-infra", None),
            "https://api.deepinfra.com/v1/openai",
            Api::ChatCompletions,
            Some("DEEPINFRA_API_KEY"),
        ),
        (
            choice("custom", Some("https://api.groq.com/openai/v1")),
            "https://api.groq.com/openai/v1",
            Api::ChatCompletions,
            Some("GROQ_API_KEY"),
        ),
        (
            choice("custom", Some("https://api.openai.com/v1")),
            "https://api.openai.com/v1",
            Api::Responses,
            Some("OPENAI_API_KEY"),
        ),
        (choice("", lan), "http://gpu:8000/v1", Api::ChatCompletions, None),
    ];
    for (choice, url, api, key) in cases {
        let selected = select(choice.clone(), &keys).unwrap();
        let endpoint = &selected.endpoint;
        assert_eq!((endpoint.base_url.as_str(), endpoint.api), (url, api), "{choice:?}");
        assert_eq!(selected.key_source.as_deref(), key, "{choice:?}");
    }
    let lookalike = choice("custom", Some("https://api.openai.com.attacker.test/v1"));
    assert_eq!(select(lookalike, &keys).unwrap().key_source.as_deref(), Some("ATTACKER_API_KEY"));
}

#[test]
fn a_configured_protocol_is_used_where_the_server_can_have_it() {
    let lan = Some("http://gpu:8000/v1");
    let with = |provider: &str, base_url, api_mode| ModelChoice {
        api_mode: Some(api_mode),
        ..choice(provider, base_url)
    };
    let keys = [("OPENAI_API_KEY", "o"), ("ANTHROPIC_API_KEY", "a"), ("XAI_API_KEY", "x")];
    let cases = [
        (with("custom", lan, Api::AnthropicMessages), Api::AnthropicMessages),
        (with("custom", lan, Api::Responses), Api::ChatCompletions),
        (with("auto", lan, Api::Responses), Api::Responses),
        (with("openai-api", None, Api::ChatCompletions), Api::ChatCompletions),
        (with("xai", None, Api::ChatCompletions), Api::Responses),
        (with("anthropic", None, Api::ChatCompletions), Api::AnthropicMessages),
    ];
    for (choice, expected) in cases {
        assert_eq!(select(choice.clone(), &keys).unwrap().endpoint.api, expected, "{choice:?}");
    }
}

#[test]
fn own_servers_are_found_by_every_name_that_hermes_agent_accepts() {
    let server = |base_url: &str| ServerSettings {
        base_url: Some(base_url.to_owned()),
        api_key: Some(Secret::new("inline")),
        ..ServerSettings::default()
    };
    let named = ServerSettings { name: Some("My Lab".to_owned()), ..server("http://named/v1") };
    let disabled = ServerSettings { enabled: Some(false), ..server("http://off/v1") };
    let limits =
        ServerSettings { request_timeout_seconds: Some(7), base_url: None, ..ServerSettings::default() };
    let servers: BTreeMap<String, ServerSettings> = [
        ("Lab", server("http://lab/v1")),
        ("x", named),
        ("off", disabled),
        ("kimi", server("http://kimi/v1")),
        ("anthropic", limits),
    ]
    .map(|(name, server)| (name.to_owned(), server))
    .into();
    let variable = |name: &str| (name == "ANTHROPIC_API_KEY").then(|| "a".to_owned());
    let settings = ProviderSettings {
        servers: &servers,
        variable: &variable,
        claude_code: &|| None,
        max_attempts: 3,
        openrouter_routing: Map::new(),
    };
    for (name, url) in [
        ("lab", "http://lab/v1"),
        ("custom:lab", "http://lab/v1"),
        ("Custom:LAB", "http://lab/v1"),
        ("custom:my-lab", "http://named/v1"),
        // An alias of a provider does not hide a server.
        ("kimi", "http://kimi/v1"),
    ] {
        let selected = settings.select(&choice(name, None)).unwrap();
        assert_eq!(selected.endpoint.base_url.as_str(), url, "{name}");
        assert_eq!(selected.key_source.as_deref(), Some("config.yaml"), "{name}");
    }
    // The name of a provider stands for the provider, with the limits of the entry.
    let anthropic = settings.select(&choice("anthropic", None)).unwrap().endpoint;
    assert_eq!(anthropic.base_url.as_str(), "https://api.anthropic.com/");
    assert_eq!(anthropic.timeouts.total, std::time::Duration::from_secs(7));
    let error = settings.select(&choice("custom:off", None)).unwrap_err();
    assert_eq!(error, Error::ProviderDisabled { name: "off".to_owned() });
    assert!(matches!(settings.select(&choice("custom:none", None)), Err(Error::UnknownProvider { .. })));
}

#[test]
fn the_token_of_claude_code_is_used_only_by_name_or_without_a_key() {
    let select = |provider: &str, key: Option<&str>| {
        let variable = |name: &str| key.filter(|_| name == "ANTHROPIC_API_KEY").map(str::to_owned);
        let settings = ProviderSettings {
            servers: &BTreeMap::new(),
            variable: &variable,
            claude_code: &|| Some(PathBuf::from("/c.json")),
            max_attempts: 3,
            openrouter_routing: Map::new(),
        };
        settings.select(&choice(provider, None)).unwrap().endpoint.credentials
    };
    let token = |key: Option<&str>| {
        Some(ApiCredentials::ClaudeCode { path: PathBuf::from("/c.json"), key: key.map(Secret::new) })
    };
    assert_eq!(select("anthropic", Some("sk")), Some(ApiCredentials::Key(Secret::new("sk"))));
    assert_eq!(select("anthropic", None), token(None));
    assert_eq!(select("claude-code", Some("sk")), token(Some("sk")));
}

#[test]
fn model_ids_are_those_of_the_provider() {
    let keys = [("ANTHROPIC_API_KEY", "a"), ("OPENROUTER_API_KEY", "r")];
    let id = |provider: &str| {
        let model = "anthropic/claude-opus-4.6".to_owned();
        select(ModelChoice { model, ..choice(provider, None) }, &keys).unwrap().endpoint.model
    };
    assert_eq!(
        (id("anthropic").as_str(), id("openrouter").as_str()),
        ("claude-opus-4-6", "anthropic/claude-opus-4.6")
    );
}
