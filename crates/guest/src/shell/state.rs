//! The state of a shell session, and how the changes of one command are applied to it.

use std::collections::{BTreeMap, BTreeSet};

use hermes_guest::protocol::limit;
use hermes_types::{MEANING_VARIABLES, ShellContext, ShellKind, hex};
use serde_bytes::ByteBuf;
use sha2::{Digest as _, Sha256};

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

/// Names that the scripts of a session use, and words with a meaning of their own. A function or
/// alias with such a name would break every later command, so it ends with its command.
const RESERVED_NAMES: &[&str] = &[
    "!", ".", "[[", "]]", "alias", "builtin", "case", "command", "coproc", "declare", "do", "done", "elif",
    "else", "esac", "eval", "exec", "exit", "export", "fi", "for", "function", "if", "in", "select", "set",
    "shopt", "source", "then", "time", "trap", "unalias", "unset", "until", "while", "{", "}",
];

impl ShellState {
    /// Removes what no session keeps from the state that a command left.
    pub(crate) fn undo_unsafe_changes(&mut self, before: &Self) {
        for name in RESERVED_NAMES {
            self.functions.remove(name.as_bytes());
            self.aliases.remove(name.as_bytes());
        }
        for name in MEANING_VARIABLES.iter().map(|name| name.as_bytes()) {
            if self.env.get(name).is_some_and(|value| value.len() > limit::MAX_MEANING_VARIABLE_BYTES) {
                self.env.remove(name);
                self.env.extend(
                    before.env.get_key_value(name).map(|(name, value)| (name.clone(), value.clone())),
                );
            }
        }
    }

    /// Whether commands mean the same in both states.
    pub(crate) fn has_same_meaning(&self, other: &Self) -> bool {
        self.functions == other.functions && self.aliases == other.aliases && self.env == other.env
    }

    /// What of this state changes the meaning of commands, compared with the variables of a new
    /// session.
    pub(crate) fn context(&self, shell: ShellKind, new_env: &ByteMap) -> ShellContext {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let mut left = limit::MAX_CONTEXT_BYTES;
        let mut limited = |name: &[u8], value: &[u8]| {
            let rest = left.checked_sub(name.len() + value.len());
            left = rest.unwrap_or(left);
            (text(name), rest.map_or_else(|| "(".to_owned(), |_| text(value)))
        };
        let changed = |name: &&&str| self.env.get(name.as_bytes()) != new_env.get(name.as_bytes());
        let value = |name: &str| self.env.get(name.as_bytes()).map(|value| text(value)).unwrap_or_default();
        let paths: BTreeMap<String, String> = self
            .changed_variables(new_env)
            .filter(|(_, value)| is_path(value))
            .map(|(name, value)| (text(name), text(value)))
            .take(MAX_PATH_VARIABLES)
            .collect();
        let mut context = ShellContext {
            shell,
            aliases: self.aliases.iter().map(|(name, value)| limited(name, value)).collect(),
            functions: self.functions.iter().map(|(name, function)| limited(name, &function.text)).collect(),
            variables: MEANING_VARIABLES
                .iter()
                .filter(changed)
                .map(|name| ((*name).to_owned(), value(name)))
                .chain(paths.clone())
                .collect(),
            exported: self.exported(new_env, &paths),
            digest: String::new(),
        };
        if context != ShellContext::new() {
            // Serialization into memory does not fail.
            let bytes = postcard::to_stdvec(&context).unwrap_or_default();
            context.digest = hex(&Sha256::digest(bytes));
        }
        context
    }

    /// The names of the variables that differ from those of a new session and are not reported
    /// with their values.
    fn exported(&self, new_env: &ByteMap, reported: &BTreeMap<String, String>) -> BTreeSet<String> {
        let names = self.changed_variables(new_env).map(|(name, _)| name);
        if names.clone().map(Vec::len).sum::<usize>() > limit::MAX_CONTEXT_BYTES {
            return BTreeSet::from([ShellContext::ANY_NAME.to_owned()]);
        }
        let names = names.map(|name| String::from_utf8_lossy(name).into_owned());
        names.filter(|name| !reported.contains_key(name)).collect()
    }

