//! Character classes.

/// Whether a character is invisible or changes how its neighbors are displayed. Blanks and line ends
/// are not hidden.
pub fn is_hidden(char: char) -> bool {
    matches!(char,
        '\u{0}'..='\u{8}' | '\u{b}' | '\u{c}' | '\u{e}'..='\u{1f}' | '\u{7f}'..='\u{9f}'
        | '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{180b}'..='\u{180e}'
        | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
        | '\u{3164}' | '\u{feff}' | '\u{ffa0}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ordinary_text_is_not_hidden() {
        assert!(!"a b\tc\r\nÄ 文 é 👍 ’".chars().any(is_hidden));
        let hidden = "\u{0}\u{1b}\u{7f}\u{85}\u{ad}\u{200b}\u{202e}\u{2066}\u{3164}\u{feff}\u{e0041}";
        assert!(hidden.chars().all(is_hidden));
    }
}
