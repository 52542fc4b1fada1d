//! What somebody typed, as something to look for. Every text is one: what cannot be an operator is text.

use super::index;

/// Characters of a query that are read.
const LONGEST: usize = 1_000;
/// Terms of a query that are used.
const MOST: usize = 32;

/// All groups must be found, one term of each; none of the unwanted.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Query {
    pub(crate) wanted: Vec<Vec<Term>>,
    pub(crate) unwanted: Vec<Term>,
}

/// A word, or words in a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Term {
    text: String,
    is_beginning: bool,
}

#[derive(Debug, PartialEq, Eq)]
enum Piece {
    And,
    Or,
    Not,
    Term(Term),
}

impl Query {
    pub(crate) fn read(text: &str) -> Self {
        let mut query = Self::default();
        let (mut is_or, mut is_not) = (false, false);
        for piece in pieces(text) {
            match piece {
                Piece::And => (is_or, is_not) = (false, false),
                Piece::Or => (is_or, is_not) = (true, false),
                Piece::Not => (is_or, is_not) = (false, true),
                Piece::Term(term) => {
                    match (is_not, is_or, query.wanted.last_mut()) {
                        (true, _, _) => query.unwanted.push(term),
                        (false, true, Some(group)) => group.push(term),
                        (false, _, _) => query.wanted.push(vec![term]),
                    }
                    (is_or, is_not) = (false, false);
                }
            }
        }
        query
    }

    /// Whether there is nothing to look for. What must not be there alone finds nothing.
    pub(crate) fn is_empty(&self) -> bool {
        self.wanted.is_empty()
    }

    /// The whole query for the index of words, if it can answer it.
    pub(crate) fn words(&self) -> Option<String> {
        let all_words = |terms: &[Term]| -> Option<Vec<String>> {
            terms.iter().map(|term| if term.runs().is_empty() { term.words() } else { None }).collect()
        };
        let groups: Vec<String> = self
            .wanted
            .iter()
            .map(|group| all_words(group).map(|group| format!("({})", group.join(" OR "))))
            .collect::<Option<_>>()?;
        let mut text = format!("({})", groups.join(" AND "));
        for unwanted in all_words(&self.unwanted)? {
            text = format!("({text} NOT {unwanted})");
        }
        Some(text)
    }

    /// The texts a person would want to see in what is found.
    pub(crate) fn looked_for(&self) -> Vec<&str> {
        self.wanted.iter().flatten().map(Term::text).collect()
    }
}

impl Term {
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// What finds its words in the index of words, if it has any. The index parts what stands in quotes as it parted the texts.
    pub(crate) fn words(&self) -> Option<String> {
        let words = index::words(&self.text);
        let star = if self.is_beginning { " *" } else { "" };
        words.chars().any(char::is_alphanumeric).then(|| format!("\"{words}\"{star}"))
    }

    /// The stretches in it that are written without blanks.
    pub(crate) fn runs(&self) -> Vec<String> {
        index::runs(&self.text).map(str::to_owned).collect()
    }
}

fn pieces(text: &str) -> Vec<Piece> {
    let text: String =
        text.chars().take(LONGEST).map(|char| if char.is_control() { ' ' } else { char }).collect();
    let mut pieces = Vec::new();
    let mut terms = 0;
    // Between the first quote and the second, the third and the fourth, stand phrases; a last quote alone is no quote.
    let parts: Vec<&str> = text.split('"').collect();
    let last = parts.len() - 1;
    for (at, part) in parts.into_iter().enumerate() {
        if at % 2 == 1 && at != last {
            pieces.extend(term(part, false).map(Piece::Term));
            continue;
        }
        for word in part.split_whitespace() {
            let piece = match word {
                "AND" => Some(Piece::And),
                "OR" => Some(Piece::Or),
                "NOT" => Some(Piece::Not),
                word => match word.strip_suffix('*') {
                    Some(beginning) if !beginning.is_empty() => term(beginning, true),
                    _ => term(word, false),
                }
                .map(Piece::Term),
            };
            pieces.extend(piece);
        }
    }
    pieces.retain(|piece| {
        terms += usize::from(matches!(piece, Piece::Term(_)));
        terms <= MOST
    });
    pieces
}

/// A term, if there is something in it that could stand in a text.
fn term(text: &str, is_beginning: bool) -> Option<Term> {
    let text = text.trim();
    // Signs at the ends of a word belong to the sentence or to a query language, unless the word is nothing but signs.
    let bare = text.trim_matches(|char: char| char.is_ascii_punctuation());
    let text = if bare.is_empty() { text } else { bare };
    let is_sign = text.len() == 1 && text.bytes().all(|byte| byte.is_ascii_punctuation());
    (!text.is_empty() && !is_sign).then(|| Term { text: text.to_owned(), is_beginning })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_typed_becomes_a_query() {
        let cases = [
            ("docker network", Some("((\"docker\") AND (\"network\"))")),
            ("\"exact words\" more", Some("((\"exact words\") AND (\"more\"))")),
            ("a OR b c", Some("((\"a\" OR \"b\") AND (\"c\"))")),
            ("a NOT b", Some("(((\"a\")) NOT \"b\")")),
            ("deploy*", Some("((\"deploy\" *))")),
            ("my-app.config.ts", Some("((\"my-app.config.ts\"))")),
            ("AND OR NOT", None),
            ("OR a AND", Some("((\"a\"))")),
            ("a AND NOT", Some("((\"a\"))")),
            ("NOT a", None),
            ("(a) {b} ^c text:d", Some("((\"a\") AND (\"b\") AND (\"c\") AND (\"text:d\"))")),
            ("\"open quote", Some("((\"open\") AND (\"quote\"))")),
            ("NEAR(a b, 5)", Some("((\"NEAR(a\") AND (\"b\") AND (\"5\"))")),
            ("a\0b", Some("((\"a\") AND (\"b\"))")),
            ("* ^ - + :", None),
            ("", None),
        ];
        for (typed, expected) in cases {
            let query = Query::read(typed);
            let words = if query.is_empty() { None } else { query.words() };
            assert_eq!(words.as_deref(), expected, "{typed:?}");
        }
        for other in ["数据库 error", "🚀", "->"] {
            let query = Query::read(other);
            assert!(!query.is_empty() && query.words().is_none(), "{other}");
        }
    }
}
