//! File operations as tools use them.

use std::io;
use std::path::Path;
use std::pin::Pin;
use std::task::{Context, Poll};

use hermes_exec::files::resolve_lexically;
use hermes_exec::{Error, GuestFiles, OpenPlace, OutputMode, ResolvedPlace};
use hermes_guest::client::FileChunk;
use hermes_guest::protocol::file::{
    FileEdit, FileError, FileKind, FileRange, FileSearch, Occurrences, ParentDirs, Precondition, SearchMode,
    SearchSummary, WriteEffect, WriteOptions,
};
use hermes_guest::protocol::limit;
use hermes_policy::{Gate, Permit, Verdict};
use hermes_types::FileAccess::{self, Delete, Read};
use hermes_types::{BackendName, FileUse, Job, Work};
use rustix::io::Errno;
use serde_bytes::ByteBuf;
use tokio::io::{AsyncRead, AsyncWriteExt, ReadBuf};

use crate::fixture::{Fixture, judge, permit_for, run_options};
use crate::session::{Session, TestEnv, permit};

const REPLACE: WriteOptions =
    WriteOptions { precondition: Precondition::Anything, parents: ParentDirs::Require };
const WRITE: FileAccess = FileAccess::Write;

/// How often a path is judged again before the test fails.
const MAX_VERDICTS: usize = 3;

/// A session with a client for the files of its place.
struct FileSession {
    plan: ResolvedPlace,
    sandbox: OpenPlace,
    key: String,
    files: GuestFiles,
    /// The initial directory of the session.
    cwd: String,
}

impl FileSession {
    async fn open(fixture: &Fixture, key: &str) -> Self {
        let Session { plan, sandbox, key } = fixture.open(key).await;
        let (files, cwd) = (sandbox.files().await.unwrap(), sandbox.cwd().await.unwrap());
        Self { plan, sandbox, key, files, cwd }
    }

    fn files(&self) -> &GuestFiles {
        &self.files
    }

    fn verdict(&self, access: FileAccess, path: &str, real: &str) -> Verdict {
        let file = FileUse { access, path: path.to_owned(), real: real.to_owned() };
        judge(&Gate::default(), &self.plan, &self.key, Job::new(Work::File(file), self.cwd.clone()))
    }

    fn permit(&self, access: FileAccess, path: &str, real: &str) -> Permit {
        let file = FileUse { access, path: path.to_owned(), real: real.to_owned() };
        permit_for(&self.plan, &self.key, Job::new(Work::File(file), self.cwd.clone()))
    }

    /// The path without symbolic links.
    fn lexical(&self, path: &str) -> String {
        resolve_lexically(path, &self.cwd, &self.plan.place().home)
    }

    /// Returns a permit for a path that is resolved without symbolic links.
    fn lexical_permit(&self, access: FileAccess, path: &str) -> Permit {
        self.permit(access, path, &self.lexical(path))
    }

    /// Uses a file; a path that resolves elsewhere is judged again.
    async fn with_permit<T>(
        &self,
        access: FileAccess,
        path: &str,
        act: impl AsyncFn(Permit) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let mut real = self.lexical(path);
        for _ in 0..MAX_VERDICTS {
            match act(self.permit(access, path, &real)).await {
                Err(Error::PathElsewhere(other)) => real = other,
                done => return done,
            }
        }
        panic!("{path} resolves elsewhere each time")
    }

    async fn read(&self, path: &str) -> Result<Vec<u8>, Error> {
        let all =
            async |permit| self.files().read(permit, FileRange::Whole).await?.read_to_end(1 << 20).await;
        self.with_permit(Read, path, all).await.map(|(data, _)| data)
    }

    async fn write(&self, path: &str, data: &[u8]) -> Result<(), Error> {
        let write = async |permit| self.files().write(permit, &mut &*data, REPLACE).await;
        self.with_permit(WRITE, path, write).await.map(drop)
    }

    async fn patch(&self, path: &str, edits: &[FileEdit]) -> Result<Vec<u64>, Error> {
        let patch = async |permit| self.files().patch(permit, edits.to_vec()).await;
        self.with_permit(WRITE, path, patch).await.map(|(counts, _)| counts)
    }

    async fn out(&self, command: &str) -> String {
        let (plan, key) = (self.plan.clone(), self.key.clone());
        Session { sandbox: plan.open().await.unwrap(), plan, key }.out(command).await
    }
}

