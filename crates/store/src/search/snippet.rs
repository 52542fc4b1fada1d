//! A few words of a message, around what was found.

use serde::Serialize;

/// Characters before what was found, and behind it.
const AROUND: usize = 60;
/// The shortest beginning of a word by which it is looked for, when it is not there as it was typed.
const STEM: usize = 3;

/// Text around a find.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Snippet {
    /// What stands before it.
    pub before: String,
    /// What was found.
    pub found: String,
    /// What stands behind it.
    pub after: String,
}

impl Snippet {
    /// Cuts out the first of several texts; where none can be seen, the beginning.
    pub(crate) fn cut(text: &str, wanted: &[&str]) -> Self {
        let lower = |char: char| char.to_lowercase().next().unwrap_or(char);
        let chars: Vec<char> = text.chars().collect();
        let small: Vec<char> = chars.iter().copied().map(lower).collect();
        let words: Vec<Vec<char>> = wanted.iter().map(|text| text.chars().map(lower).collect()).collect();
        let (at, length) = words
            .iter()
            .filter_map(|word| position(&small, word).map(|at| (at, word.len())))
            .min()
            .or_else(|| words.iter().find_map(|word| stem(&small, word)))
            .unwrap_or((0, 0));
        let from = at.saturating_sub(AROUND);
        let end = at + length;
        let to = chars.len().min(end + AROUND);
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

fn position(text: &[char], word: &[char]) -> Option<usize> {
    if word.is_empty() { None } else { text.windows(word.len()).position(|window| window == word) }
}

/// The index finds `running` with `run`; so a word is also looked for by its beginnings, longest first.
fn stem(text: &[char], word: &[char]) -> Option<(usize, usize)> {
    (STEM..word.len()).rev().find_map(|length| {
        let at = position(text, word.get(..length)?)?;
        Some((at, length))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_find_is_in_the_middle() {
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
            assert_eq!(Snippet::cut(text, &wanted), expected, "{text}");
        }
        let cut = Snippet::cut(&long, &["needle"]);
        assert!(cut.before.starts_with('…') && cut.after.ends_with('…') && cut.found == "Needle", "{cut:?}");
        assert!(cut.before.chars().count() + cut.after.chars().count() <= 2 * AROUND + 2);
    }
}
