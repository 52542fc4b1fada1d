//! A Docker engine that remaps user ids: root inside is an unprivileged user outside.

use std::fs;
use std::os::unix::fs::MetadataExt;

use hermes_exec::backend::docker::RunAs;
use hermes_exec::backend::docker::engine_error::EngineError;
use hermes_exec::backend::docker::run_args::RunArgs;
use hermes_exec::{BindMount, Error, StateLoss};
use hermes_types::MountAccess;

use crate::peers;
use crate::private::{Kind, Private};
use crate::session::{TestEnv, text};

/// Uses the id range of this user.
const REMAPPED: &[&str] = &["--userns-remap=hermes-peer"];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_engine_with_remapped_users_behaves_like_any_other() {
    let engine = Private::new(Kind::Docker(REMAPPED)).await;
    let test_env = TestEnv::of(engine.peer.clone());
    let s = test_env.open("s").await;
    let said = s.out("id -u; cd ~; echo x >file; cd /workspace; mkdir a; echo y >a/file; cat ~/file a/file; export A=1").await;
    assert_eq!(said, "0\nx\ny\n");
    assert_eq!(s.out("echo $A $PWD").await, "1 /workspace\n");
    // Root in the container is the first user of the range on the host.
    let kept = test_env.places().kept_dirs[0].join(s.plan.name());
    let owner = fs::metadata(kept.join("workspace/a/file")).unwrap().uid();
    let first = first_remapped_uid();
    assert_eq!(owner, first);
    // The files outlive the container and are removed with the place.
    let found = test_env.places().list().await.unwrap();
    found[0].end().await.unwrap();
    let again = s.run("cat ~/file a/file; echo z >>a/file && cat a/file").await;
    assert_eq!((text(&again).as_str(), again.state_loss), ("x\ny\ny\nz\n", StateLoss::Yes));
    s.sandbox.remove().await.unwrap();
    assert!(!kept.exists());
    test_env.remove_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_mount_keeps_its_owner_on_an_engine_with_remapped_users() {
    let engine = Private::new(Kind::Docker(REMAPPED)).await;
    let test_env = TestEnv::of(engine.peer.clone());
    let open = test_env.folder.join("work");
    fs::set_permissions(&open, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    fs::write(open.join("file"), "shown").unwrap();
    let bind = BindMount { source: open.clone(), target: "/data".into(), access: MountAccess::ReadWrite };
    let s = test_env.open_with("s", |docker| docker.binds = vec![bind]).await;
    assert_eq!(s.out("cat /data/file; stat -c %u /data/file").await, "shown65534\n");
    assert_ne!(s.run("echo x >/data/new").await.code, 0);
    assert!(!open.join("new").exists());
    test_env.remove_all().await;
    let test_env = TestEnv::of(engine.peer.clone());
    let s = test_env.open_with("s", |docker| docker.files = None).await;
    assert_eq!(s.out("echo x >~/file; echo y >file; cat ~/file file; pwd").await, "x\ny\n/workspace\n");
    test_env.remove_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn running_as_the_host_user_is_refused_on_an_engine_with_remapped_users() {
    let engine = Private::new(Kind::Docker(REMAPPED)).await;
    let test_env = TestEnv::of(engine.peer.clone());
    let refused = test_env.plan_with("s", |docker| docker.user = RunAs::Host).open().await.unwrap_err();
    assert!(matches!(refused, Error::Engine(EngineError::UsersRemapped { .. })), "{refused:?}");
    test_env.assert_nothing_left().await;
    let s = test_env
        .open_with("s", |docker| {
            docker.user = RunAs::Host;
            *docker.run_args = RunArgs::parse(&["--userns=host".to_owned()]).unwrap();
        })
        .await;
    s.out("echo x >file").await;
    let kept = test_env.places().kept_dirs[0].join(s.plan.name());
    assert_eq!(fs::metadata(kept.join("workspace/file")).unwrap().uid(), rustix::process::getuid().as_raw());
    test_env.remove_all().await;
}

/// The host user id that is root in containers.
fn first_remapped_uid() -> u32 {
    let peers = peers::read();
    let user = peers["user"]["name"].as_str().unwrap();
    let ranges = fs::read_to_string("/etc/subuid").unwrap();
    let range = ranges.lines().find_map(|line| line.strip_prefix(user)?.strip_prefix(':')).unwrap();
    range.split(':').next().unwrap().parse().unwrap()
}
