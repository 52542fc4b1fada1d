//! Exit codes, JSON output, help and `hermes config`.

use std::fs;
use std::io::{self, Write};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;

use serde_json::json;

use crate::{Home, Run};

#[test]
fn exit_codes_match_the_documentation() {
    let home = Home::new();
    let cases: [(&[&str], i32); 12] = [
        (&["--version"], 0),
        (&["--help"], 0),
        (&[], 2),
        (&["confg"], 2),
        (&["config", "get", "nothing.such"], 2),
        (&["config", "set", "terminal.timeout", "soon"], 2),
        (&["config", "migrate"], 3),
        (&["config", "check"], 0),
        (&["status"], 0),
        (&["doctor"], 0),
        (&["completions", "bash"], 0),
        (&["config", "unset", "terminal.timeout"], 0),
    ];
    for (args, code) in cases {
        assert_eq!(home.run(args).code, Some(code), "{args:?}");
    }
    assert_eq!(home.run(&["--version"]).out, concat!("hermes ", env!("CARGO_PKG_VERSION"), "\n"));
}

#[test]
fn a_misspelled_key_gets_a_suggestion() {
    let home = Home::new();
    assert!(home.run(&["stauts"]).err.contains("similar subcommand exists: 'status'"));
    assert!(home.run(&["config", "expalin", "x"]).err.contains("similar subcommand exists: 'explain'"));
    assert!(home.run(&["status", "--jsn"]).err.contains("similar argument exists: '--json'"));
}

#[test]
fn help_fits_the_terminal_and_tolerates_a_closed_pipe() {
    let home = Home::new();
    for args in [&["--help"][..], &["chat", "--help"], &["send", "--help"], &["gateway", "--help"]] {
        let help = Run::of(home.command(args).env("COLUMNS", "60").output().unwrap());
        let longest = help.out.lines().map(|line| line.chars().count()).max();
        assert!(longest.is_some_and(|longest| longest <= 60), "{}", help.out);
    }
    let (reader, writer) = io::pipe().unwrap();
    drop(reader);
    assert_eq!(home.command(&["--help"]).stdout(writer).status().unwrap().code(), Some(0));
}

#[test]
fn a_json_failure_is_one_document_on_stdout() {
    let run = Home::new().run(&["--json", "config", "get", "terminal.dokcer_image"]);
    assert_eq!(run.code, Some(2));
    let expected = json!({"error": {
        "kind": "usage",
        "message": "unknown key `terminal.dokcer_image`",
        "hints": ["did you mean `terminal.docker_image`?"],
    }});
    assert_eq!(run.json(), expected);
    assert_eq!(run.err, "");
}

#[test]
fn a_key_of_the_python_program_gets_an_explanation() {
    for args in [&["config", "get"][..], &["config", "set"]] {
        let mut args = args.to_vec();
        args.push("approvals.destructive_slash_confirm");
        args.extend((args[1] == "set").then_some("true"));
        let run = Home::new().run(&args);
        assert_eq!(run.code, Some(2));
        assert!(run.err.contains("it has no effect: /new and /undo"), "{}", run.err);
    }
}

#[test]
fn a_json_usage_error_is_one_document_on_stdout() {
    let home = Home::new();
    let run = home.run(&["exec", "--json", "--bakend", "local", "--", "true"]);
    let expected = json!({"error": {
        "kind": "usage",
        "message": "unexpected argument '--bakend' found",
        "hints": [
            "a similar argument exists: '--backend'",
            "to pass '--bakend' as a value, use '-- --bakend'",
            "Usage: hermes exec --json --backend <BACKEND> <COMMAND>...",
            "For more information, try '--help'.",
        ],
    }});
    assert_eq!((run.code, run.json(), run.err.as_str()), (Some(2), expected, ""));
    let other = home.run(&["exec", "--bakend", "local", "--", "echo", "--json"]);
    assert_eq!((other.code, other.out.as_str()), (Some(2), ""), "{other:?}");
}

