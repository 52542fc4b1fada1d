//! A crowd talks while the gateway is killed again and again.

use std::collections::BTreeMap;
use std::time::Duration;

use hermes_testkit::discord::Id;
use hermes_testkit::venue::Venue;
use rustix::process::{Signal, kill_process};
use serde_json::json;

use crate::hall::{Hall, until};

/// How often it is killed.
const KILLS: u32 = 200;
const PEOPLE: usize = 50;
const CHATS: usize = 20;

/// Numbers that look random and are the same every time.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % sides as u64).unwrap()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_lost_and_nothing_is_answered_twice_however_often_the_gateway_is_killed() {
    let mut hall = Hall::echo().await;
    let mut dice = Dice(0x9e37_79b9_7f4a_7c15);
    let people: Vec<Id> = (0..PEOPLE).map(|number| hall.server.user(&format!("p{number}"))).collect();
    let guild = hall.server.guild("crowd", &people);
    // Half of the chats are direct talks, half are channels, where everything is called out and answered in threads.
    let dms: Vec<(Id, Id)> =
        people.iter().take(CHATS / 2).map(|person| (*person, hall.server.dm(*person))).collect();
    let channels: Vec<Id> =
        (0..CHATS / 2).map(|number| hall.server.channel(guild, &format!("c{number}"))).collect();
    let mut said: BTreeMap<Id, (Id, String)> = BTreeMap::new();
    for _ in 0..KILLS {
        // Whoever was killed between opening a thread and knowing it opens it again, and is told that it is there.
        hall.server.expect(160_004);
    }
    hall.start().await;
    // One that never heard anything does not ask for what came before it, so it is let hear something.
    let dm = hall.server.dm(hall.ann);
    hall.server.say(hall.ann, dm, "hello");
    hall.said(dm, 1).await;
    for kill in 0..KILLS {
        for word in 0..1 + dice.roll(3) {
            let text = format!("word {kill}.{word}");
            if dice.roll(2) == 0 {
                let (person, dm) = dms[dice.roll(dms.len())];
                said.insert(hall.server.say(person, dm, &text), (dm, text));
            } else {
                let (person, channel) = (people[dice.roll(PEOPLE)], channels[dice.roll(channels.len())]);
                said.insert(hall.call(person, channel, &text), (channel, text));
            }
        }
        tokio::time::sleep(Duration::from_millis(dice.roll(250) as u64)).await;
        hall.kill();
        // Half of them get as far as being connected, however slow the machine is.
        match dice.roll(2) {
            0 => hall.launch(),
            _ => hall.start().await,
        }
    }
    // The last one is left alone.
    let (called, written): (Vec<_>, Vec<_>) = said.iter().partition(|(_, (room, _))| channels.contains(room));
    for (message, (_, text)) in called {
        let thread = hall.answered_in(*message).await;
        let answers = hall.said(thread, 1).await;
        assert_eq!(answers.len(), 1, "{answers:?}");
        assert!(answers[0].ends_with(&format!("] {text}")), "{answers:?} to {text}");
    }
    let all_answered =
        || written.iter().all(|(_, (room, text))| hall.heard(*room).contains(&format!("echo: {text}")));
    until("everything is answered", all_answered);
    assert_eq!(hall.stop(), Some(0), "{}", hall.log());
    for (_, (room, text)) in written {
        let answers = hall.heard(*room).iter().filter(|answer| **answer == format!("echo: {text}")).count();
        assert_eq!(answers, 1, "{:?}", hall.heard(*room));
    }
    let listed = hall.run(&["sandbox", "ls", "--json"]);
    let listed: serde_json::Value = serde_json::from_slice(&listed.stdout).unwrap();
    assert_eq!(listed["places"], serde_json::json!([]));
    hall.close().await;
}

/// Letters that nobody is done with.
fn unanswered(hall: &Hall) -> usize {
    let database = rusqlite::Connection::open(hall.path("home").join(hermes_store::FILE_NAME)).unwrap();
    database.query_row("SELECT count(*) FROM inbox WHERE done IS NULL", [], |row| row.get(0)).unwrap()
}

#[tokio::test]
async fn a_command_is_kept_before_its_person_is_told_and_not_done_if_they_were_told_it_failed() {
    let mut hall = Hall::echo().await.open().await;
    hall.wait("the commands are there", |server| {
        server.look(|world| (world.commands.len() == 18).then_some(()))
    })
    .await;
    let dm = hall.server.dm(hall.ann);
    hall.server.stall();
    hall.server.expect(10_062);
    let text = json!([{"name": "text", "type": 3, "value": "hello"}]);
    let killed = async {
        hall.wait("somebody is being told", |server| (server.hanging() > 0).then_some(())).await;
        assert_eq!(unanswered(&hall), 1);
        kill_process(hall.pid(), Signal::KILL).unwrap();
    };
    let (called, ()) = tokio::join!(hall.server.invoke(hall.ann, dm, "queue", text.clone()), killed);
    called.unwrap_err();
    hall.kill();
    hall.server.recover();
    hall.server.expect(10_062);
    hall.start().await;
    until("it is not waited for any more", || unanswered(&hall) == 0);
    assert!(hall.told().is_empty() && hall.heard(dm).is_empty());

    hall.server.invoke(hall.ann, dm, "queue", text).await.unwrap();
    hall.saw(dm, "the answer", |seen| seen.text == "echo: hello").await;
    hall.close().await;
}
