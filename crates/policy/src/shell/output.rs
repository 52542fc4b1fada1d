//! The output of simple commands and the files they create, as far as their words show it.

use super::Segment;
use super::args::has;
use super::value::{PipeData, Word, WordPiece};
use crate::file_effects::written_words;
use crate::programs::Invocation;

/// The longest decoded text that is followed.
const MAX_TEXT_BYTES: usize = 64 * 1024;

/// The standard output of a segment.
pub(super) fn standard_output(segment: &Segment) -> PipeData {
    let args = segment.args.as_slice();
    let operands_given = args.iter().any(|word| !word.prefix().starts_with('-'));
    let text = match segment.name.as_str() {
        "echo" => Some(echoed(args)),
        "printf" => printed(args),
        "cat" | "tee" | "sort" | "uniq" | "head" | "tail" if !operands_given || segment.name == "tee" => {
            segment.stdin.text.clone()
        }
        "cat" if matches!(args, [only] if only.known() == Some("-")) => segment.stdin.text.clone(),
        // A new file in a temporary directory, with a random name.
        "mktemp"
            if !has(args, &["-p", "--tmpdir"]) && !args.iter().any(|word| word.prefix().contains('/')) =>
        {
            Some(Word::from_pieces(vec![
                WordPiece::Text("/tmp/tmp.".to_owned()),
                WordPiece::Unknown(super::value::Unknown::Output(vec!["mktemp".to_owned()])),
            ]))
        }
        // A listing names at least what was asked for.
        "ls" | "find" if operands_given => {
            let named =
                args.iter().take_while(|word| segment.name == "ls" || !word.prefix().starts_with('-'));
            let named: Vec<Word> = named.filter(|word| !word.prefix().starts_with('-')).cloned().collect();
            let mut pieces = Word::joined(&named).pieces().to_vec();
            pieces.push(WordPiece::Text(" ".to_owned()));
            pieces.push(WordPiece::Unknown(super::value::Unknown::Output(vec![segment.name.clone()])));
            return PipeData { text: Some(Word::from_pieces(pieces)), programs: vec![segment.name.clone()] };
        }
        "pwd" => segment.cwd.clone().map(Word::literal),
        "which" | "realpath" => {
            args.last().and_then(Word::known).map(|name| Word::literal(program_path(name)))
        }
        "command" | "type" if has(args, &["-v", "-p", "-P"]) => {
            args.last().and_then(Word::known).map(|name| Word::literal(program_path(name)))
        }
        "base64" | "openssl" | "gbase64" if has(args, &["-d", "-D", "--decode"]) => {
            segment.stdin.text.as_ref().and_then(Word::known).and_then(base64).map(Word::literal)
        }
        "xxd" if has(args, &["-r"]) => {
            segment.stdin.text.as_ref().and_then(Word::known).and_then(hex).map(Word::literal)
        }
        "rev" if !operands_given => segment.stdin.text.as_ref().and_then(Word::known).map(|text| {
            let lines: Vec<String> = text.lines().map(|line| line.chars().rev().collect()).collect();
            Word::literal(lines.join("\n"))
        }),
        _ => None,
    };
    let mut programs = segment.stdin.programs.clone();
    if !segment.name.is_empty() && text.is_none() && programs.len() < 16 {
        programs.push(segment.name.clone());
    }
    if text.is_some() && !segment.stdin.is_piped() {
        programs.clear();
    }
    PipeData { text, programs }
}

fn program_path(name: &str) -> String {
    if name.contains('/') { name.to_owned() } else { format!("/usr/bin/{name}") }
}

fn echoed(args: &[Word]) -> Word {
    let flags = args
        .iter()
        .take_while(|word| {
            word.known().is_some_and(|text| {
                text.len() > 1
                    && text.starts_with('-')
                    && text.chars().skip(1).all(|char| "neE".contains(char))
            })
        })
        .count();
    let decode = has(args.get(..flags).unwrap_or_default(), &["-e"]);
    let words = Word::joined(args.get(flags..).unwrap_or_default());
    let mut pieces: Vec<WordPiece> = words
        .pieces()
        .iter()
        .map(|piece| match piece {
            WordPiece::Text(text) if decode => WordPiece::Text(unescape(text, true)),
            other => other.clone(),
        })
        .collect();
    pieces.push(WordPiece::Text("\n".to_owned()));
    Word::from_pieces(pieces)
}

/// The output of `printf` for these words, when the format is plain enough.
pub(super) fn printed(args: &[Word]) -> Option<Word> {
    let args = match args.first()?.known() {
        Some("--") => args.get(1..)?,
        _ => args,
    };
    let format = unescape(args.first()?.known()?, true);
    let mut rest = args.get(1..)?.iter();
    let mut pieces = Vec::new();
    for round in 0..64 {
        let mut used = false;
        let mut chars = format.chars();
        while let Some(char) = chars.next() {
            if char != '%' {
                pieces.push(WordPiece::Text(char.to_string()));
                continue;
            }
            match chars.next()? {
                '%' => pieces.push(WordPiece::Text("%".to_owned())),
                kind @ ('s' | 'b' | 'd' | 'q') => {
                    used = true;
                    for piece in rest.next().map(Word::pieces).unwrap_or_default() {
                        pieces.push(match piece {
                            WordPiece::Text(text) if kind == 'b' => WordPiece::Text(unescape(text, true)),
                            other => other.clone(),
                        });
                    }
                }
                _ => return None,
            }
        }
        if !used || rest.len() == 0 {
            return Some(Word::from_pieces(pieces));
        }
        if round == 63 {
            return None;
        }
    }
    None
}

