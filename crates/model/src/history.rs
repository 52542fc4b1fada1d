//! Normalizes a conversation before it is sent: every call is followed by its result, every result
//! has its call, and neighbors of the same role are merged. The same history gives the same result,
//! so that providers find what they cached.

use std::borrow::Cow;

use hermes_types::{Call, CallArguments, Image, Message, Part};

/// Stands for the result of a call that has none.
const MISSING_RESULT: &str = "[no result was recorded for this call]";
/// Precedes the result of a call with unreadable arguments, which are replayed as none.
const UNREADABLE_ARGUMENTS: &str = "[the arguments of this call could not be read; it was not run]";

/// An entry of the normalized conversation.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum HistoryEntry<'a> {
    User(Cow<'a, str>, Vec<&'a Image>),
    Assistant(Vec<&'a Part>),
    /// The results of the calls of the entry before, in the order of the calls.
    Results(Vec<(&'a Call, Cow<'a, str>)>),
}

/// Omits reasoning that another issuer issued: no other issuer may see it.
pub(crate) fn normalize<'a>(messages: &'a [Message], issuer: &str) -> Vec<HistoryEntry<'a>> {
    let mut entries: Vec<HistoryEntry<'_>> = Vec::with_capacity(messages.len());
    let mut rest = messages;
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        match first {
            Message::User { text, images } => match entries.last_mut() {
                Some(HistoryEntry::User(last, known)) => {
                    last.to_mut().extend(["\n\n", text.as_str()]);
                    known.extend(images);
                }
                _ => entries.push(HistoryEntry::User(Cow::Borrowed(text), images.iter().collect())),
            },
            // Results are added with their call; one that is found here has no call.
            Message::Tool { .. } => {}
            Message::Assistant { parts } => {
                let has_content = |part: &Part| !matches!(part, Part::Reasoning(_)) && !is_blank(part);
                if !parts.iter().any(has_content) {
                    continue;
                }
                let parts = parts.iter().filter(|part| !is_blank(part) && !is_foreign(part, issuer));
                match entries.last_mut() {
                    Some(HistoryEntry::Assistant(last)) => last.extend(parts),
                    _ => entries.push(HistoryEntry::Assistant(parts.collect())),
                }
                let mut turns = rest.split(|message| matches!(message, Message::Assistant { .. }));
                let until = turns.next().unwrap_or_default();
                let results: Vec<_> = first.calls().map(|call| (call, result_text(call, until))).collect();
                if !results.is_empty() {
                    entries.push(HistoryEntry::Results(results));
                }
            }
        }
    }
    entries
}

fn is_foreign(part: &Part, issuer: &str) -> bool {
    matches!(part, Part::Reasoning(reasoning) if reasoning.issuer.as_deref() != Some(issuer))
}

fn is_blank(part: &Part) -> bool {
    matches!(part, Part::Text { text } if text.trim().is_empty())
}

fn result_text<'a>(call: &Call, until: &'a [Message]) -> Cow<'a, str> {
    let found = until.iter().find_map(|message| match message {
        Message::Tool { call: id, text, .. } if *id == call.id => Some(text.as_str()),
        _ => None,
    });
    let text = found.unwrap_or(MISSING_RESULT);
    match call.arguments {
        CallArguments::Object(_) => Cow::Borrowed(text),
        CallArguments::Broken { .. } => Cow::Owned(format!("{UNREADABLE_ARGUMENTS}\n{text}")),
    }
}

#[cfg(test)]
mod tests {
    use hermes_types::{CallId, Reasoning};
    use serde_json::Map;

    use super::*;

    fn user(text: &str) -> Message {
        Message::user(text)
    }

    fn result(id: &str, text: &str) -> Message {
        Message::Tool { call: CallId::new(id), name: "t".to_owned(), text: text.to_owned() }
    }

    fn call(id: &str) -> Part {
        Part::Call(Call {
            id: CallId::new(id),
            name: "t".to_owned(),
            arguments: CallArguments::Object(Map::new()),
            replay: None,
        })
    }

    fn says(text: &str) -> Part {
        Part::Text { text: text.to_owned() }
    }

    /// One line for each entry: a letter for its kind, and its content.
    fn shape(messages: &[Message]) -> Vec<String> {
        let content = |part: &&Part| match part {
            Part::Text { text } => text.clone(),
            Part::Reasoning(_) => "thought".to_owned(),
            Part::Call(call) => call.id.as_str().to_owned(),
        };
        let shapes = normalize(messages, "own").into_iter().map(|entry| match entry {
            HistoryEntry::User(text, _) => format!("U {text}"),
            HistoryEntry::Assistant(parts) => {
                format!("A {}", parts.iter().map(content).collect::<Vec<_>>().join(" "))
            }
            HistoryEntry::Results(results) => {
                let each = results.iter().map(|(call, text)| format!("{}={text}", call.id.as_str()));
                format!("R {}", each.collect::<Vec<_>>().join(" "))
            }
        });
        shapes.collect()
    }

    #[test]
    fn calls_and_results_are_paired() {
        let assistant = |parts: Vec<Part>| Message::Assistant { parts };
        let thought = || Part::Reasoning(Reasoning::default());
        let own = Reasoning { issuer: Some("own".to_owned()), ..Reasoning::default() };
        let stub = format!("R c1={MISSING_RESULT}");
        let cases: Vec<(Vec<Message>, Vec<&str>)> = vec![
            (vec![user("a"), user("b")], vec!["U a\n\nb"]),
            (vec![user("a"), result("c0", "x"), user("b")], vec!["U a\n\nb"]),
            (vec![user("a"), assistant(vec![call("c1")])], vec!["U a", "A c1", &stub]),
            (
                vec![
                    user("a"),
                    assistant(vec![call("c1"), call("c2")]),
                    result("c2", "2"),
                    result("c1", "1"),
                ],
                vec!["U a", "A c1 c2", "R c1=1 c2=2"],
            ),
            (
                vec![
                    user("a"),
                    assistant(vec![call("c1")]),
                    user("b"),
                    result("c1", "1"),
                    result("c1", "again"),
                ],
                vec!["U a", "A c1", "R c1=1", "U b"],
            ),
            (
                vec![
                    user("a"),
                    assistant(vec![call("c1")]),
                    assistant(vec![says("x")]),
                    result("c1", "late"),
                ],
                vec!["U a", "A c1", &stub, "A x"],
            ),
            (
                vec![
                    user("a"),
                    assistant(vec![thought()]),
                    assistant(vec![says("x")]),
                    assistant(vec![says("y")]),
                ],
                vec!["U a", "A x y"],
            ),
            (vec![user("a"), assistant(vec![says(" \n")]), user("b")], vec!["U a\n\nb"]),
            (
                vec![user("a"), assistant(vec![thought(), Part::Reasoning(own), says("x")])],
                vec!["U a", "A thought x"],
            ),
        ];
        for (messages, expected) in cases {
            assert_eq!(shape(&messages), expected);
        }
    }

    #[test]
    fn the_result_of_an_unreadable_call_says_so() {
        let broken = CallArguments::Broken { text: "{".to_owned(), why: "cut".to_owned() };
        let name = "t".to_owned();
        let part = Part::Call(Call { id: CallId::new("c1"), name, arguments: broken, replay: None });
        let messages = [user("a"), Message::Assistant { parts: vec![part] }, result("c1", "try again")];
        assert_eq!(shape(&messages)[2], format!("R c1={UNREADABLE_ARGUMENTS}\ntry again"));
    }
}
