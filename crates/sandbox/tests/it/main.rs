//! Tests of the jail on this machine's kernel, as root and as an ordinary user.
#![expect(clippy::disallowed_methods, reason = "a test of jails starts programs")]
#![expect(clippy::unwrap_used, reason = "what a test cannot prepare, it cannot prove")]

mod attack;
mod bed;
mod escape;
mod exhaust;
mod kernel;
mod life;
mod probe;
mod refuse;
mod work;
