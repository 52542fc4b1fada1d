//! Destructive commands among the words of a program that is not declared.
//!
//! Thousands of programs run what they are given: benchmarks, jails, remote runners, typesetters,
//! calculators. They cannot all be declared. So unless a program is known to never run its words, a
//! stretch of them that would destroy something if it were run is judged as if it were.

use super::nested::Nested;
use super::*;

/// Programs that destroy, by their bare names.
const DESTROYERS: &[&str] = &[
    "rm", "dd", "shred", "unlink", "mkfs", "mke2fs", "wipefs", "blkdiscard", "shutdown", "reboot", "halt",
    "poweroff", "chmod", "chown", "sudo",
];

/// The number of such stretches that are judged; as many are a doubt.
const MAX_STRETCHES: usize = 8;

/// Commands that the words or the input of a segment may hold.
pub(super) fn commands(segment: &Segment) -> Vec<Nested> {
    if segment.name.is_empty() || is_destroyer(&segment.name) {
        return Vec::new();
    }
    let args = segment.args.as_slice();
    let texts = |text: &str| tails(text).into_iter().map(|tail| Nested::text(Word::literal(tail))).collect();
    let mut found: Vec<Nested> = Vec::new();
    for (index, text) in args.iter().enumerate().filter_map(|(index, word)| Some((index, word.known()?))) {
        if found.len() >= MAX_STRETCHES {
            break;
        }
        let is_program = is_destroyer(text.rsplit('/').next().unwrap_or(text)) && index + 1 < args.len();
        let rest = args.get(index..).filter(|_| is_program).and_then(Nested::argv);
        found.extend(rest.map_or_else(|| texts(text), |rest| vec![rest]));
    }
    found.extend(texts(segment.stdin.text.as_ref().and_then(Word::known).unwrap_or_default()));
    if found.len() >= MAX_STRETCHES {
        found.push(Nested::TooMuch);
    }
    found
}

fn is_destroyer(name: &str) -> bool {
    DESTROYERS.contains(&name) || name.starts_with("mkfs.")
}

/// The stretches of a text that begin with a program that destroys, each up to a quote, a bracket
/// or the line's end.
fn tails(text: &str) -> Vec<&str> {
    let mut found = Vec::new();
    for (at, _) in text.match_indices([' ', '\t']).take(4096) {
        if found.len() == MAX_STRETCHES {
            break;
        }
        let before = text.get(..at).unwrap_or_default();
        let start = before
            .rfind(|char: char| !(char.is_ascii_alphanumeric() || matches!(char, '.' | '_' | '-')))
            .map_or(0, |index| index + 1);
        let is_word = before.get(start..).is_some_and(is_destroyer);
        if is_word && let Some(tail) = text.get(start..) {
            let end = tail.find(['"', '\'', '`', ')', '}', '\n']).unwrap_or(tail.len());
            found.extend(tail.get(..end));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tails_begin_at_a_program_and_end_with_the_quote_around_it() {
        let cases: [(&str, &[&str]); 6] = [
            ("system \"rm -rf /\"", &["rm -rf /"]),
            ("!/bin/rm -rf /", &["rm -rf /"]),
            ("syscmd(rm -rf /)x", &["rm -rf /"]),
            ("a; sudo rm -rf /", &["sudo rm -rf /", "rm -rf /"]),
            ("alarm -rf /", &[]),
            ("rm", &[]),
        ];
        for (text, expected) in cases {
            assert_eq!(tails(text), expected, "{text}");
        }
    }
}