/// Decodes the escapes of `echo -e`, `printf` and string literals. Whether the backslash in front
/// of any other character stays depends on the language.
pub(super) fn unescape(text: &str, keep_others: bool) -> String {
    let mut decoded = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes().iter().copied().peekable();
    while let Some(byte) = rest.next() {
        if byte != b'\\' {
            decoded.push(byte);
            continue;
        }
        match rest.next() {
            Some(b'n') => decoded.push(b'\n'),
            Some(b't') => decoded.push(b'\t'),
            Some(b'r') => decoded.push(b'\r'),
            Some(b'e') => decoded.push(27),
            Some(b'x') => decoded.push(take_number(&mut rest, 16, 2, 0).to_le_bytes()[0]),
            Some(b'u') => {
                let char = char::from_u32(take_number(&mut rest, 16, 4, 0)).unwrap_or_default();
                decoded.extend(char.encode_utf8(&mut [0; 4]).as_bytes());
            }
            Some(byte @ b'0'..=b'7') => {
                decoded.push(take_number(&mut rest, 8, 3, u32::from(byte - b'0')).to_le_bytes()[0]);
            }
            Some(b'\n') if !keep_others => {}
            Some(other) if !keep_others => decoded.push(other),
            Some(other) => decoded.extend([b'\\', other]),
            None => decoded.push(b'\\'),
        }
    }
    String::from_utf8_lossy(&decoded).into_owned()
}

fn take_number(
    rest: &mut std::iter::Peekable<impl Iterator<Item = u8>>,
    radix: u32,
    max_digits: usize,
    first: u32,
) -> u32 {
    let mut value = first;
    for _ in 0..max_digits {
        let Some(digit) = rest.peek().and_then(|byte| char::from(*byte).to_digit(radix)) else { break };
        value = value.wrapping_mul(radix).wrapping_add(digit);
        rest.next();
    }
    value
}

/// Decodes base64, or nothing when it is not.
pub(super) fn base64(text: &str) -> Option<String> {
    if text.len() > MAX_TEXT_BYTES {
        return None;
    }
    let mut bytes = Vec::new();
    let (mut bits, mut count) = (0_u32, 0);
    for byte in text.bytes().filter(|byte| !byte.is_ascii_whitespace() && *byte != b'=') {
        let value = match byte {
            b'A'..=b'Z' => byte - b'A',
            b'a'..=b'z' => byte - b'a' + 26,
            b'0'..=b'9' => byte - b'0' + 52,
            b'+' | b'-' => 62,
            b'/' | b'_' => 63,
            _ => return None,
        };
        bits = (bits << 6) | u32::from(value);
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push((bits >> count).to_le_bytes()[0]);
        }
    }
    String::from_utf8(bytes).ok()
}

fn hex(text: &str) -> Option<String> {
    let digits: Option<Vec<u32>> = text
        .chars()
        .filter(|char| !char.is_whitespace())
        .take(MAX_TEXT_BYTES)
        .map(|char| char.to_digit(16))
        .collect();
    let bytes = digits?
        .chunks(2)
        .map(|pair| pair.iter().fold(0_u32, |sum, digit| sum * 16 + digit).to_le_bytes()[0])
        .collect();
    String::from_utf8(bytes).ok()
}

/// Files a segment creates or makes executable, whose content is not known.
pub(super) fn created_files(segment: &Segment) -> Vec<Word> {
    let call = Invocation::new(segment);
    let words = call.operands();
    match call.name() {
        "chmod" => {
            let mode = words.first().and_then(|word| word.known()).unwrap_or("+x");
            let runs = mode.contains(['x', '1', '3', '5', '7']);
            if runs { words.into_iter().skip(1).cloned().collect() } else { Vec::new() }
        }
        "cp" | "mv" | "ln" | "install" => {
            let copies_program = words.iter().any(|word| crate::paths::is_program_directory(word.prefix()));
            let target = words.last().filter(|_| copies_program && words.len() > 1);
            target.map(|word| (*word).clone()).into_iter().collect()
        }
        "dd" => written_words(&call),
        name if call.program.is_some_and(|program| program.fetches) => {
            let mut files = written_words(&call);
            let by_remote_name = match name {
                "curl" => call.has(&["-O", "--remote-name", "--remote-name-all"]),
                _ => files.is_empty(),
            };
            if by_remote_name {
                files.extend(call.args.iter().filter_map(last_component));
            }
            files
        }
        _ => Vec::new(),
    }
}

/// The file name a URL would be saved under.
fn last_component(word: &Word) -> Option<Word> {
    let text = word.prefix();
    let (_, path) = text.split_once("://").unwrap_or(("", text));
    let name = path.split(['?', '#']).next()?.rsplit_once('/')?.1;
    (text.contains("://") && !name.is_empty()).then(|| Word::literal(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_decoded_as_the_programs_do() {
        assert_eq!(base64("cm0gLXJmIC8=").as_deref(), Some("rm -rf /"));
        assert_eq!(base64("not base64!"), None);
        assert_eq!(hex("726d").as_deref(), Some("rm"));
        assert_eq!(unescape("\\x72m\\040-rf\\n", true), "rm -rf\n");
        let words: Vec<Word> = ["%s%s", "r", "m"].map(Word::literal).to_vec();
        assert_eq!(printed(&words), Some(Word::literal("rm")));
    }
}
