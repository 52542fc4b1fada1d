//! The platform is spoken to in secret, and the owner hears why where it is not spoken to.

use std::fs;
use std::sync::Arc;

use hermes_testkit::model::{Answer, Delivery};
use hermes_testkit::tls::{Authority, Front, Manner};
use hermes_testkit::{Said, Step};
use serde_json::Value;

use crate::hall::{Hall, until};

/// The variable that names a file of certificates to trust.
const CERTIFICATES: &str = "SSL_CERT_FILE";

/// Has the platform spoken to in secret. The owner does not know its authority yet.
fn behind(hall: &Hall) -> (Front, Arc<Authority>) {
    let authority = Authority::new().unwrap();
    let front = Front::open(hall.server.address(), &authority, "discord.invalid").unwrap();
    hall.server.move_to(&format!("https://{}", front.address()));
    fs::write(hall.path("ca.pem"), authority.pem()).unwrap();
    (front, authority)
}

/// Has the owner trust the authority.
fn trusting(hall: Hall) -> Hall {
    let file = hall.path("ca.pem").display().to_string();
    hall.tell(CERTIFICATES, file)
}

/// The token is in nothing that was written down.
fn keeps_the_token(hall: &Hall) {
    let token = hall.server.token();
    let log = fs::read_to_string(hall.path("home/logs/agent.log")).unwrap();
    assert!(!hall.log().contains(token) && !log.contains(token), "{}\n{log}", hall.log());
}

#[tokio::test]
async fn an_owner_names_a_certificate_and_all_is_secret() {
    let hall = Hall::echo().await;
    let (front, authority) = behind(&hall);
    let model = Front::open(hall.model.address(), &authority, "model.invalid").unwrap();
    hall.configure("model.base_url", &format!("https://{}/v1", model.address()));
    let mut hall = trusting(hall).open().await;
    let dm = hall.server.dm(hall.ann);
    hall.say(hall.ann, dm, "hello");
    assert_eq!(hall.said(dm, 1).await, ["echo: hello"]);
    for manner in [Manner::Honest, Manner::Abrupt] {
        front.behave(manner);
        front.cut();
        hall.say(hall.ann, dm, &format!("{manner:?}"));
    }
    assert_eq!(hall.said(dm, 3).await, ["echo: hello", "echo: Honest", "echo: Abrupt"]);
    assert_eq!(hall.stop(), Some(0), "{}", hall.log());
    assert!(hall.server.look(|world| world.connections) <= *front.taken().borrow(), "not all was secret");
    assert!(*model.taken().borrow() > 0, "the model was not asked in secret");
    keeps_the_token(&hall);
    hall.close().await;
}

#[tokio::test]
async fn a_certificate_that_is_not_trusted_is_told_with_what_to_do() {
    let mut hall = Hall::echo().await;
    let (front, _authority) = behind(&hall);
    let dm = hall.server.dm(hall.ann);
    hall.launch();
    until("it is down", || hall.state() == "down");
    let status = hall.run(&["gateway", "status"]);
    let status = String::from_utf8(status.stdout).unwrap();
    let words = "its certificate is from nobody this machine trusts";
    for told in [&status, &hall.log()] {
        assert!(told.contains(words) && told.contains(CERTIFICATES), "{told}");
    }
    front.behave(Manner::Expired);
    until("it is told", || hall.log().contains("its certificate has expired"));
    assert_eq!(hall.server.look(|world| (world.connections, world.identified)), (0, 0));
    hall.say(hall.ann, dm, "hello");
    assert_eq!(hall.stop(), Some(0), "{}", hall.log());
    front.behave(Manner::Honest);
    let hall = trusting(hall).open().await;
    hall.say(hall.ann, dm, "and now?");
    hall.saw(dm, "an answer", |seen| seen.text == "echo: and now?").await;
    keeps_the_token(&hall);
    hall.close().await;
}

#[tokio::test]
async fn a_file_of_certificates_that_is_not_there_is_named() {
    let hall = Hall::echo().await;
    let _behind = behind(&hall);
    fs::remove_file(hall.path("ca.pem")).unwrap();
    let hall = trusting(hall);
    let run = hall.run(&["--json", "gateway", "run"]);
    assert_eq!(run.status.code(), Some(5));
    let told: Value = serde_json::from_slice(&run.stdout).unwrap();
    assert!(told.to_string().contains("ca.pem") && told.to_string().contains(CERTIFICATES), "{told}");
    hall.close().await;
}

#[tokio::test]
async fn a_handshake_without_an_answer_holds_nothing_up() {
    let endless = Step::Answer(Answer {
        says: vec![Said::Text("first".to_owned())],
        delivery: Delivery { pause_ms: 600_000, ..Default::default() },
        ..Default::default()
    });
    let hall = Hall::then_echo([endless]).await;
    let (front, _authority) = behind(&hall);
    // What people say is heard all the time.
    let open = format!("ws://{}", hall.server.address());
    let mut hall = trusting(hall).tell("DISCORD_GATEWAY_URL", open).open().await;
    let dm = hall.server.dm(hall.ann);
    front.behave(Manner::Silent);
    front.cut();
    hall.say(hall.ann, dm, "begin");
    until("the model is asked", || hall.told().len() == 1);
    hall.say(hall.ann, dm, "/stop");
    hall.say(hall.ann, dm, "hello");
    until("the next one is asked about", || hall.told().len() == 2);
    assert_eq!(hall.stop(), Some(0), "{}", hall.log());
    assert_eq!(hall.heard(dm), Vec::<String>::new());
    front.behave(Manner::Honest);
    hall.start().await;
    hall.saw(dm, "the answer", |seen| seen.text == "echo: begin\n\nhello").await;
    hall.say(hall.ann, dm, "once");
    hall.saw(dm, "the last answer", |seen| seen.text == "echo: once").await;
    let mut heard = hall.heard(dm);
    heard.sort();
    assert_eq!(heard, ["echo: begin\n\nhello", "echo: once", "interrupted", "stopped"]);
    // Nobody answers at the start, either.
    assert_eq!(hall.stop(), Some(0), "{}", hall.log());
    front.behave(Manner::Silent);
    let before = *front.taken().borrow();
    let mut hall = hall.tell("DISCORD_GATEWAY_URL", format!("wss://{}", front.address()));
    hall.launch();
    until("it tries", || *front.taken().borrow() > before);
    assert_eq!(hall.stop(), Some(0), "{}", hall.log());
    keeps_the_token(&hall);
    hall.close().await;
}
