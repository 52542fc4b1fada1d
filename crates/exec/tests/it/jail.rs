//! Attacks by commands in a confined place on the hermes process that manages it.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use hermes_exec::{Error, Installation, PlaceState, Places, ResolvedPlace, StateLoss};
use hermes_types::SessionKey;

use crate::session::{TestEnv, WAIT_TIMEOUT, guest, is_alive, socket, text};

pub(crate) async fn a_place_cannot_forge_its_record(test_env: &TestEnv) {
    let s = test_env.open("s").await;
    // A forged record that names a process to kill and a directory to remove.
    let victim = test_env.folder.join("victim");
    fs::create_dir(&victim).unwrap();
    let record = test_env.folder.join("run").join(s.plan.name()).join("place.json");
    let forged = fs::read_to_string(&record).unwrap().replace(
        &test_env.places().kept_dirs[0].join(s.plan.name()).display().to_string(),
        &victim.display().to_string(),
    );
    let written = s
        .run(&format!("cat >{run}/place.json <<'X'\n{forged}\nX\nls -A {run}", run = test_env.inside()))
        .await;
    assert_eq!(text(&written), "place.json\nsock\nwork\n");
    let found = test_env.places().find("s").await.unwrap();
    let [found] = found.as_slice() else { panic!("{found:?}") };
    assert!(found.record.files.as_ref().unwrap().starts_with(test_env.persistent_dir()), "{found:?}");
    found.remove().await.unwrap();
    assert!(victim.exists());
}

pub(crate) async fn a_place_cannot_redirect_hermes_to_another_guest(test_env: &TestEnv) {
    let (s, other) = (test_env.open("s").await, test_env.open("other").await);
    other.out("export SECRET=1").await;
    let target = socket(test_env, &other.plan);
    let (first, second) = (guest(test_env, &s.plan).await, guest(test_env, &other.plan).await);
    s.out(&format!("ln -sf {} {}/sock", target.display(), test_env.inside())).await;
    assert!(fs::symlink_metadata(socket(test_env, &s.plan)).unwrap().is_symlink());
    drop(s);
    let mut found = test_env.places().find("s").await.unwrap();
    assert_eq!(found.pop().unwrap().state, PlaceState::Unresponsive);
    let s = test_env.open("s").await;
    let outcome = s.run("echo [$SECRET]").await;
    assert_eq!((text(&outcome).as_str(), outcome.state_loss), ("[]\n", StateLoss::Yes));
    assert!(!is_alive(first) && is_alive(second));
}

pub(crate) async fn a_place_cannot_prevent_the_creation_of_others(test_env: &TestEnv) {
    let s = test_env.open("s").await;
    s.out(&format!("cd {}; mkdir -p locked/inner; chmod 0 locked", test_env.inside())).await;
    crate::session::kill(guest(test_env, &s.plan).await).await;
    test_env.places().remove_stale().await.unwrap();
    let seen = s.run("echo again").await;
    assert_eq!((text(&seen).as_str(), seen.state_loss), ("again\n", StateLoss::Yes));
    assert_eq!(test_env.open("other").await.out("echo fine").await, "fine\n");
}

pub(crate) async fn a_place_that_hides_its_socket_is_listed_and_removed(test_env: &TestEnv) {
    let s = test_env.open("s").await;
    let hidden = guest(test_env, &s.plan).await;
    s.out(&format!("rm {}/sock; (trap '' TERM; sleep 1000) >/dev/null 2>&1 &", test_env.inside())).await;
    drop(s);
    let found = test_env.places().list().await.unwrap();
    assert_eq!(found.iter().map(|found| found.state).collect::<Vec<_>>(), [PlaceState::Unresponsive]);
    test_env.places().remove_stale().await.unwrap();
    assert!(!is_alive(hidden));
}

pub(crate) async fn a_deep_or_unreadable_tree_of_a_place_is_removed(test_env: &TestEnv) {
    let s = test_env.open("s").await;
    let victim = test_env.folder.join("victim");
    fs::create_dir(&victim).unwrap();
    fs::set_permissions(&victim, PermissionsExt::from_mode(0o755)).unwrap();
    let dig = "import os\nos.mkdir('moved-0'); os.symlink(VICTIM, 'moved-1'); open('moved-2', 'w')\n\
               for _ in range(1100):\n os.mkdir('d' * 50); os.chdir('d' * 50)\n\
               os.symlink(VICTIM, 'link'); os.mkdir('inner'); os.mkdir('inner/most')\n\
               os.chmod('inner', 0); os.chmod('.', 0)";
    let dig = dig.replace("VICTIM", &format!("'{}'", victim.display()));
    s.out(&format!("exec python3 -c \"{dig}\"")).await;
    let found = test_env.places().find("s").await.unwrap();
    let [found] = found.as_slice() else { panic!("{found:?}") };
    found.remove().await.unwrap();
    assert_eq!(fs::read_dir(&test_env.places().kept_dirs[0]).unwrap().count(), 0);
    assert_eq!(fs::metadata(&victim).unwrap().permissions().mode() & 0o777, 0o755);
}

pub(crate) async fn a_place_cannot_redirect_its_proxy_to_another_guest(test_env: &TestEnv) {
    let (s, other) = (test_env.open("s").await, test_env.open("other").await);
    let target = socket(test_env, &other.plan);
    s.out(&format!("ln -sf {} {}/sock", target.display(), test_env.inside())).await;
    other.background("sleep 1000").await;
    let served = tokio::time::timeout(
        WAIT_TIMEOUT,
        hermes_exec::proxy::serve_while_running(s.plan.run_dir(), &s.plan.name()),
    )
    .await;
    assert!(matches!(served, Ok(Err(_))), "{served:?}");
    assert_eq!(other.run(": </dev/tcp/127.0.0.1/13128").await.code, 1);
}

pub(crate) async fn a_place_of_another_run_directory_is_not_taken_over(test_env: &TestEnv) {
    let s = test_env.open("s").await;
    s.out("echo x >kept").await;
    let elsewhere = Places { run_dir: test_env.folder.join("other"), ..test_env.places() };
    let found = elsewhere.find("s").await.unwrap();
    let [found] = found.as_slice() else { panic!("{found:?}") };
    assert_eq!(found.state, PlaceState::OtherRunDir);
    let host = Installation { run_dir: test_env.folder.join("other"), ..test_env.host() };
    let refused = ResolvedPlace::new(host, test_env.spec(), SessionKey::new("s")).unwrap().open().await;
    assert!(matches!(refused, Err(Error::InUseElsewhere { .. })), "{refused:?}");
    assert_eq!(s.out("cat kept").await, "x\n");
    let alive = guest(test_env, &s.plan).await;
    found.remove().await.unwrap();
    assert!(!is_alive(alive) && !test_env.places().kept_dirs[0].join(s.plan.name()).exists());
}

pub(crate) async fn a_place_cannot_fill_the_disk_of_the_place_directories(test_env: &TestEnv) {
    let s = test_env.open("s").await;
    s.out(&format!("echo x >{}/mine", test_env.inside())).await;
    let kept = test_env.places().kept_dirs[0].join(s.plan.name()).join("run/mine");
    assert_eq!(fs::read_to_string(kept).unwrap(), "x\n");
    let run_dir = test_env.folder.join("run").join(s.plan.name());
    let entries: Vec<_> = fs::read_dir(&run_dir).unwrap().map(|entry| entry.unwrap()).collect();
    assert!(entries.iter().all(|entry| !entry.file_type().unwrap().is_dir()), "{entries:?}");
}
