//! Pictures, and servers that do not see them.

use std::fs;

use hermes_model::{Album, Api, Class, Client, Endpoint, Error, Prompt, Reply, Sight};
use hermes_testkit::{ScriptStep, ScriptedModel};
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
    let of = |request: hermes_testkit::model::ReceivedRequest| {
        request.images().into_iter().map(|picture| picture.bytes).collect()
    };
    model.received().into_iter().map(of).collect()
}

/// How many pictures are in each request.
fn counts(model: &ScriptedModel) -> Vec<usize> {
    pictures(model).iter().map(Vec::len).collect()
}

#[tokio::test]
async fn a_model_gets_the_very_bytes_as_long_as_they_are_kept() {
    let wall = Wall::new();
    let (one, two) = (wall.image(b"one").await, wall.image(b"two").await);
    for api in APIS {
        let model = ScriptedModel::start((0..3).map(|_| ScriptStep::text("I see"))).unwrap();
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
    let model = ScriptedModel::start([ScriptStep::text("I do not see")]).unwrap();
    let endpoint = endpoint(&model, Api::ChatCompletions);
    ask(&Client::default(), &endpoint, &[showing("look", &[&one])], &wall.auto()).await.unwrap();
    assert_eq!(pictures(&model), [Vec::<Vec<u8>>::new()]);
}

#[tokio::test]
async fn a_picture_is_sent_at_recent_places_only_and_no_more_of_it_than_fits() {
    let wall = Wall::new();
    let (small, large) = (wall.image(b"one").await, wall.image(&vec![0; 11 << 20]).await);
    let model = ScriptedModel::start((0..2).map(|_| ScriptStep::text("I see"))).unwrap();
    let (client, endpoint) = (Client::default(), endpoint(&model, Api::ChatCompletions));
    let many: Vec<Message> = (0..10).map(|_| showing("look", &[&small])).collect();
    ask(&client, &endpoint, &many, &wall.auto()).await.unwrap();
    ask(&client, &endpoint, &[showing("look", &[&large, &large])], &wall.auto()).await.unwrap();
    assert_eq!(counts(&model), [6, 1]);
}

#[tokio::test]
async fn a_server_that_says_it_has_no_eyes_is_shown_nothing_from_then_on() {
    let wall = Wall::new();
    let (image, next) = (wall.image(b"one").await, wall.image(b"two").await);
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
        let (client, endpoint) = (Client::default(), endpoint(&model, Api::ChatCompletions));
        for (image, words) in [(&image, "one"), (&next, "two")] {
            let reply = ask(&client, &endpoint, &[showing("look", &[image])], &wall.auto()).await.unwrap();
            assert_eq!(reply.message().text(), words);
        }
        let other = Endpoint { model: "another".to_owned(), ..endpoint };
        ask(&client, &other, &[showing("look", &[&next])], &wall.auto()).await.unwrap();
        assert_eq!(counts(&model), [1, 0, 0, 1], "{status} {body}");
    }
}

#[tokio::test]
async fn refusals_that_say_nothing_about_eyes_make_nobody_blind() {
    let wall = Wall::new();
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
    let (client, endpoint) = (Client::default(), endpoint(&model, Api::ChatCompletions));
    for number in 0..3 {
        let messages = [showing("look", &[&wall.image(&[number]).await])];
        for _ in 0..2 {
            ask(&client, &endpoint, &messages, &wall.auto()).await.unwrap();
        }
    }
    assert_eq!(counts(&model), [1, 0, 0].repeat(3));
}

