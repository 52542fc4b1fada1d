//! Pictures that people send.

use std::fs;
use std::time::{Duration, SystemTime};

use hermes_testkit::Step;
use hermes_testkit::discord::{File, Id, Post};
use hermes_testkit::model::Script;
use serde_json::{Value, json};

use crate::hall::{Hall, until};

const PNG: &[u8] = b"\x89PNG\r\n\x1a\nand the rest of it";

/// A file that the platform calls something else.
fn file(name: &str, bytes: &[u8]) -> File {
    let content_type = Some("text/plain".to_owned());
    File { name: name.to_owned(), content_type, bytes: bytes.to_vec(), ..File::default() }
}

fn post(hall: &Hall, dm: Id, text: &str, files: Vec<File>) -> Id {
    hall.server.post(hall.ann, dm, Post { text: text.to_owned(), files, ..Post::default() })
}

/// The pictures in each request.
fn seen(hall: &Hall) -> Vec<Vec<Vec<u8>>> {
    let requests = hall.model.received().into_iter().filter(|request| request.line.starts_with("POST"));
    requests.map(|request| request.pictures().into_iter().map(|picture| picture.bytes).collect()).collect()
}

/// What a request has a person say last.
fn last_words(request: &Value) -> String {
    let messages = request["messages"].as_array().unwrap();
    let said = messages.iter().rfind(|message| message["role"] == "user").unwrap();
    match &said["content"] {
        Value::String(text) => text.clone(),
        parts => parts[0]["text"].as_str().unwrap().to_owned(),
    }
}

#[tokio::test]
async fn a_model_sees_the_pictures_of_a_conversation_until_it_is_over() {
    let hall = Hall::new((1..=5).map(|number| Step::text(&format!("answer {number}")))).await.open().await;
    let dm = hall.server.dm(hall.ann);
    let files = vec![file("cat.png", PNG), file("fake.png", b"no picture"), file("dog", b"GIF89a")];
    let message = post(&hall, dm, "", files);
    assert_eq!(hall.said(dm, 1).await, ["answer 1"]);
    let at = format!("at /workspace/.hermes/cache/{dm}/{message}");
    let lines = [
        format!("[file cat.png: {} bytes, image/png, {at}/cat.png]", PNG.len()),
        format!("[file fake.png: 10 bytes, text/plain, {at}/fake.png]"),
        format!("[file dog: 6 bytes, image/gif, {at}/dog]"),
    ];
    assert_eq!(last_words(&hall.told()[0]), lines.join("\n"));
    hall.server.say(hall.ann, dm, "and now?");
    assert_eq!(hall.said(dm, 2).await[1], "answer 2");
    // What is said again is shown again.
    hall.server.say(hall.ann, dm, "/undo");
    hall.said(dm, 3).await;
    hall.server.say(hall.ann, dm, "/retry");
    assert_eq!(hall.said(dm, 4).await[3], "answer 3");
    hall.server.say(hall.ann, dm, "/new");
    hall.said(dm, 5).await;
    hall.server.say(hall.ann, dm, "hello");
    assert_eq!(hall.said(dm, 6).await[5], "answer 4");
    let both = vec![PNG.to_vec(), b"GIF89a".to_vec()];
    assert_eq!(seen(&hall), [both.clone(), both.clone(), both, Vec::new()]);
    let shown = hall.run(&["sessions", "ls", "--json"]);
    let listed: Value = serde_json::from_slice(&shown.stdout).unwrap();
    let ids = listed["sessions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|session| session["id"].as_str().unwrap().to_owned());
    let texts = ids.map(|id| String::from_utf8(hall.run(&["sessions", "show", &id]).stdout).unwrap());
    let line = format!("[image: png, {} bytes]\n[image: gif, 6 bytes]\n", PNG.len());
    assert!(texts.into_iter().any(|text| text.contains(&line)));
    hall.close().await;
}

#[tokio::test]
async fn a_model_without_eyes_is_answered_for_and_asked_with_pictures_only_once() {
    let refusal = json!({"error": {"message": "m is not a multimodal model", "code": 400}});
    let hall = Hall::then_echo([Step::error(400, refusal)]).await.open().await;
    let dm = hall.server.dm(hall.ann);
    post(&hall, dm, "what is it?", vec![file("cat.png", PNG)]);
    let said = hall.said(dm, 1).await.remove(0);
    assert!(said.starts_with("echo: what is it?\n\n[file cat.png: "), "{said}");
    post(&hall, dm, "and this?", vec![file("other.png", &[PNG, b"!"].concat())]);
    let said = hall.said(dm, 2).await.remove(1);
    assert!(said.starts_with("echo: and this?\n\n[file other.png: "), "{said}");
    assert_eq!(seen(&hall), [vec![PNG.to_vec()], Vec::new(), Vec::new()]);
    hall.close().await;
}

#[tokio::test]
async fn how_a_model_sees_is_the_owners_choice() {
    let refusal =
        json!({"error": {"message": "image input is not supported by this server", "type": "server_error"}});
    for (mode, pictures, answer) in [("text", 0, "echo: look"), ("native", 1, "image input is not supported")]
    {
        let script = Script {
            steps: if mode == "native" { vec![Step::error(500, refusal.clone())] } else { Vec::new() },
            ..Hall::echoing([])
        };
        let config = format!("discord:\n  allow_all_users: true\nagent:\n  image_input_mode: {mode}\n");
        let hall = Hall::with(script, &config).await.open().await;
        let dm = hall.server.dm(hall.ann);
        post(&hall, dm, "look", vec![file("cat.png", PNG)]);
        let said = hall.said(dm, 1).await.remove(0);
        assert!(said.contains(answer), "{mode}: {said}");
        let counts: Vec<usize> = seen(&hall).iter().map(Vec::len).collect();
        assert_eq!(counts, [pictures], "{mode}");
        hall.close().await;
    }
}

#[tokio::test]
async fn a_picture_survives_a_crash_and_is_forgotten_when_nobody_has_used_it_for_a_day() {
    let script = Script { steps: vec![Step::Silence], ..Hall::echoing([]) };
    let mut hall = Hall::with(script, &Hall::everybody()).await.open().await;
    let dm = hall.server.dm(hall.ann);
    post(&hall, dm, "look", vec![file("cat.png", PNG)]);
    until("the model is asked", || hall.told().len() == 1);
    hall.kill();
    hall.start().await;
    let said = hall.said(dm, 1).await.remove(0);
    assert!(said.starts_with("echo: look"), "{said}");
    assert_eq!(seen(&hall), [vec![PNG.to_vec()], vec![PNG.to_vec()]]);
    hall.stop();
    let kept: Vec<_> = fs::read_dir(hall.path("home/cache/images")).unwrap().collect();
    let [Ok(kept)] = kept.as_slice() else { panic!("{kept:?}") };
    let long_ago = SystemTime::now() - Duration::from_secs(25 * 3_600);
    fs::File::options().write(true).open(kept.path()).unwrap().set_modified(long_ago).unwrap();
    hall.start().await;
    until("it is gone", || !kept.path().exists());
    hall.server.say(hall.ann, dm, "still there?");
    assert_eq!(hall.said(dm, 2).await[1], "echo: still there?");
    assert_eq!(seen(&hall)[2], Vec::<Vec<u8>>::new());
    hall.close().await;
}
