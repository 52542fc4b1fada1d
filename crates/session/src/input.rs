//! Inputs of a session.

use hermes_store::{InboxId, TurnId};
use hermes_types::{Attendance, Image, Person};

use crate::{SessionCommand, UserInput, UserRole};

/// A message as its front end knows it.
pub trait SessionMessage: Clone + Send + Sync + 'static {
    /// Unique in its chat.
    fn id(&self) -> &str;

    /// The name of its sender, with their id.
    fn sender(&self, person: &Person) -> String;

    fn text(&self) -> &str;

    fn set_text(&mut self, text: String);

    /// The command that the text is, if it is one.
    fn command(&self) -> Option<SessionCommand>;
}

/// A message on its way through a session.
pub struct SessionInput<M> {
    pub message: M,
    pub command: Option<SessionCommand>,
    /// Images in addition to those of the message.
    pub images: Vec<Image>,
    pub person: Person,
    pub role: UserRole,
    /// Who may answer the questions of its turn.
    pub attendance: Attendance,
    /// Its row in the inbox, if the front end has one.
    pub inbox_id: Option<InboxId>,
    /// The turn that was answering it when Hermes stopped.
    pub turn: Option<TurnId>,
    /// Notes appended to the reply.
    pub notes: Vec<String>,
}

impl<M: SessionMessage> SessionInput<M> {
    pub fn new(message: M, person: Person, role: UserRole, attendance: Attendance) -> Self {
        let command = message.command();
        let (images, notes) = (Vec::new(), Vec::new());
        Self { message, command, images, person, role, attendance, inbox_id: None, turn: None, notes }
    }

    pub(crate) fn with_text(mut self, text: String) -> Self {
        self.message.set_text(text);
        self.command = self.message.command();
        self
    }

    pub(crate) fn with_input(self, input: UserInput) -> Self {
        // A message that is sent again stays a message, whatever its text is.
        Self { images: input.images, command: None, ..self.with_text(input.text) }
    }
}
