//! File requests: read, write, patch, list, search.

use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;

use hermes_guest::client::{Error, FileChunk};
use hermes_guest::protocol::file::{
    ContentDigest, FileEdit, FileError, FileKind, FileRange, FileSearch, JudgedPath, LineRole, Occurrences,
    ParentDirs, Precondition, ReadSummary, SearchHit, SearchMode, SearchSummary, WriteEffect, WriteOptions,
    WriteResult,
};
use hermes_guest::protocol::message::{Rejection, ShellSessionKey};
use serde_bytes::ByteBuf;
use sha2::Digest as _;

use crate::fixture::{TestGuest, TestShell, eventually};

const REPLACE: WriteOptions =
    WriteOptions { precondition: Precondition::Anything, parents: ParentDirs::Require };

fn unjudged_path(path: impl AsRef<Path>) -> JudgedPath {
    JudgedPath {
        session: Some(ShellSessionKey::from("s")),
        path: ByteBuf::from(path.as_ref().as_os_str().as_bytes()),
        resolved: ByteBuf::new(),
    }
}

fn judged<T: std::fmt::Debug>(path: impl AsRef<Path>, answer: Result<T, Error>) -> JudgedPath {
    let FileError::ResolvesElsewhere { real } = file_error(answer) else {
        panic!("an empty path was accepted")
    };
    JudgedPath { resolved: real, ..unjudged_path(path) }
}

/// A path with the resolved path that the guest reports for it.
pub(crate) async fn judged_path(s: &TestShell, path: impl AsRef<Path>) -> JudgedPath {
    let answer = s.client.list_dir(unjudged_path(&path)).await;
    judged(path, answer)
}

/// The same for a path whose final symbolic link is not followed.
async fn judged_link(s: &TestShell, path: impl AsRef<Path>) -> JudgedPath {
    let answer = s.client.stat_file(unjudged_path(&path)).await;
    judged(path, answer)
}

fn digest(data: &[u8]) -> ContentDigest {
    ContentDigest(sha2::Sha256::digest(data).into())
}

async fn write(s: &TestShell, path: &str, data: &[u8], how: WriteOptions) -> Result<WriteResult, Error> {
    let mut writer = s.client.write_file(judged_path(s, path).await, how).await?;
    writer.write(data).await?;
    writer.finish().await
}

async fn lines(s: &TestShell, path: &str, first: u64, count: u64) -> (Vec<u8>, u64) {
    let (data, end) =
        read_all(s, judged_path(s, path).await, FileRange::Lines { first, count }).await.unwrap();
    (data, end.whole.unwrap().lines)
}

async fn read_all(
    s: &TestShell,
    path: JudgedPath,
    range: FileRange,
) -> Result<(Vec<u8>, ReadSummary), Error> {
    let mut reader = s.client.read_file(path, range).await?;
    let mut all = Vec::new();
    loop {
        match reader.next_chunk().await? {
            FileChunk::Data(data) => all.extend_from_slice(&data),
            FileChunk::End(end) => return Ok((all, end)),
        }
    }
}

