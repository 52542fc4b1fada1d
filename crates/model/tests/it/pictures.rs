//! Pictures, and servers that do not see them.

use std::fs;

use hermes_model::{Album, Api, Class, Client, Endpoint, Error, Prompt, Reply, Sight};
use hermes_testkit::{ScriptedModel, Step};
use hermes_types::{Image, Message};
use serde_json::json;
use tempfile::TempDir;

use crate::support::{APIS, endpoint, prompt, user};

/// A home with an album.
struct Wall {
    home: TempDir,
    album: Album,
}

impl Wall {
    fn new() -> Self {
        let home = tempfile::tempdir().unwrap();
        Self { album: Album::new(home.path()), home }
    }

    /// A picture that is told from others by its bytes.
    async fn image(&self, bytes: &[u8]) -> Image {
        let file = self.home.path().join("file");
        fs::write(&file, gif(bytes)).unwrap();
        self.album.keep(&file).await.unwrap()
    }

    fn auto(&self) -> Sight {
        Sight::Auto(self.album.clone())
    }
}

fn gif(bytes: &[u8]) -> Vec<u8> {
    [b"GIF89a", bytes].concat()
}

fn showing(text: &str, images: &[&Image]) -> Message {
    Message::User { text: text.to_owned(), images: images.iter().copied().cloned().collect() }
}

async fn ask(
    client: &Client,
    endpoint: &Endpoint,
    messages: &[Message],
    sight: &Sight,
) -> Result<Reply, Error> {
    let prompt = Prompt { sight, ..prompt(&[], messages) };
    client.complete(std::slice::from_ref(endpoint), &prompt, &mut |_| {}).await
}

/// The bytes of the pictures in each request.
fn pictures(model: &ScriptedModel) -> Vec<Vec<Vec<u8>>> {
    let of = |request: hermes_testkit::model::Received| {
        request.pictures().into_iter().map(|picture| picture.bytes).collect()
    };
    model.received().into_iter().map(of).collect()
}

#[tokio::test]
async fn a_model_gets_the_very_bytes_as_long_as_they_are_kept() {
    let wall = Wall::new();
    let (one, two) = (wall.image(b"one").await, wall.image(b"two").await);
    for api in APIS {
        let model = ScriptedModel::start((0..3).map(|_| Step::text("I see"))).unwrap();
        let (client, endpoint) = (Client::default(), endpoint(&model, api));
        let first = showing("look", &[&one]);
        let messages =
            [first.clone(), Message::Assistant { parts: Vec::new() }, showing("and", &[&two, &one])];
        ask(&client, &endpoint, &[first], &wall.auto()).await.unwrap();
        ask(&client, &endpoint, &messages, &wall.auto()).await.unwrap();
        ask(&client, &endpoint, &messages, &Sight::Text).await.unwrap();
        let [one, two] = [gif(b"one"), gif(b"two")];
        let expected = [vec![one.clone()], vec![one.clone(), two, one], Vec::new()];
        assert_eq!(pictures(&model), expected, "{api:?}");
        assert_eq!(model.failures(), Vec::<String>::new());
    }
    fs::remove_dir_all(wall.home.path().join("cache")).unwrap();
    let model = ScriptedModel::start([Step::text("I do not see")]).unwrap();
    let endpoint = endpoint(&model, Api::ChatCompletions);
    ask(&Client::default(), &endpoint, &[showing("look", &[&one])], &wall.auto()).await.unwrap();
    assert_eq!(pictures(&model), [Vec::<Vec<u8>>::new()]);
}

#[tokio::test]
async fn a_server_without_eyes_is_asked_without_pictures_from_then_on() {
    let wall = Wall::new();
    let image = wall.image(b"one").await;
    let llama =
        "image input is not supported - hint: if this is unexpected, you may need to provide the mmproj";
    let refusals = [
        (400, json!({"error": {"message": "messages[1].content must be a string"}})),
        (404, json!({"error": {"message": "No endpoints found that support image input", "code": 404}})),
        (413, json!({"error": "request entity too large"})),
        (415, json!("what is this?")),
        (422, json!({"detail": "unknown variant `image_url`, expected `text`"})),
        (500, json!({"error": {"code": 500, "message": llama, "type": "server_error"}})),
    ];
    for (status, body) in refusals {
        let steps =
            [Step::error(status, body.clone()), Step::text("one"), Step::text("two"), Step::text("three")];
        let model = ScriptedModel::start(steps).unwrap();
        let (client, endpoint) = (Client::default(), endpoint(&model, Api::ChatCompletions));
        let messages = [showing("look", &[&image])];
        for words in ["one", "two"] {
            let reply = ask(&client, &endpoint, &messages, &wall.auto()).await.unwrap();
            assert_eq!(reply.message().text(), words);
        }
        let other = Endpoint { model: "another".to_owned(), ..endpoint };
        ask(&client, &other, &messages, &wall.auto()).await.unwrap();
        let counts: Vec<usize> = pictures(&model).iter().map(Vec::len).collect();
        assert_eq!(counts, [1, 0, 0, 1], "{status} {body}");
    }
}

