//! Expanded words, as far as they are known without running anything.

use std::borrow::Cow;

use super::syntax::RedirectOperator;

/// A word of a command after expansion.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Word {
    pieces: Vec<WordPiece>,
    /// Whether an unquoted unknown part may expand to several words or none.
    pub(crate) splits: bool,
}

/// A part of a word.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum WordPiece {
    Text(String),
    /// An active file name pattern such as `*`.
    Glob(String),
    /// Only known at run time.
    Unknown(Unknown),
}

/// Why a part of a word is unknown.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Unknown {
    /// A variable set elsewhere or read at run time.
    Variable(String),
    /// The output of these programs.
    Output(Vec<String>),
    /// Standard input, passed as words.
    Input,
    /// A computed number.
    Number,
}

/// Stands among the programs of an output for the content of a file.
pub(crate) const FILE_CONTENT: &str = "<";

/// Stands for an unknown part in text that is only compared, never shown.
pub(crate) const UNKNOWN_CHAR: char = '\u{0}';

impl Word {
    /// A word of these pieces, with adjacent texts as one.
    pub(crate) fn from_pieces(pieces: impl IntoIterator<Item = WordPiece>) -> Self {
        let mut joined: Vec<WordPiece> = Vec::new();
        for piece in pieces {
            match (joined.last_mut(), piece) {
                (Some(WordPiece::Text(last)), WordPiece::Text(text))
                | (Some(WordPiece::Glob(last)), WordPiece::Glob(text)) => last.push_str(&text),
                (_, piece) => joined.push(piece),
            }
        }
        Self { pieces: joined, splits: false }
    }

    /// These words with blanks between them.
    pub(crate) fn joined(words: &[Self]) -> Self {
        let blank = WordPiece::Text(" ".to_owned());
        let blanks = words.iter().enumerate().flat_map(|(index, word)| {
            (index > 0).then(|| blank.clone()).into_iter().chain(word.pieces.iter().cloned())
        });
        Self::from_pieces(blanks)
    }

    /// The word with its known texts changed.
    pub(crate) fn map_text(&self, change: impl Fn(&str) -> String) -> Self {
        Self::from_pieces(self.pieces.iter().map(|piece| match piece {
            WordPiece::Text(text) => WordPiece::Text(change(text)),
            other => other.clone(),
        }))
    }

    /// This word and another directly behind it.
    pub(crate) fn followed_by(&self, other: &Self) -> Self {
        Self::from_pieces(self.pieces.iter().chain(&other.pieces).cloned())
    }

    pub(crate) fn splitting(mut self, splits: bool) -> Self {
        self.splits = splits;
        self
    }

    pub fn literal(text: impl Into<String>) -> Self {
        Self::from_pieces([WordPiece::Text(text.into())])
    }

    pub(crate) fn unknown(why: Unknown) -> Self {
        Self { pieces: vec![WordPiece::Unknown(why)], splits: true }
    }

    pub fn pieces(&self) -> &[WordPiece] {
        &self.pieces
    }

    /// The whole text, if all of it is known.
    pub fn known(&self) -> Option<&str> {
        match self.pieces.as_slice() {
            [] => Some(""),
            [WordPiece::Text(text)] => Some(text),
            _ => None,
        }
    }

    /// The known text at the beginning.
    pub fn prefix(&self) -> &str {
        match self.pieces.first() {
            Some(WordPiece::Text(text)) => text,
            _ => "",
        }
    }

    pub fn has_unknown(&self) -> bool {
        self.pieces.iter().any(|piece| matches!(piece, WordPiece::Unknown(_)))
    }

    pub fn has_glob(&self) -> bool {
        self.pieces.iter().any(|piece| matches!(piece, WordPiece::Glob(_)))
    }

    /// Whether the word starts with an unknown part and may be an option.
    pub(crate) fn starts_unknown(&self) -> bool {
        matches!(self.pieces.first(), Some(WordPiece::Unknown(_)))
    }

    /// The programs whose output is part of the word.
    pub(crate) fn output_of(&self) -> impl Iterator<Item = &str> {
        self.pieces.iter().flat_map(|piece| match piece {
            WordPiece::Unknown(Unknown::Output(programs)) => programs.iter().map(String::as_str).collect(),
            _ => Vec::new(),
        })
    }

    /// The variables whose unknown values are part of the word.
    pub(crate) fn variables(&self) -> impl Iterator<Item = &str> {
        self.pieces.iter().filter_map(|piece| match piece {
            WordPiece::Unknown(Unknown::Variable(name)) => Some(name.as_str()),
            _ => None,
        })
    }

    /// The text, with unknown parts as `show_unknown` writes them.
    pub(super) fn render(&self, show_unknown: impl Fn(&Unknown) -> String) -> String {
        let pieces = self.pieces.iter().map(|piece| match piece {
            WordPiece::Text(text) | WordPiece::Glob(text) => Cow::Borrowed(text.as_str()),
            WordPiece::Unknown(unknown) => Cow::Owned(show_unknown(unknown)),
        });
        pieces.collect()
    }

    /// The text with patterns as they are and each unknown part as [`UNKNOWN_CHAR`].
    pub(crate) fn outline(&self) -> String {
        self.render(|_| UNKNOWN_CHAR.to_string())
    }

    /// The word in readable form, with unknown parts by their origin.
    pub fn show(&self) -> String {
        self.render(|unknown| match unknown {
            Unknown::Variable(name) => format!("${{{name}}}"),
            Unknown::Output(programs) => format!("$({})", programs.join(" | ")),
            Unknown::Input => "<input>".to_owned(),
            Unknown::Number => "<number>".to_owned(),
        })
    }

