//! What is seen of a turn before it ends.

use std::time::{Duration, Instant};

use hermes_gateway::channel::{Manners, Unit};
use hermes_testkit::discord::{Id, Trouble};
use hermes_testkit::model::{Answer, Delivery, Script};
use hermes_testkit::{Said, Step};
use serde_json::json;

use crate::hall::{Hall, runs, until};

const STREAMS: &str = "discord:\n  allow_all_users: true\nstreaming:\n  enabled: true\n";
const PLAIN: &str = "discord:\n  allow_all_users: true\n";
/// The time Discord wants between two changes.
const PACE: Duration = Duration::from_millis(1200);

/// Words that take some seconds to be written.
fn slowly(words: &str) -> Step {
    spoken(words, Delivery { chunk: Some(words.len().max(200)), pause_ms: 100, ..Delivery::default() })
}

/// Words after some of which nothing comes any more.
fn stalls(words: &str) -> Step {
    spoken(words, Delivery { silent: Some(4_000), ..Delivery::default() })
}

fn spoken(words: &str, delivery: Delivery) -> Step {
    Step::Answer(Answer { says: vec![Said::Text(words.to_owned())], delivery, ..Answer::default() })
}

/// A sentence of many words.
fn sentence() -> String {
    (0..80).map(|number| format!("word{number} ")).collect::<String>().trim().to_owned()
}

async fn hall(steps: Vec<Step>, config: &str) -> Hall {
    let script = Script { steps, always: Some(Step::Echo("echo: ".to_owned())), ..Script::default() };
    Hall::with(script, config).await.open().await
}

/// Waits until a message of the bot says the beginning of a text, and gives it.
async fn draft(hall: &Hall, chat: Id, text: &str) -> Id {
    let seen = hall.server.wait_for(|world| {
        let said = world.said_by_bot(chat).into_iter();
        let mut drafts =
            said.filter(|said| text.starts_with(&said.content) && said.content.len() < text.len());
        drafts.next().map(|draft| draft.id)
    });
    match seen.await {
        Ok(draft) => draft,
        Err(error) => panic!("{error}: {:?}\n{}", hall.heard(chat), hall.log()),
    }
}

