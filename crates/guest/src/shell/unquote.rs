//! Parses the output of `export -p` and `alias -p`.

/// Splits shell output into lines of unquoted words. Quotes may span lines.
pub(super) fn parse_lines(text: &[u8]) -> Vec<Vec<Vec<u8>>> {
    let mut reader = WordParser { rest: text.iter().copied().peekable() };
    let mut lines = Vec::new();
    while reader.rest.peek().is_some() {
        let line = reader.line();
        if !line.is_empty() {
            lines.push(line);
        }
    }
    lines
}

struct WordParser<I: Iterator<Item = u8>> {
    rest: std::iter::Peekable<I>,
}

impl<I: Iterator<Item = u8>> WordParser<I> {
    fn line(&mut self) -> Vec<Vec<u8>> {
        let mut words = Vec::new();
        let mut word: Option<Vec<u8>> = None;
        while let Some(byte) = self.rest.next() {
            match byte {
                b'\n' => break,
                b' ' | b'\t' => words.extend(word.take()),
                b'\'' => {
                    let quoted = self.rest.by_ref().take_while(|byte| *byte != b'\'');
                    word.get_or_insert_default().extend(quoted);
                }
                b'"' => self.double(word.get_or_insert_default()),
                b'\\' => word.get_or_insert_default().extend(self.rest.next()),
                b'$' if self.rest.peek() == Some(&b'\'') => {
                    self.rest.next();
                    self.ansi(word.get_or_insert_default());
                }
                other => word.get_or_insert_default().push(other),
            }
        }
        words.extend(word);
        words
    }

    fn double(&mut self, word: &mut Vec<u8>) {
        while let Some(byte) = self.rest.next() {
            match byte {
                b'"' => return,
                b'\\' => match self.rest.next() {
                    Some(quoted @ (b'$' | b'`' | b'"' | b'\\')) => word.push(quoted),
                    Some(b'\n') | None => {}
                    Some(other) => word.extend([b'\\', other]),
                },
                other => word.push(other),
            }
        }
    }

    /// The inside of `$'…'`.
    fn ansi(&mut self, word: &mut Vec<u8>) {
        while let Some(byte) = self.rest.next() {
            match byte {
                b'\'' => return,
                b'\\' => match self.rest.next() {
                    Some(b'a') => word.push(7),
                    Some(b'b') => word.push(8),
                    Some(b'e' | b'E') => word.push(27),
                    Some(b'f') => word.push(12),
                    Some(b'n') => word.push(b'\n'),
                    Some(b'r') => word.push(b'\r'),
                    Some(b't') => word.push(b'\t'),
                    Some(b'v') => word.push(11),
                    Some(digit @ b'0'..=b'7') => word.push(self.octal(digit)),
                    Some(other) => word.push(other),
                    None => {}
                },
                other => word.push(other),
            }
        }
    }

    fn octal(&mut self, first: u8) -> u8 {
        let mut value = first - b'0';
        for _ in 0..2 {
            let Some(digit @ b'0'..=b'7') = self.rest.peek().copied() else { break };
            self.rest.next();
            value = value.wrapping_mul(8).wrapping_add(digit - b'0');
        }
        value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_unquoted() {
        let cases: [(&[u8], &[&[u8]]); 8] = [
            (br#"declare -x A="b c""#, &[b"declare", b"-x", b"A=b c"]),
            (br#"declare -x A="\$x \`y\` \"z\" \\ \n""#, &[b"declare", b"-x", b"A=$x `y` \"z\" \\ \\n"]),
            (b"declare -x A=$'a\\nb\\377\\E\\'\\\\'", &[b"declare", b"-x", b"A=a\nb\xff\x1b'\\"]),
            (b"export A='it'\"'\"'s'", &[b"export", b"A=it's"]),
            (b"alias x='it'\\''s'", &[b"alias", b"x=it's"]),
            (b"declare -x EMPTY=\"\"", &[b"declare", b"-x", b"EMPTY="]),
            (b"export A='two\nlines'", &[b"export", b"A=two\nlines"]),
            (b"declare -x A=\"never closed", &[b"declare", b"-x", b"A=never closed"]),
        ];
        for (text, expected) in cases {
            assert_eq!(parse_lines(text), [expected], "{}", String::from_utf8_lossy(text));
        }
    }
}
