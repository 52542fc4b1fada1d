//! Character classes and encodings of text.

/// Lowercase hexadecimal.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The text as one single-quoted word of a shell.
pub fn shell_quote(text: &str) -> String {
    String::from_utf8_lossy(&shell_quote_bytes(text.as_bytes())).into_owned()
}

/// The same for text that need not be UTF-8.
pub fn shell_quote_bytes(text: &[u8]) -> Vec<u8> {
    let parts: Vec<&[u8]> = text.split(|byte| *byte == b'\'').collect();
    [b"'", parts.join(br"'\''".as_slice()).as_slice(), b"'"].concat()
}

/// Whether a character is invisible or changes how its neighbors are displayed. Blanks and line
/// ends are not hidden.
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
    fn a_quoted_word_is_what_a_shell_reads_back() {
        let cases = [("", "''"), ("a b", "'a b'"), ("it's", r"'it'\''s'"), ("'", r"''\'''")];
        for (text, quoted) in cases {
            assert_eq!(shell_quote(text), quoted);
        }
        assert_eq!(shell_quote_bytes(b"\xff'"), b"'\xff'\\'''");
    }

    #[test]
    fn ordinary_text_is_not_hidden() {
        assert!(!"a b\tc\r\nÄ 文 é 👍 ’".chars().any(is_hidden));
        let hidden = "\u{0}\u{1b}\u{7f}\u{85}\u{ad}\u{200b}\u{202e}\u{2066}\u{3164}\u{feff}\u{e0041}";
        assert!(hidden.chars().all(is_hidden));
    }
}
