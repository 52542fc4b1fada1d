//! Unusable files lead to a typed error and stay unchanged.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;

use hermes_store::{Error, FILE_NAME, MessageFilter, SearchQuery, Seq, Store, Viewer};

use crate::{Home, assistant, at, message_step, session, user};

#[tokio::test]
async fn a_foreign_file_is_left_alone() {
    type Case = (&'static str, fn(&Path), fn(&Error) -> bool);
    let cases: [Case; 5] = [
        (
            "text",
            |path| fs::write(path, "hello, this is a text file\n".repeat(40)).unwrap(),
            |error| matches!(error, Error::NotADatabase { .. }),
        ),
        ("nothing", |path| fs::write(path, "").unwrap(), |error| matches!(error, Error::NotADatabase { .. })),
        (
            "a directory",
            |path| fs::create_dir(path).unwrap(),
            |error| matches!(error, Error::Forbidden { .. }),
        ),
        (
            "another program's",
            |path| {
                let connection = rusqlite::Connection::open(path).unwrap();
                connection
                    .execute_batch("CREATE TABLE sessions (id TEXT); PRAGMA user_version = 16;")
                    .unwrap();
            },
            |error| matches!(error, Error::Foreign { .. }),
        ),
        (
            "a dangling link",
            |path| symlink("/nowhere/at/all", path).unwrap(),
            |error| matches!(error, Error::Forbidden { .. }),
        ),
    ];
    for (name, make, is_expected) in cases {
        let home = Home::new();
        make(&home.file());
        let before = fs::read(home.file()).ok();
        let refused = Store::open(home.file()).await.map(drop);
        assert!(refused.as_ref().is_err_and(is_expected), "{name}: {refused:?}");
        assert!(refused.unwrap_err().hint().is_some(), "{name}");
        assert_eq!(fs::read(home.file()).ok(), before, "{name}");
        let names: Vec<_> =
            fs::read_dir(home.folder.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
        assert_eq!(names, [FILE_NAME], "{name}");
    }
}

#[tokio::test]
async fn a_missing_directory_is_not_created() {
    let home = Home::new();
    let path = home.folder.path().join("not/here").join(FILE_NAME);
    let refused = Store::open(&path).await.map(drop);
    assert!(matches!(refused, Err(Error::NoDirectory { .. })), "{refused:?}");
    assert!(Store::open_existing(&path).await.unwrap().is_none());
    assert!(Store::open_existing(home.file()).await.unwrap().is_none());
    assert_eq!(fs::read_dir(home.folder.path()).unwrap().count(), 0);
}

/// Runs shell commands and then the peer in a mount namespace.
#[expect(clippy::disallowed_methods, reason = "a file system of its own needs another process")]
fn in_own_mounts(script: &str, file: &Path, what: &str) -> String {
    let output = Command::new("unshare")
        .args(["--user", "--map-root-user", "--mount", "sh", "-ec"])
        .arg(format!("{script}\nexec \"$PEER\" \"$FILE\" {what}"))
        .env("PEER", env!("CARGO_BIN_EXE_store-peer"))
        .env("FILE", file)
        .env("FOLDER", file.parent().unwrap())
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[tokio::test]
async fn a_full_disk_loses_nothing_and_writing_resumes_after_space_is_freed() {
    let home = Home::new();
    let said = in_own_mounts("mount -t tmpfs -o size=3m none \"$FOLDER\"", &home.file(), "fill");
    let lines: Vec<&str> = said.lines().collect();
    let [full, there, second, after, goes_on, check, names] = lines.as_slice() else { panic!("{said}") };
    assert!(full.starts_with("DiskFull"), "{full}");
    assert_eq!(*there, "complete");
    assert!(second.starts_with("Err(DiskFull"), "creating a database must fail: {second}");
    assert_eq!((*after, *goes_on, *check), ("Ok(())", "resumed", "ok"));
    assert_eq!(*names, "[]", "the failed database left files");
}

#[tokio::test]
async fn a_read_only_file_system_has_its_own_error() {
    let home = Home::new();
    session(&home.store().await).await;
    let said = in_own_mounts(
        "mount --bind \"$FOLDER\" \"$FOLDER\"; mount -o remount,ro,bind \"$FOLDER\"",
        &home.file(),
        "open",
    );
    assert!(said.starts_with("ReadOnly"), "{said}");
    fs::remove_file(home.file()).unwrap();
    let said = in_own_mounts(
        "mount --bind \"$FOLDER\" \"$FOLDER\"; mount -o remount,ro,bind \"$FOLDER\"",
        &home.file(),
        "open",
    );
    assert!(said.starts_with("ReadOnly"), "{said}");
}

#[tokio::test]
#[expect(clippy::disallowed_methods, reason = "another user is another process")]
async fn a_file_without_permission_is_forbidden() {
    let home = Home::new();
    session(&home.store().await).await;
    fs::set_permissions(home.file(), fs::Permissions::from_mode(0o000)).unwrap();
    // In a user namespace without mapped users root has no special rights.
    let mut command = Command::new("unshare");
    command.arg("--user").arg(env!("CARGO_BIN_EXE_store-peer")).arg(home.file()).arg("open");
    let said = String::from_utf8(command.output().unwrap().stdout).unwrap();
    assert!(said.starts_with("Forbidden"), "{said}");
}

#[tokio::test]
async fn a_flipped_byte_is_an_error_or_has_no_effect() {
    let home = Home::new();
    let store = home.store().await;
    let id = session(&store).await;
    for number in 0..60 {
        let text = format!("message {number} about 数据库 and {}", "indexes that grow ".repeat(number));
        store.append_step(&id, message_step(user(&text), at(1))).await.unwrap();
        store.append_step(&id, message_step(assistant(&text), at(1))).await.unwrap();
    }
    for _ in 0..3 {
        store.undo(&id).await.unwrap();
    }
    let expected = (
        store.history(&id).await.unwrap(),
        store.messages(&id, MessageFilter::All, Seq::START, 1_000).await.unwrap(),
        store.session_prompt(&id).await.unwrap(),
    );
    store.close().await;
    let good = fs::read(home.file()).unwrap();
    let mut seed = 0x2545_f491_4f6c_dd1d_u64;
    let mut next = || {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        usize::try_from(seed >> 1).unwrap()
    };
    let (mut refused, mut right) = (0, 0);
    for round in 0..300 {
        let mut bytes = good.clone();
        for _ in 0..=next() % 4 {
            let (at, width) = (next() % bytes.len(), next() % 16);
            bytes.iter_mut().skip(at).take(width + 1).for_each(|byte| *byte = (next() % 256) as u8);
        }
        if round % 10 == 0 {
            bytes.truncate(next() % bytes.len());
        }
        let home = Home::new();
        fs::write(home.file(), &bytes).unwrap();
        let outcome: Result<_, Error> = async {
            let store = Store::open(home.file()).await?;
            let found = (
                store.history(&id).await?,
                store.messages(&id, MessageFilter::All, Seq::START, 1_000).await?,
                store.session_prompt(&id).await?,
            );
            // The search may find less or fail, but must return.
            for text in ["indexes", "数据库", "🚀"] {
                let search = SearchQuery { text: text.to_owned(), limit: 50, ..SearchQuery::default() };
                drop(store.search(&Viewer::Owner, search).await);
            }
            drop(store.append_step(&id, message_step(user("more"), at(2))).await);
            drop(store.remove_session(&id).await);
            Ok(found)
        }
        .await;
        match outcome {
            Err(_error) => refused += 1,
            Ok(found) => {
                assert!(found == expected, "round {round}: the messages differ");
                right += 1;
            }
        }
    }
    assert!(refused > 30 && right > 30, "{refused} refused, {right} right");
}

#[tokio::test]
async fn a_missing_message_is_an_error() {
    let home = Home::new();
    let store = home.store().await;
    let id = session(&store).await;
    for text in ["one", "two", "three"] {
        store.append_step(&id, message_step(user(text), at(1))).await.unwrap();
    }
    let other = rusqlite::Connection::open(home.file()).unwrap();
    other.execute("DELETE FROM messages WHERE seq = 2", []).unwrap();
    let refused = store.history(&id).await;
    assert!(matches!(refused, Err(Error::Corrupt { .. })), "{refused:?}");
}

#[tokio::test]
async fn damage_found_on_opening_is_described() {
    let home = Home::new();
    let store = home.store().await;
    session(&store).await;
    store.close().await;
    let mut bytes = fs::read(home.file()).unwrap();
    // The root page of the schema, after the file header.
    bytes.iter_mut().skip(100).take(60).for_each(|byte| *byte = 0xee);
    fs::write(home.file(), &bytes).unwrap();
    let refused = Store::open(home.file()).await.map(drop);
    assert!(matches!(refused, Err(Error::Corrupt { .. })), "{refused:?}");
    assert_eq!(fs::read(home.file()).unwrap(), bytes);
}
