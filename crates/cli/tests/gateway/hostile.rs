//! Somebody in a chat who wants more than is theirs.

use std::fs;

use hermes_testkit::discord::Id;
use hermes_testkit::venue::Venue;
use hermes_testkit::{Said, Step};
use serde_json::{Value, json};

use crate::hall::{Hall, runs, until};

/// What nobody runs unasked on their own machine.
const DANGER: &str = "chmod -R 777 ~/private && echo ran >>~/log";
/// Everybody is let in, and commands run on the owner's machine.
const AT_HOME: &str = "discord:\n  allow_all_users: true\ngateway:\n  terminal_backend: local\n";

/// A hall where everybody has the same dangerous thing done, so often.
async fn at_home(times: usize) -> Hall {
    let steps = (0..times).flat_map(|number| [runs(&format!("c{number}"), DANGER), Step::text("done")]);
    let hall = Hall::with(Hall::echoing(steps), AT_HOME).await;
    fs::create_dir(hall.path("owner/private")).unwrap();
    hall
}

/// How often it was done.
fn done(hall: &Hall) -> usize {
    fs::read_to_string(hall.path("owner/log")).unwrap_or_default().lines().count()
}

/// How many questions were put in a chat.
fn questions(hall: &Hall, chat: Id) -> usize {
    hall.heard(chat).iter().filter(|said| said.contains("May this run?")).count()
}

/// What the model heard last.
fn told_last(hall: &Hall) -> String {
    hall.told().pop().unwrap()["messages"].as_array().unwrap().last().unwrap()["content"].to_string()
}

#[tokio::test]
async fn nobody_allows_for_everybody_who_does_not_look_after_it() {
    let hall = at_home(3).await.with_admin().open().await;
    let (ann, bob) = (hall.server.dm(hall.ann), hall.server.dm(hall.bob));
    hall.say(hall.bob, bob, "do it");
    let question = hall.saw(bob, "a question", |seen| !seen.buttons.is_empty()).await;
    let (_, always) = question.buttons.iter().find(|(label, _)| label == "Always").unwrap();
    hall.server.push(hall.bob, question.id, always).await.unwrap();
    hall.wait("bob is told no", |server| {
        server.whispers(hall.bob).iter().any(|told| told.contains("holds for everybody")).then_some(())
    })
    .await;
    hall.say(hall.bob, bob, "/approve always");
    hall.saw(bob, "bob is told no again", |seen| seen.text.contains("holds for everybody")).await;
    assert_eq!(done(&hall), 0);
    hall.say(hall.bob, bob, "/approve session");
    hall.saw(bob, "the answer", |seen| seen.text == "done").await;
    assert_eq!(done(&hall), 1);

    // Nobody else has it done unasked because of him; and who looks after it may say so.
    hall.say(hall.ann, ann, "do it");
    hall.saw(ann, "a question", |seen| seen.text.contains("May this run?")).await;
    assert_eq!(done(&hall), 1);
    hall.say(hall.ann, ann, "/approve always");
    hall.saw(ann, "the answer", |seen| seen.text == "done").await;
    hall.say(hall.ann, ann, "do it again");
    until("the answer", || hall.heard(ann).iter().filter(|said| *said == "done").count() == 2);
    assert_eq!((done(&hall), questions(&hall, ann)), (3, 1));
    hall.close().await;
}

#[tokio::test]
async fn what_was_allowed_in_a_conversation_is_not_in_the_next_one() {
    let hall = at_home(3).await.open().await;
    let dm = hall.server.dm(hall.ann);
    let answers = |count: usize| {
        until("the answer", || hall.heard(dm).iter().filter(|said| *said == "done").count() == count);
    };
    hall.say(hall.ann, dm, "do it");
    until("a question", || questions(&hall, dm) == 1);
    hall.say(hall.ann, dm, "/approve session");
    answers(1);
    hall.say(hall.ann, dm, "do it again");
    answers(2);
    assert_eq!((done(&hall), questions(&hall, dm)), (2, 1));
    hall.say(hall.ann, dm, "/new");
    hall.saw(dm, "a new conversation", |seen| seen.text.contains("a new conversation")).await;
    hall.say(hall.ann, dm, "do it");
    until("another question", || questions(&hall, dm) == 2);
    hall.say(hall.ann, dm, "/deny");
    answers(3);
    assert_eq!(done(&hall), 2);
    hall.close().await;
}

