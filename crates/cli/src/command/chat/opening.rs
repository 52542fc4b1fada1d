//! What a conversation begins with, and what is shown of one that goes on.

use std::fs::File;
use std::io::Read;

use hermes_agent::{Opening, Setup, Told};
use hermes_types::Message;

use crate::Context;
use crate::ask::now;
use crate::screen::one_line;

/// The most that is read of the owner's words about who the model is.
const MOST_SOUL: u64 = 64 << 10;
/// Characters of a message that are shown again.
const SHOWN: usize = 160;

/// What the model is told first.
pub(super) fn told(context: &Context, setup: &Setup, model: &str) -> Told {
    let mut soul = String::new();
    if let Ok(file) = File::open(context.home.path().join("SOUL.md"))
        && let Err(error) = file.take(MOST_SOUL).read_to_string(&mut soul)
    {
        context.screen.warn(&format!("SOUL.md is left out: {error}"));
        soul.clear();
    }
    let (year, month, day) = now().date();
    Opening {
        soul: Some(&soul),
        tools: &setup.tools,
        backend: setup.plan.backend(),
        cwd: setup.plan.directory(),
        today: &format!("{year:04}-{month:02}-{day:02}"),
        model,
    }
    .told()
}

/// The last exchanges, a line for each side.
pub(super) fn recap(history: &[Message], most: usize) -> Vec<String> {
    let mut exchanges: Vec<(String, String)> = Vec::new();
    for message in history {
        match message {
            Message::User { text } => exchanges.push((text.clone(), String::new())),
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
        let said = format!("> {}", one_line(said.trim(), SHOWN));
        [said].into_iter().chain(answer.map(|answer| format!("  {}", one_line(answer.trim(), SHOWN))))
    });
    lines.collect()
}

#[cfg(test)]
mod tests {
    use hermes_types::{CallId, Part};

    use super::*;

    #[test]
    fn a_recap_is_the_last_exchanges_without_what_tools_said() {
        let said = |text: &str| Message::User { text: text.to_owned() };
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
