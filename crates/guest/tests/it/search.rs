//! Which files a search reads, and which lines it finds.

use std::collections::BTreeSet;
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::process::Command;

use hermes_guest::protocol::file::{FileSearch, SearchHit, SearchMode, SearchSummary};
use regex_automata::meta::Regex;
use rustix::fs::{CWD, Mode, OFlags};

use crate::files::judged_path;
use crate::fixture::{TestGuest, TestShell};

const NAMES: SearchMode = SearchMode::Names;

fn lines(pattern: &str) -> SearchMode {
    SearchMode::Lines { pattern: pattern.to_owned(), context: 0 }
}

/// All hits of a search: each path, with its line number if lines are searched.
async fn find(s: &TestShell, path: &str, target: SearchMode) -> (Vec<(String, u64)>, SearchSummary) {
    let search = FileSearch { target, globs: Vec::new(), offset: 0, limit: 10_000 };
    let found = s.client.search_files(judged_path(s, path).await, search).await.unwrap();
    let hits = found.items.into_iter().map(|hit| match hit {
        SearchHit::File { path, lines } => (String::from_utf8(path.into_vec()).unwrap(), lines),
        SearchHit::Line { path, number, .. } => (String::from_utf8(path.into_vec()).unwrap(), number),
    });
    (hits.collect(), found.summary)
}

async fn names(s: &TestShell, path: &str) -> Vec<String> {
    find(s, path, NAMES).await.0.into_iter().map(|(path, _)| path).collect()
}

/// Files that git tracks or would track in a directory, except hidden files and nested
/// repositories.
async fn git_files(s: &TestShell, dir: &str) -> BTreeSet<String> {
    let listed = s.out(format!("git -C {dir} ls-files --others --cached --exclude-standard")).await;
    let is_hidden = |path: &str| path.split('/').any(|part| part.starts_with('.'));
    listed.lines().filter(|path| !path.ends_with('/') && !is_hidden(path)).map(str::to_owned).collect()
}

#[tokio::test]
async fn a_search_skips_files_that_git_ignores() {
    let guest = TestGuest::start().await;
    let s = guest.session().await;
    s.out(
        r"mkdir outer; cd outer; git init -q .; echo '*' >../.gitignore
        for dir in . a a/b a/b/build build build/a docs docs/x/y/z src src/cache inner inner/sub inner/a; do
            mkdir -p $dir
            touch $dir/{x.log,keep.log,x.tmp,note.md,data.bin,top.md,excluded.txt,'!odd','#odd','with space',UP.Log,.hidden}
        done
        touch src/build docs/cache
        cat >.gitignore <<'END'
# A comment
*.log
!keep.log
build/
!build/note.md
/top.md
docs/**/x.tmp
**/cache
a/**/data.bin
\!odd
\#odd
with\ space
[a-n]ote.m?
!src/note.md
END
        printf '!x.log\n/note.md\nb/x.tmp\n' >a/.gitignore
        printf '*\n!*.md\n!*/\n' >docs/x/.gitignore
        printf 'excluded.txt\n' >.git/info/exclude
        git init -q inner && printf 'sub/*.bin\n/x.*\n' >inner/.gitignore && printf '*.md\n' >inner/.git/info/exclude
        git add src/x.tmp; cd ..",
    )
    .await;
    let inner = git_files(&s, "outer/inner").await;
    assert!(inner.contains("sub/x.log") && !inner.contains("sub/data.bin"), "{inner:?}");
    let mut all = git_files(&s, "outer").await;
    assert!(all.contains("a/x.log") && all.contains("src/build") && !all.contains("x.log"), "{all:?}");
    all.extend(inner.iter().map(|path| format!("inner/{path}")));
    let all: Vec<String> = all.into_iter().collect();
    let mut found = names(&s, "outer").await;
    found.sort();
    assert_eq!(found, all);
    // The rules of parent directories apply too.
    for dir in ["a", "a/b", "docs/x/y", "src", "inner", "inner/sub"] {
        let dir = format!("outer/{dir}");
        let expected: Vec<String> = git_files(&s, &dir).await.into_iter().collect();
        let mut found = names(&s, &dir).await;
        found.sort();
        assert_eq!(found, expected, "{dir}");
    }
}

#[tokio::test]
async fn ignore_files_override_gitignore() {
    let guest = TestGuest::start().await;
    let s = guest.session().await;
    s.out("git init -q .; mkdir dir; touch {.,dir}/{one,two,three}; printf 'one\ntwo\n' >dir/.gitignore")
        .await;
    s.out("printf '!one\nthree\n' >.ignore").await;
    assert_eq!(names(&s, ".").await, ["dir/one", "one", "two"]);
    assert_eq!(names(&s, "dir").await, ["one"]);
}

#[tokio::test]
async fn a_search_follows_no_symlink_and_never_blocks() {
    let guest = TestGuest::start().await;
    let s = guest.session().await;
    s.out("mkdir dir other; echo text >dir/file; echo text >other/file; mkfifo dir/pipe").await;
    s.out("ln -s file dir/link; ln -s ../other dir/elsewhere; ln -s . dir/round").await;
    let once = (vec![("file".to_owned(), 1)], SearchSummary { hits: 1, files: 1, unreadable: 0, binary: 0 });
    assert_eq!(find(&s, "dir", lines("text")).await, once);
    let refused = (Vec::new(), SearchSummary { hits: 0, files: 0, unreadable: 1, binary: 0 });
    assert_eq!(find(&s, "dir/pipe", lines("text")).await, refused);
}

