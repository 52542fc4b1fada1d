//! Pairing codes and approvals.

use std::process::Stdio;

use hermes_store::{ApprovalResult, CodeResponse, PairedUser, Store};

use crate::{Home, at};

async fn request(store: &Store, user: &str, seconds: u64) -> CodeResponse {
    store.request_code("discord", user, "a name", at(seconds)).await.unwrap()
}

async fn code(store: &Store, user: &str, seconds: u64) -> String {
    let asked = request(store, user, seconds).await;
    let CodeResponse::Code { code, .. } = &asked else { unreachable!("{user} at {seconds}: {asked:?}") };
    code.clone()
}

async fn approve(store: &Store, code: &str, seconds: u64) -> ApprovalResult {
    store.approve_code("discord", code, at(seconds)).await.unwrap()
}

fn paired(user: &str, seconds: u64) -> PairedUser {
    PairedUser {
        platform: "discord".to_owned(),
        user: user.to_owned(),
        name: "a name".to_owned(),
        approved: at(seconds),
    }
}

#[tokio::test]
async fn a_code_pairs_its_user_once() {
    let home = Home::new();
    let store = home.store().await;
    let given = code(&store, "7", 0).await;
    assert!(!store.is_paired("discord", "7").await.unwrap());
    let elsewhere = store.approve_code("telegram", &given, at(1)).await.unwrap();
    assert_eq!(elsewhere, ApprovalResult::WrongCode { left: 4 });
    let typed = given.to_lowercase();
    assert_eq!(approve(&store, &format!(" {typed} "), 2).await, ApprovalResult::Approved(paired("7", 2)));
    assert_eq!(approve(&store, &given, 3).await, ApprovalResult::WrongCode { left: 4 });
    assert!(store.is_paired("discord", "7").await.unwrap());
    assert!(!store.is_paired("telegram", "7").await.unwrap());
    assert_eq!(request(&store, "7", 4).await, CodeResponse::AlreadyPaired);
    assert_eq!(store.paired_users().await.unwrap(), [paired("7", 2)]);
    assert!(store.revoke_pairing("discord", "7").await.unwrap());
    assert!(!store.revoke_pairing("discord", "7").await.unwrap());
    assert!(!store.is_paired("discord", "7").await.unwrap());
    assert_eq!(store.paired_users().await.unwrap(), []);
}

#[tokio::test]
async fn only_the_hash_of_a_code_is_stored() {
    let home = Home::new();
    let store = home.store().await;
    let given = code(&store, "7", 0).await;
    store.close().await;
    let bytes = std::fs::read(home.file()).unwrap();
    assert!(!bytes.windows(given.len()).any(|window| window == given.as_bytes()));
}

#[tokio::test]
async fn a_code_expires_and_a_new_one_is_given_every_ten_minutes() {
    let home = Home::new();
    let store = home.store().await;
    let first = code(&store, "7", 0).await;
    assert_eq!(request(&store, "7", 599).await, CodeResponse::TooSoon);
    let CodeResponse::Code { code: second, expires } = request(&store, "7", 600).await else { panic!() };
    assert_eq!(expires, at(3_600), "a repeated request does not extend the code");
    assert_eq!(approve(&store, &first, 601).await, ApprovalResult::WrongCode { left: 4 });
    assert_eq!(store.pending_users(at(3_599)).await.unwrap().len(), 1);
    assert_eq!(store.pending_users(at(3_600)).await.unwrap(), []);
    assert_eq!(approve(&store, &second, 3_600).await, ApprovalResult::WrongCode { left: 3 });
    assert_eq!(request(&store, "7", 3_601).await, CodeResponse::TooSoon, "others come first");
    let third = code(&store, "7", 4_200).await;
    assert_eq!(approve(&store, &third, 7_799).await, ApprovalResult::Approved(paired("7", 7_799)));
}

#[tokio::test]
async fn three_pending_users_do_not_block_a_fourth_forever() {
    let home = Home::new();
    let store = home.store().await;
    for user in ["1", "2", "3"] {
        code(&store, user, 0).await;
    }
    assert_eq!(request(&store, "4", 1).await, CodeResponse::TooManyPending);
    assert_eq!(request(&store, "4", 2).await, CodeResponse::TooSoon, "reported once");
    assert_eq!(store.pending_users(at(2)).await.unwrap().len(), 3);
    let elsewhere = store.request_code("telegram", "4", "a name", at(2)).await.unwrap();
    assert!(matches!(elsewhere, CodeResponse::Code { .. }), "platforms have separate limits: {elsewhere:?}");
    // The pending users request codes as often as allowed.
    for seconds in (10..3_600).step_by(10) {
        for user in ["1", "2", "3"] {
            request(&store, user, seconds).await;
        }
    }
    for user in ["1", "2", "3"] {
        assert_eq!(request(&store, user, 3_600).await, CodeResponse::TooSoon);
    }
    code(&store, "4", 3_601).await;
}