#[test]
fn every_reporting_command_supports_json() {
    let home = Home::with_config("terminal: {backend: docker, docker_forward_env: [A, B]}\n");
    home.write(".env", "A=here\n");
    for args in [
        ["config", "path", "--json"].as_slice(),
        &["config", "show", "--json"],
        &["config", "get", "terminal.backend", "--json"],
        &["config", "explain", "terminal.backend", "--json"],
        &["config", "check", "--json"],
        &["config", "schema", "--json"],
        &["config", "set", "terminal.timeout", "9", "--json"],
        &["config", "unset", "terminal.timeout", "--json"],
        &["config", "migrate", "--dry-run", "--json"],
    ] {
        let run = home.run(args);
        assert_eq!(run.code, Some(0), "{args:?} {run:?}");
        run.json();
    }
    // Wherever an engine runs on this machine, it is not this one.
    let without_engine = |args: &[&str]| {
        Run::of(home.command(args).env("DOCKER_HOST", "unix:///no/such/socket").output().unwrap()).json()
    };
    assert_eq!(without_engine(&["doctor", "--json"])["ok"], false);
    let status = without_engine(&["status", "--json"]);
    assert_eq!(status["terminal"]["backend"], "docker");
    assert_eq!(
        status["terminal"]["source"],
        json!({"kind": "config.yaml", "key": "terminal.backend", "line": 1, "column": 21})
    );
    assert_eq!(
        status["terminal"]["forwarded"],
        json!([{"name": "A", "present": true}, {"name": "B", "present": false}])
    );
    assert_eq!(home.run(&["config", "get", "terminal.backend", "--json"]).json(), json!("docker"));
}

#[test]
fn explain_shows_the_value_its_source_and_what_it_hides() {
    let home = Home::with_config("terminal:\n  docker_forward_env: [FILE]\n");
    home.write(".env", "\nTERMINAL_DOCKER_FORWARD_ENV='[\"DOTENV\"]'\n");
    let mut command = home.command(&["config", "explain", "terminal.docker_forward_env", "--json"]);
    let run = Run::of(command.env("TERMINAL_DOCKER_FORWARD_ENV", "[\"PROCESS\"]").output().unwrap());
    let explained = run.json();
    assert_eq!(explained["value"], json!(["PROCESS"]));
    assert_eq!(
        explained["source"],
        json!({"kind": "environment", "variable": "TERMINAL_DOCKER_FORWARD_ENV"})
    );
    assert_eq!(
        explained["shadows"],
        json!([
            {"source": {"kind": ".env", "variable": "TERMINAL_DOCKER_FORWARD_ENV", "line": 2}, "value": ["DOTENV"]},
            {"source": {"kind": "config.yaml", "key": "terminal.docker_forward_env", "line": 2, "column": 23}, "value": ["FILE"]},
            {"source": {"kind": "default"}, "value": []},
        ])
    );
    let text = Run::of(
        home.command(&["config", "explain", "terminal.docker_forward_env"])
            .env("TERMINAL_DOCKER_FORWARD_ENV", "[\"PROCESS\"]")
            .output()
            .unwrap(),
    );
    for line in [
        "  value     [\"PROCESS\"]",
        "  from      environment, TERMINAL_DOCKER_FORWARD_ENV",
        "  hides     [\"DOTENV\"]  (.env, line 2, TERMINAL_DOCKER_FORWARD_ENV)",
        "            [\"FILE\"]  (config.yaml, line 2)",
        "            []  (default)",
    ] {
        assert!(text.out.lines().any(|found| found == line), "{line}\n{}", text.out);
    }
}

