//! What was done before, so that a model that goes in circles is told so. It is never refused anything for that.

use std::collections::HashMap;

use hermes_exec::files::Digest;

/// Files that are remembered; beyond that, memory begins anew.
const MOST: usize = 512;

/// What one session has looked at and tried.
#[derive(Debug, Default)]
pub(crate) struct Notes {
    /// The last look.
    last: Option<String>,
    /// The content of files as the model last saw or wrote them.
    known: HashMap<String, Digest>,
    /// Edits of a file that failed in a row.
    failed: HashMap<String, u32>,
}

impl Notes {
    /// Whether this is what was looked at last.
    pub(super) fn repeats(&mut self, what: String) -> bool {
        self.last.replace(what.clone()).is_some_and(|last| last == what)
    }

    /// The model knows the file as it is now.
    pub(super) fn know(&mut self, real: &str, digest: Digest) {
        if self.known.len() >= MOST {
            self.known.clear();
        }
        self.known.insert(real.to_owned(), digest);
    }

    /// Whether the model knows the file in another state than this one.
    pub(super) fn is_stale(&self, real: &str, now: Digest) -> bool {
        self.known.get(real).is_some_and(|known| *known != now)
    }

    /// Counts an edit that failed.
    pub(super) fn fail(&mut self, path: &str) -> u32 {
        if self.failed.len() >= MOST {
            self.failed.clear();
        }
        let count = self.failed.entry(path.to_owned()).or_insert(0);
        *count = count.saturating_add(1);
        *count
    }

    /// An edit of the file worked.
    pub(super) fn mend(&mut self, path: &str) {
        self.failed.remove(path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_same_look_in_a_row_is_a_repeat() {
        let mut notes = Notes::default();
        let repeats = ["a", "a", "b", "a", "a"].map(|what| notes.repeats(what.to_owned()));
        assert_eq!(repeats, [false, true, false, false, true]);
    }

    #[test]
    fn a_file_is_stale_only_if_the_model_knows_another_state_of_it() {
        let mut notes = Notes::default();
        assert!(!notes.is_stale("/a", Digest([1; 32])));
        notes.know("/a", Digest([1; 32]));
        assert!(!notes.is_stale("/a", Digest([1; 32])));
        assert!(notes.is_stale("/a", Digest([2; 32])));
        for number in 0..2 * MOST {
            notes.know(&number.to_string(), Digest([0; 32]));
            notes.fail(&number.to_string());
        }
        assert!(notes.known.len() <= MOST && notes.failed.len() <= MOST);
    }
}
