//! The end of a resumed conversation, for the person.

use hermes_types::Message;

use crate::screen::one_line;

const MAX_RECAP_CHARS: usize = 160;

/// The last exchanges, one line for each message.
pub(super) fn recap(history: &[Message], max_exchanges: usize) -> Vec<String> {
    let mut exchanges: Vec<(String, String)> = Vec::new();
    for message in history {
        match message {
            Message::User { text, .. } => exchanges.push((text.clone(), String::new())),
            Message::Assistant { .. } => {
                if let Some((_, answer)) = exchanges.last_mut()
                    && !message.text().trim().is_empty()
                {
                    *answer = message.text();
                }
            }
            Message::Tool { .. } => {}
        }
    }
    let skipped = exchanges.len().saturating_sub(max_exchanges);
    let shorten = |text: &str| one_line(text.trim(), MAX_RECAP_CHARS);
    let lines = exchanges.iter().skip(skipped);
    let lines = lines
        .flat_map(|(message, answer)| [format!("> {}", shorten(message)), format!("  {}", shorten(answer))]);
    // A message may have no answer.
    lines.filter(|line| !line.trim().is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use hermes_types::{CallId, Part};

    use super::*;

    #[test]
    fn a_recap_is_the_last_exchanges_without_tool_results() {
        let user = |text: &str| Message::user(text);
        let assistant = |text: &str| Message::Assistant { parts: vec![Part::Text { text: text.to_owned() }] };
        let tool =
            Message::Tool { call: CallId::new("c"), name: "terminal".to_owned(), text: "out".to_owned() };
        let history = [
            user("one"),
            assistant("first"),
            user("two\nlines"),
            assistant("I look"),
            tool,
            assistant(""),
            assistant("second"),
            user("three"),
        ];
        assert_eq!(recap(&history, 2), ["> two lines", "  second", "> three"]);
        assert_eq!(recap(&history, 9).len(), 5);
        assert!(recap(&[], 3).is_empty());
    }
}
