//! Warm containers and orphaned containers.

use std::collections::HashMap;
use std::fs;
use std::time::SystemTime;

use bollard::models::ContainerCreateBody;
use bollard::query_parameters::{CreateContainerOptionsBuilder, RemoveContainerOptionsBuilder};
use hermes_exec::StateLoss;

use crate::session::{TestEnv, text};

pub(crate) async fn a_new_session_gets_an_unused_warm_container(test_env: &TestEnv) {
    let plan = test_env.plan_with("s", |docker| docker.warm_count = 2);
    // Concurrent callers create no more than the configured number.
    let (one, other) = tokio::join!(plan.fill_warm_pool(), plan.fill_warm_pool());
    one.and(other).unwrap();
    let warm = test_env.containers().await;
    assert_eq!(warm.len(), 2);
    let listed = test_env.places().list().await.unwrap();
    assert!(listed.iter().all(|found| found.record.is_warm()), "{listed:?}");
    let mut sessions = Vec::new();
    for key in ["a", "b"] {
        let s = test_env.open_with(key, |docker| docker.warm_count = 2).await;
        let first = s.run(&format!("ls /workspace; echo {key} >/workspace/mine; export K={key}")).await;
        assert_eq!((text(&first).as_str(), first.state_loss), ("", StateLoss::No));
        sessions.push(s);
    }
    assert_eq!(test_env.containers().await, warm);
    // Afterwards the place behaves like any other place of the session.
    for (s, key) in sessions.iter().zip(["a", "b"]) {
        let kept = test_env.places().kept_dirs[0].join(s.plan.name());
        assert_eq!(fs::read_to_string(kept.join("workspace/mine")).unwrap(), format!("{key}\n"));
        let again = test_env.open_with(key, |docker| docker.warm_count = 2).await;
        assert_eq!(again.out("echo $K; cat /workspace/mine").await, format!("{key}\n{key}\n"));
        let found = test_env.places().find(&s.plan.name()).await.unwrap();
        assert_eq!(found[0].record.session, key);
    }
    // Without a warm container, a place is created as usual. A recreated place keeps its files.
    let third = test_env.open_with("c", |docker| docker.warm_count = 2).await;
    assert_eq!(test_env.containers().await.len(), 3);
    third.plan.fill_warm_pool().await.unwrap();
    assert_eq!(test_env.containers().await.len(), 5);
    let found = test_env.places().find(&sessions[0].plan.name()).await.unwrap();
    found[0].end().await.unwrap();
    assert_eq!(test_env.containers().await.len(), 4);
    let woken = sessions[0].run("cat /workspace/mine").await;
    assert_eq!((text(&woken).as_str(), woken.state_loss), ("a\n", StateLoss::Yes));
}

pub(crate) async fn a_warm_container_with_other_settings_or_prior_use_is_not_handed_over(test_env: &TestEnv) {
    let plan = test_env.plan_with("s", |docker| docker.warm_count = 1);
    plan.fill_warm_pool().await.unwrap();
    let warm = test_env.containers().await;
    let other = test_env
        .open_with("s", |docker| {
            docker.warm_count = 1;
            docker.limits.processes = Some(500);
        })
        .await;
    assert_eq!(other.out("echo fine").await, "fine\n");
    assert!(test_env.containers().await.iter().any(|name| !warm.contains(name)));
    // A client that knows the session key may have used it.
    let session = test_env.places().list().await.unwrap();
    let session = session.into_iter().find(|found| found.record.is_warm()).unwrap().record.session;
    let intruder = test_env.open_with(&session, |docker| docker.warm_count = 1).await;
    intruder.out("echo trap >/root/.bashrc").await;
    let s = test_env.open_with("t", |docker| docker.warm_count = 1).await;
    assert_eq!(s.out("ls -A /root").await, "");
}

pub(crate) async fn only_orphaned_containers_are_removed(test_env: &TestEnv) {
    let api = test_env.peer.as_ref().unwrap().engine().await.api;
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
    let install = test_env.host().install_id;
    let unique = format!("{:x}", std::process::id());
    let create = async |name: &str, install: &str, made: u64| {
        let labels = [
            ("hermes-agent", "1"),
            ("hermes-install", install),
            ("hermes-place", name),
            ("hermes-created", &made.to_string()),
        ];
        let body = ContainerCreateBody {
            image: Some(test_env.peer.clone().unwrap().image),
            labels: Some(HashMap::from(labels.map(|(name, value)| (name.to_owned(), value.to_owned())))),
            cmd: Some(vec!["true".to_owned()]),
            ..ContainerCreateBody::default()
        };
        let options = CreateContainerOptionsBuilder::new().name(name).build();
        api.create_container(Some(options), body).await.unwrap();
        name.to_owned()
    };
    let orphan = create(&format!("hermes-orphan-{unique}"), &install, now - 1000).await;
    let young = create(&format!("hermes-young-{unique}"), &install, now).await;
    let foreign = create(&format!("hermes-foreign-{unique}"), "another", now - 1000).await;
    let s = test_env.open_with("s", |docker| docker.remove_orphans = true).await;
    assert_eq!(s.out("echo fine").await, "fine\n");
    assert!(api.inspect_container(&orphan, None).await.is_err());
    for kept in [young, foreign] {
        let force = RemoveContainerOptionsBuilder::new().force(true).build();
        api.remove_container(&kept, Some(force)).await.unwrap();
    }
}