#[tokio::test]
async fn unreadable_files_are_counted() {
    let guest = start_unprivileged().await;
    let s = guest.session().await;
    s.out("mkdir open closed; echo text | tee open/file open/secret >closed/file").await;
    s.out("chmod 0 open/secret; chmod 100 closed").await;
    let found = find(&s, ".", lines("text")).await;
    s.out("chmod 700 closed").await;
    let expected = SearchSummary { hits: 1, files: 1, unreadable: 2, binary: 0 };
    assert_eq!(found, (vec![("open/file".to_owned(), 1)], expected));
}

/// A guest without root's access to files.
#[expect(clippy::disallowed_methods, reason = "tests start the program they test")]
async fn start_unprivileged() -> TestGuest {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("run/guest.sock");
    // The built binary may be in a directory that other users cannot enter.
    let program = dir.path().join("guest");
    std::fs::copy(env!("CARGO_BIN_EXE_hermes-guest"), &program).unwrap();
    let mut command = Command::new(&program);
    command.args(["serve", "--idle", "60", "--socket"]).arg(&socket).env_clear().env("PATH", "/usr/bin:/bin");
    if rustix::process::geteuid().is_root() {
        let unprivileged_uid = 65534;
        std::fs::create_dir(dir.path().join("work")).unwrap();
        for path in [dir.path(), &dir.path().join("work")] {
            chown(path, Some(unprivileged_uid), Some(unprivileged_uid)).unwrap();
        }
        command.uid(unprivileged_uid).gid(unprivileged_uid);
    }
    let done = command.output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let mut guest = TestGuest { dir, socket, pid: 0 };
    guest.pid = guest.find_pid().await;
    guest
}

#[tokio::test]
async fn a_search_reaches_deeper_than_the_maximum_path_length() {
    let guest = TestGuest::start().await;
    let s = guest.session().await;
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mut dir = rustix::fs::openat(CWD, guest.work(), flags, Mode::empty()).unwrap();
    for _ in 0..500 {
        rustix::fs::mkdirat(&dir, "directory", Mode::RWXU).unwrap();
        dir = rustix::fs::openat(&dir, "directory", flags, Mode::empty()).unwrap();
    }
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::CLOEXEC;
    let file = rustix::fs::openat(&dir, "file", flags, Mode::RUSR).unwrap();
    rustix::io::write(&file, b"text\n").unwrap();
    let path = format!("{}file", "directory/".repeat(500));
    assert_eq!(find(&s, ".", lines("text")).await.0, [(path, 1)]);
}

#[tokio::test]
async fn hits_in_many_files_are_reported_in_order() {
    let guest = TestGuest::start().await;
    let s = guest.session().await;
    let mut expected = Vec::new();
    for number in 0..700 {
        let dir = guest.work().join(format!("dir{:02}", number / 50));
        std::fs::create_dir_all(&dir).unwrap();
        let text = match number % 7 {
            0 => "no\nyes\n",
            1 => "yes\0",
            _ => "no\nno\n",
        };
        std::fs::write(dir.join(format!("file{number:03}")), text).unwrap();
        if number % 7 == 0 {
            expected.push((format!("dir{:02}/file{number:03}", number / 50), 2));
        }
    }
    let end = SearchSummary { hits: 100, files: 100, unreadable: 0, binary: 100 };
    assert_eq!(find(&s, ".", lines("yes")).await, (expected, end));
}

#[tokio::test]
async fn every_line_is_matched_on_its_own() {
    let guest = TestGuest::start().await;
    let s = guest.session().await;
    // More than one buffer, with lines of different lengths, some empty.
    let text: String = (0..6000_usize)
        .map(|number| match number % 11 {
            0 => "\n".to_owned(),
            1 => format!("begin {number}\n"),
            2 => format!("{} end\n", "x".repeat(number % 400)),
            3 => "open (\n".to_owned(),
            4 => ") closed\r\n".to_owned(),
            _ => format!("line {number}\n"),
        })
        .collect();
    let text = text + "the last one";
    std::fs::write(guest.work().join("file"), &text).unwrap();
    for pattern in [
        "line 7[0-9]$", r"^begin", r"\Abegin", r"end\z", r"(?-m:^)\)", "^$", r"\(\s+\)", "(?s)open.*closed",
        "[^l]ine", r"closed\r$", r"(?R)closed$", r"(?R)\r$", "nowhere", "", "(?i)LAST ONE$", r"\bend\b",
        r"line \d+\n",
    ] {
        let regex = Regex::new(&format!("(?m){pattern}")).unwrap();
        let numbered = text.split('\n').zip(1_u64..);
        let expected: Vec<u64> =
            numbered.filter(|(line, _)| regex.is_match(line)).map(|(_, number)| number).collect();
        let found: Vec<u64> =
            find(&s, ".", lines(pattern)).await.0.into_iter().map(|(_, number)| number).collect();
        assert_eq!(found, expected, "{pattern}");
    }
}
