//! Images in messages.

use std::fs;
use std::time::{Duration, SystemTime};

use hermes_testkit::ScriptStep;
use hermes_testkit::discord::{Snowflake, UserFile, UserPost};
use hermes_testkit::model::ModelScript;
use serde_json::{Value, json};

use crate::gateway::env::{GatewayEnv, eventually};

const PNG: &[u8] = b"\x89PNG\r\n\x1a\nand more bytes";

/// A file with another media type.
fn file(name: &str, bytes: &[u8]) -> UserFile {
    let content_type = Some("text/plain".to_owned());
    UserFile { name: name.to_owned(), content_type, bytes: bytes.to_vec(), ..UserFile::default() }
}

fn send_files(env: &GatewayEnv, dm: Snowflake, text: &str, files: Vec<UserFile>) -> Snowflake {
    env.server.send_post(env.ann, dm, UserPost { text: text.to_owned(), files, ..UserPost::default() })
}

/// The images of each model request.
fn sent_images(env: &GatewayEnv) -> Vec<Vec<Vec<u8>>> {
    let requests = env.model.received().into_iter().filter(|request| request.line.starts_with("POST"));
    requests.map(|request| request.images().into_iter().map(|image| image.bytes).collect()).collect()
}

/// The last user message of a request.
fn last_prompt(request: &Value) -> String {
    let messages = request["messages"].as_array().unwrap();
    let said = messages.iter().rfind(|message| message["role"] == "user").unwrap();
    match &said["content"] {
        Value::String(text) => text.clone(),
        parts => parts[0]["text"].as_str().unwrap().to_owned(),
    }
}

#[tokio::test]
async fn a_model_sees_the_images_of_a_conversation_until_it_ends() {
    let env = GatewayEnv::new((1..=5).map(|number| ScriptStep::text(&format!("answer {number}"))))
        .await
        .open()
        .await;
    let dm = env.server.dm_channel(env.ann);
    let files = vec![file("cat.png", PNG), file("fake.png", b"no picture"), file("dog", b"GIF89a")];
    let message = send_files(&env, dm, "", files);
    assert_eq!(env.wait_for_replies(dm, 1).await, ["answer 1"]);
    let at = format!("at /workspace/.hermes/cache/{dm}/{message}");
    let lines = [
        format!("[file cat.png: {} bytes, image/png, {at}/cat.png]", PNG.len()),
        format!("[file fake.png: 10 bytes, text/plain, {at}/fake.png]"),
        format!("[file dog: 6 bytes, image/gif, {at}/dog]"),
    ];
    assert_eq!(last_prompt(&env.model_requests()[0]), lines.join("\n"));
    env.server.send_text(env.ann, dm, "and now?");
    assert_eq!(env.wait_for_replies(dm, 2).await[1], "answer 2");
    // A retried message is sent with its images.
    env.server.send_text(env.ann, dm, "/undo");
    env.wait_for_replies(dm, 3).await;
    env.server.send_text(env.ann, dm, "/retry");
    assert_eq!(env.wait_for_replies(dm, 4).await[3], "answer 3");
    env.server.send_text(env.ann, dm, "/new");
    env.wait_for_replies(dm, 5).await;
    env.server.send_text(env.ann, dm, "hello");
    assert_eq!(env.wait_for_replies(dm, 6).await[5], "answer 4");
    let both = vec![PNG.to_vec(), b"GIF89a".to_vec()];
    assert_eq!(sent_images(&env), [both.clone(), both.clone(), both, Vec::new()]);
    let shown = env.run(&["sessions", "ls", "--json"]);
    let listed: Value = serde_json::from_slice(&shown.stdout).unwrap();
    let ids = listed["sessions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|session| session["id"].as_str().unwrap().to_owned());
    let texts = ids.map(|id| String::from_utf8(env.run(&["sessions", "show", &id]).stdout).unwrap());
    let line = format!("[image: png, {} bytes]\n[image: gif, 6 bytes]\n", PNG.len());
    assert!(texts.into_iter().any(|text| text.contains(&line)));
    env.close().await;
}

#[tokio::test]
async fn a_model_without_vision_gets_images_only_once() {
    let refusal = json!({"error": {"message": "m is not a multimodal model", "code": 400}});
    let env = GatewayEnv::then_echo([ScriptStep::error(400, refusal)]).await.open().await;
    let dm = env.server.dm_channel(env.ann);
    send_files(&env, dm, "what is it?", vec![file("cat.png", PNG)]);
    let said = env.wait_for_replies(dm, 1).await.remove(0);
    assert!(said.starts_with("echo: what is it?\n\n[file cat.png: "), "{said}");
    send_files(&env, dm, "and this?", vec![file("other.png", &[PNG, b"!"].concat())]);
    let said = env.wait_for_replies(dm, 2).await.remove(1);
    assert!(said.starts_with("echo: and this?\n\n[file other.png: "), "{said}");
    assert_eq!(sent_images(&env), [vec![PNG.to_vec()], Vec::new(), Vec::new()]);
    env.close().await;
}

#[tokio::test]
async fn the_owner_chooses_how_images_are_passed() {
    let refusal =
        json!({"error": {"message": "image input is not supported by this server", "type": "server_error"}});
    for (mode, image_count, answer) in
        [("text", 0, "echo: look"), ("native", 1, "image input is not supported")]
    {
        let script = ModelScript {
            steps: if mode == "native" { vec![ScriptStep::error(500, refusal.clone())] } else { Vec::new() },
            ..GatewayEnv::echo_script([])
        };
        let config = format!("discord:\n  allow_all_users: true\nagent:\n  image_input_mode: {mode}\n");
        let env = GatewayEnv::with(script, &config).await.open().await;
        let dm = env.server.dm_channel(env.ann);
        send_files(&env, dm, "look", vec![file("cat.png", PNG)]);
        let said = env.wait_for_replies(dm, 1).await.remove(0);
        assert!(said.contains(answer), "{mode}: {said}");
        let counts: Vec<usize> = sent_images(&env).iter().map(Vec::len).collect();
        assert_eq!(counts, [image_count], "{mode}");
        env.close().await;
    }
}

#[tokio::test]
async fn an_image_survives_a_crash_and_is_pruned_after_a_day_without_use() {
    let script = ModelScript { steps: vec![ScriptStep::Silence], ..GatewayEnv::echo_script([]) };
    let mut env = GatewayEnv::with(script, &GatewayEnv::allow_everyone()).await.open().await;
    let dm = env.server.dm_channel(env.ann);
    send_files(&env, dm, "look", vec![file("cat.png", PNG)]);
    eventually("the model is asked", || env.model_requests().len() == 1);
    env.kill();
    env.start().await;
    let said = env.wait_for_replies(dm, 1).await.remove(0);
    assert!(said.starts_with("echo: look"), "{said}");
    assert_eq!(sent_images(&env), [vec![PNG.to_vec()], vec![PNG.to_vec()]]);
    env.stop();
    let image: Vec<_> = fs::read_dir(env.path("home/cache/images")).unwrap().collect();
    let [Ok(image)] = image.as_slice() else { panic!("{image:?}") };
    let long_ago = SystemTime::now() - Duration::from_secs(25 * 3_600);
    fs::File::options().write(true).open(image.path()).unwrap().set_modified(long_ago).unwrap();
    env.start().await;
    eventually("the image is removed", || !image.path().exists());
    env.server.send_text(env.ann, dm, "still there?");
    assert_eq!(env.wait_for_replies(dm, 2).await[1], "echo: still there?");
    assert_eq!(sent_images(&env)[2], Vec::<Vec<u8>>::new());
    env.close().await;
}
