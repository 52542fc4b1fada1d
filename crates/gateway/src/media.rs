//! Files in answers and in letters: how an answer names them, and what they are called.

use std::collections::HashSet;
use std::path::PathBuf;

use crate::split;

/// What an answer names a file with that is to be sent.
const TAG: &str = "MEDIA:";
/// The longest name of a file, in bytes.
const LONGEST: usize = 100;
/// The longest ending of a name that is kept where the name is too long, in bytes.
const ENDING: usize = 16;
/// What is left of the longest name for a number in front of it.
const NUMBER: usize = 4;

/// What a path may stand between.
const QUOTES: [(char, char); 4] = [('"', '"'), ('\'', '\''), ('`', '`'), ('<', '>')];
/// What follows a path in a sentence and is no part of it.
const PUNCTUATION: &[char] =
    &['.', ',', ';', ':', '!', '?', ')', ']', '}', '>', '"', '\'', '`', '*', '_', '|'];

/// Where files may be sent from and how large they may be, and where copies are kept on the way.
#[derive(Debug, Clone)]
pub struct Media {
    /// Directories of a place whose files may be sent, besides the one it works in.
    pub besides: Vec<String>,
    /// The home of hermes, in whose cache copies are kept until they are where they should be.
    pub home: PathBuf,
}

/// Takes the tags out of an answer: the words without them, and the paths they name, each once.
pub(crate) fn tags(text: &str) -> (String, Vec<String>) {
    let code = split::code(text);
    let mut words = String::with_capacity(text.len());
    let mut paths: Vec<String> = Vec::new();
    let mut offset = 0;
    for line in text.split_inclusive('\n') {
        let (kept, found) = line_tags(line, |at| code.iter().any(|span| span.contains(&(offset + at))));
        offset += line.len();
        // A line that said nothing else is gone with its tags.
        if found.is_empty() || kept.chars().any(char::is_alphanumeric) {
            words.push_str(&kept);
        }
        for path in found {
            if !paths.contains(&path) {
                paths.push(path);
            }
        }
    }
    (words, paths)
}

/// A line without its tags, and the paths they name.
fn line_tags(line: &str, is_code: impl Fn(usize) -> bool) -> (String, Vec<String>) {
    let (mut kept, mut found) = (String::new(), Vec::new());
    let mut rest = line;
    while let Some((before, after)) = rest.split_once(TAG) {
        let at = line.len() - after.len() - TAG.len();
        let follows_word = before.chars().next_back().is_some_and(char::is_alphanumeric);
        kept.push_str(before);
        match path(after).filter(|_| !follows_word && !is_code(at)) {
            Some((path, after)) => {
                found.push(path.to_owned());
                rest = after;
            }
            None => {
                kept.push_str(TAG);
                rest = after;
            }
        }
    }
    kept.push_str(rest);
    (kept, found)
}

/// The path behind a tag, and what follows it.
fn path(text: &str) -> Option<(&str, &str)> {
    let text = text.trim_start_matches([' ', '\t']);
    let quoted = QUOTES.iter().find_map(|(open, close)| text.strip_prefix(*open)?.split_once(*close));
    if let Some((path, after)) = quoted {
        return (!path.trim().is_empty()).then_some((path.trim(), after));
    }
    let end = text.find(char::is_whitespace).unwrap_or(text.len());
    let path = text.get(..end)?.trim_end_matches(PUNCTUATION);
    let after = text.strip_prefix(path)?;
    (!path.is_empty()).then_some((path, after))
}

/// The name of a file without what could make it lead elsewhere, be read as something else, or mean something to a shell.
pub(crate) fn safe_name(name: &str) -> String {
    let last = name.rsplit(['/', '\\']).find(|part| !part.trim_matches('.').is_empty()).unwrap_or_default();
    let is_plain = |char: char| char.is_alphanumeric() && !is_invisible(char) || "._-+=@,".contains(char);
    let plain: String = last.chars().map(|char| if is_plain(char) { char } else { '_' }).collect();
    let plain = plain.trim_start_matches(['.', '-']);
    match cut(plain) {
        name if name.chars().all(|char| char == '_') => "file".to_owned(),
        name => name,
    }
}

/// Letters that nobody sees.
fn is_invisible(char: char) -> bool {
    matches!(char, '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{3164}' | '\u{ffa0}')
}