    /// The variables other than [`MEANING_VARIABLES`] that differ from those of a new session.
    fn changed_variables<'a>(
        &'a self,
        new_env: &'a ByteMap,
    ) -> impl Iterator<Item = (&'a Vec<u8>, &'a Vec<u8>)> + Clone {
        self.env
            .iter()
            .filter(|(name, value)| new_env.get(*name) != Some(value))
            .filter(|(name, _)| is_assignable(name) && !SHELL_OWNED_VARS.contains(&name.as_slice()))
            .filter(|(name, _)| !MEANING_VARIABLES.iter().any(|known| known.as_bytes() == name.as_slice()))
    }

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

/// Variables with more paths are reported by name only.
const MAX_PATH_VARIABLES: usize = 64;
const MAX_PATH_BYTES: usize = 256;

/// Whether a value is a path, which is no secret, and which the gate must know: a later command may
/// write to `$DIR/file`.
fn is_path(value: &[u8]) -> bool {
    let starts_as_path = value.starts_with(b"/") || value.starts_with(b"./") || value.starts_with(b"..");
    starts_as_path && value.len() <= MAX_PATH_BYTES && value.is_ascii()
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

    fn state_with_env(env: &[(&str, &str)]) -> ShellState {
        let env = env.iter().map(|(name, value)| (name.as_bytes().to_vec(), value.as_bytes().to_vec()));
        ShellState { env: env.collect(), ..ShellState::default() }
    }

    #[test]
    fn the_context_has_what_differs_from_a_new_session() {
        let new = state_with_env(&[("HOME", "/home/ada"), ("PATH", "/bin"), ("EDITOR", "ed")]);
        assert_eq!(new.context(ShellKind::Bash, &new.env), ShellContext::new());
        let mut now = state_with_env(&[
            ("HOME", "/home/ada"),
            ("PATH", "/tmp:/bin"),
            ("OTHER", "x"),
            ("OUT", "../other"),
        ]);
        now.aliases.insert(b"ls".to_vec(), b"rm".to_vec());
        let context = now.context(ShellKind::Bash, &new.env);
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(context.aliases, [pair("ls", "rm")].into());
        assert_eq!(
            context.variables,
            [pair("EDITOR", ""), pair("OUT", "../other"), pair("PATH", "/tmp:/bin")].into()
        );
        assert_eq!(context.exported, ["OTHER".to_owned()].into());
        assert_ne!(context.digest, now.context(ShellKind::Sh, &new.env).digest);
        assert_ne!(new.context(ShellKind::Sh, &new.env).digest, "");
    }

    #[test]
    fn a_text_that_is_too_long_to_report_is_not_valid() {
        let mut state = ShellState::default();
        state.aliases.insert(b"long".to_vec(), vec![b'x'; limit::MAX_CONTEXT_BYTES]);
        state.aliases.insert(b"short".to_vec(), b"ls".to_vec());
        let context = state.context(ShellKind::Bash, &ByteMap::new());
        assert_eq!((context.aliases["long"].as_str(), context.aliases["short"].as_str()), ("(", "ls"));
    }

    #[test]
    fn too_many_names_stand_for_any_name() {
        let names =
            (0..8).map(|index| (format!("N{index}{}", "x".repeat(limit::MAX_CONTEXT_BYTES / 8)), "1"));
        let names: Vec<(String, &str)> = names.collect();
        let env: Vec<(&str, &str)> = names.iter().map(|(name, value)| (name.as_str(), *value)).collect();
        let context = state_with_env(&env).context(ShellKind::Bash, &ByteMap::new());
        assert_eq!(context.exported, [ShellContext::ANY_NAME.to_owned()].into());
    }

    #[test]
    fn names_of_the_scripts_and_long_variables_are_not_kept() {
        let before = state_with_env(&[("PATH", "/bin")]);
        let mut after = state_with_env(&[("PATH", &"x".repeat(limit::MAX_MEANING_VARIABLE_BYTES + 1))]);
        after.aliases.extend([(b"for".to_vec(), b"x".to_vec()), (b"ll".to_vec(), b"ls".to_vec())]);
        after.functions.insert(b"builtin".to_vec(), ShellFunction { text: Vec::new(), is_exported: false });
        after.undo_unsafe_changes(&before);
        assert_eq!(after.env, before.env);
        assert_eq!(after.aliases, [(b"ll".to_vec(), b"ls".to_vec())].into());
        assert!(after.functions.is_empty());
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