    /// The word without a known prefix.
    pub(crate) fn strip_prefix(&self, prefix: &str) -> Option<Self> {
        let rest = self.prefix().strip_prefix(prefix)?;
        let mut pieces = vec![WordPiece::Text(rest.to_owned())];
        pieces.extend(self.pieces.iter().skip(1).cloned());
        if rest.is_empty() && pieces.len() > 1 {
            pieces.remove(0);
        }
        Some(Self { pieces, splits: self.splits })
    }

    /// The part of the word after the first `mark` in its known beginning.
    pub(crate) fn after(&self, mark: char) -> Option<Self> {
        let (before, _) = self.prefix().split_once(mark)?;
        self.strip_prefix(&format!("{before}{mark}"))
    }

    /// The name and the value of `name=value`.
    pub(crate) fn as_assignment(&self) -> Option<(String, Self)> {
        let (name, _) = self.prefix().split_once('=')?;
        Some((name.to_owned(), self.after('=')?))
    }
}

/// A redirection with its target expanded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Redirect {
    pub descriptor: Option<String>,
    pub operator: RedirectOperator,
    /// The file, or the text of a here-document or here-string.
    pub target: Word,
}

impl Redirect {
    /// The redirection with its target written like this.
    pub(crate) fn show_with(&self, target: &str) -> String {
        format!("{}{} {target}", self.descriptor.as_deref().unwrap_or_default(), self.operator.sign())
    }
}

/// The data on a pipe.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PipeData {
    /// The bytes, if they are known.
    pub text: Option<Word>,
    /// The programs that produce it.
    pub programs: Vec<String>,
    /// The file whose whole content it is.
    pub file: Option<Word>,
}

impl PipeData {
    pub(crate) fn is_piped(&self) -> bool {
        self.text.is_some() || !self.programs.is_empty()
    }
}

/// Matches text against a shell pattern with `*`, `?`, `[…]` and [`UNKNOWN_CHAR`] (anything).
pub fn pattern_matches(pattern: &str, text: &str) -> bool {
    // Most patterns differ from most texts in their first or last letter.
    let literal = |char: &char| !matches!(char, '*' | '?' | '[' | ']' | '\u{0}');
    let first = pattern.chars().next().filter(literal);
    let last = pattern.chars().next_back().filter(literal);
    if first.is_some_and(|first| !text.starts_with(first)) || last.is_some_and(|last| !text.ends_with(last)) {
        return false;
    }
    let (mut pattern, mut text) = (pattern, text);
    // The pattern behind the last star, and the text that it has not been tried on.
    let mut retry: Option<(&str, &str)> = None;
    loop {
        if pattern.is_empty() && text.is_empty() {
            return true;
        }
        if let Some(rest) = pattern.strip_prefix(['*', UNKNOWN_CHAR]) {
            retry = Some((rest, text));
            pattern = rest;
            continue;
        }
        (pattern, text) = match (behind_first(pattern, text), retry) {
            (Some(rest), _) => rest,
            (None, Some((pattern, tried))) => {
                let mut chars = tried.chars();
                if chars.next().is_none() {
                    return false;
                }
                retry = Some((pattern, chars.as_str()));
                (pattern, chars.as_str())
            }
            (None, None) => return false,
        };
    }
}

/// What remains when the first part of a pattern, which is no star, matches the first character.
fn behind_first<'a>(pattern: &'a str, text: &'a str) -> Option<(&'a str, &'a str)> {
    let mut chars = text.chars();
    let char = chars.next()?;
    let mut parts = pattern.chars();
    let rest = match parts.next()? {
        '[' if let Some(class) = class_of(pattern) => class.contains(char).then_some(class.rest)?,
        first if first == '?' || first == char => parts.as_str(),
        _ => return None,
    };
    Some((rest, chars.as_str()))
}

/// A class such as `[a-z]`.
struct CharClass<'a> {
    inside: &'a str,
    /// Whether it holds another one, such as `[:alpha:]`.
    is_named: bool,
    rest: &'a str,
}

/// The class at the start of a pattern, if it is closed.
fn class_of(pattern: &str) -> Option<CharClass<'_>> {
    let inside = pattern.get(1..)?;
    let first = inside.chars().next()?.len_utf8();
    let mut close = first + inside.get(first..)?.find(']')?;
    let is_named = inside.get(..close).is_some_and(|inside| inside.contains('['));
    if is_named && inside.get(close + 1..).is_some_and(|rest| rest.starts_with(']')) {
        close += 1;
    }
    Some(CharClass { inside: inside.get(..close)?, is_named, rest: inside.get(close + 1..)? })
}

impl CharClass<'_> {
    /// Whether a character may match: uncertain classes match.
    fn contains(&self, char: char) -> bool {
        let (negated, inside) = match self.inside.strip_prefix(['!', '^']) {
            Some(inside) => (true, inside),
            None => (false, self.inside),
        };
        let mut before = [None; 2];
        let in_range = inside.chars().any(|to| {
            let [from, dash] = before;
            before = [dash, Some(to)];
            dash == Some('-') && from.is_some_and(|from| (from..=to).contains(&char))
        });
        self.is_named || (in_range || inside.contains(char)) != negated
    }
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
            ("[^a-c]é*", "déx", true),
            ("[]a]", "]", true),
            ("a[b", "a[b", true),
        ] {
            assert_eq!(pattern_matches(pattern, text), expected, "{pattern} {text}");
        }
    }
}
