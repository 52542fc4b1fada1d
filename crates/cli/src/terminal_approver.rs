//! Asks the person at the terminal.
//!
//! A question stays until a line is typed or it is answered elsewhere. In the second case its
//! future is dropped, and the next line is not an answer.

use std::io::{self, IsTerminal};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hermes_agent::{Approver, BoxFuture, Clarification};
use hermes_policy::Question;
use hermes_policy::escape::escape;
use hermes_types::{Answer, Choice, Timestamp};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{Notify, oneshot};
use tokio_util::sync::CancellationToken;

use crate::approval::{Consent, NO_TERMINAL, owner};
use crate::keyboard::{Keyboard, next_line};
use crate::screen::{Screen, Tone, one_line};
use crate::turn_view::{QuestionEnd, TurnView};

/// The prompt of a question that a lasting approval can answer.
const GRANT_PROMPT: &str = "Run it? [y]es once, [s]ession, [a]lways, [N]o:";

/// Asks at a terminal. The reader of the keyboard passes the lines to [`Self::submit_line`].
pub(crate) struct TerminalApprover {
    screen: Screen,
    view: Arc<TurnView>,
    consent: Consent,
    /// One question at a time.
    one_question: tokio::sync::Mutex<()>,
    waiting: Mutex<Option<oneshot::Sender<String>>>,
    /// Notified when a question is asked or gone.
    changed: Notify,
}

impl TerminalApprover {
    pub(crate) fn new(screen: Screen, view: Arc<TurnView>, consent: Consent) -> Self {
        let (one_question, waiting) = (tokio::sync::Mutex::default(), Mutex::default());
        Self { screen, view, consent, one_question, waiting, changed: Notify::new() }
    }

    /// Whether a person can type an answer.
    pub(crate) fn can_answer(&self) -> bool {
        self.consent != Consent::Unavailable && io::stdin().is_terminal() && io::stderr().is_terminal()
    }

    /// The keyboard, if a person can type an answer.
    pub(crate) fn keyboard(&self) -> io::Result<Option<Keyboard>> {
        if self.can_answer() { Keyboard::open().map(Some) } else { Ok(None) }
    }

    /// Answers the open question with a line; returns the line if no question is open.
    pub(crate) fn submit_line(&self, line: String) -> Option<String> {
        let Some(waiting) = self.pending().take() else { return Some(line) };
        self.view.update(|state| state.end_question(QuestionEnd::AnsweredHere));
        waiting.send(line).err()
    }

    /// Whether a question is open.
    pub(crate) fn is_asking(&self) -> bool {
        self.pending().is_some()
    }

    /// Waits until a question is asked or gone. A caller that reads only answers must know: other
    /// lines belong to the next program at this terminal.
    pub(crate) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Runs `work`, and answers its questions with the lines typed during it. Ctrl-C cancels
    /// `stop`.
    pub(crate) async fn run_with_answers<T>(
        &self,
        work: impl Future<Output = T>,
        stop: &CancellationToken,
    ) -> io::Result<T> {
        let mut keyboard = self.keyboard()?;
        // Installed once, so that no signal is lost between two iterations.
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

    /// The keyboard is closed: open questions end without an answer.
    pub(crate) fn close_input(&self) {
        drop(self.pending().take());
    }

    /// Asks a question and waits for a line; none if the keyboard is closed.
    async fn ask_line(&self, text: &str, prompt: &str) -> Option<String> {
        let _guard = self.one_question.lock().await;
        let (sender, line) = oneshot::channel();
        *self.pending() = Some(sender);
        let _open = OpenQuestion(self);
        self.view.update(|state| state.ask(text, prompt));
        self.changed.notify_one();
        line.await.ok()
    }

    fn pending(&self) -> MutexGuard<'_, Option<oneshot::Sender<String>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Closes a question when it is dropped.
struct OpenQuestion<'a>(&'a TerminalApprover);

impl Drop for OpenQuestion<'_> {
    fn drop(&mut self) {
        drop(self.0.pending().take());
        self.0.view.update(|state| state.end_question(QuestionEnd::AnsweredElsewhere));
        self.0.changed.notify_one();
    }
}

impl Approver for TerminalApprover {
    fn ask_permission<'a>(&'a self, question: &'a Question) -> BoxFuture<'a, Option<Answer>> {
        Box::pin(async move {
            let can_grant = !question.coverage().is_empty();
            let prompt = if can_grant { GRANT_PROMPT } else { "Run it? [y/N]" };
            let choice = if self.consent == Consent::Given {
                Choice::Once
            } else if self.can_answer() {
                // No answer is a no.
                let line = self.ask_line(&question_text(self.screen, question), prompt).await;
                parse_choice(&line.unwrap_or_default(), can_grant)
            } else {
                if !self.screen.is_json() {
                    self.screen.print_stderr(&format_reasons(self.screen, question));
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
            Some(question.parse_answer(&line)).filter(|answer| !answer.is_empty())
        })
    }
}

fn format_reasons(screen: Screen, question: &Question) -> String {
    let mark = screen.paint(Tone::Warning, "!");
    let lines = question.matches().iter().map(|rule| format!("  {mark} {}", rule.reason));
    lines.collect::<Vec<_>>().join("\n")
}

/// The command, the reasons for the question, and the coverage of a lasting approval.
fn question_text(screen: Screen, question: &Question) -> String {
    let mut text = format!("{}\n{}", question.text().to_marked_string(), format_reasons(screen, question));
    if let Some(classes) = question.allowance().describe() {
        text.push_str(&format!("\n  may use: {classes}"));
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

/// Parses an answer. Anything but a clear yes is a no; text after a no is its reason.
fn parse_choice(line: &str, can_grant: bool) -> Choice {
    let line = line.trim();
    let (word, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    match (word.to_ascii_lowercase().as_str(), rest.trim(), can_grant) {
        ("y" | "yes", "", _) => Choice::Once,
        ("s" | "session", "", true) => Choice::Session,
        ("a" | "always", "", true) => Choice::Always,
        ("n" | "no", reason, _) if !reason.is_empty() => Choice::Deny { reason: Some(reason.to_owned()) },
        _ => Choice::Deny { reason: None },
    }
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
            assert_eq!(parse_choice(line, true), expected, "{line}");
        }
        assert_eq!(parse_choice("a", false), Choice::Deny { reason: None });
        assert_eq!(parse_choice("y", false), Choice::Once);
    }

    #[tokio::test]
    async fn a_dropped_question_takes_no_line() {
        let screen = Screen::new(OutputFormat::Text, &BTreeMap::new());
        let approver = TerminalApprover::new(screen, Arc::new(TurnView::plain(screen)), Consent::Ask);
        let mut question = Box::pin(approver.ask_line("which?", ">"));
        assert!(
            std::future::Future::poll(
                question.as_mut(),
                &mut std::task::Context::from_waker(std::task::Waker::noop())
            )
            .is_pending()
        );
        assert!(approver.is_asking());
        drop(question);
        assert_eq!(approver.submit_line("hello".to_owned()), Some("hello".to_owned()));
        let (answer, line) = tokio::join!(approver.ask_line("which?", ">"), async {
            approver.submit_line("this one".to_owned())
        });
        assert_eq!((answer.as_deref(), line), (Some("this one"), None));
        let (answer, ()) = tokio::join!(approver.ask_line("which?", ">"), async { approver.close_input() });
        assert_eq!(answer, None);
    }
}
