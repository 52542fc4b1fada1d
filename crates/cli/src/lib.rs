//! The `hermes` command: configuration, wiring and what a person sees.
//!
//! This is the only crate that reads the environment and the configuration files; every other crate is handed
//! typed values. Start with [`config`] for the settings and with `command` for what each word on the command
//! line does.

pub mod config;
