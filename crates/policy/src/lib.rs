//! Policy decisions: what may run, what may be shown, what may be reached.
//!
//! Everything Hermes runs is first a [`Job`](hermes_types::Job). [`Gate::judge`] is the only way
//! from a job to a [`Permit`], and environments accept nothing else. The gate allows, refuses, or
//! asks a [`Question`]; the answer of an approver becomes the permit.
//!
//! *Invariants.* Permits are created only here. A permit names one job, environment and session,
//! and is consumed by use. An unknown part of a command leads to a question, never to permission.
//! Nothing overrides the floor, and an owner's deny rule applies everywhere. This crate does no
//! I/O, reads no clock and draws no random numbers: callers pass times and seeds, so decisions are
//! reproducible.
//!
//! *Where to start reading.* [`gate`] for the order of decisions. [`shell`] turns text into
//! [`shell::Segment`]s, one per simple command; [`rules`] match segments and their effects on
//! files; [`question`] and [`grant`] are what approvers see and what their answers leave. Three
//! related modules share the crate: [`redact`] removes secrets from output, [`address`] classifies
//! network addresses, and [`secret_env`] lists the variables that are not passed on in bulk.

pub mod address;
mod allowance;
pub mod denied;
pub mod escape;
mod file_effects;
pub mod gate;
pub mod grant;
mod paths;
pub mod permit;
mod programs;
pub mod protected;
pub mod question;
pub mod redact;
pub mod refusal;
pub mod rules;
pub mod secret_env;
pub mod shell;
pub mod text_pattern;
pub mod user_rule;

pub use allowance::protected_class;
pub use denied::{DenialCheck, DenialLog};
pub use gate::{ApprovalMode, Gate, GateReport, Moment, Unattended, Verdict};
pub use grant::{Grant, GrantId, Grants};
pub use permit::Permit;
pub use protected::{ProtectedKind, ProtectedPath, protected_paths};
pub use question::{Question, QuestionId, StoredQuestion};
pub use refusal::Refusal;
pub use rules::Match;
pub use shell::pattern_matches;
pub use user_rule::{UserRule, UserVerdict};
