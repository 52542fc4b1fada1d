//! What is in the indexes. `words` gets the text without what is written without blanks; that goes to `pairs`, every character
//! with the next one, because nothing tells where its words end. Pairs find words of two characters, which most
//! Chinese ones are; groups of three would not, and take three times the space.

use std::borrow::Cow;

use rusqlite::{Connection, params};

use crate::error::Fault;

/// Whether a character belongs to a script without blanks between words: Han, Kana, Hangul.
pub(crate) fn is_unspaced(char: char) -> bool {
    matches!(char,
        '\u{1100}'..='\u{11ff}' | '\u{2e80}'..='\u{2fdf}' | '\u{3005}'..='\u{3007}' | '\u{3031}'..='\u{3035}'
        | '\u{3041}'..='\u{3096}' | '\u{309d}'..='\u{309f}' | '\u{30a1}'..='\u{30fa}' | '\u{30fc}'..='\u{30ff}'
        | '\u{3105}'..='\u{312f}' | '\u{3131}'..='\u{318e}' | '\u{31a0}'..='\u{31bf}' | '\u{31f0}'..='\u{31ff}'
        | '\u{3400}'..='\u{4dbf}' | '\u{4e00}'..='\u{9fff}' | '\u{a960}'..='\u{a97c}' | '\u{ac00}'..='\u{d7a3}'
        | '\u{f900}'..='\u{faff}' | '\u{ff66}'..='\u{ff9f}' | '\u{20000}'..='\u{3ffff}')
}

/// Puts a message into the indexes.
pub(crate) fn add(connection: &Connection, id: i64, text: &str) -> Result<(), Fault> {
    let words = words(text);
    if words.chars().any(char::is_alphanumeric) {
        let sql = "INSERT INTO words (rowid, text) VALUES (?1, ?2)";
        connection.prepare_cached(sql)?.execute(params![id, words])?;
    }
    let pairs = pairs(text);
    if !pairs.is_empty() {
        let sql = "INSERT INTO pairs (rowid, text) VALUES (?1, ?2)";
        connection.prepare_cached(sql)?.execute(params![id, pairs])?;
    }
    Ok(())
}

/// Takes a message out of the indexes.
pub(crate) fn remove(connection: &Connection, id: i64) -> Result<(), Fault> {
    for index in ["words", "pairs"] {
        connection.prepare_cached(&format!("DELETE FROM {index} WHERE rowid = ?1"))?.execute([id])?;
    }
    Ok(())
}

/// A text without what is written without blanks.
pub(crate) fn words(text: &str) -> Cow<'_, str> {
    if text.is_ascii() || !text.chars().any(is_unspaced) {
        return Cow::Borrowed(text);
    }
    Cow::Owned(text.chars().map(|char| if is_unspaced(char) { ' ' } else { char }).collect())
}

/// The stretches of a text that are written without blanks.
pub(crate) fn runs(text: &str) -> impl Iterator<Item = &str> {
    text.split(|char| !is_unspaced(char)).filter(|run| !run.is_empty())
}

/// Every character of such stretches with the next one; the last of each alone, so that one character can be found too.
fn pairs(text: &str) -> String {
    let mut found = String::new();
    if text.is_ascii() {
        return found;
    }
    for run in runs(text) {
        let mut chars = run.chars().peekable();
        while let Some(char) = chars.next() {
            found.push(char);
            found.extend(chars.peek());
            found.push(' ');
        }
    }
    found
}

/// What finds a stretch in `pairs`.
pub(crate) fn pairs_query(run: &str) -> String {
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
    fn texts_are_parted_by_script() {
        let cases = [
            ("plain words", "plain words", ""),
            ("数据库", "   ", "数据 据库 库 "),
            ("fix 库 now", "fix   now", "库 "),
            ("한국어 text", "    text", "한국 국어 어 "),
            ("カタカナ、ひら", "    、  ", "カタ タカ カナ ナ ひら ら "),
        ];
        for (text, in_words, in_pairs) in cases {
            assert_eq!((words(text).as_ref(), pairs(text).as_str()), (in_words, in_pairs), "{text}");
        }
        assert_eq!(pairs_query("数据库"), "\"数据\" AND \"据库\"");
        assert_eq!(pairs_query("库"), "\"库\" *");
    }
}
