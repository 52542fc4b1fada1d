//! Finds where a secret may begin.

use std::collections::BTreeMap;

use aho_corasick::{AhoCorasick, AhoCorasickKind, Input, MatchKind};

/// Past this many anchors the fastest automaton would take more memory than it is worth.
const DENSE_LIMIT: usize = 6000;

/// Short byte strings, each with the rules that begin with it.
pub(super) struct Anchors<R> {
    /// Sorted. The rules of an anchor include those of every anchor it begins with, since a search
    /// reports the longest one only.
    entries: Vec<(Box<[u8]>, Vec<R>)>,
    longest: usize,
    automaton: Option<AhoCorasick>,
}

impl<R: Copy> Anchors<R> {
    pub(super) fn new(rules: impl IntoIterator<Item = (Box<[u8]>, R)>) -> Self {
        let mut own: BTreeMap<Box<[u8]>, Vec<R>> = BTreeMap::new();
        for (anchor, rule) in rules {
            own.entry(anchor).or_default().push(rule);
        }
        let entries: Vec<_> = own
            .keys()
            .map(|anchor| {
                let lengths = (1..=anchor.len()).rev();
                let rules = lengths
                    .filter_map(|n| anchor.get(..n).and_then(|start| own.get(start)))
                    .flatten()
                    .copied()
                    .collect();
                (anchor.clone(), rules)
            })
            .collect();
        let kind = (entries.len() <= DENSE_LIMIT).then_some(AhoCorasickKind::DFA);
        let automaton = AhoCorasick::builder()
            .match_kind(MatchKind::LeftmostLongest)
            .kind(kind)
            .build(entries.iter().map(|(anchor, _)| anchor))
            .ok();
        let longest = entries.iter().map(|(anchor, _)| anchor.len()).max().unwrap_or(0);
        Self { entries, longest, automaton }
    }

    /// The first anchor at or after `at`: where it begins, and the rules to try there.
    pub(super) fn find(&self, bytes: &[u8], at: usize) -> Option<(usize, &[R])> {
        if self.entries.is_empty() || at >= bytes.len() {
            return None;
        }
        match &self.automaton {
            Some(automaton) => {
                let found = automaton.find(Input::new(bytes).range(at..))?;
                let (_, rules) = self.entries.get(found.pattern().as_usize())?;
                Some((found.start(), rules))
            }
            None => self.find_slowly(bytes, at),
        }
    }

    /// The same without an automaton. It can only be missing when building it failed for size, and then a
    /// slow answer is right where no answer would let secrets through.
    fn find_slowly(&self, bytes: &[u8], at: usize) -> Option<(usize, &[R])> {
        (at..bytes.len()).find_map(|start| {
            let rest = bytes.get(start..)?;
            let longest = self.entries.iter().filter(|(anchor, _)| rest.starts_with(anchor));
            longest.max_by_key(|(anchor, _)| anchor.len()).map(|(_, rules)| (start, rules.as_slice()))
        })
    }

    /// How many bytes at the end of `bytes` may be the beginning of an anchor.
    pub(super) fn unfinished(&self, bytes: &[u8]) -> usize {
        let most = self.longest.saturating_sub(1).min(bytes.len());
        let starts = |tail: &[u8]| {
            let next = self.entries.partition_point(|(anchor, _)| &**anchor < tail);
            self.entries.get(next).is_some_and(|(anchor, _)| anchor.starts_with(tail))
        };
        (1..=most).rev().find(|n| bytes.get(bytes.len() - n..).is_some_and(starts)).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn anchors(words: &[&str]) -> Anchors<usize> {
        Anchors::new(words.iter().enumerate().map(|(i, word)| (word.as_bytes().into(), i)))
    }

    #[test]
    fn the_longest_anchor_carries_the_rules_of_the_shorter_ones() {
        let anchors = anchors(&["sk-", "sk-ant-", "sk"]);
        assert_eq!(anchors.find(b"a sk-ant-x", 0), Some((2, &[1, 0, 2][..])));
        assert_eq!(anchors.find(b"a sk-ant-x", 3), None);
    }

    #[test]
    fn the_slow_search_agrees_with_the_automaton() {
        let anchors = anchors(&["ab", "abc", "bcd", "d"]);
        for text in ["xxabcd", "abcbcd", "d", "", "zzbcbcdz"] {
            for at in 0..=text.len() {
                assert_eq!(anchors.find(text.as_bytes(), at), anchors.find_slowly(text.as_bytes(), at));
            }
        }
    }

    #[test]
    fn an_anchor_cut_at_the_end_is_noticed() {
        let anchors = anchors(&["token", "ghp_"]);
        assert_eq!(anchors.unfinished(b"my tok"), 3);
        assert_eq!(anchors.unfinished(b"my t"), 1);
        assert_eq!(anchors.unfinished(b"my "), 0);
    }
}
