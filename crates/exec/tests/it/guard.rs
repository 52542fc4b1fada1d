//! Commands under the guard of this machine: everyday tools work, and what they may not do is
//! explained.

use std::fs;
use std::path::Path;

use hermes_exec::{Backend, LocalBackend, ResolvedPlace, Spec};
use hermes_types::{BackendName, Guard, SessionKey};

use crate::session::{Session, TestEnv, text};

/// The owner's home is the working directory of these places.
fn prepare_home(test_env: &TestEnv) {
    let home = test_env.folder.join("work");
    for dir in [".ssh", "documents", "project/.git/hooks"] {
        fs::create_dir_all(home.join(dir)).unwrap();
    }
    for file in [".ssh/id_ed25519", ".bashrc", ".npmrc", "documents/report", "project/.git/config"] {
        fs::write(home.join(file), format!("# text of {file}\n")).unwrap();
    }
}

#[expect(clippy::disallowed_methods, reason = "the tests use the tools of their user")]
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

async fn open(test_env: &TestEnv, guard: Guard, cwd: &str) -> Session {
    let spec = test_env.spec();
    // The tools of the Rust installation of the tests are part of the everyday tools.
    let path = variable("PATH").unwrap();
    let base_env = vec![("PATH".to_owned(), path)];
    let backend = Backend::Local(LocalBackend { base_env, guard });
    let env = ["CARGO_HOME", "RUSTUP_HOME"]
        .iter()
        .filter_map(|name| Some(((*name).to_owned(), variable(name)?)))
        .collect();
    let cwd = test_env.folder.join("work").join(cwd).display().to_string();
    let spec = Spec { backend, cwd, env, ..spec };
    let plan = ResolvedPlace::new(test_env.host(), spec, SessionKey::new("s")).unwrap();
    Session { sandbox: plan.open().await.unwrap(), plan, key: "s".to_owned() }
}

#[tokio::test]
async fn everyday_tools_work_under_the_guard() {
    let test_env = TestEnv::new(BackendName::Local);
    prepare_home(&test_env);
    let s = open(&test_env, Guard::Protect, "").await;
    assert!(s.sandbox.take_unenforced_limits().await.is_empty(), "the guard does not work here");
    let rustup = variable("RUSTUP_HOME").unwrap_or_else(|| format!("{}/.rustup", variable("HOME").unwrap()));
    let tools: &[(&str, &str)] = &[
        ("id", "test \"$(id -un)\" = \"$(whoami)\" && test \"$(id -u)\" = \"$(stat -c %u .)\""),
        ("touch", "touch made && test \"$(stat -c %u made)\" = \"$(id -u)\" && chmod 640 made && rm made"),
        ("ps", "ps -o pid= -p $$ && ps aux | grep -q ps"),
        (
            "git",
            "git init -q repo && cd repo && echo a > a && git add a && \
                 git -c user.name=a -c user.email=a@b commit -qm a && git checkout -qb other && \
                 git stash list && git log --oneline | grep -q a && cd .. && git clone -q repo copy && \
                 git -C copy remote -v && git -C copy config user.name b && git -C copy pull -q",
        ),
        (
            "make",
            "mkdir -p m && printf 'all:\\n\\techo built > out\\n' > m/Makefile && make -C m && cat m/out",
        ),
        ("gcc", "echo 'int main(void){return 0;}' > a.c && gcc -o a.out a.c && ./a.out"),
        ("python3", "python3 -m venv --without-pip v && ./v/bin/python -c 'import json, ssl, sqlite3'"),
        (
            "npm",
            "mkdir -p n && cd n && npm init -y && npm pack && npm install --offline ./n-1.0.0.tgz; \
                 test -f package.json; cd ..",
        ),
        (
            "cargo",
            "cargo new -q --vcs none crate_a && cargo build -q --offline \
                   --manifest-path crate_a/Cargo.toml && ./crate_a/target/debug/crate_a",
        ),
        (
            "tar",
            "tar czf all.tgz documents && mkdir -p out && tar xzf all.tgz -C out && test -s out/documents/report",
        ),
        ("vim", "vim -es -u NONE '+normal ihello' +wq edited; grep -q hello edited"),
        (
            "pip",
            "python3 -m venv v2 && mkdir -p pkg/demo && touch pkg/demo/__init__.py && \
                 printf '[project]\\nname=\"demo\"\\nversion=\"1\"\\n' > pkg/pyproject.toml && \
                 ./v2/bin/pip --version && ./v2/bin/python -c 'import pip'",
        ),
        (
            "git",
            "git init -q --bare served.git && git -C repo push -q ../served.git other && \
                 git -C repo worktree add -q ../tree && git -C repo worktree list | grep -q tree && \
                 git -C repo gc -q && git -C repo worktree remove ../tree",
        ),
        ("python3", "python3 -m http.server --bind 127.0.0.1 0 >/dev/null 2>&1 & echo $! > server.pid"),
        ("kill", "kill $(cat server.pid) && ! kill -0 1"),
        (
            "pytest",
            "printf 'def test_it(tmp_path):\\n    (tmp_path / \"x\").write_text(\"x\")\\n' > test_it.py && \
                 pytest -q test_it.py",
        ),
        ("sed", "cp documents/report r && sed -i s/text/TEXT/ r && grep -q TEXT r"),
        ("mktemp", "f=$(mktemp) && echo x > $f && rm $f"),
        ("bash", "(sleep 0.05 & wait); cat <(echo in) | grep -q in; echo x > /dev/null; tty || true"),
    ];
    for (tool, command) in tools {
        if s.run(&format!("command -v {tool}")).await.code != 0 {
            assert!(variable("CI").is_none(), "{tool} is not installed");
            eprintln!("skipped: {tool} is not installed");
            continue;
        }
        let command = format!("export RUSTUP_HOME={rustup}; {command}");
        let outcome = s.run(&command).await;
        assert_eq!(outcome.code, 0, "{tool}: {}", text(&outcome));
        assert_eq!(outcome.guard_note, None, "{tool}");
    }
    test_env.remove_all().await;
}

