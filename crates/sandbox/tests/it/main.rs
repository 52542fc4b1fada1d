//! Tests of jails on this machine's kernel, as root and as an unprivileged user.
#![expect(clippy::disallowed_methods, reason = "a test of jails starts programs")]
#![expect(clippy::unwrap_used, reason = "a failed preparation fails the test")]

mod attack;
mod escape;
mod exhaust;
mod fixture;
mod kernel;
mod life;
mod probe;
mod refuse;
mod work;
