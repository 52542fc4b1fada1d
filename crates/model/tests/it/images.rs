//! Images, and servers that reject them.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex};

use hermes_model::{Api, Client, Endpoint, EnvProxies, Error, FailureClass, ImageMode, Prompt, Reply};
use hermes_testkit::{ScriptStep, ScriptedModel};
use hermes_types::{Digest, Image, ImageKind, Message};
use serde_json::json;

use crate::support::{APIS, endpoint, prompt, user};

/// The bytes of images in memory.
#[derive(Clone, Default)]
struct TestImages(Arc<Mutex<HashMap<Digest, Vec<u8>>>>);

impl TestImages {
    fn client(&self) -> Client {
        let images = self.0.clone();
        Client::new(EnvProxies::default(), move |image| images.lock().unwrap().get(&image.sha256).cloned())
    }

    fn add(&self, text: &[u8]) -> Image {
        let bytes = gif(text);
        let mut digest = [0; 32];
        let mut hasher = DefaultHasher::new();
        bytes.hash(&mut hasher);
        digest[..8].copy_from_slice(&hasher.finish().to_le_bytes());
        let image = Image { sha256: Digest::new(digest), kind: ImageKind::Gif, size: bytes.len() as u64 };
        self.0.lock().unwrap().insert(image.sha256.clone(), bytes);
        image
    }
}

fn gif(bytes: &[u8]) -> Vec<u8> {
    [b"GIF89a", bytes].concat()
}

fn user_message(text: &str, images: &[&Image]) -> Message {
    Message::User { text: text.to_owned(), images: images.iter().copied().cloned().collect() }
}

async fn ask(
    client: &Client,
    endpoint: &Endpoint,
    messages: &[Message],
    image_mode: ImageMode,
) -> Result<Reply, Error> {
    let prompt = Prompt { image_mode, ..prompt(&[], messages) };
    client.complete(std::slice::from_ref(endpoint), &prompt, &mut |_| {}).await
}

/// The bytes of the images in each request.
fn sent_images(model: &ScriptedModel) -> Vec<Vec<Vec<u8>>> {
    let of = |request: hermes_testkit::model::ReceivedRequest| {
        request.images().into_iter().map(|picture| picture.bytes).collect()
    };
    model.received().into_iter().map(of).collect()
}

/// The number of images in each request.
fn counts(model: &ScriptedModel) -> Vec<usize> {
    sent_images(model).iter().map(Vec::len).collect()
}

#[tokio::test]
async fn a_model_gets_the_stored_bytes() {
    let images = TestImages::default();
    let (one, two) = (images.add(b"one"), images.add(b"two"));
    for api in APIS {
        let model = ScriptedModel::start((0..3).map(|_| ScriptStep::text("I see"))).unwrap();
        let (client, endpoint) = (images.client(), endpoint(&model, api));
        let first = user_message("look", &[&one]);
        let messages =
            [first.clone(), Message::Assistant { parts: Vec::new() }, user_message("and", &[&two, &one])];
        ask(&client, &endpoint, &[first], ImageMode::Auto).await.unwrap();
        ask(&client, &endpoint, &messages, ImageMode::Auto).await.unwrap();
        ask(&client, &endpoint, &messages, ImageMode::Text).await.unwrap();
        let [one, two] = [gif(b"one"), gif(b"two")];
        let expected = [vec![one.clone()], vec![one.clone(), two, one], Vec::new()];
        assert_eq!(sent_images(&model), expected, "{api:?}");
        assert_eq!(model.failures(), Vec::<String>::new());
    }
    images.0.lock().unwrap().clear();
    let model = ScriptedModel::start([ScriptStep::text("I do not see")]).unwrap();
    let endpoint = endpoint(&model, Api::ChatCompletions);
    ask(&images.client(), &endpoint, &[user_message("look", &[&one])], ImageMode::Auto).await.unwrap();
    assert_eq!(sent_images(&model), [Vec::<Vec<u8>>::new()]);
}

