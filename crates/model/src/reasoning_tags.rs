//! Separates reasoning that a model writes into its reply between tags, also when a tag is split
//! between two chunks.

/// In lower case.
const TAGS: &[&str] = &["think", "thinking", "thought", "reasoning", "reasoning_scratchpad"];

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum TextSegment {
    Text(String),
    Reasoning(String),
}

/// Splits a stream of text into text and reasoning. A tag counts only at the start of a line, so
/// that a reply can mention tags.
pub(crate) struct ReasoningSplitter {
    held: String,
    open_tag: Option<&'static str>,
    at_line_start: bool,
    /// Whitespace after reasoning belongs to neither.
    after_reasoning: bool,
}

impl Default for ReasoningSplitter {
    fn default() -> Self {
        Self { held: String::new(), open_tag: None, at_line_start: true, after_reasoning: false }
    }
}

impl ReasoningSplitter {
    /// Adds text and returns the segments that are certain.
    pub(crate) fn push(&mut self, text: &str) -> Vec<TextSegment> {
        self.held.push_str(text);
        let mut out = Vec::new();
        while self.step(&mut out) {}
        out
    }

    /// Returns the held text at the end of the reply.
    pub(crate) fn finish(&mut self) -> Vec<TextSegment> {
        let mut out = Vec::new();
        self.release(&mut out, self.held.len());
        out
    }

    /// Consumes some of the held text; returns false if more text is needed.
    fn step(&mut self, out: &mut Vec<TextSegment>) -> bool {
        if let Some(tag) = self.open_tag {
            let close = format!("</{tag}>");
            let (end, is_closed) = find_tag(&self.held, &close);
            self.release(out, end);
            if is_closed {
                self.held.drain(..close.len());
                self.open_tag = None;
                self.at_line_start = true;
                self.after_reasoning = true;
            }
            return is_closed;
        }
        self.release(out, self.held.find('<').unwrap_or(self.held.len()));
        if self.held.is_empty() {
            return false;
        }
        if self.at_line_start {
            for tag in TAGS {
                let open = format!("<{tag}>");
                if starts_with_ignore_case(&self.held, &open) {
                    self.held.drain(..open.len());
                    self.open_tag = Some(tag);
                    return true;
                }
            }
            if TAGS.iter().any(|tag| starts_with_ignore_case(&format!("<{tag}>"), &self.held)) {
                return false;
            }
        }
        self.release(out, "<".len());
        true
    }

    /// Moves the start of the held text to the segments.
    fn release(&mut self, out: &mut Vec<TextSegment>, length: usize) {
        let rest = self.held.split_off(length);
        let text = std::mem::replace(&mut self.held, rest);
        if self.open_tag.is_some() {
            out.extend((!text.is_empty()).then_some(TextSegment::Reasoning(text)));
            return;
        }
        let text = if self.after_reasoning { text.trim_start().to_owned() } else { text };
        let Some(line) = text.rsplit('\n').next().filter(|_| !text.is_empty()) else { return };
        self.after_reasoning = false;
        let blank = line.chars().all(char::is_whitespace);
        self.at_line_start = blank && (self.at_line_start || text.contains('\n'));
        match out.last_mut() {
            Some(TextSegment::Text(last)) => last.push_str(&text),
            _ => out.push(TextSegment::Text(text)),
        }
    }
}

/// Splits text at a closing tag without an opening one: some templates open the tag, so that the
/// reply has only its end.
pub(crate) fn split_at_unopened_tag(text: &str) -> Option<(&str, &str)> {
    let tags = TAGS.iter().map(|tag| format!("</{tag}>"));
    let first = tags.filter_map(|close| {
        let (at, is_complete) = find_tag(text, &close);
        is_complete.then_some((at, close.len()))
    });
    let (at, length) = first.min()?;
    Some((text.get(..at)?, text.get(at + length..)?.trim_start()))
}

/// Where a tag begins, and whether all of it is there. The text may end with its start.
fn find_tag(text: &str, tag: &str) -> (usize, bool) {
    for (at, _) in text.match_indices('<') {
        let rest = text.get(at..).unwrap_or_default();
        let is_complete = starts_with_ignore_case(rest, tag);
        if is_complete || starts_with_ignore_case(tag, rest) {
            return (at, is_complete);
        }
    }
    (text.len(), false)
}

fn starts_with_ignore_case(text: &str, start: &str) -> bool {
    text.get(..start.len()).is_some_and(|head| head.eq_ignore_ascii_case(start))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(text: &str, size: usize) -> (String, String) {
        let mut splitter = ReasoningSplitter::default();
        let chars: Vec<char> = text.chars().collect();
        let mut pieces = Vec::new();
        for piece in chars.chunks(size) {
            pieces.extend(splitter.push(&piece.iter().collect::<String>()));
        }
        pieces.extend(splitter.finish());
        let (mut text_out, mut reasoning) = (String::new(), String::new());
        for piece in pieces {
            match piece {
                TextSegment::Text(text) => text_out.push_str(&text),
                TextSegment::Reasoning(text) => reasoning.push_str(&text),
            }
        }
        (text_out, reasoning)
    }

    #[test]
    fn reasoning_is_separated_whatever_the_chunk_size() {
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
        for (text, text_out, reasoning) in cases {
            for size in [1, 2, 3, 7, 4096] {
                assert_eq!(
                    split(text, size),
                    (text_out.to_owned(), reasoning.to_owned()),
                    "{text} by {size}"
                );
            }
        }
    }

    #[test]
    fn text_is_returned_as_soon_as_it_is_certain() {
        let mut splitter = ReasoningSplitter::default();
        assert_eq!(splitter.push("hello <"), [TextSegment::Text("hello <".to_owned())]);
        assert_eq!(splitter.push("\n<th"), [TextSegment::Text("\n".to_owned())]);
        assert_eq!(splitter.push("e end"), [TextSegment::Text("<the end".to_owned())]);
    }

    #[test]
    fn a_template_may_have_opened_the_tag() {
        assert_eq!(split_at_unopened_tag("so be it</think>\n\nhello"), Some(("so be it", "hello")));
        assert_eq!(split_at_unopened_tag("hello"), None);
    }
}