#[tokio::test]
async fn a_server_that_sees_is_spared_only_the_picture_it_did_not_like() {
    let wall = Wall::new();
    let (good, bad, next) = (wall.image(b"good").await, wall.image(b"bad").await, wall.image(b"next").await);
    let refusal = json!({"type": "invalid_request_error", "message": "Could not process image"});
    let model = ScriptedModel::start([
        Step::text("one"),
        Step::error(400, json!({"type": "error", "error": refusal})),
        Step::text("two"),
        Step::text("three"),
    ])
    .unwrap();
    let (client, endpoint) = (Client::default(), endpoint(&model, Api::AnthropicMessages));
    let mut messages = Vec::new();
    for image in [&good, &bad, &next] {
        messages.push(showing("look", &[image]));
        ask(&client, &endpoint, &messages, &wall.auto()).await.unwrap();
    }
    let [good, bad, next] = [gif(b"good"), gif(b"bad"), gif(b"next")];
    assert_eq!(pictures(&model), [vec![good.clone()], vec![good, bad], Vec::new(), vec![next]]);
}

#[tokio::test]
async fn one_picture_that_is_not_liked_does_not_make_a_server_blind_and_two_do() {
    let wall = Wall::new();
    let all = [wall.image(b"one").await, wall.image(b"two").await, wall.image(b"three").await];
    let refusal = || Step::error(400, json!({"error": {"message": "the picture has too many pixels"}}));
    for (second, expected) in [(None, vec![1, 0, 1, 2]), (Some(refusal()), vec![1, 0, 1, 0, 0])] {
        let answers = (0..3).map(|_| Step::text("well"));
        let mut steps: Vec<Step> = [refusal()].into_iter().chain(answers).collect();
        if let Some(second) = second {
            steps.insert(2, second);
        }
        let model = ScriptedModel::start(steps).unwrap();
        let (client, endpoint) = (Client::default(), endpoint(&model, Api::ChatCompletions));
        let mut messages = Vec::new();
        for image in &all {
            messages.push(showing("look", &[image]));
            ask(&client, &endpoint, &messages, &wall.auto()).await.unwrap();
        }
        let counts: Vec<usize> = pictures(&model).iter().map(Vec::len).collect();
        assert_eq!(counts, expected);
    }
}

#[tokio::test]
async fn what_is_refused_for_another_reason_says_nothing_about_eyes() {
    let wall = Wall::new();
    let image = wall.image(b"one").await;
    let refusal = || Step::error(400, json!({"error": {"message": "the moon is full"}}));
    let model = ScriptedModel::start([refusal(), refusal(), Step::text("I see")]).unwrap();
    let (client, endpoint) = (Client::default(), endpoint(&model, Api::ChatCompletions));
    let messages = [showing("look", &[&image])];
    assert!(ask(&client, &endpoint, &messages, &wall.auto()).await.is_err());
    ask(&client, &endpoint, &messages, &wall.auto()).await.unwrap();
    let counts: Vec<usize> = pictures(&model).iter().map(Vec::len).collect();
    assert_eq!(counts, [1, 0, 1]);
}

#[tokio::test]
async fn where_pictures_are_insisted_on_a_refusal_is_told() {
    let wall = Wall::new();
    let image = wall.image(b"one").await;
    let refusal = json!({"error": {"message": "Invalid content type. image_url is only supported by certain models.", "type": "invalid_request_error", "param": "messages.[0].content.[1].type", "code": null}});
    let model = ScriptedModel::start([Step::error(400, refusal), Step::text("fine")]).unwrap();
    let (client, endpoint) = (Client::default(), endpoint(&model, Api::ChatCompletions));
    let native = Sight::Native(wall.album.clone());
    let failed = ask(&client, &endpoint, &[showing("look", &[&image])], &native).await.unwrap_err();
    assert_eq!(failed.class(), Some(Class::ImagesUnsupported));
    assert!(failed.hint().is_some_and(|hint| hint.contains("image_input_mode")));
    ask(&client, &endpoint, &[user("hi")], &native).await.unwrap();
    assert_eq!(pictures(&model).len(), 2);
}
