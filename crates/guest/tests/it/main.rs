//! Tests of the guest with the real binary, real shells and real processes.

#![expect(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a failure here fails the test")]

mod bare;
mod files;
mod fixture;
mod hostile;
mod init;
mod life;
mod output;
mod process;
mod search;
mod shell;
mod tunnel;
mod view;
