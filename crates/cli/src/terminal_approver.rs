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

use crate::approval::{Consent, NO_TERMINAL, owner, print_reasons};
use crate::keyboard::{Keyboard, next_line};
use crate::screen::{OutputFormat, Screen, Tone, one_line};
use crate::turn_view::{QuestionEnd, TurnView};

/// A terminal, and whether somebody is at it. Whoever reads the keyboard hands over the lines, see [`Desk::typed`].
#[derive(Debug)]
pub(crate) struct TerminalApprover {
    screen: Screen,
    stage: Arc<TurnView>,
    consent: Consent,
    /// One question at a time.
    one_question: tokio::sync::Mutex<()>,
    waiting: Mutex<Option<oneshot::Sender<String>>>,
    /// Tells that a question was put or is gone.
    changed: Notify,
}

impl TerminalApprover {
    pub(crate) fn new(screen: Screen, stage: Arc<TurnView>, consent: Consent) -> Self {
        let (turn, waiting) = (tokio::sync::Mutex::new(()), Mutex::new(None));
        Self { screen, stage, consent, one_question: turn, waiting, changed: Notify::new() }
    }

    /// Whether somebody can type an answer.
    pub(crate) fn can_answer(&self) -> bool {
        self.consent != Consent::Unavailable && io::stdin().is_terminal() && io::stderr().is_terminal()
    }

    /// The keyboard, if somebody is at it.
    pub(crate) fn keyboard(&self) -> io::Result<Option<Keyboard>> {
        if self.can_answer() { Keyboard::open().map(Some) } else { Ok(None) }
    }

    /// Takes a line as the answer to the question that stands there; gives it back if there is none.
    pub(crate) fn submit_line(&self, line: String) -> Option<String> {
        let Some(waiting) = self.pending().take() else { return Some(line) };
        self.stage.end_question(QuestionEnd::AnsweredHere);
        waiting.send(line).err()
    }

    /// Whether a question stands there.
    pub(crate) fn is_asking(&self) -> bool {
        self.pending().is_some()
    }

    /// Waits until a question was put or is gone. Whoever takes lines for questions only must hear of it: other lines
    /// belong to whatever runs next at this terminal.
    pub(crate) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Does something, with what is typed meanwhile as the answers to its questions. An interrupt stops it.
    pub(crate) async fn run_with_answers<T>(
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
                    Some(line) => drop(self.submit_line(line)),
                    None => {
                        keyboard = None;
                        self.close_input();
                    }
                },
            }
        }
    }

    /// Nothing will be typed any more: whoever waits for it hears so.
    pub(crate) fn close_input(&self) {
        drop(self.pending().take());
    }

    /// Puts a question and waits for a line; none if there will be none.
    async fn ask_line(&self, text: &str, prompt: &str) -> Option<String> {
        let _turn = self.one_question.lock().await;
        let (sender, line) = oneshot::channel();
        *self.pending() = Some(sender);
        let _open = OpenQuestion(self);
        self.stage.show_question(text, prompt);
        self.changed.notify_one();
        line.await.ok()
    }

    fn pending(&self) -> MutexGuard<'_, Option<oneshot::Sender<String>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A question that stands at the terminal.
struct OpenQuestion<'a>(&'a TerminalApprover);

impl Drop for OpenQuestion<'_> {
    fn drop(&mut self) {
        drop(self.0.pending().take());
        self.0.stage.end_question(QuestionEnd::AnsweredElsewhere);
        self.0.changed.notify_one();
    }
}

impl Approver for TerminalApprover {
    fn ask_permission<'a>(&'a self, question: &'a Question) -> BoxFuture<'a, Option<Answer>> {
        Box::pin(async move {
            let lasting =
                if question.coverage().is_empty() { GrantOffer::OnceOnly } else { GrantOffer::Offered };
            let choice = if self.consent == Consent::Given {
                Choice::Once
            } else if self.can_answer() {
                // Whoever goes away without an answer has not said yes.
                let line = self.ask_line(&question_text(self.screen, question), prompt(lasting)).await;
                parse_choice(&line.unwrap_or_default(), lasting)
            } else {
                if self.screen.format == OutputFormat::Text {
                    print_reasons(self.screen, question);
                }
                Choice::Deny { reason: Some(NO_TERMINAL.to_owned()) }
            };
            Some(Answer { by: owner(), at: Timestamp::now(), choice })
        })
    }

