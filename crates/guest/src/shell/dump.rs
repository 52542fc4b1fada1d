//! Reads what the exit trap of a shell wrote; `script.rs` has the other end.

use super::script::END;
use super::state::{Function, Map, State};
use super::word;

/// The state in a dump, or none if the dump was not written to its end.
pub(crate) fn read(dump: &[u8]) -> Option<State> {
    let mut fields = dump.strip_suffix(END)?.strip_suffix(b"\0")?.split(|byte| *byte == 0);
    let cwd = fields.next()?;
    let cwd = cwd.strip_suffix(b"\n").unwrap_or(cwd).to_vec();
    if !cwd.starts_with(b"/") {
        return None;
    }
    let mut state = State { cwd, env: assignments(fields.next()?), ..State::default() };
    let Some(aliases) = fields.next() else { return Some(state) };
    state.aliases = assignments(aliases);
    while let (Some(head), Some(text)) = (fields.next(), fields.next()) {
        // `declare -f name`, or `declare -fx name` if children are to get it.
        let mut words = head.splitn(3, |byte| *byte == b' ').skip(1);
        let (Some(flags), Some(name)) = (words.next(), words.next()) else { return None };
        let function = Function { text: text.to_vec(), exported: flags.contains(&b'x') };
        state.functions.insert(name.to_vec(), function);
    }
    Some(state)
}

/// The last word of each line, which is `name=value`. A name without a value has none to keep, and an array
/// cannot be handed to another shell.
fn assignments(text: &[u8]) -> Map {
    let mut found = Map::new();
    for line in word::lines(text) {
        let array = line.get(1).is_some_and(|flags| {
            flags.starts_with(b"-") && flags.iter().any(|flag| matches!(flag, b'a' | b'A'))
        });
        let Some(last) = line.last().filter(|_| !array) else { continue };
        let mut halves = last.splitn(2, |byte| *byte == b'=');
        if let (Some(name), Some(value)) = (halves.next(), halves.next()) {
            found.insert(name.to_vec(), value.to_vec());
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const WHOLE: &[u8] = b"/tmp/a b\n\0declare -x A=\"1\"\ndeclare -x GONE\ndeclare -ax L=([0]=\"x\")\n\0\
        alias ll='ls -l'\n\0declare -fx f\0f () \n{ \n    echo\n}\n\0end\0";

    #[test]
    fn a_whole_dump_is_read() {
        let f = Function { text: b"f () \n{ \n    echo\n}\n".to_vec(), exported: true };
        assert_eq!(
            read(WHOLE),
            Some(State {
                cwd: b"/tmp/a b".to_vec(),
                env: Map::from([(b"A".to_vec(), b"1".to_vec())]),
                functions: [(b"f".to_vec(), f)].into(),
                aliases: Map::from([(b"ll".to_vec(), b"ls -l".to_vec())]),
            })
        );
    }

    #[test]
    fn a_dump_cut_anywhere_is_no_state() {
        for length in 0..WHOLE.len() {
            assert_eq!(read(&WHOLE[..length]), None, "{length}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_harm(mut bytes: Vec<u8>) {
            bytes.extend_from_slice(b"\0end\0");
            read(&bytes);
        }
    }
}
