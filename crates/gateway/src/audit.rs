//! Who asked what, what ran where, who allowed it: a file that only grows.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Value, json};

use crate::clock::now;

/// The file. What cannot be written to it is a warning: a full disk does not end a conversation.
#[derive(Debug, Clone)]
pub struct Audit(Arc<Mutex<File>>);

impl Audit {
    /// Opens the file, or makes it, for its owner alone.
    pub fn open(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().create(true).append(true).mode(0o600).open(path)?;
        Ok(Self(Arc::new(Mutex::new(file))))
    }

    /// Adds a line.
    pub(crate) fn note(&self, what: &str, about: &Value) {
        let mut line = json!({ "at": now(), "what": what, "about": about }).to_string();
        line.push('\n');
        let mut file = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Err(error) = file.write_all(line.as_bytes()) {
            tracing::warn!(%error, "the audit log cannot be written");
        }
    }
}
