//! `hermes pairing`.

use std::time::{SystemTime, UNIX_EPOCH};

use hermes_store::{CodeResponse, FILE_NAME};
use hermes_types::Timestamp;
use serde_json::json;

use crate::Home;
use crate::sessions::with_store;

fn now() -> Timestamp {
    Timestamp::from_seconds(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs())
}

/// Requests a pairing code for a user of the bot.
fn request_code(home: &Home, user: &str, name: &str) -> String {
    let response =
        with_store(home, async |store| store.request_code("discord", user, name, now()).await.unwrap());
    let CodeResponse::Code { code, .. } = response else { panic!("{response:?}") };
    code
}

#[test]
fn listing_does_not_create_a_database() {
    let home = Home::new();
    assert_eq!(home.run(&["--json", "pairing", "ls"]).json(), json!({"pending": [], "paired": []}));
    assert_eq!(home.run(&["--json", "pairing", "clear-pending"]).json(), json!({"cleared": 0}));
    for args in [&["pairing", "approve", "discord", "ABCD2345"], &["pairing", "revoke", "discord", "7"]] {
        let run = home.run(args);
        assert_eq!((run.code, run.out.as_str()), (Some(1), ""), "{run:?}");
        assert!(run.err.contains("hermes pairing ls"), "{run:?}");
    }
    assert!(!home.path().join(FILE_NAME).exists());
}

#[test]
fn a_user_with_a_code_is_approved_and_revoked() {
    let home = Home::new();
    let code = request_code(&home, "7", "Ada\u{1b}[31m");
    let listed = home.run(&["--json", "pairing", "ls"]).json();
    assert_eq!((&listed["pending"][0]["user"], &listed["paired"]), (&json!("7"), &json!([])));
    let shown = home.run(&["pairing", "ls"]);
    assert!(shown.out.contains("pending, ") && !shown.out.contains('\u{1b}'), "{shown:?}");
    assert!(!shown.out.contains(&code), "the list does not show codes: {shown:?}");

    let run = home.run(&["--json", "pairing", "approve", "discord", &code.to_lowercase()]);
    assert_eq!(run.code, Some(0), "{run:?}");
    let paired = run.json();
    assert_eq!((&paired["platform"], &paired["user"]), (&json!("discord"), &json!("7")));
    let listed = home.run(&["--json", "pairing", "list"]).json();
    assert_eq!((&listed["pending"], &listed["paired"]), (&json!([]), &json!([paired])));
    assert!(home.run(&["pairing", "ls"]).out.contains("approved "));

    let run = home.run(&["pairing", "revoke", "discord", "discord:7"]);
    assert_eq!((run.code, run.out.as_str()), (Some(0), "revoked access of 7 on discord\n"), "{run:?}");
    assert_eq!(home.run(&["pairing", "revoke", "discord", "7"]).code, Some(1));
}

#[test]
fn pending_requests_can_be_cleared() {
    let home = Home::new();
    let code = request_code(&home, "7", "Ada");
    assert_eq!(home.run(&["--json", "pairing", "clear-pending", "discord"]).json(), json!({"cleared": 1}));
    assert_eq!(home.run(&["pairing", "approve", "discord", &code]).code, Some(1));
}

#[test]
fn approvals_are_blocked_after_five_wrong_codes() {
    let home = Home::new();
    let code = request_code(&home, "7", "Ada");
    for guess in 1..=4 {
        let run = home.run(&["pairing", "approve", "discord", "AAAAAAAA"]);
        assert_eq!(run.code, Some(1), "{run:?}");
        assert_eq!(run.err.contains("One more wrong code"), guess == 4, "{run:?}");
    }
    for attempt in ["AAAAAAAA", &code] {
        let run = home.run(&["--json", "pairing", "approve", "discord", attempt]);
        assert_eq!((run.code, &run.json()["error"]["kind"]), (Some(4), &json!("refused")), "{run:?}");
    }
}

#[test]
fn an_unknown_platform_is_a_usage_error() {
    let home = Home::new();
    let run = home.run(&["pairing", "approve", "telegraph", "ABCD2345"]);
    assert_eq!(run.code, Some(2), "{run:?}");
    assert!(run.err.contains("discord"), "{run:?}");
    assert!(home.run(&["completions", "bash"]).out.contains("clear-pending"));
}
