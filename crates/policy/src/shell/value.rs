//! Words as a program will receive them, as far as that can be known without running anything.

use super::syntax::Operator;

/// One word of a command after expansion.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Word {
    pieces: Vec<Piece>,
    /// Whether an unquoted unknown may turn this word into several, or none.
    pub(crate) splits: bool,
}

/// A stretch of a word.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Piece {
    /// Known text.
    Text(String),
    /// A live file name pattern such as `*`.
    Glob(String),
    /// Something only known when the command runs.
    Unknown(Unknown),
}

/// Why a stretch of a word is not known.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Unknown {
    /// A variable that was set elsewhere, or read at run time.
    Variable(String),
    /// What these programs print.
    Output(Vec<String>),
    /// Standard input, handed over as words.
    Input,
    /// A number that is computed.
    Number,
}

/// Stands for an unknown stretch in text that is only compared, never shown.
pub(crate) const HOLE: char = '\u{0}';

impl Word {
    pub(crate) fn from_pieces(pieces: Vec<Piece>) -> Self {
        Self { pieces, splits: false }
    }

    pub(crate) fn splitting(mut self, splits: bool) -> Self {
        self.splits = splits;
        self
    }

    /// A word of known text.
    pub fn literal(text: impl Into<String>) -> Self {
        Self::from_pieces(vec![Piece::Text(text.into())])
    }

    pub(crate) fn unknown(why: Unknown) -> Self {
        Self { pieces: vec![Piece::Unknown(why)], splits: true }
    }

    /// What the word is made of.
    pub fn pieces(&self) -> &[Piece] {
        &self.pieces
    }

    /// The whole text, when all of it is known.
    pub fn known(&self) -> Option<&str> {
        match self.pieces.as_slice() {
            [] => Some(""),
            [Piece::Text(text)] => Some(text),
            _ => None,
        }
    }

    /// The known text at the start.
    pub fn prefix(&self) -> &str {
        match self.pieces.first() {
            Some(Piece::Text(text)) => text,
            _ => "",
        }
    }

    /// Whether some stretch is only known at run time.
    pub fn has_unknown(&self) -> bool {
        self.pieces.iter().any(|piece| matches!(piece, Piece::Unknown(_)))
    }

    /// Whether the word holds a live pattern.
    pub fn has_glob(&self) -> bool {
        self.pieces.iter().any(|piece| matches!(piece, Piece::Glob(_)))
    }

    /// Whether the word starts with an unknown stretch, so that it may be an option.
    pub(crate) fn starts_unknown(&self) -> bool {
        matches!(self.pieces.first(), Some(Piece::Unknown(_)))
    }

    /// The programs whose output is part of the word.
    pub(crate) fn output_of(&self) -> impl Iterator<Item = &str> {
        self.pieces.iter().flat_map(|piece| match piece {
            Piece::Unknown(Unknown::Output(programs)) => programs.iter().map(String::as_str).collect(),
            _ => Vec::new(),
        })
    }

    /// The variables whose unknown values are part of the word.
    pub(crate) fn variables(&self) -> impl Iterator<Item = &str> {
        self.pieces.iter().filter_map(|piece| match piece {
            Piece::Unknown(Unknown::Variable(name)) => Some(name.as_str()),
            _ => None,
        })
    }

    /// The text with patterns as they are and each unknown stretch as [`HOLE`].
    pub(crate) fn outline(&self) -> String {
        let mut text = String::new();
        for piece in &self.pieces {
            match piece {
                Piece::Text(known) => text.push_str(known),
                Piece::Glob(pattern) => text.push_str(pattern),
                Piece::Unknown(_) => text.push(HOLE),
            }
        }
        text
    }

    /// The word for people: unknown stretches by where they come from.
    pub fn show(&self) -> String {
        let mut text = String::new();
        for piece in &self.pieces {
            match piece {
                Piece::Text(known) => text.push_str(known),
                Piece::Glob(pattern) => text.push_str(pattern),
                Piece::Unknown(Unknown::Variable(name)) => {
                    text.push_str("${");
                    text.push_str(name);
                    text.push('}');
                }
                Piece::Unknown(Unknown::Output(programs)) => {
                    text.push_str("$(");
                    text.push_str(&programs.join(" | "));
                    text.push(')');
                }
                Piece::Unknown(Unknown::Input) => text.push_str("<input>"),
                Piece::Unknown(Unknown::Number) => text.push_str("<number>"),
            }
        }
        text
    }

