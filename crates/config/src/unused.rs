//! Keys of the Python program that this version does not use.

/// Keys that have no effect for a particular reason.
const EXPLAINED_KEYS: &[(&str, &str)] = &[
    ("terminal.persistent_shell", "the state of a session always persists"),
    ("approvals.destructive_slash_confirm", "/new and /undo run without a confirmation"),
    ("discord.allow_any_attachment", "files of every type are accepted"),
    ("security.allow_lazy_installs", "nothing is installed at run time"),
];

/// Keys that only the Python program reads, by section.
const PYTHON_KEYS: &[(&str, &[&str])] = &[
    ("", TOP_LEVEL_KEYS),
    ("agent", AGENT_KEYS),
    ("approvals", &["mcp_reload_confirm"]),
    ("auxiliary", AUXILIARY_TASKS),
    ("auxiliary.approval", &["extra_body"]),
    ("discord", DISCORD_KEYS),
    ("display", DISPLAY_KEYS),
    ("display.platforms", DISPLAY_PLATFORMS_KEYS),
    ("gateway", GATEWAY_KEYS),
    ("model", &["auth_mode", "entra", "extra_body", "supports_vision"]),
    ("security", SECURITY_KEYS),
    ("sessions", &["min_interval_hours", "vacuum_after_prune", "write_json_snapshots"]),
    ("skills", SKILLS_KEYS),
    ("streaming", &["buffer_threshold", "cursor", "fresh_final_after_seconds", "transport"]),
    ("terminal", TERMINAL_KEYS),
];

const TOP_LEVEL_KEYS: &[&str] = &[
    "always_log_local", "bedrock", "browser", "checkpoints", "clarify", "compression", "computer_use",
    "context", "context_file_max_chars", "credential_pool_strategies", "cron", "curator", "dashboard",
    "delegation", "desktop", "email", "filter_silence_narration", "goals", "honcho", "hooks",
    "hooks_auto_accept", "human_delay", "kanban", "lsp", "matrix", "mattermost", "max_concurrent_sessions",
    "max_live_sessions", "mcp", "mcp_discovery_timeout", "mcp_servers", "memory", "moa", "model_aliases",
    "model_catalog", "network", "onboarding", "openrouter", "paste_collapse_char_threshold",
    "paste_collapse_threshold", "paste_collapse_threshold_fallback", "personalities", "platform_hints",
    "platform_toolsets", "platforms", "plugins", "prefill_messages_file", "privacy", "prompt_caching",
    "quick_commands", "secrets", "session_store_max_age_days", "signal", "slack", "stt", "telegram",
    "timezone", "tools", "toolsets", "tts", "updates", "vertex", "voice", "web", "whatsapp", "x_search",
];

const AGENT_KEYS: &[&str] = &[
    "clarify_timeout", "coding_context", "coding_instructions", "disabled_toolsets", "environment_hint",
    "environment_probe", "gateway_auto_continue_freshness", "gateway_timeout_warning",
    "intent_ack_continuation", "local_stream_stale_timeout", "max_verify_nudges",
    "parallel_tool_call_guidance", "personalities", "prefill_messages_file", "reasoning_overrides",
    "restart_drain_timeout", "service_tier", "system_prompt", "task_completion_guidance",
    "tool_use_enforcement", "verbose", "verify_guidance", "verify_on_stop",
];

const AUXILIARY_TASKS: &[&str] = &[
    "compression", "curator", "kanban_decomposer", "mcp", "monitor", "profile_describer", "skills_hub",
    "title_generation", "triage_specifier", "tts_audio_tags", "vision", "web_extract",
];

const DISCORD_KEYS: &[&str] = &[
    "approval_mentions",
    "bots_require_inline_mention",
    "missed_message_backfill",
    "server_actions",
    "voice_fx",
    "websocket_heartbeat_ack_max_age_seconds",
    "websocket_liveness_failure_threshold",
    "websocket_liveness_interval_seconds",
    "websocket_max_latency_seconds",
];

const DISPLAY_KEYS: &[&str] = &[
    "background_process_notifications", "bell_on_complete", "busy_ack_detail", "busy_steer_ack_enabled",
    "cleanup_progress", "cli_refresh_interval", "compact", "copy_shortcut", "credits_notices",
    "details_mode", "ephemeral_system_ttl", "file_mutation_verifier", "final_response_markdown",
    "friendly_tool_labels", "inline_diffs", "interface", "interim_assistant_messages", "language",
    "long_running_notifications", "memory_notifications", "mouse_tracking", "persist_prompts",
    "persistent_output", "persistent_output_max_lines", "personality", "pet", "reasoning_full",
    "reasoning_style", "resume_display", "resume_exchanges", "resume_max_assistant_chars",
    "resume_max_assistant_lines", "resume_max_user_chars", "resume_skip_tool_only", "runtime_footer",
    "sections", "show_commentary", "show_cost", "skin", "status_phrases", "streaming", "timestamp_format",
    "timestamps", "tool_preview_length", "tool_progress_command", "tool_progress_grouping",
    "tool_progress_overrides", "tui_agents_nudge", "tui_auto_resume_recent", "tui_status_indicator",
    "turn_completion_explainer", "user_message_preview",
];

const DISPLAY_PLATFORMS_KEYS: &[&str] =
    &["api_server", "email", "matrix", "mattermost", "signal", "slack", "sms", "telegram", "whatsapp"];

const GATEWAY_KEYS: &[&str] = &[
    "api_server", "delivery_ledger", "max_concurrent_sessions", "max_inbound_media_bytes",
    "message_timestamps", "platform_connect_timeout", "platforms", "proxy_url", "respawn_storm",
    "restart_loop_guard", "scale_to_zero", "streaming", "strict", "trust_recent_files",
    "trust_recent_files_seconds", "write_sessions_json",
];

const SECURITY_KEYS: &[&str] = &[
    "acked_advisories", "allow_private_urls", "tirith_enabled", "tirith_fail_open", "tirith_path",
    "tirith_timeout", "website_blocklist",
];

const SKILLS_KEYS: &[&str] = &[
    "config", "creation_nudge_interval", "guard_agent_created", "inline_shell", "inline_shell_timeout",
    "template_vars", "write_approval",
];

const TERMINAL_KEYS: &[&str] = &[
    "daemon_term_grace_seconds", "disk_warning_gb", "modal_mode", "scratch_dir", "ssh_host", "ssh_key",
    "ssh_port", "ssh_user", "sudo_password",
];

/// The reason why a key has no effect, if it is a key of the Python program.
pub(super) fn unused_reason(path: &str) -> Option<&'static str> {
    let (section, name) = path.rsplit_once('.').unwrap_or(("", path));
    let explained = EXPLAINED_KEYS.iter().find(|(key, _)| *key == path).map(|(_, reason)| *reason);
    let is_python = PYTHON_KEYS.iter().any(|(known, names)| *known == section && names.contains(&name));
    explained.or(is_python.then_some("known to the Python program, not used by this version"))
}

/// The paths of all unused keys.
pub(super) fn unused_keys() -> impl Iterator<Item = String> {
    let python = PYTHON_KEYS.iter().flat_map(|(section, names)| {
        names.iter().map(
            move |name| if section.is_empty() { (*name).to_owned() } else { format!("{section}.{name}") },
        )
    });
    EXPLAINED_KEYS.iter().map(|(key, _)| (*key).to_owned()).chain(python)
}
