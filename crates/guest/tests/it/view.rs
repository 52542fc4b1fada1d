//! Commands in a view: protected paths are hidden or read-only, and nothing leads around that.

use std::fs;
use std::path::PathBuf;

use hermes_guest::protocol::guard::{GuardEntry, GuardKind, GuardSpec, GuardState, RunConfinement, ShownDir};
use hermes_guest::protocol::message::{ExitCause, ExitReport, RunRequest, TreeStatus};
use hermes_types::ProtectedClass;
use serde_bytes::ByteBuf;

use crate::fixture::{TestGuest, TestShell, eventually, is_alive};

const ORDINARY_USER: u32 = 4242;

/// A home with protected files, and a guarded session.
struct GuardedHome {
    guest: TestGuest,
    shell: TestShell,
    home: PathBuf,
}

impl GuardedHome {
    async fn start(user: Option<u32>) -> Self {
        let guest = match user {
            Some(user) => TestGuest::start_as(user).await,
            None => TestGuest::start().await,
        };
        let home = guest.dir.path().canonicalize().unwrap().join("home");
        for dir in [".ssh", ".config", "hermes/shown", "docs"] {
            fs::create_dir_all(home.join(dir)).unwrap();
        }
        for file in [".ssh/id", ".netrc", ".bashrc", "hermes/store", "hermes/shown/tool", "docs/letter"] {
            fs::write(home.join(file), format!("text of {file}\n")).unwrap();
        }
        let path = |name: &str| ByteBuf::from(home.join(name).to_str().unwrap());
        let entry = |name, class, kind| GuardEntry { path: path(name), class, kind };
        let guard = GuardSpec {
            cover: path("hermes"),
            entries: vec![
                entry(".ssh", Some(ProtectedClass::SshKeys), GuardKind::Hidden),
                entry(".netrc", Some(ProtectedClass::OtherCredentials), GuardKind::Hidden),
                entry(".bashrc", Some(ProtectedClass::StartupFiles), GuardKind::ReadOnly),
                entry(".profile", Some(ProtectedClass::StartupFiles), GuardKind::ReadOnly),
                entry("docs/startup", Some(ProtectedClass::StartupFiles), GuardKind::ReadOnly),
                entry(".config/autostart", Some(ProtectedClass::StartupFiles), GuardKind::ReadOnly),
            ],
            pinned: vec![path(".config")],
            shown: vec![ShownDir { path: path("hermes/shown"), is_writable: false }],
            writable: None,
            quarantine: path("hermes/quarantine"),
        };
        if let Some(user) = user {
            for entry in walk(&home) {
                std::os::unix::fs::chown(entry, Some(user), Some(user)).unwrap();
            }
            fs::create_dir_all(guest.work()).unwrap();
            std::os::unix::fs::chown(guest.work(), Some(user), Some(user)).unwrap();
        }
        let (shell, state) = guest.guarded_session(guard).await;
        assert_eq!(state, GuardState::Active);
        Self { guest, shell, home }
    }

    /// Runs a command in the view of these classes, in the home.
    async fn run(&self, allowed: &[ProtectedClass], text: &str) -> ExitReport {
        let text = format!("cd {} && {text}", self.home.display());
        let confinement = RunConfinement::Guard(allowed.to_vec());
        self.shell.run(RunRequest { confinement, ..self.shell.command(text) }).await
    }

    async fn output(&self, text: &str) -> String {
        String::from_utf8_lossy(&self.run(&[], text).await.head).into_owned()
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.home.join(name)).unwrap_or_default()
    }
}

fn walk(dir: &std::path::Path) -> Vec<PathBuf> {
    let mut found = vec![dir.to_owned()];
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { found.extend(walk(&path)) } else { found.push(path) }
    }
    found
}

/// Runs a test as this user, and as an ordinary one if this is root.
macro_rules! as_both_users {
    ($name:ident, $home:ident, $body:block) => {
        mod $name {
            use super::*;

            async fn check($home: GuardedHome) {
                $body
            }

            #[tokio::test]
            async fn as_this_user() {
                check(GuardedHome::start(None).await).await;
            }

            #[tokio::test]
            async fn as_an_ordinary_user() {
                if rustix::process::geteuid().is_root() {
                    check(GuardedHome::start(Some(ORDINARY_USER)).await).await;
                } else {
                    eprintln!("skipped: the other test already runs as an ordinary user");
                }
            }
        }
    };
}