#[tokio::test]
async fn only_recent_images_that_fit_are_sent() {
    let images = TestImages::default();
    let (small, large) = (images.add(b"one"), images.add(&vec![0; 11 << 20]));
    let model = ScriptedModel::start((0..2).map(|_| ScriptStep::text("I see"))).unwrap();
    let (client, endpoint) = (images.client(), endpoint(&model, Api::ChatCompletions));
    let many: Vec<Message> = (0..10).map(|_| user_message("look", &[&small])).collect();
    ask(&client, &endpoint, &many, ImageMode::Auto).await.unwrap();
    ask(&client, &endpoint, &[user_message("look", &[&large, &large])], ImageMode::Auto).await.unwrap();
    assert_eq!(counts(&model), [6, 1]);
}

#[tokio::test]
async fn a_server_that_reports_no_image_support_gets_no_images_from_then_on() {
    let images = TestImages::default();
    let (image, next) = (images.add(b"one"), images.add(b"two"));
    let llama =
        "image input is not supported - hint: if this is unexpected, you may need to provide the mmproj";
    let refusals = [
        (400, json!({"error": {"message": "messages[1].content must be a string"}})),
        (404, json!({"error": {"message": "No endpoints found that support image input", "code": 404}})),
        (422, json!({"detail": "unknown variant `image_url`, expected `text`"})),
        (500, json!({"error": {"code": 500, "message": llama, "type": "server_error"}})),
    ];
    for (status, body) in refusals {
        let steps = [
            ScriptStep::error(status, body.clone()),
            ScriptStep::text("one"),
            ScriptStep::text("two"),
            ScriptStep::text("three"),
        ];
        let model = ScriptedModel::start(steps).unwrap();
        let (client, endpoint) = (images.client(), endpoint(&model, Api::ChatCompletions));
        for (image, text) in [(&image, "one"), (&next, "two")] {
            let reply =
                ask(&client, &endpoint, &[user_message("look", &[image])], ImageMode::Auto).await.unwrap();
            assert_eq!(reply.message().text(), text);
        }
        let other = Endpoint { model: "another".to_owned(), ..endpoint };
        ask(&client, &other, &[user_message("look", &[&next])], ImageMode::Auto).await.unwrap();
        assert_eq!(counts(&model), [1, 0, 0, 1], "{status} {body}");
    }
}

#[tokio::test]
async fn other_refusals_do_not_mark_the_server_as_without_image_support() {
    let images = TestImages::default();
    let refusals = [
        (400, json!({"error": {"message": "the picture has too many pixels"}})),
        (413, json!({"error": "request entity too large"})),
        (415, json!("what is this?")),
    ];
    let mut steps: Vec<ScriptStep> = Vec::new();
    for (status, body) in refusals {
        steps.extend([ScriptStep::error(status, body), ScriptStep::text("well"), ScriptStep::text("well")]);
    }
    let model = ScriptedModel::start(steps).unwrap();
    let (client, endpoint) = (images.client(), endpoint(&model, Api::ChatCompletions));
    for number in 0..3 {
        let messages = [user_message("look", &[&images.add(&[number])])];
        for _ in 0..2 {
            ask(&client, &endpoint, &messages, ImageMode::Auto).await.unwrap();
        }
    }
    assert_eq!(counts(&model), [1, 0, 0].repeat(3));
}

#[tokio::test]
async fn one_rejected_image_does_not_affect_accepted_images() {
    let images = TestImages::default();
    let (good, bad, next) = (images.add(b"good"), images.add(b"bad"), images.add(b"next"));
    let refusal = json!({"type": "invalid_request_error", "message": "Could not process image"});
    let refused = || ScriptStep::error(400, json!({"type": "error", "error": refusal}));
    let steps =
        [ScriptStep::text("one"), refused(), refused(), ScriptStep::text("two"), ScriptStep::text("three")];
    let model = ScriptedModel::start(steps).unwrap();
    let (client, endpoint) = (images.client(), endpoint(&model, Api::AnthropicMessages));
    let mut messages = Vec::new();
    for image in [&good, &bad, &next] {
        messages.push(user_message("look", &[image]));
        ask(&client, &endpoint, &messages, ImageMode::Auto).await.unwrap();
    }
    let [good, bad, next] = [gif(b"good"), gif(b"bad"), gif(b"next")];
    let expected =
        [vec![good.clone()], vec![good.clone(), bad.clone()], vec![bad], Vec::new(), vec![good, next]];
    assert_eq!(sent_images(&model), expected);
}

