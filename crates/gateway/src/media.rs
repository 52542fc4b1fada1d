//! Files in messages: media tags in replies, and safe file names.

use std::collections::HashSet;
use std::path::PathBuf;

use crate::split;

/// Tag by which a reply names a file to upload.
const MEDIA_TAG: &str = "MEDIA:";
const MAX_NAME_BYTES: usize = 100;
const MAX_EXTENSION_BYTES: usize = 16;
/// Space reserved for a number in front of a duplicate name.
const NUMBER_PREFIX_BYTES: usize = 4;

/// Quotes around a path.
const QUOTES: [(char, char); 4] = [('"', '"'), ('\'', '\''), ('`', '`'), ('<', '>')];
/// Punctuation that may follow an unquoted path.
const PUNCTUATION: &[char] =
    &['.', ',', ';', ':', '!', '?', ')', ']', '}', '>', '"', '\'', '`', '*', '_', '|'];

/// Which files may be uploaded, and where copies are kept.
#[derive(Debug, Clone)]
pub struct MediaSettings {
    /// Directories whose files may be uploaded, besides the working directory.
    pub extra_roots: Vec<String>,
    /// The Hermes home; copies are kept in its cache.
    pub home: PathBuf,
}

/// Removes the media tags from a reply. Returns the remaining text and the paths, each once.
pub(crate) fn extract_media_tags(text: &str) -> (String, Vec<String>) {
    let code = split::code_spans(text);
    let mut remaining = String::with_capacity(text.len());
    let mut paths: Vec<String> = Vec::new();
    let mut offset = 0;
    for line in text.split_inclusive('\n') {
        let (rest_of_line, found) =
            extract_line_tags(line, |at| code.iter().any(|span| span.contains(&(offset + at))));
        offset += line.len();
        // A line with nothing but tags is removed.
        if found.is_empty() || rest_of_line.chars().any(char::is_alphanumeric) {
            remaining.push_str(&rest_of_line);
        }
        for path in found {
            if !paths.contains(&path) {
                paths.push(path);
            }
        }
    }
    (remaining, paths)
}

fn extract_line_tags(line: &str, is_code: impl Fn(usize) -> bool) -> (String, Vec<String>) {
    let (mut rest_of_line, mut found) = (String::new(), Vec::new());
    let mut rest = line;
    while let Some((before, after)) = rest.split_once(MEDIA_TAG) {
        let at = line.len() - after.len() - MEDIA_TAG.len();
        let follows_word = before.chars().next_back().is_some_and(char::is_alphanumeric);
        rest_of_line.push_str(before);
        rest = match parse_tag_path(after).filter(|_| !follows_word && !is_code(at)) {
            Some((path, after)) => {
                found.push(path.to_owned());
                after
            }
            None => {
                rest_of_line.push_str(MEDIA_TAG);
                after
            }
        };
    }
    rest_of_line.push_str(rest);
    (rest_of_line, found)
}

fn parse_tag_path(text: &str) -> Option<(&str, &str)> {
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

/// A file name without path, hidden characters or shell metacharacters.
pub(crate) fn safe_name(name: &str) -> String {
    let last = name.rsplit(['/', '\\']).find(|part| !part.trim_matches('.').is_empty()).unwrap_or_default();
    let is_invisible =
        |char| matches!(char, '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{3164}' | '\u{ffa0}');
    let is_plain = |char: char| char.is_alphanumeric() && !is_invisible(char) || "._-+=@,".contains(char);
    let plain: String = last.chars().map(|char| if is_plain(char) { char } else { '_' }).collect();
    let plain = plain.trim_start_matches(['.', '-']);
    match truncate_name(plain) {
        name if name.chars().all(|char| char == '_') => "file".to_owned(),
        name => name,
    }
}

/// Shortens a name and keeps its extension.
fn truncate_name(name: &str) -> String {
    let max_len = MAX_NAME_BYTES - NUMBER_PREFIX_BYTES;
    if name.len() <= max_len {
        return name.to_owned();
    }
    let ending =
        name.rfind('.').and_then(|dot| name.get(dot..)).filter(|ending| ending.len() <= MAX_EXTENSION_BYTES);
    let ending = ending.unwrap_or_default();
    let mut short = String::new();
    for char in name.chars() {
        if short.len() + char.len_utf8() + ending.len() > max_len {
            break;
        }
        short.push(char);
    }
    short + ending
}

/// Hands out file names that differ even when case is ignored.
#[derive(Debug, Default)]
pub(crate) struct UniqueNames(HashSet<String>);

impl UniqueNames {
    pub(crate) fn assign(&mut self, name: &str) -> String {
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
    fn media_tags_are_extracted_outside_of_code() {
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
            let found = extract_media_tags(text);
            assert_eq!(
                (found.0.as_str(), found.1),
                (words, paths.iter().map(|path| (*path).to_owned()).collect())
            );
        }
    }

    #[test]
    fn file_names_are_made_safe() {
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
        assert!(long.len() <= MAX_NAME_BYTES && long.ends_with("ä.jpeg"), "{long}");
        let endless = safe_name(&format!("a.{}", "b".repeat(300)));
        assert_eq!(endless.len(), MAX_NAME_BYTES - NUMBER_PREFIX_BYTES);
    }

    #[test]
    fn names_are_unique() {
        let mut names = UniqueNames::default();
        let given: Vec<_> =
            ["a.txt", "A.TXT", "x/a.txt", "2-a.txt", "", ""].iter().map(|name| names.assign(name)).collect();
        assert_eq!(given, ["a.txt", "2-A.TXT", "3-a.txt", "2-2-a.txt", "file", "2-file"]);
    }
}