fn file_error<T: std::fmt::Debug>(result: Result<T, Error>) -> FileError {
    match result.unwrap_err() {
        Error::Rejected(Rejection::File(fault)) => fault,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_hundred_megabytes_are_read_back_unchanged() {
    let guest = TestGuest::start().await;
    let s = guest.session().await;
    let block: Vec<u8> = (0..1_000_003_u64).map(|i| u8::try_from((i * i) % 251).unwrap()).collect();
    let mut writer = s.client.write_file(judged_path(&s, "big").await, REPLACE).await.unwrap();
    let mut expected = sha2::Sha256::new();
    for _ in 0..100 {
        writer.write(&block).await.unwrap();
        expected.update(&block);
    }
    assert!(!guest.work().join("big").exists(), "nothing is there before it is whole");
    let written = writer.finish().await.unwrap();
    let expected = ContentDigest(expected.finalize().into());
    assert_eq!(
        (written.length, written.digest, written.effect),
        (100_000_300, expected, WriteEffect::Created)
    );
    let mut reader = s.client.read_file(judged_path(&s, "big").await, FileRange::Whole).await.unwrap();
    let (mut found, mut length) = (sha2::Sha256::new(), 0);
    let end = loop {
        match reader.next_chunk().await.unwrap() {
            FileChunk::Data(data) => {
                length += data.len() as u64;
                found.update(&data);
            }
            FileChunk::End(end) => break end,
        }
    };
    assert_eq!((length, ContentDigest(found.finalize().into())), (100_000_300, expected));
    assert_eq!((end.whole.unwrap().digest, end.stat.size), (expected, 100_000_300));
}

#[tokio::test]
async fn lines_are_counted_without_a_phantom_last_line() {
    let guest = TestGuest::start().await;
    let s = guest.session().await;
    write(&s, "none", b"", REPLACE).await.unwrap();
    write(&s, "ended", b"a\nb\nc\n", REPLACE).await.unwrap();
    write(&s, "open", b"a\r\nb\nc", REPLACE).await.unwrap();
    assert_eq!(lines(&s, "none", 1, 10).await, (b"".to_vec(), 0));
    assert_eq!(lines(&s, "ended", 3, 10).await, (b"c\n".to_vec(), 3));
    assert_eq!(lines(&s, "ended", 4, 10).await, (b"".to_vec(), 3), "no phantom line");
    assert_eq!(lines(&s, "open", 1, 2).await, (b"a\r\nb\n".to_vec(), 3));
    assert_eq!(lines(&s, "open", 3, 1).await, (b"c".to_vec(), 3), "the last line needs no end");
    let range = FileRange::Bytes { offset: 1, length: 3 };
    let (part, end) = read_all(&s, judged_path(&s, "open").await, range).await.unwrap();
    assert_eq!((part.as_slice(), end.whole), (b"\r\nb".as_slice(), None));
}

#[tokio::test]
async fn an_unfinished_file_is_readable_only_by_its_owner() {
    let guest = TestGuest::start().await;
    let s = guest.session().await;
    s.out("umask 022; echo KEY=old >.env; chmod 600 .env").await;
    for name in [".env", "new"] {
        let mut writer = s.client.write_file(judged_path(&s, name).await, REPLACE).await.unwrap();
        writer.write(b"KEY=new").await.unwrap();
        // Everything but the old file is the unfinished one.
        let is_unfinished = || {
            let entries = std::fs::read_dir(guest.work()).unwrap().map(|entry| entry.unwrap());
            let other =
                entries.filter(|entry| ![".env", "new"].contains(&entry.file_name().to_str().unwrap()));
            let modes: Vec<u32> = other.map(|entry| entry.metadata().unwrap().mode() & 0o777).collect();
            assert!(modes.iter().all(|mode| *mode == 0o600), "{name}: {modes:?}");
            modes.len() == 1
        };
        eventually("the file is begun", async || is_unfinished()).await;
        writer.finish().await.unwrap();
    }
    let mode = |name: &str| std::fs::metadata(guest.work().join(name)).unwrap().mode() & 0o777;
    assert_eq!((mode(".env"), mode("new")), (0o600, 0o644));
}

#[tokio::test]
async fn a_new_file_in_a_shared_directory_follows_its_default_acl() {
    let guest = TestGuest::start().await;
    let s = guest.session().await;
    s.out("mkdir shared").await;
    // Owner and group rwx, others nothing.
    let entry = |tag: u8, mode: u8| [tag, 0, mode, 0, 0xff, 0xff, 0xff, 0xff];
    let acl = [&[2, 0, 0, 0][..], &entry(1, 7), &entry(4, 7), &entry(32, 0)].concat();
    let shared = guest.work().join("shared");
    rustix::fs::setxattr(&shared, "system.posix_acl_default", &acl, rustix::fs::XattrFlags::empty()).unwrap();
    s.out("umask 077; touch shared/by-shell").await;
    write(&s, "shared/file", b"x", REPLACE).await.unwrap();
    let mode = |name: &str| std::fs::metadata(guest.work().join(name)).unwrap().mode() & 0o777;
    assert_eq!((mode("shared/file"), mode("shared/by-shell")), (0o660, 0o660));
}

#[tokio::test]
async fn a_write_keeps_mode_owner_and_symlink_and_leaves_no_other_file() {
    let guest = TestGuest::start().await;
    let s = guest.session().await;
    let work = guest.work();
    s.out("umask 022; echo old >real; chmod 640 real; ln -s real link; ln -s ../work/later dangling").await;
    let before = std::fs::metadata(work.join("real")).unwrap();
    let content = b"caf\xe9\r\n\xff no end";
    let written = write(&s, "link", content, REPLACE).await.unwrap();
    assert_eq!(written.path.as_slice(), work.join("real").as_os_str().as_bytes());
    let after = std::fs::metadata(work.join("real")).unwrap();
    assert_eq!((after.mode(), after.uid(), after.gid()), (before.mode(), before.uid(), before.gid()));
    assert!(std::fs::symlink_metadata(work.join("link")).unwrap().is_symlink());
    assert_eq!(std::fs::read(work.join("real")).unwrap(), content);
    write(&s, "dangling", b"x", REPLACE).await.unwrap();
    assert_eq!(std::fs::read(work.join("later")).unwrap(), b"x");
    write(&s, "new/deep/file", b"y", WriteOptions { parents: ParentDirs::Create, ..REPLACE }).await.unwrap();
    let mode = std::fs::metadata(work.join("new/deep/file")).unwrap().permissions().mode() & 0o777;
    let shell_made = std::fs::metadata(work.join("real")).unwrap();
    s.out("touch by-shell").await;
    assert_eq!(mode, std::fs::metadata(work.join("by-shell")).unwrap().permissions().mode() & 0o777);
    assert!(shell_made.is_file());
    assert_eq!(file_error(write(&s, "no/dir", b"", REPLACE).await), FileError::Os { errno: libc::ENOENT });
    assert_eq!(file_error(write(&s, "new", b"", REPLACE).await), FileError::NotRegular);
    assert_eq!(s.out("ls -A; ls -A new/deep").await, "by-shell\ndangling\nlater\nlink\nnew\nreal\nfile\n");
}

#[tokio::test]
async fn an_unfinished_write_changes_nothing() {
    let guest = TestGuest::start().await;
    let s = guest.session().await;
    write(&s, "file", b"before", REPLACE).await.unwrap();
    let mut writer = s.client.write_file(judged_path(&s, "file").await, REPLACE).await.unwrap();
    writer.write(&[b'x'; 300_000]).await.unwrap();
    drop(writer);
    eventually("the temporary file is removed", async || s.out("ls -A").await == "file\n").await;
    assert_eq!(std::fs::read(guest.work().join("file")).unwrap(), b"before");
}

#[tokio::test]
async fn only_one_of_the_writers_with_the_same_precondition_succeeds() {
    let guest = TestGuest::start().await;
    let s = guest.session().await;
    write(&s, "file", b"0", WriteOptions { precondition: Precondition::Absent, ..REPLACE }).await.unwrap();
    assert_eq!(
        file_error(
            write(&s, "file", b"1", WriteOptions { precondition: Precondition::Absent, ..REPLACE }).await
        ),
        FileError::AlreadyExists
    );
    let expect = WriteOptions { precondition: Precondition::Content(digest(b"0")), ..REPLACE };
    let writers = (0..20).map(|number| {
        let shell = TestShell { client: s.client.clone(), key: s.key.clone() };
        tokio::spawn(async move { write(&shell, "file", format!("by {number}").as_bytes(), expect).await })
    });
    let mut won = Vec::new();
    for (number, writer) in writers.collect::<Vec<_>>().into_iter().enumerate() {
        match writer.await.unwrap() {
            Ok(_) => won.push(number),
            lost => assert_eq!(file_error(lost), FileError::ContentChanged),
        }
    }
    assert_eq!(won.len(), 1, "{won:?}");
    assert_eq!(std::fs::read_to_string(guest.work().join("file")).unwrap(), format!("by {}", won[0]));
    assert_eq!(file_error(write(&s, "absent", b"1", expect).await), FileError::ContentChanged);
}

#[tokio::test]
async fn a_patch_applies_all_edits_or_none() {
    let guest = TestGuest::start().await;
    let s = guest.session().await;
    let edit = |old: &[u8], new: &[u8], occurrences| FileEdit {
        old: ByteBuf::from(old),
        new: ByteBuf::from(new),
        occurrences,
    };
    let original = b"one\r\ntwo \xff\x07\none\nthree";
    write(&s, "file", original, REPLACE).await.unwrap();
    let patch = async |edits| s.client.patch_file(judged_path(&s, "file").await, edits).await;
    assert_eq!(
        file_error(patch(vec![edit(b"one", b"1", Occurrences::One)]).await),
        FileError::Ambiguous { edit: 0, count: 2 }
    );
    let half = vec![edit(b"two", b"2", Occurrences::One), edit(b"four", b"4", Occurrences::All)];
    assert_eq!(file_error(patch(half).await), FileError::NoMatch { edit: 1 });
    assert_eq!(
        file_error(patch(vec![edit(b"", b"x", Occurrences::One)]).await),
        FileError::NoMatch { edit: 0 }
    );
    assert_eq!(std::fs::read(guest.work().join("file")).unwrap(), original);
    let edits = vec![edit(b"one", b"1", Occurrences::All), edit(b"1\nthree", b"", Occurrences::One)];
    let (counts, written) = patch(edits).await.unwrap();
    assert_eq!(counts, [2, 1]);
    assert_eq!(written.digest, digest(b"1\r\ntwo \xff\x07\n"));
    assert_eq!(std::fs::read(guest.work().join("file")).unwrap(), b"1\r\ntwo \xff\x07\n");
}

#[tokio::test]
async fn irregular_files_are_rejected_immediately() {
    let guest = TestGuest::start().await;
    let s = guest.session().await;
    s.out("mkfifo pipe; mkdir dir").await;
    for path in ["pipe", "dir", "/dev/zero"] {
        let read = read_all(&s, judged_path(&s, path).await, FileRange::Whole).await;
        assert_eq!(file_error(read), FileError::NotRegular, "{path}");
    }
    let absolute = JudgedPath { session: None, ..unjudged_path("relative") };
    assert_eq!(file_error(s.client.stat_file(absolute).await), FileError::NotAbsolute);
    assert_eq!(
        file_error(s.client.stat_file(judged_link(&s, "gone").await).await),
        FileError::Os { errno: libc::ENOENT }
    );
}

#[tokio::test]
async fn a_directory_with_any_names_is_listed() {
    let guest = TestGuest::start().await;
    let s = guest.session().await;
    let odd = std::ffi::OsStr::from_bytes(b"odd\xff\nname");
    std::fs::write(guest.work().join(odd), b"123").unwrap();
    symlink("nowhere", guest.work().join("link")).unwrap();
    std::fs::create_dir(guest.work().join("dir")).unwrap();
    let listing = s.client.list_dir(judged_path(&s, ".").await).await.unwrap();
    assert_eq!(listing.summary, 3);
    let seen: Vec<_> = listing.items.iter().map(|entry| (entry.name.as_slice(), entry.stat.kind)).collect();
    assert_eq!(
        seen,
        [
            (b"dir".as_slice(), FileKind::Directory),
            (b"link", FileKind::Link),
            (b"odd\xff\nname", FileKind::File)
        ]
    );
    assert_eq!(s.client.stat_file(judged_link(&s, odd).await).await.unwrap().size, 3);
    s.client.remove_file(judged_link(&s, "link").await).await.unwrap();
    s.client.remove_file(judged_link(&s, "dir").await).await.unwrap();
    assert_eq!(s.client.list_dir(judged_path(&s, ".").await).await.unwrap().items.len(), 1);
    s.out("mkdir many; cd many; seq 10050 | xargs touch; cd ..").await;
    let many = s.client.list_dir(judged_path(&s, "many").await).await.unwrap();
    assert_eq!((many.items.len(), many.summary), (10_000, 10_050));
}

fn for_lines(pattern: &str) -> FileSearch {
    let target = SearchMode::Lines { pattern: pattern.to_owned(), context: 0 };
    FileSearch { target, globs: Vec::new(), offset: 0, limit: 50 }
}

#[tokio::test]
async fn a_search_counts_all_hits_and_reports_one_page() {
    let guest = TestGuest::start().await;
    let s = guest.session().await;
    s.out(
        "mkdir -p a/b .git; seq 1 500 | sed 's/^/hit /' >a/many.txt; printf 'no\\nhit \\377 here\\nno\\n' >a/b/odd.rs; \
         printf 'hit\\0' >binary; echo hit >.hidden; echo ignored.log >.gitignore; echo hit >ignored.log; printf -- '-needle' >dash",
    )
    .await;
    let found = s.client.search_files(judged_path(&s, ".").await, for_lines("^hit")).await.unwrap();
    assert_eq!(found.summary, SearchSummary { hits: 501, files: 2, unreadable: 0, binary: 1 });
    assert_eq!(found.items.len(), 50);
    let line = |number: u64, text: &[u8], role| SearchHit::Line {
        path: ByteBuf::from("a/b/odd.rs"),
        number,
        text: ByteBuf::from(text),
        role,
    };
    assert_eq!(found.items[0], line(2, b"hit \xff here", LineRole::Match));
    let last = s
        .client
        .search_files(judged_path(&s, ".").await, FileSearch { offset: 500, ..for_lines("^hit") })
        .await
        .unwrap();
    let text = ByteBuf::from("hit 500");
    assert_eq!(
        last.items,
        [SearchHit::Line { path: ByteBuf::from("a/many.txt"), number: 500, text, role: LineRole::Match }]
    );
    let context = SearchMode::Lines { pattern: "hit".to_owned(), context: 1 };
    let with = FileSearch { target: context, globs: vec!["*.rs".to_owned()], ..for_lines("") };
    let found = s.client.search_files(judged_path(&s, ".").await, with).await.unwrap();
    assert_eq!(
        found.items,
        [
            line(1, b"no", LineRole::Context),
            line(2, b"hit \xff here", LineRole::Match),
            line(3, b"no", LineRole::Context)
        ]
    );
    let files = FileSearch { target: SearchMode::Files { pattern: "hit".to_owned() }, ..for_lines("") };
    let found = s.client.search_files(judged_path(&s, ".").await, files).await.unwrap();
    let path = |path: &str, lines| SearchHit::File { path: ByteBuf::from(path), lines };
    assert_eq!(found.items, [path("a/b/odd.rs", 1), path("a/many.txt", 500)]);
    let names = FileSearch {
        target: SearchMode::Names,
        globs: vec!["**/*.txt".to_owned(), "das?".to_owned()],
        ..for_lines("")
    };
    assert_eq!(
        s.client.search_files(judged_path(&s, ".").await, names).await.unwrap().items,
        [path("a/many.txt", 0), path("dash", 0)]
    );
    assert_eq!(
        s.client.search_files(judged_path(&s, ".").await, for_lines("-needle")).await.unwrap().summary.hits,
        1,
        "a pattern is no option"
    );
    assert!(matches!(
        file_error(s.client.search_files(judged_path(&s, ".").await, for_lines("(")).await),
        FileError::BadPattern { .. }
    ));
    let one = s.client.search_files(judged_path(&s, "a/many.txt").await, for_lines("hit 7$")).await.unwrap();
    assert_eq!(one.summary.hits, 1);
}

#[tokio::test]
async fn a_path_that_leads_elsewhere_than_judged_is_not_touched() {
    let guest = TestGuest::start().await;
    let s = guest.session().await;
    s.out("mkdir dir; echo one >dir/one; echo two >two; ln -s ../two dir/link; ln -s dir into").await;
    let work = guest.work();
    let real = |path: &str| ByteBuf::from(work.join(path).as_os_str().as_bytes());
    let wrongly = |path: &str| JudgedPath { resolved: real(path), ..unjudged_path(path) };
    let elsewhere = |path: &str| FileError::ResolvesElsewhere { real: real(path) };
    let edits =
        vec![FileEdit { old: ByteBuf::from("two"), new: ByteBuf::from("2"), occurrences: Occurrences::One }];
    let client = &s.client;
    assert_eq!(file_error(read_all(&s, wrongly("dir/link"), FileRange::Whole).await), elsewhere("two"));
    assert_eq!(file_error(client.patch_file(wrongly("dir/link"), edits).await), elsewhere("two"));
    assert_eq!(file_error(client.list_dir(wrongly("into")).await), elsewhere("dir"));
    assert_eq!(file_error(client.search_files(wrongly("into"), for_lines("o")).await), elsewhere("dir"));
    assert_eq!(file_error(client.stat_file(wrongly("into/one")).await), elsewhere("dir/one"));
    assert_eq!(file_error(client.remove_file(wrongly("into/one")).await), elsewhere("dir/one"));
    let mut writer = client.write_file(wrongly("dir/link"), REPLACE).await.unwrap();
    let written = match writer.write(b"2").await {
        Ok(()) => writer.finish().await,
        Err(early) => Err(early),
    };
    assert_eq!(file_error(written), elsewhere("two"));
    assert_eq!(
        s.out("cat two dir/one; ls -A . dir").await,
        "two\none\n.:\ndir\ninto\ntwo\n\ndir:\nlink\none\n"
    );
}

#[tokio::test]
async fn an_impossible_write_is_rejected_before_all_content_is_sent() {
    let guest = TestGuest::start().await;
    let s = guest.session().await;
    let mut writer = s.client.write_file(unjudged_path("file"), REPLACE).await.unwrap();
    let endless = async {
        loop {
            if let Err(error) = writer.write(&[0; 65536]).await {
                return error;
            }
        }
    };
    let refused =
        tokio::time::timeout(crate::fixture::TIMEOUT, endless).await.expect("the write is not rejected");
    assert!(matches!(file_error::<()>(Err(refused)), FileError::ResolvesElsewhere { .. }));
}

#[tokio::test]
async fn an_abandoned_read_ends() {
    let guest = TestGuest::start().await;
    let s = guest.session().await;
    s.out("truncate -s 1T endless; echo text >file").await;
    let endless = judged_path(&s, "endless").await;
    // As many as the guest has blocking threads.
    for _ in 0..4 {
        let part = FileRange::Lines { first: 2, count: 1 };
        drop(s.client.read_file(endless.clone(), part).await.unwrap());
    }
    assert_eq!(s.client.stat_file(judged_link(&s, "file").await).await.unwrap().size, 5);
}
