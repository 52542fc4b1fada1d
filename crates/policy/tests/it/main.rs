//! Tests of the public interface.

#![expect(clippy::expect_used, clippy::panic, reason = "an unexpected result fails the test")]

mod allowance;
mod caps;
mod contained;
mod corpus;
mod decisions;
#[expect(clippy::disallowed_methods, reason = "it compares the gate with real shells")]
mod differential;
mod egress;
mod fuzzed;
mod metamorphic;
mod python;
mod shell_state;
mod support;
mod text_patterns;
mod understanding;
mod vectors;
