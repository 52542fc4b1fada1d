//! Tracks the files that a model has read and edited, for hints about repeated reads, stale content
//! and failing edits. It never refuses a call.

use std::collections::HashMap;

use hermes_exec::files::ContentDigest;

/// When more files are tracked, the tracker starts over.
const MAX_TRACKED_FILES: usize = 512;

#[derive(Debug, Default)]
pub(crate) struct FileStateTracker {
    last_read: Option<String>,
    /// Content of each file as the model last read or wrote it, by real path.
    digests: HashMap<String, ContentDigest>,
    /// Edits that failed in a row, by path.
    failed_edits: HashMap<String, u32>,
}

impl FileStateTracker {
    /// Whether this read equals the one before it.
    pub(crate) fn is_repeated_read(&mut self, read: String) -> bool {
        self.last_read.replace(read.clone()).is_some_and(|last| last == read)
    }

    pub(crate) fn record_digest(&mut self, real_path: &str, digest: ContentDigest) {
        if self.digests.len() >= MAX_TRACKED_FILES {
            self.digests.clear();
        }
        self.digests.insert(real_path.to_owned(), digest);
    }

    /// Whether the model last saw the file with other content.
    pub(crate) fn is_stale(&self, real_path: &str, current: ContentDigest) -> bool {
        self.digests.get(real_path).is_some_and(|known| *known != current)
    }

    /// Returns how many edits of the file have failed in a row.
    pub(crate) fn record_failed_edit(&mut self, path: &str) -> u32 {
        if self.failed_edits.len() >= MAX_TRACKED_FILES {
            self.failed_edits.clear();
        }
        let count = self.failed_edits.entry(path.to_owned()).or_insert(0);
        *count = count.saturating_add(1);
        *count
    }

    pub(crate) fn clear_failed_edits(&mut self, path: &str) {
        self.failed_edits.remove(path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_identical_read_in_a_row_is_repeated() {
        let mut tracker = FileStateTracker::default();
        let repeats = ["a", "a", "b", "a", "a"].map(|read| tracker.is_repeated_read(read.to_owned()));
        assert_eq!(repeats, [false, true, false, false, true]);
    }

    #[test]
    fn a_file_is_stale_only_if_the_model_saw_other_content() {
        let mut tracker = FileStateTracker::default();
        assert!(!tracker.is_stale("/a", ContentDigest([1; 32])));
        tracker.record_digest("/a", ContentDigest([1; 32]));
        assert!(!tracker.is_stale("/a", ContentDigest([1; 32])));
        assert!(tracker.is_stale("/a", ContentDigest([2; 32])));
        for number in 0..2 * MAX_TRACKED_FILES {
            tracker.record_digest(&number.to_string(), ContentDigest([0; 32]));
            tracker.record_failed_edit(&number.to_string());
        }
        assert!(
            tracker.digests.len() <= MAX_TRACKED_FILES && tracker.failed_edits.len() <= MAX_TRACKED_FILES
        );
    }
}
