//! Brace expansion. It comes before all others and works on the text of a word, so a name in front
//! of a brace grows: `$HOME{1..2}` means `$HOME1 $HOME2`.

use std::rc::Rc;

use super::budget::MAX_BRACE_WORDS;
use super::parse::is_name_byte;
use super::syntax::{Parameter, RawWord, WordPart};

/// The words that a word with braces stands for.
pub(super) struct Braces {
    pub(super) words: Vec<RawWord>,
    /// The number of units that were moved.
    pub(super) moved: usize,
    /// Whether a dollar sign meets text that makes it an expansion.
    pub(super) makes_expansion: bool,
}

/// The unit that brace expansion moves.
#[derive(Debug, Clone)]
enum BraceUnit {
    /// A character that is not quoted.
    Live(char),
    Part(WordPart),
}

use BraceUnit::{Live, Part};

impl Braces {
    /// The alternatives of a word, if it may have several.
    pub(super) fn of(word: &[WordPart]) -> Option<Self> {
        if !word.iter().any(|part| matches!(part, WordPart::Text(text) if text.contains('{'))) {
            return None;
        }
        let units = word.iter().flat_map(|part| match part {
            WordPart::Text(text) => text.chars().map(Live).collect(),
            part => vec![Part(part.clone())],
        });
        let mut moved = 0;
        let alternatives = alternatives(units.collect(), &mut moved);
        let makes_expansion = alternatives.len() > 1 && alternatives.iter().any(|units| joins_dollar(units));
        let words = alternatives.into_iter().map(word_of).collect();
        Some(Self { words, moved, makes_expansion })
    }
}

/// Whether a single dollar sign stands in front of something that it expands.
fn joins_dollar(units: &[BraceUnit]) -> bool {
    units.windows(2).any(|pair| match pair {
        [Live('$'), Live(char)] => char.is_ascii_alphanumeric() || "_@*#?$!-{[".contains(*char),
        [Live('$'), Part(part)] => !matches!(part, WordPart::Quoted(_)),
        _ => false,
    })
}

/// The word of these units.
fn word_of(units: Vec<BraceUnit>) -> RawWord {
    let mut word: RawWord = Vec::new();
    for unit in units {
        match (unit, word.last_mut()) {
            (Live(char), Some(WordPart::Text(text))) => text.push(char),
            (Live(char), Some(WordPart::Parameter(parameter)))
                if parameter.is_open && !parameter.quoted && u8::try_from(char).is_ok_and(is_name_byte) =>
            {
                let name = format!("{}{char}", parameter.name);
                *parameter = Rc::new(Parameter { name, is_open: true, ..Parameter::default() });
            }
            (Live(char), _) => word.push(WordPart::Text(char.to_string())),
            (Part(part), _) => word.push(part),
        }
    }
    word
}

/// All alternatives of a word with braces. Counts the units it moved.
fn alternatives(units: Vec<BraceUnit>, moved: &mut usize) -> Vec<Vec<BraceUnit>> {
    let mut done = Vec::new();
    let mut todo = vec![(units, 0)];
    while let Some((units, from)) = todo.pop() {
        *moved += units.len();
        let Some((start, end, members)) = first_brace(&units, from) else {
            done.push(units);
            continue;
        };
        let too_many = done.len() + todo.len() + members.len() > MAX_BRACE_WORDS;
        if too_many || units.len() * members.len() > MAX_BRACE_WORDS * 32 {
            // Too many to list: the rest of the word is unknown.
            let mut cut: Vec<BraceUnit> = units.into_iter().take(start).collect();
            cut.push(Part(WordPart::Arithmetic(Vec::new())));
            done.push(cut);
            continue;
        }
        let head = units.get(..start).unwrap_or_default();
        let tail = units.get(end + 1..).unwrap_or_default();
        for member in members.into_iter().rev() {
            let mut whole = head.to_vec();
            whole.extend(member);
            whole.extend(tail.iter().cloned());
            todo.push((whole, start));
        }
    }
    done
}

/// The first brace expression at or after an index: its start, end and members.
fn first_brace(units: &[BraceUnit], from: usize) -> Option<(usize, usize, Vec<Vec<BraceUnit>>)> {
    let nesting = |depth: usize, unit: &BraceUnit| match unit {
        Live('{') => depth + 1,
        Live('}') => depth.saturating_sub(1),
        _ => depth,
    };
    let opens = (from..units.len()).filter(|at| matches!(units.get(*at), Some(Live('{'))));
    // An unclosed brace costs a scan to the end; no ordinary word has more than a few.
    opens.take(8).find_map(|start| {
        let mut depth = 0;
        let length = units.get(start..)?.iter().position(|unit| {
            depth = nesting(depth, unit);
            depth == 0
        })?;
        let inside = units.get(start + 1..start + length)?;
        let members = inside.split(|unit| {
            depth = nesting(depth, unit);
            depth == 0 && matches!(unit, Live(','))
        });
        let members: Vec<Vec<BraceUnit>> = members.map(<[BraceUnit]>::to_vec).collect();
        let members = if members.len() > 1 { members } else { sequence(inside)? };
        Some((start, start + length, members))
    })
}

/// `{1..9}` and `{a..e}`, with a step or without.
fn sequence(inside: &[BraceUnit]) -> Option<Vec<Vec<BraceUnit>>> {
    let chars = inside.iter().map(|unit| if let Live(char) = unit { Some(*char) } else { None });
    let text = chars.collect::<Option<String>>()?;
    let mut parts = text.split("..");
    let ends = [parts.next()?, parts.next()?];
    let step: i64 = parts.next().map_or(Some(1), |step| step.parse().ok())?;
    if parts.next().is_some() {
        return None;
    }
    let step = step.unsigned_abs().max(1);
    let alphabetic_code = |text: &str| {
        let char = text.parse::<char>().ok().filter(char::is_ascii_alphabetic)?;
        Some(i64::from(u32::from(char)))
    };
    let numbers = ends.map(|end| end.parse::<i64>().ok());
    let (from, to, alphabetic) = match (numbers, ends.map(alphabetic_code)) {
        ([Some(from), Some(to)], _) => (from, to, false),
        (_, [Some(from), Some(to)]) => (from, to, true),
        _ => return None,
    };
    let count = from.abs_diff(to) / step;
    let limit = u64::try_from(MAX_BRACE_WORDS).unwrap_or(u64::MAX);
    let is_padded =
        |end: &&str| end.trim_start_matches('-').starts_with('0') && end.trim_start_matches('-').len() > 1;
    let width =
        if ends.iter().any(is_padded) { ends.map(str::len).into_iter().max().unwrap_or(0) } else { 0 };
    (0..=count.min(limit))
        .map(|index| {
            let offset = index.checked_mul(step)?;
            let value = if from <= to {
                from.checked_add_unsigned(offset)
            } else {
                from.checked_sub_unsigned(offset)
            }?;
            let text = if alphabetic {
                char::from_u32(u32::try_from(value).ok()?)?.to_string()
            } else {
                format!("{value:0width$}")
            };
            // Between `Z` and `a` lies a backslash, which quotes what is behind it.
            let quoted = |char| if char == '\\' { Part(WordPart::Quoted(String::new())) } else { Live(char) };
            Some(text.chars().map(quoted).collect())
        })
        .collect()
}
