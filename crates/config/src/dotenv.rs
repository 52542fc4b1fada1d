//! The secrets file: `NAME=value` lines with quotes, `export`, comments and values over several
//! lines.
//!
//! An invalid line is reported with its number, and the others still count. Changing one value
//! leaves all other bytes unchanged.

use std::ops::Range;

/// A parsed secrets file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DotEnv {
    /// The values in file order; the last one with a name counts.
    pub entries: Vec<DotEnvEntry>,
    pub invalid_lines: Vec<InvalidLine>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DotEnvEntry {
    pub name: String,
    /// Unquoted.
    pub value: String,
    /// The first line of the value, from 1.
    pub line: usize,
    /// The bytes of the value, with quotes.
    span: Range<usize>,
    /// The bytes of all its lines.
    lines: Range<usize>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvalidLine {
    /// Starts at 1.
    pub line: usize,
    /// Does not repeat the line, which may hold a secret.
    pub reason: &'static str,
}

impl DotEnv {
    /// Parses a text; invalid lines are in `invalid_lines`.
    pub fn parse(text: &str) -> Self {
        let mut file = Self::default();
        let mut at = if text.starts_with('\u{feff}') { '\u{feff}'.len_utf8() } else { 0 };
        let mut line = 1;
        while at < text.len() {
            let end = line_end(text, at);
            let content = text.get(at..end).unwrap_or_default();
            let trimmed = content.trim();
            let mut next = end;
            if !trimmed.is_empty() && !trimmed.starts_with('#') {
                match read_line(text, at, end) {
                    Ok(mut entry) => {
                        entry.line = line;
                        next = entry.lines.end;
                        file.entries.push(entry);
                    }
                    Err(reason) => file.invalid_lines.push(InvalidLine { line, reason }),
                }
            }
            next = skip_break(text, next);
            line += text.get(at..next).unwrap_or_default().matches('\n').count();
            at = next.max(at + 1);
        }
        file
    }

    /// The last entry with a name.
    pub fn get(&self, name: &str) -> Option<&DotEnvEntry> {
        self.entries.iter().rev().find(|entry| entry.name == name)
    }
}

/// The text with `name` set to `value`.
pub fn set(text: &str, name: &str, value: &str) -> String {
    let quoted = quote(value);
    if let Some(entry) = DotEnv::parse(text).get(name) {
        return splice(text, entry.span.clone(), &quoted);
    }
    let newline = if text.contains("\r\n") { "\r\n" } else { "\n" };
    let gap = if text.is_empty() || text.ends_with('\n') { "" } else { newline };
    format!("{text}{gap}{name}={quoted}{newline}")
}

/// The text without any line that sets `name`.
pub fn unset(text: &str, name: &str) -> String {
    let mut result = text.to_owned();
    for entry in DotEnv::parse(text).entries.iter().rev().filter(|entry| entry.name == name) {
        let start = entry.lines.start;
        result = splice(&result, start..skip_break(&result, entry.lines.end), "");
    }
    result
}

fn splice(text: &str, span: Range<usize>, with: &str) -> String {
    let (before, after) = (text.get(..span.start), text.get(span.end..));
    [before.unwrap_or_default(), with, after.unwrap_or_default()].concat()
}

fn read_line(text: &str, start: usize, end: usize) -> Result<DotEnvEntry, &'static str> {
    let content = text.get(start..end).unwrap_or_default();
    let equals = content.find('=').ok_or("missing `=`")?;
    let left = content.get(..equals).unwrap_or_default().trim();
    let name =
        left.strip_prefix("export").filter(|rest| rest.starts_with([' ', '\t'])).unwrap_or(left).trim();
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-');
    if name.is_empty() || !name.chars().all(fits) || name.starts_with(|c: char| c.is_ascii_digit()) {
        return Err("invalid variable name before `=`");
    }
    let value_at = start + equals + 1;
    let raw = text.get(value_at..end).unwrap_or_default();
    let opening = value_at + (raw.len() - raw.trim_start_matches([' ', '\t']).len());
    let (value, span) = match text.get(opening..).and_then(|rest| rest.chars().next()) {
        Some(quote @ ('"' | '\'')) => {
            let (value, close) = read_quoted(text, opening, quote).ok_or("the quote is never closed")?;
            let rest = text.get(close..line_end(text, close)).unwrap_or_default().trim_start();
            if !rest.is_empty() && !rest.starts_with('#') {
                return Err("text after the closing quote");
            }
            (value, opening..close)
        }
        _ => {
            let plain = raw.trim_start();
            // A `#` starts a comment only after a space: it may be part of a password.
            let comment = plain
                .char_indices()
                .zip([' '].into_iter().chain(plain.chars()))
                .find(|&((_, c), before)| c == '#' && before.is_whitespace())
                .map_or(plain.len(), |((index, _), _)| index);
            let value = plain.get(..comment).unwrap_or_default().trim_end();
            (value.to_owned(), opening..opening + value.len())
        }
    };
    if value.contains('\u{fffd}') {
        return Err("it is not UTF-8");
    }
    let lines = start..line_end(text, span.end);
    Ok(DotEnvEntry { name: name.to_owned(), value, line: 0, span, lines })
}

