//! Text without what moves cursors and changes colors.

/// Takes the escape sequences out of a text.
pub(super) fn plain(text: &str) -> String {
    let mut rest = text.chars().peekable();
    let mut plain = String::with_capacity(text.len());
    while let Some(char) = rest.next() {
        if char != '\u{1b}' {
            plain.push(char);
            continue;
        }
        match rest.next() {
            // A control sequence ends with a letter or a sign of its own range.
            Some('[') => drop(rest.by_ref().find(|char| ('\u{40}'..='\u{7e}').contains(char))),
            // A command to the terminal ends with a bell, or with another escape and a backslash.
            Some(']' | 'P' | 'X' | '^' | '_') => {
                if rest.by_ref().find(|char| matches!(char, '\u{7}' | '\u{1b}')) == Some('\u{1b}') {
                    rest.next_if_eq(&'\\');
                }
            }
            // What selects a set of characters has one more.
            Some('\u{20}'..='\u{2f}') => drop(rest.next()),
            Some(_) | None => {}
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colors_titles_and_cursors_go_and_the_text_stays() {
        let cases = [
            ("plain äöü\n\ttext", "plain äöü\n\ttext"),
            ("\u{1b}[1;31mred\u{1b}[0m", "red"),
            ("\u{1b}]0;title\u{7}text", "text"),
            ("\u{1b}]8;;http://x\u{1b}\\link\u{1b}]8;;\u{1b}\\", "link"),
            ("\u{1b}(Bx\u{1b}7y\u{1b}[2K", "xy"),
            ("cut \u{1b}[", "cut "),
            ("cut \u{1b}", "cut "),
        ];
        for (text, expected) in cases {
            assert_eq!(plain(text), expected, "{text:?}");
        }
    }
}