#[tokio::test]
async fn a_picture_that_is_refused_alone_takes_none_with_it_that_was_taken() {
    let wall = Wall::new();
    let (good, bad, next) = (wall.image(b"good").await, wall.image(b"bad").await, wall.image(b"next").await);
    let refusal = json!({"type": "invalid_request_error", "message": "Could not process image"});
    let refused = || ScriptStep::error(400, json!({"type": "error", "error": refusal}));
    let steps =
        [ScriptStep::text("one"), refused(), refused(), ScriptStep::text("two"), ScriptStep::text("three")];
    let model = ScriptedModel::start(steps).unwrap();
    let (client, endpoint) = (Client::default(), endpoint(&model, Api::AnthropicMessages));
    let mut messages = Vec::new();
    for image in [&good, &bad, &next] {
        messages.push(showing("look", &[image]));
        ask(&client, &endpoint, &messages, &wall.auto()).await.unwrap();
    }
    let [good, bad, next] = [gif(b"good"), gif(b"bad"), gif(b"next")];
    let expected =
        [vec![good.clone()], vec![good.clone(), bad.clone()], vec![bad], Vec::new(), vec![good, next]];
    assert_eq!(pictures(&model), expected);
}

#[tokio::test]
async fn older_pictures_that_stood_in_the_way_of_an_answer_are_not_shown_again() {
    let wall = Wall::new();
    let all = [wall.image(b"one").await, wall.image(b"two").await, wall.image(b"three").await];
    let [one, two, three] = [gif(b"one"), gif(b"two"), gif(b"three")];
    let refused =
        || ScriptStep::error(400, json!({"error": {"message": "At most 1 image(s) may be provided"}}));
    let steps = [ScriptStep::text("one"), refused(), ScriptStep::text("two"), ScriptStep::text("three")];
    let model = ScriptedModel::start(steps).unwrap();
    let (client, at) = (Client::default(), endpoint(&model, Api::ChatCompletions));
    let messages = all.each_ref().map(|image| showing("look", &[image]));
    for count in 1..=3 {
        ask(&client, &at, &messages[..count], &wall.auto()).await.unwrap();
    }
    let both = vec![one.clone(), two.clone()];
    assert_eq!(
        pictures(&model),
        [vec![one], both.clone(), vec![two.clone()], vec![two.clone(), three.clone()]]
    );
    // If the newest one had to be left out as well, so are those that nobody knows to be good.
    let model =
        ScriptedModel::start([refused(), refused(), ScriptStep::text("one"), ScriptStep::text("two")])
            .unwrap();
    let at = endpoint(&model, Api::ChatCompletions);
    for count in 2..=3 {
        ask(&client, &at, &messages[..count], &wall.auto()).await.unwrap();
    }
    assert_eq!(pictures(&model), [both, vec![two], Vec::new(), vec![three]]);
}

#[tokio::test]
async fn what_cannot_be_answered_otherwise_is_asked_without_pictures() {
    let wall = Wall::new();
    let (one, two) = (wall.image(b"one").await, wall.image(b"two").await);
    let messages = [showing("look", &[&one]), showing("and", &[&two])];
    let openai =
        |code: &str| json!({"error": {"message": "no", "type": "invalid_request_error", "code": code}});
    let faults = [
        (1, 400, openai("context_length_exceeded"), Class::ContextOverflow),
        (1, 400, openai("content_policy_violation"), Class::ContentPolicy),
        (3, 500, json!({"error": {"message": "oops"}}), Class::Server),
    ];
    for (times, status, body, class) in faults {
        let failing = || (0..times).map(|_| ScriptStep::error(status, body.clone()));
        let model =
            ScriptedModel::start(failing().chain([ScriptStep::text("well"), ScriptStep::text("good")]))
                .unwrap();
        let (client, at) = (Client::default(), endpoint(&model, Api::ChatCompletions));
        for words in ["well", "good"] {
            let reply = ask(&client, &at, &messages, &wall.auto()).await.unwrap();
            assert_eq!(reply.message().text(), words);
        }
        let expected: Vec<usize> = (0..times).map(|_| 2).chain([0, 1]).collect();
        assert_eq!(counts(&model), expected, "{class:?}");
        // It is asked so once, and only where pictures may be left out.
        for (sight, after) in [(wall.auto(), 1), (Sight::Native(wall.album.clone()), 0)] {
            let again = (0..after).map(|_| ScriptStep::error(status, body.clone()));
            let model = ScriptedModel::start(failing().chain(again)).unwrap();
            let at = endpoint(&model, Api::ChatCompletions);
            let failed = ask(&client, &at, &messages, &sight).await.unwrap_err();
            assert_eq!((failed.class(), model.steps_left()), (Some(class), 0));
            assert_eq!(model.received().len(), times + after, "{class:?}");
        }
    }
}

