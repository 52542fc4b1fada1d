//! Finds the positions where a secret may begin.
//!
//! Nearly every place in a text is no beginning, so what matters is to say no quickly. Each run of
//! three bytes is looked up in a table of 8 KiB that stays in the fastest cache. Unlike the steps
//! of an automaton these look-ups do not wait for each other, which makes this more than twice as
//! fast as `aho-corasick` here, and nothing in it can fail.

use std::cmp::Reverse;
use std::collections::HashMap;

pub(super) const MIN_ANCHOR_BYTES: usize = 3;

type Anchor = Box<[u8]>;

/// Short byte strings, each with the rules that start with it.
pub(super) struct Anchors<R> {
    /// The rules by the first bytes of their anchors, those with the longest anchor first.
    groups: HashMap<[u8; MIN_ANCHOR_BYTES], Vec<(Anchor, R)>>,
    filter: TrigramFilter,
}

impl<R: Copy> Anchors<R> {
    pub(super) fn new(rules: impl IntoIterator<Item = (Anchor, R)>) -> Self {
        let mut rules: Vec<(Anchor, R)> = rules.into_iter().collect();
        rules.sort_by_key(|(anchor, _)| Reverse(anchor.len()));
        let mut groups: HashMap<_, Vec<_>> = HashMap::new();
        let mut filter = TrigramFilter::default();
        for (anchor, rule) in rules {
            let Some(start) = anchor.first_chunk().copied() else { continue };
            filter.add(&start);
            groups.entry(start).or_default().push((anchor, rule));
        }
        Self { groups, filter }
    }

    /// The first position at or after `at` with an anchor, and the rules to try there.
    pub(super) fn find(&self, bytes: &[u8], at: usize) -> Option<(usize, impl Iterator<Item = R>)> {
        let mut at = at;
        while !self.groups.is_empty() {
            at += self.filter.position(bytes.get(at..)?)?;
            let rest = bytes.get(at..)?;
            let group = rest.first_chunk().and_then(|start| self.groups.get(start));
            let mut rules = group.into_iter().flatten().filter(|(anchor, _)| rest.starts_with(anchor));
            if let Some(first) = rules.next() {
                return Some((at, std::iter::once(first).chain(rules).map(|(_, rule)| *rule)));
            }
            at += 1;
        }
        None
    }
}

/// A Bloom filter of the first three bytes of all anchors.
struct TrigramFilter(Box<[u64; 1024]>);

impl Default for TrigramFilter {
    fn default() -> Self {
        Self(Box::new([0; 1024]))
    }
}

impl TrigramFilter {
    fn add(&mut self, start: &[u8; MIN_ANCHOR_BYTES]) {
        let (word, bit) = Self::slot(Self::number(start));
        if let Some(word) = self.0.get_mut(word) {
            *word |= bit;
        }
    }

    /// The first position where an anchor may begin.
    fn position(&self, bytes: &[u8]) -> Option<usize> {
        let mut at = 0;
        // Eight bytes hold six positions. Checking all six before branching lets the lookups
        // overlap.
        while let Some(eight) = bytes.get(at..).and_then(|rest| rest.first_chunk()) {
            let eight = u64::from_le_bytes(*eight);
            let held = (0..6).fold(0, |held, i| held | self.bit((eight >> (8 * i)) as u32));
            if held != 0 {
                break;
            }
            at += 6;
        }
        let rest = bytes.get(at..)?.array_windows();
        rest.into_iter().position(|start| self.bit(Self::number(start)) != 0).map(|found| at + found)
    }

    fn number([a, b, c]: &[u8; MIN_ANCHOR_BYTES]) -> u32 {
        u32::from_le_bytes([*a, *b, *c, 0])
    }

    /// The bit for the lowest three bytes, if it is set.
    #[inline]
    fn bit(&self, start: u32) -> u64 {
        let (word, bit) = Self::slot(start);
        self.0.get(word).map_or(0, |word| word & bit)
    }

    /// Spreads the bytes over the table by multiplying with 2^32 divided by the golden ratio.
    #[inline]
    fn slot(start: u32) -> (usize, u64) {
        let hash = (start & 0x00ff_ffff).wrapping_mul(0x9e37_79b1) >> 16;
        ((hash >> 6) as usize, 1 << (hash & 63))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn anchors(words: &[&str]) -> Anchors<usize> {
        Anchors::new(words.iter().enumerate().map(|(i, word)| (word.as_bytes().into(), i)))
    }

    #[test]
    fn the_rules_of_the_longest_anchor_come_before_those_of_shorter_ones() {
        let anchors = anchors(&["sk-", "sk-ant-", "sk-a"]);
        let find =
            |text: &[u8], at| anchors.find(text, at).map(|(at, rules)| (at, rules.collect::<Vec<_>>()));
        assert_eq!(find(b"a sk-ant-x", 0), Some((2, vec![1, 2, 0])));
        assert_eq!(find(b"a sk-x", 0), Some((2, vec![0])));
        assert_eq!(find(b"a sk-ant-x", 3), None);
        assert_eq!(find(b"sk", 0), None);
    }

    #[test]
    fn every_anchor_is_found_wherever_it_stands() {
        let words = ["abc", "abcd", "bcd", "cda", "dddd"];
        let anchors = anchors(&words);
        for text in ["xxabcd", "abcbcd", "ddd", "", "zzbcbcdz", "dddda", "cdabcd"] {
            for at in 0..=text.len() {
                let longest = |start: usize| {
                    let found =
                        words.iter().filter(|word| text.as_bytes()[start..].starts_with(word.as_bytes()));
                    found.max_by_key(|word| word.len()).map(|word| (start, word.len()))
                };
                let expected = (at..text.len()).find_map(longest);
                let found = anchors.find(text.as_bytes(), at);
                let found = found.map(|(start, mut rules)| (start, words[rules.next().unwrap()].len()));
                assert_eq!(found, expected, "{text} from {at}");
            }
        }
    }
}
