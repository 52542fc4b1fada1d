//! What a place on this machine could hurt is asked about once, whichever tool would do it.

use std::fs;

use hermes_agent::Tool;
use hermes_policy::{Choice, Mode};
use hermes_types::Attendance;
use serde_json::{Value, json};

use crate::bed::Session;
use crate::ground::Ground;

/// An owner with secrets, whose gate asks.
fn owner() -> Ground {
    let mut ground = Ground::local();
    ground.mode = Mode::Manual;
    let home = ground.home();
    for folder in [".ssh", ".aws"] {
        fs::create_dir(home.join(folder)).unwrap();
    }
    for (path, text) in [
        (home.join(".ssh/id_ed25519"), "key"),
        (home.join(".aws/credentials"), "key"),
        (home.join(".bashrc"), "true"),
        (ground.hermes_home().join(".env"), "A=1"),
        (ground.hermes_home().join("auth.json"), "{}"),
        (ground.hermes_home().join("config.yaml"), "{}"),
    ] {
        fs::write(path, text).unwrap();
    }
    ground
}

/// Denied: nothing is done. Allowed: it is done. One question each time.
async fn is_asked_once(ground: &Ground, tool: Tool, arguments: Value, untouched: impl Fn() -> bool) {
    let s: Session = ground.hands().await;
    s.person.will_say(Choice::Deny(None));
    let done = s.call(tool, arguments.clone()).await;
    assert!(done.is_denied(), "{arguments}: {}", done.content);
    assert_eq!(s.person.questions().len(), 1, "{arguments}");
    assert!(untouched(), "{arguments}");
    s.hands.begin_turn();
    s.person.will_say(Choice::Once);
    let done = s.call(tool, arguments.clone()).await;
    assert!(done.succeeded, "{arguments}: {}", done.content);
    assert_eq!(s.person.questions().len(), 1, "{arguments}");
}

#[tokio::test]
async fn secrets_are_read_and_changed_only_after_one_question() {
    let ground = owner();
    let (home, hermes) = (ground.home(), ground.hermes_home());
    for path in ["~/.ssh/id_ed25519", "../.aws/credentials"] {
        is_asked_once(&ground, Tool::ReadFile, json!({"path": path}), || true).await;
    }
    for path in [hermes.join(".env"), hermes.join("auth.json")] {
        is_asked_once(&ground, Tool::ReadFile, json!({"path": path}), || true).await;
    }
    for path in [home.join(".bashrc"), home.join(".ssh/authorized_keys")] {
        let before = fs::read(&path).ok();
        let arguments = json!({"path": path, "content": "x"});
        is_asked_once(&ground, Tool::WriteFile, arguments, || fs::read(&path).ok() == before).await;
        assert_eq!(fs::read(&path).unwrap(), b"x");
    }
    let key = home.join(".ssh/id_ed25519");
    let edit = json!({"mode": "replace", "path": key, "old_string": "key", "new_string": "other"});
    is_asked_once(&ground, Tool::Patch, edit, || fs::read(&key).unwrap() == b"key").await;
    assert_eq!(fs::read(&key).unwrap(), b"other");
    is_asked_once(&ground, Tool::SearchFiles, json!({"pattern": "o", "path": "~/.ssh"}), || true).await;
    let s = ground.hands().await;
    // What decides over hermes itself nobody can allow.
    s.person.will_say(Choice::Once);
    let own = json!({"path": hermes.join("config.yaml"), "content": "x"});
    assert!(s.call(Tool::WriteFile, own).await.is_denied());
    assert_eq!(
        (s.person.questions().len(), fs::read(hermes.join("config.yaml")).unwrap()),
        (0, b"{}".to_vec())
    );
    s.person.will_say(Choice::Deny(None));
    for path in ["/proc/self/environ", "/proc/1/environ", "/etc/shadow"] {
        s.hands.begin_turn();
        let done = s.call(Tool::ReadFile, json!({"path": path})).await;
        assert!(done.is_denied(), "{path}: {}", done.content);
    }
    for path in ["/etc/passwd", "/usr/lib/systemd/system/x.service", "/boot/x", "/etc/sudoers.d/x"] {
        s.hands.begin_turn();
        let done = s.call(Tool::WriteFile, json!({"path": path, "content": "x"})).await;
        assert!(done.is_denied(), "{path}: {}", done.content);
    }
    ground.leave().await;
}

#[tokio::test]
async fn a_link_does_not_lead_around_a_question() {
    let ground = owner();
    std::os::unix::fs::symlink(ground.home().join(".ssh/id_ed25519"), ground.work().join("harmless"))
        .unwrap();
    is_asked_once(&ground, Tool::ReadFile, json!({"path": "harmless"}), || true).await;
    ground.leave().await;
}

