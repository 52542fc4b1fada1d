//! The guest as its users see it: the real binary, real shells, real processes.

#![expect(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "what fails here fails the test")]

mod bare;
mod files;
mod hostile;
mod init;
mod life;
mod output;
mod place;
mod process;
mod search;
mod shell;
mod tunnel;