fn edit(old: &[u8], new: &[u8], occurrences: Occurrences) -> FileEdit {
    FileEdit { old: ByteBuf::from(old), new: ByteBuf::from(new), occurrences }
}

fn file_error<T: std::fmt::Debug>(result: Result<T, Error>) -> FileError {
    match result.unwrap_err() {
        Error::FileFailed(fault) => fault,
        other => panic!("{other:?}"),
    }
}

fn os_error(errno: Errno) -> FileError {
    FileError::Os { errno: errno.raw_os_error() }
}

fn resolved_elsewhere<T: std::fmt::Debug>(result: Result<T, Error>) -> String {
    match result.unwrap_err() {
        Error::PathElsewhere(real) => real,
        other => panic!("{other:?}"),
    }
}

/// The peak memory of this process since the last call, in kilobytes.
fn take_peak_memory_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    std::fs::write("/proc/self/clear_refs", "5").unwrap();
    peak.trim().trim_end_matches(" kB").parse().unwrap()
}

pub(crate) async fn a_hundred_megabytes_round_trip_in_little_memory(fixture: &Fixture) {
    let block: Vec<u8> = (0..1_000_003_u64).map(|i| u8::try_from((i * i) % 251).unwrap()).collect();
    let twice = [block.as_slice(), &block].concat();
    let client = FileSession::open(fixture, "s").await;
    take_peak_memory_kib();
    let before = take_peak_memory_kib();
    let (mut inward, mut content) = tokio::io::duplex(1 << 16);
    let sent = block.clone();
    let sender = tokio::spawn(async move {
        for _ in 0..100 {
            inward.write_all(&sent).await.unwrap();
        }
    });
    let permit = client.lexical_permit(WRITE, "big");
    let written = client.files().write(permit, &mut content, REPLACE).await.unwrap();
    sender.await.unwrap();
    assert_eq!((written.length, written.effect), (100_000_300, WriteEffect::Created));
    let mut reader = client.files().read(client.lexical_permit(Read, "big"), FileRange::Whole).await.unwrap();
    let mut at = 0;
    let end = loop {
        match reader.next().await.unwrap() {
            FileChunk::Data(data) => {
                let (start, end) = (at % block.len(), at % block.len() + data.len());
                assert!(twice.get(start..end) == Some(&data), "{at}");
                at += data.len();
            }
            FileChunk::End(end) => break end,
        }
    };
    assert_eq!((at, end.whole.unwrap().digest), (100_000_300, written.digest));
    // The limit includes the connection's buffer for a slow reader.
    let most = limit::RECEIVE_WINDOW_BYTES as u64 / 1024 + 16_000;
    // The kernel's per-processor counters are approximate, so the peak can decrease.
    let grown = take_peak_memory_kib().saturating_sub(before);
    assert!(grown < most, "{grown} kilobytes");
    let guest = client.out("grep VmHWM /proc/$(cut -d ' ' -f 4 /proc/$PPID/stat)/status").await;
    let guest: u64 = guest.split_whitespace().nth(1).unwrap().parse().unwrap();
    assert!(guest < most, "{guest} kilobytes");
}

pub(crate) async fn writing_through_a_symlink_keeps_the_symlink(fixture: &Fixture) {
    let client = FileSession::open(fixture, "s").await;
    client
        .out("mkdir d; echo old >real; ln -s ../real d/link; ln -s d/link chain; ln -s d/new dangling")
        .await;
    for path in ["d/link", "chain"] {
        client.write(path, path.as_bytes()).await.unwrap();
        assert_eq!(client.read("real").await.unwrap(), path.as_bytes());
        assert_eq!(client.read(path).await.unwrap(), path.as_bytes());
    }
    assert_eq!(file_error(client.read("dangling").await), os_error(Errno::NOENT));
    client.write("dangling", b"born").await.unwrap();
    assert_eq!(client.patch("chain", &[edit(b"chain", b"patched", Occurrences::One)]).await.unwrap(), [1]);
    let seen = client.out("cat real d/new; readlink chain d/link dangling; ls -A . d").await;
    assert!(seen.starts_with("patchedbornd/link\n../real\nd/new\n"), "{seen}");
    assert!(seen.ends_with("d:\nlink\nnew\n"), "{seen}");
    // `stat` and `remove` act on the symlink itself.
    let stat = client.files().stat(client.lexical_permit(Read, "chain")).await.unwrap();
    assert_eq!(stat.kind, FileKind::Link);
    client.files().remove(client.lexical_permit(Delete, "chain")).await.unwrap();
    assert_eq!(client.out("cat real; test ! -L chain").await, "patched");
}

