//! What commands in a jail may try on the hermes that looks after it.

use std::fs;

use hermes_exec::{Reset, State};
use hermes_types::BackendName;

use crate::session::{Ground, guest, lives, socket, text};

#[tokio::test]
async fn a_jail_cannot_say_what_is_known_about_it() {
    let ground = Ground::new(BackendName::Sandbox);
    let s = ground.open("s").await;
    // Names a process to be killed and a directory to be removed with the place.
    let victim = ground.folder.join("victim");
    fs::create_dir(&victim).unwrap();
    let record = ground.folder.join("run").join(s.plan.name()).join("place.json");
    let forged = fs::read_to_string(&record).unwrap().replace(
        &ground.kept().join("sandbox").join(s.plan.name()).display().to_string(),
        &victim.display().to_string(),
    );
    let written =
        s.run(&format!("cat >/sandbox/run/place.json <<'X'\n{forged}\nX\nls -A /sandbox/run")).await;
    assert_eq!(text(&written), "place.json\nsock\n");
    let found = ground.places().find("s").await.unwrap();
    let [found] = found.as_slice() else { panic!("{found:?}") };
    assert!(found.record.files.as_ref().unwrap().starts_with(ground.kept()), "{found:?}");
    found.remove().await.unwrap();
    assert!(victim.exists());
    ground.leave().await;
}

#[tokio::test]
async fn a_jail_cannot_lead_hermes_to_the_guest_of_another_place() {
    let ground = Ground::new(BackendName::Sandbox);
    let (s, other) = (ground.open("s").await, ground.open("other").await);
    other.out("export SECRET=1").await;
    let target = socket(&ground, &other.plan);
    let (first, second) = (guest(&ground, &s.plan).await, guest(&ground, &other.plan).await);
    s.out(&format!("ln -sf {} /sandbox/run/sock", target.display())).await;
    assert!(fs::symlink_metadata(socket(&ground, &s.plan)).unwrap().is_symlink());
    drop(s);
    let mut found = ground.places().find("s").await.unwrap();
    assert_eq!(found.pop().unwrap().state, State::Silent);
    let s = ground.open("s").await;
    let outcome = s.run("echo [$SECRET]").await;
    assert_eq!((text(&outcome).as_str(), outcome.reset), ("[]\n", Reset::Yes));
    assert!(!lives(first) && lives(second));
    ground.leave().await;
}

#[tokio::test]
async fn a_jail_cannot_keep_other_places_from_being_made() {
    let ground = Ground::new(BackendName::Sandbox);
    let s = ground.open("s").await;
    s.out("mkdir -p /sandbox/run/locked/inner; chmod 0 /sandbox/run/locked").await;
    crate::session::kill(guest(&ground, &s.plan).await).await;
    ground.places().sweep().await.unwrap();
    let seen = s.run("echo again").await;
    assert_eq!((text(&seen).as_str(), seen.reset), ("again\n", Reset::Yes));
    assert_eq!(ground.open("other").await.out("echo fine").await, "fine\n");
    ground.leave().await;
}
