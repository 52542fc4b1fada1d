//! Parses search input. Every input is valid: anything that is not an operator is text.

use super::index;

const MAX_QUERY_CHARS: usize = 1_000;
const MAX_TERMS: usize = 32;

/// One term of each required group must match, and no excluded term.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Query {
    pub(crate) required: Vec<Vec<Term>>,
    pub(crate) excluded: Vec<Term>,
}

/// A word or a phrase.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Term {
    text: String,
    is_prefix: bool,
}

impl Query {
    pub(crate) fn parse(text: &str) -> Self {
        let text: String = text
            .chars()
            .take(MAX_QUERY_CHARS)
            .map(|char| if char.is_control() { ' ' } else { char })
            .collect();
        let mut query = Self::default();
        let mut operator = "AND";
        let mut count = 0;
        for (word, is_phrase) in split_words(&text) {
            let term = match word {
                _ if is_phrase => parse_term(word, false),
                "AND" | "OR" | "NOT" => {
                    operator = word;
                    continue;
                }
                _ => match word.strip_suffix('*') {
                    Some(beginning) if !beginning.is_empty() => parse_term(beginning, true),
                    _ => parse_term(word, false),
                },
            };
            let Some(term) = term else { continue };
            match (operator, query.required.last_mut()) {
                ("NOT", _) => query.excluded.push(term),
                ("OR", Some(group)) => group.push(term),
                _ => query.required.push(vec![term]),
            }
            operator = "AND";
            count += 1;
            if count == MAX_TERMS {
                break;
            }
        }
        query
    }

    /// Whether there is nothing to search for. Excluded terms alone match nothing.
    pub(crate) fn is_empty(&self) -> bool {
        self.required.is_empty()
    }

    /// The query for the word index, if that index alone can answer it.
    pub(crate) fn words(&self) -> Option<String> {
        let all_words = |terms: &[Term]| -> Option<Vec<String>> {
            terms
                .iter()
                .map(|term| if term.unspaced_runs().is_empty() { term.words() } else { None })
                .collect()
        };
        let groups: Vec<String> = self
            .required
            .iter()
            .map(|group| all_words(group).map(|group| format!("({})", group.join(" OR "))))
            .collect::<Option<_>>()?;
        let mut text = format!("({})", groups.join(" AND "));
        for unwanted in all_words(&self.excluded)? {
            text = format!("({text} NOT {unwanted})");
        }
        Some(text)
    }
}

impl Term {
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// The term for the word index, if it has words. The index tokenizes quoted text like the
    /// messages.
    pub(crate) fn words(&self) -> Option<String> {
        let words = index::spaced_text(&self.text);
        let star = if self.is_prefix { " *" } else { "" };
        words.chars().any(char::is_alphanumeric).then(|| format!("\"{words}\"{star}"))
    }

    /// The runs of characters from scripts without spaces.
    pub(crate) fn unspaced_runs(&self) -> Vec<String> {
        index::unspaced_runs(&self.text).map(str::to_owned).collect()
    }
}

/// The words and the quoted phrases of a text; an unmatched quote at the end is ignored.
fn split_words(text: &str) -> impl Iterator<Item = (&str, bool)> {
    let last = text.matches('"').count();
    text.split('"').enumerate().flat_map(move |(at, part)| {
        let is_phrase = at % 2 == 1 && at != last;
        let words = if is_phrase { vec![part] } else { part.split_whitespace().collect() };
        words.into_iter().map(move |word| (word, is_phrase))
    })
}

/// Parses a term; `None` if no text could contain it.
fn parse_term(text: &str, is_beginning: bool) -> Option<Term> {
    let text = text.trim();
    // Punctuation around a word belongs to the sentence or a query language, unless there is
    // nothing else.
    let bare = text.trim_matches(|char: char| char.is_ascii_punctuation());
    let text = if bare.is_empty() { text } else { bare };
    let is_sign = text.len() == 1 && text.bytes().all(|byte| byte.is_ascii_punctuation());
    (!text.is_empty() && !is_sign).then(|| Term { text: text.to_owned(), is_prefix: is_beginning })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_input_becomes_a_query() {
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
            let query = Query::parse(typed);
            let words = if query.is_empty() { None } else { query.words() };
            assert_eq!(words.as_deref(), expected, "{typed:?}");
        }
        for other in ["数据库 error", "🚀", "->"] {
            let query = Query::parse(other);
            assert!(!query.is_empty() && query.words().is_none(), "{other}");
        }
    }
}
