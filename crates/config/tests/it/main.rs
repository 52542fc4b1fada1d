//! Tests of the configuration with real files.
#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

mod edits;
mod hostile;
mod layers;

use std::fs;
use std::path::Path;

/// A home in a temporary directory.
struct Home(tempfile::TempDir);

impl Home {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn with_config(text: &str) -> Self {
        let home = Self::new();
        home.write("config.yaml", text);
        home
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn write(&self, name: &str, text: impl AsRef<[u8]>) {
        fs::write(self.path().join(name), text).unwrap();
    }

    fn load(&self, process: &[(&str, &str)]) -> hermes_config::LoadedConfig {
        let process = process.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect();
        hermes_config::load(self.path(), process)
    }
}
