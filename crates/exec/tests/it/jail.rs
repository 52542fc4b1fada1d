//! What commands in a confined place may try on the hermes that looks after it.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use hermes_exec::{Error, Installation, PlaceState, Places, ResolvedPlace, StateLoss};
use hermes_types::SessionKey;

use crate::session::{Ground, PATIENCE, guest, lives, socket, text};

pub(crate) async fn a_place_cannot_say_what_is_known_about_it(ground: &Ground) {
    let s = ground.open("s").await;
    // Names a process to be killed and a directory to be removed with the place.
    let victim = ground.folder.join("victim");
    fs::create_dir(&victim).unwrap();
    let record = ground.folder.join("run").join(s.plan.name()).join("place.json");
    let forged = fs::read_to_string(&record).unwrap().replace(
        &ground.places().kept_dirs[0].join(s.plan.name()).display().to_string(),
        &victim.display().to_string(),
    );
    let written =
        s.run(&format!("cat >{run}/place.json <<'X'\n{forged}\nX\nls -A {run}", run = ground.inside())).await;
    assert_eq!(text(&written), "place.json\nsock\n");
    let found = ground.places().find("s").await.unwrap();
    let [found] = found.as_slice() else { panic!("{found:?}") };
    assert!(found.record.files.as_ref().unwrap().starts_with(ground.kept()), "{found:?}");
    found.remove().await.unwrap();
    assert!(victim.exists());
}

pub(crate) async fn a_place_cannot_lead_hermes_to_the_guest_of_another_place(ground: &Ground) {
    let (s, other) = (ground.open("s").await, ground.open("other").await);
    other.out("export SECRET=1").await;
    let target = socket(ground, &other.plan);
    let (first, second) = (guest(ground, &s.plan).await, guest(ground, &other.plan).await);
    s.out(&format!("ln -sf {} {}/sock", target.display(), ground.inside())).await;
    assert!(fs::symlink_metadata(socket(ground, &s.plan)).unwrap().is_symlink());
    drop(s);
    let mut found = ground.places().find("s").await.unwrap();
    assert_eq!(found.pop().unwrap().state, PlaceState::Unresponsive);
    let s = ground.open("s").await;
    let outcome = s.run("echo [$SECRET]").await;
    assert_eq!((text(&outcome).as_str(), outcome.state_loss), ("[]\n", StateLoss::Yes));
    assert!(!lives(first) && lives(second));
}

pub(crate) async fn a_place_cannot_keep_other_places_from_being_made(ground: &Ground) {
    let s = ground.open("s").await;
    s.out(&format!("cd {}; mkdir -p locked/inner; chmod 0 locked", ground.inside())).await;
    crate::session::kill(guest(ground, &s.plan).await).await;
    ground.places().remove_stale().await.unwrap();
    let seen = s.run("echo again").await;
    assert_eq!((text(&seen).as_str(), seen.state_loss), ("again\n", StateLoss::Yes));
    assert_eq!(ground.open("other").await.out("echo fine").await, "fine\n");
}

pub(crate) async fn a_place_that_hides_its_socket_is_seen_and_swept_away(ground: &Ground) {
    let s = ground.open("s").await;
    let hidden = guest(ground, &s.plan).await;
    s.out(&format!("rm {}/sock; (trap '' TERM; sleep 1000) >/dev/null 2>&1 &", ground.inside())).await;
    drop(s);
    let found = ground.places().list().await.unwrap();
    assert_eq!(found.iter().map(|found| found.state).collect::<Vec<_>>(), [PlaceState::Unresponsive]);
    ground.places().remove_stale().await.unwrap();
    assert!(!lives(hidden));
}

pub(crate) async fn no_tree_of_a_place_is_too_deep_or_too_closed_to_be_removed(ground: &Ground) {
    let s = ground.open("s").await;
    let victim = ground.folder.join("victim");
    fs::create_dir(&victim).unwrap();
    fs::set_permissions(&victim, PermissionsExt::from_mode(0o755)).unwrap();
    let dig = "import os\nos.mkdir('moved-0'); os.symlink(VICTIM, 'moved-1'); open('moved-2', 'w')\n\
               for _ in range(1100):\n os.mkdir('d' * 50); os.chdir('d' * 50)\n\
               os.symlink(VICTIM, 'link'); os.mkdir('inner'); os.mkdir('inner/most')\n\
               os.chmod('inner', 0); os.chmod('.', 0)";
    let dig = dig.replace("VICTIM", &format!("'{}'", victim.display()));
    s.out(&format!("exec python3 -c \"{dig}\"")).await;
    let found = ground.places().find("s").await.unwrap();
    let [found] = found.as_slice() else { panic!("{found:?}") };
    found.remove().await.unwrap();
    assert_eq!(fs::read_dir(&ground.places().kept_dirs[0]).unwrap().count(), 0);
    assert_eq!(fs::metadata(&victim).unwrap().permissions().mode() & 0o777, 0o755);
}

pub(crate) async fn a_place_cannot_lead_what_serves_its_proxy_to_the_guest_of_another_place(ground: &Ground) {
    let (s, other) = (ground.open("s").await, ground.open("other").await);
    let target = socket(ground, &other.plan);
    s.out(&format!("ln -sf {} {}/sock", target.display(), ground.inside())).await;
    other.background("sleep 1000").await;
    let kept = tokio::time::timeout(
        PATIENCE,
        hermes_exec::proxy::serve_while_running(s.plan.run_dir(), &s.plan.name()),
    )
    .await;
    assert!(matches!(kept, Ok(Err(_))), "{kept:?}");
    assert_eq!(other.run(": </dev/tcp/127.0.0.1/13128").await.code, 1);
}

pub(crate) async fn a_place_of_another_run_directory_keeps_its_files_and_is_nobody_elses(ground: &Ground) {
    let s = ground.open("s").await;
    s.out("echo x >kept").await;
    let elsewhere = Places { run_dir: ground.folder.join("other"), ..ground.places() };
    let found = elsewhere.find("s").await.unwrap();
    let [found] = found.as_slice() else { panic!("{found:?}") };
    assert_eq!(found.state, PlaceState::OtherRunDir);
    let host = Installation { run_dir: ground.folder.join("other"), ..ground.host() };
    let refused = ResolvedPlace::new(host, ground.spec(), SessionKey::new("s")).open().await;
    assert!(matches!(refused, Err(Error::InUseElsewhere { .. })), "{refused:?}");
    assert_eq!(s.out("cat kept").await, "x\n");
    let alive = guest(ground, &s.plan).await;
    found.remove().await.unwrap();
    assert!(!lives(alive) && !ground.places().kept_dirs[0].join(s.plan.name()).exists());
}

pub(crate) async fn what_a_place_writes_into_its_run_directory_is_not_where_the_rooms_are(ground: &Ground) {
    let s = ground.open("s").await;
    s.out(&format!("echo x >{}/mine", ground.inside())).await;
    let kept = ground.places().kept_dirs[0].join(s.plan.name()).join("run/mine");
    assert_eq!(fs::read_to_string(kept).unwrap(), "x\n");
    let room = ground.folder.join("run").join(s.plan.name());
    let in_room: Vec<_> = fs::read_dir(&room).unwrap().map(|entry| entry.unwrap()).collect();
    assert!(in_room.iter().all(|entry| !entry.file_type().unwrap().is_dir()), "{in_room:?}");
}
