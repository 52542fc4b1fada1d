//! One-line previews of calls and results, for people who watch a turn.

use hermes_policy::escape::escape;
use hermes_policy::redact::Redactor;
use serde_json::{Map, Value};

use crate::Tool;

const MAX_PREVIEW_CHARS: usize = 80;
/// Secrets are redacted in this many characters before the line is cut: half a secret would not be
/// recognized.
const MAX_SCANNED_CHARS: usize = 4_000;
/// Arguments that name the subject of a call; the first present one is shown.
const SUBJECTS: [&str; 9] =
    ["command", "path", "pattern", "url", "question", "action", "session_id", "code", "patch"];
/// Fields that summarize a result; the first non-empty one is shown.
const RESULTS: [&str; 6] = ["error", "output", "content", "summary", "diff", "status"];

pub(crate) fn call_preview(tool: Tool, arguments: &Map<String, Value>, redactor: &Redactor) -> String {
    let subject = SUBJECTS.iter().find_map(|name| arguments.get(*name)?.as_str());
    let subject: String =
        subject.unwrap_or_else(|| tool.name()).trim_start().chars().take(MAX_SCANNED_CHARS).collect();
    first_line(&redactor.redact(&subject))
}

pub(crate) fn result_preview(content: &Value) -> String {
    let text = RESULTS.iter().find_map(|name| match content.get(*name)? {
        Value::String(text) if !text.trim().is_empty() => Some(text.clone()),
        Value::Object(_) | Value::Array(_) => Some(content.get(*name)?.to_string()),
        _ => None,
    });
    first_line(&text.unwrap_or_default())
}

/// The first non-blank line, cut short, with control characters escaped.
fn first_line(text: &str) -> String {
    let first = text.lines().find(|line| !line.trim().is_empty()).unwrap_or_default().trim();
    let mut shown: String = first.chars().take(MAX_PREVIEW_CHARS).collect();
    if first.chars().nth(MAX_PREVIEW_CHARS).is_some() || text.trim_end().lines().count() > 1 {
        shown.push('…');
    }
    escape(&shown).to_string()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_preview_is_one_short_line_that_cannot_move_the_cursor() {
        let of =
            |value: Value| call_preview(Tool::Terminal, value.as_object().unwrap(), &Redactor::disabled());
        assert_eq!(of(json!({"command": "ls -l"})), "ls -l");
        assert_eq!(of(json!({"command": "\n\n  a\nb"})), "a…");
        assert_eq!(of(json!({})), "terminal");
        assert_eq!(of(json!({"command": "x".repeat(200)})).chars().count(), MAX_PREVIEW_CHARS + 1);
        assert!(!of(json!({"command": "a\u{1b}[2Jb"})).contains('\u{1b}'));
        assert_eq!(result_preview(&json!({"exit_code": 0, "output": "hello\n", "error": null})), "hello");
        assert_eq!(result_preview(&json!({"exit_code": 1, "output": "x", "error": "broke"})), "broke");
    }
}
