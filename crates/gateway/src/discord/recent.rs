//! What is remembered for a while.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;

/// The last things by their keys; the oldest go first.
#[derive(Debug)]
pub(super) struct Recent<K, V> {
    most: usize,
    order: VecDeque<K>,
    kept: HashMap<K, V>,
}

impl<K: Hash + Eq + Clone, V> Recent<K, V> {
    pub(super) fn new(most: usize) -> Self {
        Self { most, order: VecDeque::new(), kept: HashMap::new() }
    }

    pub(super) fn get(&self, key: &K) -> Option<&V> {
        self.kept.get(key)
    }

    pub(super) fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        self.kept.get_mut(key)
    }

    /// What is kept under a key, which is made if nothing is.
    pub(super) fn entry(&mut self, key: K, make: impl FnOnce() -> V) -> &mut V {
        if !self.kept.contains_key(&key) {
            self.order.push_back(key.clone());
            if self.order.len() > self.most
                && let Some(oldest) = self.order.pop_front()
            {
                self.kept.remove(&oldest);
            }
        }
        self.kept.entry(key).or_insert_with(make)
    }

    pub(super) fn put(&mut self, key: K, value: V) {
        self.take(&key);
        self.entry(key, || value);
    }

    pub(super) fn take(&mut self, key: &K) -> Option<V> {
        let taken = self.kept.remove(key);
        if taken.is_some() {
            self.order.retain(|known| known != key);
        }
        taken
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.kept.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_is_forgotten_first() {
        let mut recent = Recent::new(2);
        recent.put("a", 1);
        recent.put("b", 2);
        recent.put("a", 3);
        recent.put("c", 4);
        assert_eq!((recent.get(&"a"), recent.get(&"b"), recent.get(&"c")), (Some(&3), None, Some(&4)));
        assert_eq!((recent.take(&"a"), recent.take(&"a")), (Some(3), None));
        assert_eq!(recent.iter().count(), 1);
    }
}