#[tokio::test]
async fn a_write_through_a_symlink_asks_about_its_target() {
    let test_env = TestEnv::new(BackendName::Local);
    let client = FileSession::open(&test_env, "s").await;
    client.out("ln -s /etc/hosts harmless; ln -s /etc dir").await;
    let hosts = std::fs::read("/etc/hosts").unwrap();
    for path in ["harmless", "dir/hosts"] {
        let permit = client.lexical_permit(WRITE, path);
        let real = resolved_elsewhere(client.files().write(permit, &mut b"x".as_slice(), REPLACE).await);
        assert_eq!(real, "/etc/hosts");
        assert!(matches!(client.verdict(WRITE, path, &real), Verdict::Ask(_)), "{path}");
    }
    assert_eq!(std::fs::read("/etc/hosts").unwrap(), hosts);
    test_env.remove_all().await;
}

pub(crate) async fn a_symlink_changed_after_the_verdict_leaks_and_changes_nothing(fixture: &Fixture) {
    let client = FileSession::open(fixture, "s").await;
    client
        .out("mkdir one two; echo one | tee one/f; echo two | tee two/f; ln -s one way; ln -s one/f file")
        .await;
    let (one, two) = (client.lexical("one"), client.lexical("two"));
    let to = |access, path: &str, real: &str| client.permit(access, path, &format!("{one}{real}"));
    let permits = [to(WRITE, "file", "/f"), to(WRITE, "file", "/f"), to(Read, "file", "/f")];
    let [write, patch, read] = permits;
    let [list, search] = [to(Read, "way", ""), to(Read, "way", "")];
    let [stat, remove] = [to(Read, "way/f", "/f"), to(Delete, "way/f", "/f")];
    client.out("ln -sfn two way; ln -sf two/f file").await;
    let files = client.files();
    let found = format!("{two}/f");
    assert_eq!(resolved_elsewhere(files.write(write, &mut b"x".as_slice(), REPLACE).await), found);
    let edits = vec![edit(b"o", b"0", Occurrences::All)];
    assert_eq!(resolved_elsewhere(files.patch(patch, edits).await), found);
    assert_eq!(resolved_elsewhere(files.read(read, FileRange::Whole).await), found);
    assert_eq!(resolved_elsewhere(files.list(list).await), two);
    assert_eq!(resolved_elsewhere(files.search(search, line_search("o")).await), two);
    assert_eq!(resolved_elsewhere(files.stat(stat).await), found);
    assert_eq!(resolved_elsewhere(files.remove(remove).await), found);
    assert_eq!(client.out("cat one/f two/f; ls -A one two").await, "one\ntwo\none:\nf\n\ntwo:\nf\n");
}

pub(crate) async fn a_write_keeps_mode_and_owner_and_a_new_file_gets_defaults(fixture: &Fixture) {
    let client = FileSession::open(fixture, "s").await;
    client.out("echo old >script; chmod 2751 script; touch by-shell").await;
    // A jail has no other user to own a file.
    if client.plan.backend_name() == BackendName::Local && rustix::process::getuid().is_root() {
        client.out("chown 65534:65533 script; chmod 2751 script").await;
    }
    let before = client.out("stat -c '%a %u %g' script").await;
    client.write("script", b"new").await.unwrap();
    client.patch("script", &[edit(b"new", b"newer", Occurrences::One)]).await.unwrap();
    assert_eq!(client.out("stat -c '%a %u %g' script; cat script").await, format!("{before}newer"));
    client.write("by-tool", b"").await.unwrap();
    let modes = client.out("stat -c '%a %u %g' by-shell by-tool").await;
    let modes: Vec<&str> = modes.lines().collect();
    assert_eq!(modes.first(), modes.last());
    let deep = client.lexical_permit(WRITE, "a/b/c");
    let how = WriteOptions { parents: ParentDirs::Create, ..REPLACE };
    assert_eq!(file_error(client.write("a/b/c", b"").await), os_error(Errno::NOENT));
    client.files().write(deep, &mut b"deep".as_slice(), how).await.unwrap();
    assert_eq!(client.out("cat a/b/c; ls -A").await.split_once('\n').unwrap().0.get(..4), Some("deep"));
}