#[tokio::test]
async fn another_model_is_shown_what_the_first_one_cannot_answer() {
    let wall = Wall::new();
    let image = wall.image(b"one").await;
    let refusal = json!({"error": {"message": "no", "code": "content_policy_violation"}});
    let first = ScriptedModel::start([ScriptStep::error(400, refusal)]).unwrap();
    let second = ScriptedModel::start([ScriptStep::text("I see")]).unwrap();
    let chain = [&first, &second].map(|model| endpoint(model, Api::ChatCompletions));
    let (messages, sight) = ([showing("look", &[&image])], wall.auto());
    let prompt = Prompt { sight: &sight, ..prompt(&[], &messages) };
    Client::default().complete(&chain, &prompt, &mut |_| {}).await.unwrap();
    assert_eq!([counts(&first), counts(&second)], [[1], [1]]);
}

#[tokio::test]
async fn what_is_gone_was_not_shown() {
    let wall = Wall::new();
    let gone = [showing("look", &[&wall.image(b"one").await])];
    fs::remove_dir_all(wall.home.path().join("cache")).unwrap();
    let refused = |message: &str| ScriptStep::error(400, json!({"error": {"message": message}}));
    let blind = refused("image input is not supported");
    let steps = [
        refused("the moon is full"),
        ScriptStep::text("well"),
        blind,
        ScriptStep::text("well"),
        ScriptStep::text("well"),
    ];
    let model = ScriptedModel::start(steps).unwrap();
    let (client, endpoint) = (Client::default(), endpoint(&model, Api::ChatCompletions));
    // The same body is not sent twice.
    assert!(ask(&client, &endpoint, &gone, &wall.auto()).await.is_err());
    assert_eq!(counts(&model), [0]);
    // An answer to it says nothing about eyes.
    ask(&client, &endpoint, &gone, &wall.auto()).await.unwrap();
    for bytes in [b"two", b"six"] {
        let messages = [showing("look", &[&wall.image(bytes).await])];
        ask(&client, &endpoint, &messages, &wall.auto()).await.unwrap();
    }
    assert_eq!(counts(&model), [0, 0, 1, 0, 0]);
}

#[tokio::test]
async fn what_is_refused_for_another_reason_says_nothing_about_eyes() {
    let wall = Wall::new();
    let image = wall.image(b"one").await;
    let refusal = || ScriptStep::error(400, json!({"error": {"message": "the moon is full"}}));
    let model = ScriptedModel::start([refusal(), refusal(), ScriptStep::text("I see")]).unwrap();
    let (client, endpoint) = (Client::default(), endpoint(&model, Api::ChatCompletions));
    let messages = [showing("look", &[&image])];
    assert!(ask(&client, &endpoint, &messages, &wall.auto()).await.is_err());
    ask(&client, &endpoint, &messages, &wall.auto()).await.unwrap();
    assert_eq!(counts(&model), [1, 0, 1]);
}

#[tokio::test]
async fn where_pictures_are_insisted_on_a_refusal_is_told() {
    let wall = Wall::new();
    let image = wall.image(b"one").await;
    let refusal = json!({"error": {"message": "Invalid content type. image_url is only supported by certain models.", "type": "invalid_request_error", "param": "messages.[0].content.[1].type", "code": null}});
    let model = ScriptedModel::start([ScriptStep::error(400, refusal), ScriptStep::text("fine")]).unwrap();
    let (client, endpoint) = (Client::default(), endpoint(&model, Api::ChatCompletions));
    let native = Sight::Native(wall.album.clone());
    let failed = ask(&client, &endpoint, &[showing("look", &[&image])], &native).await.unwrap_err();
    assert_eq!(failed.class(), Some(Class::ImagesUnsupported));
    assert!(failed.hint().is_some_and(|hint| hint.contains("image_input_mode")));
    ask(&client, &endpoint, &[user("hi")], &native).await.unwrap();
    assert_eq!(pictures(&model).len(), 2);
}
