//! Titles: what people call their sessions.

use hermes_types::text::is_hidden;
use rusqlite::{Connection, OptionalExtension, params};

use super::Clash;
use crate::error::{Error, Fault};

/// Characters of a title.
const LONGEST: usize = 100;

/// Sets the title of a session, and gives it as it was set.
pub(crate) fn set(connection: &Connection, n: i64, wanted: &str, clash: Clash) -> Result<String, Fault> {
    let mut title = clean(wanted);
    if title.is_empty() {
        return Err(Error::EmptyTitle.into());
    }
    if let Some(holder) = holder(connection, &title)?
        && holder != n
    {
        match clash {
            Clash::Refuse => return Err(Error::TitleTaken(title).into()),
            Clash::Number => title = next(connection, &title)?,
        }
    }
    connection.prepare_cached("UPDATE sessions SET title = ?2 WHERE n = ?1")?.execute(params![n, title])?;
    Ok(title)
}

fn holder(connection: &Connection, title: &str) -> Result<Option<i64>, Fault> {
    let sql = "SELECT n FROM sessions WHERE title = ?1";
    Ok(connection.prepare_cached(sql)?.query_row([title], |row| row.get(0)).optional()?)
}

/// The title with the next number that is free.
pub(crate) fn next(connection: &Connection, title: &str) -> Result<String, Fault> {
    let (stem, _) = parts(title);
    let highest = numbered(connection, stem, None)?.into_iter().map(|(number, _)| number).max().unwrap_or(1);
    for number in highest.saturating_add(1).. {
        let ending = format!(" #{number}");
        let kept: String = stem.chars().take(LONGEST - ending.len()).collect();
        let title = format!("{}{ending}", kept.trim_end());
        // A long title was cut to make room, so another one may have become the same.
        if holder(connection, &title)?.is_none() {
            return Ok(title);
        }
    }
    Err(Error::TitleTaken(title.to_owned()).into())
}

/// The session with a title; of several that are numbered, the one with the highest number.
pub(crate) fn find(connection: &Connection, title: &str, person: Option<&str>) -> Result<Option<i64>, Fault> {
    let title = clean(title);
    if title.is_empty() {
        return Ok(None);
    }
    if parts(&title).1.is_some() {
        let sql = "SELECT n FROM sessions WHERE title = ?1 AND (?2 IS NULL OR person = ?2)";
        return Ok(connection
            .prepare_cached(sql)?
            .query_row(params![title, person], |row| row.get(0))
            .optional()?);
    }
    let found = numbered(connection, &title, person)?;
    Ok(found.into_iter().max_by_key(|(number, _)| *number).map(|(_, n)| n))
}

/// The sessions whose title is this one, with a number or without, and the number.
fn numbered(connection: &Connection, stem: &str, person: Option<&str>) -> Result<Vec<(u64, i64)>, Fault> {
    // The index on titles gives those that begin so; what follows is looked at here.
    let sql = "SELECT n, title FROM sessions
               WHERE (title = ?1 OR (title >= ?1 || ' #' AND title < ?1 || ' $')) AND (?2 IS NULL OR person = ?2)";
    let mut statement = connection.prepare_cached(sql)?;
    let mut rows = statement.query(params![stem, person])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        let title: String = row.get(1)?;
        let (begin, number) = parts(&title);
        if title == stem {
            found.push((1, row.get(0)?));
        } else if let (true, Some(number)) = (begin == stem, number) {
            found.push((number, row.get(0)?));
        }
    }
    Ok(found)
}

/// A title without its number, and the number.
fn parts(title: &str) -> (&str, Option<u64>) {
    let split = title.rsplit_once(" #").and_then(|(stem, number)| {
        let is_number = number.bytes().all(|byte| byte.is_ascii_digit()) && !number.starts_with('0');
        number.parse().ok().filter(|number| is_number && *number > 1).map(|number| (stem, number))
    });
    split.map_or((title, None), |(stem, number)| (stem, Some(number)))
}

/// A title in one line, with nothing in it that is not seen or changes how the rest is seen.
fn clean(text: &str) -> String {
    let seen = |char: &char| !(char.is_control() || is_hidden(*char));
    let spaced: String =
        text.chars().map(|char| if char.is_whitespace() { ' ' } else { char }).filter(seen).collect();
    let words: Vec<&str> = spaced.split(' ').filter(|word| !word.is_empty()).collect();
    let kept: String = words.join(" ").chars().take(LONGEST).collect();
    kept.trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn titles_are_one_line_of_what_can_be_seen() {
        let (long, cut) = ("x".repeat(300), "x".repeat(100));
        let cases = [
            ("  a\n\tb  ", "a b"),
            ("a\u{202e}b\u{0}c\u{1b}[31m", "abc[31m"),
            ("\u{200b}\u{2066}", ""),
            ("数据库 迁移", "数据库 迁移"),
            (&long, &cut),
        ];
        for (text, expected) in cases {
            assert_eq!(clean(text), expected, "{text:?}");
        }
    }

    #[test]
    fn numbers_are_told_from_titles() {
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
            assert_eq!(parts(title), expected, "{title}");
        }
    }
}