pub(crate) async fn every_byte_is_preserved(fixture: &Fixture) {
    let contents: [&[u8]; 5] =
        [b"", b"a\r\nb\r\n", b"\xef\xbb\xbfx", b"caf\xe9 \xff\x00\x07\x1b]0;t\x07", b"no end"];
    let client = FileSession::open(fixture, "s").await;
    for content in contents {
        client.write("file", content).await.unwrap();
        assert_eq!(client.read("file").await.unwrap(), content);
        client.write("file", &[content, b"\nold"].concat()).await.unwrap();
        client.patch("file", &[edit(b"\nold", b"\r\nnew", Occurrences::One)]).await.unwrap();
        assert_eq!(client.read("file").await.unwrap(), [content, b"\r\nnew"].concat());
    }
}

pub(crate) async fn concurrent_writers_never_mix_their_content(fixture: &Fixture) {
    let client = FileSession::open(fixture, "s").await;
    let client = std::sync::Arc::new(client);
    client.write("file", &[b'a'; 300_000]).await.unwrap();
    let writers = (b'a'..b'i').map(|byte| {
        let client = client.clone();
        tokio::spawn(async move {
            let content = vec![byte; 300_000];
            for _ in 0..4 {
                let permit = client.lexical_permit(WRITE, "file");
                client.files().write(permit, &mut content.as_slice(), REPLACE).await.unwrap();
                let reader =
                    client.files().read(client.lexical_permit(Read, "file"), FileRange::Whole).await.unwrap();
                let (seen, _) = reader.read_to_end(1 << 20).await.unwrap();
                assert_eq!((seen.len(), seen.iter().all(|byte| *byte == seen[0])), (300_000, true));
            }
        })
    });
    for writer in writers.collect::<Vec<_>>() {
        writer.await.unwrap();
    }
    assert_eq!(client.out("ls -A | grep file").await.trim_end().trim_end_matches("\nfiles"), "file");
}

/// A reader that yields a few bytes and then fails.
struct FailingReader(bool);

impl AsyncRead for FailingReader {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        out: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.0 {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        self.0 = true;
        out.put_slice(b"half");
        Poll::Ready(Ok(()))
    }
}

pub(crate) async fn an_incomplete_write_leaves_the_file_unchanged(fixture: &Fixture) {
    let client = FileSession::open(fixture, "s").await;
    client.write("file", b"whole").await.unwrap();
    let permit = client.lexical_permit(WRITE, "file");
    let broken = client.files().write(permit, &mut FailingReader(false), REPLACE).await;
    assert!(matches!(broken, Err(Error::ReadContent(_))), "{broken:?}");
    assert_eq!(client.read("file").await.unwrap(), b"whole");
}

pub(crate) async fn a_file_permit_is_valid_only_for_its_use_place_and_session(fixture: &Fixture) {
    let (client, other) = (FileSession::open(fixture, "s").await, FileSession::open(fixture, "other").await);
    client.write("file", b"kept").await.unwrap();
    let files = client.files();
    let one = |access| client.lexical_permit(access, "file");
    let write = files.write(one(Read), &mut b"x".as_slice(), REPLACE).await;
    assert!(matches!(write, Err(Error::WrongFileAccess(FileAccess::Write))), "{write:?}");
    let patch = files.patch(one(Delete), vec![edit(b"kept", b"x", Occurrences::One)]).await;
    assert!(matches!(patch, Err(Error::WrongFileAccess(FileAccess::Write))), "{patch:?}");
    let remove = files.remove(one(WRITE)).await;
    assert!(matches!(remove, Err(Error::WrongFileAccess(FileAccess::Delete))), "{remove:?}");
    let read = files.read(one(WRITE), FileRange::Whole).await;
    assert!(matches!(read, Err(Error::WrongFileAccess(FileAccess::Read))), "{read:?}");
    let command =
        files.stat(permit(&client.plan, "s", Work::Shell("stat file".to_owned()), &client.cwd)).await;
    assert!(matches!(command, Err(Error::WrongFileAccess(FileAccess::Read))), "{command:?}");
    let strange = other.files().write(one(WRITE), &mut b"x".as_slice(), REPLACE).await;
    assert!(matches!(strange, Err(Error::Permit(_))), "{strange:?}");
    let started = client.sandbox.start_command(one(Read), run_options(OutputMode::AtEnd)).await;
    assert!(matches!(started, Err(Error::NotACommand)), "{started:?}");
    assert_eq!(client.read("file").await.unwrap(), b"kept");
}

