//! Dangerous actions on this machine need one approval with every tool.

use std::fs;

use hermes_agent::Tool;
use hermes_policy::ApprovalMode;
use hermes_types::{Attendance, Choice};
use serde_json::{Value, json};

use crate::env::TestSession;
use crate::fixture::Fixture;

/// A home directory with secrets, and a gate that asks.
fn owner_fixture() -> Fixture {
    let mut fixture = Fixture::local();
    fixture.mode = ApprovalMode::Manual;
    let home = fixture.home();
    for folder in [".ssh", ".aws"] {
        fs::create_dir(home.join(folder)).unwrap();
    }
    for (path, text) in [
        (home.join(".ssh/id_ed25519"), "key"),
        (home.join(".aws/credentials"), "key"),
        (home.join(".bashrc"), "true"),
        (fixture.hermes_home().join(".env"), "A=1"),
        (fixture.hermes_home().join("auth.json"), "{}"),
        (fixture.hermes_home().join("config.yaml"), "{}"),
    ] {
        fs::write(path, text).unwrap();
    }
    fixture
}

/// Asserts that a denied call does nothing, an approved call succeeds, and each asks one question.
async fn assert_asked_once(fixture: &Fixture, tool: Tool, arguments: Value, is_unchanged: impl Fn() -> bool) {
    let s: TestSession = fixture.session().await;
    s.approver.answer_with(Choice::Deny { reason: None });
    let result = s.call(tool, arguments.clone()).await;
    assert!(result.is_denied(), "{arguments}: {}", result.content);
    assert_eq!(s.approver.take_questions().len(), 1, "{arguments}");
    assert!(is_unchanged(), "{arguments}");
    s.context.approvals().begin_turn();
    s.approver.answer_with(Choice::Once);
    let result = s.call(tool, arguments.clone()).await;
    assert!(result.succeeded, "{arguments}: {}", result.content);
    assert_eq!(s.approver.take_questions().len(), 1, "{arguments}");
}

#[tokio::test]
async fn secrets_are_read_and_changed_only_after_one_question() {
    let fixture = owner_fixture();
    let (home, hermes) = (fixture.home(), fixture.hermes_home());
    for path in ["~/.ssh/id_ed25519", "../.aws/credentials"] {
        assert_asked_once(&fixture, Tool::ReadFile, json!({"path": path}), || true).await;
    }
    for path in [hermes.join(".env"), hermes.join("auth.json")] {
        assert_asked_once(&fixture, Tool::ReadFile, json!({"path": path}), || true).await;
    }
    for path in [home.join(".bashrc"), home.join(".ssh/authorized_keys")] {
        let before = fs::read(&path).ok();
        let arguments = json!({"path": path, "content": "x"});
        assert_asked_once(&fixture, Tool::WriteFile, arguments, || fs::read(&path).ok() == before).await;
        assert_eq!(fs::read(&path).unwrap(), b"x");
    }
    let key = home.join(".ssh/id_ed25519");
    let edit = json!({"mode": "replace", "path": key, "old_string": "key", "new_string": "other"});
    assert_asked_once(&fixture, Tool::Patch, edit, || fs::read(&key).unwrap() == b"key").await;
    assert_eq!(fs::read(&key).unwrap(), b"other");
    assert_asked_once(&fixture, Tool::SearchFiles, json!({"pattern": "o", "path": "~/.ssh"}), || true).await;
    let s = fixture.session().await;
    // No approver can allow a change of the configuration.
    s.approver.answer_with(Choice::Once);
    let own = json!({"path": hermes.join("config.yaml"), "content": "x"});
    assert!(s.call(Tool::WriteFile, own).await.is_denied());
    assert_eq!(
        (s.approver.take_questions().len(), fs::read(hermes.join("config.yaml")).unwrap()),
        (0, b"{}".to_vec())
    );
    s.approver.answer_with(Choice::Deny { reason: None });
    for path in ["/proc/self/environ", "/proc/1/environ", "/etc/shadow"] {
        s.context.approvals().begin_turn();
        let result = s.call(Tool::ReadFile, json!({"path": path})).await;
        assert!(result.is_denied(), "{path}: {}", result.content);
    }
    for path in ["/etc/passwd", "/usr/lib/systemd/system/x.service", "/boot/x", "/etc/sudoers.d/x"] {
        s.context.approvals().begin_turn();
        let result = s.call(Tool::WriteFile, json!({"path": path, "content": "x"})).await;
        assert!(result.is_denied(), "{path}: {}", result.content);
    }
    fixture.remove().await;
}

#[tokio::test]
async fn reading_through_a_symlink_asks() {
    let fixture = owner_fixture();
    std::os::unix::fs::symlink(fixture.home().join(".ssh/id_ed25519"), fixture.work().join("harmless"))
        .unwrap();
    assert_asked_once(&fixture, Tool::ReadFile, json!({"path": "harmless"}), || true).await;
    fixture.remove().await;
}

