//! Strangers, codes and approvals.

use std::process::Stdio;

use hermes_store::{Approving, Asked, Paired, Store};

use crate::{Home, at};

async fn ask(store: &Store, user: &str, seconds: u64) -> Asked {
    store.ask_in("discord", user, "a name", at(seconds)).await.unwrap()
}

async fn code(store: &Store, user: &str, seconds: u64) -> String {
    let asked = ask(store, user, seconds).await;
    let Asked::Code { code, .. } = &asked else { unreachable!("{user} at {seconds}: {asked:?}") };
    code.clone()
}

async fn approve(store: &Store, code: &str, seconds: u64) -> Approving {
    store.approve("discord", code, at(seconds)).await.unwrap()
}

fn paired(user: &str, seconds: u64) -> Paired {
    Paired {
        platform: "discord".to_owned(),
        user: user.to_owned(),
        name: "a name".to_owned(),
        approved: at(seconds),
    }
}

#[tokio::test]
async fn a_code_lets_its_stranger_in_once() {
    let home = Home::new();
    let store = home.store().await;
    let given = code(&store, "7", 0).await;
    assert!(!store.is_paired("discord", "7").await.unwrap());
    let elsewhere = store.approve("telegram", &given, at(1)).await.unwrap();
    assert_eq!(elsewhere, Approving::Wrong { left: 4 });
    let typed = given.to_lowercase();
    assert_eq!(approve(&store, &format!(" {typed} "), 2).await, Approving::In(paired("7", 2)));
    assert_eq!(approve(&store, &given, 3).await, Approving::Wrong { left: 4 });
    assert!(store.is_paired("discord", "7").await.unwrap());
    assert!(!store.is_paired("telegram", "7").await.unwrap());
    assert_eq!(ask(&store, "7", 4).await, Asked::In);
    assert_eq!(store.paired().await.unwrap(), [paired("7", 2)]);
    assert!(store.revoke_pairing("discord", "7").await.unwrap());
    assert!(!store.revoke_pairing("discord", "7").await.unwrap());
    assert!(!store.is_paired("discord", "7").await.unwrap());
    assert_eq!(store.paired().await.unwrap(), []);
}

#[tokio::test]
async fn a_code_is_in_the_file_only_as_a_hash() {
    let home = Home::new();
    let store = home.store().await;
    let given = code(&store, "7", 0).await;
    store.close().await;
    let bytes = std::fs::read(home.file()).unwrap();
    assert!(!bytes.windows(given.len()).any(|window| window == given.as_bytes()));
}

#[tokio::test]
async fn a_code_ends_and_one_is_given_every_ten_minutes() {
    let home = Home::new();
    let store = home.store().await;
    let first = code(&store, "7", 0).await;
    assert_eq!(ask(&store, "7", 599).await, Asked::TooSoon);
    let Asked::Code { code: second, expires } = ask(&store, "7", 600).await else { panic!() };
    assert_eq!(expires, at(3_600), "asking again does not make it last longer");
    assert_eq!(approve(&store, &first, 601).await, Approving::Wrong { left: 4 });
    assert_eq!(store.pending(at(3_599)).await.unwrap().len(), 1);
    assert_eq!(store.pending(at(3_600)).await.unwrap(), []);
    assert_eq!(approve(&store, &second, 3_600).await, Approving::Wrong { left: 3 });
    assert_eq!(ask(&store, "7", 3_601).await, Asked::TooSoon, "others come first");
    let third = code(&store, "7", 4_200).await;
    assert_eq!(approve(&store, &third, 7_799).await, Approving::In(paired("7", 7_799)));
}

#[tokio::test]
async fn three_strangers_do_not_keep_a_fourth_out_for_good() {
    let home = Home::new();
    let store = home.store().await;
    for user in ["1", "2", "3"] {
        code(&store, user, 0).await;
    }
    assert_eq!(ask(&store, "4", 1).await, Asked::Full);
    assert_eq!(ask(&store, "4", 2).await, Asked::TooSoon, "it is said once");
    assert_eq!(store.pending(at(2)).await.unwrap().len(), 3);
    let elsewhere = store.ask_in("telegram", "4", "a name", at(2)).await.unwrap();
    assert!(matches!(elsewhere, Asked::Code { .. }), "platforms do not share: {elsewhere:?}");
    // They ask whenever they may.
    for seconds in (10..3_600).step_by(10) {
        for user in ["1", "2", "3"] {
            ask(&store, user, seconds).await;
        }
    }
    for user in ["1", "2", "3"] {
        assert_eq!(ask(&store, user, 3_600).await, Asked::TooSoon);
    }
    code(&store, "4", 3_601).await;
}

