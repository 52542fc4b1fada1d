//! Removes terminal escape sequences from output: colors, cursor movements, titles.

use std::borrow::Cow;

use vte::{Parser, Perform};

/// The text without escape sequences, in their 7-bit and their 8-bit form.
pub(crate) fn strip_ansi(text: &str) -> Cow<'_, str> {
    if !text.contains(is_escape) {
        return Cow::Borrowed(text);
    }
    let mut printed = Printed(String::with_capacity(text.len()));
    // Each line gets a new parser: an unterminated sequence must not hide the lines after it.
    for line in text.split_inclusive('\n') {
        let content = line.strip_suffix('\n').unwrap_or(line);
        Parser::new().advance(&mut printed, with_7bit_escapes(content).as_bytes());
        if content.len() < line.len() {
            printed.0.push('\n');
        }
    }
    Cow::Owned(printed.0)
}

struct Printed(String);

impl Perform for Printed {
    fn print(&mut self, c: char) {
        self.0.push(c);
    }

    fn execute(&mut self, byte: u8) {
        self.0.push(char::from(byte));
    }
}

fn is_escape(c: char) -> bool {
    c == '\u{1b}' || is_c1(c)
}

fn is_c1(c: char) -> bool {
    ('\u{80}'..='\u{9f}').contains(&c)
}

/// Writes each C1 control as the ESC sequence that it stands for, which is what `vte` parses.
fn with_7bit_escapes(line: &str) -> Cow<'_, str> {
    if !line.contains(is_c1) {
        return Cow::Borrowed(line);
    }
    let mut escaped = String::with_capacity(line.len());
    for c in line.chars() {
        match char::from_u32(u32::from(c).wrapping_sub(0x40)).filter(|_| is_c1(c)) {
            Some(kind) => escaped.extend(['\u{1b}', kind]),
            None => escaped.push(c),
        }
    }
    Cow::Owned(escaped)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn escape_sequences_are_removed_and_nothing_else() {
        let cases = [
            ("plain ü\n", "plain ü\n"),
            ("\u{1b}[1;31mred\u{1b}[0m", "red"),
            ("\u{1b}[38:5:1mx\u{1b}[?25l", "x"),
            ("\u{1b}]0;title\u{7}a", "a"),
            ("\u{1b}]8;;http://x\u{1b}\\link\u{1b}]8;;\u{1b}\\", "link"),
            ("\u{1b}Pq#0\u{1b}\\b", "b"),
            ("\u{1b}(Bc\u{1b}=d", "cd"),
            ("\u{9b}31me", "e"),
            ("a\u{1b}", "a"),
            ("\u{1b}[31\nb", "\nb"),
            ("a\tb\r\n", "a\tb\r\n"),
        ];
        for (text, expected) in cases {
            assert_eq!(strip_ansi(text), expected, "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn no_escape_is_left_and_no_line_is_lost(text in "[a\n\u{1b}\\[\\];mP\u{7}\u{9b}ü]{0,60}") {
            let clean = strip_ansi(&text);
            prop_assert!(!clean.contains(is_escape), "{clean:?}");
            prop_assert_eq!(clean.matches('\n').count(), text.matches('\n').count());
        }
    }
}
