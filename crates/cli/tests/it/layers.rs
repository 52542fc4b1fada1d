//! Reports about invalid and unknown settings.

use crate::Home;

#[test]
fn an_invalid_value_prevents_the_start_and_is_located() {
    let cases = [
        (
            "terminal:\n  timeout: fast\n",
            ":2:12: terminal.timeout: expected a whole number from 0 up, found `fast`",
        ),
        (
            "terminal:\n  timeout: 0\n",
            ":2:12: terminal.timeout: expected a whole number from 1 up, found `0`",
        ),
        (
            "terminal:\n  timeout: [1]\n",
            ":2:12: terminal.timeout: expected a whole number from 0 up, found a list",
        ),
        (
            "terminal:\n  docker_forward_env: GITHUB_TOKEN\n",
            ":2:23: terminal.docker_forward_env: expected a list of variable names, found `GITHUB_TOKEN`",
        ),
        (
            "terminal: {backend: dokcer}\n",
            ":1:21: terminal.backend: expected one of local, sandbox, docker, ssh, singularity, modal, daytona, kubernetes, found `dokcer`",
        ),
        ("terminal: docker\n", ":1:1: terminal: expected a map, found text"),
        (
            "discord:\n  auto_thread: maybe\n",
            ":2:16: discord.auto_thread: expected true or false, found `maybe`",
        ),
        ("model:\n  api_key: [hunter2]\n", ":2:12: model.api_key: expected text, found something else"),
        ("terminal:\n  docker_image: true\n", ":2:17: terminal.docker_image: expected text, found `true`"),
        ("a: [\n", ": unclosed bracket '['"),
        ("a: 1\na: 2\n", ":2:1: duplicate key `a` (also on line 1); remove one of them"),
        ("- a\n", ":1:1: expected a map of settings, found a list"),
    ];
    for (text, expected) in cases {
        let home = Home::with_config(text);
        let run = home.run(&["status"]);
        assert_eq!(run.code, Some(3), "{text}");
        assert!(run.err.contains(expected.trim_start_matches(": ")), "{text}: {}", run.err);
        assert!(run.err.contains("config.yaml"), "{}", run.err);
        assert!(!run.err.contains("hunter2"), "{}", run.err);
        assert_eq!(run.out, "");
        assert_eq!(home.run(&["config", "check"]).code, Some(3));
        assert_eq!(home.read("config.yaml").unwrap(), text);
    }
}

#[test]
fn an_invalid_variable_is_named_with_its_source() {
    let home = Home::new();
    home.write(".env", "# x\nTERMINAL_TIMEOUT=soon\n");
    let run = home.run(&["status"]);
    assert_eq!(run.code, Some(3));
    assert!(
        run.err.contains(".env:2: terminal.timeout: TERMINAL_TIMEOUT: expected a whole number"),
        "{}",
        run.err
    );

    let loaded = Home::new().load(&[("TERMINAL_DOCKER_FORWARD_ENV", "A,B")]);
    let messages: Vec<_> = loaded.errors().map(|problem| problem.to_string()).collect();
    let expected = "terminal.docker_forward_env: TERMINAL_DOCKER_FORWARD_ENV: \
                    expected a list of variable names, found `A,B`";
    assert_eq!(messages, [expected]);
}

#[test]
fn unknown_keys_are_warnings_that_name_the_nearest_one() {
    let home = Home::with_config("terminal:\n  dokcer_image: x\nzzz_nothing: 1\napprovals: {mod: off}\n");
    let run = home.run(&["config", "check"]);
    assert_eq!(run.code, Some(0));
    assert!(run.err.contains("config.yaml:2:3: terminal.dokcer_image: unknown key, ignored"), "{}", run.err);
    assert!(run.err.contains("did you mean `terminal.docker_image`?"), "{}", run.err);
    assert!(run.err.contains("config.yaml:3:1: zzz_nothing: unknown key, ignored"), "{}", run.err);
    assert!(run.err.contains("did you mean `approvals.mode`?"), "{}", run.err);
}

#[test]
fn a_secret_in_clear_text_is_used_with_a_warning() {
    let home = Home::with_config("model:\n  api_key: sk-hunter2\n");
    let loaded = home.load(&[]);
    let messages: Vec<_> = loaded.problems.iter().map(|p| (p.line, p.message.as_str())).collect();
    assert_eq!(messages, [(2, "a secret in clear text")]);
    assert_eq!(loaded.config.unwrap().model.api_key.unwrap().expose(), "sk-hunter2");
    for args in [
        ["config", "show"].as_slice(),
        &["config", "get", "model.api_key"],
        &["config", "explain", "model.api_key"],
    ] {
        let run = home.run(args);
        assert_eq!(run.code, Some(0));
        assert!(!format!("{run:?}").contains("hunter2"), "{run:?}");
        assert!(run.out.contains("[secret]"), "{run:?}");
    }
}
