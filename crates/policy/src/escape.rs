//! Escaping of untrusted text for display: no invisible, reordering or padding characters remain.

use hermes_types::text::is_hidden;
use serde::{Deserialize, Serialize};

/// Longer runs of blanks are shown as a count.
const MIN_BLANK_RUN: usize = 8;
/// Longer runs of newlines are shown as a count.
const MIN_NEWLINE_RUN: usize = 4;

/// An escaped text, in parts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EscapedText {
    pub parts: Vec<EscapedPart>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EscapedPart {
    pub text: String,
    /// Whether the question is about this part.
    pub dangerous: bool,
}

impl EscapedText {
    /// Escapes a text and marks the dangerous parts.
    pub(crate) fn new(text: &str, dangerous: &[String]) -> Self {
        let mut marks: Vec<(usize, usize)> = dangerous
            .iter()
            .filter(|part| !part.is_empty())
            .filter_map(|part| text.find(part.as_str()).map(|start| (start, start + part.len())))
            .collect();
        marks.sort_unstable();
        let mut parts = Vec::new();
        let mut at = 0;
        let mut push = |from: usize, to: usize, dangerous: bool| {
            if let Some(text) = text.get(from..to).filter(|text| !text.is_empty()) {
                parts.push(EscapedPart { text: escape(text), dangerous });
            }
        };
        for (start, end) in marks {
            if end <= at {
                continue;
            }
            push(at, start.max(at), false);
            push(start.max(at), end, true);
            at = end;
        }
        push(at, text.len(), false);
        Self { parts }
    }

    pub fn char_count(&self) -> usize {
        self.parts.iter().map(|part| part.text.chars().count()).sum()
    }

    /// The text with the dangerous parts between `»` and `«`.
    pub fn to_marked_string(&self) -> String {
        self.parts
            .iter()
            .map(|part| if part.dangerous { format!("»{}«", part.text) } else { part.text.clone() })
            .collect()
    }
}

/// Escapes invisible characters and collapses padding.
pub fn escape(text: &str) -> String {
    let chars: Vec<char> = text.chars().collect();
    let is_run = |a: &char, b: &char| (*a == '\n' && *b == '\n') || (is_blank(*a) && is_blank(*b));
    let mut shown = String::with_capacity(text.len());
    for run in chars.chunk_by(is_run) {
        match run.len() {
            count if run.starts_with(&['\n']) && count >= MIN_NEWLINE_RUN => {
                shown.push_str(&format!("\n⟨{} empty lines⟩\n", count - 1));
            }
            count if run.starts_with(&['\n']) || count < MIN_BLANK_RUN => {
                run.iter().for_each(|char| escape_char(*char, &mut shown));
            }
            count => shown.push_str(&format!(" ⟨{count} blanks⟩ ")),
        }
    }
    shown
}

fn escape_char(char: char, shown: &mut String) {
    let is_odd = match char {
        '\n' | ' ' | '\t' => false,
        '\r' | '\u{200d}' | '»' | '«' | '⟨' | '⟩' => true,
        char => is_blank(char) || is_hidden(char),
    };
    if is_odd {
        shown.push_str(&format!("⟨U+{:04X}⟩", u32::from(char)));
    } else {
        shown.push(char);
    }
}

fn is_blank(char: char) -> bool {
    char == ' '
        || char == '\t'
        || (char.is_whitespace()
            && !matches!(char, '\n' | '\r' | '\u{2028}' | '\u{2029}' | '\u{85}' | '\u{b}' | '\u{c}'))
        || char == '\u{2800}'
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invisible_characters_and_padding_are_escaped() {
        for (text, expected) in [
            ("ls -l", "ls -l"),
            ("a\u{1b}[2Kb", "a⟨U+001B⟩[2Kb"),
            ("a\u{202e}b", "a⟨U+202E⟩b"),
            ("a\u{200b}b", "a⟨U+200B⟩b"),
            ("a\rb", "a⟨U+000D⟩b"),
            ("a\u{a0}b", "a⟨U+00A0⟩b"),
            ("»x«", "⟨U+00BB⟩x⟨U+00AB⟩"),
        ] {
            assert_eq!(escape(text), expected, "{text:?}");
        }
        assert_eq!(escape(&format!("ls{}; reboot", " ".repeat(400))), "ls ⟨400 blanks⟩ ; reboot");
        assert_eq!(escape(&format!("ls{}reboot", "\n".repeat(90))), "ls\n⟨89 empty lines⟩\nreboot");
    }

    #[test]
    fn dangerous_parts_are_marked() {
        let shown = EscapedText::new("ls; rm -rf /srv; ls", &["rm -rf /srv".to_owned()]);
        assert_eq!(shown.to_marked_string(), "ls; »rm -rf /srv«; ls");
        let overlapping = EscapedText::new("sudo rm x", &["sudo rm x".to_owned(), "rm x".to_owned()]);
        assert_eq!(overlapping.to_marked_string(), "»sudo rm x«");
    }
}
