//! May this run?
//!
//! Everything Hermes runs is first a [`Job`](hermes_types::Job), and [`Gate::judge`] is the only way from a job to a
//! [`Permit`], the only thing a sandbox accepts. The gate allows, refuses, or asks a [`Question`] whose answer by the
//! right person becomes the permit.
//!
//! *Invariants.* A permit is made here and nowhere else, names one job in one place for one session, and is used up
//! by use. What cannot be known about a command is asked about, never allowed. The floor is lifted by nobody, and an
//! owner's deny rule holds everywhere. Nothing here does I/O, reads a clock or draws random numbers: moments and
//! seeds are handed in, so the same question always gets the same verdict.
//!
//! *Where to start reading.* [`gate`] for the order of decisions. [`shell`] turns text into [`shell::Segment`]s, one
//! per simple command; [`rules`] holds what is asked about and what is never done, as facts about segments and about
//! what they do to files; [`question`] and [`grant`] are what people see and what their answers keep. Three
//! neighbors share the crate because they are decisions of the same kind: [`redact`] says what may be shown,
//! [`address`] what may be reached, [`withheld`] which variables are not let through in bulk.

pub mod address;
mod file_effects;
pub mod gate;
pub mod grant;
mod paths;
pub mod permit;
mod programs;
pub mod question;
pub mod redact;
pub mod refusal;
pub mod rules;
pub mod shell;
pub mod turn;
pub mod user_rule;
pub mod visible;
pub mod withheld;

pub use gate::{Gate, Mode, Moment, Opinion, Report, Unattended, Verdict};
pub use grant::{Grant, GrantId, GrantScope, Grants};
pub use permit::Permit;
pub use question::{Answer, Choice, Question, QuestionId, StoredQuestion};
pub use refusal::Refusal;
pub use turn::{Considered, Turn};
pub use user_rule::{Scope, UserRule, UserVerdict};
