//! Excerpts of messages around a match.

use serde::Serialize;

/// Context on each side of the match.
const CONTEXT_CHARS: usize = 60;
/// A word that does not occur as typed is searched by prefixes of at least this length.
const MIN_STEM_CHARS: usize = 3;

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Snippet {
    pub before: String,
    pub found: String,
    pub after: String,
}

impl Snippet {
    /// Cuts out the first match of any text; without a match, the beginning.
    pub(crate) fn around(text: &str, wanted: &[&str]) -> Self {
        let lower = |char: char| char.to_lowercase().next().unwrap_or(char);
        let chars: Vec<char> = text.chars().collect();
        let small: Vec<char> = chars.iter().copied().map(lower).collect();
        let words: Vec<Vec<char>> = wanted.iter().map(|text| text.chars().map(lower).collect()).collect();
        let (at, length) = words
            .iter()
            .filter_map(|word| find(&small, word).map(|at| (at, word.len())))
            .min()
            .or_else(|| words.iter().find_map(|word| find_stem(&small, word)))
            .unwrap_or((0, 0));
        let from = at.saturating_sub(CONTEXT_CHARS);
        let end = at + length;
        let to = chars.len().min(end + CONTEXT_CHARS);
        let piece =
            |range: std::ops::Range<usize>| chars.get(range).unwrap_or_default().iter().collect::<String>();
        let ellipsis = |is_cut: bool| if is_cut { "…" } else { "" };
        Self {
            before: format!("{}{}", ellipsis(from > 0), piece(from..at)),
            found: piece(at..end),
            after: format!("{}{}", piece(end..to), ellipsis(to < chars.len())),
        }
    }
}

fn find(text: &[char], word: &[char]) -> Option<usize> {
    if word.is_empty() { None } else { text.windows(word.len()).position(|window| window == word) }
}

/// The index stems words, so it finds `run` for `running`; prefixes are tried from long to short.
fn find_stem(text: &[char], word: &[char]) -> Option<(usize, usize)> {
    (MIN_STEM_CHARS..word.len()).rev().find_map(|length| {
        let at = find(text, word.get(..length)?)?;
        Some((at, length))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_match_is_in_the_middle() {
        let long = format!("{} the Needle here {}", "x ".repeat(200), "y ".repeat(200));
        let cases = [
            ("a needle b", vec!["needle"], ("a ", "needle", " b")),
            ("we run it", vec!["running"], ("we ", "run", " it")),
            ("用数据库做", vec!["数据库"], ("用", "数据库", "做")),
            ("b then a", vec!["a", "b"], ("", "b", " then a")),
            ("nothing of it", vec!["zzz"], ("", "", "nothing of it")),
            ("", vec!["x"], ("", "", "")),
        ];
        for (text, wanted, (before, found, after)) in cases {
            let expected =
                Snippet { before: before.to_owned(), found: found.to_owned(), after: after.to_owned() };
            assert_eq!(Snippet::around(text, &wanted), expected, "{text}");
        }
        let cut = Snippet::around(&long, &["needle"]);
        assert!(cut.before.starts_with('…') && cut.after.ends_with('…') && cut.found == "Needle", "{cut:?}");
        assert!(cut.before.chars().count() + cut.after.chars().count() <= 2 * CONTEXT_CHARS + 2);
    }
}
