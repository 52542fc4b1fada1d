//! The progress of a pull in a chat. The fake engine reports a pull but never has the image.

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::thread;

use hermes_testkit::ScriptStep;
use hermes_testkit::model::ModelScript;
use serde_json::json;

use crate::Run;
use crate::chat_env::{ChatEnv, terminal_call};

const IMAGE: &str = "localhost/never:1";

/// A fake engine that has no image and pretends to pull every image.
struct PullingEngine {
    folder: tempfile::TempDir,
}

impl PullingEngine {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(folder.path().join("sock")).unwrap();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                serve(stream);
            }
        });
        Self { folder }
    }

    fn host(&self) -> String {
        format!("unix://{}", self.folder.path().join("sock").display())
    }
}

fn serve(mut stream: UnixStream) {
    let mut request = Vec::new();
    let mut byte = [0];
    while !request.ends_with(b"\r\n\r\n") {
        if stream.read(&mut byte).unwrap_or(0) == 0 {
            return;
        }
        request.extend(byte);
    }
    let request = String::from_utf8(request).unwrap();
    let path = request.split(' ').nth(1).unwrap();
    let (status, body) = if path.ends_with("/_ping") {
        ("200 OK", "OK".to_owned())
    } else if path.ends_with("/info") {
        ("200 OK", json!({"Architecture": std::env::consts::ARCH, "Driver": "vfs"}).to_string())
    } else if path.contains("/images/create") {
        let step = |status: &str, current: u32| {
            let detail = json!({"current": current, "total": 4_000_000});
            json!({"id": "abc", "status": status, "progressDetail": detail}).to_string()
        };
        let steps =
            [step("Downloading", 1_000_000), step("Downloading", 3_000_000), step("Pull complete", 0)];
        ("200 OK", steps.join("\r\n"))
    } else if path.contains("/containers/json") {
        ("200 OK", "[]".to_owned())
    } else {
        ("404 Not Found", json!({"message": "no such thing"}).to_string())
    };
    let head = "Api-Version: 1.43\r\nContent-Type: application/json\r\nConnection: close";
    let response = format!("HTTP/1.1 {status}\r\n{head}\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    stream.write_all(response.as_bytes()).ok();
}

fn env(steps: impl IntoIterator<Item = ScriptStep>) -> ChatEnv {
    let config = format!("terminal: {{backend: docker, docker_image: \"{IMAGE}\", network: none}}\n");
    ChatEnv::with(ModelScript { steps: steps.into_iter().collect(), ..ModelScript::default() }, &config)
}

fn run(env: &ChatEnv, engine: &PullingEngine, args: &[&str]) -> Run {
    Run::of(env.command(args).env("DOCKER_HOST", engine.host()).output().unwrap())
}

#[test]
fn a_pull_is_shown_as_text_and_not_in_json() {
    let engine = PullingEngine::new();
    let script = || [terminal_call("c1", "echo hi"), ScriptStep::text("No place.")];
    let env = env([script(), script()].concat());
    let done = run(&env, &engine, &["chat", "-q", "look"]);
    assert_eq!((done.code, done.out.as_str()), (Some(0), "No place.\n"), "{done:?}");
    let lines: Vec<&str> = done.err.lines().collect();
    assert_eq!(lines.len(), 3, "{done:?}");
    assert_eq!(lines[0], format!("  pulling {IMAGE}"));
    assert!(lines[1].starts_with(&format!("  ✓ pulled {IMAGE}  ")), "{done:?}");
    assert!(lines[2].starts_with("  ✗ terminal  echo hi  "), "{done:?}");
    let document = run(&env, &engine, &["chat", "--json", "-q", "look"]);
    assert_eq!((document.code, document.err.as_str()), (Some(0), ""), "{document:?}");
    assert_eq!(document.json()["text"], "No place.");
    env.assert_no_violations();
}

#[test]
fn a_terminal_shows_pull_progress_in_a_transient_line() {
    let engine = PullingEngine::new();
    let env = env([terminal_call("c1", "echo hi"), ScriptStep::text("No place.")]);
    let mut terminal = env.open_terminal_with("xterm", &["chat"], ("DOCKER_HOST", &engine.host()));
    terminal.wait_for("> ");
    terminal.type_keys("!echo hi\r");
    terminal.wait_for(&format!("  … pulling {IMAGE} 25 %"));
    terminal.wait_for(&format!("  … pulling {IMAGE} 75 %"));
    terminal.wait_for(&format!("pulled {IMAGE}"));
    terminal.wait_for("> ");
    terminal.type_keys("look\r");
    terminal.wait_for(&format!("  … pulling {IMAGE} 75 %, for terminal  echo hi"));
    terminal.wait_for(&format!("pulled {IMAGE}"));
    terminal.wait_for("No place.");
    terminal.wait_for("> ");
    terminal.type_keys("\u{4}");
    assert_eq!(terminal.wait_for_exit().code(), Some(0));
    env.assert_no_violations();
}
