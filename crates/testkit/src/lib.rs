//! Scripted models and strict fake servers. Only tests use this crate.
