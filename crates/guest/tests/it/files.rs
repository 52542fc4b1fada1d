//! Files as the host sees them: read, written, patched, listed, searched.

use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;

use hermes_guest::client::{Error, Piece};
use hermes_guest::protocol::file::{
    Before, Digest, Edit, Expect, FileFault, Found, Hit, Kind, Occurrences, Parents, Part,
    Place as FilePlace, Role, Scope, Search, Target, Write, Written,
};
use hermes_guest::protocol::message::{Fault, SessionKey};
use serde_bytes::ByteBuf;
use sha2::Digest as _;

use crate::place::{Place, Shell};

const REPLACE: Write = Write { expect: Expect::Anything, parents: Parents::Require };

fn unjudged(path: impl AsRef<Path>) -> FilePlace {
    FilePlace {
        session: Some(SessionKey::from("s")),
        path: ByteBuf::from(path.as_ref().as_os_str().as_bytes()),
        judged: ByteBuf::new(),
    }
}

fn judged<T: std::fmt::Debug>(path: impl AsRef<Path>, answer: Result<T, Error>) -> FilePlace {
    let FileFault::Elsewhere { real } = fault(answer) else { panic!("nothing is judged by nothing") };
    FilePlace { judged: real, ..unjudged(path) }
}

/// A path, judged by what the guest says it leads to.
pub(crate) async fn here(s: &Shell, path: impl AsRef<Path>) -> FilePlace {
    let answer = s.client.list(unjudged(&path)).await;
    judged(path, answer)
}

/// The same, but a link at the end is itself what is meant.
async fn itself(s: &Shell, path: impl AsRef<Path>) -> FilePlace {
    let answer = s.client.stat(unjudged(&path)).await;
    judged(path, answer)
}

fn digest(data: &[u8]) -> Digest {
    Digest(sha2::Sha256::digest(data).into())
}

async fn write(s: &Shell, path: &str, data: &[u8], how: Write) -> Result<Written, Error> {
    let mut writer = s.client.write(here(s, path).await, how).await?;
    writer.write(data).await?;
    writer.finish().await
}

async fn lines(s: &Shell, path: &str, first: u64, count: u64) -> (Vec<u8>, u64) {
    let (data, end) =
        s.client.read_small(here(s, path).await, Part::Lines { first, count }, 1 << 20).await.unwrap();
    (data, end.whole.unwrap().lines)
}

