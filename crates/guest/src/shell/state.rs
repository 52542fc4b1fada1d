//! What a session knows, and how one command's changes are put into it.

use std::collections::BTreeMap;

/// A map whose keys and values are bytes, as the shell has them.
pub(crate) type Map = BTreeMap<Vec<u8>, Vec<u8>>;

/// Everything that persists between two commands.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct State {
    pub(crate) cwd: Vec<u8>,
    pub(crate) env: Map,
    pub(crate) functions: BTreeMap<Vec<u8>, Function>,
    pub(crate) aliases: Map,
}

/// A shell function as the shell prints it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Function {
    pub(crate) text: Vec<u8>,
    pub(crate) exported: bool,
}

/// What one command changed, relative to what it started from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Delta {
    pub(crate) cwd: Option<Vec<u8>>,
    env: Changes<Vec<u8>>,
    functions: Changes<Function>,
    aliases: Changes<Vec<u8>>,
}

/// For each key that changed, the new value, or none if it is gone.
type Changes<V> = BTreeMap<Vec<u8>, Option<V>>;

/// Variables that describe the shell process and not the session. The shell makes each of them anew.
const OF_THE_SHELL: [&[u8]; 5] = [b"_", b"PWD", b"SHLVL", b"SHELLOPTS", b"BASHOPTS"];

impl State {
    /// What changed between `self`, with which a command started, and `after`.
    pub(crate) fn delta(&self, after: &Self) -> Delta {
        let mut env = changes(&self.env, &after.env);
        // A shell does not print a name that it could not assign to, so its absence means nothing.
        env.retain(|name, _| is_name(name) && !OF_THE_SHELL.contains(&name.as_slice()));
        Delta {
            cwd: (self.cwd != after.cwd).then(|| after.cwd.clone()),
            env,
            functions: changes(&self.functions, &after.functions),
            aliases: changes(&self.aliases, &after.aliases),
        }
    }

    /// Puts the changes of one command in, all at once.
    pub(crate) fn apply(&mut self, delta: Delta) {
        if let Some(cwd) = delta.cwd {
            self.cwd = cwd;
        }
        put(&mut self.env, delta.env);
        put(&mut self.functions, delta.functions);
        put(&mut self.aliases, delta.aliases);
    }
}

fn changes<V: Clone + PartialEq>(before: &BTreeMap<Vec<u8>, V>, after: &BTreeMap<Vec<u8>, V>) -> Changes<V> {
    let gone = before.keys().filter(|key| !after.contains_key(*key)).map(|key| (key.clone(), None));
    let set = after
        .iter()
        .filter(|(key, value)| before.get(*key) != Some(value))
        .map(|(key, value)| (key.clone(), Some(value.clone())));
    gone.chain(set).collect()
}

fn put<V>(map: &mut BTreeMap<Vec<u8>, V>, changes: Changes<V>) {
    for (key, value) in changes {
        match value {
            Some(value) => map.insert(key, value),
            None => map.remove(&key),
        };
    }
}

/// Whether a shell can assign to it.
pub(crate) fn is_name(name: &[u8]) -> bool {
    let starts_well = name.first().is_some_and(|byte| *byte == b'_' || byte.is_ascii_alphabetic());
    starts_well && name.iter().all(|byte| *byte == b'_' || byte.is_ascii_alphanumeric())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn map() -> impl Strategy<Value = Map> {
        proptest::collection::btree_map("[A-E]".prop_map(String::into_bytes), any::<Vec<u8>>(), 0..5)
    }

    prop_compose! {
        fn state()(cwd in "/[ab]", env in map(), aliases in map(), functions in map(), exported: bool) -> State {
            let functions = functions.into_iter().map(|(name, text)| (name, Function { text, exported })).collect();
            State { cwd: cwd.into_bytes(), env, functions, aliases }
        }
    }

    proptest! {
        #[test]
        fn a_delta_turns_what_was_into_what_is(before in state(), after in state()) {
            let mut now = before.clone();
            now.apply(before.delta(&after));
            prop_assert_eq!(now, after);
        }

        #[test]
        fn changes_to_different_things_do_not_depend_on_order(start in state(), value: Vec<u8>, other: Vec<u8>) {
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
        fn what_a_command_did_not_touch_stays_as_others_left_it(start in state(), meanwhile in state()) {
            let mut now = meanwhile.clone();
            now.apply(start.delta(&start));
            prop_assert_eq!(now, meanwhile);
        }
    }

    #[test]
    fn what_describes_the_shell_and_what_it_cannot_name_is_no_change() {
        let before = State { env: Map::from([(b"A.B".to_vec(), b"1".to_vec())]), ..State::default() };
        let after = State { env: Map::from([(b"SHLVL".to_vec(), b"2".to_vec())]), ..State::default() };
        assert_eq!(before.delta(&after), before.delta(&before));
    }
}
