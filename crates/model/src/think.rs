//! Thoughts that a model writes into its answer, between tags, also when a tag falls between two pieces.

/// The tags, in lower case.
const TAGS: &[&str] = &["think", "thinking", "thought", "reasoning", "reasoning_scratchpad"];

/// A piece of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Piece {
    Text(String),
    Thought(String),
}

/// Parts a stream of text into words and thoughts. A tag counts only where a line begins, so that an answer may talk about
/// tags.
#[derive(Debug)]
pub(crate) struct Splitter {
    held: String,
    inside: Option<&'static str>,
    line_begins: bool,
    /// Blanks behind the thoughts belong to neither.
    after_thought: bool,
}

impl Default for Splitter {
    fn default() -> Self {
        Self { held: String::new(), inside: None, line_begins: true, after_thought: false }
    }
}

impl Splitter {
    /// Takes the next piece and gives what is certain.
    pub(crate) fn push(&mut self, text: &str) -> Vec<Piece> {
        self.held.push_str(text);
        let mut out = Vec::new();
        while self.step(&mut out) {}
        out
    }

    /// What was held back when the answer ended.
    pub(crate) fn finish(&mut self) -> Vec<Piece> {
        let rest = std::mem::take(&mut self.held);
        let mut out = Vec::new();
        match self.inside {
            Some(_) => thought(&mut out, rest),
            None => self.text(&mut out, rest),
        }
        out
    }

    /// Takes one step; false if more must come first.
    fn step(&mut self, out: &mut Vec<Piece>) -> bool {
        if let Some(tag) = self.inside {
            let close = format!("</{tag}>");
            return match find(&self.held, &close) {
                Found::At(at) => {
                    let rest = self.held.split_off(at);
                    thought(out, std::mem::take(&mut self.held));
                    self.held = rest.get(close.len()..).unwrap_or_default().to_owned();
                    self.inside = None;
                    self.line_begins = true;
                    self.after_thought = true;
                    true
                }
                Found::Perhaps(at) => {
                    let rest = self.held.split_off(at);
                    thought(out, std::mem::replace(&mut self.held, rest));
                    false
                }
                Found::Not => {
                    thought(out, std::mem::take(&mut self.held));
                    false
                }
            };
        }
        let Some(at) = self.held.find('<') else {
            let all = std::mem::take(&mut self.held);
            self.text(out, all);
            return false;
        };
        let rest = self.held.split_off(at);
        let before = std::mem::take(&mut self.held);
        self.text(out, before);
        self.held = rest;
        if !self.line_begins {
            self.held.remove(0);
            self.text(out, "<".to_owned());
            return true;
        }
        for tag in TAGS {
            let open = format!("<{tag}>");
            if starts(&self.held, &open) {
                self.held.drain(..open.len());
                self.inside = Some(tag);
                return true;
            }
        }
        if TAGS.iter().any(|tag| starts(&format!("<{tag}>"), &self.held)) {
            return false;
        }
        self.held.remove(0);
        self.text(out, "<".to_owned());
        true
    }

    fn text(&mut self, out: &mut Vec<Piece>, text: String) {
        let text = match self.after_thought {
            true => text.trim_start().to_owned(),
            false => text,
        };
        let Some(line) = text.rsplit('\n').next().filter(|_| !text.is_empty()) else { return };
        self.after_thought = false;
        let blank = line.chars().all(char::is_whitespace);
        self.line_begins = blank && (self.line_begins || text.contains('\n'));
        match out.last_mut() {
            Some(Piece::Text(last)) => last.push_str(&text),
            _ => out.push(Piece::Text(text)),
        }
    }
}

/// Parts a text at a closing tag that was never opened: some templates open it for the model, so that only its end is in the
/// answer.
pub(crate) fn unopened(text: &str) -> Option<(&str, &str)> {
    let tags = TAGS.iter().map(|tag| format!("</{tag}>"));
    let first = tags.filter_map(|close| match find(text, &close) {
        Found::At(at) => Some((at, close.len())),
        Found::Perhaps(_) | Found::Not => None,
    });
    let (at, length) = first.min()?;
    Some((text.get(..at)?, text.get(at + length..)?.trim_start()))
}

fn thought(out: &mut Vec<Piece>, text: String) {
    if !text.is_empty() {
        out.push(Piece::Thought(text));
    }
}

enum Found {
    At(usize),
    /// The text ends with the beginning of it.
    Perhaps(usize),
    Not,
}

fn find(text: &str, wanted: &str) -> Found {
    for (at, _) in text.match_indices('<') {
        let rest = text.get(at..).unwrap_or_default();
        if starts(rest, wanted) {
            return Found::At(at);
        }
        if starts(wanted, rest) {
            return Found::Perhaps(at);
        }
    }
    Found::Not
}

fn starts(text: &str, start: &str) -> bool {
    text.get(..start.len()).is_some_and(|head| head.eq_ignore_ascii_case(start))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(text: &str, size: usize) -> (String, String) {
        let mut splitter = Splitter::default();
        let letters: Vec<char> = text.chars().collect();
        let mut pieces = Vec::new();
        for piece in letters.chunks(size) {
            pieces.extend(splitter.push(&piece.iter().collect::<String>()));
        }
        pieces.extend(splitter.finish());
        let (mut words, mut thoughts) = (String::new(), String::new());
        for piece in pieces {
            match piece {
                Piece::Text(text) => words.push_str(&text),
                Piece::Thought(text) => thoughts.push_str(&text),
            }
        }
        (words, thoughts)
    }

    #[test]
    fn thoughts_are_told_from_words_however_they_are_cut() {
        let cases = [
            ("hello", "hello", ""),
            ("<think>a < b</think>\n\nhello", "hello", "a < b"),
            ("<THINKING>x</thinking>y", "y", "x"),
            ("<REASONING_SCRATCHPAD>é</REASONING_SCRATCHPAD>ü", "ü", "é"),
            ("one\n<think>x</think>two", "one\ntwo", "x"),
            ("use `<think>` tags", "use `<think>` tags", ""),
            ("a <think>b</think> c", "a <think>b</think> c", ""),
            ("<thin air>", "<thin air>", ""),
            ("<think>never closed", "", "never closed"),
            ("<think>a</thin</think>b", "b", "a</thin"),
            ("<b>x</b>", "<b>x</b>", ""),
            ("<", "<", ""),
            ("  <think>x</think>y", "  y", "x"),
        ];
        for (text, words, thoughts) in cases {
            for size in [1, 2, 3, 7, 4096] {
                assert_eq!(split(text, size), (words.to_owned(), thoughts.to_owned()), "{text} by {size}");
            }
        }
    }

    #[test]
    fn words_are_given_as_soon_as_they_are_certain() {
        let mut splitter = Splitter::default();
        assert_eq!(splitter.push("hello <"), [Piece::Text("hello <".to_owned())]);
        assert_eq!(splitter.push("\n<th"), [Piece::Text("\n".to_owned())]);
        assert_eq!(splitter.push("e end"), [Piece::Text("<the end".to_owned())]);
    }

    #[test]
    fn a_template_may_have_opened_the_tag() {
        assert_eq!(unopened("so be it</think>\n\nhello"), Some(("so be it", "hello")));
        assert_eq!(unopened("hello"), None);
    }
}