#[tokio::test]
async fn commands_that_are_not_somebodys_are_not_while_something_is_under_way_either() {
    let config = "discord:\n  allow_all_users: true\n  user_allowed_commands: [status]\n";
    let mut hall = Hall::with(Hall::echoing([Step::Silence]), config).await.open().await;
    let dm = hall.server.dm(hall.ann);
    hall.say(hall.ann, dm, "wait for it");
    until("the model is asked", || hall.told().len() == 1);
    for (number, command) in ["/stop", "/new", "/steer left", "/queue more"].into_iter().enumerate() {
        hall.say(hall.ann, dm, command);
        let said = hall.said(dm, number + 1).await;
        assert!(said[number].contains("is not among the commands"), "{command}: {said:?}");
    }
    hall.say(hall.ann, dm, "/status");
    let said = hall.said(dm, 5).await;
    assert!(said[4].contains("waiting  0"), "{said:?}");
    assert_eq!(hall.told().len(), 1);
    hall.kill();
    hall.close().await;
}

#[tokio::test]
async fn nobody_speaks_as_somebody_else_while_something_is_under_way() {
    let steps = [runs("c1", "until [ -e ~/go ]; do sleep 0.05; done"), Step::text("done")];
    let hall = Hall::with(Hall::echoing(steps), AT_HOME).await.open().await;
    let call = hall.call(hall.ann, hall.channel, "wait for it");
    let thread = hall.answered_in(call).await;
    until("the model is asked", || hall.told().len() == 1);
    hall.say(hall.bob, thread, "/steer delete everything");
    hall.say(hall.bob, thread, "/status");
    // Whoever hears this has heard what was said before it.
    hall.saw(thread, "how things are", |seen| seen.text.contains("session")).await;
    fs::write(hall.path("owner/go"), "").unwrap();
    hall.saw(thread, "the answer", |seen| seen.text == "done").await;
    let told = told_last(&hall);
    assert!(told.contains("[bob] delete everything"), "{told}");
    hall.close().await;
}

#[tokio::test]
async fn a_long_question_is_shown_whole_and_answered_once() {
    let command = format!("echo {} && {DANGER}", "word ".repeat(1_000));
    let steps = [runs("c1", &command), Step::text("done")];
    let hall = Hall::with(Hall::echoing(steps), AT_HOME).await.open().await;
    fs::create_dir(hall.path("owner/private")).unwrap();
    let dm = hall.server.dm(hall.ann);
    hall.say(hall.ann, dm, "do it");
    let question = hall.saw(dm, "a question", |seen| !seen.buttons.is_empty()).await;
    let shown = hall.heard(dm).concat();
    assert_eq!(shown.matches("word").count(), 1_000, "{shown}");
    assert!(question.text.contains("chmod -R 777") && question.text.contains("/approve q_"), "{question:?}");
    assert_eq!(done(&hall), 0);
    let (_, once) = &question.buttons[0];
    hall.server.push(hall.ann, question.id, once).await.unwrap();
    hall.saw(dm, "the answer", |seen| seen.text == "done").await;
    hall.saw(dm, "who decided", |seen| seen.id == question.id && seen.text.contains("allowed once by")).await;
    assert_eq!(done(&hall), 1);
    hall.close().await;
}

#[tokio::test]
async fn what_runs_is_not_shown_as_what_is_only_quoted() {
    let steps = [runs("c1", "echo ```chmod -R 777 ~/private```"), Step::text("as you wish")];
    let hall = Hall::with(Hall::echoing(steps), AT_HOME).await.open().await;
    let dm = hall.server.dm(hall.ann);
    hall.say(hall.ann, dm, "do it");
    let question = hall.saw(dm, "a question", |seen| !seen.buttons.is_empty()).await;
    assert!(!question.text.contains("'''") && question.text.contains("``⟨U+0060⟩"), "{question:?}");
    assert_eq!(question.text.matches("```").count(), 2, "{question:?}");
    hall.say(hall.ann, dm, "/deny");
    hall.saw(dm, "the answer", |seen| seen.text == "as you wish").await;
    hall.close().await;
}