#[tokio::test]
async fn the_number_of_remembered_users_is_limited() {
    let home = Home::new();
    let store = home.store().await;
    for user in ["1", "2", "3"] {
        code(&store, user, 0).await;
    }
    let mut rejected = 0;
    for user in 0..1_010 {
        rejected +=
            usize::from(request(&store, &format!("x{user}"), 1).await == CodeResponse::TooManyPending);
    }
    assert_eq!(rejected, 1_000);
}

#[tokio::test]
async fn five_wrong_codes_lock_a_platform_for_an_hour() {
    let home = Home::new();
    let store = home.store().await;
    let given = code(&store, "7", 0).await;
    for left in [4, 3, 2, 1] {
        assert_eq!(approve(&store, "AAAAAAAA", 1).await, ApprovalResult::WrongCode { left });
    }
    let until = at(3_602);
    assert_eq!(approve(&store, "", 2).await, ApprovalResult::Locked { until });
    assert_eq!(approve(&store, &given, 3).await, ApprovalResult::Locked { until });
    assert_eq!(request(&store, "8", 3).await, CodeResponse::Locked { until });
    let elsewhere = store.request_code("telegram", "8", "a name", at(3)).await.unwrap();
    assert!(matches!(elsewhere, CodeResponse::Code { .. }));
    let later = code(&store, "8", 3_602).await;
    assert_eq!(approve(&store, "AAAAAAAA", 3_603).await, ApprovalResult::WrongCode { left: 4 });
    assert_eq!(approve(&store, &later, 3_603).await, ApprovalResult::Approved(paired("8", 3_603)));
    assert_eq!(
        approve(&store, "AAAAAAAA", 3_604).await,
        ApprovalResult::WrongCode { left: 4 },
        "a right code resets the count"
    );
}

#[tokio::test]
async fn pending_users_can_be_cleared() {
    let home = Home::new();
    let store = home.store().await;
    let given = code(&store, "7", 0).await;
    store.request_code("telegram", "8", &"n".repeat(500), at(0)).await.unwrap();
    let waiting = store.pending_users(at(1)).await.unwrap();
    let names: Vec<_> = waiting.iter().map(|one| (one.platform.as_str(), one.name.len())).collect();
    assert_eq!(names, [("discord", 6), ("telegram", 64)]);
    assert_eq!(store.clear_pending(Some("discord"), at(1)).await.unwrap(), 1);
    assert_eq!(approve(&store, &given, 2).await, ApprovalResult::WrongCode { left: 4 });
    assert_eq!(store.clear_pending(None, at(1)).await.unwrap(), 1);
    assert_eq!(store.pending_users(at(1)).await.unwrap(), []);
    code(&store, "7", 2).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_many_concurrent_requests_three_are_pending() {
    let home = Home::new();
    let stores = [home.store().await, home.store().await];
    let asking = (0..20).map(|n| {
        let store = stores[n % 2].clone();
        tokio::spawn(async move { request(&store, &n.to_string(), 0).await })
    });
    let mut given = 0;
    for asked in asking.collect::<Vec<_>>() {
        match asked.await.unwrap() {
            CodeResponse::Code { .. } => given += 1,
            other => assert_eq!(other, CodeResponse::TooManyPending),
        }
    }
    assert_eq!(given, 3);
    assert_eq!(stores[0].pending_users(at(1)).await.unwrap().len(), 3);
}

#[tokio::test]
async fn of_several_processes_one_approves_a_code() {
    let home = Home::new();
    let store = home.store().await;
    let given = code(&store, "7", 0).await;
    let peers: Vec<_> =
        (0..4).map(|_| home.peer(&["approve", &given]).stdout(Stdio::piped()).spawn().unwrap()).collect();
    let said: Vec<String> = peers
        .into_iter()
        .map(|peer| String::from_utf8(peer.wait_with_output().unwrap().stdout).unwrap())
        .collect();
    assert_eq!(said.iter().filter(|line| line.starts_with("Approved(")).count(), 1, "{said:?}");
    assert_eq!(said.iter().filter(|line| line.starts_with("Wrong")).count(), 3, "{said:?}");
}

#[tokio::test]
async fn wrong_codes_of_several_processes_add_up() {
    let home = Home::new();
    let store = home.store().await;
    let peers: Vec<_> =
        (0..6).map(|_| home.peer(&["approve", "AAAAAAAA"]).stdout(Stdio::piped()).spawn().unwrap()).collect();
    let mut wrong = 0;
    for peer in peers {
        let said = String::from_utf8(peer.wait_with_output().unwrap().stdout).unwrap();
        wrong += usize::from(said.starts_with("Wrong"));
    }
    assert_eq!(wrong, 4);
    assert!(matches!(request(&store, "7", 1).await, CodeResponse::Locked { .. }));
}