#[tokio::test]
async fn a_failure_because_of_the_guard_is_explained() {
    let test_env = TestEnv::new(BackendName::Local);
    prepare_home(&test_env);
    let home = test_env.folder.join("work");
    let read = |name: &str| fs::read_to_string(home.join(name)).unwrap_or_default();
    let s = open(&test_env, Guard::Protect, "").await;
    let script = |name: &str, text: &str| fs::write(home.join(name), text).unwrap();
    script("a.sh", "echo evil >> ~/.bashrc\n");
    script("b.sh", "cat ~/.ssh/id_ed25519\n");
    script("c.sh", "echo evil > project/.git/hooks/pre-commit\n");
    for (file, named) in
        [("a.sh", "start-up files"), ("b.sh", "SSH keys"), ("c.sh", "git settings and hooks")]
    {
        let outcome = s.run(&format!("bash {file}")).await;
        let note = outcome.guard_note.clone().unwrap_or_default();
        assert!(note.contains(named) && note.contains("terminal.guard"), "{file}: {outcome:?}");
        assert!(!text(&outcome).contains("text of"), "{}", text(&outcome));
    }
    assert_eq!(read(".bashrc"), "# text of .bashrc\n");
    script("e.sh", "mkdir -p ~/.local/bin; echo evil > ~/.local/bin/ls; echo fine > ~/.local/bin/mytool\n");
    let outcome = s.run("bash e.sh").await;
    assert!(outcome.guard_note.clone().is_some_and(|note| note.contains("bin/ls")), "{}", text(&outcome));
    assert!(!home.join(".local/bin/ls").exists() && home.join(".local/bin/mytool").exists());
    if rustix::process::geteuid().is_root() {
        script("f.sh", "echo evil > /usr/bin/hermes-test; echo evil > /etc/hermes-test\n");
        let outcome = s.run("bash f.sh").await;
        assert!(outcome.guard_note.is_some_and(|note| note.contains("files of the system")));
        assert!(!Path::new("/usr/bin/hermes-test").exists() && !Path::new("/etc/hermes-test").exists());
    }
    script("d.sh", "echo evil > ~/.zshrc\n");
    let outcome = s.run("bash d.sh").await;
    assert!(outcome.guard_note.is_some_and(|note| note.contains("quarantine")), "{}", read(".zshrc"));
    assert!(!home.join(".zshrc").exists());
    // The text of the command names the file, so the owner was asked about it.
    let outcome = s.run("echo good >> ~/.bashrc").await;
    assert_eq!((outcome.code, outcome.guard_note), (0, None));
    assert_eq!(read(".bashrc"), "# text of .bashrc\ngood\n");
    test_env.remove_all().await;
}