#[tokio::test]
async fn the_place_of_one_person_is_not_open_to_the_others_of_a_thread() {
    let steps = [
        runs("c1", "echo ann\\'s >~/secret; ls ~"),
        Step::text("kept"),
        Step::text("hello"),
        runs("c2", "ls ~; cat ~/secret"),
        Step::text("looked"),
    ];
    let hall = Hall::new(steps).await.tell("GATEWAY_SANDBOX_SCOPE", "user").open().await;
    let dm = hall.server.dm(hall.ann);
    hall.say(hall.ann, dm, "keep this");
    assert_eq!(hall.said(dm, 1).await, ["kept"]);
    let call = hall.call(hall.ann, hall.channel, "hello");
    let thread = hall.answered_in(call).await;
    assert_eq!(hall.said(thread, 1).await, ["hello"]);
    hall.say(hall.bob, thread, "what does she keep?");
    assert_eq!(hall.said(thread, 2).await[1], "looked");
    let seen = told_last(&hall);
    assert!(seen.contains("No such file") && !seen.contains("ann's"), "{seen}");
    hall.close().await;
}

#[tokio::test]
async fn the_place_of_one_person_is_the_same_in_all_their_chats_and_nobody_elses() {
    let steps = [
        runs("c1", "echo ann\\'s >~/secret; ls ~"),
        Step::text("kept"),
        runs("c2", "cat ~/secret"),
        Step::text("found"),
        runs("c3", "ls ~; cat ~/secret"),
        Step::text("looked"),
    ];
    let hall = Hall::new(steps)
        .await
        .tell("GATEWAY_SANDBOX_SCOPE", "user")
        .tell("DISCORD_AUTO_THREAD", false)
        .open()
        .await;
    let dm = hall.server.dm(hall.ann);
    hall.say(hall.ann, dm, "keep this");
    assert_eq!(hall.said(dm, 1).await, ["kept"]);
    hall.call(hall.ann, hall.channel, "what did I keep?");
    assert_eq!(hall.said(hall.channel, 1).await, ["found"]);
    assert!(told_last(&hall).contains("ann's"), "{}", told_last(&hall));
    hall.call(hall.bob, hall.channel, "what does she keep?");
    assert_eq!(hall.said(hall.channel, 2).await[1], "looked");
    assert!(told_last(&hall).contains("No such file"), "{}", told_last(&hall));
    hall.close().await;
}

#[tokio::test]
async fn the_home_of_the_owner_is_not_open_to_a_chat() {
    // What is below /tmp nobody sees in a place anyway.
    let owner = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let diary = owner.path().join("diary");
    fs::write(&diary, "dear diary").unwrap();
    let look = format!("cat {}", diary.display());
    let hall = Hall::new([runs("c1", &look), Step::text("looked")]).await;
    let hall = hall.tell("HOME", owner.path().display()).open().await;
    // Whoever owns it reads it in a place of their own.
    let read = hall.run(&["exec", "--backend", "sandbox", "--session", "", "--", &look]);
    assert_eq!(String::from_utf8_lossy(&read.stdout), "dear diary");
    let dm = hall.server.dm(hall.ann);
    hall.say(hall.ann, dm, "what does the owner write?");
    assert_eq!(hall.said(dm, 1).await, ["looked"]);
    let seen = told_last(&hall);
    assert!(seen.contains("No such file") && !seen.contains("dear diary"), "{seen}");
    hall.close().await;
}

#[tokio::test]
async fn files_and_guests_of_other_chats_are_not_found_wherever_they_are_kept() {
    let kept = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let (files, run) = (kept.path().join("files"), kept.path().join("run"));
    fs::create_dir(&run).unwrap();
    let steps = [
        runs("c1", "echo ann\\'s >secret; ls"),
        Step::text("kept"),
        runs("c2", &format!("find {0}; grep -rs ann {0}; true", kept.path().display())),
        Step::text("looked"),
    ];
    let hall = Hall::new(steps).await;
    let hall = hall.tell("TERMINAL_SANDBOX_DIR", files.display()).tell("XDG_RUNTIME_DIR", run.display());
    let hall = hall.open().await;
    let (ann, bob) = (hall.server.dm(hall.ann), hall.server.dm(hall.bob));
    hall.say(hall.ann, ann, "keep this");
    assert_eq!(hall.said(ann, 1).await, ["kept"]);
    hall.say(hall.bob, bob, "what does she keep?");
    assert_eq!(hall.said(bob, 1).await, ["looked"]);
    let seen = told_last(&hall);
    assert!(seen.contains("files") && !seen.contains("secret") && !seen.contains("sock"), "{seen}");
    hall.close().await;
}

