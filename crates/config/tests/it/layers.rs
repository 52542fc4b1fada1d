//! The order of layers, and problems with values.

use hermes_config::define::{ConfigKey, Visibility};
use hermes_config::keys;
use hermes_config::layers::{Severity, Source};
use serde_json::{Value, json};

use crate::Home;

/// Three different texts that a key accepts.
fn three_values(key: &ConfigKey) -> [String; 3] {
    let schema = key.accepted().schema;
    if let Some(words) = schema["enum"].as_array() {
        return [0, 1, 2].map(|index| words[index % words.len()].as_str().unwrap().to_owned());
    }
    if let Some(examples) = schema["examples"].as_array() {
        let text = |example: &Value| example.as_str().map_or_else(|| example.to_string(), str::to_owned);
        return std::array::from_fn(|n| text(&examples[n]));
    }
    let item = |n: usize| match schema["items"]["pattern"].as_str() {
        Some(pattern) if pattern.contains(':') => format!("/s{n}:/t{n}"),
        _ => format!("NAME_{n}"),
    };
    [1, 2, 3].map(|n| match schema["type"].as_str() {
        Some("boolean") => (n % 2 == 0).to_string(),
        Some("integer" | "number") => (n * 10).to_string(),
        Some("array") => json!([item(n)]).to_string(),
        Some("object") => json!({ "NAME": format!("v{n}") }).to_string(),
        _ => format!("word{n}"),
    })
}

#[test]
fn the_order_is_the_same_for_every_key() {
    for key in keys::all() {
        let [process, dotenv, file] = three_values(key);
        let shown = |text: &str| {
            let node = hermes_config::yaml::Node::from_text(text);
            key.check(&node, &mut Vec::new()).unwrap_or_else(|wrong| panic!("{}: {wrong:?}", key.path))
        };
        let home = Home::new();
        home.write(".env", format!("{}='{dotenv}'\n", key.variable));
        let value = if file.starts_with(['[', '{']) { file.clone() } else { format!("\"{file}\"") };
        let (mut text, mut indent) = (String::new(), 0);
        for part in key.path.split('.') {
            text.push_str(&format!("{}{:indent$}{part}:", if text.is_empty() { "" } else { "\n" }, ""));
            indent += 2;
        }
        home.write("config.yaml", format!("{text} {value}\n"));

        let environment = [(key.variable, process.as_str())];
        let environment = environment.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        let loaded = hermes_config::load(home.path(), environment);
        let resolved = loaded.resolved(key.path).unwrap();
        let order: Vec<&Value> =
            std::iter::once(&resolved.value).chain(resolved.shadows.iter().map(|(_, value)| value)).collect();
        let mut expected: Vec<Value> = [&process, &dotenv, &file].map(|text| shown(text)).into();
        expected.push((key.default)());
        assert_eq!(order, expected.iter().collect::<Vec<_>>(), "{}", key.path);
        assert!(loaded.config.is_some(), "{}: {:?}", key.path, loaded.problems);
        if key.visibility == Visibility::Secret {
            assert!(!format!("{loaded:?}").contains("shown: word"), "{}", key.path);
            assert_eq!(resolved.value, json!("[secret]"));
        }
    }
}

#[test]
fn a_blank_variable_counts_as_unset() {
    let home = Home::with_config("terminal: {timeout: 5}\n");
    home.write(".env", "TERMINAL_ENV=\n");
    let loaded = home.load(&[("TERMINAL_TIMEOUT", "  ")]);
    let config = loaded.config.unwrap();
    assert_eq!(config.terminal.timeout, 5);
    assert_eq!(config.terminal.backend.as_str(), "local");
}