#[tokio::test]
async fn many_strangers_are_not_all_remembered() {
    let home = Home::new();
    let store = home.store().await;
    for user in ["1", "2", "3"] {
        code(&store, user, 0).await;
    }
    let mut told = 0;
    for user in 0..1_010 {
        told += usize::from(ask(&store, &format!("x{user}"), 1).await == Asked::Full);
    }
    assert_eq!(told, 1_000);
}

#[tokio::test]
async fn five_wrong_codes_lock_a_platform_for_an_hour() {
    let home = Home::new();
    let store = home.store().await;
    let given = code(&store, "7", 0).await;
    for left in [4, 3, 2, 1] {
        assert_eq!(approve(&store, "AAAAAAAA", 1).await, Approving::Wrong { left });
    }
    let until = at(3_602);
    assert_eq!(approve(&store, "", 2).await, Approving::Locked { until });
    assert_eq!(approve(&store, &given, 3).await, Approving::Locked { until });
    assert_eq!(ask(&store, "8", 3).await, Asked::Locked { until });
    let elsewhere = store.ask_in("telegram", "8", "a name", at(3)).await.unwrap();
    assert!(matches!(elsewhere, Asked::Code { .. }));
    let later = code(&store, "8", 3_602).await;
    assert_eq!(approve(&store, "AAAAAAAA", 3_603).await, Approving::Wrong { left: 4 });
    assert_eq!(approve(&store, &later, 3_603).await, Approving::In(paired("8", 3_603)));
    assert_eq!(
        approve(&store, "AAAAAAAA", 3_604).await,
        Approving::Wrong { left: 4 },
        "a right one forgives"
    );
}

#[tokio::test]
async fn those_who_wait_can_be_forgotten() {
    let home = Home::new();
    let store = home.store().await;
    let given = code(&store, "7", 0).await;
    store.ask_in("telegram", "8", &"n".repeat(500), at(0)).await.unwrap();
    let waiting = store.pending(at(1)).await.unwrap();
    let names: Vec<_> = waiting.iter().map(|one| (one.platform.as_str(), one.name.len())).collect();
    assert_eq!(names, [("discord", 6), ("telegram", 64)]);
    assert_eq!(store.clear_pending(Some("discord"), at(1)).await.unwrap(), 1);
    assert_eq!(approve(&store, &given, 2).await, Approving::Wrong { left: 4 });
    assert_eq!(store.clear_pending(None, at(1)).await.unwrap(), 1);
    assert_eq!(store.pending(at(1)).await.unwrap(), []);
    code(&store, "7", 2).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_many_who_ask_at_once_three_wait() {
    let home = Home::new();
    let stores = [home.store().await, home.store().await];
    let asking = (0..20).map(|n| {
        let store = stores[n % 2].clone();
        tokio::spawn(async move { ask(&store, &n.to_string(), 0).await })
    });
    let mut given = 0;
    for asked in asking.collect::<Vec<_>>() {
        match asked.await.unwrap() {
            Asked::Code { .. } => given += 1,
            other => assert_eq!(other, Asked::Full),
        }
    }
    assert_eq!(given, 3);
    assert_eq!(stores[0].pending(at(1)).await.unwrap().len(), 3);
}

#[tokio::test]
async fn of_processes_that_approve_one_code_one_does() {
    let home = Home::new();
    let store = home.store().await;
    let given = code(&store, "7", 0).await;
    let peers: Vec<_> =
        (0..4).map(|_| home.peer(&["approve", &given]).stdout(Stdio::piped()).spawn().unwrap()).collect();
    let said: Vec<String> = peers
        .into_iter()
        .map(|peer| String::from_utf8(peer.wait_with_output().unwrap().stdout).unwrap())
        .collect();
    assert_eq!(said.iter().filter(|line| line.starts_with("In(")).count(), 1, "{said:?}");
    assert_eq!(said.iter().filter(|line| line.starts_with("Wrong")).count(), 3, "{said:?}");
}

#[tokio::test]
async fn processes_that_guess_lock_the_platform_together() {
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
    assert!(matches!(ask(&store, "7", 1).await, Asked::Locked { .. }));
}
