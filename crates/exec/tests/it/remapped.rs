//! A Docker that gives its containers other users than those of the machine: root inside is nobody outside.

use std::fs;
use std::os::unix::fs::MetadataExt;

use hermes_exec::backend::docker::RunAs;
use hermes_exec::backend::docker::engine_error::EngineError;
use hermes_exec::backend::docker::run_args::RunArgs;
use hermes_exec::{BindMount, Error, StateLoss, Writable};

use crate::peers;
use crate::private::{Kind, Private};
use crate::session::{Ground, text};

/// Whose range of users it takes.
const REMAPPED: &[&str] = &["--userns-remap=hermes-peer"];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_place_whose_root_is_another_user_outside_is_a_place_like_any_other() {
    let engine = Private::new(Kind::Docker(REMAPPED)).await;
    let ground = Ground::of(engine.peer.clone());
    let s = ground.open("s").await;
    let said = s.out("id -u; cd ~; echo x >file; cd /workspace; mkdir a; echo y >a/file; cat ~/file a/file; export A=1").await;
    assert_eq!(said, "0\nx\ny\n");
    assert_eq!(s.out("echo $A $PWD").await, "1 /workspace\n");
    // Root inside is a user of the range.
    let kept = ground.places().kept_dirs[0].join(s.plan.name());
    let owner = fs::metadata(kept.join("workspace/a/file")).unwrap().uid();
    let first = first_of_range();
    assert_eq!(owner, first);
    // The files outlive the container, and go with the place.
    let found = ground.places().list().await.unwrap();
    found[0].end().await.unwrap();
    let again = s.run("cat ~/file a/file; echo z >>a/file && cat a/file").await;
    assert_eq!((text(&again).as_str(), again.state_loss), ("x\ny\ny\nz\n", StateLoss::Yes));
    s.sandbox.remove().await.unwrap();
    assert!(!kept.exists());
    ground.leave().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_mounted_keeps_its_owner_whom_root_inside_is_not() {
    let engine = Private::new(Kind::Docker(REMAPPED)).await;
    let ground = Ground::of(engine.peer.clone());
    let open = ground.folder.join("work");
    fs::set_permissions(&open, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    fs::write(open.join("file"), "shown").unwrap();
    let bind = BindMount { source: open.clone(), target: "/data".into(), writable: Writable::Yes };
    let s = ground.open_with("s", |docker| docker.binds = vec![bind]).await;
    assert_eq!(s.out("cat /data/file; stat -c %u /data/file").await, "shown65534\n");
    assert_ne!(s.run("echo x >/data/new").await.code, 0);
    assert!(!open.join("new").exists());
    ground.leave().await;
    let ground = Ground::of(engine.peer.clone());
    let s = ground.open_with("s", |docker| docker.files = None).await;
    assert_eq!(s.out("echo x >~/file; echo y >file; cat ~/file file; pwd").await, "x\ny\n/workspace\n");
    ground.leave().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_owners_own_user_is_refused_unless_the_container_has_the_users_of_the_machine() {
    let engine = Private::new(Kind::Docker(REMAPPED)).await;
    let ground = Ground::of(engine.peer.clone());
    let refused = ground.plan_with("s", |docker| docker.user = RunAs::Host).open().await.unwrap_err();
    assert!(matches!(refused, Error::Engine(EngineError::UsersRemapped { .. })), "{refused:?}");
    ground.nothing_is_left().await;
    let s = ground
        .open_with("s", |docker| {
            docker.user = RunAs::Host;
            *docker.run_args = RunArgs::parse(&["--userns=host".to_owned()]).unwrap();
        })
        .await;
    s.out("echo x >file").await;
    let kept = ground.places().kept_dirs[0].join(s.plan.name());
    assert_eq!(fs::metadata(kept.join("workspace/file")).unwrap().uid(), rustix::process::getuid().as_raw());
    ground.leave().await;
}

/// The user that root inside is.
fn first_of_range() -> u32 {
    let peers = peers::read();
    let user = peers["user"]["name"].as_str().unwrap();
    let ranges = fs::read_to_string("/etc/subuid").unwrap();
    let range = ranges.lines().find_map(|line| line.strip_prefix(user)?.strip_prefix(':')).unwrap();
    range.split(':').next().unwrap().parse().unwrap()
}
