//! Finds the text that a model means although its copy is not quite exact.
//!
//! Nine strategies are tried, from exact to approximate; the first one with a match decides. All
//! but the first work on files of moderate size only, and the last two never replace more than one
//! match.

use std::ops::Range;

use hermes_exec::files::Occurrences;

use crate::Error;
use crate::tool_support::text::truncate_chars;

/// A larger text is searched for exact matches only.
const MAX_FUZZY_BYTES: usize = 2 << 20;
/// Line comparisons of the most expensive strategy.
const MAX_COMPARISONS: usize = 400_000;
/// Similarity of two lines that count as equal, from 0 to 1.
const MIN_LINE_SIMILARITY: f64 = 0.8;
/// Share of equal lines in a block that counts as a match.
const MIN_MATCHING_LINES: f64 = 0.5;
/// Similarity of the middle of a block whose first and last lines match.
const MIN_MIDDLE_SIMILARITY: f64 = 0.5;
const MAX_LISTED_LOCATIONS: usize = 5;
const MAX_LISTED_CHARS: usize = 80;

#[derive(Debug)]
pub(super) struct Replacement {
    pub(super) content: String,
    pub(super) strategy: &'static str,
    pub(super) count: usize,
}

/// The strategy that needs no caution.
pub(super) const EXACT: &str = "exact";

/// The strategies whose match may be another text altogether.
const APPROXIMATE: [&str; 2] = ["block_anchor", "context_aware"];

/// Finds the old text in the content.
type FindMatches = fn(content: &str, old: &str) -> Vec<Range<usize>>;
/// Makes the new text for one match.
type FitNewText = fn(matched: &str, old: &str, new: &str) -> String;

const STRATEGIES: [(&str, FindMatches, FitNewText); 9] = [
    (EXACT, find_exact, keep_new),
    ("line_trimmed", find_trimmed_lines, reindent),
    ("whitespace_normalized", |content, old| find_mapped(content, old, collapse_blanks), keep_new),
    ("indentation_flexible", find_collapsed_lines, reindent),
    ("escape_normalized", find_unescaped, |_, _, new| unescape(new)),
    ("trimmed_boundary", |content, old| find_exact(content, old.trim()), |_, _, new| new.trim().to_owned()),
    ("unicode_normalized", |content, old| find_mapped(content, old, push_ascii_punctuation), keep_new),
    ("block_anchor", find_anchored_blocks, reindent),
    ("context_aware", find_similar_blocks, reindent),
];

/// Replaces a text.
pub(super) fn replace(
    content: &str,
    old: &str,
    new: &str,
    occurrences: Occurrences,
) -> Result<Replacement, Error> {
    let failure = |reason: String| Err(Error::File(reason));
    if old.trim().is_empty() {
        return failure(
            "`old_string` is empty or only white space; write_file writes a whole file".to_owned(),
        );
    }
    if old == new {
        return failure("`old_string` and `new_string` are the same; nothing to do".to_owned());
    }
    let tried = if content.len() > MAX_FUZZY_BYTES { 1 } else { STRATEGIES.len() };
    for (strategy, find, fit) in STRATEGIES.into_iter().take(tried) {
        let matches = find(content, old);
        let count = matches.len();
        if count == 0 {
            continue;
        }
        if count > 1 && occurrences == Occurrences::One {
            let locations = list_locations(content, &matches);
            return failure(format!(
                "`old_string` occurs {count} times; give more of the text around it, or replace_all=true:\n{locations}"
            ));
        }
        if count > 1 && APPROXIMATE.contains(&strategy) {
            let locations = list_locations(content, &matches);
            return failure(format!(
                "{count} texts are only similar to `old_string`, which is not enough for replace_all:\n{locations}"
            ));
        }
        if strategy != EXACT {
            check_escape_drift(content, &matches, old, new)?;
        }
        let content = splice(content, &matches, |matched| fit(matched, old, new));
        return Ok(Replacement { content, strategy, count });
    }
    failure(not_found_message(content, old, new))
}

