//! A bed of one test, which must be left as it was found.

use std::fs;
use std::ops::{Deref, DerefMut};
use std::path::Path;

use hermes_agent::Tool;
use hermes_exec::Places;
use serde_json::{Value, json};

use crate::bed::{Bed, Kind, Session};

#[derive(Debug)]
pub(crate) struct Ground {
    bed: Bed,
    /// Removed when they are dropped.
    _folders: [tempfile::TempDir; 2],
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

    fn new(kind: Kind) -> Self {
        let folder = tempfile::tempdir().unwrap();
        // What is in a temporary directory of the system is nobody's.
        let owner = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let cache = Path::new(env!("CARGO_TARGET_TMPDIR")).join("guest");
        let helper = Path::new(env!("CARGO_BIN_EXE_agent-jailer"));
        let real = |folder: &tempfile::TempDir| folder.path().canonicalize().unwrap();
        let bed = Bed::new(kind, &real(&folder), &real(&owner), &cache, helper);
        fs::create_dir_all(bed.work()).unwrap();
        fs::create_dir_all(bed.hermes_home()).unwrap();
        Self { bed, _folders: [folder, owner] }
    }

    /// Ends all places.
    pub(crate) async fn leave(self) {
        let places = Places { run_dir: self.folder.join("run"), kept_dirs: vec![self.folder.join("kept")] };
        let failed = places.end_all(places.list().await.unwrap()).await;
        assert!(failed.is_empty(), "{failed:?}");
    }
}

impl Session {
    /// Runs a command that works, and gives what it says.
    pub(crate) async fn shell(&self, command: &str) -> String {
        let done = self.call(Tool::Terminal, json!({"command": command})).await;
        assert_eq!(done.content["exit_code"], 0, "{command}: {}", done.content);
        done.content["output"].as_str().unwrap().to_owned()
    }

    /// What a call answers that works.
    pub(crate) async fn told(&self, tool: Tool, arguments: Value) -> Value {
        let done = self.call(tool, arguments.clone()).await;
        assert!(done.succeeded, "{arguments}: {}", done.content);
        done.content
    }

    /// What a call answers that does not work.
    pub(crate) async fn error(&self, tool: Tool, arguments: Value) -> String {
        let done = self.call(tool, arguments.clone()).await;
        assert!(!done.succeeded, "{arguments}: {}", done.content);
        done.content["error"].as_str().unwrap_or_default().to_owned()
    }
}