#[tokio::test]
async fn older_images_that_were_dropped_for_a_reply_are_not_sent_again() {
    let images = TestImages::default();
    let all = [images.add(b"one"), images.add(b"two"), images.add(b"three")];
    let [one, two, three] = [gif(b"one"), gif(b"two"), gif(b"three")];
    let refused =
        || ScriptStep::error(400, json!({"error": {"message": "At most 1 image(s) may be provided"}}));
    let steps = [ScriptStep::text("one"), refused(), ScriptStep::text("two"), ScriptStep::text("three")];
    let model = ScriptedModel::start(steps).unwrap();
    let (client, at) = (images.client(), endpoint(&model, Api::ChatCompletions));
    let messages = all.each_ref().map(|image| user_message("look", &[image]));
    for count in 1..=3 {
        ask(&client, &at, &messages[..count], ImageMode::Auto).await.unwrap();
    }
    let both = vec![one.clone(), two.clone()];
    assert_eq!(
        sent_images(&model),
        [vec![one], both.clone(), vec![two.clone()], vec![two.clone(), three.clone()]]
    );
    // If the newest image had to be dropped too, images that were never accepted are not sent
    // again.
    let model =
        ScriptedModel::start([refused(), refused(), ScriptStep::text("one"), ScriptStep::text("two")])
            .unwrap();
    let at = endpoint(&model, Api::ChatCompletions);
    for count in 2..=3 {
        ask(&client, &at, &messages[..count], ImageMode::Auto).await.unwrap();
    }
    assert_eq!(sent_images(&model), [both, vec![two], Vec::new(), vec![three]]);
}

#[tokio::test]
async fn the_last_attempt_is_made_without_images() {
    let images = TestImages::default();
    let (one, two) = (images.add(b"one"), images.add(b"two"));
    let messages = [user_message("look", &[&one]), user_message("and", &[&two])];
    let openai =
        |code: &str| json!({"error": {"message": "no", "type": "invalid_request_error", "code": code}});
    let faults = [
        (1, 400, openai("context_length_exceeded"), FailureClass::ContextOverflow),
        (1, 400, openai("content_policy_violation"), FailureClass::ContentPolicy),
        (3, 500, json!({"error": {"message": "oops"}}), FailureClass::Server),
    ];
    for (times, status, body, class) in faults {
        let failing = || (0..times).map(|_| ScriptStep::error(status, body.clone()));
        let model =
            ScriptedModel::start(failing().chain([ScriptStep::text("well"), ScriptStep::text("good")]))
                .unwrap();
        let (client, at) = (images.client(), endpoint(&model, Api::ChatCompletions));
        for text in ["well", "good"] {
            let reply = ask(&client, &at, &messages, ImageMode::Auto).await.unwrap();
            assert_eq!(reply.message().text(), text);
        }
        let expected: Vec<usize> = (0..times).map(|_| 2).chain([0, 1]).collect();
        assert_eq!(counts(&model), expected, "{class:?}");
        // That happens once, and only if images may be dropped.
        for (mode, after) in [(ImageMode::Auto, 1), (ImageMode::Native, 0)] {
            let again = (0..after).map(|_| ScriptStep::error(status, body.clone()));
            let model = ScriptedModel::start(failing().chain(again)).unwrap();
            let at = endpoint(&model, Api::ChatCompletions);
            let failed = ask(&client, &at, &messages, mode).await.unwrap_err();
            assert_eq!((failed.class(), model.steps_left()), (Some(class), 0));
            assert_eq!(model.received().len(), times + after, "{class:?}");
        }
    }
}