as_both_users!(a_view_hides_credentials_and_the_home_of_hermes, home, {
    let shown = home.output("cat .ssh/id .netrc hermes/store; ls -A .ssh; cat hermes/shown/tool").await;
    assert!(!shown.contains("text of .ssh") && !shown.contains("text of .netrc"), "{shown}");
    assert!(!shown.contains("text of hermes/store"), "{shown}");
    assert!(shown.contains("text of hermes/shown/tool"), "{shown}");
    home.run(&[], "echo x > hermes/shown/tool").await;
    assert_eq!(home.read("hermes/shown/tool"), "text of hermes/shown/tool\n");
});

as_both_users!(a_view_keeps_start_up_files, home, {
    let attempts = [
        "echo x >> .bashrc",
        "echo x > new && mv -f new .bashrc",
        "rm -f .bashrc",
        "mv .bashrc away",
        "ln -f docs/letter .bashrc",
        "sed -i s/text/x/ .bashrc",
        "mv .config away",
        "mv .ssh away",
        "rm -rf .ssh",
        "umount .bashrc; echo x >> .bashrc",
        "umount -l hermes .ssh; rm -f .ssh/id",
        "mount -o remount,bind,rw .bashrc; echo x >> .bashrc",
        "chmod 777 .bashrc; chattr +i .bashrc",
        "mount --bind .. ../../mnt || unshare -Urm mount --bind . ../work; echo x >> ../work/.bashrc",
        "unshare -Urm sh -c 'umount -l .bashrc .ssh hermes; echo x >> .bashrc; rm -rf .ssh hermes'",
    ];
    for attempt in attempts {
        home.run(&[], attempt).await;
        assert_eq!(home.read(".bashrc"), "text of .bashrc\n", "{attempt}");
        assert_eq!(home.read(".ssh/id"), "text of .ssh/id\n", "{attempt}");
        assert_eq!(home.read("hermes/store"), "text of hermes/store\n", "{attempt}");
        assert!(home.home.join(".config").is_dir(), "{attempt}");
    }
});

as_both_users!(no_process_outside_leads_out_of_a_view, home, {
    let pid = home.guest.pid;
    let own = std::process::id();
    let text = format!(
        "for p in {pid} {own} $PPID 1; do \
           cat /proc/$p/root{0}/.netrc /proc/$p/cwd{0}/.netrc; \
           nsenter -t $p -m cat {0}/.netrc; dd if=/proc/$p/mem count=1 bs=1 && echo memory; \
           ls -l /proc/$p/fd && echo descriptors; \
         done; for f in /proc/self/fd/*; do cat $f/.netrc $f/../.netrc; done",
        home.home.display()
    );
    let shown = home.output(&text).await;
    assert!(!shown.contains("text of .netrc"), "{shown}");
    assert!(!shown.contains("memory") && !shown.contains("descriptors"), "{shown}");
});

as_both_users!(a_view_shows_the_allowed_classes, home, {
    let ended = home.run(&[ProtectedClass::SshKeys], "cat .ssh/id .netrc").await;
    assert_eq!(String::from_utf8_lossy(&ended.head), "text of .ssh/id\n");
    let ended = home.run(&[ProtectedClass::StartupFiles], "echo more >> .bashrc").await;
    assert_eq!(home.read(".bashrc"), "text of .bashrc\nmore\n", "{ended:?}");
});

as_both_users!(new_start_up_files_are_moved_to_the_quarantine, home, {
    let ended =
        home.run(&[], "echo evil > .profile; mkdir .config/autostart; echo e > .config/autostart/x").await;
    let paths: Vec<_> = ended.quarantined.iter().map(|path| String::from_utf8_lossy(path)).collect();
    assert_eq!(paths.len(), 2, "{paths:?}");
    assert!(!home.home.join(".profile").exists() && !home.home.join(".config/autostart").exists());
    let kept = fs::read_dir(home.home.join("hermes/quarantine")).unwrap().count();
    assert_eq!(kept, 2);
    // A directory in the place of another one brings no files along.
    fs::write(home.home.join("docs/startup"), "original\n").unwrap();
    let ended = home.run(&[], "echo first").await;
    assert!(ended.quarantined.is_empty(), "{ended:?}");
    let ended = home.run(&[], "mv docs away && mkdir docs && echo evil > docs/startup").await;
    assert_eq!(ended.quarantined.len(), 1, "{ended:?}");
    assert!(!home.home.join("docs/startup").exists() && home.read("away/startup") == "original\n");
    // A command that may change them keeps them.
    let ended = home.run(&[ProtectedClass::StartupFiles], "echo good > .profile").await;
    assert_eq!(home.read(".profile"), "good\n", "{ended:?}");
});

