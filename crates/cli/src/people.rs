//! The person at this terminal, as tools ask them.

use std::io::{self, IsTerminal};

use hermes_agent::{Ask, Asking, Clarification};
use hermes_policy::visible::visible;
use hermes_policy::{Answer, Choice, Question};
use tokio::sync::{Mutex, oneshot};

use crate::ask::{Consent, now, owner, reasons};
use crate::screen::{Format, Screen, Tone};

/// Puts questions at the terminal, one at a time. Without one, the answer is no.
#[derive(Debug)]
pub(crate) struct AtTerminal {
    screen: Screen,
    consent: Consent,
    /// A line that somebody waits for, or waited for until something else was more urgent.
    line: Mutex<Option<oneshot::Receiver<io::Result<String>>>>,
}

impl AtTerminal {
    pub(crate) fn new(screen: Screen, consent: Consent) -> Self {
        Self { screen, consent, line: Mutex::new(None) }
    }

    fn can_ask(&self) -> bool {
        self.consent != Consent::Nobody && io::stdin().is_terminal() && io::stderr().is_terminal()
    }

    /// Shows something and reads what is typed; nothing if the input has ended.
    async fn read(&self, show: impl FnOnce()) -> Option<String> {
        // Whoever comes second is shown after the first is answered.
        let mut line = self.line.lock().await;
        show();
        let typed = line.get_or_insert_with(read_line).await;
        *line = None;
        typed.ok()?.ok().filter(|line| !line.is_empty())
    }

    async fn choose(&self, question: &Question) -> Choice {
        match self.consent {
            Consent::Given => Choice::Once,
            Consent::Ask if self.can_ask() => {
                let show = || {
                    self.screen.aside(&question.shown().plain());
                    reasons(self.screen, question);
                    self.screen.prompt("run it? [y/N]");
                };
                match self.read(show).await.unwrap_or_default().trim().to_ascii_lowercase().as_str() {
                    "y" | "yes" => Choice::Once,
                    _ => Choice::Deny(None),
                }
            }
            Consent::Ask | Consent::Nobody => {
                if self.screen.format == Format::Text {
                    reasons(self.screen, question);
                }
                Choice::Deny(Some("there is no terminal to ask on; `--yes` says yes".to_owned()))
            }
        }
    }

    async fn hear(&self, asked: &Clarification) -> Option<String> {
        if !self.can_ask() {
            return None;
        }
        let show = || {
            self.screen.aside(&self.screen.paint(Tone::Strong, &visible(&asked.question)));
            for (number, choice) in (1..).zip(&asked.choices) {
                self.screen.aside(&format!("  {number}  {}", visible(choice)));
            }
            self.screen.prompt(">");
        };
        let typed = self.read(show).await?;
        let typed = typed.trim();
        let chosen = typed.parse::<usize>().ok().and_then(|number| asked.choices.get(number.checked_sub(1)?));
        chosen.cloned().or_else(|| Some(typed.to_owned())).filter(|answer| !answer.is_empty())
    }
}

impl Ask for AtTerminal {
    fn permission<'a>(&'a self, question: &'a Question) -> Asking<'a, Option<Answer>> {
        Box::pin(async move {
            let choice = self.choose(question).await;
            Some(Answer { question: question.id().clone(), by: owner(), at: now(), choice })
        })
    }

    fn clarify<'a>(&'a self, question: &'a Clarification) -> Asking<'a, Option<String>> {
        Box::pin(self.hear(question))
    }
}

/// Reads a line on a thread of its own, which a program that ends does not wait for.
fn read_line() -> oneshot::Receiver<io::Result<String>> {
    let (told, line) = oneshot::channel();
    std::thread::spawn(move || {
        let mut line = String::new();
        let read = io::stdin().read_line(&mut line).map(|_count| line);
        // Whoever asked may be gone.
        drop(told.send(read));
    });
    line
}