/// A name that is not too long. It keeps its ending.
fn cut(name: &str) -> String {
    let most = LONGEST - NUMBER;
    if name.len() <= most {
        return name.to_owned();
    }
    let ending = name.rfind('.').and_then(|dot| name.get(dot..)).filter(|ending| ending.len() <= ENDING);
    let ending = ending.unwrap_or_default();
    let mut kept = String::new();
    for char in name.chars() {
        if kept.len() + char.len_utf8() + ending.len() > most {
            break;
        }
        kept.push(char);
    }
    kept + ending
}

/// Names of which no two are the same, whatever the case of their letters.
#[derive(Debug, Default)]
pub(crate) struct Names(HashSet<String>);

impl Names {
    /// A safe name like this one that was not given before.
    pub(crate) fn give(&mut self, name: &str) -> String {
        let safe = safe_name(name);
        let mut given = safe.clone();
        for number in 2_u32.. {
            if self.0.insert(given.to_lowercase()) {
                break;
            }
            given = format!("{number}-{safe}");
        }
        given
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_are_found_outside_of_code_and_taken_out() {
        let cases: [(&str, &str, &[&str]); 16] = [
            ("no file", "no file", &[]),
            ("MEDIA:/workspace/a.png", "", &["/workspace/a.png"]),
            ("Here:\nMEDIA:a.png\nbye", "Here:\nbye", &["a.png"]),
            ("see MEDIA:a.png, and MEDIA: b.png.", "see , and .", &["a.png", "b.png"]),
            ("MEDIA:\"my file.pdf\" it is", " it is", &["my file.pdf"]),
            ("MEDIA:'my file.pdf'", "", &["my file.pdf"]),
            ("MEDIA:`my file.pdf`", "", &["my file.pdf"]),
            ("- **MEDIA:/a/b.tar.gz**\n", "", &["/a/b.tar.gz"]),
            ("(MEDIA:a.png)", "", &["a.png"]),
            ("MEDIA:a.png MEDIA:a.png", "", &["a.png"]),
            ("write `MEDIA:a.png` so", "write `MEDIA:a.png` so", &[]),
            ("```\nMEDIA:a.png\n```\nMEDIA:b.png", "```\nMEDIA:a.png\n```\n", &["b.png"]),
            ("~~~\nMEDIA:a.png", "~~~\nMEDIA:a.png", &[]),
            ("MULTIMEDIA:a.png MEDIA:", "MULTIMEDIA:a.png MEDIA:", &[]),
            ("MEDIA:\n/a.png", "MEDIA:\n/a.png", &[]),
            ("MEDIA:\"open", "", &["\"open"]),
        ];
        for (text, words, paths) in cases {
            let found = tags(text);
            assert_eq!(
                (found.0.as_str(), found.1),
                (words, paths.iter().map(|path| (*path).to_owned()).collect())
            );
        }
    }

    #[test]
    fn names_lead_nowhere_and_pretend_nothing() {
        let cases = [
            ("report.pdf", "report.pdf"),
            ("Bericht über Öl.pdf", "Bericht_über_Öl.pdf"),
            ("../../x", "x"),
            ("/etc/passwd", "passwd"),
            ("C:\\Users\\x.txt", "x.txt"),
            ("..", "file"),
            ("", "file"),
            ("a/..", "a"),
            (".bashrc", "bashrc"),
            ("-rf", "rf"),
            ("a\nb]\n[file 2: x", "a_b___file_2__x"),
            ("gpj.\u{202e}exe", "gpj._exe"),
            ("\u{200b}", "file"),
            ("$(reboot);`x`.sh", "__reboot___x_.sh"),
            ("a\0b", "a_b"),
            ("文件.txt", "文件.txt"),
        ];
        for (name, expected) in cases {
            assert_eq!(safe_name(name), expected, "{name:?}");
        }
        let long = safe_name(&format!("{}.jpeg", "ä".repeat(300)));
        assert!(long.len() <= LONGEST && long.ends_with("ä.jpeg"), "{long}");
        let endless = safe_name(&format!("a.{}", "b".repeat(300)));
        assert_eq!(endless.len(), LONGEST - NUMBER);
    }

    #[test]
    fn no_name_is_given_twice() {
        let mut names = Names::default();
        let given: Vec<_> =
            ["a.txt", "A.TXT", "x/a.txt", "2-a.txt", "", ""].iter().map(|name| names.give(name)).collect();
        assert_eq!(given, ["a.txt", "2-A.TXT", "3-a.txt", "2-2-a.txt", "file", "2-file"]);
    }
}
