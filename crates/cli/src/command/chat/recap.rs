//! What is shown of a conversation that goes on.

use hermes_types::Message;

use crate::screen::one_line;

/// Characters of a message that are shown again.
const MAX_RECAP_CHARS: usize = 160;

/// The last exchanges, a line for each side.
pub(super) fn recap(history: &[Message], most: usize) -> Vec<String> {
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
    let skipped = exchanges.len().saturating_sub(most);
    let lines = exchanges.iter().skip(skipped).flat_map(|(said, answer)| {
        let answer = Some(answer).filter(|answer| !answer.is_empty());
        let said = format!("> {}", one_line(said.trim(), MAX_RECAP_CHARS));
        [said]
            .into_iter()
            .chain(answer.map(|answer| format!("  {}", one_line(answer.trim(), MAX_RECAP_CHARS))))
    });
    lines.collect()
}

#[cfg(test)]
mod tests {
    use hermes_types::{CallId, Part};

    use super::*;

    #[test]
    fn a_recap_is_the_last_exchanges_without_what_tools_said() {
        let said = |text: &str| Message::user(text);
        let answered = |text: &str| Message::Assistant { parts: vec![Part::Text { text: text.to_owned() }] };
        let tool =
            Message::Tool { call: CallId::new("c"), name: "terminal".to_owned(), text: "out".to_owned() };
        let history = [
            said("one"),
            answered("first"),
            said("two\nlines"),
            answered("I look"),
            tool,
            answered(""),
            answered("second"),
            said("three"),
        ];
        assert_eq!(recap(&history, 2), ["> two lines", "  second", "> three"]);
        assert_eq!(recap(&history, 9).len(), 5);
        assert!(recap(&[], 3).is_empty());
    }
}