    /// The rest of the word behind a known prefix.
    pub(crate) fn strip_prefix(&self, prefix: &str) -> Option<Self> {
        let rest = self.prefix().strip_prefix(prefix)?;
        let mut pieces = vec![Piece::Text(rest.to_owned())];
        pieces.extend(self.pieces.iter().skip(1).cloned());
        if rest.is_empty() && pieces.len() > 1 {
            pieces.remove(0);
        }
        Some(Self { pieces, splits: self.splits })
    }

    /// The rest of the word behind the first `=` (or other mark) of its known start.
    pub(crate) fn after(&self, mark: char) -> Option<Self> {
        let (before, _) = self.prefix().split_once(mark)?;
        self.strip_prefix(&format!("{before}{mark}"))
    }
}

/// A redirection, with its target expanded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Redirect {
    /// Which descriptor, when it was given.
    pub descriptor: Option<String>,
    /// What it does.
    pub operator: Operator,
    /// The file, or the text of a here-document or here-string.
    pub target: Word,
}

/// What arrives on, or leaves, a pipe.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Stream {
    /// The bytes, when they are known.
    pub text: Option<Word>,
    /// The programs whose output is in it.
    pub programs: Vec<String>,
}

impl Stream {
    pub(crate) fn is_piped(&self) -> bool {
        self.text.is_some() || !self.programs.is_empty()
    }
}

/// Matches text against a shell pattern with `*`, `?`, `[…]` and [`HOLE`] (anything).
pub(crate) fn pattern_matches(pattern: &str, text: &str) -> bool {
    // Most patterns differ from most texts in their first or last letter.
    let literal = |char: &char| !matches!(char, '*' | '?' | '[' | ']' | '\u{0}');
    let first = pattern.chars().next().filter(literal);
    let last = pattern.chars().next_back().filter(literal);
    if first.is_some_and(|first| !text.starts_with(first)) || last.is_some_and(|last| !text.ends_with(last)) {
        return false;
    }
    let pattern: Vec<char> = pattern.chars().collect();
    let text: Vec<char> = text.chars().collect();
    let (mut p, mut t) = (0, 0);
    let mut retry: Option<(usize, usize)> = None;
    while t < text.len() {
        match pattern.get(p) {
            Some('*' | '\u{0}') => {
                retry = Some((p, t));
                p += 1;
                continue;
            }
            Some('?') => {
                p += 1;
                t += 1;
                continue;
            }
            Some('[') => {
                if let Some((length, hit)) = class_matches(&pattern, p, text.get(t).copied())
                    && hit
                {
                    p += length;
                    t += 1;
                    continue;
                }
            }
            Some(char) if text.get(t) == Some(char) => {
                p += 1;
                t += 1;
                continue;
            }
            _ => {}
        }
        match retry {
            Some((star, from)) => {
                p = star + 1;
                t = from + 1;
                retry = Some((star, from + 1));
            }
            None => return false,
        }
    }
    pattern.get(p..).is_some_and(|rest| rest.iter().all(|char| matches!(char, '*' | '\u{0}')))
}

/// The length of the class that starts here, and whether it holds the character.
fn class_matches(pattern: &[char], start: usize, char: Option<char>) -> Option<(usize, bool)> {
    let mut close = pattern.iter().skip(start + 2).position(|char| *char == ']')? + start + 2;
    let is_named = |close: usize| pattern.get(start + 1..close).is_some_and(|inside| inside.contains(&'['));
    if is_named(close) && pattern.get(close + 1) == Some(&']') {
        close += 1;
    }
    let inside = pattern.get(start + 1..close)?;
    let (negated, inside) = match inside.first() {
        Some('!' | '^') => (true, inside.get(1..)?),
        _ => (false, inside),
    };
    let char = char?;
    let ranges = inside.windows(3).any(|w| matches!(w, [from, '-', to] if (*from..=*to).contains(&char)));
    // A named class such as `[:alpha:]` is taken to match: a pattern is read to the worse.
    let named = is_named(close);
    Some((close - start + 1, named || (ranges || inside.contains(&char)) != negated))
}

#[cfg(test)]
mod tests {
    use super::pattern_matches;

    #[test]
    fn patterns_match_like_the_shell() {
        for (pattern, text, expected) in [
            ("r?", "rm", true),
            ("r*", "rm", true),
            ("r[a-m]", "rm", true),
            ("r[!m]", "rm", false),
            ("*", "", true),
            ("a*b*c", "axxbyyc", true),
            ("a*b*c", "axxbyy", false),
            ("[[:alpha:]]m", "rm", true),
            ("r", "rm", false),
        ] {
            assert_eq!(pattern_matches(pattern, text), expected, "{pattern} {text}");
        }
    }
}
