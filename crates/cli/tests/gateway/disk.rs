//! A disk that is full, or cannot be written.

use std::fs::{self, File};
use std::io::Write;

use hermes_testkit::model::{Answer, Delivery};
use hermes_testkit::{Said, Step};

use crate::hall::{Hall, until};

const LOCAL: &str = "discord:\n  allow_all_users: true\ngateway:\n  terminal_backend: local\n";
const UNKEPT: &str = "cannot be kept yet";

/// Leaves no room on the disk of the home.
fn fill(hall: &Hall) {
    let mut file = File::create(hall.on_its_disk("filler")).unwrap();
    while file.write_all(&[0; 4096]).is_ok() {}
}

fn make_room(hall: &Hall) {
    fs::remove_file(hall.on_its_disk("filler")).unwrap();
}

#[tokio::test]
async fn what_is_said_while_the_disk_is_full_is_answered_when_there_is_room() {
    let hall =
        Hall::with(Hall::echoing([]), LOCAL).await.on_disk("8m").tell("HERMES_LOG", "info").open().await;
    let (ann, bob) = (hall.server.dm(hall.ann), hall.server.dm(hall.bob));
    hall.say(hall.ann, ann, "one");
    assert_eq!(hall.said(ann, 1).await, ["echo: one"]);
    fill(&hall);
    hall.say(hall.ann, ann, "two");
    hall.say(hall.bob, bob, "three");
    // Longer than anybody would wait who gives up.
    until("it is tried again and again", || hall.log().matches(UNKEPT).count() > 8);
    assert_eq!((hall.heard(ann).len(), hall.heard(bob).len()), (1, 0));
    make_room(&hall);
    assert_eq!(hall.said(ann, 2).await, ["echo: one", "echo: two"]);
    assert_eq!(hall.said(bob, 1).await, ["echo: three"]);
    hall.close().await;
}

#[tokio::test]
async fn whoever_is_not_answered_because_the_disk_is_full_is_told_when_there_is_room() {
    let slow = Step::Answer(Answer {
        says: vec![Said::Text("first".to_owned())],
        delivery: Delivery { pause_ms: 1_000, ..Default::default() },
        ..Default::default()
    });
    let hall =
        Hall::with(Hall::echoing([slow]), LOCAL).await.on_disk("8m").tell("HERMES_LOG", "info").open().await;
    let ann = hall.server.dm(hall.ann);
    hall.say(hall.ann, ann, "one");
    until("the model is asked", || hall.told().len() == 1);
    fill(&hall);
    until("nothing can be kept", || hall.log().contains(UNKEPT));
    assert_eq!(hall.heard(ann), Vec::<String>::new());
    make_room(&hall);
    let told = hall.said(ann, 1).await;
    assert!(told[0].contains("there is no space left on the disk"), "{told:?}");
    // What was begun is gone on with first.
    hall.say(hall.ann, ann, "two");
    hall.saw(ann, "the next answer", |seen| seen.text == "echo: two").await;
    hall.close().await;
}

#[tokio::test]
async fn a_state_that_cannot_be_written_down_ends_nothing() {
    let mut hall = Hall::echo().await;
    // Nothing can be put in the place of a directory that is not empty.
    fs::create_dir_all(hall.path("home/gateway_state.json/full")).unwrap();
    hall.start().await;
    let ann = hall.server.dm(hall.ann);
    hall.say(hall.ann, ann, "one");
    assert_eq!(hall.said(ann, 1).await, ["echo: one"]);
    fs::remove_dir_all(hall.path("home/gateway_state.json")).unwrap();
    until("it is written down later", || hall.state() == "up");
    hall.close().await;
}