#[test]
fn secrets_go_to_the_secrets_file_and_are_never_shown() {
    let home = Home::with_config("# mine\nmodel:\n  default: m\n  api_key: old-in-clear # oops\n");
    home.write(".env", "# tokens\nexport DISCORD_BOT_TOKEN='old' # bot\n");
    fs::set_permissions(home.path().join(".env"), fs::Permissions::from_mode(0o644)).unwrap();
    let cases = [
        ("discord.bot_token", "DISCORD_BOT_TOKEN"),
        ("DISCORD_BOT_TOKEN", "DISCORD_BOT_TOKEN"),
        ("model.api_key", "HERMES_MODEL_API_KEY"),
        ("SUDO_PASSWORD", "SUDO_PASSWORD"),
        ("OPENROUTER_API_KEY", "OPENROUTER_API_KEY"),
        ("EMAIL_PASSWORD", "EMAIL_PASSWORD"),
        ("AWS_SECRET_ACCESS_KEY", "AWS_SECRET_ACCESS_KEY"),
        ("DINGTALK_CLIENT_SECRET", "DINGTALK_CLIENT_SECRET"),
        ("auxiliary.vision.api_key", "AUXILIARY_VISION_API_KEY"),
        ("telegram.bot_token", "TELEGRAM_BOT_TOKEN"),
    ];
    for (name, variable) in cases {
        let secret = format!("hunter2 for '{name}'");
        let run = home.run(&["config", "set", name, &secret]);
        assert_eq!(run.code, Some(0), "{run:?}");
        assert!(!format!("{run:?}").contains("hunter2"), "{run:?}");
        assert_eq!(home.load(&[]).layers.dotenv.get(variable).unwrap().value, secret);
        assert!(!home.read("config.yaml").unwrap().contains("hunter2"));
    }
    assert!(home.read(".env").unwrap().starts_with("# tokens\nexport DISCORD_BOT_TOKEN="));
    assert_eq!(home.read("config.yaml").unwrap(), "# mine\nmodel:\n  default: m\n  # oops\n");
    let mode = fs::metadata(home.path().join(".env")).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode, 0o600);
    let run = home.run(&["config", "unset", "discord.bot_token"]);
    assert_eq!(run.code, Some(0));
    assert!(home.load(&[]).layers.dotenv.get("DISCORD_BOT_TOKEN").is_none());
}

