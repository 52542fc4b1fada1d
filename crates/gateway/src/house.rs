//! What the gateway is given: how sessions are furnished, and who answers in them.

use std::fmt;
use std::sync::Arc;

use hermes_agent::{Approver, ModelConfig, SessionConfig, SystemPrompt};
use hermes_types::{Attendance, Person, SessionKey};

use crate::channel::Waiting;
use crate::letter::Room;

/// Somebody who comes to a session.
pub struct Visit {
    /// The session.
    pub key: SessionKey,
    /// Where it takes place.
    pub room: Room,
    /// Who comes.
    pub person: Person,
    /// Who may answer questions.
    pub attendance: Attendance,
    /// How they are asked.
    pub ask: Arc<dyn Approver>,
}

/// Whoever runs the gateway furnishes its sessions.
pub trait House: Send + Sync + fmt::Debug {
    /// What a session works with, or what keeps it from working, in words for the chat.
    fn furnish<'a>(&'a self, visit: Visit) -> Waiting<'a, Result<SessionConfig, String>>;

    /// Who answers, or what keeps everybody from it, in words for the chat.
    fn mind(&self, model: Option<&str>) -> Result<ModelConfig, String>;

    /// Lets a model answer wherever no other was chosen, from now on, or says what keeps it from that.
    fn prefer(&self, model: &str) -> Result<(), String>;

    /// What the model is told first.
    fn told(&self, setup: &SessionConfig, model: &str, room: &Room) -> SystemPrompt;

    /// Whether something runs in the place of a session that was told to run on. What cannot be known may be so.
    fn is_busy<'a>(&'a self, key: &'a SessionKey, room: &'a Room, person: &'a Person) -> Waiting<'a, bool>;

    /// Starts hermes anew, as soon as what is under way has ended, and says so in a room. The message that asked for it is the mark
    /// that it is said once.
    fn restart(&self, room: &Room, message: &str) -> Result<(), String>;

    /// Ends the place of a session with all that is in it.
    fn clear<'a>(&'a self, key: &'a SessionKey, room: &'a Room) -> Waiting<'a, Result<(), String>>;
}
