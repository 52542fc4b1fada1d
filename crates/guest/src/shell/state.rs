//! The state of a shell session, and how the changes of one command are applied to it.

use std::collections::BTreeMap;

use serde_bytes::ByteBuf;

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

/// Variables of the shell process, not of the session. Every shell sets them itself.
const SHELL_OWNED_VARS: [&[u8]; 5] = [b"_", b"PWD", b"SHLVL", b"SHELLOPTS", b"BASHOPTS"];

impl ShellState {
    /// Makes the changes of a command that started with the state `before` and left `after`.
    pub(crate) fn apply_changes(&mut self, before: &Self, after: Self) {
        if before.cwd != after.cwd {
            self.cwd = after.cwd;
        }
        // A shell does not print names that it cannot assign, so their absence means nothing.
        let is_session_var = |name: &[u8]| is_assignable(name) && !SHELL_OWNED_VARS.contains(&name);
        merge_changes(&mut self.env, &before.env, after.env, is_session_var);
        merge_changes(&mut self.functions, &before.functions, after.functions, |_| true);
        merge_changes(&mut self.aliases, &before.aliases, after.aliases, |_| true);
    }
}

/// Makes the changes between two maps in a third, for the names that the filter accepts.
fn merge_changes<V: PartialEq>(
    map: &mut BTreeMap<Vec<u8>, V>,
    before: &BTreeMap<Vec<u8>, V>,
    after: BTreeMap<Vec<u8>, V>,
    filter: impl Fn(&[u8]) -> bool,
) {
    for name in before.keys().filter(|name| !after.contains_key(*name) && filter(name)) {
        map.remove(name);
    }
    for (name, value) in after {
        if before.get(&name) != Some(&value) && filter(&name) {
            map.insert(name, value);
        }
    }
}

/// Names and values of variables, as byte vectors.
pub(crate) fn byte_pairs(variables: Vec<(ByteBuf, ByteBuf)>) -> impl Iterator<Item = (Vec<u8>, Vec<u8>)> {
    variables.into_iter().map(|(name, value)| (name.into_vec(), value.into_vec()))
}

/// Whether a shell can assign to this name.
fn is_assignable(name: &[u8]) -> bool {
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
        fn the_changes_turn_before_into_after(before in state(), after in state()) {
            let mut now = before.clone();
            now.apply_changes(&before, after.clone());
            prop_assert_eq!(now, after);
        }

        #[test]
        fn independent_changes_commute(start in state(), value: Vec<u8>, other: Vec<u8>) {
            let change = |name: &[u8], value: &[u8]| {
                let mut after = start.clone();
                after.env.insert(name.to_vec(), value.to_vec());
                after
            };
            let (one, two) = (change(b"ONE", &value), change(b"TWO", &other));
            let (mut forward, mut backward) = (start.clone(), start.clone());
            forward.apply_changes(&start, one.clone());
            forward.apply_changes(&start, two.clone());
            backward.apply_changes(&start, two);
            backward.apply_changes(&start, one);
            prop_assert_eq!(&forward, &backward);
            prop_assert_eq!(forward.env.get(b"ONE".as_slice()), Some(&value));
        }

        #[test]
        fn unchanged_state_keeps_concurrent_changes(start in state(), current in state()) {
            let mut now = current.clone();
            now.apply_changes(&start, start.clone());
            prop_assert_eq!(now, current);
        }
    }

    #[test]
    fn shell_variables_and_unassignable_names_are_no_change() {
        let before =
            ShellState { env: ByteMap::from([(b"A.B".to_vec(), b"1".to_vec())]), ..ShellState::default() };
        let after =
            ShellState { env: ByteMap::from([(b"SHLVL".to_vec(), b"2".to_vec())]), ..ShellState::default() };
        let mut now = before.clone();
        now.apply_changes(&before, after);
        assert_eq!(now, before);
    }
}