#[tokio::test]
async fn a_patch_is_judged_by_what_it_says_however_it_is_written() {
    let ground = owner();
    let rc = ground.home().join(".bashrc");
    for header in ["*** Update File:", "***Update File:", "***   update file :"] {
        let s = ground.hands().await;
        s.person.will_say(Choice::Deny(None));
        let patch = format!("{header} {}\n-true\n+evil", rc.display());
        let done = s.call(Tool::Patch, json!({"mode": "patch", "patch": patch})).await;
        assert!(done.is_denied(), "{header}: {}", done.content);
    }
    let s = ground.hands().await;
    s.person.will_say(Choice::Deny(None));
    fs::write(ground.work().join("plain"), "x\n").unwrap();
    for operation in [
        format!("*** Move File: plain -> {}", ground.home().join(".profile").display()),
        format!("*** Add File: {}\n+x", ground.home().join(".profile").display()),
        format!("*** Update File: plain\n-x\n+y\n*** Delete File: {}", rc.display()),
    ] {
        s.hands.begin_turn();
        let done = s.call(Tool::Patch, json!({"mode": "patch", "patch": operation})).await;
        assert!(done.is_denied(), "{operation}: {}", done.content);
    }
    assert_eq!(fs::read(&rc).unwrap(), b"true");
    assert_eq!(fs::read(ground.work().join("plain")).unwrap(), b"x\n");
    assert!(!ground.home().join(".profile").exists());
    ground.leave().await;
}

#[tokio::test]
async fn a_search_of_a_directory_does_not_show_the_secrets_below_it() {
    let ground = owner();
    fs::write(ground.hermes_home().join("auth.json"), "{\"word\": 1}").unwrap();
    fs::write(ground.owner.join("notes"), "a word").unwrap();
    let s = ground.hands().await;
    s.person.will_say(Choice::Deny(None));
    let told = s.told(Tool::SearchFiles, json!({"pattern": "word", "path": ground.owner})).await;
    let paths: Vec<&str> =
        told["matches"].as_array().unwrap().iter().map(|line| line["path"].as_str().unwrap()).collect();
    assert_eq!(paths, [ground.owner.join("notes").to_str().unwrap()], "{told}");
    assert_eq!(told["withheld"], 1, "{told}");
    assert_eq!(s.person.questions(), Vec::<String>::new());
    ground.leave().await;
}

#[tokio::test]
async fn what_is_typed_into_a_program_is_judged_like_a_command() {
    let ground = owner();
    let s = ground.hands().await;
    let shell = json!({"command": "bash", "background": true});
    s.person.will_say(Choice::Once);
    let id = s.told(Tool::Terminal, shell).await["session_id"].clone();
    s.person.questions();
    s.person.will_say(Choice::Deny(None));
    let typed = |text: &str| json!({"action": "submit", "session_id": id, "data": text});
    let done = s.call(Tool::Process, typed("rm -rf ~/.ssh")).await;
    assert!(done.is_denied(), "{}", done.content);
    assert_eq!(s.person.questions().len(), 1);
    let floor = s.call(Tool::Process, typed("rm -rf /")).await;
    assert!(floor.is_denied() && s.person.questions().is_empty(), "{}", floor.content);
    s.told(Tool::Process, typed("touch typed; exit")).await;
    s.told(Tool::Process, json!({"action": "wait", "session_id": id})).await;
    assert!(ground.work().join("typed").exists() && ground.home().join(".ssh").exists());
    ground.leave().await;
}

#[tokio::test]
async fn who_said_yes_is_told_and_denied_twice_is_not_asked_again() {
    let ground = owner();
    let s = ground.hands().await;
    s.person.will_say(Choice::Once);
    let command = json!({"command": "chmod 777 ~/.bashrc && echo done"});
    let done = s.told(Tool::Terminal, command.clone()).await;
    assert_eq!((&done["approval"], &done["output"]), (&json!("approved by cli"), &json!("done")));
    assert_eq!(s.told(Tool::Terminal, json!({"command": "true"})).await.get("approval"), None);
    s.person.questions();
    s.person.will_say(Choice::Deny(Some("not now".to_owned())));
    let denied = s.call(Tool::Terminal, command.clone()).await;
    assert!(denied.content["error"].as_str().unwrap().contains("not now"), "{}", denied.content);
    let again = s.call(Tool::Terminal, command).await;
    assert!(again.is_denied() && s.person.questions().len() == 1, "{}", again.content);
    ground.leave().await;
}

#[tokio::test]
async fn a_person_is_asked_what_the_model_wants_to_know() {
    let mut ground = Ground::local();
    let s = ground.hands().await;
    let question = json!({"question": " Which? ", "choices": ["a", " ", "b", "c", "d", "e"]});
    assert!(s.error(Tool::Clarify, question.clone()).await.contains("nobody answered"));
    *s.person.replies.lock().unwrap() = Some("b\n".to_owned());
    let told = s.told(Tool::Clarify, question.clone()).await;
    let expected =
        json!({"question": "Which?", "choices_offered": ["a", "b", "c", "d"], "user_response": "b"});
    assert_eq!(told, expected);
    assert!(s.error(Tool::Clarify, json!({"question": ""})).await.contains("empty"));
    ground.attendance = Attendance::Unattended;
    assert!(ground.hands().await.error(Tool::Clarify, question).await.contains("nobody is there"));
}