#[tokio::test]
async fn hooks_of_repositories_anywhere_in_the_home_are_kept() {
    let test_env = TestEnv::new(BackendName::Local);
    prepare_home(&test_env);
    let home = test_env.folder.join("work");
    for dir in ["src/a/b/repo/.git/hooks", "src/a/b/repo/.git/modules/sub/hooks", "srv/bare/hooks"] {
        fs::create_dir_all(home.join(dir)).unwrap();
    }
    for dir in ["objects", "refs"] {
        fs::create_dir_all(home.join("srv/bare").join(dir)).unwrap();
    }
    for file in ["src/a/b/repo/.git/config", "srv/bare/HEAD", "src/a/b/repo/file"] {
        fs::write(home.join(file), "before\n").unwrap();
    }
    let s = open(&test_env, Guard::Protect, "project").await;
    let script = "cd ~/src/a/b/repo; echo e > .git/hooks/pre-commit; echo e > .git/config; mv .git git
        echo e > .git/modules/sub/hooks/post-checkout; echo e > ~/srv/bare/hooks/post-receive
        echo after > file\n";
    fs::write(home.join("project/x.sh"), script).unwrap();
    let outcome = s.run("bash x.sh").await;
    let read = |file: &str| fs::read_to_string(home.join(file)).unwrap_or_default();
    assert_eq!(
        (read("src/a/b/repo/.git/config"), read("src/a/b/repo/file")),
        ("before\n".into(), "after\n".into())
    );
    for hook in [
        "src/a/b/repo/.git/hooks/pre-commit",
        "src/a/b/repo/.git/modules/sub/hooks/post-checkout",
        "srv/bare/hooks/post-receive",
    ] {
        assert!(!home.join(hook).exists(), "{hook}: {}", text(&outcome));
    }
    // Approved.
    let outcome = s.run("rm -rf ~/src/a").await;
    assert_eq!((outcome.code, home.join("src/a").exists()), (0, false), "{}", text(&outcome));
    test_env.remove_all().await;
}

#[tokio::test]
async fn project_guard_leaves_only_the_project_and_caches_writable() {
    let test_env = TestEnv::new(BackendName::Local);
    prepare_home(&test_env);
    let home = test_env.folder.join("work");
    // Everything below the temporary directory would be writable.
    let s = open(&test_env, Guard::Project, "project").await;
    fs::write(home.join("project/x.sh"), "echo new > made; echo y > /usr/local/hermes-test; touch /tmp/$$\n")
        .unwrap();
    let outcome = s.run("bash x.sh").await;
    assert!(text(&outcome).contains("Read-only file system"), "{}", text(&outcome));
    assert!(home.join("project/made").exists() && !Path::new("/usr/local/hermes-test").exists());
    test_env.remove_all().await;
}

#[tokio::test]
async fn without_a_guard_nothing_is_protected() {
    let test_env = TestEnv::new(BackendName::Local);
    prepare_home(&test_env);
    let home = test_env.folder.join("work");
    let s = open(&test_env, Guard::Off, "").await;
    fs::write(home.join("a.sh"), "echo more >> ~/.bashrc\n").unwrap();
    let outcome = s.run("bash a.sh").await;
    assert_eq!((outcome.code, outcome.guard_note), (0, None));
    assert_eq!(fs::read_to_string(home.join(".bashrc")).unwrap(), "# text of .bashrc\nmore\n");
    test_env.remove_all().await;
}
