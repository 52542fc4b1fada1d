//! Parses the state dump that the exit trap of a shell writes; `script.rs` generates the trap.

use super::script::DUMP_END;
use super::state::{ByteMap, ShellFunction, ShellState};
use super::unquote;

/// The state in a dump, or `None` if the dump is incomplete.
pub(crate) fn parse_dump(dump: &[u8]) -> Option<ShellState> {
    let mut fields = dump.strip_suffix(DUMP_END)?.strip_suffix(b"\0")?.split(|byte| *byte == 0);
    let cwd = fields.next()?;
    let cwd = cwd.strip_suffix(b"\n").unwrap_or(cwd).to_vec();
    if !cwd.starts_with(b"/") {
        return None;
    }
    let mut state = ShellState { cwd, env: parse_assignments(fields.next()?), ..ShellState::default() };
    let Some(aliases) = fields.next() else { return Some(state) };
    state.aliases = parse_assignments(aliases);
    while let (Some(head), Some(text)) = (fields.next(), fields.next()) {
        // `declare -f name`, or `declare -fx name` for an exported function.
        let mut words = head.splitn(3, |byte| *byte == b' ').skip(1);
        let (Some(flags), Some(name)) = (words.next(), words.next()) else { return None };
        let function = ShellFunction { text: text.to_vec(), is_exported: flags.contains(&b'x') };
        state.functions.insert(name.to_vec(), function);
    }
    Some(state)
}

/// The last word of each line, which is `name=value`. Names without a value and arrays are skipped:
/// an array cannot be exported to another shell.
fn parse_assignments(text: &[u8]) -> ByteMap {
    let mut found = ByteMap::new();
    for line in unquote::parse_lines(text) {
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
    fn a_complete_dump_is_parsed() {
        let f = ShellFunction { text: b"f () \n{ \n    echo\n}\n".to_vec(), is_exported: true };
        assert_eq!(
            parse_dump(WHOLE),
            Some(ShellState {
                cwd: b"/tmp/a b".to_vec(),
                env: ByteMap::from([(b"A".to_vec(), b"1".to_vec())]),
                functions: [(b"f".to_vec(), f)].into(),
                aliases: ByteMap::from([(b"ll".to_vec(), b"ls -l".to_vec())]),
            })
        );
    }

    #[test]
    fn a_truncated_dump_is_rejected() {
        for length in 0..WHOLE.len() {
            assert_eq!(parse_dump(&WHOLE[..length]), None, "{length}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_parsed_without_panic(mut bytes: Vec<u8>) {
            bytes.extend_from_slice(b"\0end\0");
            parse_dump(&bytes);
        }
    }
}