fn fault<T: std::fmt::Debug>(result: Result<T, Error>) -> FileFault {
    match result.unwrap_err() {
        Error::Refused(Fault::File(fault)) => fault,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_hundred_megabytes_come_back_as_they_went() {
    let place = Place::start().await;
    let s = place.session().await;
    let block: Vec<u8> = (0..1_000_003_u64).map(|i| u8::try_from((i * i) % 251).unwrap()).collect();
    let mut writer = s.client.write(here(&s, "big").await, REPLACE).await.unwrap();
    let mut expected = sha2::Sha256::new();
    for _ in 0..100 {
        writer.write(&block).await.unwrap();
        expected.update(&block);
    }
    assert!(!place.work().join("big").exists(), "nothing is there before it is whole");
    let written = writer.finish().await.unwrap();
    let expected = Digest(expected.finalize().into());
    assert_eq!((written.length, written.digest, written.before), (100_000_300, expected, Before::Nothing));
    let mut reader = s.client.read(here(&s, "big").await, Part::Whole).await.unwrap();
    let (mut found, mut length) = (sha2::Sha256::new(), 0);
    let end = loop {
        match reader.next().await.unwrap() {
            Piece::Data(data) => {
                length += data.len() as u64;
                found.update(&data);
            }
            Piece::End(end) => break end,
        }
    };
    assert_eq!((length, Digest(found.finalize().into())), (100_000_300, expected));
    assert_eq!((end.whole.unwrap().digest, end.stat.size), (expected, 100_000_300));
}

#[tokio::test]
async fn lines_are_counted_as_people_count_them() {
    let place = Place::start().await;
    let s = place.session().await;
    write(&s, "none", b"", REPLACE).await.unwrap();
    write(&s, "ended", b"a\nb\nc\n", REPLACE).await.unwrap();
    write(&s, "open", b"a\r\nb\nc", REPLACE).await.unwrap();
    assert_eq!(lines(&s, "none", 1, 10).await, (b"".to_vec(), 0));
    assert_eq!(lines(&s, "ended", 3, 10).await, (b"c\n".to_vec(), 3));
    assert_eq!(lines(&s, "ended", 4, 10).await, (b"".to_vec(), 3), "no phantom line");
    assert_eq!(lines(&s, "open", 1, 2).await, (b"a\r\nb\n".to_vec(), 3));
    assert_eq!(lines(&s, "open", 3, 1).await, (b"c".to_vec(), 3), "the last line needs no end");
    let (part, end) =
        s.client.read_small(here(&s, "open").await, Part::Bytes { offset: 1, length: 3 }, 99).await.unwrap();
    assert_eq!((part.as_slice(), end.whole), (b"\r\nb".as_slice(), None));
}

#[tokio::test]
async fn a_write_keeps_mode_owner_and_link_and_leaves_nothing_else() {
    let place = Place::start().await;
    let s = place.session().await;
    let work = place.work();
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
    write(&s, "new/deep/file", b"y", Write { parents: Parents::Create, ..REPLACE }).await.unwrap();
    let mode = std::fs::metadata(work.join("new/deep/file")).unwrap().permissions().mode() & 0o777;
    let shell_made = std::fs::metadata(work.join("real")).unwrap();
    s.out("touch by-shell").await;
    assert_eq!(mode, std::fs::metadata(work.join("by-shell")).unwrap().permissions().mode() & 0o777);
    assert!(shell_made.is_file());
    assert_eq!(fault(write(&s, "no/dir", b"", REPLACE).await), FileFault::Os { errno: libc::ENOENT });
    assert_eq!(fault(write(&s, "new", b"", REPLACE).await), FileFault::NotRegular);
    assert_eq!(s.out("ls -A; ls -A new/deep").await, "by-shell\ndangling\nlater\nlink\nnew\nreal\nfile\n");
}

#[tokio::test]
async fn a_write_that_was_not_finished_never_happened() {
    let place = Place::start().await;
    let s = place.session().await;
    write(&s, "file", b"before", REPLACE).await.unwrap();
    let mut writer = s.client.write(here(&s, "file").await, REPLACE).await.unwrap();
    writer.write(&[b'x'; 300_000]).await.unwrap();
    drop(writer);
    let settled = async { while s.out("ls -A").await != "file\n" {} };
    tokio::time::timeout(crate::place::PATIENCE, settled).await.expect("the draft is still there");
    assert_eq!(std::fs::read(place.work().join("file")).unwrap(), b"before");
}

#[tokio::test]
async fn of_writers_who_expect_the_same_one_wins() {
    let place = Place::start().await;
    let s = place.session().await;
    write(&s, "file", b"0", Write { expect: Expect::Absent, ..REPLACE }).await.unwrap();
    assert_eq!(
        fault(write(&s, "file", b"1", Write { expect: Expect::Absent, ..REPLACE }).await),
        FileFault::Present
    );
    let expect = Write { expect: Expect::Content(digest(b"0")), ..REPLACE };
    let writers = (0..20).map(|number| {
        let shell = Shell { client: s.client.clone(), key: s.key.clone() };
        tokio::spawn(async move { write(&shell, "file", format!("by {number}").as_bytes(), expect).await })
    });
    let mut won = Vec::new();
    for (number, writer) in writers.collect::<Vec<_>>().into_iter().enumerate() {
        match writer.await.unwrap() {
            Ok(_) => won.push(number),
            lost => assert_eq!(fault(lost), FileFault::Changed),
        }
    }
    assert_eq!(won.len(), 1, "{won:?}");
    assert_eq!(std::fs::read_to_string(place.work().join("file")).unwrap(), format!("by {}", won[0]));
    assert_eq!(fault(write(&s, "absent", b"1", expect).await), FileFault::Changed);
}

#[tokio::test]
async fn a_patch_replaces_exactly_what_was_meant_or_nothing() {
    let place = Place::start().await;
    let s = place.session().await;
    let edit = |old: &[u8], new: &[u8], occurrences| Edit {
        old: ByteBuf::from(old),
        new: ByteBuf::from(new),
        occurrences,
    };
    let original = b"one\r\ntwo \xff\x07\none\nthree";
    write(&s, "file", original, REPLACE).await.unwrap();
    let patch = async |edits| s.client.patch(here(&s, "file").await, edits).await;
    assert_eq!(
        fault(patch(vec![edit(b"one", b"1", Occurrences::One)]).await),
        FileFault::Ambiguous { edit: 0, count: 2 }
    );
    let half = vec![edit(b"two", b"2", Occurrences::One), edit(b"four", b"4", Occurrences::All)];
    assert_eq!(fault(patch(half).await), FileFault::NoMatch { edit: 1 });
    assert_eq!(fault(patch(vec![edit(b"", b"x", Occurrences::One)]).await), FileFault::NoMatch { edit: 0 });
    assert_eq!(std::fs::read(place.work().join("file")).unwrap(), original);
    let edits = vec![edit(b"one", b"1", Occurrences::All), edit(b"1\nthree", b"", Occurrences::One)];
    let (counts, written) = patch(edits).await.unwrap();
    assert_eq!(counts, [2, 1]);
    assert_eq!(written.digest, digest(b"1\r\ntwo \xff\x07\n"));
    assert_eq!(std::fs::read(place.work().join("file")).unwrap(), b"1\r\ntwo \xff\x07\n");
}

#[tokio::test]
async fn what_is_no_regular_file_is_refused_at_once() {
    let place = Place::start().await;
    let s = place.session().await;
    s.out("mkfifo pipe; mkdir dir").await;
    for path in ["pipe", "dir", "/dev/zero"] {
        let read = s.client.read_small(here(&s, path).await, Part::Whole, 100).await;
        assert_eq!(fault(read), FileFault::NotRegular, "{path}");
    }
    let absolute = FilePlace { session: None, ..unjudged("relative") };
    assert_eq!(fault(s.client.stat(absolute).await), FileFault::NotAbsolute);
    assert_eq!(fault(s.client.stat(itself(&s, "gone").await).await), FileFault::Os { errno: libc::ENOENT });
}

#[tokio::test]
async fn a_directory_is_listed_with_whatever_names_it_has() {
    let place = Place::start().await;
    let s = place.session().await;
    let odd = std::ffi::OsStr::from_bytes(b"odd\xff\nname");
    std::fs::write(place.work().join(odd), b"123").unwrap();
    symlink("nowhere", place.work().join("link")).unwrap();
    std::fs::create_dir(place.work().join("dir")).unwrap();
    let listing = s.client.list(here(&s, ".").await).await.unwrap();
    assert_eq!(listing.end, 3);
    let seen: Vec<_> = listing
        .items
        .iter()
        .map(|entry| (entry.name.as_slice(), entry.stat.kind, entry.stat.target.clone()))
        .collect();
    let target = Some(ByteBuf::from("nowhere"));
    assert_eq!(
        seen,
        [
            (b"dir".as_slice(), Kind::Directory, None),
            (b"link", Kind::Link, target),
            (b"odd\xff\nname", Kind::File, None)
        ]
    );
    assert_eq!(s.client.stat(itself(&s, odd).await).await.unwrap().size, 3);
    s.client.remove(itself(&s, "link").await).await.unwrap();
    s.client.remove(itself(&s, "dir").await).await.unwrap();
    assert_eq!(s.client.list(here(&s, ".").await).await.unwrap().items.len(), 1);
    s.out("mkdir many; cd many; seq 10050 | xargs touch; cd ..").await;
    let many = s.client.list(here(&s, "many").await).await.unwrap();
    assert_eq!((many.items.len(), many.end), (10_000, 10_050));
}

fn for_lines(pattern: &str) -> Search {
    let target = Target::Lines { pattern: pattern.to_owned(), context: 0 };
    Search { target, globs: Vec::new(), scope: Scope::Tracked, offset: 0, limit: 50 }
}

#[tokio::test]
async fn a_search_counts_everything_and_reports_the_page() {
    let place = Place::start().await;
    let s = place.session().await;
    s.out(
        "mkdir -p a/b .git; seq 1 500 | sed 's/^/hit /' >a/many.txt; printf 'no\\nhit \\377 here\\nno\\n' >a/b/odd.rs; \
         printf 'hit\\0' >binary; echo hit >.hidden; echo ignored.log >.gitignore; echo hit >ignored.log; printf -- '-needle' >dash",
    )
    .await;
    let found = s.client.search(here(&s, ".").await, for_lines("^hit")).await.unwrap();
    assert_eq!(found.end, Found { hits: 501, files: 2, unreadable: 0, binary: 1 });
    assert_eq!(found.items.len(), 50);
    let line = |number: u64, text: &[u8], role| Hit::Line {
        path: ByteBuf::from("a/b/odd.rs"),
        number,
        text: ByteBuf::from(text),
        role,
    };
    assert_eq!(found.items[0], line(2, b"hit \xff here", Role::Match));
    let last =
        s.client.search(here(&s, ".").await, Search { offset: 500, ..for_lines("^hit") }).await.unwrap();
    let text = ByteBuf::from("hit 500");
    assert_eq!(
        last.items,
        [Hit::Line { path: ByteBuf::from("a/many.txt"), number: 500, text, role: Role::Match }]
    );
    let context = Target::Lines { pattern: "hit".to_owned(), context: 1 };
    let with = Search { target: context, globs: vec!["*.rs".to_owned()], ..for_lines("") };
    let found = s.client.search(here(&s, ".").await, with).await.unwrap();
    assert_eq!(
        found.items,
        [
            line(1, b"no", Role::Context),
            line(2, b"hit \xff here", Role::Match),
            line(3, b"no", Role::Context)
        ]
    );
    let files =
        Search { target: Target::Files { pattern: "hit".to_owned() }, scope: Scope::All, ..for_lines("") };
    let found = s.client.search(here(&s, ".").await, files).await.unwrap();
    let path = |path: &str, lines| Hit::File { path: ByteBuf::from(path), lines };
    assert_eq!(
        found.items,
        [path(".hidden", 1), path("a/b/odd.rs", 1), path("a/many.txt", 500), path("ignored.log", 1)]
    );
    let names = Search {
        target: Target::Names,
        globs: vec!["**/*.txt".to_owned(), "das?".to_owned()],
        ..for_lines("")
    };
    assert_eq!(
        s.client.search(here(&s, ".").await, names).await.unwrap().items,
        [path("a/many.txt", 0), path("dash", 0)]
    );
    assert_eq!(
        s.client.search(here(&s, ".").await, for_lines("-needle")).await.unwrap().end.hits,
        1,
        "a pattern is no option"
    );
    assert!(matches!(
        fault(s.client.search(here(&s, ".").await, for_lines("(")).await),
        FileFault::BadPattern { .. }
    ));
    let one = s.client.search(here(&s, "a/many.txt").await, for_lines("hit 7$")).await.unwrap();
    assert_eq!(one.end.hits, 1);
}

#[tokio::test]
async fn what_leads_elsewhere_than_it_was_judged_by_is_left_alone() {
    let place = Place::start().await;
    let s = place.session().await;
    s.out("mkdir dir; echo one >dir/one; echo two >two; ln -s ../two dir/link; ln -s dir into").await;
    let work = place.work();
    let real = |path: &str| ByteBuf::from(work.join(path).as_os_str().as_bytes());
    let wrongly = |path: &str| FilePlace { judged: real(path), ..unjudged(path) };
    let elsewhere = |path: &str| FileFault::Elsewhere { real: real(path) };
    let edits =
        vec![Edit { old: ByteBuf::from("two"), new: ByteBuf::from("2"), occurrences: Occurrences::One }];
    let client = &s.client;
    assert_eq!(fault(client.read_small(wrongly("dir/link"), Part::Whole, 9).await), elsewhere("two"));
    assert_eq!(fault(client.patch(wrongly("dir/link"), edits).await), elsewhere("two"));
    assert_eq!(fault(client.list(wrongly("into")).await), elsewhere("dir"));
    assert_eq!(fault(client.search(wrongly("into"), for_lines("o")).await), elsewhere("dir"));
    assert_eq!(fault(client.stat(wrongly("into/one")).await), elsewhere("dir/one"));
    assert_eq!(fault(client.remove(wrongly("into/one")).await), elsewhere("dir/one"));
    let mut writer = client.write(wrongly("dir/link"), REPLACE).await.unwrap();
    let written = match writer.write(b"2").await {
        Ok(()) => writer.finish().await,
        Err(early) => Err(early),
    };
    assert_eq!(fault(written), elsewhere("two"));
    assert_eq!(
        s.out("cat two dir/one; ls -A . dir").await,
        "two\none\n.:\ndir\ninto\ntwo\n\ndir:\nlink\none\n"
    );
}

#[tokio::test]
async fn a_write_that_cannot_be_is_refused_before_all_of_it_is_sent() {
    let place = Place::start().await;
    let s = place.session().await;
    let mut writer = s.client.write(unjudged("file"), REPLACE).await.unwrap();
    let endless = async {
        loop {
            if let Err(error) = writer.write(&[0; 65536]).await {
                return error;
            }
        }
    };
    let refused = tokio::time::timeout(crate::place::PATIENCE, endless).await.expect("nobody says no");
    assert!(matches!(fault::<()>(Err(refused)), FileFault::Elsewhere { .. }));
}

#[tokio::test]
async fn a_read_that_nobody_waits_for_ends() {
    let place = Place::start().await;
    let s = place.session().await;
    s.out("truncate -s 1T endless; echo text >file").await;
    let endless = here(&s, "endless").await;
    // As many as the guest works on at once.
    for _ in 0..4 {
        let part = Part::Lines { first: 2, count: 1 };
        drop(s.client.read(endless.clone(), part).await.unwrap());
    }
    assert_eq!(s.client.stat(itself(&s, "file").await).await.unwrap().size, 5);
}