#[tokio::test]
async fn what_somebody_left_running_speaks_no_more_when_they_are_let_in_no_longer() {
    let left = json!({
        "command": "until [ -e ~/go ]; do sleep 0.05; done", "background": true, "notify_on_complete": true,
    });
    let left = Said::Call { id: "c1".to_owned(), name: "terminal".to_owned(), arguments: left };
    let steps = [Step::says([left]), Step::text("begun")];
    let hall = Hall::with(Hall::echoing(steps), "gateway:\n  terminal_backend: local\n").await.open().await;
    let dm = hall.server.dm(hall.bob);
    hall.say(hall.bob, dm, "let me in");
    let code =
        hall.said(dm, 1).await.remove(0).split_whitespace().last().unwrap().trim_matches('`').to_owned();
    assert!(hall.run(&["pairing", "approve", "discord", &code]).status.success());
    hall.say(hall.bob, dm, "begin");
    hall.saw(dm, "it has begun", |seen| seen.text == "begun").await;
    let asked = hall.told().len();
    assert!(hall.run(&["pairing", "revoke", "discord", &hall.bob.to_string()]).status.success());
    fs::write(hall.path("owner/go"), "").unwrap();
    let log = hall.path("home/logs/agent.log");
    until("it is not told", || {
        fs::read_to_string(&log).unwrap_or_default().contains("let in no longer is not told")
    });
    assert_eq!((hall.told().len(), hall.heard(dm).len()), (asked, 2), "{:?}", hall.heard(dm));
    hall.close().await;
}

#[tokio::test]
async fn a_provider_that_names_the_key_it_does_not_take_tells_no_chat() {
    let body =
        json!({ "error": { "message": "Incorrect API key provided: hush-4711-hush-0815.", "code": 401 } });
    let refusal = Step::Error { status: 401, headers: Vec::new(), body };
    let hall = Hall::new([refusal]).await.tell("OPENAI_API_KEY", "hush-4711-hush-0815").open().await;
    let dm = hall.server.dm(hall.ann);
    hall.say(hall.ann, dm, "hello");
    let said = hall.said(dm, 1).await;
    assert!(said[0].contains("Incorrect API key") && !said[0].contains("hush"), "{said:?}");
    hall.close().await;
}

#[tokio::test]
async fn a_stranger_fills_no_disk() {
    let hall = Hall::with(Hall::echoing([]), "").await;
    let ann = hall.ann;
    let hall = hall.tell("DISCORD_ALLOWED_USERS", ann).open().await;
    let (ann, bob) = (hall.server.dm(hall.ann), hall.server.dm(hall.bob));
    for number in 0..30 {
        hall.say(hall.bob, bob, &format!("let me in {number}"));
    }
    hall.say(hall.ann, ann, "hello");
    hall.said(ann, 1).await;
    let audit = fs::read_to_string(hall.path("home/logs/audit.jsonl")).unwrap();
    let lines: Vec<Value> = audit.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let strangers = lines.iter().filter(|line| line["what"] == "stranger").count();
    assert!((1..5).contains(&strangers), "{audit}");
    hall.close().await;
}

#[tokio::test]
async fn a_command_of_a_stranger_is_not_heard() {
    let hall = Hall::with(Hall::echoing([]), "").await;
    let ann = hall.ann;
    let hall = hall.tell("DISCORD_ALLOWED_USERS", ann).open().await;
    hall.wait("the commands are there", |server| {
        server.look(|world| (world.commands.len() == 18).then_some(()))
    })
    .await;
    hall.server.expect(10_062);
    hall.server.invoke(hall.bob, hall.channel, "status", json!([])).await.unwrap_err();
    hall.server.invoke(hall.ann, hall.channel, "status", json!([])).await.unwrap();
    assert!(hall.told().is_empty() && hall.server.whispers(hall.bob).is_empty());
    hall.close().await;
}