#[tokio::test]
async fn a_fallback_model_gets_the_images() {
    let images = TestImages::default();
    let image = images.add(b"one");
    let refusal = json!({"error": {"message": "no", "code": "content_policy_violation"}});
    let first = ScriptedModel::start([ScriptStep::error(400, refusal)]).unwrap();
    let second = ScriptedModel::start([ScriptStep::text("I see")]).unwrap();
    let chain = [&first, &second].map(|model| endpoint(model, Api::ChatCompletions));
    let messages = [user_message("look", &[&image])];
    let prompt = Prompt { image_mode: ImageMode::Auto, ..prompt(&[], &messages) };
    images.client().complete(&chain, &prompt, &mut |_| {}).await.unwrap();
    assert_eq!([counts(&first), counts(&second)], [[1], [1]]);
}

#[tokio::test]
async fn an_image_whose_bytes_are_gone_counts_as_not_sent() {
    let images = TestImages::default();
    let gone = [user_message("look", &[&images.add(b"one")])];
    images.0.lock().unwrap().clear();
    let refused = |message: &str| ScriptStep::error(400, json!({"error": {"message": message}}));
    let unsupported = refused("image input is not supported");
    let steps = [
        refused("the moon is full"),
        ScriptStep::text("well"),
        unsupported,
        ScriptStep::text("well"),
        ScriptStep::text("well"),
    ];
    let model = ScriptedModel::start(steps).unwrap();
    let (client, endpoint) = (images.client(), endpoint(&model, Api::ChatCompletions));
    // The same request is not sent twice.
    assert!(ask(&client, &endpoint, &gone, ImageMode::Auto).await.is_err());
    assert_eq!(counts(&model), [0]);
    // A reply to it says nothing about image support.
    ask(&client, &endpoint, &gone, ImageMode::Auto).await.unwrap();
    for bytes in [b"two", b"six"] {
        let messages = [user_message("look", &[&images.add(bytes)])];
        ask(&client, &endpoint, &messages, ImageMode::Auto).await.unwrap();
    }
    assert_eq!(counts(&model), [0, 0, 1, 0, 0]);
}

#[tokio::test]
async fn a_refusal_for_another_reason_says_nothing_about_images() {
    let images = TestImages::default();
    let image = images.add(b"one");
    let refusal = || ScriptStep::error(400, json!({"error": {"message": "the moon is full"}}));
    let model = ScriptedModel::start([refusal(), refusal(), ScriptStep::text("I see")]).unwrap();
    let (client, endpoint) = (images.client(), endpoint(&model, Api::ChatCompletions));
    let messages = [user_message("look", &[&image])];
    assert!(ask(&client, &endpoint, &messages, ImageMode::Auto).await.is_err());
    ask(&client, &endpoint, &messages, ImageMode::Auto).await.unwrap();
    assert_eq!(counts(&model), [1, 0, 1]);
}

#[tokio::test]
async fn with_native_images_a_refusal_is_an_error() {
    let images = TestImages::default();
    let image = images.add(b"one");
    let refusal = json!({"error": {"message": "Invalid content type. image_url is only supported by certain models.", "type": "invalid_request_error", "param": "messages.[0].content.[1].type", "code": null}});
    let model = ScriptedModel::start([ScriptStep::error(400, refusal), ScriptStep::text("fine")]).unwrap();
    let (client, endpoint) = (images.client(), endpoint(&model, Api::ChatCompletions));
    let failed =
        ask(&client, &endpoint, &[user_message("look", &[&image])], ImageMode::Native).await.unwrap_err();
    assert_eq!(failed.class(), Some(FailureClass::ImagesUnsupported));
    assert!(failed.hints().iter().any(|hint| hint.contains("image_input_mode")));
    ask(&client, &endpoint, &[user("hi")], ImageMode::Native).await.unwrap();
    assert_eq!(sent_images(&model).len(), 2);
}