    fn clarify<'a>(&'a self, question: &'a Clarification) -> BoxFuture<'a, Option<String>> {
        Box::pin(async move {
            if !self.can_answer() {
                return None;
            }
            let mut text = escape(&question.question);
            for (at, choice) in question.choices.iter().enumerate() {
                text.push_str(&format!("\n  {}  {}", at + 1, one_line(choice, 200)));
            }
            let prompt = if question.choices.is_empty() { ">" } else { "number or text >" };
            let line = self.ask_line(&self.screen.paint(Tone::Strong, &text), prompt).await?;
            Some(parse_selection(&line, &question.choices)).filter(|answer| !answer.is_empty())
        })
    }
}

/// Whether a yes can hold for longer than this once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum GrantOffer {
    Offered,
    OnceOnly,
}

fn prompt(lasting: GrantOffer) -> &'static str {
    match lasting {
        GrantOffer::Offered => "Run it? [y]es once, [s]ession, [a]lways, [N]o:",
        GrantOffer::OnceOnly => "Run it? [y/N]",
    }
}

/// The whole of what would run, why there is a question, and what a lasting yes would cover.
fn question_text(screen: Screen, question: &Question) -> String {
    let mut text = question.text().to_marked_string();
    for found in question.matches() {
        text.push_str(&format!("\n  {} {}", screen.paint(Tone::Warning, "!"), found.reason));
    }
    for covers in question.coverage() {
        let line = format!("session and always will allow: {}", covers.show());
        text.push_str(&format!("\n  {}", screen.paint(Tone::Quiet, &one_line(&line, 200))));
    }
    let id = screen.paint(
        Tone::Quiet,
        &format!("answer from another terminal: hermes approvals approve {}", question.id().as_str()),
    );
    format!("{text}\n  {id}")
}

/// What a line means. Anything but a clear yes is a no; what stands behind a no is its reason.
fn parse_choice(line: &str, lasting: GrantOffer) -> Choice {
    let line = line.trim();
    let (word, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    match (word.to_ascii_lowercase().as_str(), rest.trim(), lasting) {
        ("y" | "yes", "", _) => Choice::Once,
        ("s" | "session", "", GrantOffer::Offered) => Choice::Session,
        ("a" | "always", "", GrantOffer::Offered) => Choice::Always,
        ("n" | "no", reason, _) if !reason.is_empty() => Choice::Deny { reason: Some(reason.to_owned()) },
        _ => Choice::Deny { reason: None },
    }
}

/// What was chosen, by number or in other words.
fn parse_selection(line: &str, choices: &[String]) -> String {
    let line = line.trim();
    let number = line.parse::<usize>().ok().and_then(|number| number.checked_sub(1));
    number.and_then(|at| choices.get(at)).cloned().unwrap_or_else(|| line.to_owned())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::screen::OutputFormat;

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
            assert_eq!(parse_choice(line, GrantOffer::Offered), expected, "{line}");
        }
        assert_eq!(parse_choice("a", GrantOffer::OnceOnly), Choice::Deny { reason: None });
        assert_eq!(parse_choice("y", GrantOffer::OnceOnly), Choice::Once);
    }

    #[test]
    fn a_choice_is_a_number_or_words() {
        let choices = ["red".to_owned(), "blue".to_owned()];
        for (line, expected) in [("2", "blue"), ("1\n", "red"), ("3", "3"), ("0", "0"), ("green", "green")] {
            assert_eq!(parse_selection(line, &choices), expected);
        }
    }

    #[tokio::test]
    async fn a_question_that_nobody_waits_for_any_more_takes_no_line() {
        let screen = Screen::new(OutputFormat::Text, &BTreeMap::new());
        let desk = TerminalApprover::new(screen, Arc::new(TurnView::plain(screen)), Consent::Ask);
        let mut asked = Box::pin(desk.ask_line("which?", ">"));
        assert!(
            std::future::Future::poll(
                asked.as_mut(),
                &mut std::task::Context::from_waker(std::task::Waker::noop())
            )
            .is_pending()
        );
        assert!(desk.is_asking());
        drop(asked);
        assert_eq!(desk.submit_line("hello".to_owned()), Some("hello".to_owned()));
        let (answer, line) =
            tokio::join!(desk.ask_line("which?", ">"), async { desk.submit_line("this one".to_owned()) });
        assert_eq!((answer.as_deref(), line), (Some("this one"), None));
        let (answer, ()) = tokio::join!(desk.ask_line("which?", ">"), async { desk.close_input() });
        assert_eq!(answer, None);
    }
}