as_both_users!(a_new_start_up_file_is_moved_while_its_program_runs, home, {
    // The directory of the file is new too.
    let attempts = [".profile", ".config/autostart/x", "docs/startup/deep"];
    for path in attempts {
        let text = format!(
            "sleep 0.05; {{ mkdir -p $(dirname {path}) && echo evil > {path}; }} 2>/dev/null; \
             for i in $(seq 40); do test -e {path} || break; sleep 0.005; done; \
             if test -e {path}; then echo there; else echo gone; fi"
        );
        let ended = home.run(&[], &text).await;
        assert_eq!(String::from_utf8_lossy(&ended.head), "gone\n", "{path}");
        assert_eq!(ended.quarantined.len(), 1, "{path}: {ended:?}");
    }
});

as_both_users!(a_program_that_keeps_creating_start_up_files_is_ended, home, {
    let attempts = [
        "while :; do echo evil > .profile; done",
        "while :; do mkdir -p .config/autostart && echo evil > .config/autostart/x; done",
        "while :; do mv docs away; mkdir docs; echo evil > docs/startup; mv away docs; done",
        "while :; do ln -s /tmp/evil .profile; sleep 0.01; done",
    ];
    for attempt in attempts {
        let ended = home.run(&[], attempt).await;
        assert_eq!((ended.cause, ended.code), (ExitCause::Guard, 137), "{attempt}");
        for path in [".profile", ".config/autostart", "docs/startup"] {
            assert!(home.home.join(path).symlink_metadata().is_err(), "{attempt} left {path}");
        }
    }
    // The command ends, a process that it left goes on.
    let ended = home.run(&[], "(setsid sh -c 'while :; do echo evil > .profile; done' &) ; echo $!").await;
    let tree_is_gone = async || {
        let running = home.shell.client.processes().await.unwrap();
        running.iter().all(|process| process.tree == TreeStatus::Gone)
    };
    eventually(&format!("it ends: {ended:?}"), tree_is_gone).await;
    assert!(!home.home.join(".profile").exists());
    // A program that creates no protected path goes on.
    let server = home.run(&[], "(sleep 60 & echo $! > server.pid)").await;
    assert_eq!(server.code, 0);
    for _ in 0..2 {
        home.run(&[], "echo evil > .profile").await;
    }
    assert!(is_alive(&home.read("server.pid")));
});

as_both_users!(a_program_signals_only_programs_of_its_session, home, {
    let all = [vec![], vec![ProtectedClass::DesktopSession], vec![ProtectedClass::SshKeys]];
    let outside = home.start_outside("sleep", &["60"]);
    for allowed in &all {
        for target in [outside.0.id(), home.guest.pid] {
            let ended = home.run(allowed, &format!("kill -0 {target} || kill {target}")).await;
            assert_ne!(ended.code, 0, "{allowed:?}");
            assert!(is_alive(&target.to_string()), "{allowed:?}");
        }
    }
    // A server that an earlier command left, whatever that command and this one may use.
    for by in &all {
        for to in &all {
            home.run(to, "sleep 60 & echo $! > server.pid").await;
            assert!(is_alive(&home.read("server.pid")));
            let ended = home.run(by, "kill $(cat server.pid)").await;
            assert_eq!(ended.code, 0, "{by:?} to {to:?}: {ended:?}");
        }
    }
    let ended = home.run(&[], "sleep 60 & kill $! && wait $!; sleep 60 & kill %%; wait %%").await;
    assert_eq!(ended.code, 143, "{ended:?}");
    let approved = home.run(&[ProtectedClass::OtherPrograms], &format!("kill {}", outside.0.id())).await;
    assert_eq!(approved.code, 0, "{approved:?}");
    eventually("the program ends", async || !is_alive(&outside.0.id().to_string())).await;
});

as_both_users!(abstract_sockets_outside_are_out_of_reach, home, {
    use std::os::linux::net::SocketAddrExt;
    let name = format!("hermes-test-{}-{}", std::process::id(), home.guest.pid);
    let address = std::os::unix::net::SocketAddr::from_abstract_name(&name).unwrap();
    let _listener = std::os::unix::net::UnixListener::bind_addr(&address).unwrap();
    let connect = format!(
        "python3 -c 'import socket; socket.socket(socket.AF_UNIX).connect(\"\\0{name}\"); print(\"connected\")'"
    );
    let shown = home.output(&connect).await;
    assert!(shown.contains("Operation not permitted"), "{shown}");
    for class in [ProtectedClass::DesktopSession, ProtectedClass::TerminalSessions] {
        let ended = home.run(&[class], &connect).await;
        assert_eq!(String::from_utf8_lossy(&ended.head), "connected\n");
    }
    let own = "python3 -c 'import socket; s = socket.socket(socket.AF_UNIX); s.bind(\"\\0own\"); s.listen(); \
               socket.socket(socket.AF_UNIX).connect(\"\\0own\"); print(\"own\")'";
    assert_eq!(home.output(own).await, "own\n");
});

