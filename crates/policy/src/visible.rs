//! Making text safe to look at: nothing hidden, nothing reordered, nothing pushed out of sight.

use hermes_types::text::is_hidden;
use serde::{Deserialize, Serialize};

/// Runs of blanks at least this long are shown by their number.
const PADDING: usize = 8;
/// Runs of newlines at least this long are shown by their number.
const BLANK_LINES: usize = 4;

/// A text as a person may see it, in parts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shown {
    /// The parts, in order.
    pub parts: Vec<Part>,
}

/// A stretch of shown text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    /// The text, made visible.
    pub text: String,
    /// Whether it is what the question is about.
    pub dangerous: bool,
}

impl Shown {
    /// Shows a text with the given stretches of it marked.
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
                parts.push(Part { text: visible(text), dangerous });
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

    /// How many characters are shown.
    pub fn length(&self) -> usize {
        self.parts.iter().map(|part| part.text.chars().count()).sum()
    }

    /// One plain text, the dangerous stretches between `»` and `«`.
    pub fn plain(&self) -> String {
        self.parts
            .iter()
            .map(|part| if part.dangerous { format!("»{}«", part.text) } else { part.text.clone() })
            .collect()
    }
}

/// Text with hidden characters written out and padding counted.
pub fn visible(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(char) = chars.next() {
        let run_of = |wanted: fn(char) -> bool, chars: &mut std::iter::Peekable<std::str::Chars<'_>>| {
            let mut run = vec![char];
            while let Some(next) = chars.next_if(|next| wanted(*next)) {
                run.push(next);
            }
            run
        };
        match char {
            '\n' => {
                let run = run_of(|char| char == '\n', &mut chars);
                if run.len() >= BLANK_LINES {
                    shown.push_str(&format!("\n⟨{} empty lines⟩\n", run.len() - 1));
                } else {
                    shown.extend(run);
                }
            }
            char if is_blank(char) => {
                let run = run_of(is_blank, &mut chars);
                if run.len() >= PADDING {
                    shown.push_str(&format!(" ⟨{} blanks⟩ ", run.len()));
                } else {
                    for char in run {
                        match char {
                            ' ' | '\t' => shown.push(char),
                            other => shown.push_str(&format!("⟨U+{:04X}⟩", u32::from(other))),
                        }
                    }
                }
            }
            '\r' => shown.push_str("⟨U+000D⟩"),
            char if is_hidden(char) || char == '\u{200d}' => {
                shown.push_str(&format!("⟨U+{:04X}⟩", u32::from(char)))
            }
            '»' | '«' | '⟨' | '⟩' => shown.push_str(&format!("⟨U+{:04X}⟩", u32::from(char))),
            other => shown.push(other),
        }
    }
    shown
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
    fn nothing_stays_hidden() {
        for (text, expected) in [
            ("ls -l", "ls -l"),
            ("a\u{1b}[2Kb", "a⟨U+001B⟩[2Kb"),
            ("a\u{202e}b", "a⟨U+202E⟩b"),
            ("a\u{200b}b", "a⟨U+200B⟩b"),
            ("a\rb", "a⟨U+000D⟩b"),
            ("a\u{a0}b", "a⟨U+00A0⟩b"),
            ("»x«", "⟨U+00BB⟩x⟨U+00AB⟩"),
        ] {
            assert_eq!(visible(text), expected, "{text:?}");
        }
        assert_eq!(visible(&format!("ls{}; reboot", " ".repeat(400))), "ls ⟨400 blanks⟩ ; reboot");
        assert_eq!(visible(&format!("ls{}reboot", "\n".repeat(90))), "ls\n⟨89 empty lines⟩\nreboot");
    }

    #[test]
    fn the_dangerous_part_is_marked() {
        let shown = Shown::new("ls; rm -rf /srv; ls", &["rm -rf /srv".to_owned()]);
        assert_eq!(shown.plain(), "ls; »rm -rf /srv«; ls");
        let overlapping = Shown::new("sudo rm x", &["sudo rm x".to_owned(), "rm x".to_owned()]);
        assert_eq!(overlapping.plain(), "»sudo rm x«");
    }
}
