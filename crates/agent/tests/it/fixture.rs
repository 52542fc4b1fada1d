//! A [`TestEnv`] with directories of its own, which a test must leave without running processes.

use std::fs;
use std::ops::{Deref, DerefMut};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::Duration;

use hermes_agent::Tool;
use hermes_exec::Places;
use hermes_testkit::peers;
use serde_json::{Value, json};

use crate::env::{BackendKind, TestEnv, TestSession};

const EVENTUALLY_TIMEOUT: Duration = Duration::from_secs(60);
const POLL_INTERVAL: Duration = Duration::from_millis(5);

pub(crate) struct Fixture {
    env: TestEnv,
    /// Removed when dropped.
    _folders: [tempfile::TempDir; 2],
}

impl Deref for Fixture {
    type Target = TestEnv;

    fn deref(&self) -> &TestEnv {
        &self.env
    }
}

impl DerefMut for Fixture {
    fn deref_mut(&mut self) -> &mut TestEnv {
        &mut self.env
    }
}

impl Fixture {
    pub(crate) fn local() -> Self {
        Self::new(BackendKind::Local)
    }

    pub(crate) fn sandbox() -> Self {
        Self::new(BackendKind::Sandbox)
    }

    /// Containers of an image that `cargo xtask peers up` built.
    pub(crate) fn docker(image: &str) -> Self {
        let socket = peers::socket("docker").unwrap();
        let image = peers::image(image).unwrap();
        Self::new(BackendKind::Docker { socket, image: image["reference"].as_str().unwrap().to_owned() })
    }

    fn new(kind: BackendKind) -> Self {
        let folder = tempfile::tempdir().unwrap();
        // The gate exempts temporary directories of the system, so the owner's files are elsewhere.
        let owner = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let cache = Path::new(env!("CARGO_TARGET_TMPDIR")).join("guest");
        let helper = Path::new(env!("CARGO_BIN_EXE_agent-jailer"));
        let real = |folder: &tempfile::TempDir| folder.path().canonicalize().unwrap();
        let env = TestEnv::new(kind, &real(&folder), &real(&owner), &cache, helper);
        fs::create_dir_all(env.work()).unwrap();
        fs::create_dir_all(env.hermes_home()).unwrap();
        Self { env, _folders: [folder, owner] }
    }

    /// Starts another hermes that runs a script.
    #[expect(clippy::disallowed_methods, reason = "the test kills this process")]
    pub(crate) fn spawn_hermes(&self, code: &str) -> Child {
        let kind = match &self.kind {
            BackendKind::Local => json!("local"),
            BackendKind::Sandbox => json!("sandbox"),
            BackendKind::Docker { socket, image } => json!({"socket": socket, "image": image}),
        };
        let env = json!({
            "kind": kind, "folder": self.folder, "owner": self.owner, "cache": self.cache, "helper": self.helper,
        });
        Command::new(&self.helper).arg(env.to_string()).arg(code).spawn().unwrap()
    }

    /// Files of scripts that still exist in the run directories.
    pub(crate) fn script_files(&self) -> Vec<PathBuf> {
        let mut found = Vec::new();
        let mut next = vec![self.folder.join("run")];
        while let Some(dir) = next.pop() {
            for entry in fs::read_dir(&dir).into_iter().flatten().flatten() {
                if entry.file_name().to_string_lossy().starts_with("code-") {
                    found.push(entry.path());
                } else if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                    next.push(entry.path());
                }
            }
        }
        found
    }

    /// Checks that no script left files, and ends all execution environments.
    pub(crate) async fn remove(self) {
        assert_eq!(self.script_files(), Vec::<PathBuf>::new());
        self.end_places().await;
    }

    pub(crate) async fn end_places(&self) {
        let places = Places { run_dir: self.folder.join("run"), kept_dirs: vec![self.folder.join("kept")] };
        let failed = places.end_all(places.list().await.unwrap()).await;
        assert!(failed.is_empty(), "{failed:?}");
    }
}

impl TestSession {
    /// Runs a command that must succeed, and returns its output.
    pub(crate) async fn shell(&self, command: &str) -> String {
        let result = self.call(Tool::Terminal, json!({"command": command})).await;
        assert_eq!(result.content["exit_code"], 0, "{command}: {}", result.content);
        result.content["output"].as_str().unwrap().trim_end().to_owned()
    }

    /// The content of a call that must succeed.
    pub(crate) async fn succeed(&self, tool: Tool, arguments: Value) -> Value {
        let result = self.call(tool, arguments.clone()).await;
        assert!(result.succeeded, "{arguments}: {}", result.content);
        result.content
    }

    /// The error of a call that must fail.
    pub(crate) async fn error(&self, tool: Tool, arguments: Value) -> String {
        let result = self.call(tool, arguments.clone()).await;
        assert!(!result.succeeded, "{arguments}: {}", result.content);
        result.content["error"].as_str().unwrap_or_default().to_owned()
    }
}

/// Processes that have this word in their command line.
pub(crate) fn running(word: &str) -> Vec<i32> {
    let all = fs::read_dir("/proc").unwrap().flatten();
    let pids = all.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let has_word = |pid: &i32| {
        let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        words.split(|byte| *byte == 0).any(|one| one == word.as_bytes())
    };
    pids.filter(has_word).collect()
}

/// Waits until a condition holds.
pub(crate) async fn eventually(what: &str, condition: impl AsyncFn() -> bool) {
    let wait = async {
        while !condition().await {
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    };
    assert!(tokio::time::timeout(EVENTUALLY_TIMEOUT, wait).await.is_ok(), "not in time: {what}");
}
