//! Whoever sits at the terminal, as tools see them.
//!
//! A question stands at the terminal until a line is typed, or until it was answered elsewhere: then the future that
//! put it is dropped, and nobody is left who would take the next line.

use std::io::{self, IsTerminal};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hermes_agent::{Approver, BoxFuture, Clarification};
use hermes_policy::Question;
use hermes_policy::escape::escape;
use hermes_types::{Answer, Choice, Timestamp};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{Notify, oneshot};
use tokio_util::sync::CancellationToken;

use crate::ask::{Consent, NO_TERMINAL, owner, reasons};
use crate::keyboard::{Keyboard, next_line};
use crate::screen::{Format, Screen, Tone, one_line};
use crate::stage::{Stage, Typed};

/// A terminal, and whether somebody is at it. Whoever reads the keyboard hands over the lines, see [`Desk::typed`].
#[derive(Debug)]
pub(crate) struct Desk {
    screen: Screen,
    stage: Arc<Stage>,
    consent: Consent,
    /// One question at a time.
    turn: tokio::sync::Mutex<()>,
    waiting: Mutex<Option<oneshot::Sender<String>>>,
    /// Tells that a question was put or is gone.
    changed: Notify,
}

impl Desk {
    pub(crate) fn new(screen: Screen, stage: Arc<Stage>, consent: Consent) -> Self {
        let (turn, waiting) = (tokio::sync::Mutex::new(()), Mutex::new(None));
        Self { screen, stage, consent, turn, waiting, changed: Notify::new() }
    }

    /// Whether somebody can type an answer.
    pub(crate) fn is_attended(&self) -> bool {
        self.consent != Consent::Nobody && io::stdin().is_terminal() && io::stderr().is_terminal()
    }

    /// The keyboard, if somebody is at it.
    pub(crate) fn keyboard(&self) -> io::Result<Option<Keyboard>> {
        if self.is_attended() { Keyboard::open().map(Some) } else { Ok(None) }
    }

    /// Takes a line as the answer to the question that stands there; gives it back if there is none.
    pub(crate) fn typed(&self, line: String) -> Option<String> {
        let Some(waiting) = self.waiting().take() else { return Some(line) };
        self.stage.answered(Typed::Here);
        waiting.send(line).err()
    }

    /// Whether a question stands there.
    pub(crate) fn is_asking(&self) -> bool {
        self.waiting().is_some()
    }

    /// Waits until a question was put or is gone. Whoever takes lines for questions only must hear of it: other lines
    /// belong to whatever runs next at this terminal.
    pub(crate) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Does something, with what is typed meanwhile as the answers to its questions. An interrupt stops it.
    pub(crate) async fn attend<T>(
        &self,
        work: impl Future<Output = T>,
        stop: &CancellationToken,
    ) -> io::Result<T> {
        let mut keyboard = self.keyboard()?;
        // It listens all the time: what comes between two looks is heard too.
        let mut interrupts = signal(SignalKind::interrupt())?;
        tokio::pin!(work);
        loop {
            tokio::select! {
                done = &mut work => return Ok(done),
                _ = interrupts.recv() => stop.cancel(),
                () = self.changed() => {}
                line = next_line(&mut keyboard), if self.is_asking() => match line {
                    Some(line) => drop(self.typed(line)),
                    None => {
                        keyboard = None;
                        self.leave();
                    }
                },
            }
        }
    }

    /// Nothing will be typed any more: whoever waits for it hears so.
    pub(crate) fn leave(&self) {
        drop(self.waiting().take());
    }

    /// Puts a question and waits for a line; none if there will be none.
    async fn put(&self, text: &str, prompt: &str) -> Option<String> {
        let _turn = self.turn.lock().await;
        let (sender, line) = oneshot::channel();
        *self.waiting() = Some(sender);
        let _open = Open(self);
        self.stage.ask(text, prompt);
        self.changed.notify_one();
        line.await.ok()
    }

    fn waiting(&self) -> MutexGuard<'_, Option<oneshot::Sender<String>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A question that stands at the terminal.
struct Open<'a>(&'a Desk);

impl Drop for Open<'_> {
    fn drop(&mut self) {
        drop(self.0.waiting().take());
        self.0.stage.answered(Typed::Elsewhere);
        self.0.changed.notify_one();
    }
}

impl Approver for Desk {
    fn ask_permission<'a>(&'a self, question: &'a Question) -> BoxFuture<'a, Option<Answer>> {
        Box::pin(async move {
            let lasting = if question.coverage().is_empty() { Lasting::No } else { Lasting::Yes };
            let choice = if self.consent == Consent::Given {
                Choice::Once
            } else if self.is_attended() {
                // Whoever goes away without an answer has not said yes.
                let line = self.put(&described(self.screen, question), prompt(lasting)).await;
                choice(&line.unwrap_or_default(), lasting)
            } else {
                if self.screen.format == Format::Text {
                    reasons(self.screen, question);
                }
                Choice::Deny { reason: Some(NO_TERMINAL.to_owned()) }
            };
            Some(Answer { by: owner(), at: Timestamp::now(), choice })
        })
    }

