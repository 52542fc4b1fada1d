//! The state of a shell session, and how the changes of one command are applied to it.

use std::collections::BTreeMap;

/// Names and values as bytes, as in the shell.
pub(crate) type ByteMap = BTreeMap<Vec<u8>, Vec<u8>>;

/// State that persists between commands.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ShellState {
    pub(crate) cwd: Vec<u8>,
    pub(crate) env: ByteMap,
    pub(crate) functions: BTreeMap<Vec<u8>, ShellFunction>,
    pub(crate) aliases: ByteMap,
}

/// A function as the shell prints it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ShellFunction {
    pub(crate) text: Vec<u8>,
    pub(crate) is_exported: bool,
}

/// The changes of one command, relative to the state it started with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StateDelta {
    pub(crate) cwd: Option<Vec<u8>>,
    env: MapChanges<Vec<u8>>,
    functions: MapChanges<ShellFunction>,
    aliases: MapChanges<Vec<u8>>,
}

/// The new value of each changed key; `None` if it was removed.
type MapChanges<V> = BTreeMap<Vec<u8>, Option<V>>;

/// Variables of the shell process, not of the session. Every shell sets them itself.
const SHELL_OWNED_VARS: [&[u8]; 5] = [b"_", b"PWD", b"SHLVL", b"SHELLOPTS", b"BASHOPTS"];

impl ShellState {
    /// The changes from `self`, the state before a command, to `after`.
    pub(crate) fn delta(&self, after: &Self) -> StateDelta {
        let mut env = map_changes(&self.env, &after.env);
        // A shell does not print names that it cannot assign, so their absence means nothing.
        env.retain(|name, _| is_assignable(name) && !SHELL_OWNED_VARS.contains(&name.as_slice()));
        StateDelta {
            cwd: (self.cwd != after.cwd).then(|| after.cwd.clone()),
            env,
            functions: map_changes(&self.functions, &after.functions),
            aliases: map_changes(&self.aliases, &after.aliases),
        }
    }

    /// Applies the changes of one command.
    pub(crate) fn apply(&mut self, delta: StateDelta) {
        if let Some(cwd) = delta.cwd {
            self.cwd = cwd;
        }
        apply_changes(&mut self.env, delta.env);
        apply_changes(&mut self.functions, delta.functions);
        apply_changes(&mut self.aliases, delta.aliases);
    }
}

fn map_changes<V: Clone + PartialEq>(
    before: &BTreeMap<Vec<u8>, V>,
    after: &BTreeMap<Vec<u8>, V>,
) -> MapChanges<V> {
    let gone = before.keys().filter(|key| !after.contains_key(*key)).map(|key| (key.clone(), None));
    let set = after
        .iter()
        .filter(|(key, value)| before.get(*key) != Some(value))
        .map(|(key, value)| (key.clone(), Some(value.clone())));
    gone.chain(set).collect()
}

fn apply_changes<V>(map: &mut BTreeMap<Vec<u8>, V>, changes: MapChanges<V>) {
    for (key, value) in changes {
        match value {
            Some(value) => map.insert(key, value),
            None => map.remove(&key),
        };
    }
}

/// Whether a shell can assign to this name.
pub(crate) fn is_assignable(name: &[u8]) -> bool {
    let starts_well = name.first().is_some_and(|byte| *byte == b'_' || byte.is_ascii_alphabetic());
    starts_well && name.iter().all(|byte| *byte == b'_' || byte.is_ascii_alphanumeric())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn map() -> impl Strategy<Value = ByteMap> {
        proptest::collection::btree_map("[A-E]".prop_map(String::into_bytes), any::<Vec<u8>>(), 0..5)
    }

    prop_compose! {
        fn state()(cwd in "/[ab]", env in map(), aliases in map(), functions in map(), exported: bool) -> ShellState {
            let functions = functions.into_iter().map(|(name, text)| (name, ShellFunction { text, is_exported: exported })).collect();
            ShellState { cwd: cwd.into_bytes(), env, functions, aliases }
        }
    }

    proptest! {
        #[test]
        fn a_delta_turns_before_into_after(before in state(), after in state()) {
            let mut now = before.clone();
            now.apply(before.delta(&after));
            prop_assert_eq!(now, after);
        }

        #[test]
        fn independent_changes_commute(start in state(), value: Vec<u8>, other: Vec<u8>) {
            let change = |name: &[u8], value: &[u8]| {
                let mut after = start.clone();
                after.env.insert(name.to_vec(), value.to_vec());
                start.delta(&after)
            };
            let (one, two) = (change(b"ONE", &value), change(b"TWO", &other));
            let (mut forward, mut backward) = (start.clone(), start.clone());
            forward.apply(one.clone());
            forward.apply(two.clone());
            backward.apply(two);
            backward.apply(one);
            prop_assert_eq!(&forward, &backward);
            prop_assert_eq!(forward.env.get(b"ONE".as_slice()), Some(&value));
        }

        #[test]
        fn unchanged_state_keeps_concurrent_changes(start in state(), current in state()) {
            let mut now = current.clone();
            now.apply(start.delta(&start));
            prop_assert_eq!(now, current);
        }
    }

    #[test]
    fn shell_variables_and_unassignable_names_are_no_change() {
        let before =
            ShellState { env: ByteMap::from([(b"A.B".to_vec(), b"1".to_vec())]), ..ShellState::default() };
        let after =
            ShellState { env: ByteMap::from([(b"SHLVL".to_vec(), b"2".to_vec())]), ..ShellState::default() };
        assert_eq!(before.delta(&after), before.delta(&before));
    }
}
