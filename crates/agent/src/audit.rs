//! The audit log: who asked for what, which tools ran where, and who approved them.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::{Arc, Mutex};

use hermes_types::text::is_hidden;
use hermes_types::{Timestamp, lock};
use serde_json::{Value, json};

const FILE_NAME: &str = "audit.jsonl";

/// The audit log: who asked for what, which tools ran where, and who approved them. A write error
/// is only logged, so that a full disk does not end a conversation. Event and field names are a
/// stable format.
#[derive(Debug, Clone)]
pub struct AuditLog(Arc<Mutex<File>>);

impl AuditLog {
    /// Opens the log of a Hermes home.
    pub fn in_home(home: &Path) -> io::Result<Self> {
        let logs = home.join("logs");
        fs::create_dir_all(&logs)?;
        Self::open(&logs.join(FILE_NAME))
    }

    /// Opens the log for appending, or creates it, readable only by its owner.
    pub fn open(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().create(true).append(true).mode(0o600).open(path)?;
        Ok(Self(Arc::new(Mutex::new(file))))
    }

    pub fn record(&self, what: &str, about: &Value) {
        let mut line =
            escape_hidden(&json!({ "at": Timestamp::now(), "what": what, "about": about }).to_string());
        line.push('\n');
        let mut file = lock(&self.0);
        if let Err(error) = file.write_all(line.as_bytes()) {
            tracing::warn!(%error, "cannot write audit log");
        }
    }
}

/// Escapes control and hidden characters, which could move a terminal's cursor, hide text or start
/// a line. They occur only inside JSON strings, so the result is still the same JSON.
fn escape_hidden(json: &str) -> String {
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
    fn user_text_stays_on_one_line_and_is_escaped() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.jsonl");
        let said =
            "a\n\u{85}b\u{2028}{\"what\":\"answer\"}\u{9b}31m\u{1b}[2J\u{202e}c\u{e0041}\u{7f} ärger 文";
        AuditLog::open(&path).unwrap().record("call", &json!({ "what": said }));
        let text = std::fs::read_to_string(&path).unwrap();
        let line = text.strip_suffix('\n').unwrap();
        assert!(!line.chars().any(|char| char.is_control() || is_hidden(char)), "{line:?}");
        assert!(line.contains("ärger 文"), "{line}");
        let kept: Value = serde_json::from_str(line).unwrap();
        assert_eq!(kept["about"]["what"], said);
    }
}
