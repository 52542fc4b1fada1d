//! Session titles.

use hermes_types::text::is_hidden;
use rusqlite::{Connection, Row, params};

use crate::error::{Error, QueryResult};
use crate::sql;

const MAX_TITLE_CHARS: usize = 100;

/// Sets the title of a session and returns it as stored.
pub(crate) fn set(connection: &Connection, n: i64, text: &str) -> QueryResult<String> {
    let mut title = normalize(text);
    if title.is_empty() {
        return Err(Error::EmptyTitle.into());
    }
    if find_exact(connection, &title, None)?.is_some_and(|other| other != n) {
        title = next_numbered(connection, &title)?;
    }
    sql::execute(connection, "UPDATE sessions SET title = ?2 WHERE n = ?1", params![n, title])?;
    Ok(title)
}

fn find_exact(connection: &Connection, title: &str, person: Option<&str>) -> QueryResult<Option<i64>> {
    let sql = "SELECT n FROM sessions WHERE title = ?1 AND (?2 IS NULL OR person = ?2)";
    sql::first(connection, sql, params![title, person], |row| Ok(row.get(0)?))
}

/// The title with the next free number.
fn next_numbered(connection: &Connection, title: &str) -> QueryResult<String> {
    let (stem, _) = split_number(title);
    let highest = find_highest(connection, stem, None)?.map_or(1, |(number, _)| number);
    for number in highest.saturating_add(1)..=u64::MAX {
        let ending = format!(" #{number}");
        let short: String = stem.chars().take(MAX_TITLE_CHARS - ending.len()).collect();
        let title = format!("{}{ending}", short.trim_end());
        // The title may have been cut to fit the number, so it can collide with another one.
        if find_exact(connection, &title, None)?.is_none() {
            return Ok(title);
        }
    }
    Err(Error::TitleTaken(title.to_owned()).into())
}

/// The session with a title; without one, the session with the highest number after that title.
pub(crate) fn find(connection: &Connection, title: &str, person: Option<&str>) -> QueryResult<Option<i64>> {
    let title = normalize(title);
    let exact = find_exact(connection, &title, person)?;
    if exact.is_some() || title.is_empty() || split_number(&title).1.is_some() {
        return Ok(exact);
    }
    Ok(find_highest(connection, &title, person)?.map(|(_, n)| n))
}

/// The session with the highest number after a title, and that number.
fn find_highest(
    connection: &Connection,
    stem: &str,
    person: Option<&str>,
) -> QueryResult<Option<(u64, i64)>> {
    // The range uses the index on titles; `read` checks the rest.
    let sql = "SELECT n, title FROM sessions
               WHERE title >= ?1 || ' #' AND title < ?1 || ' $' AND (?2 IS NULL OR person = ?2)";
    let read = |row: &Row<'_>| {
        let title: String = row.get(1)?;
        let (other, number) = split_number(&title);
        Ok(number.filter(|_| other == stem).zip(row.get(0)?))
    };
    let found = sql::rows(connection, sql, params![stem, person], read)?;
    Ok(found.into_iter().flatten().max())
}

/// Splits a title into its stem and number.
fn split_number(title: &str) -> (&str, Option<u64>) {
    let split = title.rsplit_once(" #").and_then(|(stem, number)| {
        let is_number = number.bytes().all(|byte| byte.is_ascii_digit()) && !number.starts_with('0');
        number.parse().ok().filter(|number| is_number && *number > 1).map(|number| (stem, number))
    });
    split.map_or((title, None), |(stem, number)| (stem, Some(number)))
}

/// A single line without invisible or reordering characters.
fn normalize(text: &str) -> String {
    let is_visible = |char: &char| char.is_whitespace() || !(char.is_control() || is_hidden(*char));
    let visible: String = text.chars().filter(is_visible).collect();
    let words: Vec<&str> = visible.split_whitespace().collect();
    let cut: String = words.join(" ").chars().take(MAX_TITLE_CHARS).collect();
    cut.trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn titles_are_one_line_of_visible_text() {
        let (long, cut) = ("x".repeat(300), "x".repeat(100));
        let cases = [
            ("  a\n\tb  ", "a b"),
            ("a\u{202e}b\u{0}c\u{1b}[31m", "abc[31m"),
            ("\u{200b}\u{2066}", ""),
            ("数据库 迁移", "数据库 迁移"),
            (&long, &cut),
        ];
        for (text, expected) in cases {
            assert_eq!(normalize(text), expected, "{text:?}");
        }
    }

    #[test]
    fn the_number_is_split_from_the_title() {
        let cases = [
            ("a #2", ("a", Some(2))),
            ("a #1", ("a #1", None)),
            ("a #02", ("a #02", None)),
            ("a #x", ("a #x", None)),
            ("a#2", ("a#2", None)),
            ("a #2 #13", ("a #2", Some(13))),
            ("a #+3", ("a #+3", None)),
        ];
        for (title, expected) in cases {
            assert_eq!(split_number(title), expected, "{title}");
        }
    }
}