/// Waits until the bot has said these things in a chat, and these alone.
fn ends_with(hall: &Hall, chat: Id, expected: &[&str]) {
    let began = Instant::now();
    while hall.heard(chat) != expected {
        assert!(began.elapsed() < Duration::from_secs(60), "{:?}\n{}", hall.heard(chat), hall.log());
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Says something more, and finds nothing but these answers and the one to it.
async fn closes_with(hall: Hall, chat: Id, expected: &[&str]) {
    ends_with(&hall, chat, expected);
    hall.server.say(hall.ann, chat, "and now?");
    let all: Vec<&str> = expected.iter().copied().chain(["echo: and now?"]).collect();
    ends_with(&hall, chat, &all);
    hall.close().await;
}

/// How often messages were asked to be changed.
fn changes(hall: &Hall) -> usize {
    hall.server
        .look(|world| world.requests.iter().filter(|request| request.line.starts_with("PATCH /ch")).count())
}

#[tokio::test]
async fn words_appear_while_they_are_written_at_the_pace_of_the_platform() {
    let text = sentence();
    let hall = hall(vec![slowly(&text)], STREAMS).await;
    let dm = hall.server.dm(hall.ann);
    let question = hall.server.say(hall.ann, dm, "tell me");
    let began = Instant::now();
    let message = draft(&hall, dm, &text).await;
    ends_with(&hall, dm, &[&text]);
    // The last change need not wait.
    let most = usize::try_from(began.elapsed().as_millis() / PACE.as_millis()).unwrap() + 1;
    assert!((1..=most).contains(&changes(&hall)), "{} of {most}", changes(&hall));
    let (drafts, points_to) = hall.server.look(|world| {
        let message = &world.messages[&message];
        (message.edits.clone(), message.reference)
    });
    assert!(drafts.iter().all(|draft| text.starts_with(draft)), "{drafts:?}");
    assert_eq!(points_to, Some(question));
    closes_with(hall, dm, &[&text]).await;
}

#[tokio::test]
async fn nothing_is_seen_before_the_end_unless_it_is_wanted() {
    let text = sentence();
    let off = "discord:\n  allow_all_users: true\nstreaming:\n  enabled: true\ndisplay:\n  platforms:\n    discord:\n      streaming: false\n";
    for config in [PLAIN, off] {
        let hall = hall(vec![slowly(&text)], config).await;
        let dm = hall.server.dm(hall.ann);
        hall.server.say(hall.ann, dm, "tell me");
        ends_with(&hall, dm, &[&text]);
        assert_eq!(changes(&hall), 0);
        closes_with(hall, dm, &[&text]).await;
    }
}

#[tokio::test]
async fn a_long_answer_is_several_messages_and_code_can_be_read_in_each_of_them_at_any_time() {
    let code: String =
        (0..160).map(|number| format!("let value_{number} = {number} * {number};\n")).collect();
    let text = format!("{}\n```rust\n{code}```\n{}", sentence(), sentence());
    let text = format!("{text}\n```sh\n{}\n```\nThat is all.", "echo once more; ".repeat(40));
    assert!(text.len() > 5_000, "{}", text.len());
    let hall = hall(vec![slowly(&text)], STREAMS).await;
    let dm = hall.server.dm(hall.ann);
    hall.server.say(hall.ann, dm, "write it");
    let manners = Manners {
        longest: 2_000,
        unit: Unit::Chars,
        edits: true,
        buttons: true,
        typing: Duration::ZERO,
        pace: PACE,
        most_files: 0,
        largest_file: 0,
    };
    let parts = hermes_gateway::split(&text, &manners);
    let parts: Vec<&str> = parts.iter().map(|part| part.trim()).collect();
    assert!(parts.len() > 2);
    ends_with(&hall, dm, &parts);
    let ever: Vec<String> = hall.server.look(|world| {
        let all = world.said_by_bot(dm).into_iter();
        all.flat_map(|said| said.edits.iter().chain([&said.content]).cloned()).collect()
    });
    assert!(ever.len() > parts.len(), "something was seen before the end");
    for seen in ever {
        let fences = seen.lines().filter(|line| line.starts_with("```")).count();
        assert_eq!(fences % 2, 0, "{seen}");
    }
    closes_with(hall, dm, &parts).await;
}

#[tokio::test]
async fn killed_in_the_middle_of_words_the_same_message_is_gone_on_with() {
    let text = sentence();
    let mut hall = hall(vec![stalls(&text), slowly(&text)], STREAMS).await;
    let dm = hall.server.dm(hall.ann);
    hall.server.say(hall.ann, dm, "tell me");
    let message = draft(&hall, dm, &text).await;
    hall.kill();
    hall.start().await;
    ends_with(&hall, dm, &[&text]);
    assert_eq!(hall.server.look(|world| world.messages[&message].content.clone()), text);
    closes_with(hall, dm, &[&text]).await;
}

#[tokio::test]
async fn killed_when_the_draft_was_sent_and_nobody_said_so_there_is_one_message() {
    let text = sentence();
    let mut hall = hall(vec![stalls(&text), Step::text(&text)], STREAMS).await;
    let dm = hall.server.dm(hall.ann);
    hall.server.trouble("POST /channels/*/messages", 1, Trouble::Vanish);
    hall.server.say(hall.ann, dm, "tell me");
    draft(&hall, dm, &text).await;
    hall.kill();
    hall.start().await;
    closes_with(hall, dm, &[&text]).await;
}

#[tokio::test]
async fn killed_after_the_end_and_before_the_last_change_the_answer_is_there_once() {
    let text = sentence();
    let mut hall = hall(vec![slowly(&text)], STREAMS).await;
    let dm = hall.server.dm(hall.ann);
    let question = hall.server.say(hall.ann, dm, "tell me");
    let message = draft(&hall, dm, &text).await;
    hall.server.trouble("PATCH /channels/*/messages/*", 7, Trouble::Fail(502));
    until("the turn has ended", || {
        let given = hall.server.look(|world| world.messages[&question].reactions.clone());
        given.iter().any(|(emoji, _)| emoji == "✅")
    });
    assert_ne!(hall.server.look(|world| world.messages[&message].content.clone()), text);
    hall.kill();
    hall.start().await;
    ends_with(&hall, dm, &[&text]);
    assert_eq!(hall.server.look(|world| world.messages[&message].content.clone()), text);
    closes_with(hall, dm, &[&text]).await;
}

#[tokio::test]
async fn where_the_draft_was_removed_the_answer_is_a_new_message() {
    let text = sentence();
    let hall = hall(vec![slowly(&text)], STREAMS).await;
    let dm = hall.server.dm(hall.ann);
    // One for a change while it is written, one for the last.
    hall.server.expect(10_008);
    hall.server.expect(10_008);
    hall.server.say(hall.ann, dm, "tell me");
    let message = draft(&hall, dm, &text).await;
    hall.server.delete(message);
    closes_with(hall, dm, &[&text]).await;
}

#[tokio::test]
async fn a_platform_that_wants_less_gets_less_and_the_answer_is_whole() {
    let text = sentence();
    let hall = hall(vec![slowly(&text)], STREAMS).await;
    let dm = hall.server.dm(hall.ann);
    hall.server.trouble(
        "PATCH /channels/*/messages/*",
        1,
        Trouble::RateLimit { retry_after: 7.0, global: false },
    );
    hall.server.say(hall.ann, dm, "tell me");
    draft(&hall, dm, &text).await;
    closes_with(hall, dm, &[&text]).await;
}

#[tokio::test]
async fn what_is_stopped_says_so_where_it_was_shown() {
    let text = sentence();
    let hall = hall(vec![stalls(&text)], STREAMS).await;
    let dm = hall.server.dm(hall.ann);
    hall.server.say(hall.ann, dm, "tell me");
    let message = draft(&hall, dm, &text).await;
    hall.server.say(hall.ann, dm, "/stop");
    until("it is said", || {
        hall.server.look(|world| world.messages[&message].content.ends_with("\n\ninterrupted"))
    });
    let shown = hall.server.look(|world| world.messages[&message].content.clone());
    assert!(text.starts_with(shown.trim_end_matches("interrupted").trim_end()), "{shown}");
    closes_with(hall, dm, &[&shown, "stopped"]).await;
}

#[tokio::test]
async fn a_model_that_wants_to_say_nothing_is_never_seen_to() {
    let silent = spoken("[SILENT]", Delivery { chunk: Some(150), pause_ms: 700, ..Delivery::default() });
    let hall = hall(vec![silent], STREAMS).await;
    let dm = hall.server.dm(hall.ann);
    hall.server.say(hall.ann, dm, "hush");
    closes_with(hall, dm, &[]).await;
}

#[tokio::test]
async fn what_is_said_before_tools_stays_and_more_is_a_new_message() {
    let call = Said::Call {
        id: "c1".to_owned(),
        name: "terminal".to_owned(),
        arguments: json!({ "command": "echo found" }),
    };
    let look = Step::says([Said::Text("I look.".to_owned()), call]);
    let text = sentence();
    let hall = hall(vec![look, slowly(&text)], STREAMS).await;
    let dm = hall.server.dm(hall.ann);
    hall.server.say(hall.ann, dm, "look for it");
    draft(&hall, dm, &text).await;
    closes_with(hall, dm, &["I look.", &text]).await;
}

#[tokio::test]
async fn killed_while_tools_work_what_was_said_before_them_is_there_once() {
    let words = sentence();
    let call = Said::Call {
        id: "c1".to_owned(),
        name: "terminal".to_owned(),
        arguments: json!({ "command": "sleep 600" }),
    };
    let delivery = Delivery { chunk: Some(600), pause_ms: 100, ..Delivery::default() };
    let look = Answer { says: vec![Said::Text(words.clone()), call], delivery, ..Answer::default() };
    let mut hall = hall(vec![Step::Answer(look), Step::text("done")], STREAMS).await;
    let dm = hall.server.dm(hall.ann);
    hall.server.say(hall.ann, dm, "look for it");
    until("the command runs", || {
        let listed = hall.run(&["sandbox", "ls", "--json"]);
        let listed: serde_json::Value = serde_json::from_slice(&listed.stdout).unwrap();
        listed["places"].as_array().is_some_and(|places| !places.is_empty())
    });
    ends_with(&hall, dm, &[&words]);
    hall.kill();
    hall.start().await;
    closes_with(hall, dm, &[&words, "done"]).await;
}

/// Waits until a line about work says something, and gives its message.
async fn line(hall: &Hall, chat: Id, what: &str) -> Id {
    let seen = hall.server.wait_for(|world| {
        let said = world.said_by_bot(chat).into_iter();
        let mut lines = said.filter(|said| said.content.contains(what));
        lines.next().map(|line| line.id)
    });
    match seen.await {
        Ok(line) => line,
        Err(error) => panic!("{error}: {:?}\n{}", hall.heard(chat), hall.log()),
    }
}

#[tokio::test]
async fn long_work_is_told_in_one_line_that_changes_and_the_answer_is_new() {
    let steps = vec![runs("c1", "sleep 14 # `*one*`"), runs("c2", "sleep 14"), Step::text("done")];
    let hall = hall(steps, PLAIN).await;
    let dm = hall.server.dm(hall.ann);
    hall.server.say(hall.ann, dm, "work");
    let begun = line(&hall, dm, " s: 1 step, now terminal `sleep 14 # '*one*'`").await;
    assert_eq!(line(&hall, dm, " s: 2 steps, now terminal `sleep 14`").await, begun);
    assert_eq!(line(&hall, dm, "worked for ").await, begun);
    let said = hall.said(dm, 2).await;
    assert!(said[0].ends_with(" s, 2 steps"), "{said:?}");
    assert_eq!(said[1..], ["done"]);
    assert!(hall.server.look(|world| world.messages[&begun].reference.is_none()));
    hall.close().await;
}

#[tokio::test]
async fn after_a_crash_the_same_line_is_gone_on_with() {
    let mut hall = hall(vec![runs("c1", "sleep 600"), Step::text("done")], PLAIN).await;
    let dm = hall.server.dm(hall.ann);
    hall.server.say(hall.ann, dm, "work");
    let begun = line(&hall, dm, "working for ").await;
    hall.kill();
    hall.start().await;
    assert_eq!(line(&hall, dm, "worked for ").await, begun);
    let said = hall.said(dm, 2).await;
    assert!(said[0].ends_with(" s, 1 step"), "{said:?}");
    closes_with(hall, dm, &[&said[0], "done"]).await;
}

#[tokio::test]
async fn nothing_is_told_about_tools_where_that_is_not_wanted() {
    let config = format!("{PLAIN}display:\n  tool_progress: 'off'\n");
    let hall = hall(vec![runs("c1", "sleep 12"), Step::text("done")], &config).await;
    let dm = hall.server.dm(hall.ann);
    hall.server.say(hall.ann, dm, "work");
    closes_with(hall, dm, &["done"]).await;
}

#[tokio::test]
async fn killed_before_the_model_was_told_what_was_said_meanwhile_it_is_answered() {
    let slow = spoken("first", Delivery { pause_ms: 500, ..Delivery::default() });
    let config = format!("{PLAIN}display:\n  busy_input_mode: steer\n");
    let mut hall = hall(vec![slow, Step::Silence], &config).await;
    let dm = hall.server.dm(hall.ann);
    hall.server.say(hall.ann, dm, "begin");
    until("the model is asked", || hall.told().len() == 1);
    hall.server.say(hall.ann, dm, "and more");
    until("it is asked again", || hall.told().len() == 2);
    hall.kill();
    hall.start().await;
    closes_with(hall, dm, &["first", "echo: and more"]).await;
}

#[tokio::test]
async fn killed_after_the_model_was_told_what_was_said_meanwhile_it_is_answered_once() {
    let config = format!("{PLAIN}display:\n  busy_input_mode: steer\n");
    let mut hall = hall(vec![runs("c1", "sleep 2"), Step::Silence, Step::text("both")], &config).await;
    let dm = hall.server.dm(hall.ann);
    hall.server.say(hall.ann, dm, "begin");
    until("the model is asked", || hall.told().len() == 1);
    hall.server.say(hall.ann, dm, "and more");
    until("it is asked again", || hall.told().len() == 2);
    let told = hall.told().pop().unwrap()["messages"].to_string();
    assert!(told.contains("user_says") && told.contains("and more"), "{told}");
    hall.kill();
    hall.start().await;
    closes_with(hall, dm, &["both"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn however_often_it_is_killed_while_words_are_shown_each_answer_is_there_once() {
    let text = sentence();
    let script = Script { always: Some(slowly(&text)), ..Script::default() };
    let mut hall = Hall::with(script, STREAMS).await.open().await;
    let chats: Vec<Id> = (0..6)
        .map(|number| {
            let person = hall.server.user(&format!("p{number}"));
            let dm = hall.server.dm(person);
            hall.server.say(person, dm, "tell me");
            dm
        })
        .collect();
    for kill in 1..=12_u64 {
        // Every time somewhere else: before, in and after the words of the one or the other.
        tokio::time::sleep(Duration::from_millis(kill * 397 % 4_200)).await;
        hall.kill();
        hall.start().await;
    }
    for chat in chats {
        ends_with(&hall, chat, &[&text]);
    }
    hall.close().await;
}

#[tokio::test]
async fn a_change_that_comes_late_does_not_stay() {
    let text = sentence();
    let hall = hall(vec![slowly(&text)], STREAMS).await;
    let dm = hall.server.dm(hall.ann);
    hall.server.trouble("PATCH /channels/*/messages/*", 1, Trouble::Late);
    hall.server.say(hall.ann, dm, "tell me");
    let message = draft(&hall, dm, &text).await;
    ends_with(&hall, dm, &[&text]);
    hall.server.arrive_late();
    assert_ne!(hall.server.look(|world| world.messages[&message].content.clone()), text);
    closes_with(hall, dm, &[&text]).await;
}
