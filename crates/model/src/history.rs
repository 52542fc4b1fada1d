//! A conversation made fit to be sent: every call has its answer right behind it, every answer has its call, and neighbors
//! of the same role are one. The same history gives the same result, so that what a provider cached is found again.

use std::borrow::Cow;

use hermes_types::{Arguments, Call, Image, Message, Part, Reasoning};

/// What stands for the answer of a call that has none.
const NO_ANSWER: &str = "[no result was recorded for this call]";
/// What goes before the answer of a call whose arguments could not be read, since they are replayed as none.
const UNREADABLE: &str = "[the arguments of this call could not be read, it was not run]";

/// An entry as it is sent.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Turn<'a> {
    User(Cow<'a, str>, Vec<&'a Image>),
    Assistant(Vec<&'a Part>),
    /// The answers to the calls of the entry before, in their order.
    Results(Vec<(&'a Call, Cow<'a, str>)>),
}

/// The whole conversation.
pub(crate) fn turns(messages: &[Message]) -> Vec<Turn<'_>> {
    let mut turns: Vec<Turn<'_>> = Vec::with_capacity(messages.len());
    let mut rest = messages;
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        match first {
            Message::User { text, images } => user(&mut turns, text, images),
            // Answers are taken with their call; one that is met here has none.
            Message::Tool { .. } => {}
            Message::Assistant { parts } => {
                let says = |part: &&Part| !matches!(part, Part::Reasoning(_)) && !is_blank(part);
                if !parts.iter().any(|part| says(&part)) {
                    continue;
                }
                let parts = parts.iter().filter(|part| !is_blank(part));
                match turns.last_mut() {
                    Some(Turn::Assistant(last)) => last.extend(parts),
                    _ => turns.push(Turn::Assistant(parts.collect())),
                }
                let calls: Vec<&Call> = first.calls().collect();
                if !calls.is_empty() {
                    let next = rest.iter().position(|message| matches!(message, Message::Assistant { .. }));
                    let until = rest.get(..next.unwrap_or(rest.len())).unwrap_or_default();
                    turns.push(Turn::Results(
                        calls.into_iter().map(|call| (call, answer(call, until))).collect(),
                    ));
                }
            }
        }
    }
    turns
}

/// Thoughts of an entry that the issuer wants back; those of others are left out.
pub(crate) fn own<'a>(reasoning: &'a Reasoning, issuer: &str) -> Option<&'a Reasoning> {
    (reasoning.issuer.as_deref() == Some(issuer)).then_some(reasoning)
}

fn user<'a>(turns: &mut Vec<Turn<'a>>, text: &'a str, images: &'a [Image]) {
    match turns.last_mut() {
        Some(Turn::User(last, known)) => {
            *last = Cow::Owned(format!("{last}\n\n{text}"));
            known.extend(images);
        }
        _ => turns.push(Turn::User(Cow::Borrowed(text), images.iter().collect())),
    }
}

fn is_blank(part: &Part) -> bool {
    matches!(part, Part::Text { text } if text.trim().is_empty())
}

fn answer<'a>(call: &Call, until: &'a [Message]) -> Cow<'a, str> {
    let found = until.iter().find_map(|message| match message {
        Message::Tool { call: id, text, .. } if *id == call.id => Some(text.as_str()),
        _ => None,
    });
    let text = found.unwrap_or(NO_ANSWER);
    match call.arguments {
        Arguments::Object(_) => Cow::Borrowed(text),
        Arguments::Broken { .. } => Cow::Owned(format!("{UNREADABLE}\n{text}")),
    }
}

#[cfg(test)]
mod tests {
    use hermes_types::CallId;
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
            arguments: Arguments::Object(Map::new()),
        })
    }

    fn says(text: &str) -> Part {
        Part::Text { text: text.to_owned() }
    }

    /// One letter for each kind of entry, with what is in it.
    fn shape(messages: &[Message]) -> Vec<String> {
        let word = |part: &&Part| match part {
            Part::Text { text } => text.clone(),
            Part::Reasoning(_) => "thought".to_owned(),
            Part::Call(call) => call.id.as_str().to_owned(),
        };
        let shapes = turns(messages).into_iter().map(|turn| match turn {
            Turn::User(text, _) => format!("U {text}"),
            Turn::Assistant(parts) => format!("A {}", parts.iter().map(word).collect::<Vec<_>>().join(" ")),
            Turn::Results(results) => {
                let each = results.iter().map(|(call, text)| format!("{}={text}", call.id.as_str()));
                format!("R {}", each.collect::<Vec<_>>().join(" "))
            }
        });
        shapes.collect()
    }

    #[test]
    fn calls_and_answers_are_paired() {
        let assistant = |parts: Vec<Part>| Message::Assistant { parts };
        let thought = || Part::Reasoning(Reasoning::default());
        let stub = format!("R c1={NO_ANSWER}");
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
        ];
        for (messages, expected) in cases {
            assert_eq!(shape(&messages), expected);
        }
    }

    #[test]
    fn the_answer_of_an_unreadable_call_says_so() {
        let broken = Arguments::Broken { text: "{".to_owned(), why: "cut".to_owned() };
        let part = Part::Call(Call { id: CallId::new("c1"), name: "t".to_owned(), arguments: broken });
        let messages = [user("a"), Message::Assistant { parts: vec![part] }, result("c1", "try again")];
        assert_eq!(shape(&messages)[2], format!("R c1={UNREADABLE}\ntry again"));
    }
}
