//! Asks for approvals and clarifications in a chat.

use std::future::pending;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hermes_session::{Approver, BoxFuture, Clarification, Question, outcome_text, parent_session};
use hermes_types::{Answer, Choice, Person, SessionKey, lock};
use tokio::sync::oneshot;

use super::ChatInput;
use crate::channel::{ButtonStyle, Capabilities, MessageButton, OutboundMessage};
use crate::context::GatewayContext;
use crate::message::Chat;
use crate::split::split_message;

const CLARIFY_TIMEOUT: Duration = Duration::from_secs(600);
/// Space in a question's message for its outcome.
const OUTCOME_RESERVED_LEN: usize = 200;

/// The buttons of a question: word in the value, label, style and choice.
const CHOICES: [(&str, &str, ButtonStyle, Choice); 4] = [
    ("once", "Once", ButtonStyle::Success, Choice::Once),
    ("session", "This session", ButtonStyle::Secondary, Choice::Session),
    ("always", "Always", ButtonStyle::Secondary, Choice::Always),
    ("deny", "Deny", ButtonStyle::Danger, Choice::Deny { reason: None }),
];

/// Asks the users of one session.
pub(crate) struct ChatApprover {
    context: Arc<GatewayContext>,
    key: SessionKey,
    target: Mutex<AskTarget>,
    /// Shared by the questions that are open.
    open_question: Arc<()>,
}

/// Whom to ask, and where.
struct AskTarget {
    chat: Chat,
    person: Option<Person>,
    /// Waits for the answer to a clarification.
    clarification: Option<oneshot::Sender<String>>,
}

impl ChatApprover {
    pub(crate) fn new(context: Arc<GatewayContext>, key: SessionKey, chat: Chat) -> Self {
        let target = Mutex::new(AskTarget { chat, person: None, clarification: None });
        Self { context, key, target, open_question: Arc::default() }
    }

    /// Asks the sender of this input from now on.
    pub(super) fn set_target(&self, input: &ChatInput) {
        let mut target = lock(&self.target);
        target.chat = input.message.chat.clone();
        target.person = Some(input.person.clone());
    }

    pub(super) fn chat(&self) -> Chat {
        lock(&self.target).chat.clone()
    }

    /// Whether a question is open.
    pub(super) fn is_waiting(&self) -> bool {
        Arc::strong_count(&self.open_question) > 1
    }

    /// The clarification that this input answers, if there is one.
    pub(super) fn take_clarification(&self, input: &ChatInput) -> Option<oneshot::Sender<String>> {
        let mut target = lock(&self.target);
        if target.person.as_ref() != Some(&input.person) {
            return None;
        }
        target.clarification.take().filter(|wanted| !wanted.is_closed())
    }

    /// Splits a text, leaving space for the outcome.
    fn split_text(&self, text: &str) -> Vec<String> {
        let capabilities = self.context.channel.capabilities();
        split_message(
            text,
            &Capabilities {
                max_message_len: capabilities.max_message_len.saturating_sub(OUTCOME_RESERVED_LEN),
                ..capabilities
            },
        )
    }
}

impl Approver for ChatApprover {
    fn ask_permission<'a>(&'a self, question: &'a Question) -> BoxFuture<'a, Option<Answer>> {
        Box::pin(async move {
            let _open = Arc::clone(&self.open_question);
            let id = question.id().as_str();
            let chat = lock(&self.target).chat.id.clone();
            // Show the whole question; the buttons are below its last message.
            let mut pieces = self.split_text(&question_text(question));
            let text = pieces.pop().unwrap_or_default();
            let part_key = format!("question:{id}");
            let before = pieces
                .into_iter()
                .enumerate()
                .map(|(number, text)| (Some(format!("{part_key}:{number}")), OutboundMessage::text(text)));
            let last =
                OutboundMessage { buttons: question_buttons(id), ..OutboundMessage::text(text.clone()) };
            let posts = before.chain([(Some(part_key.clone()), last)]).collect();
            self.context.outbox.send(&self.key, &chat, posts).await;
            let (context, key, id) = (Arc::clone(&self.context), self.key.clone(), id.to_owned());
            // Runs on after the wait: the message shows the outcome even if the answer comes later
            // or from another entry point.
            tokio::spawn(async move {
                let Ok(Some(state)) = context.store.wait_for_decision(&id).await else { return };
                let text = format!("{text}\n{}", outcome_text(&state));
                let outbound = OutboundMessage { replaces: Some(part_key), ..OutboundMessage::text(text) };
                let decided = Some(format!("decided:{id}"));
                context.outbox.send(&key, &chat, vec![(decided, outbound)]).await;
            });
            // The answer arrives through the store.
            pending().await
        })
    }

    fn clarify<'a>(&'a self, question: &'a Clarification) -> BoxFuture<'a, Option<String>> {
        Box::pin(async move {
            if parent_session(&self.key).is_some() {
                // Messages in the chat belong to the chat's own session.
                return None;
            }
            let _open = Arc::clone(&self.open_question);
            let (answer, answered) = oneshot::channel();
            let chat = {
                let mut target = lock(&self.target);
                target.clarification = Some(answer);
                target.chat.id.clone()
            };
            let mut text = question.question.clone();
            for (number, choice) in (1..).zip(&question.choices) {
                text.push_str(&format!("\n{number}. {choice}"));
            }
            let posts = self.split_text(&text).into_iter().map(|text| (None, OutboundMessage::text(text)));
            self.context.outbox.send(&self.key, &chat, posts.collect()).await;
            let said = tokio::time::timeout(CLARIFY_TIMEOUT, answered).await.ok()?.ok()?;
            Some(question.parse_answer(&said))
        })
    }
}

fn question_text(question: &Question) -> String {
    let reasons: Vec<String> = question.matches().iter().map(|found| found.reason.to_string()).collect();
    let id: String = question.id().as_str().chars().take(8).collect();
    let may_use = question.allowance().describe().map(|classes| format!("\nmay use: {classes}"));
    let covers = question.coverage().iter().map(|covers| {
        // The whole text is above.
        let line: String = covers.show().chars().take(300).collect();
        format!("\nsession and always cover: {}", line.replace(['`', '\n'], " "))
    });
    format!(
        "Allow this?\n```\n{}\n```\n{}{}{}\n/approve {id} or /deny {id}",
        // Would close the code block. Replaced visibly, because backticks are meaningful to a
        // shell.
        question.text().to_marked_string().replace("```", "``⟨U+0060⟩"),
        reasons.join("; "),
        may_use.unwrap_or_default(),
        covers.collect::<String>(),
    )
}

fn question_buttons(id: &str) -> Vec<MessageButton> {
    let button = |(word, label, style, _): (&str, &str, _, _)| MessageButton {
        label: label.to_owned(),
        value: format!("q:{id}:{word}"),
        style,
    };
    CHOICES.map(button).into()
}

/// Parses a button value into a question id and a choice.
pub(crate) fn parse_button(value: &str) -> Option<(&str, Choice)> {
    let (id, word) = value.strip_prefix("q:")?.split_once(':')?;
    let (.., choice) = CHOICES.into_iter().find(|(known, ..)| *known == word)?;
    Some((id, choice))
}
