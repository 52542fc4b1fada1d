//! Takes out of an output what is meant for a screen: colors, movements, titles.

use std::borrow::Cow;

const ESCAPE: char = '\u{1b}';

/// The text without escape sequences and without the 8-bit forms of them.
pub(super) fn strip_ansi(text: &str) -> Cow<'_, str> {
    if !text.contains(is_start) {
        return Cow::Borrowed(text);
    }
    let mut kept = String::with_capacity(text.len());
    let mut rest = text.chars();
    while let Some(c) = rest.next() {
        let kind = match c {
            ESCAPE => rest.clone().next(),
            '\u{80}'..='\u{9f}' => char::from_u32(u32::from(c) - 0x40),
            c => {
                kept.push(c);
                continue;
            }
        };
        // A line end belongs to nothing that begins before it.
        if c == ESCAPE && kind.is_some_and(|kind| kind != '\n' && !is_start(kind)) {
            rest.next();
        }
        match kind {
            // A control sequence ends with a letter or the like.
            Some('[') => skip_until(&mut rest, |c| ('@'..='~').contains(&c)),
            // Strings: titles, links, device control. They end with a bell or a terminator.
            Some(']' | 'P' | 'X' | '^' | '_') => skip_string(&mut rest),
            // Others with something in between, such as the choice of a character set.
            Some(' '..='/') => skip_until(&mut rest, |c| ('0'..='~').contains(&c)),
            Some(_) | None => {}
        }
    }
    Cow::Owned(kept)
}

fn is_start(c: char) -> bool {
    c == ESCAPE || ('\u{80}'..='\u{9f}').contains(&c)
}

/// Skips to the end of a sequence; a line end ends it too, since it was none then.
fn skip_until(rest: &mut std::str::Chars<'_>, is_end: impl Fn(char) -> bool) {
    let mut ahead = rest.clone();
    while let Some(c) = ahead.next() {
        match c {
            '\n' => return,
            c if is_end(c) => {
                *rest = ahead;
                return;
            }
            _ => *rest = ahead.clone(),
        }
    }
}

fn skip_string(rest: &mut std::str::Chars<'_>) {
    let mut ahead = rest.clone();
    while let Some(c) = ahead.next() {
        match c {
            '\n' => return,
            '\u{7}' | '\u{9c}' => {
                *rest = ahead;
                return;
            }
            ESCAPE => {
                if ahead.clone().next() == Some('\\') {
                    ahead.next();
                }
                *rest = ahead;
                return;
            }
            _ => *rest = ahead.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_is_for_a_screen_is_taken_out_and_nothing_else() {
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
            prop_assert!(!clean.contains(is_start), "{clean:?}");
            prop_assert_eq!(clean.matches('\n').count(), text.matches('\n').count());
        }
    }
}
