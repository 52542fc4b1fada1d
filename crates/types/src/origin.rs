//! Who wants something run, from where, and whether anyone can be asked.

use crate::{Door, Person, Place, SessionKey};

/// The circumstances of one request. It travels with the request as a value; no process-wide flag describes a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin {
    /// Who asked.
    pub person: Person,
    /// By which door.
    pub door: Door,
    /// In which conversation.
    pub session: SessionKey,
    /// Whether somebody is there to answer a question.
    pub attendance: Attendance,
    /// Where the job would run.
    pub place: Place,
}

/// Whether a question can be put to somebody.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Attendance {
    /// These people may answer.
    Attended(Vec<Person>),
    /// Nobody is there: the verdict must be final at once.
    Unattended,
}
