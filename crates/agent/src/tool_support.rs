//! The parts that several tools share: files of the environment, text, and the size of results.

pub(crate) mod ansi;
pub(crate) mod file_state;
pub(crate) mod files;
pub(crate) mod text;
pub mod transfer;
pub(crate) mod truncate;