fn line_search(pattern: &str) -> FileSearch {
    let target = SearchMode::Lines { pattern: pattern.to_owned(), context: 0 };
    FileSearch { target, globs: Vec::new(), offset: 0, limit: 50 }
}

pub(crate) async fn a_search_counts_all_matches_and_parses_no_pattern_as_an_option(fixture: &Fixture) {
    let client = FileSession::open(fixture, "s").await;
    client
        .out("mkdir -p w/a; seq 500 | sed 's/^/hit /' >w/a/many; printf 'x -needle --pre=false' >w/dash")
        .await;
    client.out("ln -s a w/link; mkfifo w/pipe; ln -s w here").await;
    let search = async |pattern| {
        let search = async |permit| client.files().search(permit, line_search(pattern)).await;
        client.with_permit(Read, "here", search).await.unwrap()
    };
    let found = search("^hit").await;
    assert_eq!(
        (found.items.len(), found.summary),
        (50, SearchSummary { hits: 500, files: 1, unreadable: 0, binary: 0 })
    );
    for pattern in ["-needle", "--pre=false", "hit 7$|never"] {
        assert_eq!(search(pattern).await.summary.hits, 1, "{pattern}");
    }
}

pub(crate) async fn a_patch_makes_all_edits_or_none(fixture: &Fixture) {
    let content = b"one two\r\ntwo three";
    let client = FileSession::open(fixture, "s").await;
    client.write("file", content).await.unwrap();
    let half = [edit(b"one", b"1", Occurrences::One), edit(b"four", b"4", Occurrences::All)];
    assert_eq!(file_error(client.patch("file", &half).await), FileError::NoMatch { edit: 1 });
    let twice = [edit(b"one", b"1", Occurrences::One), edit(b"two", b"2", Occurrences::One)];
    let ambiguous = FileError::Ambiguous { edit: 1, count: 2 };
    assert_eq!(file_error(client.patch("file", &twice).await), ambiguous);
    assert_eq!(client.read("file").await.unwrap(), content);
    let all = [edit(b"one", b"1", Occurrences::One), edit(b"two", b"2", Occurrences::All)];
    assert_eq!(client.patch("file", &all).await.unwrap(), [1, 2]);
    assert_eq!(client.read("file").await.unwrap(), b"1 2\r\n2 three");
}

pub(crate) async fn a_file_name_is_never_interpreted(fixture: &Fixture) {
    let client = FileSession::open(fixture, "s").await;
    client.out("mkdir names").await;
    for name in ["-rf", "a b", "q'\"`$(touch ran)`", "*", "~", "ä€", "a;b|c>d", "\\"] {
        let path = format!("names/{name}");
        client.write(&path, name.as_bytes()).await.unwrap();
        let listed = client.files().list(client.lexical_permit(Read, "names")).await.unwrap();
        let listed: Vec<&[u8]> = listed.items.iter().map(|entry| entry.name.as_slice()).collect();
        assert_eq!(listed, [name.as_bytes()]);
        assert_eq!(client.read(&path).await.unwrap(), name.as_bytes());
        client.files().remove(client.lexical_permit(Delete, &path)).await.unwrap();
    }
}

pub(crate) async fn a_name_that_is_not_utf8_is_listed_but_has_no_verdict(fixture: &Fixture) {
    let client = FileSession::open(fixture, "s").await;
    client.out("mkdir odd; echo x >$'odd/\\xff'; ln -s $'odd/\\xff' link").await;
    let listed = client.files().list(client.lexical_permit(Read, "odd")).await.unwrap();
    assert_eq!(listed.items.iter().map(|entry| entry.name.as_slice()).collect::<Vec<_>>(), [b"\xff"]);
    for (result, what) in
        [(client.read("link").await.map(drop), "read"), (client.write("link", b"y").await, "write")]
    {
        assert!(matches!(result, Err(Error::PathNotUtf8)), "{what}: {result:?}");
    }
    // A path relative to such a directory is refused too.
    let odd = client.lexical("odd");
    client.out("cd odd; mkdir $'\\xfe'; cd $'\\xfe'").await;
    let lossy = FileSession::open(fixture, "s").await;
    assert!(matches!(lossy.write("new", b"y").await, Err(Error::PathNotUtf8)));
    assert_eq!(
        file_error(client.files().remove(client.permit(Delete, &odd, &odd)).await),
        os_error(Errno::NOTEMPTY)
    );
}

