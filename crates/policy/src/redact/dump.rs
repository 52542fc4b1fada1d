//! Known values in the output of `xxd`, `od`, `hexdump` and similar programs.
//!
//! A line of such output is an offset, which may be missing, and numbers or characters, which may be
//! followed by a column of text. Consecutive lines are decoded together, in each format, and the
//! values are searched in the bytes. A line that shows a part of a value is removed whole, because
//! the column of text repeats the value.

use std::ops::Range;

use super::PLACEHOLDER;

#[derive(Clone, Copy, PartialEq, Eq)]
enum DumpFormat {
    /// `xxd`, `od -tx1`, `hexdump -C`
    Hex,
    /// `hexdump`, `od -x`: numbers of two or more bytes, the low byte first
    HexWords,
    /// `od -b`, and `od` without options: numbers of one or two bytes
    Octal,
    /// `od -tu1`, `od -d`, and lists of numbers in programs
    Decimal,
    /// `od -c`
    Chars,
}

const FORMATS: [DumpFormat; 5] =
    [DumpFormat::Hex, DumpFormat::HexWords, DumpFormat::Octal, DumpFormat::Decimal, DumpFormat::Chars];

/// The shortest offset column.
const MIN_OFFSET_DIGITS: usize = 6;

/// Removes lines that show a value; `None` if there are none. `find` returns where values are.
pub(super) fn replace(bytes: &[u8], find: impl Fn(&[u8]) -> Vec<Range<usize>>) -> Option<Vec<u8>> {
    let mut hidden: Vec<Range<usize>> = Vec::new();
    let mut block: Vec<Range<usize>> = Vec::new();
    let mut start = 0;
    for line in bytes.split_inclusive(|byte| *byte == b'\n') {
        let range = start..start + line.len();
        start = range.end;
        if is_dump_line(line) {
            block.push(range);
        } else {
            hidden.extend(find_in_block(bytes, &block, &find));
            block.clear();
        }
    }
    hidden.extend(find_in_block(bytes, &block, &find));
    hidden.sort_by_key(|range| (range.start, range.end));
    let mut out = Vec::new();
    let mut written = 0;
    for range in hidden {
        if range.end <= written {
            continue;
        }
        let is_adjacent = written > 0 && range.start <= written;
        if !is_adjacent {
            out.extend_from_slice(bytes.get(written..range.start).unwrap_or_default());
            out.extend_from_slice(PLACEHOLDER.as_bytes());
            out.push(b'\n');
        }
        written = range.end;
    }
    if written == 0 {
        return None;
    }
    // The last line may have no end.
    if bytes.get(written - 1) != Some(&b'\n') {
        out.pop();
    }
    out.extend_from_slice(bytes.get(written..).unwrap_or_default());
    Some(out)
}

/// The lines of a block that show a part of a value.
fn find_in_block(
    bytes: &[u8],
    block: &[Range<usize>],
    find: impl Fn(&[u8]) -> Vec<Range<usize>>,
) -> Vec<Range<usize>> {
    let mut hidden = Vec::new();
    for format in FORMATS {
        let mut decoded = Vec::new();
        // Where the bytes of each line begin.
        let mut starts = Vec::new();
        for line in block {
            starts.push(decoded.len());
            format.decode(bytes.get(line.clone()).unwrap_or_default(), &mut decoded);
        }
        for value in find(&decoded) {
            let first = starts.partition_point(|start| *start <= value.start).saturating_sub(1);
            let end = starts.partition_point(|start| *start < value.end);
            hidden.extend(block.get(first..end).unwrap_or_default().iter().cloned());
        }
    }
    hidden
}

/// Whether a line begins like a line of a dump. Nearly all other text fails at its first word.
fn is_dump_line(line: &[u8]) -> bool {
    let placeholder = PLACEHOLDER.as_bytes();
    words(line).next().is_some_and(|word| number(word).iter().all(u8::is_ascii_hexdigit))
        && !line.windows(placeholder.len()).any(|window| window == placeholder)
}

/// The words of a line up to a column of text in bars.
fn words(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    let is_separator = |byte: &u8| byte.is_ascii_whitespace() || b",:;[](){}".contains(byte);
    let data = line.split(|byte| *byte == b'|').next().unwrap_or_default();
    data.split(is_separator).filter(|word| !word.is_empty())
}

/// A number without the prefix of programming languages.
fn number(word: &[u8]) -> &[u8] {
    word.strip_prefix(b"0x").filter(|digits| !digits.is_empty()).unwrap_or(word)
}

impl DumpFormat {
    fn decode(self, line: &[u8], out: &mut Vec<u8>) {
        let has_offset = {
            let mut words = words(line);
            let (first, second) = (words.next().unwrap_or_default(), words.next());
            first.len() >= MIN_OFFSET_DIGITS && second.is_some_and(|second| second.len() != first.len())
        };
        let mut width = None;
        if self == Self::Chars {
            // Any character can be data.
            let words = line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
            for word in words.skip(usize::from(has_offset)) {
                if decode_char(word, out).is_none() {
                    return;
                }
            }
            return;
        }
        for word in words(line).skip(usize::from(has_offset)).map(number) {
            // A longer word is in a column of text.
            let is_data = self == Self::Decimal || word.len() <= *width.get_or_insert(word.len());
            if !is_data || self.decode_number(word, out).is_none() {
                return;
            }
        }
    }

    fn decode_number(self, word: &[u8], out: &mut Vec<u8>) -> Option<()> {
        let text = std::str::from_utf8(word).ok()?;
        let parse = |radix| u32::from_str_radix(text, radix).ok();
        match self {
            Self::Hex | Self::HexWords => {
                let start = out.len();
                let mut pairs = word.chunks_exact(2);
                for pair in &mut pairs {
                    let Some(byte) = std::str::from_utf8(pair).ok().and_then(parse_hex) else {
                        out.truncate(start);
                        return None;
                    };
                    out.push(byte);
                }
                if self == Self::HexWords {
                    out.get_mut(start..)?.reverse();
                }
                pairs.remainder().is_empty().then_some(())?;
            }
            Self::Octal if word.len() == 3 => out.push(u8::try_from(parse(8)?).ok()?),
            Self::Octal if word.len() == 6 => out.extend(u16::try_from(parse(8)?).ok()?.to_le_bytes()),
            Self::Octal if word.len() == 11 => out.extend(parse(8)?.to_le_bytes()),
            Self::Decimal if word.len() <= 3 => out.push(u8::try_from(parse(10)?).ok()?),
            Self::Decimal => out.extend(u16::try_from(parse(10)?).ok()?.to_le_bytes()),
            Self::Octal | Self::Chars => return None,
        }
        Some(())
    }
}

fn parse_hex(pair: &str) -> Option<u8> {
    u8::from_str_radix(pair, 16).ok()
}

/// A character, an escape such as `\n`, or three octal digits.
fn decode_char(word: &[u8], out: &mut Vec<u8>) -> Option<()> {
    match word {
        [byte] => out.push(*byte),
        [b'\\', escape] => out.push(match escape {
            b'n' => b'\n',
            b't' => b'\t',
            b'r' => b'\r',
            _ => 0,
        }),
        [_, _, _] => out.push(u8::from_str_radix(std::str::from_utf8(word).ok()?, 8).ok()?),
        _ => return None,
    }
    Some(())
}
