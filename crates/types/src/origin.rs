//! Who requests a job, through which entry point, and who can approve it.

use crate::{EntryPoint, Person, Place, SessionKey};

/// The origin of one request. It is passed along as a value; there is no process-wide session
/// state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin {
    pub person: Person,
    pub entry_point: EntryPoint,
    pub session: SessionKey,
    pub attendance: Attendance,
    /// The environment the job would run in.
    pub place: Place,
}

/// Whether a question can be answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Attendance {
    /// These people may answer.
    Attended(Vec<Person>),
    /// There is no approver, so the gate must decide at once.
    Unattended,
}