#[test]
fn a_secret_can_be_read_from_standard_input() {
    let home = Home::new();
    let mut child = home
        .command(&["config", "set", "model.api_key", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(b"hunter2 $x\n").unwrap();
    let run = Run::of(child.wait_with_output().unwrap());
    assert_eq!(run.code, Some(0), "{run:?}");
    assert!(!format!("{run:?}").contains("hunter2"));
    assert_eq!(home.load(&[]).config.unwrap().model.api_key.unwrap().expose(), "hunter2 $x");
}

#[test]
fn set_refuses_a_file_it_cannot_parse_and_leaves_it_byte_for_byte() {
    for broken in [b"a: [1\nb: 2\n".as_slice(), b"a: 1\na: 2\n", b"x: \xff\n", b"a: 1\n---\nb: 2\n", b"\0\0"]
    {
        let home = Home::new();
        home.write("config.yaml", broken);
        let run = home.run(&["config", "set", "terminal.timeout", "5"]);
        assert_eq!(run.code, Some(3), "{run:?}");
        assert!(run.err.contains("left as it is"), "{run:?}");
        assert_eq!(fs::read(home.path().join("config.yaml")).unwrap(), broken);
    }
}

#[test]
fn a_value_with_an_anchor_is_not_changed() {
    let text = "x: &a {timeout: 5}\nterminal: *a\n";
    let home = Home::with_config(text);
    let run = home.run(&["config", "set", "terminal.timeout", "6"]);
    assert_eq!(run.code, Some(3), "{run:?}");
    assert!(run.err.contains("uses an anchor, an alias or a tag"), "{run:?}");
    assert_eq!(home.read("config.yaml").unwrap(), text);
}

#[test]
fn a_new_file_holds_the_value_and_no_defaults() {
    let home = Home::new();
    assert_eq!(home.run(&["config", "set", "terminal.backend", "apptainer"]).code, Some(0));
    assert_eq!(home.read("config.yaml").unwrap(), "_config_version: 33\nterminal:\n  backend: singularity\n");
    let mode = fs::metadata(home.path().join("config.yaml")).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode, 0o600);
    assert_eq!(home.run(&["config", "unset", "terminal.backend"]).code, Some(0));
    assert_eq!(home.read("config.yaml").unwrap(), "_config_version: 33\n");
}

#[test]
fn parts_of_maps_and_lists_can_be_set() {
    let home = Home::new();
    let cases: [(&[&str], i32); 6] = [
        (&["terminal.docker_env.DEBUG", "off"], 0),
        (&["terminal.docker_env.9X", "1"], 2),
        (&["terminal.docker_volumes", r#"["/a:/b"]"#], 0),
        (&["terminal.docker_volumes.1", "/c:/d:ro"], 0),
        (&["terminal.docker_volumes.7", "/e:/f"], 3),
        (&["terminal.docker_volumes.0", "nonsense"], 2),
    ];
    for (args, code) in cases {
        let run = home.run(&[&["config", "set"], args].concat());
        assert_eq!(run.code, Some(code), "{args:?} {run:?}");
    }
    let expected = "_config_version: 33\nterminal:\n  docker_env:\n    DEBUG: \"off\"\n  docker_volumes:\n    \
                    - /a:/b\n    - /c:/d:ro\n";
    assert_eq!(home.read("config.yaml").unwrap(), expected);
}

#[test]
fn migrate_shows_a_diff_keeps_a_backup_and_is_idempotent() {
    let old =
        "# kept\nterminal:\n  env_type: docker # why\nmemory: {write_mode: approve}\n_config_version: 28\n";
    let home = Home::with_config(old);
    assert_eq!(home.run(&["config", "migrate", "--dry-run"]).code, Some(0));
    assert_eq!(home.read("config.yaml").unwrap(), old);
    let run = home.run(&["config", "migrate"]);
    assert_eq!(run.code, Some(0));
    assert!(run.out.contains("\n-  env_type: docker # why\n"), "{}", run.out);
    assert!(run.out.contains("\n+  backend: docker # why\n"), "{}", run.out);
    assert_eq!(home.read("config.yaml.v28.bak").unwrap(), old);
    let new =
        "# kept\nterminal:\n  backend: docker # why\nmemory: {write_approval: true}\n_config_version: 33\n";
    assert_eq!(home.read("config.yaml").unwrap(), new);
    let run = home.run(&["config", "migrate"]);
    assert!(run.out.contains("is up to date (version 33)"), "{}", run.out);
    assert_eq!(home.read("config.yaml").unwrap(), new);
}

#[test]
fn a_managed_home_is_not_written() {
    let home = Home::new();
    let mut command = home.command(&["config", "set", "terminal.timeout", "5"]);
    let run = Run::of(command.env("HERMES_MANAGED", "1").output().unwrap());
    assert_eq!(run.code, Some(4));
    assert!(home.read("config.yaml").is_err());
}

#[test]
fn read_only_commands_do_not_create_the_home() {
    let outer = Home::new();
    let inner = outer.path().join("not yet");
    let inner = inner.to_str().unwrap();
    for args in
        [["status"].as_slice(), &["doctor"], &["config", "show"], &["config", "check"], &["--version"]]
    {
        let run = outer.run(&[&["--home", inner], args].concat());
        assert_eq!(run.code, Some(0), "{run:?}");
    }
    assert!(fs::metadata(inner).is_err());
}

#[test]
fn a_missing_home_is_an_error() {
    let home = Home::new();
    let run = Run::of(home.command(&["status"]).env_remove("HERMES_HOME").output().unwrap());
    assert_eq!(run.code, Some(3));
    assert!(run.err.contains("Use --home DIR or set HERMES_HOME."), "{run:?}");
}

#[test]
fn an_environment_that_is_not_utf8_is_ignored() {
    let home = Home::new();
    let mut command = home.command(&["status"]);
    command.env("ODD", std::ffi::OsString::from_vec(vec![0xff, 0xfe]));
    assert_eq!(Run::of(command.output().unwrap()).code, Some(0));
}

#[test]
fn edit_opens_the_editor_and_checks_the_result() {
    let home = Home::new();
    let mut command = home.command(&["config", "edit"]);
    command.env("PATH", "/usr/bin:/bin").env("EDITOR", "false");
    let run = Run::of(command.output().unwrap());
    assert_eq!(run.code, Some(1), "{run:?}");

    home.write("edit.sh", "#!/bin/sh\nprintf 'terminal:\\n  timeout: soon\\n' >> \"$1\"\n");
    fs::set_permissions(home.path().join("edit.sh"), fs::Permissions::from_mode(0o700)).unwrap();
    let mut command = home.command(&["config", "edit"]);
    command.env("PATH", "/usr/bin:/bin").env("VISUAL", home.path().join("edit.sh"));
    let run = Run::of(command.output().unwrap());
    assert_eq!(run.code, Some(3), "{run:?}");
    assert!(run.err.contains("terminal.timeout: expected a whole number"), "{run:?}");
}

#[test]
fn doctor_reports_readable_secrets_with_a_remedy() {
    let home = Home::with_config("terminal: {timeout: soon}\n");
    home.write(".env", "A_TOKEN=hunter2\n");
    fs::set_permissions(home.path().join(".env"), fs::Permissions::from_mode(0o644)).unwrap();
    let run = home.run(&["doctor"]);
    assert_eq!(run.code, Some(3), "{run:?}");
    assert!(run.out.contains("broken   configuration:"), "{}", run.out);
    assert!(run.out.contains("can be read by other users (mode 644)"), "{}", run.out);
    assert!(run.out.contains("chmod 600"), "{}", run.out);
    assert!(!run.out.contains("hunter2"));
}

#[test]
fn the_log_records_changes_without_secrets() {
    let outer = Home::new();
    // The path of the home is the only text of a log line that this test can choose.
    let home = outer.path().join("sesame-open-4711");
    fs::create_dir(&home).unwrap();
    fs::write(home.join(".env"), "DOOR_TOKEN=sesame-open-4711\n").unwrap();
    let run = outer.run(&["--home", home.to_str().unwrap(), "-v", "config", "set", "terminal.timeout", "5"]);
    assert_eq!(run.code, Some(0), "{run:?}");
    let log = fs::read_to_string(home.join("logs").join("agent.log")).unwrap();
    for text in [&log, &run.err] {
        assert!(text.contains("setting changed"), "{text}");
        assert!(!text.contains("sesame"), "{text}");
    }
}

#[test]
fn the_log_level_is_chosen_by_flag_or_variable() {
    let home = Home::new();
    let run = |variable: &str, args: &[&str]| {
        Run::of(home.command(args).env("HERMES_LOG", variable).output().unwrap())
    };
    let set = ["config", "set", "terminal.timeout", "5"];
    assert!(!run("", &set).err.contains("INFO"));
    assert!(run("info", &set).err.contains("INFO"));
    assert!(run("error", &[&["-v"], set.as_slice()].concat()).err.contains("INFO"));
    let bad = run("hermes=loud", &set);
    assert_eq!(bad.code, Some(3), "{bad:?}");
}

#[test]
fn the_reference_page_is_fresh() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/config.md");
    let current = fs::read_to_string(page).unwrap_or_default();
    assert!(current == hermes_config::schema::markdown(), "docs/config.md is stale; run `cargo xtask docs`");
}

#[test]
fn the_schema_names_every_key() {
    let schema = Home::new().run(&["config", "schema"]).json();
    for key in hermes_config::keys::all() {
        let mut at = &schema;
        for (depth, part) in key.path.split('.').enumerate() {
            let inner = &at["properties"][part];
            at = if depth == 0 && part == "model" { &inner["anyOf"][1] } else { inner };
        }
        assert!(at["description"].is_string(), "{}", key.path);
    }
}

#[test]
#[expect(clippy::disallowed_methods, reason = "the shells that read the scripts")]
fn completion_scripts_are_valid() {
    let script = Home::new().run(&["completions", "bash"]).out;
    assert!(script.contains("config"));
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(&file, script).unwrap();
    let status = std::process::Command::new("bash").arg("-n").arg(file.path()).status().unwrap();
    assert!(status.success());
    for shell in ["zsh", "fish", "elvish", "powershell"] {
        assert!(Home::new().run(&["completions", shell]).out.contains("explain"), "{shell}");
    }
}

#[test]
fn the_approval_mode_smart_can_be_set() {
    let home = Home::with_config("approvals: {mode: manual}\n");
    let run = home.run(&["config", "set", "approvals.mode", "smart"]);
    assert_eq!(run.code, Some(0), "{run:?}");
    assert_eq!(home.read("config.yaml").unwrap(), "approvals: {mode: smart}\n");
}
