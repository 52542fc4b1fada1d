//! The two search indexes. `words` holds text in scripts with spaces between words. `pairs` holds
//! bigrams of scripts without spaces, whose words have no visible boundaries. Bigrams find words of
//! two characters, the most common length in Chinese; trigrams would not, and take three times the
//! space.

use std::borrow::Cow;

use rusqlite::{Connection, params};

use crate::error::QueryResult;
use crate::sql;

/// Whether a character belongs to a script without spaces between words: Han, Kana, Hangul.
pub(crate) fn is_unspaced(char: char) -> bool {
    matches!(char,
        '\u{1100}'..='\u{11ff}' | '\u{2e80}'..='\u{2fdf}' | '\u{3005}'..='\u{3007}' | '\u{3031}'..='\u{3035}'
        | '\u{3041}'..='\u{3096}' | '\u{309d}'..='\u{309f}' | '\u{30a1}'..='\u{30fa}' | '\u{30fc}'..='\u{30ff}'
        | '\u{3105}'..='\u{312f}' | '\u{3131}'..='\u{318e}' | '\u{31a0}'..='\u{31bf}' | '\u{31f0}'..='\u{31ff}'
        | '\u{3400}'..='\u{4dbf}' | '\u{4e00}'..='\u{9fff}' | '\u{a960}'..='\u{a97c}' | '\u{ac00}'..='\u{d7a3}'
        | '\u{f900}'..='\u{faff}' | '\u{ff66}'..='\u{ff9f}' | '\u{20000}'..='\u{3ffff}')
}

pub(crate) fn add(connection: &Connection, id: i64, text: &str) -> QueryResult {
    let words = spaced_text(text);
    if words.chars().any(char::is_alphanumeric) {
        sql::execute(connection, "INSERT INTO words (rowid, text) VALUES (?1, ?2)", params![id, words])?;
    }
    let pairs = bigrams(text);
    if !pairs.is_empty() {
        sql::execute(connection, "INSERT INTO pairs (rowid, text) VALUES (?1, ?2)", params![id, pairs])?;
    }
    Ok(())
}

pub(crate) fn remove(connection: &Connection, id: i64) -> QueryResult {
    sql::execute(connection, "DELETE FROM words WHERE rowid = ?1", [id])?;
    sql::execute(connection, "DELETE FROM pairs WHERE rowid = ?1", [id])
}

/// The text with unspaced scripts blanked out.
pub(crate) fn spaced_text(text: &str) -> Cow<'_, str> {
    if text.is_ascii() || !text.chars().any(is_unspaced) {
        return Cow::Borrowed(text);
    }
    Cow::Owned(text.chars().map(|char| if is_unspaced(char) { ' ' } else { char }).collect())
}

/// The runs of characters from unspaced scripts.
pub(crate) fn unspaced_runs(text: &str) -> impl Iterator<Item = &str> {
    text.split(|char| !is_unspaced(char)).filter(|run| !run.is_empty())
}

/// The bigrams of all unspaced runs; the last character of each run stands alone, so single
/// characters can be found too.
fn bigrams(text: &str) -> String {
    let mut found = String::new();
    if text.is_ascii() {
        return found;
    }
    for run in unspaced_runs(text) {
        let mut chars = run.chars().peekable();
        while let Some(char) = chars.next() {
            found.push(char);
            found.extend(chars.peek());
            found.push(' ');
        }
    }
    found
}

/// The query that finds a run in `pairs`.
pub(crate) fn bigram_query(run: &str) -> String {
    let chars: Vec<char> = run.chars().collect();
    match chars.as_slice() {
        [one] => format!("\"{one}\" *"),
        several => {
            let pairs: Vec<String> =
                several.windows(2).map(|pair| format!("\"{}\"", String::from_iter(pair))).collect();
            pairs.join(" AND ")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_split_by_script() {
        let cases = [
            ("plain words", "plain words", ""),
            ("数据库", "   ", "数据 据库 库 "),
            ("fix 库 now", "fix   now", "库 "),
            ("한국어 text", "    text", "한국 국어 어 "),
            ("カタカナ、ひら", "    、  ", "カタ タカ カナ ナ ひら ら "),
        ];
        for (text, in_words, in_pairs) in cases {
            assert_eq!((spaced_text(text).as_ref(), bigrams(text).as_str()), (in_words, in_pairs), "{text}");
        }
        assert_eq!(bigram_query("数据库"), "\"数据\" AND \"据库\"");
        assert_eq!(bigram_query("库"), "\"库\" *");
    }
}