#[tokio::test]
async fn a_patch_is_judged_by_its_parsed_operations() {
    let fixture = owner_fixture();
    let rc = fixture.home().join(".bashrc");
    for header in ["*** Update File:", "***Update File:", "***   update file :"] {
        let s = fixture.session().await;
        s.approver.answer_with(Choice::Deny { reason: None });
        let patch = format!("{header} {}\n-true\n+evil", rc.display());
        let result = s.call(Tool::Patch, json!({"mode": "patch", "patch": patch})).await;
        assert!(result.is_denied(), "{header}: {}", result.content);
    }
    let s = fixture.session().await;
    s.approver.answer_with(Choice::Deny { reason: None });
    fs::write(fixture.work().join("plain"), "x\n").unwrap();
    for operation in [
        format!("*** Move File: plain -> {}", fixture.home().join(".profile").display()),
        format!("*** Add File: {}\n+x", fixture.home().join(".profile").display()),
        format!("*** Update File: plain\n-x\n+y\n*** Delete File: {}", rc.display()),
    ] {
        s.context.approvals().begin_turn();
        let result = s.call(Tool::Patch, json!({"mode": "patch", "patch": operation})).await;
        assert!(result.is_denied(), "{operation}: {}", result.content);
    }
    assert_eq!(fs::read(&rc).unwrap(), b"true");
    assert_eq!(fs::read(fixture.work().join("plain")).unwrap(), b"x\n");
    assert!(!fixture.home().join(".profile").exists());
    fixture.remove().await;
}

#[tokio::test]
async fn a_search_of_a_directory_leaves_out_secrets_below_it() {
    let fixture = owner_fixture();
    fs::write(fixture.hermes_home().join("auth.json"), "{\"word\": 1}").unwrap();
    fs::write(fixture.owner.join("notes"), "a word").unwrap();
    let s = fixture.session().await;
    s.approver.answer_with(Choice::Deny { reason: None });
    let result = s.succeed(Tool::SearchFiles, json!({"pattern": "word", "path": fixture.owner})).await;
    let paths: Vec<&str> =
        result["matches"].as_array().unwrap().iter().map(|line| line["path"].as_str().unwrap()).collect();
    assert_eq!(paths, [fixture.owner.join("notes").to_str().unwrap()], "{result}");
    assert_eq!(result["withheld"], 1, "{result}");
    assert_eq!(s.approver.take_questions(), Vec::<String>::new());
    fixture.remove().await;
}

#[tokio::test]
async fn input_for_a_process_is_judged_like_a_command() {
    let fixture = owner_fixture();
    let s = fixture.session().await;
    let shell = json!({"command": "bash", "background": true});
    s.approver.answer_with(Choice::Once);
    let id = s.succeed(Tool::Terminal, shell).await["session_id"].clone();
    s.approver.take_questions();
    s.approver.answer_with(Choice::Deny { reason: None });
    let input = |text: &str| json!({"action": "submit", "session_id": id, "data": text});
    let result = s.call(Tool::Process, input("rm -rf ~/.ssh")).await;
    assert!(result.is_denied(), "{}", result.content);
    assert_eq!(s.approver.take_questions().len(), 1);
    let floor = s.call(Tool::Process, input("rm -rf /")).await;
    assert!(floor.is_denied() && s.approver.take_questions().is_empty(), "{}", floor.content);
    s.succeed(Tool::Process, input("touch typed; exit")).await;
    s.succeed(Tool::Process, json!({"action": "wait", "session_id": id})).await;
    assert!(fixture.work().join("typed").exists() && fixture.home().join(".ssh").exists());
    fixture.remove().await;
}

#[tokio::test]
async fn the_approver_is_reported_and_a_denied_command_is_not_asked_again() {
    let fixture = owner_fixture();
    let s = fixture.session().await;
    s.approver.answer_with(Choice::Once);
    let command = json!({"command": "chmod 777 ~/.bashrc && echo done"});
    let result = s.succeed(Tool::Terminal, command.clone()).await;
    assert_eq!((&result["approval"], &result["output"]), (&json!("approved by cli"), &json!("done")));
    assert_eq!(s.succeed(Tool::Terminal, json!({"command": "true"})).await.get("approval"), None);
    s.approver.take_questions();
    s.approver.answer_with(Choice::Deny { reason: Some("not now".to_owned()) });
    let denied = s.call(Tool::Terminal, command.clone()).await;
    assert!(denied.content["error"].as_str().unwrap().contains("not now"), "{}", denied.content);
    let again = s.call(Tool::Terminal, command).await;
    assert!(again.is_denied() && s.approver.take_questions().len() == 1, "{}", again.content);
    fixture.remove().await;
}

#[tokio::test]
async fn a_clarification_is_asked_and_answered() {
    let mut fixture = Fixture::local();
    let s = fixture.session().await;
    let question = json!({"question": " Which? ", "choices": ["a", " ", "b", "c", "d", "e"]});
    assert!(s.error(Tool::Clarify, question.clone()).await.contains("no answer came"));
    s.approver.reply_with("b\n");
    let result = s.succeed(Tool::Clarify, question.clone()).await;
    let expected =
        json!({"question": "Which?", "choices_offered": ["a", "b", "c", "d"], "user_response": "b"});
    assert_eq!(result, expected);
    assert!(s.error(Tool::Clarify, json!({"question": ""})).await.contains("empty"));
    fixture.attendance = Attendance::Unattended;
    assert!(fixture.session().await.error(Tool::Clarify, question).await.contains("no person is there"));
}
