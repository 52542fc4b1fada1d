//! `/background` tasks. Each runs in its own session.

use hermes_types::SessionKey;
use tokio_util::sync::CancellationToken;

pub(crate) const MAX_TASKS_PER_SESSION: usize = 8;
const TASK_SEPARATOR: &str = ":task:";
const MAX_TITLE_CHARS: usize = 60;

#[derive(Debug, Clone)]
pub struct BackgroundTask {
    pub(crate) key: SessionKey,
    pub title: String,
    pub(crate) stop: CancellationToken,
}

impl BackgroundTask {
    /// Prefixes the title of the task.
    pub fn with_header(&self, text: &str) -> String {
        if text.is_empty() { String::new() } else { format!("[{}]\n{text}", self.title) }
    }
}

/// The session key of a background task.
pub(crate) fn background_task_key(parent: &SessionKey, message: &str) -> SessionKey {
    SessionKey::new(format!("{}{TASK_SEPARATOR}{message}", parent.as_str()))
}

/// The session that started a background task; `None` for other sessions.
pub fn parent_session(key: &SessionKey) -> Option<SessionKey> {
    let (parent, _message) = key.as_str().rsplit_once(TASK_SEPARATOR)?;
    Some(SessionKey::new(parent))
}

/// The title of a background task: the beginning of its first line.
pub(crate) fn task_title(text: &str) -> String {
    let line = text.trim().lines().next().unwrap_or_default();
    let line = line.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(MAX_TITLE_CHARS) {
        Some((end, _)) => format!("{}…", line.get(..end).unwrap_or_default().trim_end()),
        None => line,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_background_task_has_its_own_key() {
        let parent = SessionKey::new("agent:main:discord:dm:77");
        let task = background_task_key(&parent, "900");
        assert_eq!(task.as_str(), "agent:main:discord:dm:77:task:900");
        assert_eq!((parent_session(&task), parent_session(&parent)), (Some(parent), None));
    }

    #[test]
    fn a_title_is_one_short_line() {
        assert_eq!(task_title("  look at\tthe logs\nand mend them"), "look at the logs");
        assert_eq!(task_title(&"word ".repeat(30)), format!("{}…", "word ".repeat(12).trim_end()));
    }
}