fn splice(content: &str, matches: &[Range<usize>], new_text: impl Fn(&str) -> String) -> String {
    let mut replaced = String::with_capacity(content.len());
    let mut from = 0;
    for range in matches {
        replaced.push_str(content.get(from..range.start).unwrap_or_default());
        replaced.push_str(&new_text(content.get(range.clone()).unwrap_or_default()));
        from = range.end;
    }
    replaced.push_str(content.get(from..).unwrap_or_default());
    replaced
}

fn keep_new(_matched: &str, _old: &str, new: &str) -> String {
    new.to_owned()
}

/// Moves text from the indentation that the model used to that of the file.
fn reindent(matched: &str, old: &str, new: &str) -> String {
    // The match ends before the line end of its last line.
    let new = new.strip_suffix('\n').filter(|_| old.ends_with('\n')).unwrap_or(new);
    let (given, actual) = (first_indentation(old), first_indentation(matched));
    if given == actual {
        return new.to_owned();
    }
    let lines = new.split('\n').map(|line| match line.strip_prefix(given) {
        Some(rest) if !line.trim().is_empty() => format!("{actual}{rest}"),
        _ => line.to_owned(),
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// The indentation of the first non-blank line.
fn first_indentation(text: &str) -> &str {
    let line = text.lines().find(|line| !line.trim().is_empty()).unwrap_or_default();
    line.get(..line.len() - line.trim_start().len()).unwrap_or_default()
}

/// Rejects backslashes before quotes that the file does not have: JSON escaping added them by
/// mistake.
fn check_escape_drift(content: &str, matches: &[Range<usize>], old: &str, new: &str) -> Result<(), Error> {
    for quote in ["\\'", "\\\""] {
        let is_present =
            matches.iter().any(|range| content.get(range.clone()).is_some_and(|text| text.contains(quote)));
        if old.contains(quote) && new.contains(quote) && !is_present {
            return Err(Error::File(format!(
                "`old_string` and `new_string` have {quote} where the file has no backslash; send the text without it"
            )));
        }
    }
    Ok(())
}

fn find_exact(content: &str, old: &str) -> Vec<Range<usize>> {
    content.match_indices(old).map(|(at, text)| at..at + text.len()).collect()
}

fn find_trimmed_lines(content: &str, old: &str) -> Vec<Range<usize>> {
    find_line_blocks(content, old, |line, wanted| line.trim() == wanted.trim())
}

fn find_collapsed_lines(content: &str, old: &str) -> Vec<Range<usize>> {
    let collapsed = |line: &str| normalize(line.trim(), collapse_blanks);
    find_line_blocks(content, old, |line, wanted| collapsed(line) == collapsed(wanted))
}

fn find_unescaped(content: &str, old: &str) -> Vec<Range<usize>> {
    let plain = unescape(old);
    if plain == old { Vec::new() } else { find_exact(content, &plain) }
}

/// Each line without its end, and its offset.
fn line_offsets(content: &str) -> Vec<(usize, &str)> {
    let mut at = 0;
    let mut lines = Vec::new();
    for line in content.split_inclusive('\n') {
        lines.push((at, line.strip_suffix('\n').unwrap_or(line)));
        at += line.len();
    }
    lines
}

/// Blocks of lines that equal the wanted ones by some comparison. They do not overlap.
fn find_line_blocks(content: &str, old: &str, is_same: impl Fn(&str, &str) -> bool) -> Vec<Range<usize>> {
    let wanted: Vec<&str> = old.strip_suffix('\n').unwrap_or(old).split('\n').collect();
    let lines = line_offsets(content);
    let mut found = Vec::new();
    let mut next = 0;
    for (number, window) in lines.windows(wanted.len()).enumerate() {
        if number >= next && window.iter().zip(&wanted).all(|((_, line), wanted)| is_same(line, wanted)) {
            found.extend(block_range(window));
            next = number + wanted.len();
        }
    }
    found
}

fn block_range(window: &[(usize, &str)]) -> Option<Range<usize>> {
    let ((start, _), (last, line)) = (window.first()?, window.last()?);
    Some(*start..last + line.len())
}

/// Gets the previous character and the character, and appends the normalized form.
type Normalization = fn(Option<char>, char, &mut String);

/// A normalized text, and the original offset of each of its bytes and of its end.
fn normalize_mapped(text: &str, change: Normalization) -> (String, Vec<usize>) {
    let (mut normalized, mut offsets, mut before) = (String::new(), Vec::new(), None);
    for (at, c) in text.char_indices() {
        change(before, c, &mut normalized);
        offsets.resize(normalized.len(), at);
        before = Some(c);
    }
    offsets.push(text.len());
    (normalized, offsets)
}

fn normalize(text: &str, change: Normalization) -> String {
    normalize_mapped(text, change).0
}

/// Finds a text where both are normalized.
fn find_mapped(content: &str, old: &str, change: Normalization) -> Vec<Range<usize>> {
    let (normalized, offsets) = normalize_mapped(content, change);
    find_exact(&normalized, &normalize(old, change))
        .into_iter()
        .filter_map(|found| Some(*offsets.get(found.start)?..*offsets.get(found.end)?))
        // A character that became several may be matched in part.
        .filter(|range| !range.is_empty())
        .collect()
}

/// Collapses a run of blanks to one.
fn collapse_blanks(before: Option<char>, c: char, text: &mut String) {
    match (before, c) {
        (Some(' ' | '\t'), ' ' | '\t') => {}
        (_, ' ' | '\t') => text.push(' '),
        (_, c) => text.push(c),
    }
}

/// Replaces typographic punctuation by ASCII.
fn push_ascii_punctuation(_before: Option<char>, c: char, text: &mut String) {
    match c {
        '\u{2018}' | '\u{2019}' | '\u{201a}' | '\u{2032}' => text.push('\''),
        '\u{201c}' | '\u{201d}' | '\u{201e}' | '\u{2033}' => text.push('"'),
        '\u{2010}'..='\u{2013}' | '\u{2212}' => text.push('-'),
        '\u{2014}' => text.push_str("--"),
        '\u{2026}' => text.push_str("..."),
        '\u{a0}' | '\u{2000}'..='\u{200a}' | '\u{202f}' | '\u{205f}' | '\u{3000}' => text.push(' '),
        c => text.push(c),
    }
}

/// Resolves escapes that were written twice, such as a backslash and an n for a line end.
fn unescape(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text.chars();
    while let Some(c) = rest.next() {
        let mut ahead = rest.clone();
        let meant = match (c, ahead.next()) {
            ('\\', Some('n')) => Some('\n'),
            ('\\', Some('t')) => Some('\t'),
            ('\\', Some('r')) => Some('\r'),
            ('\\', Some(quote @ ('\'' | '"' | '\\' | '`'))) => Some(quote),
            _ => None,
        };
        if meant.is_some() {
            rest = ahead;
        }
        plain.push(meant.unwrap_or(c));
    }
    plain
}

/// Blocks whose first and last lines match and whose middle is similar.
fn find_anchored_blocks(content: &str, old: &str) -> Vec<Range<usize>> {
    let straighten = |text: &str| normalize(text, push_ascii_punctuation);
    let straight = straighten(old);
    let wanted: Vec<&str> = straight.trim_matches('\n').split('\n').map(str::trim).collect();
    let [first, middle @ .., last] = wanted.as_slice() else { return Vec::new() };
    if middle.is_empty() || first.is_empty() || last.is_empty() {
        return Vec::new();
    }
    let lines = line_offsets(content);
    let mut found = Vec::new();
    for window in lines.windows(wanted.len()) {
        let [(_, begin), inner @ .., (_, end)] = window else { continue };
        if straighten(begin).trim() == *first && straighten(end).trim() == *last {
            let similar: f64 =
                inner.iter().zip(middle).map(|((_, line), wanted)| similarity(line.trim(), wanted)).sum();
            if similar >= MIN_MIDDLE_SIMILARITY * middle.len() as f64 {
                found.extend(block_range(window));
            }
        }
    }
    found
}

/// The best blocks of which at least half of the lines are similar.
fn find_similar_blocks(content: &str, old: &str) -> Vec<Range<usize>> {
    let wanted: Vec<&str> = old.trim_matches('\n').split('\n').map(str::trim).collect();
    let lines = line_offsets(content);
    let filled = wanted.iter().filter(|wanted| !wanted.is_empty()).count();
    if filled < 2 || lines.len().saturating_mul(wanted.len()) > MAX_COMPARISONS {
        return Vec::new();
    }
    let (mut best, mut found) = (MIN_MATCHING_LINES, Vec::new());
    for window in lines.windows(wanted.len()) {
        let pairs = window.iter().zip(&wanted).filter(|(_, wanted)| !wanted.is_empty());
        let right = pairs
            .filter(|((_, line), wanted)| similarity(line.trim(), wanted) >= MIN_LINE_SIMILARITY)
            .count();
        let score = right as f64 / filled as f64;
        if score > best || (score >= best && found.is_empty()) {
            (best, found) = (score, block_range(window).into_iter().collect());
        } else if score >= best {
            found.extend(block_range(window));
        }
    }
    found
}

/// Similarity of two lines, from 0 to 1.
fn similarity(one: &str, other: &str) -> f64 {
    if one == other {
        return 1.0;
    }
    let (short, long) = (one.len().min(other.len()), one.len().max(other.len()));
    // Lines of very different length are not similar.
    if short * 3 < long { 0.0 } else { strsim::sorensen_dice(one, other) }
}

/// The locations of matches, one per line.
fn list_locations(content: &str, matches: &[Range<usize>]) -> String {
    let lines = matches.iter().take(MAX_LISTED_LOCATIONS).map(|range| {
        let before = content.get(..range.start).unwrap_or_default();
        let number = before.matches('\n').count() + 1;
        let start = before.rfind('\n').map_or(0, |end| end + 1);
        let line = content.get(start..).unwrap_or_default().lines().next().unwrap_or_default();
        format!("line {number}: {}", truncate_chars(line.trim(), MAX_LISTED_CHARS))
    });
    let mut lines: Vec<String> = lines.collect();
    if matches.len() > MAX_LISTED_LOCATIONS {
        lines.push(format!("and {} more", matches.len() - MAX_LISTED_LOCATIONS));
    }
    lines.join("\n")
}

/// The message for a text that is not in the file, with similar lines.
fn not_found_message(content: &str, old: &str, new: &str) -> String {
    if content.contains(new) && new.trim().len() >= 8 {
        return "`old_string` is not in the file, but `new_string` is: the change seems to have been made already"
            .to_owned();
    }
    let mut message = "`old_string` is not in the file".to_owned();
    let near = similar_lines(content, old);
    if !near.is_empty() {
        message.push_str("; these lines are similar to its first one:\n");
        message.push_str(&near.join("\n"));
    }
    message
}

fn similar_lines(content: &str, old: &str) -> Vec<String> {
    let Some(wanted) = old.lines().map(str::trim).find(|line| !line.is_empty()) else { return Vec::new() };
    let lines = content.lines().take(MAX_COMPARISONS / 10).enumerate();
    let mut near: Vec<(f64, usize, &str)> = lines
        .map(|(number, line)| (similarity(truncate_chars(line.trim(), 400), wanted), number + 1, line))
        .filter(|(likeness, _, _)| *likeness >= 0.5)
        .collect();
    near.sort_by(|(one, _, _), (other, _, _)| other.total_cmp(one));
    let nearest = near.into_iter().take(3);
    nearest
        .map(|(_, number, line)| format!("line {number}: {}", truncate_chars(line.trim(), MAX_LISTED_CHARS)))
        .collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn one(content: &str, old: &str, new: &str) -> (&'static str, String) {
        match replace(content, old, new, Occurrences::One) {
            Ok(change) => (change.strategy, change.content),
            Err(why) => ("", why.to_string()),
        }
    }

    #[test]
    fn each_strategy_finds_matches_that_stricter_ones_miss() {
        let cases = [
            ("a b c", "b", "x", "exact", "a x c"),
            ("if x:\n        y()\n", "if x:\n    y()", "if x:\n    z()", "line_trimmed", "if x:\n    z()\n"),
            ("  a()\n  b()\n", "a()\nb()\n", "a()\nc()\n", "line_trimmed", "  a()\n  c()\n"),
            ("f(a,  b) + 1", "f(a, b)", "g(a)", "whitespace_normalized", "g(a) + 1"),
            ("\tx  =  1\n\ty = 2\n", "x = 1\ny = 2", "x = 3", "indentation_flexible", "\tx = 3\n"),
            ("a\nb\n", "a\\nb", "c\\nd", "escape_normalized", "c\nd\n"),
            ("say(one)", "\n\n  say(one)\n\n", "say(two)", "trimmed_boundary", "say(two)"),
            ("it\u{2019}s \u{201c}so\u{201d}", "it's \"so\"", "x", "unicode_normalized", "x"),
            (
                "begin\n  let alpha = one;\nend\n", "begin\n  let alpha = two;\nend", "begin\nend",
                "block_anchor", "begin\nend\n",
            ),
            (
                "fn total(a, b)\nsum up everything\nreturn it\nlast line here\n",
                "fn total(a, c)\nsum up everything\nsomething else entirely different",
                "new",
                "context_aware",
                "new\nlast line here\n",
            ),
        ];
        for (content, old, new, strategy, expected) in cases {
            assert_eq!(one(content, old, new), (strategy, expected.to_owned()), "{content:?} {old:?}");
        }
    }

    #[test]
    fn several_matches_are_listed_and_never_guessed() {
        let (_, why) = one("x\nx\n", "x", "y");
        assert!(why.contains("2 times") && why.contains("line 1: x\nline 2: x"), "{why}");
        let all = replace("x\nx\n", "x", "y", Occurrences::All).unwrap();
        assert_eq!((all.content.as_str(), all.count), ("y\ny\n", 2));
        let blocks = "begin\naaaa bbbb\nend\nbegin\naaaa bbcb\nend\n";
        let why = replace(blocks, "begin\naaaa bbdb\nend", "", Occurrences::All).unwrap_err().to_string();
        assert!(why.contains("only similar"), "{why}");
    }

    #[test]
    fn a_missing_text_is_reported_with_similar_lines() {
        let (_, why) = one("let alpha = 1;\nlet beta = 2;\n", "let alfa = 1", "x");
        assert!(why.contains("line 1: let alpha = 1;"), "{why}");
        assert!(one("let beta = 22;\n", "let beta = 2a;", "let beta = 22;").1.contains("made already"));
        assert!(one("a", " ", "x").1.contains("white space"));
        assert!(one("a", "a", "a").1.contains("same"));
        let (_, why) = one("  say('it')\n  go()\n  end\n", "say(\\'it\\')\ngo()\nend", "say(\\'it\\')\nend");
        assert!(why.contains("backslash"), "{why}");
    }

    #[test]
    fn a_long_text_is_searched_for_exact_matches_only() {
        let long = "some line of text\n".repeat(200_000);
        assert!(one(&long, "some line of test", "x").1.contains("not in the file"));
    }

    proptest! {
        #[test]
        fn any_input_is_handled_and_only_the_match_changes(
            content in "[ab \t\n\\\\'ä\u{2014}\u{2026}]{0,60}", old in "[ab \t\n\\\\'ä\u{2014}.-]{0,12}", new in "[xy\n]{0,6}",
        ) {
            for occurrence in [Occurrences::One, Occurrences::All] {
                if let Ok(change) = replace(&content, &old, &new, occurrence) {
                    prop_assert!(change.count > 0);
                    if change.strategy == "exact" {
                        let expected = if occurrence == Occurrences::All {
                            content.replace(&old, &new)
                        } else {
                            content.replacen(&old, &new, 1)
                        };
                        prop_assert_eq!(change.content, expected);
                    }
                }
            }
        }
    }
}