/// The text between quotes, and the end of the closing quote.
fn read_quoted(text: &str, open: usize, quote: char) -> Option<(String, usize)> {
    let mut value = String::new();
    let mut chars = text.get(open..)?.char_indices().skip(1);
    while let Some((index, c)) = chars.next() {
        match c {
            c if c == quote => return Some((value, open + index + 1)),
            '\\' => {
                let (_, escaped) = chars.next()?;
                match (quote, escaped) {
                    (_, c) if c == quote || c == '\\' => value.push(c),
                    ('"', 'n') => value.push('\n'),
                    ('"', 'r') => value.push('\r'),
                    ('"', 't') => value.push('\t'),
                    ('"', '$') => value.push('$'),
                    (_, c) => value.extend(['\\', c]),
                }
            }
            '\r' if text.get(open + index + 1..).is_some_and(|rest| rest.starts_with('\n')) => {}
            c => value.push(c),
        }
    }
    None
}

/// Quotes a value so that this parser, a shell and the Python program read the same.
fn quote(value: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_./:@+,=-%".contains(c);
    if !value.is_empty() && value.chars().all(plain) {
        return value.to_owned();
    }
    if !value.contains(['\'', '\\', '\r']) {
        return format!("'{value}'");
    }
    let mut quoted = String::from("\"");
    for c in value.chars() {
        match c {
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '"' | '\\' | '$' => quoted.extend(['\\', c]),
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

fn line_end(text: &str, at: usize) -> usize {
    let rest = text.get(at..).unwrap_or_default();
    let end = rest.find('\n').unwrap_or(rest.len());
    at + rest.get(..end).map_or(end, |line| line.trim_end_matches('\r').len())
}

fn skip_break(text: &str, at: usize) -> usize {
    let rest = text.get(at..).unwrap_or_default();
    at + rest.find('\n').map_or(rest.len(), |index| index + 1)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn pairs(text: &str) -> Vec<(String, String)> {
        DotEnv::parse(text).entries.into_iter().map(|e| (e.name, e.value)).collect()
    }

    #[test]
    fn all_notations_of_values_are_read() {
        let text = "\u{feff}# head\r\nA=1\r\nexport B = two words # note\r\nC='a # b'  # c\r\nD=\"x\\ny\\\"\\$\"\r\n\
                    E=pass#word\r\nF=\r\nG='line1\r\nline2'\r\nexport=5\r\nH=\"tab\\tq\\z\"\r\nI='it\\'s'\r\n";
        let expected = [
            ("A", "1"),
            ("B", "two words"),
            ("C", "a # b"),
            ("D", "x\ny\"$"),
            ("E", "pass#word"),
            ("F", ""),
            ("G", "line1\nline2"),
            ("export", "5"),
            ("H", "tab\tq\\z"),
            ("I", "it's"),
        ];
        let expected: Vec<_> = expected.map(|(a, b)| (a.to_owned(), b.to_owned())).into();
        assert_eq!(pairs(text), expected);
        assert_eq!(DotEnv::parse(text).get("I").unwrap().line, 12);
    }

    #[test]
    fn an_invalid_line_is_reported_and_the_rest_is_read() {
        let file = DotEnv::parse("A=1\nnonsense\n9X=1\nB=\"open\nC=3\nD='x' y\nE=5\n");
        let invalid: Vec<_> = file.invalid_lines.iter().map(|line| (line.line, line.reason)).collect();
        assert_eq!(
            invalid,
            [
                (2, "missing `=`"),
                (3, "invalid variable name before `=`"),
                (4, "the quote is never closed"),
                (6, "text after the closing quote"),
            ]
        );
        let names: Vec<_> = file.entries.iter().map(|e| e.name.as_str()).collect();
        assert_eq!(names, ["A", "C", "E"]);
    }

    #[test]
    fn set_and_unset_change_only_one_name() {
        let text = "# keep\r\nexport A='old' # why\r\nB=2";
        assert_eq!(set(text, "A", "n w"), "# keep\r\nexport A='n w' # why\r\nB=2");
        assert_eq!(set(text, "C", "3"), "# keep\r\nexport A='old' # why\r\nB=2\r\nC=3\r\n");
        assert_eq!(unset(text, "A"), "# keep\r\nB=2");
        assert_eq!(unset(text, "B"), "# keep\r\nexport A='old' # why\r\n");
        assert_eq!(unset("A=1\nB='x\ny'\nA=2\n", "A"), "B='x\ny'\n");
    }

    proptest! {
        #[test]
        fn every_value_can_be_stored_in_every_file(before in "(?s).{0,80}", value in "(?s)[^\0]{0,60}") {
            let text = set(&before, "THE_NAME", &value);
            // An unclosed quote of the old text includes the appended line.
            prop_assume!(!DotEnv::parse(&before).invalid_lines.iter().any(|line| line.reason.contains("quote")));
            prop_assume!(!value.contains('\u{fffd}'));
            prop_assert_eq!(DotEnv::parse(&text).get("THE_NAME").map(|e| e.value.clone()), Some(value));
            let others = |text: &str| {
                pairs(text).into_iter().filter(|(name, _)| name != "THE_NAME").collect::<Vec<_>>()
            };
            prop_assert_eq!(others(&text), others(&before));
            let removed = unset(&text, "THE_NAME");
            prop_assert!(DotEnv::parse(&removed).get("THE_NAME").is_none());
            prop_assert_eq!(others(&removed), others(&before));
        }
    }
}
