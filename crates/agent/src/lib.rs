//! The turn loop and its tools.
//!
//! A model asks for tools by name; [`Tool`] is the closed list of them, with what each may touch. [`Hands`] are what a
//! session does them with: its place, the gate in front of it, and the people who can be asked. Whatever a tool does
//! in the place it does with a permit that [`Hands::permit`] got from the gate, so that no tool can forget to ask.
//!
//! *Where to start reading.* [`hands`] for the way from a tool call to a permit, [`tool`] for the list of tools, and one
//! file below it for each, [`http`] for the one way to the web.

mod batch;
pub mod conversation;
mod guard;
pub mod hands;
pub mod http;
mod notice;
pub mod people;
mod preview;
pub mod prompt;
pub mod tool;
mod turn;

pub use conversation::{
    Control, Conversation, Ended, Error, Event, Exit, Mail, Mind, Replying, Saying, Untold, Watch,
};
pub use guard::{GuardRules, Repeats};
pub use hands::{Hands, Limits, MeansOf, No, Questions, Setup};
pub use hermes_model::{Album, Unkept};
pub use hermes_policy::{Answer, Question};
pub use http::Web;
pub use people::{Ask, Asking, Clarification};
pub use prompt::{Opening, Told};
pub use tool::code::{CodeExecution, CodeMode};
pub use tool::{BROUGHT, Done, Effects, Occasion, Scene, Takeable, Tool, Uncarried};