as_both_users!(programs_do_not_inherit_the_script_of_their_shell, home, {
    let shown = home.output("bash -c 'cd /proc/self/fd; echo [0-9]*'").await;
    // The last one is the directory that is listed.
    assert_eq!(shown, "0 1 2 242 3\n");
});

#[tokio::test]
async fn root_cannot_leave_a_view_as_another_user() {
    if !rustix::process::geteuid().is_root() {
        return eprintln!("skipped: only root can become another user");
    }
    let home = GuardedHome::start(None).await;
    let outside = home.start_outside_as("sleep", &["60"], ORDINARY_USER);
    let become_user = format!("setpriv --reuid {ORDINARY_USER} --regid {ORDINARY_USER} --clear-groups");
    let own = home.run(&[], &format!("{become_user} readlink /proc/self/root")).await;
    assert_eq!(own.code, 0, "{own:?}");
    let ended = home.run(&[], &format!("{become_user} readlink /proc/{}/root", outside.0.id())).await;
    assert_ne!(ended.code, 0, "{ended:?}");
}

as_both_users!(commands_in_a_view_work_as_usual, home, {
    let text = "id -u; echo a > docs/new && stat -c %u docs/new; ps -o pid= -p $$ | wc -l; \
                (sleep 0.01 & wait); cat <<< here; echo in > /dev/null; test -t 0 || echo piped; \
                mktemp >/dev/null && echo temporary; export KEPT=1; f() { echo function; }";
    let uid = if home.shell_user_is_root() { 0 } else { ORDINARY_USER };
    let shown = home.output(text).await;
    if rustix::process::geteuid().is_root() {
        assert_eq!(shown, format!("{uid}\n{uid}\n1\nhere\npiped\ntemporary\n"));
    }
    assert_eq!(home.output("echo $KEPT; f; pwd").await, format!("1\nfunction\n{}\n", home.home.display()));
});

/// A program of the owner, ended on drop.
struct OutsideProgram(std::process::Child);

impl Drop for OutsideProgram {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

impl GuardedHome {
    /// Starts a program of the user of the session.
    fn start_outside(&self, program: &str, args: &[&str]) -> OutsideProgram {
        let user = if self.shell_user_is_root() { 0 } else { ORDINARY_USER };
        self.start_outside_as(program, args, user)
    }

    #[expect(clippy::disallowed_methods, reason = "tests start the programs they attack")]
    fn start_outside_as(&self, program: &str, args: &[&str], user: u32) -> OutsideProgram {
        use std::os::unix::process::CommandExt;
        let mut command = std::process::Command::new(program);
        if rustix::process::geteuid().is_root() {
            command.uid(user).gid(user);
        }
        OutsideProgram(command.args(args).spawn().unwrap())
    }

    fn shell_user_is_root(&self) -> bool {
        use std::os::unix::fs::MetadataExt;
        fs::metadata(self.guest.dir.path()).unwrap().uid() == 0
    }
}

#[tokio::test]
async fn only_the_project_is_writable_with_a_project_guard() {
    let guest = TestGuest::start().await;
    let root = guest.dir.path().canonicalize().unwrap();
    for dir in ["hermes", "project", "documents"] {
        fs::create_dir_all(root.join(dir)).unwrap();
    }
    let path = |name: &str| ByteBuf::from(root.join(name).to_str().unwrap());
    let guard = GuardSpec {
        cover: path("hermes"),
        entries: Vec::new(),
        pinned: Vec::new(),
        shown: Vec::new(),
        writable: Some(vec![path("project"), ByteBuf::from("/dev"), ByteBuf::from("/proc")]),
        quarantine: path("hermes/quarantine"),
    };
    let (shell, state) = guest.guarded_session(guard).await;
    assert_eq!(state, GuardState::Active);
    let text = format!("cd {}; echo a > project/a && echo made; echo b > documents/b", root.display());
    let confinement = RunConfinement::Guard(Vec::new());
    let ended = shell.run(RunRequest { confinement, ..shell.command(text) }).await;
    let shown = String::from_utf8_lossy(&ended.head).into_owned();
    assert!(shown.contains("made") && shown.contains("Read-only file system"), "{shown}");
    assert!(root.join("project/a").exists() && !root.join("documents/b").exists());
}
