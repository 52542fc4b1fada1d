//! Who asked what, what ran where, who allowed it: a file that only grows.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use hermes_types::Timestamp;
use hermes_types::text::is_hidden;
use serde_json::{Value, json};

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
        let mut line = plain(&json!({ "at": Timestamp::now(), "what": what, "about": about }).to_string());
        line.push('\n');
        let mut file = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Err(error) = file.write_all(line.as_bytes()) {
            tracing::warn!(%error, "the audit log cannot be written");
        }
    }
}

/// The same JSON, with escapes for all that a terminal obeys, that hides or turns what stands beside it, or that some programs
/// take for the end of a line. It stands in strings only.
fn plain(json: &str) -> String {
    let mut plain = String::with_capacity(json.len());
    for char in json.chars() {
        if char.is_control() || is_hidden(char) {
            for unit in char.encode_utf16(&mut [0; 2]) {
                plain.push_str(&format!("\\u{unit:04x}"));
            }
        } else {
            plain.push(char);
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_somebody_writes_stays_on_one_line_and_is_only_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.jsonl");
        let said =
            "a\n\u{85}b\u{2028}{\"what\":\"answer\"}\u{9b}31m\u{1b}[2J\u{202e}c\u{e0041}\u{7f} ärger 文";
        Audit::open(&path).unwrap().note("call", &json!({ "what": said }));
        let text = std::fs::read_to_string(&path).unwrap();
        let line = text.strip_suffix('\n').unwrap();
        assert!(!line.chars().any(|char| char.is_control() || is_hidden(char)), "{line:?}");
        assert!(line.contains("ärger 文"), "{line}");
        let kept: Value = serde_json::from_str(line).unwrap();
        assert_eq!(kept["about"]["what"], said);
    }
}