    fn clarify<'a>(&'a self, question: &'a Clarification) -> BoxFuture<'a, Option<String>> {
        Box::pin(async move {
            if !self.is_attended() {
                return None;
            }
            let mut text = escape(&question.question);
            for (at, choice) in question.choices.iter().enumerate() {
                text.push_str(&format!("\n  {}  {}", at + 1, one_line(choice, 200)));
            }
            let prompt = if question.choices.is_empty() { ">" } else { "number, or your own words >" };
            let line = self.put(&self.screen.paint(Tone::Strong, &text), prompt).await?;
            Some(chosen(&line, &question.choices)).filter(|answer| !answer.is_empty())
        })
    }
}

/// Whether a yes can hold for longer than this once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lasting {
    Yes,
    No,
}

fn prompt(lasting: Lasting) -> &'static str {
    match lasting {
        Lasting::Yes => "run it? [y] once, [s] in this session, [a] always, [N] no:",
        Lasting::No => "run it? [y/N]",
    }
}

/// The whole of what would run, why there is a question, and what a lasting yes would cover.
fn described(screen: Screen, question: &Question) -> String {
    let mut text = question.text().to_marked_string();
    for found in question.matches() {
        text.push_str(&format!("\n  {} {}", screen.paint(Tone::Doubtful, "!"), found.reason));
    }
    for covers in question.coverage() {
        let line = format!("s and a cover: {}", covers.show());
        text.push_str(&format!("\n  {}", screen.paint(Tone::Quiet, &one_line(&line, 200))));
    }
    let id =
        screen.paint(Tone::Quiet, &format!("{}, which `hermes approvals` knows too", question.id().as_str()));
    format!("{text}\n  {id}")
}

/// What a line means. Anything but a clear yes is a no; what stands behind a no is its reason.
fn choice(line: &str, lasting: Lasting) -> Choice {
    let line = line.trim();
    let (word, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    match (word.to_ascii_lowercase().as_str(), rest.trim(), lasting) {
        ("y" | "yes", "", _) => Choice::Once,
        ("s" | "session", "", Lasting::Yes) => Choice::Session,
        ("a" | "always", "", Lasting::Yes) => Choice::Always,
        ("n" | "no", reason, _) if !reason.is_empty() => Choice::Deny { reason: Some(reason.to_owned()) },
        _ => Choice::Deny { reason: None },
    }
}

/// What was chosen, by number or in other words.
fn chosen(line: &str, choices: &[String]) -> String {
    let line = line.trim();
    let number = line.parse::<usize>().ok().and_then(|number| number.checked_sub(1));
    number.and_then(|at| choices.get(at)).cloned().unwrap_or_else(|| line.to_owned())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::screen::Format;

    #[test]
    fn only_a_clear_yes_is_one() {
        let deny = |reason: &str| Choice::Deny { reason: Some(reason.to_owned()) };
        let cases = [
            ("y", Choice::Once),
            (" YES ", Choice::Once),
            ("s", Choice::Session),
            ("always", Choice::Always),
            ("", Choice::Deny { reason: None }),
            ("n", Choice::Deny { reason: None }),
            ("no, use trash instead", Choice::Deny { reason: None }),
            ("n use trash instead", deny("use trash instead")),
            ("yes please", Choice::Deny { reason: None }),
            ("ya", Choice::Deny { reason: None }),
        ];
        for (line, expected) in cases {
            assert_eq!(choice(line, Lasting::Yes), expected, "{line}");
        }
        assert_eq!(choice("a", Lasting::No), Choice::Deny { reason: None });
        assert_eq!(choice("y", Lasting::No), Choice::Once);
    }

    #[test]
    fn a_choice_is_a_number_or_words() {
        let choices = ["red".to_owned(), "blue".to_owned()];
        for (line, expected) in [("2", "blue"), ("1\n", "red"), ("3", "3"), ("0", "0"), ("green", "green")] {
            assert_eq!(chosen(line, &choices), expected);
        }
    }

    #[tokio::test]
    async fn a_question_that_nobody_waits_for_any_more_takes_no_line() {
        let screen = Screen::new(Format::Text, &BTreeMap::new());
        let desk = Desk::new(screen, Arc::new(Stage::plain(screen)), Consent::Ask);
        let mut asked = Box::pin(desk.put("which?", ">"));
        assert!(
            std::future::Future::poll(
                asked.as_mut(),
                &mut std::task::Context::from_waker(std::task::Waker::noop())
            )
            .is_pending()
        );
        assert!(desk.is_asking());
        drop(asked);
        assert_eq!(desk.typed("hello".to_owned()), Some("hello".to_owned()));
        let (answer, line) =
            tokio::join!(desk.put("which?", ">"), async { desk.typed("this one".to_owned()) });
        assert_eq!((answer.as_deref(), line), (Some("this one"), None));
        let (answer, ()) = tokio::join!(desk.put("which?", ">"), async { desk.leave() });
        assert_eq!(answer, None);
    }
}