pub(crate) async fn a_path_is_relative_to_the_directory_of_the_session(fixture: &Fixture) {
    let client = FileSession::open(fixture, "s").await;
    client.out("mkdir -p sub other ~/in-home; cd sub").await;
    // This client was opened before the session changed its directory, so its first path is wrong.
    let permit = client.lexical_permit(WRITE, "file");
    let real = resolved_elsewhere(client.files().write(permit, &mut b"x".as_slice(), REPLACE).await);
    assert_eq!(real, client.lexical("sub/file"));
    client.write("file", b"sub").await.unwrap();
    let moved = FileSession::open(fixture, "s").await;
    assert_eq!(
        moved
            .files()
            .read(moved.lexical_permit(Read, "file"), FileRange::Whole)
            .await
            .unwrap()
            .read_to_end(9)
            .await
            .unwrap()
            .0,
        b"sub"
    );
    moved.write("~/in-home/file", b"home").await.unwrap();
    moved.write("../other/../other/./file", b"other").await.unwrap();
    moved.write("~name", b"no home").await.unwrap();
    assert_eq!(
        moved.out("cat ~/in-home/file ../other/file; cat './~name'; ls -A").await,
        "homeotherno homefile\n~name\n"
    );
}

pub(crate) async fn special_and_endless_files_neither_block_nor_use_memory(fixture: &Fixture) {
    let client = FileSession::open(fixture, "s").await;
    client.out("mkfifo pipe; mkdir dir; truncate -s 1T endless").await;
    for path in ["pipe", "dir", "/dev/zero", "/dev/null"] {
        assert_eq!(file_error(client.read(path).await), FileError::NotRegular, "{path}");
    }
    for path in ["pipe", "dir"] {
        assert_eq!(file_error(client.write(path, b"x").await), FileError::NotRegular, "{path}");
        assert_eq!(file_error(client.patch(path, &[]).await), FileError::NotRegular, "{path}");
    }
    assert_eq!(
        file_error(client.files().list(client.lexical_permit(Read, "pipe")).await),
        os_error(Errno::NOTDIR)
    );
    let endless = client.read("endless").await;
    assert!(matches!(endless, Err(Error::TooLarge(1_048_576))), "{endless:?}");
    let patched = client.patch("endless", &[edit(b"a", b"b", Occurrences::All)]).await;
    assert!(matches!(patched, Err(Error::FileFailed(FileError::TooLarge))), "{patched:?}");
    assert_eq!(client.out("ls -A dir").await, "");
}

#[tokio::test]
async fn a_jail_writes_only_its_own_files_and_hides_secrets() {
    let test_env = TestEnv::new(BackendName::Sandbox);
    let owner = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    std::fs::create_dir(owner.path().join(".ssh")).unwrap();
    for name in [".ssh/id", "visible"] {
        std::fs::write(owner.path().join(name), "of the owner").unwrap();
    }
    std::fs::write(test_env.folder.join("on-the-host"), "x").unwrap();
    let fixture = Fixture { owner: owner.path().to_owned(), ..(*test_env).clone() };
    let client = FileSession::open(&fixture, "s").await;
    let at = |dir: &Path, name: &str| dir.join(name).display().to_string();
    assert_eq!(client.read(&at(owner.path(), "visible")).await.unwrap(), b"of the owner");
    let absent = [
        at(owner.path(), ".ssh/id"),
        at(&test_env.folder, "on-the-host"),
        at(&test_env.folder, "hermes/.env"),
    ];
    for path in absent {
        assert_eq!(file_error(client.read(&path).await), os_error(Errno::NOENT), "{path}");
    }
    let shadow = client.read("/etc/shadow").await.unwrap_or_default();
    assert_eq!(shadow, b"", "{}", shadow.len());
    client.out("ln -s /etc/new link").await;
    for path in [at(owner.path(), "visible"), "/etc/hosts".to_owned(), "link".to_owned(), "/new".to_owned()] {
        assert_eq!(file_error(client.write(&path, b"x").await), os_error(Errno::ROFS), "{path}");
    }
    let removed = client.files().remove(client.lexical_permit(Delete, &at(owner.path(), "visible"))).await;
    assert_eq!(file_error(removed), os_error(Errno::ROFS));
    assert_eq!(std::fs::read(owner.path().join("visible")).unwrap(), b"of the owner");
    test_env.remove_all().await;
}
