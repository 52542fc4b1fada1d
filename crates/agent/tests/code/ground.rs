//! A bed of one test, which must be left as it was found.

use std::fs;
use std::ops::{Deref, DerefMut};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::Duration;

use hermes_agent::Tool;
use hermes_exec::Places;
use hermes_testkit::peers;
use serde_json::json;

use crate::bed::{Bed, Kind, Session};

/// How long anything may take that is bound to happen.
const PATIENCE: Duration = Duration::from_secs(30);

#[derive(Debug)]
pub(crate) struct Ground {
    bed: Bed,
    /// Removed when it is dropped.
    _folder: tempfile::TempDir,
}

impl Deref for Ground {
    type Target = Bed;

    fn deref(&self) -> &Bed {
        &self.bed
    }
}

impl DerefMut for Ground {
    fn deref_mut(&mut self) -> &mut Bed {
        &mut self.bed
    }
}

impl Ground {
    pub(crate) fn local() -> Self {
        Self::new(Kind::Local)
    }

    pub(crate) fn sandbox() -> Self {
        Self::new(Kind::Sandbox)
    }

    /// Containers of an image that `cargo xtask peers up` made.
    pub(crate) fn docker(image: &str) -> Self {
        let socket = peers::socket("docker").unwrap();
        let image = peers::image(image).unwrap();
        Self::new(Kind::Docker { socket, image: image["reference"].as_str().unwrap().to_owned() })
    }

    fn new(kind: Kind) -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("work")).unwrap();
        let cache = Path::new(env!("CARGO_TARGET_TMPDIR")).join("guest");
        let helper = Path::new(env!("CARGO_BIN_EXE_agent-jailer"));
        Self { bed: Bed::new(kind, folder.path(), &cache, helper), _folder: folder }
    }

    /// What another process needs to know of it.
    fn told(&self) -> String {
        let kind = match &self.kind {
            Kind::Local => json!("local"),
            Kind::Sandbox => json!("sandbox"),
            Kind::Docker { socket, image } => json!({"socket": socket, "image": image}),
        };
        json!({"kind": kind, "folder": self.folder, "cache": self.cache, "helper": self.helper}).to_string()
    }

    /// Another hermes that runs a script.
    #[expect(clippy::disallowed_methods, reason = "what is killed here must be another process")]
    pub(crate) fn another_hermes(&self, code: &str) -> Child {
        Command::new(&self.helper).arg(self.told()).arg(code).spawn().unwrap()
    }

    /// Files of scripts that are there, in the rooms of the places.
    pub(crate) fn files_of_scripts(&self) -> Vec<PathBuf> {
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

    /// Ends all places, in which nothing of a script is left.
    pub(crate) async fn leave(self) {
        assert_eq!(self.files_of_scripts(), Vec::<PathBuf>::new());
        let places = Places { run_dir: self.folder.join("run"), kept_dirs: vec![self.folder.join("kept")] };
        let failed = places.end_all(places.list().await.unwrap()).await;
        assert!(failed.is_empty(), "{failed:?}");
    }
}

impl Session {
    /// Runs a command, and gives its output without the last line end.
    pub(crate) async fn shell(&self, command: &str) -> String {
        let done = self.call(Tool::Terminal, json!({"command": command})).await;
        assert_eq!(done.content["exit_code"], 0, "{command}: {}", done.content);
        done.content["output"].as_str().unwrap().trim_end().to_owned()
    }
}

/// Processes whose command line has this word in it.
pub(crate) fn running(word: &str) -> Vec<i32> {
    let all = fs::read_dir("/proc").unwrap().flatten();
    let pids = all.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let has_word = |pid: &i32| {
        let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        words.split(|byte| *byte == 0).any(|one| one == word.as_bytes())
    };
    pids.filter(has_word).collect()
}

/// Waits for what is bound to happen.
pub(crate) async fn until(what: &str, holds: impl Fn() -> bool) {
    let wait = async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    assert!(tokio::time::timeout(PATIENCE, wait).await.is_ok(), "not in time: {what}");
}
