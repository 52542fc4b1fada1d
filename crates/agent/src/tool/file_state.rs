//! What was done before, so that a model that goes in circles is told so. It is never refused anything for that.

use std::collections::HashMap;

use hermes_exec::files::Digest;

/// Files that are remembered; beyond that, memory begins anew.
const MAX_TRACKED_FILES: usize = 512;

/// What one session has looked at and tried.
#[derive(Debug, Default)]
pub(crate) struct FileStateTracker {
    /// The last look.
    last_read: Option<String>,
    /// The content of files as the model last saw or wrote them.
    digests: HashMap<String, Digest>,
    /// Edits of a file that failed in a row.
    failed_edits: HashMap<String, u32>,
}

impl FileStateTracker {
    /// Whether this is what was looked at last.
    pub(super) fn is_repeated_read(&mut self, what: String) -> bool {
        self.last_read.replace(what.clone()).is_some_and(|last| last == what)
    }

    /// The model knows the file as it is now.
    pub(super) fn record_digest(&mut self, real: &str, digest: Digest) {
        if self.digests.len() >= MAX_TRACKED_FILES {
            self.digests.clear();
        }
        self.digests.insert(real.to_owned(), digest);
    }

    /// Whether the model knows the file in another state than this one.
    pub(super) fn is_stale(&self, real: &str, now: Digest) -> bool {
        self.digests.get(real).is_some_and(|known| *known != now)
    }

    /// Counts an edit that failed.
    pub(super) fn record_failed_edit(&mut self, path: &str) -> u32 {
        if self.failed_edits.len() >= MAX_TRACKED_FILES {
            self.failed_edits.clear();
        }
        let count = self.failed_edits.entry(path.to_owned()).or_insert(0);
        *count = count.saturating_add(1);
        *count
    }

    /// An edit of the file worked.
    pub(super) fn clear_failed_edits(&mut self, path: &str) {
        self.failed_edits.remove(path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_same_look_in_a_row_is_a_repeat() {
        let mut notes = FileStateTracker::default();
        let repeats = ["a", "a", "b", "a", "a"].map(|what| notes.is_repeated_read(what.to_owned()));
        assert_eq!(repeats, [false, true, false, false, true]);
    }

    #[test]
    fn a_file_is_stale_only_if_the_model_knows_another_state_of_it() {
        let mut notes = FileStateTracker::default();
        assert!(!notes.is_stale("/a", Digest([1; 32])));
        notes.record_digest("/a", Digest([1; 32]));
        assert!(!notes.is_stale("/a", Digest([1; 32])));
        assert!(notes.is_stale("/a", Digest([2; 32])));
        for number in 0..2 * MAX_TRACKED_FILES {
            notes.record_digest(&number.to_string(), Digest([0; 32]));
            notes.record_failed_edit(&number.to_string());
        }
        assert!(notes.digests.len() <= MAX_TRACKED_FILES && notes.failed_edits.len() <= MAX_TRACKED_FILES);
    }
}