#[test]
fn variables_of_the_python_program_are_read() {
    let home = Home::new();
    let loaded = home.load(&[
        ("TERMINAL_ENV", "docker"),
        ("TERMINAL_DOCKER_FORWARD_ENV", r#"["GITHUB_TOKEN", " NPM_TOKEN ", "GITHUB_TOKEN"]"#),
        ("TERMINAL_DOCKER_ENV", r#"{"DEBUG": true, "LEVEL": 5, "NAME": "x"}"#),
        ("TERMINAL_DOCKER_VOLUMES", r#"["/a b:/c:ro"]"#),
        ("TERMINAL_DOCKER_MOUNT_CWD_TO_WORKSPACE", "yes"),
        ("TERMINAL_CONTAINER_CPU", "0.5"),
        ("DISCORD_AUTO_THREAD", "false"),
        ("DISCORD_FREE_RESPONSE_CHANNELS", "1, 2,,3"),
        ("HERMES_INFERENCE_MODEL", "m"),
    ]);
    assert_eq!(loaded.problems, []);
    let config = loaded.config.unwrap();
    assert_eq!(config.terminal.backend.as_str(), "docker");
    let names: Vec<_> = config.terminal.docker_forward_env.iter().map(|name| name.as_str()).collect();
    assert_eq!(names, ["GITHUB_TOKEN", "NPM_TOKEN"]);
    let values: Vec<_> = config.terminal.docker_env.values().map(String::as_str).collect();
    assert_eq!(values, ["true", "5", "x"]);
    assert_eq!(config.terminal.docker_volumes[0].to_string(), "/a b:/c:ro");
    assert!(config.terminal.docker_mount_cwd_to_workspace);
    assert_eq!(config.terminal.container_cpu, 0.5);
    assert!(!config.discord.auto_thread);
    assert_eq!(config.discord.free_response_channels.0, ["1", "2", "3"]);
    assert_eq!(config.model.default, "m");
}

#[test]
fn a_configuration_of_the_python_program_loads() {
    let home = Home::with_config(include_str!("../fixtures/python-user.yaml"));
    let loaded = home.load(&[]);
    let noted: Vec<_> =
        loaded.problems.iter().map(|p| (p.severity, p.key.clone().unwrap(), p.line)).collect();
    let note = |key: &str, line| (Severity::Note, key.to_owned(), line);
    assert_eq!(noted, [note("display.skin", 88), note("quick_commands", 89), note("mcp_servers", 94)]);
    let config = loaded.config.unwrap();
    assert_eq!(config.terminal.backend.as_str(), "docker");
    assert_eq!(config.model.default, "anthropic/claude-opus-4.6");
    assert_eq!(config.terminal.docker_volumes.len(), 2);
    assert_eq!(config.discord.free_response_channels.0, ["123456789012345678"]);
    assert!(!config.terminal.docker_mount_cwd_to_workspace);
    assert_eq!(config.approvals.mode, hermes_policy::ApprovalMode::Off);
}

#[test]
fn defaults_written_by_the_python_program_are_accepted() {
    let text = "_config_version: 33\nmax_live_sessions: 4\nagent: {verify_on_stop: false, reasoning_overrides: {}}\n\
                terminal: {docker_network: true, daemon_term_grace_seconds: 2}\nmcp: {}\n\
                display: {pet: {enabled: false}, status_phrases: []}\n\
                discord: {websocket_liveness_interval_seconds: 15, approval_mentions: false}\n\
                gateway: {delivery_ledger: true, scale_to_zero: {idle_timeout_minutes: 5}}\npersonalities: {}\n";
    let loaded = Home::with_config(text).load(&[]);
    let worse: Vec<_> = loaded.problems.iter().filter(|p| p.severity != Severity::Note).collect();
    assert!(worse.is_empty(), "{worse:?}");
    assert!(loaded.config.is_some());
}

#[test]
fn bad_entries_are_dropped_one_by_one_with_a_warning_each() {
    let text = "terminal:\n  docker_forward_env: [OK, 9X, [a], ' OK ', A-B]\n  docker_env: {A: 1, B: yes, C: [x], 'D E': z}\n  \
                docker_volumes:\n    - /a:/x\n    - nothing\n    - /b:/x\n    - '~/c d:/y:ro'\n    - {a: b}\n";
    let home = Home::with_config(text);
    let loaded = home.load(&[]);
    let warnings: Vec<_> = loaded.problems.iter().map(|p| (p.severity, p.line, p.message.as_str())).collect();
    let warn = |line, message| (Severity::Warning, line, message);
    assert_eq!(
        warnings,
        [
            warn(
                2,
                "entry 1: `9X` is not a variable name (letters, digits and `_`, not starting with a digit); ignored"
            ),
            warn(2, "entry 2: a list is not a variable name; ignored"),
            warn(
                2,
                "entry 4: `A-B` is not a variable name (letters, digits and `_`, not starting with a digit); ignored"
            ),
            warn(3, "`C`: a list is not text; ignored"),
            warn(
                3,
                "`D E` is not a variable name (letters, digits and `_`, not starting with a digit); ignored"
            ),
            warn(6, "entry 1 (`nothing`): no `:` between source and target; ignored"),
            warn(7, "entry 2 (`/b:/x`): `/x` is mounted by an earlier entry; ignored"),
            warn(9, "entry 4 (a map): not text; ignored"),
        ]
    );
    let config = loaded.config.unwrap();
    assert_eq!(config.terminal.docker_forward_env.len(), 1);
    let env: Vec<_> = config.terminal.docker_env.iter().map(|(k, v)| format!("{k}={v}")).collect();
    assert_eq!(env, ["A=1", "B=yes"]);
    let volumes: Vec<_> = config.terminal.docker_volumes.iter().map(ToString::to_string).collect();
    assert_eq!(volumes, ["/a:/x", "~/c d:/y:ro"]);
}

#[test]
fn variables_in_texts_are_replaced_and_unknown_ones_stay() {
    let home = Home::with_config("terminal:\n  docker_image: ${REG}/img:${TAG}\n  cwd: '${NOT_THERE}/x'\n");
    home.write(".env", "TAG=7\nREG=shadowed\n");
    let loaded = home.load(&[("REG", "r.example")]);
    let messages: Vec<_> = loaded.problems.iter().map(|p| p.message.as_str()).collect();
    assert_eq!(messages, ["`${NOT_THERE}` is not set and stays as it is"]);
    let config = loaded.config.unwrap();
    assert_eq!(config.terminal.docker_image, "r.example/img:7");
    assert_eq!(config.terminal.cwd, "${NOT_THERE}/x");
}

#[test]
fn older_names_count_until_the_present_one_is_there() {
    let home = Home::with_config("terminal: {env_type: ssh}\nmodel: {model: old}\n");
    let loaded = home.load(&[]);
    assert_eq!(loaded.problems, []);
    let config = loaded.config.unwrap();
    assert_eq!((config.terminal.backend.as_str(), config.model.default.as_str()), ("ssh", "old"));

    let home = Home::with_config("terminal: {env_type: ssh, backend: docker}\n");
    let loaded = home.load(&[]);
    let resolved = loaded.resolved("terminal.backend").unwrap();
    assert_eq!(resolved.value, "docker");
    assert!(matches!(&resolved.shadows[0].0, Source::File { key, .. } if key == "terminal.env_type"));
}

#[test]
fn a_newer_file_is_read_with_a_warning() {
    let loaded = Home::with_config("_config_version: 99\nterminal: {timeout: 7}\n").load(&[]);
    let messages: Vec<_> = loaded.problems.iter().map(|p| (p.severity, p.message.as_str())).collect();
    assert_eq!(messages, [(Severity::Warning, "version 99 is newer than this program's 33")]);
    assert_eq!(loaded.config.unwrap().terminal.timeout, 7);
}

#[test]
fn keys_that_this_version_does_not_use_are_accepted_and_reported() {
    let home = Home::with_config(
        "terminal: {ssh_host: h, sudo_password: hunter2}\nmodel: {entra: {scope: s}}\napprovals: {mcp_reload_confirm: true}\n",
    );
    let loaded = home.load(&[]);
    assert!(loaded.config.is_some());
    let reported: Vec<_> = loaded.problems.iter().filter_map(|problem| problem.key.as_deref()).collect();
    assert_eq!(
        reported,
        ["terminal.ssh_host", "terminal.sudo_password", "model.entra", "approvals.mcp_reload_confirm"]
    );
    assert!(loaded.problems.iter().all(|problem| problem.severity == Severity::Note));
}

#[test]
fn the_approval_mode_smart_and_its_model_are_read() {
    let file = "approvals: {mode: smart}\nauxiliary:\n  approval: {provider: openrouter, model: small, \
                base_url: '', timeout: 20, extra_body: {}}\n  vision: {model: other}\n";
    let loaded = Home::with_config(file).load(&[]);
    let reported: Vec<_> = loaded.problems.iter().filter_map(|problem| problem.key.as_deref()).collect();
    assert_eq!(reported, ["auxiliary.approval.extra_body", "auxiliary.vision"]);
    assert!(loaded.problems.iter().all(|problem| problem.severity == Severity::Note));
    let config = loaded.config.unwrap();
    assert_eq!(config.approvals.mode, hermes_policy::ApprovalMode::Smart);
    let read = config.auxiliary_approval;
    assert_eq!((read.provider.as_str(), read.model.as_str(), read.timeout), ("openrouter", "small", 20));
}

#[test]
fn the_sessions_section_is_not_reported_as_unused() {
    let loaded = Home::with_config("sessions: {auto_prune: true, vacuum_after_prune: true}\n").load(&[]);
    let reported: Vec<_> = loaded.problems.iter().filter_map(|problem| problem.key.as_deref()).collect();
    assert_eq!(reported, ["sessions.vacuum_after_prune"]);
    assert!(loaded.config.unwrap().sessions.auto_prune);
}
